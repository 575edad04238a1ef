//! Asks a server for a sign of life.

use crate::config::PingTls;
use crate::tls::TlsClient;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T, E = Error> = std::result::Result<T, E>;

/// The server answers within this time, for any number of addresses of its host and any bytes sent
/// meanwhile. Only the system's look-up of the host's name has a separate time limit.
const TIME: Duration = Duration::from_secs(5);

const ASKED: &[u8] = b"PING\r\n";

/// The first bytes of the answer of a live server: a server with a password says so.
const ALIVE: [&[u8; 7]; 2] = [b"+PONG\r\n", b"-NOAUTH"];

fn check(server: &str, answer: [u8; 7]) -> Result<(), String> {
    match ALIVE.contains(&&answer) {
        true => Ok(()),
        false => Err(format!("{server} does not answer PONG")),
    }
}

/// The time left until a deadline.
fn left(deadline: Instant) -> Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Error::new(ErrorKind::TimedOut, "it does not answer in time")),
        false => Ok(left),
    }
}

/// A socket with a deadline for reads and writes.
struct Timed<S> {
    socket: S,
    deadline: Instant,
}

impl<S: AsFd> Timed<S> {
    /// Sets the time limit of the next call. (Also of a call that connects, in Linux.)
    fn limit(&self, which: Timeout) -> Result<()> {
        Ok(set_socket_timeout(&self.socket, which, Some(left(self.deadline)?))?)
    }
}

impl<S: AsFd + Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.limit(Timeout::Recv)?;
        self.socket.read(buffer)
    }
}

impl<S: AsFd + Write> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.limit(Timeout::Send)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.socket.flush()
    }
}

/// Connects to the first address of a host that accepts.
fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream> {
    let mut failed = Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a socket file. If a server accepts no connections, further clients wait once many
/// do.
fn connect_to_file(path: &Path, deadline: Instant) -> Result<UnixStream> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = Timed { socket, deadline };
    socket.limit(Timeout::Send)?;
    rustix::net::connect(&socket.socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.socket.into())
}

fn ask(stream: &mut (impl Read + Write), answer: &mut [u8]) -> Result<()> {
    stream.write_all(ASKED)?;
    stream.read_exact(answer)
}

/// The reason of a missing answer, in words: the system has a single error for a timeout and for a
/// call that would block.
fn no_answer(server: &str, error: &Error) -> String {
    let seconds = TIME.as_secs();
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no server answers at {server} within {seconds} s")
        }
        _ => format!("no server answers at {server}: {error}"),
    }
}

/// Checks whether the server at a host and a port answers. A server in recovery does.
///
/// # Errors
/// No server answers within five seconds, the answer is not a server's, or its certificate is not
/// to be trusted. As text, one sentence.
pub fn ping(host: &str, port: u16, encryption: Option<&PingTls>) -> Result<(), String> {
    let (server, deadline) = (format!("{host}:{port}"), Instant::now() + TIME);
    let client = encryption.map(|how| TlsClient::new(host, how)).transpose()?;
    let mut answer = [0; 7];
    let exchange = || -> Result<()> {
        let mut stream = Timed { socket: connect(host, port, deadline)?, deadline };
        match client {
            None => ask(&mut stream, &mut answer),
            Some(mut client) => client.exchange(&mut stream, ASKED, &mut answer),
        }
    };
    exchange().map_err(|error| no_answer(&server, &error))?;
    check(&server, answer)
}

/// As [`ping`], for a server that listens at a socket file.
///
/// # Errors
/// As [`ping`].
pub fn ping_file(path: &Path) -> Result<(), String> {
    let (server, deadline) = (path.display().to_string(), Instant::now() + TIME);
    let mut answer = [0; 7];
    let mut exchange = || -> Result<()> {
        ask(&mut Timed { socket: connect_to_file(path, deadline)?, deadline }, &mut answer)
    };
    exchange().map_err(|error| no_answer(&server, &error))?;
    check(&server, answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers in pieces; then listens on.
    fn answers(pieces: &[&'static str]) -> u16 {
        let pieces = pieces.to_vec();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = stream.read_to_end(&mut Vec::new());
        });
        port
    }

    #[test]
    fn a_server_that_wants_a_password_is_alive_and_one_that_refuses_is_not() {
        let asked = |pieces: &[&'static str]| ping("127.0.0.1", answers(pieces), None);
        assert_eq!(asked(&["+PONG\r\n"]), Ok(()));
        assert_eq!(asked(&["+P", "ON", "G\r\n"]), Ok(()));
        assert_eq!(asked(&["-NOAUTH Authentication required.\r\n"]), Ok(()));
        for other in [
            "-MISCONF the log has failed\r\n",
            "-ERR max number of clients reached\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
        ] {
            assert!(asked(&[other]).unwrap_err().contains("does not answer PONG"));
        }
    }

    fn is_in_time(began: Instant, error: &str) {
        assert!(error.contains("within 5 s"), "{error}");
        let time = began.elapsed();
        assert!(time > TIME / 2 && time < TIME * 3, "{time:?}");
    }

    #[test]
    fn a_server_that_does_not_answer_or_too_slowly_is_not_waited_for() {
        // The system connects, and the server sends nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        let began = Instant::now();
        let slow = std::thread::spawn(|| {
            // Each byte is in time.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while stream.write_all(b"+").is_ok() {
                    std::thread::sleep(Duration::from_secs(2));
                }
            });
            ping("127.0.0.1", port, None).unwrap_err()
        });
        is_in_time(began, &ping("127.0.0.1", silent_port, None).unwrap_err());
        is_in_time(began, &slow.join().unwrap());
    }

    /// More connections wait than the system keeps for a server without accepts.
    #[test]
    fn a_file_at_which_nothing_is_accepted_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        let began = Instant::now();
        is_in_time(began, &ping_file(&path).unwrap_err());
        assert!(ping_file(&dir.path().join("none")).unwrap_err().contains("no server answers at"));
    }
}
