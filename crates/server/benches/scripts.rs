//! Instructions of scripts, and of the equivalent commands:
//! `cargo bench -p hyades-server --features torture --bench scripts`.
//!
//! Each request is one transaction on a server without sockets and threads, from the bytes of the
//! request to the bytes of its reply, which does not wait for the log. The log is written between
//! the counted parts. Needs valgrind.
#![allow(missing_docs)]

#[path = "../../wal/benches/callgrind/mod.rs"]
mod callgrind;

use callgrind::{counted_by_callgrind, instructions};
use hyades::Database;
use hyades_server::torture::SteppedServer;

/// Requests counted without a pause for the log.
const ROUND: usize = 50;
const WARM_UP: usize = 20;
const ROUNDS: usize = 20;

/// Accounts for the transfers.
const ACCOUNTS: usize = 1_000;

/// A transfer between two accounts with five commands.
const TRANSFER: &str = "local amount = tonumber(ARGV[1]) \
    local from = tonumber(redis.call('GET', KEYS[1])) \
    if from - amount < -1e12 then return redis.error_reply('ERR not enough') end \
    redis.call('GET', KEYS[2]) \
    redis.call('DECRBY', KEYS[1], amount) \
    redis.call('INCRBY', KEYS[2], amount) \
    redis.call('SET', KEYS[3], amount) \
    return from - amount";

/// The counted cases.
const CASES: [&str; 7] = [
    "GET",
    "SET",
    "MULTI, the five commands, EXEC",
    "EVAL of nothing",
    "EVAL of a transfer, five commands",
    "EVALSHA of the same",
    "FCALL of the same",
];

/// Bytes of a request.
fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

struct Bench {
    server: SteppedServer,
    client: usize,
}

impl Bench {
    /// Runs a request.
    fn run(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.server.feed(self.client, bytes);
        while self.server.has_work(self.client) {
            self.server.run(self.client);
        }
        self.server.output(self.client)
    }

    /// Writes the log.
    fn settle(&mut self) {
        let log = self.server.database().log().expect("there is a log");
        while (0..log.streams()).any(|stream| log.step(stream)) {}
        self.server.drain(0).expect("the log is written");
    }

    /// The request of a case with this number.
    fn of_case(&self, case: &str, sha: &str, n: usize) -> Vec<u8> {
        let account = |at: usize| format!("account:{:012}", at * 7_919 % ACCOUNTS);
        let (from, to, last) = (account(n), account(n + 1), account(n + 2));
        let keys = ["3", &from, &to, &last, "10"];
        match case {
            "GET" => request(&["GET", &from]),
            "SET" => request(&["SET", &from, "1234"]),
            "EVAL of nothing" => request(&["EVAL", "return 1", "0"]),
            "EVAL of a transfer, five commands" => {
                request(&[&["EVAL", TRANSFER][..], &keys].concat())
            }
            "EVALSHA of the same" => request(&[&["EVALSHA", sha][..], &keys].concat()),
            "FCALL of the same" => request(&[&["FCALL", "transfer"][..], &keys].concat()),
            _ => [
                request(&["MULTI"]),
                request(&["GET", &from]),
                request(&["GET", &to]),
                request(&["DECRBY", &from, "10"]),
                request(&["INCRBY", &to, "10"]),
                request(&["SET", &last, "10"]),
                request(&["EXEC"]),
            ]
            .concat(),
        }
    }
}

/// The program to run under callgrind.
fn child(case: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let builder = Database::builder().streams(1).log_settings(|log| log.research.stepped = true);
    let mut server =
        SteppedServer::open(builder, directory.path(), 1, &[]).expect("a new database");
    let client = server.connect(0);
    let mut bench = Bench { server, client };
    bench.run(&request(&["HYADES.DURABILITY", "none"]));
    for n in 0..ACCOUNTS {
        bench.run(&request(&["SET", &format!("account:{n:012}"), "1000000"]));
        bench.settle();
    }
    let loaded = bench.run(&request(&["SCRIPT", "LOAD", TRANSFER]));
    let sha = String::from_utf8(loaded[5..45].to_vec()).expect("it is a digest");
    let library = format!(
        "#!lua name=bench\nredis.register_function('transfer', function(KEYS, ARGV) {TRANSFER} end)"
    );
    bench.run(&request(&["FUNCTION", "LOAD", &library]));
    bench.settle();
    let mut n = 0;
    for round in 0..WARM_UP + ROUNDS {
        let requests: Vec<Vec<u8>> = (n..n + ROUND).map(|n| bench.of_case(case, &sha, n)).collect();
        n += ROUND;
        let mut run = || {
            for request in &requests {
                let reply = bench.run(request);
                assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(&reply));
            }
        };
        match round < WARM_UP {
            true => run(),
            false => counted_by_callgrind(&mut run),
        }
        bench.settle();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, case] = &arguments[..]
        && first == "counted"
    {
        return child(case);
    }
    println!("Instructions of a request, counted by callgrind.\n");
    println!("| request | instructions |");
    println!("|---|---|");
    for case in CASES {
        let total = instructions(&["counted", case].map(String::from));
        println!("| {case} | {} |", total / (ROUND * ROUNDS) as u64);
    }
}
