//! A string of the greatest length in the settings, 512 MiB, and a string longer by a byte.
//!
//! `cargo test --release -p hyades-server --test longest_string -- --ignored --nocapture`
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LONGEST: usize = 512 << 20;

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(served: &Served) -> Client {
        Client(BufReader::new(served.connect(Duration::from_secs(120))))
    }

    fn send(&mut self, words: &[&[u8]]) {
        let stream = self.0.get_mut();
        stream.write_all(format!("*{}\r\n", words.len()).as_bytes()).unwrap();
        for word in words {
            stream.write_all(format!("${}\r\n", word.len()).as_bytes()).unwrap();
            stream.write_all(word).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    fn ask(&mut self, words: &[&[u8]]) -> String {
        let began = Instant::now();
        self.send(words);
        let line = self.line();
        let name = String::from_utf8_lossy(words[0]).into_owned();
        eprintln!(
            "{name:8} {:6.2} s, {} MiB in memory at most",
            began.elapsed().as_secs_f64(),
            peak()
        );
        line
    }

    /// Reads a string with a command and compares the string.
    fn expect(&mut self, words: &[&[u8]], expected: &[u8]) {
        assert_eq!(self.ask(words), format!("${}", expected.len()));
        let (mut piece, mut at) = (vec![0; 1 << 20], 0);
        while at < expected.len() {
            let count = piece.len().min(expected.len() - at);
            self.0.read_exact(&mut piece[..count]).unwrap();
            assert!(piece[..count] == expected[at..at + count], "{at}");
            at += count;
        }
        assert_eq!(self.line(), "");
    }
}

/// The peak of the process's memory, in MiB, with the memory of the test.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn content() -> Vec<u8> {
    (0..LONGEST as u64 / 8)
        .flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes())
        .collect()
}

#[test]
#[ignore = "takes some GiB of memory"]
fn a_string_of_512_mib_is_stored_copied_and_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let mut value = content();
    {
        let served = Served::start(dir.path(), "--loops 2");
        let mut client = Client::of(&served);
        // Another client writes meanwhile.
        let (is_done, mut other) = (AtomicBool::new(false), Client::of(&served));
        std::thread::scope(|scope| {
            let longest_wait = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !is_done.load(Relaxed) {
                    let began = Instant::now();
                    other.send(&[b"INCR", b"n"]);
                    assert!(other.line().starts_with(':'));
                    longest = longest.max(began.elapsed());
                }
                longest
            });
            assert_eq!(client.ask(&[b"SET", b"a", &value]), "+OK");
            is_done.store(true, Relaxed);
            eprintln!("another client waited for {:?} at most", longest_wait.join().unwrap());
        });
        client.expect(&[b"GET", b"a"], &value);
        assert_eq!(client.ask(&[b"COPY", b"a", b"b"]), ":1");
        let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        assert_eq!(client.ask(&[b"APPEND", b"a", b"x"]), too_long);
        assert_eq!(client.ask(&[b"SETRANGE", b"a", b"536870912", b"x"]), too_long);
        assert_eq!(client.ask(&[b"SETRANGE", b"a", b"536870911", b"x"]), format!(":{LONGEST}"));
        client.expect(&[b"GETSET", b"b", b"short"], &value);
        value[LONGEST - 1] = b'x';
        client.expect(&[b"SET", b"a", &value, b"GET"], &value);
        assert_eq!(client.ask(&[b"SETRANGE", b"c", b"0", &value]), format!(":{LONGEST}"));
        assert_eq!(client.ask(&[b"SETRANGE", b"c", b"0", &value]), format!(":{LONGEST}"));
        assert_eq!(client.ask(&[b"DEL", b"c"]), ":1");
        // A byte more is no request, and the connection cannot go on.
        client.0.get_mut().write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870913\r\n").unwrap();
        assert_eq!(client.line(), "-ERR Protocol error: invalid bulk length");
    }
    let began = Instant::now();
    let served = Served::start(dir.path(), "--loops 2");
    eprintln!("opened in {:.2} s", began.elapsed().as_secs_f64());
    let mut client = Client::of(&served);
    client.expect(&[b"GET", b"a"], &value);
    client.expect(&[b"GET", b"b"], b"short");
    assert_eq!(client.ask(&[b"BITCOUNT", b"a"])[..1], *":");
    assert_eq!(client.ask(&[b"BITPOS", b"a", b"0"])[..1], *":");
    // To another database of the same server. The payload with its frame is longer than an
    // argument.
    let port = client.0.get_ref().peer_addr().unwrap().port().to_string();
    let migrate: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"a", b"1", b"60000"];
    let refused = "-IOERR error or timeout writing to target instance";
    assert_eq!(client.ask(&migrate), refused);
    assert_eq!(client.ask(&[b"EXISTS", b"a"]), ":1");
    assert_eq!(client.ask(&[b"CONFIG", b"SET", b"proto-max-bulk-len", b"513mb"]), "+OK");
    assert_eq!(client.ask(&migrate), "+OK");
    assert_eq!(client.ask(&[b"EXISTS", b"a"]), ":0");
    assert_eq!(client.ask(&[b"SELECT", b"1"]), "+OK");
    client.expect(&[b"GET", b"a"], &value);
}
