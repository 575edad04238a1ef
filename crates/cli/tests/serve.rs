//! `hyades serve` as a process: settings, signals, and SIGKILL with a journal of the answers.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;
#[path = "common/process.rs"]
mod process;

use common::{code, hyades, stderr, stdout};
use process::Process;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn signal(server: &Process, signal: Signal) {
    let pid = Pid::from_raw(server.child.id() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

fn connect_to(server: &Process) -> Client {
    Client::connect(&server.address)
}

/// Stops the server, and checks for an end in good order.
fn stop(mut server: Process) {
    signal(&server, Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// The number of sleeps of each thread of the server, by thread number.
fn sleeps(server: &Process) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let switches = |status: String| {
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    tasks
        .map(|task| task.unwrap())
        .map(|task| (task.file_name().into_string().unwrap(), task.path().join("status")))
        .map(|(number, status)| (number, switches(std::fs::read_to_string(status).unwrap())))
        .collect()
}

/// The time without a wake-up of any thread of an idle server. A thread with a wake-up once in a
/// second, or in two, is seen in each of some tries; late effects of the last commands, on a busy
/// machine, are not.
const QUIET: Duration = Duration::from_secs(5);
const TRIES: usize = 4;

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) -> std::io::Result<()> {
        self.0.get_mut().write_all(text.as_bytes())
    }

    /// A line, or the content of a string. An error once the server is gone.
    fn reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_string();
        let Some(length) = line.strip_prefix('$').filter(|length| *length != "-1") else {
            return Ok(line);
        };
        let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        Ok(String::from_utf8(bytes).unwrap())
    }

    fn ask(&mut self, text: &str) -> String {
        self.send(&format!("{text}\r\n")).unwrap();
        self.reply().unwrap()
    }
}

#[test]
fn a_wrong_setting_is_one_sentence_behind_its_line() {
    for (words, lines, expected) in [
        ("--port x", 4, "port must be a number from 0 to 65535"),
        ("--nonsense 1", 4, "there is no setting \"nonsense\""),
        ("no-such-file", 1, "cannot read"),
        ("--maxmemory 1gbyte", 4, "maxmemory must be a size such as 1024, 64kb or 1gb"),
        ("--maxmemory-policy allkeys-lru", 4, "keys are never evicted"),
        ("--unixsocketperm 888", 4, "permissions in octal digits"),
        ("--port 0 --bind 203.0.113.1", 1, "cannot listen at 203.0.113.1"),
    ] {
        let output = hyades(&format!("serve {words}"), &[]);
        assert_eq!(code(&output), 2, "{words}");
        let text = stderr(&output);
        assert!(text.contains(expected) && text.lines().count() == lines, "{words}: {text}");
    }
}

/// A link named `redis-server` starts this server.
#[test]
fn a_link_named_redis_server_serves() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hyades"), &link).unwrap();
        std::process::Command::new(link).args(["--port", "x"]).output().unwrap()
    };
    for name in ["redis-server", "my-redis-server"] {
        let output = run(name);
        assert_eq!(code(&output), 2, "{name}");
        assert!(stderr(&output).contains("port must be a number"), "{}", stderr(&output));
    }
    assert!(stderr(&run("redis-cli")).contains("unexpected argument"));
}

#[test]
fn what_was_set_is_there_after_sigterm_and_an_idle_server_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    assert_eq!(client.ask("SET a 1"), "+OK");
    assert_eq!(client.ask("SET b 2 PX 200"), "+OK");
    let pinged = hyades("ping --port", &[server.address.rsplit(':').next().unwrap()]);
    assert_eq!((code(&pinged), &stdout(&pinged)[..]), (0, "PONG\n"), "{}", stderr(&pinged));
    let port = server.address.rsplit(':').next().unwrap();
    for (words, ends, text) in [
        ("ping --tls --port", 1, "--cacert"),
        ("ping --insecure --port", 2, "--tls"),
        ("ping --socket no-such-file --port", 2, "cannot be used with"),
    ] {
        let pinged = hyades(words, &[port]);
        assert_eq!(code(&pinged), ends, "{words}: {}", stderr(&pinged));
        assert!(stderr(&pinged).contains(text), "{words}: {}", stderr(&pinged));
    }
    // The expired key is removed, and then there is nothing left to do.
    std::thread::sleep(Duration::from_millis(700));
    let is_quiet = |_| {
        let before = sleeps(&server);
        std::thread::sleep(QUIET);
        let after = sleeps(&server);
        after == before || {
            eprintln!("threads have woken up: {before:?} {after:?}");
            false
        }
    };
    assert!((0..TRIES).any(is_quiet), "an idle server wakes up");
    assert_eq!(client.ask("DBSIZE"), ":1");
    stop(server);
    let server = Process::start(dir.path());
    assert_eq!(connect_to(&server).ask("GET a"), "1");
    assert_eq!(connect_to(&server).ask("DBSIZE"), ":1");
    let mut client = connect_to(&server);
    client.send("SHUTDOWN\r\n").unwrap();
    assert!(client.reply().is_err());
}

