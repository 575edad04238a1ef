//! Clients of a server over sockets: several commands sent at once, and the end of clients.
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
        Served::at("127.0.0.1")
    }

    fn at(address: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let settings =
            format!("--port 0 --dir {path} --bind {address} --loops 1 --enable-debug-command yes");
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

/// A client that hangs up during CLIENT PAUSE leaves no command to run after the pause.
#[test]
fn what_waits_for_the_end_of_a_pause_goes_with_its_client() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    assert_eq!(ask(&mut admin, "CLIENT PAUSE 600000 WRITE"), "+OK");
    for _ in 0..10 {
        let mut gone = served.connect();
        gone.write_all(b"INCR n\r\n").unwrap();
    }
    // Of some clients, the command and the end are read at once.
    for _ in 0..100 {
        served.connect().write_all(b"INCR n\r\n").unwrap();
    }
    // The server accepts clients in order: once the last client has a reply, all were accepted.
    let mut last = BufReader::new(served.connect());
    assert_eq!(ask(&mut last, "PING"), "+PONG");
    drop(last);
    let began = Instant::now();
    while count(&mut admin) > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "one stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ask(&mut admin, "CLIENT UNPAUSE"), "+OK");
    for _ in 0..20 {
        assert_eq!(ask(&mut admin, "GET n"), "$-1");
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

/// The thread with long work for a client delays neither the work of other clients, nor the stop.
#[test]
fn a_slow_job_holds_up_neither_quick_ones_nor_the_stop() {
    let served = Served::new();
    let mut slow = served.connect();
    slow.write_all(b"SELECT 1\r\nDEBUG POPULATE 1000000000000\r\nSAVE\r\n").unwrap();
    let mut other = served.connect();
    other.write_all(b"SAVE\r\n").unwrap();
    let mut quick = BufReader::new(served.connect());
    quick.get_mut().write_all(b"KEYS *\r\n").unwrap();
    let mut line = String::new();
    quick.read_line(&mut line).unwrap();
    assert_eq!(line, "*0\r\n");
    // The slow job was given to its thread; the job begins soon after.
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
    // Some keys are there.
    assert_eq!(ask(&mut quick, "SELECT 1"), "+OK");
    let began = Instant::now();
    while ask(&mut quick, "DBSIZE") == ":0" {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    drop(served);
    // Jobs already begun are answered; the rest have no effect, and no reply.
    let mut said = String::new();
    slow.read_to_string(&mut said).unwrap();
    let keys = said.strip_prefix("+OK\r\n-ERR DEBUG POPULATE has ended before key ");
    let keys = keys.and_then(|keys| keys.trim_end().parse::<u64>().ok());
    assert!(keys.is_some_and(|keys| keys > 0), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30), "the stop waits for a job");
}

/// Sends lines, and reads a line of reply for each.
fn ask(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    reply.trim_end().to_string()
}

/// A client that waits for an element or a message sends nothing either, and stays.
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
    // A client silent for a second is disconnected as well, and connects again.
    let admin = (0..20).find_map(|_| {
        let mut admin = BufReader::new(served.connect());
        admin.get_mut().write_all(b"CONFIG SET timeout 0\r\n").ok()?;
        let mut line = String::new();
        admin.read_line(&mut line).ok()?;
        (line == "+OK\r\n").then_some(admin)
    });
    let mut admin = admin.expect("it speaks within a second");
    assert_eq!(ask(&mut admin, "LPUSH a 1"), ":1");
    let mut line = String::new();
    blocked.read_line(&mut line).unwrap();
    assert_eq!(line, "*2\r\n");
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ask(&mut admin, "PING"), "+PONG", "there is no timeout any more");
}

/// A reply unread by its client is kept up to the limit, for the time of the limit.
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

