//! Fields of hashes that expire while clients of several event loops use the fields, and are
//! removed by the server's own thread.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, Settings};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn serve(dir: &Path) -> Server {
    let settings = format!("--port 0 --dir {} --bind 127.0.0.1 --loops 2", dir.display());
    let settings: Vec<&str> = settings.split(' ').collect();
    let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
    server.wait_until_open().unwrap();
    server
}

fn stop(server: Server) {
    server.handle().stop();
    server.wait().unwrap();
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client(BufReader::new(stream))
    }

    /// The reply to a line, with a blank behind each line of the reply.
    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.read()
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_string();
        let number = line[1..].parse::<i64>().unwrap_or(-1);
        match line.as_bytes()[0] {
            b'$' if number >= 0 => {
                let mut text = vec![0; number as usize + 2];
                self.0.read_exact(&mut text).unwrap();
                String::from_utf8(text).unwrap().trim_end().to_string()
            }
            b'*' if number >= 0 => {
                let all: Vec<String> = (0..number).map(|_| self.read()).collect();
                format!("[{}]", all.join(" "))
            }
            _ => line,
        }
    }
}

/// Waits until the server says so.
fn wait_for(client: &mut Client, line: &str, expected: &str) {
    let began = Instant::now();
    loop {
        let said = client.ask(line);
        if said == expected {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{line}: {said}, not {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients set, take and prolong fields of the same two hashes, one packed, one in blocks, with an
/// expiry after a few milliseconds. HLEN, HKEYS and HGETALL of a transaction agree throughout.
/// After all times nothing is left, though no client has read or written the fields.
#[test]
fn a_hash_that_many_clients_use_loses_its_fields_and_then_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let address = server.address().unwrap();
    let mut first = Client::of(address);
    for field in 0..300 {
        first.ask(&format!("HSETEX large PX 400 FIELDS 1 first:{field} {field}"));
    }
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            scope.spawn(move || {
                let (mut client, mut random) =
                    (Client::of(address), fastrand::Rng::with_seed(thread));
                for _ in 0..250 {
                    let hash = ["small", "large"][random.usize(..2)];
                    let field = format!("f{}", random.u8(..20));
                    let ms = random.u8(1..30);
                    let said = match random.u8(..8) {
                        0..=2 => client.ask(&format!("HSETEX {hash} PX {ms} FIELDS 1 {field} 1")),
                        3 => client.ask(&format!("HPEXPIRE {hash} {ms} FIELDS 1 {field}")),
                        4 => client.ask(&format!("HGETDEL {hash} FIELDS 1 {field}")),
                        5 => client.ask(&format!("HGETEX {hash} PX {ms} FIELDS 1 {field}")),
                        6 => client.ask(&format!("HSETEX {hash} FNX PX {ms} FIELDS 1 {field} 2")),
                        _ => {
                            client.ask("MULTI");
                            for line in ["HLEN", "HKEYS", "HVALS"] {
                                client.ask(&format!("{line} {hash}"));
                            }
                            let said = client.ask("EXEC");
                            let mut parts = said[1..].split([' ', '[', ']']);
                            let count: usize = parts.next().unwrap()[1..].parse().unwrap();
                            let others = parts.filter(|part| !part.is_empty()).count();
                            assert_eq!(others, 2 * count, "{said}");
                            said
                        }
                    };
                    assert!(!said.starts_with('-'), "{said}");
                }
            });
        }
    });
    wait_for(&mut first, "DBSIZE", ":0");
    let stats = first.ask("INFO stats");
    let removed = stats.lines().find_map(|line| line.strip_prefix("expired_subkeys:")).unwrap();
    assert!(removed.parse::<u64>().unwrap() >= 300, "{removed}");
    stop(server);
}

/// Fields that expire while no server runs are gone after the start, and are removed; later
/// expiries keep their times, and their timers.
#[test]
fn a_start_removes_the_fields_whose_times_have_come() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let mut client = Client::of(server.address().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let (soon, late) = (now + 1_500, now + 4_000);
    client.ask("HSET h a 1 b 2 c 3");
    client.ask(&format!("HPEXPIREAT h {soon} FIELDS 1 a"));
    client.ask(&format!("HPEXPIREAT h {late} FIELDS 1 b"));
    let fields: String = (0..300).map(|field| format!(" {field} 1")).collect();
    client.ask(&format!("HSETEX large PXAT {soon} FIELDS 300{fields}"));
    assert_eq!(client.ask("HLEN large"), ":300");
    stop(server);
    while SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() < soon {
        std::thread::sleep(Duration::from_millis(20));
    }
    let server = serve(dir.path());
    let mut client = Client::of(server.address().unwrap());
    assert_eq!(client.ask("EXISTS h large"), ":1");
    assert_eq!(client.ask("HMGET h a c"), "[$-1 3]");
    if client.ask("HEXISTS h b") == ":1" {
        assert_eq!(client.ask("HPEXPIRETIME h FIELDS 1 b"), format!("[:{late}]"));
    }
    wait_for(&mut client, "DBSIZE", ":1");
    wait_for(&mut client, "HKEYS h", "[c]");
    let began = Instant::now();
    let removed = loop {
        let stats = client.ask("INFO stats");
        let removed = stats.lines().find_map(|line| line.strip_prefix("expired_subkeys:"));
        let removed = removed.unwrap().to_string();
        if removed == "302" || began.elapsed() > Duration::from_secs(10) {
            break removed;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(removed, "302");
    stop(server);
}