const CLIENTS: u64 = 4;

/// Waits until a disk, possibly slow, has let a condition become true.
fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not become true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client's knowledge at the end of the server: the last number answered, and the last number
/// sent.
struct Journal {
    answered: u64,
    sent: u64,
}

/// Sets a pair of keys to ever higher numbers, by turns alone and several at once, until the server
/// is gone. Counts the answers.
fn write_until_killed(mut client: Client, name: u64, first: u64, count: &AtomicU64) -> Journal {
    let mut journal = Journal { answered: first, sent: first };
    loop {
        let more = if journal.sent.is_multiple_of(7) { 5 } else { 1 };
        let mut text = String::new();
        for n in journal.sent + 1..=journal.sent + more {
            text.push_str(&format!("MSET left{name} {n} right{name} {n}\r\n"));
        }
        journal.sent += more;
        if client.send(&text).is_err() {
            return journal;
        }
        for _ in 0..more {
            match client.reply() {
                Ok(reply) => assert_eq!(reply, "+OK"),
                Err(_) => return journal,
            }
            journal.answered += 1;
            count.fetch_add(1, SeqCst);
        }
    }
}

/// As [`write_until_killed`], with replies before anything is on disk; only numbers confirmed by
/// WAITAOF count as answered.
fn write_early_until_killed(mut client: Client, name: u64, first: u64) -> Journal {
    let mut journal = Journal { answered: first, sent: first };
    if client.send("HYADES.DURABILITY none\r\n").is_err() {
        return journal;
    }
    match client.reply() {
        Ok(reply) => assert_eq!(reply, "+OK"),
        // The kill came first.
        Err(_) => return journal,
    }
    loop {
        let n = journal.sent + 1;
        let waits = n.is_multiple_of(8);
        let asked = if waits { "WAITAOF 1 0 0\r\n" } else { "" };
        journal.sent = n;
        let lines = if waits { 4 } else { 1 };
        if client.send(&format!("MSET left{name} {n} right{name} {n}\r\n{asked}")).is_err()
            || (0..lines).any(|_| client.reply().is_err())
        {
            return journal;
        }
        if waits {
            journal.answered = n;
        }
    }
}

/// Reads the numbers of another client until the server is gone; returns the last number read.
fn read_until_killed(mut client: Client, name: u64) -> u64 {
    let mut seen = 0;
    while client.send(&format!("GET left{name}\r\n")).is_ok() {
        match client.reply() {
            Ok(reply) => seen = reply.parse().unwrap_or(seen),
            Err(_) => break,
        }
    }
    seen
}

/// `HYADES_KILLS` sets the number of kills.
#[test]
fn nothing_that_was_answered_is_missing_after_sigkill() {
    let kills = std::env::var("HYADES_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    // The last client gets its replies early.
    let mut reached = [0; CLIENTS as usize + 1];
    for round in 0..kills {
        let mut server = Process::start(dir.path());
        let answered = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..=CLIENTS)
            .map(|name| {
                let (client, first) = (connect_to(&server), reached[name as usize]);
                let answered = answered.clone();
                std::thread::spawn(move || match name {
                    CLIENTS => write_early_until_killed(client, name, first),
                    _ => write_until_killed(client, name, first, &answered),
                })
            })
            .collect();
        let client = connect_to(&server);
        let reader = std::thread::spawn(move || read_until_killed(client, CLIENTS));
        wait_until(|| answered.load(SeqCst) > 0);
        std::thread::sleep(Duration::from_millis(100 + 37 * (round % 8)));
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let journals: Vec<Journal> =
            writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let seen = reader.join().unwrap();
        let server = Process::start(dir.path());
        let mut client = connect_to(&server);
        for (name, journal) in journals.iter().enumerate() {
            let mut get = |side: &str| match client.ask(&format!("GET {side}{name}")).as_str() {
                "$-1" => 0,
                number => number.parse::<u64>().unwrap(),
            };
            let (left, right) = (get("left"), get("right"));
            assert_eq!(left, right, "a transaction is there whole or not at all");
            assert!(
                (journal.answered..=journal.sent).contains(&left),
                "{} was answered and {left} is there",
                journal.answered
            );
            reached[name] = left;
        }
        let left = reached[CLIENTS as usize];
        assert!(left >= seen, "{seen} was read and {left} is there");
        assert!(journals.iter().any(|journal| journal.answered > 0), "something was written");
        stop(server);
    }
}

