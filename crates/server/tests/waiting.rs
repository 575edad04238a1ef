//! Clients that wait for elements, over sockets and with several event loops.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, Settings};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Served {
    server: Option<Server>,
    _dir: TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let settings = ["--port", "0", "--dir", path, "--bind", "127.0.0.1", "--loops", "3"];
        let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
        server.wait_until_open().unwrap();
        Served { server: Some(server), _dir: dir }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.server.as_ref().unwrap().address().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let server = self.server.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// Two bulk strings, or `None` for a null array.
    fn pair(&mut self) -> Option<(String, String)> {
        match self.line().as_str() {
            "*-1" => None,
            "*2" => {
                let mut text = || {
                    self.line();
                    self.line()
                };
                Some((text(), text()))
            }
            other => panic!("{other}"),
        }
    }
}

/// Producers and consumers on several loops: each element is consumed once, and no consumer sleeps
/// while there is an element.
#[test]
fn each_element_is_consumed_once() {
    const EACH: usize = 1_500;
    let served = Served::new();
    let consumed = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for producer in 0..3 {
            let mut client = served.connect();
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(producer);
                for n in 0..EACH {
                    let key = ["a", "b"][rng.usize(0..2)];
                    client.send(&format!("RPUSH {key} {producer}:{n}\r\n"));
                    assert!(client.line().starts_with(':'));
                    if rng.usize(0..50) == 0 {
                        std::thread::sleep(Duration::from_millis(rng.u64(0..5)));
                    }
                }
            });
        }
        for consumer in 0..5 {
            let (mut client, consumed) = (served.connect(), &consumed);
            scope.spawn(move || {
                let keys = ["a b", "b a", "a", "b", "b a"][consumer];
                loop {
                    client.send(&format!("BLPOP {keys} 0\r\n"));
                    let (_, element) = client.pair().expect("it waits for ever");
                    if element == "end" {
                        return;
                    }
                    assert!(consumed.lock().unwrap().insert(element.clone()), "{element} twice");
                }
            });
        }
        let (mut count, mut since) = (0, Instant::now());
        while count < 3 * EACH {
            std::thread::sleep(Duration::from_millis(10));
            let now = consumed.lock().unwrap().len();
            if now > count {
                (count, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < Duration::from_secs(30), "a consumer sleeps: {count}");
        }
        // Each client takes an element, for any key.
        let mut client = served.connect();
        client.send("RPUSH a end end end end end\r\nRPUSH b end end end end end\r\n");
        assert_eq!((client.line().len(), client.line().len()), (2, 2));
    });
    assert_eq!(consumed.into_inner().unwrap().len(), 3 * EACH);
    let mut client = served.connect();
    client.send("LLEN a\r\nLLEN b\r\n");
    let left = [client.line(), client.line()].map(|line| line[1..].parse::<usize>().unwrap());
    assert_eq!(left.iter().sum::<usize>(), 5, "nothing else is left");
}

#[test]
fn a_client_that_has_gone_takes_nothing() {
    let served = Served::new();
    let mut other = served.connect();
    for end in ["closed", "half closed", "killed"] {
        let mut gone = served.connect();
        gone.send("CLIENT ID\r\n");
        let id = gone.line();
        gone.send("BLPOP a 0\r\n");
        wait_for_blocked(&mut other, 1);
        let socket = gone.0.get_ref().try_clone().unwrap();
        match end {
            "closed" => drop(gone),
            "half closed" => socket.shutdown(std::net::Shutdown::Write).unwrap(),
            _ => {
                other.send(&format!("CLIENT KILL ID {}\r\n", &id[1..]));
                assert_eq!(other.line(), ":1");
            }
        }
        drop(socket);
        wait_for_blocked(&mut other, 0);
        other.send("RPUSH a 1\r\nLPOP a\r\n");
        assert_eq!([other.line(), other.line(), other.line()], [":1", "$1", "1"], "{end}");
    }
}

/// The client has sent more bytes behind the waiting command than are read meanwhile.
#[test]
fn a_client_that_has_gone_takes_nothing_whatever_it_has_sent_before() {
    const BEHIND: usize = (80 << 10) / "PING\r\n".len();
    let served = Served::new();
    let mut other = served.connect();
    let mut gone = served.connect();
    gone.send(&("BLPOP a 0\r\n".to_string() + &"PING\r\n".repeat(BEHIND)));
    wait_for_blocked(&mut other, 1);
    drop(gone);
    wait_for_blocked(&mut other, 0);
    other.send("RPUSH a 1\r\nLPOP a\r\n");
    assert_eq!([other.line(), other.line(), other.line()], [":1", "$1", "1"]);
}

fn wait_for_blocked(client: &mut Client, count: usize) {
    let began = Instant::now();
    loop {
        client.send("INFO clients\r\n");
        let bytes: usize = client.line()[1..].parse().unwrap();
        let mut text = vec![0; bytes + 2];
        std::io::Read::read_exact(&mut client.0, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        if text.contains(&format!("blocked_clients:{count}\r\n")) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{text}");
    }
}

#[test]
fn times_end_on_time_and_in_order() {
    let served = Served::new();
    let began = Instant::now();
    let times: Vec<(u64, Duration)> = std::thread::scope(|scope| {
        let wait = |millis: u64| {
            let mut client = served.connect();
            scope.spawn(move || {
                let begin = Instant::now();
                client.send(&format!("BLPOP a {}\r\n", millis as f64 / 1000.0));
                assert_eq!(client.pair(), None);
                (millis, begin.elapsed())
            })
        };
        let waits: Vec<_> = [300, 1, 50, 900, 50].map(wait).into_iter().collect();
        waits.into_iter().map(|wait| wait.join().unwrap()).collect()
    });
    for (millis, time) in times {
        assert!(time >= Duration::from_millis(millis), "{millis}: {time:?}");
        assert!(time < Duration::from_millis(millis) + Duration::from_secs(10), "{millis}");
    }
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// A server is stopped while clients wait.
#[test]
fn a_stop_waits_for_none_of_them() {
    let served = Served::new();
    let mut client = served.connect();
    client.send("BLPOP a 0\r\n");
    wait_for_blocked(&mut served.connect(), 1);
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert_eq!(client.line(), "", "the connection is closed without a reply");
}
