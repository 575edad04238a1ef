//! Clients that wait for elements, over sockets and with several event loops.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, Settings};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Served {
    server: Option<Server>,
    _dir: TempDir,
}

impl Served {
    fn new() -> Served {
        Served::in_dir(tempfile::tempdir().unwrap())
    }

    fn in_dir(dir: TempDir) -> Served {
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
/// beside one.
#[test]
fn each_element_is_consumed_once() {
    const EACH: usize = 1_500;
    let served = Served::new();
    let consumed = Mutex::new(HashSet::new());
    let (producing, began) = (AtomicUsize::new(3), Instant::now());
    std::thread::scope(|scope| {
        for producer in 0..3 {
            let (mut client, producing) = (served.connect(), &producing);
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
                producing.fetch_sub(1, SeqCst);
            });
        }
        for consumer in 0..5 {
            let (mut client, consumed) = (served.connect(), &consumed);
            let producing = &producing;
            scope.spawn(move || {
                let keys = ["a b", "b a", "a", "b", "b a"][consumer];
                loop {
                    // A disk may be slow: one that waits in vain goes on until nothing more comes.
                    let is_last = producing.load(SeqCst) == 0;
                    client.send(&format!("BLPOP {keys} 3\r\n"));
                    let Some((_, element)) = client.pair() else {
                        if is_last || began.elapsed() > Duration::from_secs(120) {
                            return;
                        }
                        continue;
                    };
                    assert!(consumed.lock().unwrap().insert(element.clone()), "{element} twice");
                }
            });
        }
    });
    assert_eq!(consumed.into_inner().unwrap().len(), 3 * EACH);
    let mut client = served.connect();
    client.send("DBSIZE\r\n");
    assert_eq!(client.line(), ":0");
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
    // Nor for a disk.
    let served = Served::in_dir(tempfile::tempdir_in("/dev/shm").unwrap());
    let mut client = served.connect();
    client.send("BLPOP a 0\r\n");
    wait_for_blocked(&mut served.connect(), 1);
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert_eq!(client.line(), "", "the connection is closed without a reply");
}
