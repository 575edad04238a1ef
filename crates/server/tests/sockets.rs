//! Clients of a server over sockets: what they send at once, and how they end.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, Settings};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server in a directory of its own.
struct Served {
    server: Option<Server>,
    _dir: TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let settings =
            format!("--port 0 --dir {path} --bind 127.0.0.1 --loops 1 --enable-debug-command yes");
        let settings: Vec<&str> = settings.split(' ').collect();
        let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
        server.wait_until_open().unwrap();
        Served { server: Some(server), _dir: dir }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.as_ref().unwrap().address().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let server = self.server.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }
}

/// Reads and writes by turns, in far greater numbers than wait for the disk at once; then the end
/// of the connection, at once. Each is run and answered.
#[test]
fn all_that_was_sent_before_the_end_is_answered() {
    const PAIRS: usize = 6_000;
    let served = Served::new();
    let mut stream = served.connect();
    let mut reader = stream.try_clone().unwrap();
    let answers = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    });
    let text: String =
        (0..PAIRS).map(|n| format!("GET k{}\r\nPING\r\nSET k{} {n}\r\n", n % 7, n % 5)).collect();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let all = answers.join().unwrap().unwrap();
    let text = String::from_utf8(all).unwrap();
    let count = |what: &str| text.lines().filter(|line| *line == what).count();
    assert_eq!((count("+OK"), count("+PONG")), (PAIRS, PAIRS));
    assert_eq!(text.lines().filter(|line| line.starts_with('$')).count(), PAIRS);
}

/// A client that hangs up during CLIENT PAUSE leaves no command to run after it.
#[test]
fn what_waits_for_the_end_of_a_pause_goes_with_its_client() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    let mut ask = |text: &str| {
        admin.get_mut().write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        admin.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(ask("CLIENT PAUSE 60000 WRITE\r\n"), "+OK\r\n");
    for _ in 0..10 {
        let mut gone = served.connect();
        gone.write_all(b"INCR n\r\n").unwrap();
    }
    // Of some of these, what was sent and the end are read at once.
    for _ in 0..100 {
        served.connect().write_all(b"INCR n\r\n").unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(ask("CLIENT UNPAUSE\r\n"), "+OK\r\n");
    for _ in 0..20 {
        assert_eq!(ask("GET n\r\n"), "$-1\r\n");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client that never stops sending is closed all the same.
#[test]
fn a_busy_client_can_be_killed() {
    let served = Served::new();
    let mut busy = BufReader::new(served.connect());
    busy.get_mut().write_all(b"CLIENT ID\r\n").unwrap();
    let mut id = String::new();
    busy.read_line(&mut id).unwrap();
    let mut writing = busy.get_ref().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let text = "INCR n\r\n".repeat(2_000);
        while writing.write_all(text.as_bytes()).is_ok() {}
    });
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = busy.read_to_end(&mut all);
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut other = BufReader::new(served.connect());
    let id = id.trim().trim_start_matches(':');
    other.get_mut().write_all(format!("CLIENT KILL ID {id}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    other.read_line(&mut line).unwrap();
    assert_eq!(line, ":1\r\n");
    writer.join().unwrap();
    reader.join().unwrap();
}

/// The thread that sleeps for one client keeps neither the others' work, nor the stop.
#[test]
fn a_slow_job_holds_up_neither_quick_ones_nor_the_stop() {
    let served = Served::new();
    let mut slow = served.connect();
    slow.write_all(b"DEBUG SLEEP 60\r\nSAVE\r\n").unwrap();
    let mut other = served.connect();
    other.write_all(b"SAVE\r\n").unwrap();
    let mut quick = BufReader::new(served.connect());
    quick.get_mut().write_all(b"KEYS *\r\n").unwrap();
    let mut line = String::new();
    quick.read_line(&mut line).unwrap();
    assert_eq!(line, "*0\r\n");
    // The slow job was given to its thread; it begins soon after.
    while !line.contains("cmd=debug") {
        quick.get_mut().write_all(b"CLIENT LIST\r\n").unwrap();
        line.clear();
        let mut length = String::new();
        quick.read_line(&mut length).unwrap();
        let bytes: usize = length.trim().trim_start_matches('$').parse().unwrap();
        let mut list = vec![0; bytes + 2];
        quick.read_exact(&mut list).unwrap();
        line = String::from_utf8(list).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    drop(served);
    // What was begun is answered; what was not has no effect, and no reply.
    let mut said = String::new();
    slow.read_to_string(&mut said).unwrap();
    assert_eq!(said, "+OK\r\n");
    assert!(began.elapsed() < Duration::from_secs(30), "the stop waits for a job");
}

/// Says lines, and reads one line of reply for each.
fn ask(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    reply.trim_end().to_string()
}

/// A client that waits for something says nothing either, and stays.
#[test]
fn a_client_that_says_nothing_is_disconnected() {
    let served = Served::new();
    let mut idle = BufReader::new(served.connect());
    let mut listens = BufReader::new(served.connect());
    let mut blocked = BufReader::new(served.connect());
    assert_eq!(ask(&mut idle, "PING"), "+PONG");
    assert_eq!(ask(&mut listens, "SUBSCRIBE c"), "*3");
    blocked.get_mut().write_all(b"BLPOP a 0\r\n").unwrap();
    let mut admin = BufReader::new(served.connect());
    assert_eq!(ask(&mut admin, "CONFIG SET timeout 1"), "+OK");
    let began = Instant::now();
    let mut rest = String::new();
    assert_eq!(idle.read_to_string(&mut rest).unwrap(), 0, "{rest}");
    assert!(began.elapsed() < Duration::from_secs(20));
    let mut admin = BufReader::new(served.connect());
    assert_eq!(ask(&mut admin, "CONFIG SET timeout 0"), "+OK");
    assert_eq!(ask(&mut admin, "LPUSH a 1"), ":1");
    let mut line = String::new();
    blocked.read_line(&mut line).unwrap();
    assert_eq!(line, "*2\r\n");
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ask(&mut admin, "PING"), "+PONG", "there is no timeout any more");
}

/// A reply that its client does not read is kept up to the limit, for its time.
#[test]
fn a_client_that_does_not_read_is_disconnected() {
    for limit in ["normal 8mb 0 0", "normal 0 4mb 1"] {
        let served = Served::new();
        let mut admin = BufReader::new(served.connect());
        let set = format!("CONFIG SET client-output-buffer-limit \"{limit}\"");
        assert_eq!(ask(&mut admin, &set), "+OK");
        assert_eq!(ask(&mut admin, "SETRANGE a 14000000 x"), ":14000001");
        let mut idle = BufReader::new(served.connect());
        assert_eq!(ask(&mut idle, "CLIENT SETNAME slow"), "+OK");
        // More than the system keeps for a socket.
        idle.get_mut().write_all(b"MGET a a a a\r\n").unwrap();
        let began = Instant::now();
        while count(&mut admin) > 1 {
            assert!(began.elapsed() < Duration::from_secs(20), "{limit}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut all = Vec::new();
        let _ = idle.read_to_end(&mut all);
        assert!(all.len() < 4 * 14_000_001, "{limit}: the end of the reply has not come");
    }
}

/// The number of clients.
fn count(stream: &mut BufReader<TcpStream>) -> usize {
    let length = ask(stream, "CLIENT LIST");
    let bytes: usize = length.trim_start_matches('$').parse().unwrap();
    let mut list = vec![0; bytes + 2];
    stream.read_exact(&mut list).unwrap();
    String::from_utf8(list).unwrap().lines().filter(|line| line.contains("id=")).count()
}
