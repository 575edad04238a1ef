//! Promise: a server without stored data takes little memory, whatever was stored and removed, and
//! `maxmemory` refuses nothing for the sake of removed keys.
#![allow(missing_docs)]

#[path = "common/process.rs"]
mod process;

use process::Process;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Process) -> Client {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, words: &[&str]) {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Reads a reply, with its elements. Returns the first line.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_string();
        let number = line[1..].parse::<i64>().unwrap_or(0);
        match line.as_bytes()[0] {
            b'$' if number >= 0 => {
                let mut rest = vec![0; number as usize + 2];
                std::io::Read::read_exact(&mut self.0, &mut rest).unwrap();
            }
            b'*' => (0..number).for_each(|_| _ = self.reply()),
            _ => {}
        }
        line
    }

    fn run(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.reply()
    }
}

/// Bytes of the process in memory.
fn resident(server: &Process) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.child.id())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Pushes a hundred elements, and pops all.
fn lists(client: &mut Client, number: usize) -> Vec<String> {
    let (key, element) = (format!("list{number}"), "x".repeat(40));
    let mut push = vec!["RPUSH", &key];
    push.extend(std::iter::repeat_n(element.as_str(), 100));
    client.send(&push);
    client.send(&["LPOP", &key, "100"]);
    vec![client.reply(), client.reply()]
}

/// Sets a hundred keys, and deletes all.
fn keys(client: &mut Client, number: usize) -> Vec<String> {
    let (keys, value): (Vec<String>, _) =
        ((0..100).map(|at| format!("key{number}:{at}")).collect(), "x".repeat(200));
    let mut set = vec!["MSET"];
    keys.iter().for_each(|key| set.extend([key.as_str(), value.as_str()]));
    client.send(&set);
    let mut delete = vec!["DEL"];
    delete.extend(keys.iter().map(String::as_str));
    client.send(&delete);
    vec![client.reply(), client.reply()]
}

/// Eight clients do the same for a while, beside a client that reads now and then. Returns the
/// resident bytes after a third of the time, the most later, and an error reply.
fn churn(
    server: &Process,
    step: fn(&mut Client, usize) -> Vec<String>,
    seconds: f64,
) -> (u64, u64, Option<String>) {
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (stop, steps) = (&stop, &steps);
                scope.spawn(move || {
                    let (mut client, mut failed) = (Client::connect(server), None);
                    while !stop.load(Ordering::Relaxed) && failed.is_none() {
                        let replies = step(&mut client, number);
                        failed = replies.into_iter().find(|reply| reply.starts_with('-'));
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                    failed
                })
            })
            .collect();
        let mut reader = Client::connect(server);
        let mut wait = |seconds: f64| {
            let (began, mut most) = (Instant::now(), 0);
            while began.elapsed().as_secs_f64() < seconds {
                reader.run(&["GET", "nothing"]);
                most = most.max(resident(server));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        };
        let first = wait(seconds / 3.0);
        let most = wait(seconds * 2.0 / 3.0);
        stop.store(true, Ordering::Relaxed);
        let failed = clients.into_iter().find_map(|client| client.join().unwrap());
        println!("{} steps", steps.load(Ordering::Relaxed));
        (first, most, failed)
    })
}

/// How long each kind of churn runs: `HYADES_CHURN_SECONDS`, or 6.
fn seconds() -> f64 {
    let text = std::env::var("HYADES_CHURN_SECONDS");
    text.map_or(6.0, |text| text.parse().expect("it is a number"))
}

fn check(step: fn(&mut Client, usize) -> Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let (first, most, failed) = churn(&server, step, seconds());
    println!("{} MB, then {} MB", first >> 20, most >> 20);
    assert_eq!(failed, None);
    assert!(most <= 2 * first + (32 << 20), "{first} bytes after a while, then {most}");
    assert_eq!(Client::connect(&server).run(&["DBSIZE"]), ":0");
}

#[test]
fn lists_that_are_filled_and_emptied() {
    check(lists);
}

#[test]
fn keys_that_are_set_and_deleted() {
    check(keys);
}

#[test]
fn a_limit_of_memory_refuses_nothing_for_removed_keys() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_with(dir.path(), &["--maxmemory", "64mb"]);
    let (_, most, failed) = churn(&server, keys, seconds());
    println!("{} MB", most >> 20);
    assert_eq!(failed, None);
}
