//! MIGRATE between two servers, over sockets.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(120);

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(served: &Served) -> Client {
        Client(BufReader::new(served.connect(PATIENCE)))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// Appends a reply, in words.
    fn hear(&mut self, said: &mut String) {
        let line = self.line();
        let number = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes()[0] {
            b'$' if number() >= 0 => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                said.push_str(&String::from_utf8_lossy(&bytes[..bytes.len() - 2]));
            }
            b'*' => (0..number()).for_each(|_| self.hear(said)),
            _ => said.push_str(&line),
        }
        said.push(' ');
    }

    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut said = String::new();
        self.hear(&mut said);
        said.trim_end().to_string()
    }
}

/// The port of a server.
fn port(served: &Served) -> u16 {
    served.connect(PATIENCE).peer_addr().unwrap().port()
}

/// Two servers, in separate directories.
fn two() -> ([tempfile::TempDir; 2], [Served; 2]) {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let servers = dirs.each_ref().map(|dir| Served::start(dir.path(), "--loops 1"));
    (dirs, servers)
}

/// Values of all types, packed and in blocks or chunks, arrive unchanged.
#[test]
fn values_of_all_types_arrive() {
    let (_dirs, [first, second]) = two();
    let (mut here, mut there) = (Client::of(&first), Client::of(&second));
    let target = format!("MIGRATE 127.0.0.1 {}", port(&second));
    for count in [3, 3_000] {
        let mut names = Vec::new();
        for (kind, add, read) in [
            ("list", "RPUSH % element-#", "LRANGE % 0 -1"),
            ("set", "SADD % member-#", "SORT % ALPHA"),
            ("integers", "SADD % #", "SORT %"),
            ("hash", "HSET % field-# value-#", "HGETALL %"),
            ("zset", "ZADD % #.5 member-#", "ZRANGE % 0 -1 WITHSCORES"),
            ("string", "APPEND % #-0123456789-0123456789-0123456789-0123456789", "GET %"),
        ] {
            let name = format!("{kind}-{count}");
            let fill: String = (0..count)
                .map(|n| add.replace('%', &name).replace('#', &n.to_string()) + "\r\n")
                .collect();
            here.0.get_mut().write_all(fill.as_bytes()).unwrap();
            (0..count).for_each(|_| assert!(here.line().starts_with(':')));
            names.push((name.clone(), read.replace('%', &name)));
        }
        let sorted = |text: String| {
            let mut words: Vec<String> = text.split(' ').map(str::to_string).collect();
            // A large hash has the order of its server.
            words.sort();
            words
        };
        let before: Vec<_> = names.iter().map(|(_, read)| sorted(here.ask(read))).collect();
        let keys = names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ");
        assert_eq!(here.ask(&format!("{target} \"\" 0 60000 KEYS {keys}")), "+OK");
        assert_eq!(here.ask("DBSIZE"), ":0");
        let after: Vec<_> = names.iter().map(|(_, read)| sorted(there.ask(read))).collect();
        assert!(before == after, "{count}");
        assert_eq!(there.ask("FLUSHALL"), "+OK");
    }
}

/// A value many times larger than the buffers of sockets, and back.
#[test]
fn a_long_string_arrives_and_comes_back() {
    let (_dirs, [first, second]) = two();
    let (mut here, mut there) = (Client::of(&first), Client::of(&second));
    // Text that does not compress.
    let (mut seed, mut text) = (1u64, String::new());
    while text.len() < 20 << 20 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{seed:016x}"));
    }
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\ns\r\n${}\r\n{text}\r\n", text.len());
    here.0.get_mut().write_all(set.as_bytes()).unwrap();
    assert_eq!(here.line(), "+OK");
    assert_eq!(here.ask(&format!("MIGRATE 127.0.0.1 {} s 3 60000", port(&second))), "+OK");
    assert_eq!(here.ask("EXISTS s"), ":0");
    assert_eq!(there.ask("SELECT 3"), "+OK");
    assert!(there.ask("GET s") == text);
    assert_eq!(there.ask(&format!("MIGRATE 127.0.0.1 {} s 0 60000", port(&first))), "+OK");
    assert_eq!(there.ask("EXISTS s"), ":0");
    assert!(here.ask("GET s") == text);
}

/// A server may be its own target: the key restored in the place of the source is not removed.
#[test]
fn a_server_that_is_its_own_target_keeps_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--loops 1");
    let mut client = Client::of(&served);
    let target = format!("MIGRATE 127.0.0.1 {}", port(&served));
    assert_eq!(client.ask("SET a 1"), "+OK");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(client.ask(&format!("{target} a 0 60000")), busy);
    let written = "-ERR keys that were written here while they were sent: 1; they stay, and the \
                   target has older values of them";
    assert_eq!(client.ask(&format!("{target} a 0 60000 REPLACE")), written);
    assert_eq!(client.ask("GET a"), "1");
    for n in 0..600 {
        client.ask(&format!("HSET h f{n} {n}"));
    }
    assert_eq!(client.ask(&format!("{target} h 0 60000 REPLACE")), written);
    assert_eq!(client.ask("HLEN h"), ":600");
    // Into another database MIGRATE is a move.
    assert_eq!(client.ask(&format!("{target} a 5 60000")), "+OK");
    assert_eq!(client.ask("EXISTS a"), ":0");
    assert_eq!(client.ask("SELECT 5"), "+OK");
    assert_eq!(client.ask("GET a"), "1");
}

/// Loops go on while a target says nothing, and so does the stop of the server.
#[test]
fn a_silent_target_holds_up_neither_clients_nor_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--loops 1");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut waits, mut other) = (Client::of(&served), Client::of(&served));
    assert_eq!(waits.ask("SET a 1"), "+OK");
    let line = format!("MIGRATE 127.0.0.1 {} a 0 600000\r\n", silent.local_addr().unwrap().port());
    waits.0.get_mut().write_all(line.as_bytes()).unwrap();
    let (connection, _) = silent.accept().unwrap();
    assert_eq!(other.ask("INCR n"), ":1");
    assert_eq!(other.ask("KEYS n"), "n");
    assert_eq!(other.ask("SAVE"), "+OK");
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < Duration::from_secs(30), "the stop waits for the target");
    assert_eq!(waits.line(), "-IOERR error or timeout reading from target instance");
    drop(connection);
    let served = Served::start(dir.path(), "--loops 1");
    assert_eq!(Client::of(&served).ask("GET a"), "1");
}

/// An unused connection is closed after ten seconds, and no thread checks the time before.
#[test]
fn a_kept_connection_is_closed_after_a_while() {
    let (_dirs, [first, second]) = two();
    let (mut here, mut there) = (Client::of(&first), Client::of(&second));
    assert_eq!(here.ask("MSET a 1 b 2"), "+OK");
    let target = format!("MIGRATE 127.0.0.1 {}", port(&second));
    assert_eq!(here.ask(&format!("{target} a 0 60000")), "+OK");
    // The last use of the connection follows.
    let began = Instant::now();
    assert_eq!(here.ask(&format!("{target} b 0 60000")), "+OK");
    let clients = |there: &mut Client| there.ask("CLIENT LIST").matches("id=").count();
    assert!(here.ask("INFO stats").contains("migrate_cached_sockets:1"));
    // The test's own client, and the kept connection.
    while clients(&mut there) != 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not kept");
    }
    while clients(&mut there) > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "it stays");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(began.elapsed() > Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(here.ask("INFO stats").contains("migrate_cached_sockets:0"));
}
