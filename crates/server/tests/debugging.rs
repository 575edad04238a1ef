//! DEBUG over sockets: during a sleep no client of any event loop is served; during a fill of a
//! database all clients are. And a database with a loading time set by the test.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use hyades_server::{Server, Settings};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Says a line, and returns the first line of the reply.
fn ask(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    reply.trim_end().to_string()
}

/// Sends a line with a string as the reply.
fn ask_for_text(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    let length = ask(stream, line);
    let bytes: usize = length.trim_start_matches('$').parse().unwrap();
    let mut text = vec![0; bytes + 2];
    stream.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// A client that sends a line again and again until told to end. Returns the longest wait for a
/// reply, and the number of replies.
fn keep_asking(
    served: &Served,
    line: &'static str,
    ends: &Arc<AtomicBool>,
) -> JoinHandle<(Duration, u64)> {
    let mut client = BufReader::new(served.connect(PATIENCE));
    let ends = ends.clone();
    let first = ask(&mut client, line);
    assert!(first.starts_with(['+', ':']), "{first}");
    std::thread::spawn(move || {
        let (mut longest, mut replies) = (Duration::ZERO, 0);
        while !ends.load(SeqCst) {
            let asked = Instant::now();
            let said = ask(&mut client, line);
            assert!(said.starts_with(['+', ':']), "{said}");
            (longest, replies) = (longest.max(asked.elapsed()), replies + 1);
        }
        (longest, replies)
    })
}

/// While the server sleeps for two seconds: the shortest of the longest waits of six clients.
fn shortest_wait_beside_a_sleep(served: &Served) -> Duration {
    let ends = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6).map(|_| keep_asking(served, "PING", &ends)).collect();
    let mut sleeper = BufReader::new(served.connect(PATIENCE));
    let began = Instant::now();
    assert_eq!(ask(&mut sleeper, "DEBUG SLEEP 2"), "+OK");
    assert!(began.elapsed() >= Duration::from_secs(2));
    ends.store(true, SeqCst);
    let waited = clients.into_iter().map(|client| client.join().unwrap().0).min();
    assert_eq!(ask(&mut sleeper, "PING"), "+PONG");
    waited.expect("there are clients")
}

#[test]
fn a_sleep_holds_up_the_clients_of_all_loops() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--loops 3 --enable-debug-command yes");
    // A client with a stopped thread has nothing to wait for: then the test tries again.
    let holds_up = |_| {
        let waited = shortest_wait_beside_a_sleep(&served);
        eprintln!("each client has waited {waited:?} at least once");
        waited >= Duration::from_millis(1_500)
    };
    assert!((0..5).any(holds_up), "a client is served while the server sleeps");
}

/// Commands sent meanwhile are not read before the end.
#[test]
fn a_client_is_not_idle_while_the_server_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--loops 2 --enable-debug-command yes --timeout 2");
    // If this thread is delayed, the clients are idle before the sleep: then the test tries again.
    let speaks_in_time = |_| {
        let began = Instant::now();
        let mut sleeper = BufReader::new(served.connect(PATIENCE));
        let mut others: Vec<_> = (0..4).map(|_| BufReader::new(served.connect(PATIENCE))).collect();
        others.iter_mut().for_each(|other| assert_eq!(ask(other, "PING"), "+PONG"));
        sleeper.get_mut().write_all(b"DEBUG SLEEP 3\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        if began.elapsed() > Duration::from_millis(1_500) {
            return false;
        }
        others.iter_mut().for_each(|other| assert_eq!(ask(other, "PING"), "+PONG"));
        assert_eq!(ask(&mut sleeper, ""), "+OK");
        true
    };
    assert!((0..5).any(speaks_in_time), "this thread is held up again and again");
}

#[test]
fn a_stop_ends_a_sleep() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--loops 2 --enable-debug-command yes");
    let mut sleeper = served.connect(PATIENCE);
    let mut other = BufReader::new(served.connect(Duration::from_secs(3)));
    sleeper.write_all(b"DEBUG SLEEP 3600\r\nDEBUG SLEEP 3600\r\n").unwrap();
    let began = Instant::now();
    loop {
        other.get_mut().write_all(b"PING\r\n").unwrap();
        let mut line = String::new();
        // The command has begun once there is no reply.
        if other.read_line(&mut line).is_err() {
            break;
        }
        assert_eq!(line, "+PONG\r\n");
        assert!(began.elapsed() < PATIENCE);
    }
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let mut said = String::new();
    sleeper.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("+OK\r\n"), "{said}");
}

#[test]
fn clients_go_on_while_a_database_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--loops 2 --enable-debug-command yes";
    let served = Served::start(dir.path(), flags);
    let ends = Arc::new(AtomicBool::new(false));
    let mut client = BufReader::new(served.connect(PATIENCE));
    let writer = keep_asking(&served, "INCR n", &ends);
    assert_eq!(ask(&mut client, "DEBUG POPULATE 50000 key 100"), "+OK");
    ends.store(true, SeqCst);
    let (_, replies) = writer.join().unwrap();
    assert!(replies > 0);
    drop(served);
    // Acknowledged writes are on disk.
    let served = Served::start(dir.path(), flags);
    let mut client = BufReader::new(served.connect(PATIENCE));
    assert_eq!(ask(&mut client, "DBSIZE"), ":50001");
    let text = ask_for_text(&mut client, "GET key:49999");
    assert_eq!(text.trim_end_matches("\r\n"), format!("{:\0<100}", "value:49999"));
}

/// Starts a server with a loading time of this many microseconds for each key.
fn start_slowly(dir: &Path, delay: &str) -> (Server, BufReader<TcpStream>) {
    let dir = dir.to_str().unwrap();
    let own = ["--port", "0", "--bind", "127.0.0.1", "--streams", "2", "--dir", dir];
    let settings = [&own[..], &["--key-load-delay", delay]].concat();
    let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
    let client = TcpStream::connect(server.address().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (server, BufReader::new(client))
}

#[test]
fn loading_takes_as_long_as_a_test_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), "--enable-debug-command yes");
    let mut client = BufReader::new(served.connect(PATIENCE));
    assert_eq!(ask(&mut client, "DEBUG POPULATE 1000"), "+OK");
    drop((client, served));
    // A thousand seconds.
    let (server, mut client) = start_slowly(dir.path(), "1000000");
    assert!(ask(&mut client, "GET key:1").starts_with("-LOADING "));
    assert!(ask_for_text(&mut client, "INFO persistence").contains("\r\nloading:1\r\n"));
    assert_eq!(ask(&mut client, "CONFIG SET loglevel debug"), "+OK");
    assert!(ask(&mut client, "CONFIG SET dir asdf").starts_with("-LOADING "));
    // The keys are counted by then, in all likelihood, and the delay has begun.
    std::thread::sleep(Duration::from_millis(500));
    assert!(ask(&mut client, "GET key:1").starts_with("-LOADING "));
    // A change counts at once.
    assert_eq!(ask(&mut client, "CONFIG SET key-load-delay 0"), "+OK");
    let began = Instant::now();
    server.wait_until_open().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(ask_for_text(&mut client, "GET key:1"), "value:1\r\n");
    server.handle().stop();
    server.wait().unwrap();
    // A stop does not wait for the delay.
    let (server, mut client) = start_slowly(dir.path(), "1000000");
    assert!(ask(&mut client, "GET key:1").starts_with("-LOADING "));
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    server.handle().stop();
    server.wait_until_open().unwrap();
    server.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
}