/// Sets a key to ever higher numbers: the client gets OK for some time, and then OK or an error.
/// Counts the client after its first OK. Returns the last number answered with OK, the refusals,
/// and the time between the last two commands.
fn write_until_refused(
    mut client: Client,
    name: u64,
    served: &AtomicU64,
) -> (u64, Vec<String>, Duration) {
    let (mut answered, mut refusals) = (0, Vec::new());
    let (mut sent, mut pause) = (Instant::now(), Duration::ZERO);
    for n in 1.. {
        let is_sent = client.send(&format!("SET key{name} {n}\r\n")).is_ok();
        (pause, sent) = (sent.elapsed(), Instant::now());
        if !is_sent {
            break;
        }
        match client.reply() {
            Ok(reply) if reply == "+OK" && refusals.is_empty() => answered = n,
            Ok(reply) => refusals.push(reply),
            Err(_) => break,
        }
        if answered == 1 && n == 1 {
            served.fetch_add(1, SeqCst);
        }
    }
    (answered, refusals, pause)
}

/// A failing device: writes of the log are refused from some moment on. Numbers answered with OK
/// are there after a restart; commands under way are answered with an error that states the known
/// facts; and the process ends by itself.
#[test]
fn a_log_that_fails_is_told_to_clients_and_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    // A write beyond the limit of a file's size is an error: the signal does not end the process.
    let mut server = Process::start(dir.path());
    let served = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|name| {
            let (client, served) = (connect_to(&server), served.clone());
            std::thread::spawn(move || write_until_refused(client, name, &served))
        })
        .collect();
    wait_until(|| served.load(SeqCst) == CLIENTS);
    std::thread::sleep(Duration::from_millis(300));
    let pid = Pid::from_raw(server.child.id() as i32);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(pid, Resource::Fsize, none).unwrap();
    let began = Instant::now();
    let (code, said) = server.end();
    assert!(began.elapsed() < Duration::from_secs(30), "it ends soon");
    assert_eq!(code, Some(1), "{said}");
    let cause = said.lines().find(|line| line.contains("the log failed")).expect("it says why");
    let names_file = cause.contains(dir.path().to_str().unwrap());
    assert!(names_file && cause.contains("File too large"), "{said}");
    let told: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let refusals: Vec<&String> = told.iter().flat_map(|(_, refusals, _)| refusals).collect();
    let is_known = |text: &&&String| {
        text.starts_with("-OUTCOMEUNKNOWN the log failed") || text.starts_with("-MISCONF ")
    };
    // The server goes on reading for a quarter of a second. Later commands do not count.
    let is_untold = |(_, refusals, pause): &&(u64, Vec<String>, Duration)| {
        refusals.is_empty() && *pause < Duration::from_millis(200)
    };
    let untold: Vec<_> = told.iter().filter(is_untold).collect();
    assert!(untold.is_empty(), "each client has sent a write, and is told: {untold:?}");
    assert!(refusals.iter().all(|text| is_known(&text)), "{refusals:?}");
    assert!(refusals.iter().any(|text| text.starts_with("-OUTCOMEUNKNOWN")), "{refusals:?}");
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    for (name, (answered, ..)) in told.iter().enumerate() {
        assert!(*answered > 0, "it has served before");
        let found: u64 = client.ask(&format!("GET key{name}")).parse().unwrap();
        // A further number was under way.
        assert!((*answered..=answered + 1).contains(&found), "{answered} answered, {found} found");
    }
    stop(server);
}

fn used_memory(client: &mut Client) -> u64 {
    let info = client.ask("INFO memory");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("INFO has it").parse().unwrap()
}

