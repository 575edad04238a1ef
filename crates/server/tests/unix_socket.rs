//! Clients that connect to a socket file of this machine.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_server::{Server, ServerError, Settings, ping_file};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server in its own directory, with a socket file.
struct Served {
    server: Option<Server>,
    dir: TempDir,
}

fn socket_of(dir: &Path) -> PathBuf {
    dir.join("socket")
}

fn start(dir: &Path, data: &str, more: &str) -> Result<Server, ServerError> {
    let text = format!(
        "--bind 127.0.0.1 --loops 1 --dir {} --unixsocket {} {more}",
        dir.join(data).display(),
        socket_of(dir).display()
    );
    let settings: Vec<&str> = text.split_whitespace().collect();
    let server = Server::start(Settings::from_arguments(&settings).unwrap())?;
    server.wait_until_open()?;
    Ok(server)
}

impl Served {
    fn new(more: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let server = Some(start(dir.path(), "data", more).unwrap());
        Served { server, dir }
    }

    fn path(&self) -> PathBuf {
        socket_of(self.dir.path())
    }

    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        BufReader::new(stream)
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.handle().stop();
            server.wait().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends a line, and reads a line of the reply.
fn ask<S: Read + Write>(reader: &mut BufReader<S>, line: &str) -> String {
    reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    reader.read_line(&mut reply).unwrap();
    reply.trim_end().to_string()
}

/// Reads a bulk string.
fn ask_bulk<S: Read + Write>(reader: &mut BufReader<S>, line: &str) -> String {
    let length: usize = ask(reader, line).trim_start_matches('$').parse().unwrap();
    let mut text = vec![0; length + 2];
    reader.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_client_of_the_file_is_served_and_the_file_is_removed_at_the_end() {
    let mut served = Served::new("--port 0 --unixsocketperm 600");
    let server = served.server.as_ref().unwrap();
    assert_eq!(server.address(), None, "port 0 beside a file means none");
    assert_eq!(server.unix_socket(), Some(served.path()));
    assert_eq!(ping_file(&served.path()), Ok(()));
    let error = ping_file(&served.dir.path().join("none")).unwrap_err();
    assert!(error.contains("no server answers at"), "{error}");
    let mode = std::fs::metadata(served.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = served.connect();
    assert_eq!(ask(&mut client, "SET a 1"), "+OK");
    let name = served.path().display().to_string();
    let info = ask_bulk(&mut client, "CLIENT INFO");
    assert!(info.contains(&format!(" addr={name}:0 laddr={name}:0 ")), "{info}");
    assert!(info.contains(" flags=U "), "{info}");
    assert!(ask_bulk(&mut client, "INFO server").contains("\r\ntcp_port:0\r\n"));
    let mut listens = served.connect();
    assert_eq!(ask(&mut listens, "SUBSCRIBE c"), "*3");
    assert!(ask_bulk(&mut client, "CLIENT LIST").contains(" flags=PU "));
    served.stop();
    assert!(!served.path().exists());
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    // The data are there again, whichever way clients come.
    served.server = Some(start(served.dir.path(), "data", "--port 0").unwrap());
    let mut client = served.connect();
    assert_eq!(ask_bulk(&mut client, "GET a"), "1\r\n");
}

#[test]
fn a_file_and_a_port_are_listened_at_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = (0..20).find_map(|_| {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        start(dir.path(), "data", &format!("--port {free}")).ok()
    });
    let served = Served { server, dir };
    let mut local = served.connect();
    let address = served.server.as_ref().expect("a port is free").address().unwrap();
    let mut remote = BufReader::new(TcpStream::connect(address).unwrap());
    assert_eq!(ask(&mut local, "SET a 1"), "+OK");
    assert_eq!(ask(&mut remote, "INCR a"), ":2");
    let list = ask_bulk(&mut remote, "CLIENT LIST");
    assert_eq!((list.matches(" flags=U ").count(), list.matches(" flags=N ").count()), (1, 1));
}

#[test]
fn the_file_of_a_living_server_stays_and_that_of_a_dead_one_is_replaced() {
    let served = Served::new("--port 0");
    let error = start(served.dir.path(), "other", "--port 0").err().expect("it is refused");
    let text = error.to_string();
    assert!(text.contains("a server that runs listens there") && text.contains("socket"), "{text}");
    assert_eq!(ask(&mut served.connect(), "PING"), "+PONG");
    // The remains of a killed server: a file without a listening server.
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(socket_of(dir.path())).unwrap());
    assert!(socket_of(dir.path()).exists());
    let server = Some(start(dir.path(), "data", "--port 0").unwrap());
    let served = Served { server, dir };
    assert_eq!(ask(&mut served.connect(), "PING"), "+PONG");
}

/// Passwords, limits and CLIENT KILL are the same as over the network.
#[test]
fn rules_are_those_of_all_clients() {
    let served = Served::new("--port 0 --requirepass secret");
    let mut client = served.connect();
    assert_eq!(ask(&mut client, "GET a"), "-NOAUTH Authentication required.");
    assert_eq!(ask(&mut client, "AUTH secret"), "+OK");
    assert_eq!(ask(&mut client, "CONFIG SET maxclients 1"), "+OK");
    let mut other = served.connect();
    let mut line = String::new();
    other.read_line(&mut line).unwrap();
    assert_eq!(line, "-ERR max number of clients reached\r\n");
    assert_eq!(ask(&mut client, "CONFIG SET maxclients 10"), "+OK");
    let mut other = served.connect();
    assert_eq!(ask(&mut other, "AUTH secret"), "+OK");
    let kill = format!("CLIENT KILL ADDR {}:0", served.path().display());
    assert_eq!(ask(&mut client, &kill), ":1");
    let mut rest = Vec::new();
    let began = Instant::now();
    assert_eq!(other.read_to_end(&mut rest).unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(ask(&mut client, "PING"), "+PONG");
}

/// Pipelines, large replies and the end of the connection.
#[test]
fn much_is_sent_and_read_over_the_file() {
    let served = Served::new("--port 0");
    let mut client = served.connect();
    let value = "x".repeat(4 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nv\r\n${}\r\n{value}\r\n", value.len());
    client.get_mut().write_all(set.as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    assert_eq!(line, "+OK\r\n");
    let mut writing = client.get_ref().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        writing.write_all("GET v\r\nINCR n\r\n".repeat(20).as_bytes()).unwrap();
        writing.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    writer.join().unwrap();
    assert_eq!(all.matches(&value).count(), 20);
    assert!(all.ends_with(":20\r\n"));
}

#[test]
fn of_two_servers_that_start_at_once_one_serves_and_the_other_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let begin = Barrier::new(2);
        let start = |name: &str| {
            let data = format!("{name}-{round}");
            begin.wait();
            start(dir.path(), &data, "--port 0 --streams 1")
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let servers = ["one", "two"].map(|name| scope.spawn(move || start(name)));
            servers.into_iter().map(|server| server.join().unwrap()).collect()
        });
        let (mut serving, mut refused) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(server) => serving.push(server),
                Err(error) => refused.push(error.to_string()),
            }
        }
        assert_eq!((serving.len(), refused.len()), (1, 1), "round {round}: {refused:?}");
        assert!(refused[0].contains("a server that runs listens there"), "{refused:?}");
        assert_eq!(ping_file(&socket_of(dir.path())), Ok(()), "round {round}");
        for server in serving {
            server.handle().stop();
            server.wait().unwrap();
        }
    }
}
