//! A server of ours beside `redis-server`, with a client each, and what they reply.

use hyades_server::{Server, Settings};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    Line(String),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Said>>),
}

/// A client.
pub struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: std::net::SocketAddr) -> Client {
        for _ in 0..200 {
            if let Ok(stream) = TcpStream::connect(address) {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                return Client(BufReader::new(stream));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no server at {address}");
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Said {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(out, "${}\r\n", word.len()).unwrap();
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&out).unwrap();
        self.read()
    }

    pub fn ask_text(&mut self, text: &str) -> Said {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        self.ask(&words)
    }

    pub fn send(&mut self, commands: &[Vec<String>]) {
        let mut out = Vec::new();
        for words in commands {
            write!(out, "*{}\r\n", words.len()).unwrap();
            for word in words {
                write!(out, "${}\r\n{word}\r\n", word.len()).unwrap();
            }
        }
        self.0.get_mut().write_all(&out).unwrap();
    }

    pub fn read(&mut self) -> Said {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end_matches("\r\n");
        let length = || usize::try_from(line[1..].parse::<i64>().unwrap()).ok();
        match line.as_bytes()[0] {
            b'$' => Said::Bulk(length().map(|length| {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(length);
                bytes
            })),
            b'*' => Said::Array(length().map(|length| (0..length).map(|_| self.read()).collect())),
            _ => Said::Line(line.to_string()),
        }
    }
}

struct Original(Child);

impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A number of the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A server of ours, and Redis's, with a client each.
pub struct Pair {
    server: Server,
    pub ours: Client,
    pub theirs: Client,
    _original: Original,
    _dir: tempfile::TempDir,
}

impl Pair {
    pub fn start(settings_of_theirs: &[&str]) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let settings = ["--port", "0", "--dir", path, "--bind", "127.0.0.1"];
        let server = Server::start(Settings::from_arguments(&settings).unwrap()).unwrap();
        server.wait_until_open().unwrap();
        // The port is free again when the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port = port.to_string();
        let arguments = ["--port", &port, "--save", "", "--dir", path, "--bind", "127.0.0.1"];
        let mut original = Command::new("redis-server");
        original.args(arguments).args(settings_of_theirs).stdout(Stdio::null());
        let original = Original(original.spawn().expect("redis-server is installed"));
        let ours = Client::connect(server.address().unwrap());
        let theirs = Client::connect(format!("127.0.0.1:{port}").parse().unwrap());
        Pair { server, ours, theirs, _original: original, _dir: dir }
    }

    pub fn stop(self) {
        self.server.handle().stop();
        self.server.wait().unwrap();
    }
}
