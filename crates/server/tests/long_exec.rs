//! A transaction of very many commands, and other clients meanwhile: an event loop reads the
//! commands, runs none, and frees the commands, piece by piece.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Commands of a transaction.
const COMMANDS: usize = 200_000;

/// The longest wait of another client, in the best of several attempts, since a busy machine delays
/// a thread as long.
const BOUND: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 10;

/// The requests of a client, and the bytes of the replies.
struct Sent {
    requests: Vec<u8>,
    replies: usize,
}

/// A transaction of all the commands, and its end.
fn transaction(command: impl Fn(usize) -> String, end: &str, replies: usize) -> Sent {
    let mut requests = b"MULTI\r\n".to_vec();
    for number in 0..COMMANDS {
        requests.extend_from_slice(command(number).as_bytes());
        requests.extend_from_slice(b"\r\n");
    }
    requests.extend_from_slice(end.as_bytes());
    requests.extend_from_slice(b"\r\n");
    Sent { requests, replies: "+OK\r\n".len() + COMMANDS * "+QUEUED\r\n".len() + replies }
}

/// Sends all, and reads the replies meanwhile.
fn run(stream: &TcpStream, sent: &Sent) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut reader, mut left) = (stream, sent.replies);
            let mut buffer = vec![0; 1 << 20];
            while left > 0 {
                let most = left.min(buffer.len());
                let read = reader.read(&mut buffer[..most]).unwrap();
                assert!(read > 0, "the connection has ended");
                left -= read;
            }
        });
        let mut writer = stream;
        writer.write_all(&sent.requests).unwrap();
    });
}

/// The longest wait of a client of the same loop for a reply while another client runs `sent`.
fn longest_wait(served: &Served, sent: &Sent) -> Duration {
    let stream = served.connect(Duration::from_secs(100));
    let mut other = BufReader::new(served.connect(Duration::from_secs(100)));
    let mut ask = |text: &str| {
        let began = Instant::now();
        other.get_mut().write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        other.read_line(&mut line).unwrap();
        if line.starts_with('$') && line != "$-1\r\n" {
            other.read_line(&mut line).unwrap();
        }
        began.elapsed()
    };
    ask("SET other 1\r\n");
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| run(&stream, sent));
        let mut longest = Duration::ZERO;
        while !runs.is_finished() {
            longest = longest.max(ask("PING\r\n")).max(ask("GET other\r\n"));
            std::thread::sleep(Duration::from_micros(200));
        }
        longest
    })
}

#[test]
fn others_are_served_beside_a_long_transaction() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "--loops 1");
    let replies = format!("*{COMMANDS}\r\n").len();
    let key = |n: usize| format!("SET key{n} {n}");
    let cases = [
        ("keys", transaction(key, "EXEC", replies + COMMANDS * "+OK\r\n".len())),
        ("one key", transaction(|_| "SET key 1".into(), "EXEC", replies + COMMANDS * 5)),
        ("counter", transaction(|_| "INCRBY n 0".into(), "EXEC", replies + COMMANDS * 4)),
        ("reads", transaction(|_| "GET none".into(), "EXEC", replies + COMMANDS * 5)),
        ("nothing is done", transaction(key, "DISCARD", 5)),
    ];
    for (name, sent) in cases {
        let waits = (0..ATTEMPTS).map(|_| longest_wait(&served, &sent));
        let best = waits.inspect(|wait| println!("{name}: {wait:?}")).find(|wait| *wait < BOUND);
        assert!(best.is_some(), "{name}: others wait for longer than {BOUND:?}");
    }
}