/// As in Redis: a reply longer than the limit is not sent, however fast its client reads.
#[test]
fn a_reply_that_is_too_long_is_not_sent() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    let set = "CONFIG SET client-output-buffer-limit \"normal 100000 0 0\"";
    assert_eq!(ask(&mut admin, set), "+OK");
    // With `$99990` and two ends of lines the reply has the length of the limit.
    assert_eq!(ask(&mut admin, "SETRANGE fits 99989 x"), ":99990");
    assert_eq!(ask(&mut admin, "SETRANGE long 99990 x"), ":99991");
    for n in 0..1_000 {
        assert_eq!(ask(&mut admin, &format!("SET {}{n} 1", "k".repeat(100))), "+OK");
    }
    let mut reader = BufReader::new(served.connect());
    assert_eq!(ask(&mut reader, "GET fits"), "$99990");
    let mut value = vec![0; 99_992];
    reader.read_exact(&mut value).unwrap();
    // From a loop, from a transaction, and from a thread beside the loops.
    assert_eq!(ask(&mut admin, "HSET h f v"), ":1");
    let random = "HRANDFIELD h -999999999";
    for line in ["GET long", "MULTI\r\nINCR n\r\nGET long\r\nEXEC", "KEYS *", random] {
        let mut reader = BufReader::new(served.connect());
        if line.starts_with("MULTI") {
            assert_eq!(ask(&mut reader, "MULTI"), "+OK");
        }
        let line = line.trim_start_matches("MULTI\r\n");
        reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut rest = String::new();
        let _ = reader.read_to_string(&mut rest);
        assert!(rest.is_empty() || rest == "+QUEUED\r\n".repeat(2), "{line}: {}", rest.len());
    }
    assert_eq!(ask(&mut admin, "INCR n"), ":2", "the transaction has run");
    assert_eq!(ask(&mut reader, "PING"), "+PONG");
    assert_eq!(ask(&mut admin, "CONFIG SET client-output-buffer-limit \"normal 0 0 0\""), "+OK");
    assert_eq!(ask(&mut reader, "GET long"), "$99991", "there is no limit any more");
}

/// The smallest limits leave room for the replies that a client needs to change the limits.
#[test]
fn a_limit_does_not_lock_all_clients_out() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    for limit in ["normal 1 1 1", "normal 1 0 0", "normal 0 1 0"] {
        let set = format!("CONFIG SET client-output-buffer-limit \"{limit}\"");
        assert_eq!(ask(&mut admin, &set), "+OK", "{limit}");
        let mut other = BufReader::new(served.connect());
        assert_eq!(ask(&mut other, "CLIENT SETINFO lib-name a"), "+OK", "{limit}");
        assert_eq!(ask(&mut other, "AUTH wrong"), ask(&mut admin, "AUTH wrong"), "{limit}");
    }
    let set = "CONFIG SET client-output-buffer-limit \"normal 0 0 0\"";
    assert_eq!(ask(&mut BufReader::new(served.connect()), set), "+OK");
}

/// Nothing waits for a client that wants no replies.
#[test]
fn a_reply_that_is_dropped_is_not_too_long() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    for line in ["SETRANGE long 2000000 x", "HSET h f v", "MSET a 1 b 2"] {
        assert!(!ask(&mut admin, line).starts_with('-'), "{line}");
    }
    let set = "CONFIG SET client-output-buffer-limit \"normal 20 0 0\"";
    assert_eq!(ask(&mut admin, set), "+OK");
    // From a loop, and from threads beside the loops.
    let random = "HRANDFIELD h -2000000";
    for line in ["GET long", "MULTI\r\nINCR n\r\nGET long\r\nEXEC", "KEYS *", random, "COMMAND"] {
        let mut silent = BufReader::new(served.connect());
        let all = format!("CLIENT REPLY OFF\r\n{line}\r\nCLIENT REPLY ON");
        assert_eq!(ask(&mut silent, &all), "+OK", "{line}");
        assert_eq!(ask(&mut silent, "PING"), "+PONG", "{line}");
    }
}

/// A command has the name from the file of settings. Rules use the command's own name.
#[test]
fn renamed_commands_run_by_their_new_names_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.conf"), dir.path().join("data"));
    let lines = format!(
        "port 0\nbind 127.0.0.1\nstreams 1\nloops 1\ndir {}\nrename-command FLUSHALL \"\"\n\
         rename-command SET put\nrename-command CONFIG 5ecret\nuser a on nopass ~* +@all -set\n",
        data.display()
    );
    std::fs::write(&file, lines).unwrap();
    let settings = Settings::from_arguments(&[file.to_str().unwrap()]).unwrap();
    let server = Server::start(settings).unwrap();
    server.wait_until_open().unwrap();
    let served = Served { server: Some(server), _dir: dir };
    let mut client = BufReader::new(served.connect());
    for (line, expected) in [
        ("SET a 1", "-ERR unknown command 'SET', with args beginning with: 'a' '1'"),
        ("PUT a 1", "+OK"),
        ("put a", "-ERR wrong number of arguments for 'set' command"),
        ("flushall", "-ERR unknown command 'flushall', with args beginning with:"),
        ("CONFIG SET timeout 0", "-ERR unknown command 'CONFIG', with args beginning with: "),
        ("5ecret SET timeout 0", "+OK"),
        ("MULTI", "+OK"),
        ("put a 2", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("5ecret REWRITE", "+OK"),
        ("AUTH a x", "+OK"),
        ("put a 3", "-NOPERM this user has no permissions to run the 'set' command"),
    ] {
        let said = ask(&mut client, line);
        assert!(said.starts_with(expected.trim_end()), "{line}: {said}");
    }
    drop(client);
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\nrename-command SET put\nrename-command CONFIG 5ecret\n"), "{text}");
}

