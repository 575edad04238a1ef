//! How clients are let go: at a stop, by `timeout`, and when the log fails.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use tempfile::TempDir;

struct RunningServer {
    server: Server,
    _dir: TempDir,
}

impl RunningServer {
    fn new(settings: &[&str]) -> RunningServer {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let name = dir.path().to_str().unwrap();
        let own = ["--port", "0", "--bind", "127.0.0.1", "--dir", name, "--streams", "1"];
        let all = [&own[..], settings].concat();
        let server = Server::start(Settings::from_arguments(&all).unwrap()).unwrap();
        server.wait_until_open().unwrap();
        RunningServer { server, _dir: dir }
    }

    fn client(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.server.address().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        BufReader::new(stream)
    }

    /// Stops the server; returns its end, and the number of clients cut off.
    fn stop(self) -> (Result<(), ServerError>, u64) {
        let handle = self.server.handle();
        handle.stop();
        (self.server.wait(), handle.cut_off())
    }
}

fn send(client: &mut BufReader<TcpStream>, text: &str) {
    client.get_mut().write_all(format!("{text}\r\n").as_bytes()).unwrap();
}

/// A line; empty if the connection was closed.
fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).unwrap_or(0);
    line.trim_end().to_string()
}

fn ask(client: &mut BufReader<TcpStream>, text: &str) -> String {
    send(client, text);
    line(client)
}

#[test]
fn a_stop_tells_of_clients_that_have_not_read() {
    let house = RunningServer::new(&[]);
    let mut reads = house.client();
    assert_eq!(ask(&mut reads, "SETRANGE long 50000000 x"), ":50000001");
    assert_eq!(house.stop(), (Ok(()), 0));
    let house = RunningServer::new(&[]);
    let (mut reads, mut sleeps) = (house.client(), house.client());
    assert_eq!(ask(&mut reads, "SETRANGE long 50000000 x"), ":50000001");
    send(&mut sleeps, "GET long");
    // The first bytes have arrived.
    assert_eq!(line(&mut sleeps), "$50000001");
    assert_eq!(house.stop(), (Ok(()), 1));
}

/// The wait of a client with many failed passwords is longer than `timeout` here.
#[test]
fn a_client_that_waits_to_log_in_is_not_idle() {
    let house = RunningServer::new(&["--requirepass", "secret", "--timeout", "1"]);
    let throttle = &house.server.shared.access.throttle;
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    (0..14).for_each(|_| throttle.failed(address, Instant::now()));
    let mut client = house.client();
    let began = Instant::now();
    assert_eq!(ask(&mut client, "AUTH secret\r\nPING"), "+OK");
    assert!(began.elapsed() > Duration::from_secs(1), "it has waited");
    assert_eq!(line(&mut client), "+PONG");
    // An idle client is disconnected still.
    let mut idle = house.client();
    assert_eq!(line(&mut idle), "");
    assert_eq!(house.stop().0, Ok(()));
}

/// Whatever a client waits for: a command sent by the client gets a reply.
#[test]
fn each_client_that_has_sent_a_write_is_told_of_a_log_that_fails() {
    // A loop goes on reading for a quarter of a second: if this thread is delayed for longer, the
    // test runs again.
    assert!((0..20).any(|_| are_told_of_a_log_that_fails()), "this thread is held up");
}

/// False if some commands were sent too late.
fn are_told_of_a_log_that_fails() -> bool {
    let house = RunningServer::new(&["--loops", "3"]);
    let mut clients: Vec<_> = (0..30).map(|_| house.client()).collect();
    let mut waiting: Vec<_> = (0..6).map(|_| house.client()).collect();
    for client in clients.iter_mut().chain(&mut waiting) {
        assert_eq!(ask(client, "PING"), "+PONG");
    }
    for (at, client) in waiting.iter_mut().enumerate() {
        send(client, &format!("BLMOVE none{at} other LEFT RIGHT 0"));
    }
    while house.server.shared.wiring.waiting.clients() < waiting.len() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let database = &house.server.shared.store.opened.cloned().database;
    let (first, rest) = clients.split_at_mut(10);
    first.iter_mut().for_each(|client| send(client, "SET a 1\r\nSET b 1"));
    let stopped = Instant::now();
    database.log().unwrap().stop("the disk is gone");
    // The commands are under way when the first client learns of the failure.
    let is_sent = rest.iter_mut().all(|client| {
        let text = "SET c 1\r\nMULTI\r\nSET d 1\r\nEXEC\r\n";
        client.get_mut().write_all(text.as_bytes()).is_ok()
    });
    if !is_sent || stopped.elapsed() > Duration::from_millis(200) {
        let _ = house.server.wait();
        return false;
    }
    let is_told = |said: &str| {
        said.starts_with("-OUTCOMEUNKNOWN the log failed") || said == "-MISCONF the disk is gone"
    };
    for client in first.iter_mut() {
        for _ in 0..2 {
            let said = line(client);
            assert!(said == "+OK" || is_told(&said), "{said:?}");
        }
    }
    for client in rest.iter_mut().chain(&mut waiting) {
        let said = line(client);
        assert!(is_told(&said), "{said:?}");
    }
    let began = Instant::now();
    let error = house.server.wait().unwrap_err().to_string();
    assert_eq!(error, "the log failed: the disk is gone");
    assert!(began.elapsed() < Duration::from_secs(10));
    true
}
