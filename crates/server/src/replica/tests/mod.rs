//! A server against a primary directed by the test.

mod following;
mod syncing;

use crate::config::Settings;
use crate::rdb::{self, FileWriter, FormatVersion};
use crate::server::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ID: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER_ID: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// No wait of a test takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as sent.
fn request(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    let words_text = words.iter().map(word).collect::<String>();
    format!("*{}\r\n{words_text}", words.len()).into_bytes()
}

fn requests(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| request(line)).collect()
}

/// A file with keys of database 0.
fn values(keys: &[(&str, &str, Option<i64>)]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), FormatVersion::Redis70).unwrap();
    for (key, value, expires) in keys {
        let payload = rdb::string(value.as_bytes());
        writer.key(0, key.as_bytes(), *expires, &payload).unwrap();
    }
    writer.finish().unwrap()
}

/// A connection, at either end.
struct Peer {
    reader: BufReader<TcpStream>,
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer { reader: BufReader::new(stream) }
    }

    fn send(&self, bytes: impl AsRef<[u8]>) {
        // The peer may have closed the connection, as some tests expect.
        let _ = self.reader.get_ref().write_all(bytes.as_ref());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        // Nothing if the connection has ended.
        let _ = self.reader.read_line(&mut line);
        line.trim_end().to_string()
    }

    /// A reply, or a request, in a line.
    fn read(&mut self) -> String {
        let line = self.line();
        match line.split_at_checked(1) {
            Some(("$", "-1")) => "nil".to_string(),
            Some(("$", length)) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).unwrap()
            }
            Some(("*", count)) => {
                let all: Vec<String> =
                    (0..count.parse::<usize>().unwrap()).map(|_| self.read()).collect();
                all.join(" ")
            }
            _ => line,
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(request(line));
        self.read()
    }

    /// Reads requests up to `line`.
    fn expect(&mut self, line: &str) {
        let began = Instant::now();
        loop {
            let read = self.read();
            if read == line {
                return;
            }
            assert!(read.starts_with("REPLCONF ACK"), "{read:?}, and not {line:?}");
            assert!(began.elapsed() < PATIENCE, "{read:?}, and never {line:?}");
        }
    }

    /// Waits until the peer has closed the connection.
    fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
    }
}

/// A primary.
struct Primary {
    listener: TcpListener,
}

impl Primary {
    fn new() -> Primary {
        Primary { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn accept(&self) -> Peer {
        Peer::new(self.listener.accept().unwrap().0)
    }

    /// Accepts a connection with a handshake that ends with this request: not a connection of a
    /// server stopped since.
    fn shake(&self, psync: &str) -> Peer {
        loop {
            let mut peer = self.accept();
            let begins =
                ["PING", "REPLCONF listening-port ", "REPLCONF capa eof capa psync2", psync];
            let has_begun = begins.into_iter().all(|expected| {
                let said = peer.read();
                assert!(said.is_empty() || said.starts_with(expected), "{said}");
                if expected != psync {
                    peer.send("+OK\r\n");
                }
                !said.is_empty()
            });
            if has_begun {
                return peer;
            }
        }
    }

    /// Accepts a connection, and sends these values as of offset 100.
    fn sync(&self, psync: &str, keys: &[(&str, &str, Option<i64>)]) -> Peer {
        let peer = self.shake(psync);
        let values = values(keys);
        peer.send(format!("+FULLRESYNC {ID} 100\r\n${}\r\n", values.len()));
        peer.send(values);
        peer
    }
}

/// A server, with a client.
struct Here {
    dir: TempDir,
    flags: Vec<String>,
    server: Option<Server>,
    client: Peer,
}

impl Here {
    fn start(flags: &[&str]) -> Here {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_string()).collect();
        let (server, client) = Here::open(&dir, &flags).unwrap();
        Here { dir, flags, server: Some(server), client }
    }

    fn open(dir: &TempDir, flags: &[String]) -> Result<(Server, Peer), String> {
        let dir = dir.path().to_str().unwrap();
        let own = ["--dir", dir, "--streams", "2", "--port", "0", "--enable-debug-command", "yes"];
        let all: Vec<&str> = own.into_iter().chain(flags.iter().map(String::as_str)).collect();
        let server = Server::start(Settings::from_arguments(&all).unwrap()).unwrap();
        server.wait_until_open().map_err(|error| error.to_string())?;
        let client = Peer::new(TcpStream::connect(server.address().unwrap()).unwrap());
        Ok((server, client))
    }

    fn stop(&mut self) {
        let server = self.server.take().unwrap();
        server.handle().stop();
        server.wait().unwrap();
    }

    fn restart(&mut self) {
        self.stop();
        let (server, client) = Here::open(&self.dir, &self.flags).unwrap();
        (self.server, self.client) = (Some(server), client);
    }

    fn ask(&mut self, line: &str) -> String {
        self.client.ask(line)
    }

    fn follow(&mut self, primary: &Primary) {
        let line = format!("REPLICAOF 127.0.0.1 {}", primary.port());
        assert_eq!(self.ask(&line), "+OK");
    }

    /// The value of a line of INFO.
    fn info(&mut self, name: &str) -> String {
        let text = self.ask("INFO everything");
        let begin = format!("{name}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or_default().trim_end().to_string()
    }

    /// Waits until a reply is as expected.
    fn wait_for(&mut self, line: &str, expected: &str) {
        self.wait_until(&format!("{line} replies {expected}"), |here| here.ask(line) == expected);
    }

    fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Here) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < PATIENCE, "never: {what}; {}", self.ask("INFO replication"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.handle().stop();
            let _ = server.wait();
        }
    }
}