/// A port in use changes nothing; another port replaces the first.
#[test]
fn the_port_can_be_changed() {
    let served = Served::new();
    let mut admin = BufReader::new(served.connect());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen \
                  on this port: ";
    for line in [
        format!("CONFIG SET maxclients 77 port {port} timeout 5"),
        "CONFIG SET port 0 maxclients 77".to_string(),
    ] {
        // The server was started with port 0.
        let is_same = line.contains("port 0");
        let said = ask(&mut admin, &line);
        assert_eq!((said == "+OK", said.starts_with(failed)), (is_same, !is_same), "{said}");
        let shown = ask_for(&mut admin, "CONFIG GET maxclients", 5);
        assert_eq!(shown.ends_with("77"), is_same, "{shown}");
    }
    drop(taken);
    assert_eq!(ask(&mut admin, &format!("CONFIG SET port {port}")), "+OK");
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(ask(&mut BufReader::new(connect()), "PING"), "+PONG");
    assert_eq!(ask(&mut admin, "PING"), "+PONG", "its connection stays");
    assert!(ask_for(&mut admin, "CONFIG GET port", 5).ends_with(&port.to_string()));
    let before = served.server.as_ref().unwrap().address().unwrap();
    let began = Instant::now();
    while TcpStream::connect(before).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is listened at the port before");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ask(&mut BufReader::new(connect()), "PING"), "+PONG");
    assert!(ask(&mut admin, "CONFIG SET port 0").starts_with(failed), "there is to be a port");
}

/// Free ports that the system does not assign by itself.
fn quiet_ports() -> [u16; 2] {
    let from = 10_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (from..).filter(is_free);
    [(); 2].map(|()| free.next().unwrap())
}

/// When the reply is sent, the old port is free: for the same server, or for another server.
#[test]
fn a_port_is_free_once_another_has_taken_its_place() {
    // At an address at which no other test takes a port meanwhile.
    let served = Served::at("127.0.0.2");
    let mut admin = BufReader::new(served.connect());
    let ports = quiet_ports();
    // From port to port and back, without a pause.
    let lines: String = (0..100).map(|n| format!("CONFIG SET port {}\r\n", ports[n % 2])).collect();
    admin.get_mut().write_all(lines.as_bytes()).unwrap();
    for round in 0..100 {
        assert_eq!(ask(&mut admin, ""), "+OK", "{round}");
    }
    assert!(TcpStream::connect(("127.0.0.2", ports[0])).is_err());
    let new = TcpStream::connect(("127.0.0.2", ports[1])).unwrap();
    assert_eq!(ask(&mut BufReader::new(new), "PING"), "+PONG");
}

/// However many messages have waited until the client reads: later messages follow at once.
#[test]
fn messages_do_not_wait_for_the_end_of_a_long_command() {
    const MESSAGES: usize = 400;
    let served = Served::new();
    // The target accepts, and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut other = BufReader::new(served.connect());
    let set = "CONFIG SET client-output-buffer-limit \"pubsub 0 0 0\"";
    assert_eq!([ask(&mut other, set), ask(&mut other, "SET a 1")], ["+OK", "+OK"]);
    let mut listens = BufReader::new(served.connect());
    let text = format!("HELLO 3\r\nSUBSCRIBE c\r\nMIGRATE 127.0.0.1 {port} a 0 600000\r\n");
    listens.get_mut().write_all(text.as_bytes()).unwrap();
    let _target = silent.accept().unwrap();
    // More than the system keeps for a socket.
    let publish = format!("PUBLISH c {}", "x".repeat(30_000));
    for _ in 0..MESSAGES {
        assert_eq!(ask(&mut other, &publish), ":1");
    }
    let mut heard = 0;
    while heard < MESSAGES {
        let mut line = String::new();
        assert!(listens.read_line(&mut line).unwrap() > 0, "{heard}");
        heard += usize::from(line == "message\r\n");
    }
}

/// Sends a line, and reads this many lines of reply; returns the last line.
fn ask_for(stream: &mut BufReader<TcpStream>, line: &str, lines: usize) -> String {
    let first = ask(stream, line);
    let mut rest = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    };
    (1..lines).fold(first, |_, _| rest())
}

/// The number of clients.
fn count(stream: &mut BufReader<TcpStream>) -> usize {
    let length = ask(stream, "CLIENT LIST");
    let bytes: usize = length.trim_start_matches('$').parse().unwrap();
    let mut list = vec![0; bytes + 2];
    stream.read_exact(&mut list).unwrap();
    String::from_utf8(list).unwrap().lines().filter(|line| line.contains("id=")).count()
}
