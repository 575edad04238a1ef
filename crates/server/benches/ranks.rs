//! Times of commands on large collections: `cargo bench -p hyades-server --features torture --bench
//! ranks`.
//!
//! Each request is one transaction on a server without sockets and threads, from the bytes of the
//! request to the bytes of its reply, which does not wait for the log. The log is written between
//! the timed parts.
#![allow(missing_docs)]

use hyades::Database;
use hyades_server::torture::SteppedServer;
use std::time::{Duration, Instant};

/// Members of each collection.
const MEMBERS: usize = 1_000_000;

/// Members of a request that fills a collection.
const FILL: usize = 500;

/// Requests timed without a pause for the log, and repetitions.
const ROUND: usize = 200;
const ROUNDS: usize = 15;

/// The longest time for the repetitions of a case.
const MOST_TIME: Duration = Duration::from_secs(4);

/// The timed cases.
const CASES: [&str; 11] = [
    "ZSCORE",
    "ZRANK",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE of 10",
    "HLEN",
    "HRANDMEMBER",
    "HLEN of 10",
    "ZADD, a new member",
    "ZADD, another score",
    "HSET, another value",
];

/// Bytes of a request.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A server without threads, and its only client.
struct Bench {
    server: SteppedServer,
    client: usize,
    next: usize,
}

impl Bench {
    /// Runs a request.
    fn run(&mut self, bytes: &[u8]) {
        self.server.feed(self.client, bytes);
        while self.server.has_work(self.client) {
            self.server.run(self.client);
        }
        let reply = self.server.output(self.client);
        assert!(reply.first() != Some(&b'-'), "{}", String::from_utf8_lossy(&reply));
    }

    /// Writes the log.
    fn settle(&mut self) {
        let log = self.server.database().log().expect("there is a log");
        while (0..log.streams()).any(|stream| log.step(stream)) {}
        self.server.drain(0).expect("the log is written");
    }

    /// Fills a collection with members `0..count`.
    fn fill(&mut self, command: &str, key: &str, count: usize) {
        for first in (0..count).step_by(FILL) {
            let mut words = vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()];
            for n in first..(first + FILL).min(count) {
                let (score, name) = (format!("{}", n * 7_919 % MEMBERS), member(n));
                match command {
                    "ZADD" => words.extend([score.into_bytes(), name]),
                    _ => words.extend([name, score.into_bytes()]),
                }
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.run(&request(&words));
            self.settle();
        }
    }

    /// The next request of a case.
    fn of_case(&mut self, case: &str) -> Vec<u8> {
        self.next += 1;
        let n = self.next * 104_729 % MEMBERS;
        let (name, score) = (member(n), n.to_string());
        let (score, more) = (score.as_bytes(), (n + 1_000).to_string());
        let fresh = member(MEMBERS + self.next);
        match case {
            "ZSCORE" => request(&[b"ZSCORE", b"z", &name]),
            "ZRANK" => request(&[b"ZRANK", b"z", &name]),
            "ZCARD" => request(&[b"ZCARD", b"z"]),
            "ZCOUNT" => request(&[b"ZCOUNT", b"z", score, more.as_bytes()]),
            "ZRANGE of 10" => {
                let last = (n + 9).to_string();
                request(&[b"ZRANGE", b"z", score, last.as_bytes()])
            }
            "HLEN" => request(&[b"HLEN", b"h"]),
            "HRANDMEMBER" => request(&[b"HRANDFIELD", b"h"]),
            "HLEN of 10" => request(&[b"HLEN", b"small"]),
            "ZADD, a new member" => request(&[b"ZADD", b"z", score, &fresh]),
            "ZADD, another score" => request(&[b"ZADD", b"z", more.as_bytes(), &name]),
            _ => request(&[b"HSET", b"h", &name, b"1234567"]),
        }
    }

    /// The shortest time of a request of a case, as an average over a round, in nanoseconds.
    fn time(&mut self, case: &str) -> u128 {
        let began = Instant::now();
        let mut shortest = u128::MAX;
        for _ in 0..ROUNDS {
            if began.elapsed() > MOST_TIME {
                break;
            }
            let requests: Vec<_> = (0..ROUND).map(|_| self.of_case(case)).collect();
            let (start, mut done) = (Instant::now(), 0);
            for request in &requests {
                self.run(request);
                done += 1;
                if start.elapsed() > MOST_TIME {
                    break;
                }
            }
            shortest = shortest.min(start.elapsed().as_nanos() / done);
            self.settle();
        }
        shortest
    }
}

fn member(n: usize) -> Vec<u8> {
    format!("member:{n:08}").into_bytes()
}

fn main() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let builder = Database::builder().streams(1).log_settings(|log| log.research.stepped = true);
    let mut server =
        SteppedServer::open(builder, directory.path(), 1, &[]).expect("a new database");
    let client = server.connect(0);
    let mut bench = Bench { server, client, next: 0 };
    bench.run(&request(&[b"HYADES.DURABILITY", b"none"]));
    bench.fill("ZADD", "z", MEMBERS);
    bench.fill("HSET", "h", MEMBERS);
    bench.fill("HSET", "small", 10);
    println!("| request | ns |\n|---|---|");
    for case in CASES {
        println!("| {case} | {} |", bench.time(case));
    }
    let bytes = bench.server.database().metrics().total("hyades_sum_index_bytes");
    println!("bytes of sums: {}", bytes.unwrap_or(0.0));
}
