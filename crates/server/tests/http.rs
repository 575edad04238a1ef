//! The pages of a whole server: the numbers are equal to INFO, and the pages cost an idle server
//! nothing. A single test, so that the threads of the process belong to a single server.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, Settings};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Numbers that differ from moment to moment, or by the request itself: the databases are read in a
/// transaction.
const MOVING: &[&str] = &[
    "allocator_active",
    "allocator_allocated",
    "allocator_frag_bytes",
    "allocator_frag_ratio",
    "allocator_resident",
    "allocator_rss_bytes",
    "allocator_rss_ratio",
    "client_recent_max_input_buffer",
    "client_recent_max_output_buffer",
    "eventloop_cycles",
    "instantaneous_input_kbps",
    "instantaneous_ops_per_sec",
    "instantaneous_output_kbps",
    "loop_wakeups",
    "mem_fragmentation_bytes",
    "mem_fragmentation_ratio",
    "server_time_usec",
    "total_commands_processed",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "total_reads_processed",
    "total_writes_processed",
    "transactions",
    "uptime_in_seconds",
    "used_cpu_sys",
    "used_cpu_sys_main_thread",
    "used_cpu_total",
    "used_cpu_user",
    "used_cpu_user_main_thread",
    "used_memory",
    "used_memory_human",
    "used_memory_peak",
    "used_memory_peak_human",
    "used_memory_peak_perc",
    "used_memory_rss",
    "used_memory_rss_human",
];

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").expect("a head and a body").1.to_string()
}

/// The bulk string in the reply to a command.
fn bulk(client: &mut BufReader<TcpStream>, command: &str) -> String {
    client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut length = String::new();
    client.read_line(&mut length).unwrap();
    let bytes: usize = length.trim().trim_start_matches('$').parse().unwrap();
    let mut text = vec![0; bytes + 2];
    client.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn line(client: &mut BufReader<TcpStream>, command: &str) -> String {
    client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_string()
}

/// How often the thread of the pages has gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |task: &std::fs::DirEntry, name| {
        std::fs::read_to_string(task.path().join(name)).unwrap_or_default()
    };
    let mut named = tasks.filter(|task| read(task, "comm").trim() == "http");
    let (task, other) = (named.next().expect("the thread is there"), named.next());
    assert!(other.is_none());
    let status = read(&task, "status");
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    found.expect("Linux counts them").trim().parse().unwrap()
}

/// A server with a free port for the pages.
fn start(dir: &str) -> Server {
    for _ in 0..20 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let arguments = ["--port", "0", "--bind", "127.0.0.1", "--dir", dir, "--loops", "1"];
        let arguments = [&arguments[..], &["--metrics-port", &port]].concat();
        if let Ok(server) = Server::start(Settings::from_arguments(&arguments).unwrap()) {
            return server;
        }
    }
    panic!("no port is free");
}

/// INFO, and a status of the same moment: INFO was equal before and after the status, except for
/// moving numbers. The log may still be being written.
fn at_one_moment(client: &mut BufReader<TcpStream>, address: SocketAddr) -> (String, Value) {
    let still = |info: &str| -> Vec<String> {
        let moves = |line: &&str| MOVING.contains(&line.split(':').next().unwrap_or(""));
        info.lines().filter(|line| !moves(line)).map(str::to_string).collect()
    };
    let began = Instant::now();
    loop {
        let info = bulk(client, "INFO");
        let status = serde_json::from_str(&get(address, "/status.json")).unwrap();
        let (before, after) = (still(&info), still(&bulk(client, "INFO")));
        if before == after {
            return (info, status);
        }
        let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        let has_time = began.elapsed() < Duration::from_secs(30);
        assert!(has_time, "an idle server does not settle: {changed:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn numbers_are_those_of_info_and_an_idle_server_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path().to_str().unwrap());
    let address = server.metrics_address().expect("there is a port");
    assert!(address.ip().is_loopback());
    server.wait_until_open().unwrap();
    let mut client = BufReader::new(TcpStream::connect(server.address().unwrap()).unwrap());
    for command in ["SET a 1", "INCR a", "SET b 2 EX 1000", "GET a x", "LPUSH a 1", "SELECT 3"] {
        line(&mut client, command);
    }
    assert_eq!(line(&mut client, "SET c 3"), "+OK");
    // A write on disk before its reply is written has not waited: the test waits for another write.
    let waited = |info: &str| !info.contains("\r\nacknowledgements:0\r\n");
    let began = Instant::now();
    while !waited(&bulk(&mut client, "INFO hyades")) {
        assert!(began.elapsed() < Duration::from_secs(30), "no write waits for the disk");
        line(&mut client, "INCR c");
    }
    let (info, status) = at_one_moment(&mut client, address);
    assert_eq!(status["state"], "ready");
    let numbers = status["info"].as_object().unwrap();
    let mut compared = 0;
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        let Some(found) = numbers.get(name) else { continue };
        compared += 1;
        if !MOVING.contains(&name) {
            // A number may be read back with fewer zeros behind its point.
            match found.as_f64() {
                Some(number) => assert_eq!(Ok(number), value.parse(), "{name}"),
                None => assert_eq!(found.as_str(), Some(value), "{name}"),
            }
        }
    }
    assert_eq!(compared, numbers.len(), "all that is told stands in INFO");
    let keys = |number: usize| status["databases"][number]["keys"].as_f64().unwrap();
    assert_eq!((keys(0), keys(1), &status["databases"][1]["database"]), (2.0, 1.0, &3.into()));
    let acknowledged = status["acknowledgement"]["count"].as_f64().unwrap();
    assert!(acknowledged >= 1.0 && status["acknowledgement"]["seconds"].as_f64() > Some(0.0));
    let metrics = get(address, "/metrics");
    let written = "\nhyades_commands_total{class=\"string\",command=\"set\"} 3\n";
    assert!(metrics.contains(written), "{metrics}");
    // Nothing is asked: the thread sleeps.
    let is_quiet = |_| {
        std::thread::sleep(Duration::from_millis(100));
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(600));
        sleeps() == before
    };
    // Effects of the last request may come later on a busy machine.
    assert!((0..5).any(is_quiet), "the thread of the pages wakes up");
    // A port in use is a clear error.
    let taken = address.port().to_string();
    let other = tempfile::tempdir().unwrap();
    let arguments =
        ["--port", "0", "--dir", other.path().to_str().unwrap(), "--metrics-port", &taken];
    let error = match Server::start(Settings::from_arguments(&arguments).unwrap()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the port is taken"),
    };
    let expected = format!("cannot listen at 127.0.0.1:{taken} (metrics-port): ");
    assert!(error.starts_with(&expected), "{error}");
    server.handle().stop();
    server.wait().unwrap();
}