/// The memory of deleted rows is free a moment later, though no transaction follows, and so is the
/// memory for a large transaction.
#[test]
fn an_idle_server_frees_what_was_deleted() {
    // Each log stream keeps up to 1 MiB to write from.
    const MOST_LEFT: u64 = 5 << 20;
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    let before = used_memory(&mut client);
    let value = "x".repeat(1_000);
    for commands in [
        &["UNLINK set", "DEL list"][..],
        &["FLUSHDB ASYNC"],
        &["FLUSHALL SYNC"],
        &["PEXPIRE set 1", "PEXPIRE list 1"],
    ] {
        for n in 0..50 {
            let members: Vec<String> = (0..2_000).map(|m| (n * 2_000 + m).to_string()).collect();
            assert_eq!(client.ask(&format!("SADD set {}", members.join(" "))), ":2000");
        }
        for n in 0..9_000 {
            assert_eq!(client.ask(&format!("RPUSH list {value}")), format!(":{}", n + 1));
        }
        assert_eq!(client.ask("LINDEX list 8999"), value);
        let full = used_memory(&mut client);
        assert!(full > before + (10 << 20), "{full}");
        for command in commands {
            assert!(!client.ask(command).starts_with('-'), "{command}");
        }
        let began = Instant::now();
        // INFO runs no transaction.
        loop {
            let used = used_memory(&mut client);
            if used < before + MOST_LEFT {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{commands:?}: {before} {used}");
            std::thread::sleep(Duration::from_millis(50));
        }
        client.ask("FLUSHALL SYNC");
    }
    stop(server);
}

/// The server counts the memory allocated by the program: deletions make room again.
#[test]
fn memory_that_is_full_has_room_again_once_keys_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    let before = used_memory(&mut client);
    let limit = before + (64 << 20);
    assert_eq!(client.ask(&format!("CONFIG SET maxmemory {limit}")), "+OK");
    let value = "x".repeat(16 << 10);
    let mut stored = 0;
    let refused = loop {
        match client.ask(&format!("SET k{stored} {value}")) {
            reply if reply == "+OK" => stored += 1,
            reply => break reply,
        }
        assert!(stored < 8_192, "it is never full");
    };
    assert_eq!(refused, "-OOM command not allowed when used memory > 'maxmemory'.");
    // A stored value takes little more than its bytes.
    assert!((2_000..=4_200).contains(&stored), "{stored} values of 16 KiB in 64 MiB");
    assert_eq!(client.ask("GET k0"), value);
    let used = used_memory(&mut client);
    // An idle loop has freed the memory of its last transaction.
    assert!(used > limit - (1 << 20) && used < limit + (4 << 20), "{used} {limit}");
    for n in 0..stored / 2 {
        assert_eq!(client.ask(&format!("DEL k{n}")), ":1");
    }
    // The memory of deleted rows is free a moment later, though nothing but refused writes come.
    let began = Instant::now();
    while client.ask("SET again 1") != "+OK" {
        assert!(began.elapsed() < Duration::from_secs(30), "it stays full");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut again = 0;
    while client.ask(&format!("SET n{again} {value}")) == "+OK" {
        again += 1;
        assert!(again < 8_192, "it is never full again");
    }
    assert!(again > stored / 4, "{again} values where {} were deleted", stored / 2);
    stop(server);
}

/// The log is replayed with any limit: only afterwards are commands with possible growth refused.
#[test]
fn a_database_larger_than_the_limit_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    let value = "x".repeat(16 << 10);
    for n in 0..500 {
        assert_eq!(client.ask(&format!("SET k{n} {value}")), "+OK");
    }
    stop(server);
    let server = Process::start_with(dir.path(), &["--maxmemory", "1mb"]);
    let mut client = connect_to(&server);
    assert_eq!(client.ask("DBSIZE"), ":500");
    assert_eq!(client.ask("GET k499"), value);
    assert!(client.ask("SET k499 1").starts_with("-OOM "));
    assert_eq!(client.ask("DEL k499"), ":1");
    stop(server);
    let server = Process::start(dir.path());
    let mut client = connect_to(&server);
    assert_eq!(client.ask("DBSIZE"), ":499", "what was refused is not in the log");
    stop(server);
}

/// HYADES.LAST names a point in time to which a copy can be recovered.
#[test]
fn the_id_of_a_write_is_where_recovery_can_end() {
    let dir = tempfile::tempdir().unwrap();
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    let server = Process::start(&data);
    let mut client = connect_to(&server);
    assert_eq!(client.ask("SET a 1"), "+OK");
    let id = client.ask("HYADES.LAST");
    // Epochs are about 10 ms long, and recovery ends between two of them.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.ask("SET a 2"), "+OK");
    stop(server);
    let paths = [data.to_str().unwrap(), "--out", new.to_str().unwrap()];
    let output = hyades(&format!("recover --until {id}"), &paths);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let server = Process::start(&new);
    assert_eq!(connect_to(&server).ask("GET a"), "1");
    stop(server);
    let server = Process::start(&data);
    assert_eq!(connect_to(&server).ask("GET a"), "2");
    stop(server);
}
