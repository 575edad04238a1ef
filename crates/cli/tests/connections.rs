//! Ten thousand connections at once: each is served, a further connection gets an error, and idle
//! connections have a bounded cost.
#![allow(missing_docs, reason = "tests are named by what they promise")]

#[path = "common/process.rs"]
mod process;

use process::Process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The default limit of a server.
const CONNECTIONS: u64 = 10_000;

/// File descriptors beside connections: of the server, which needs more than the test.
const OTHER_FILES: u64 = 600;

/// Most bytes of memory for an idle connection, allocated or resident.
const MOST_BYTES: u64 = 4_000;

/// The number of connections within the limit of open files, which is raised for the test.
fn connections() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let wanted = CONNECTIONS + OTHER_FILES;
    let files = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).expect("it is allowed");
    files - OTHER_FILES
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn ping(stream: &mut TcpStream) {
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

/// The line of a reply; of a string, all its lines.
fn ask(client: &mut BufReader<TcpStream>, command: &str) -> String {
    client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    let Some(length) = line.strip_prefix('$') else { return line.trim_end().to_string() };
    let mut text = vec![0; length.trim_end().parse::<usize>().unwrap() + 2];
    client.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn number(client: &mut BufReader<TcpStream>, name: &str) -> u64 {
    let info = ask(client, "INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("INFO has no {name}")).parse().unwrap()
}

/// A server with this number of idle connections, and the cost of each.
struct Crowd {
    server: Process,
    admin: BufReader<TcpStream>,
    all: Vec<TcpStream>,
    /// Allocated bytes, and resident bytes.
    bytes_each: [u64; 2],
}

fn crowd(count: u64, dir: &Path) -> Crowd {
    let server = Process::start(dir);
    let mut admin = BufReader::new(connect(&server.address));
    let set = format!("CONFIG SET maxclients {}", count + 1);
    assert_eq!(ask(&mut admin, &set), "+OK", "with the one that asks");
    let memory = ["used_memory", "used_memory_rss"];
    let before = memory.map(|name| number(&mut admin, name));
    let began = Instant::now();
    let all: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = connect(&server.address);
            ping(&mut stream);
            stream
        })
        .collect();
    println!("{count} connections in {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(number(&mut admin, "connected_clients"), count + 1);
    let after = memory.map(|name| number(&mut admin, name));
    let bytes_each = [0, 1].map(|at| after[at].saturating_sub(before[at]) / count);
    println!("allocated and resident bytes for each idle connection: {bytes_each:?}");
    Crowd { server, admin, all, bytes_each }
}

#[test]
fn ten_thousand_connections_are_served_and_one_more_is_told() {
    let count = connections();
    let dir = tempfile::tempdir().unwrap();
    // Resident pages belong to the whole process, which does other work meanwhile: the best of
    // three counts.
    let fits = |crowd: &Crowd| crowd.bytes_each.iter().all(|bytes| *bytes <= MOST_BYTES);
    let crowds = ["first", "second", "third"].map(|name| dir.path().join(name));
    let mut crowds = crowds.iter().map(|dir| crowd(count, dir));
    let found = crowds.find(fits).expect("an idle connection costs little");
    let Crowd { server, mut admin, mut all, .. } = found;
    // A further client gets an error, and no other client is disturbed.
    for _ in 0..3 {
        let mut text = String::new();
        connect(&server.address).read_to_string(&mut text).unwrap();
        assert_eq!(text, "-ERR max number of clients reached\r\n");
    }
    assert_eq!(number(&mut admin, "rejected_connections"), 3);
    all.iter_mut().for_each(ping);
    // In the place of a client that leaves, another client is served.
    drop(all.pop());
    let began = Instant::now();
    while number(&mut admin, "connected_clients") > count {
        assert!(began.elapsed() < Duration::from_secs(30), "it is still connected");
    }
    ping(&mut connect(&server.address));
    drop(all);
    while number(&mut admin, "connected_clients") > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "they are still connected");
    }
    // A number beyond the system's limit is refused, in words.
    let said = ask(&mut admin, "CONFIG SET maxclients 1000000");
    let is_possible = getrlimit(Resource::Nofile).maximum.is_none_or(|most| most > 1_000_000);
    assert!(is_possible || said.contains("specified number of clients, try with "), "{said}");
    assert_eq!(ask(&mut admin, "PING"), "+PONG");
}
