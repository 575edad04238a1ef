//! Asks a server for a sign of life.

use crate::tls::TlsClient;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a server is asked over an encrypted connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingTls {
    /// The certificates of the authorities that sign the server's, in PEM format.
    pub authorities: Option<PathBuf>,
    /// A certificate to show, and the file of its key, in PEM format.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether the server's certificate is taken as it is, whatever signed it.
    pub takes_any: bool,
}

/// The server answers within this time.
const TIME: Duration = Duration::from_secs(5);

const ASKED: &[u8] = b"PING\r\n";

/// How the answers begin of a server that is alive: one that wants a password says so.
const ALIVE: [&[u8; 7]; 2] = [b"+PONG\r\n", b"-NOAUTH"];

fn check(server: &str, answer: [u8; 7]) -> Result<(), String> {
    match ALIVE.contains(&&answer) {
        true => Ok(()),
        false => Err(format!("{server} does not answer PONG")),
    }
}

fn ask(stream: &mut (impl Read + Write), answer: &mut [u8]) -> std::io::Result<()> {
    stream.write_all(ASKED)?;
    stream.read_exact(answer)
}

/// Asks the server at a host and a port whether it answers. One that is still recovering does.
///
/// # Errors
/// None answers within five seconds, it is something else, or its certificate is not to be trusted.
/// As text, one sentence.
pub fn ping(host: &str, port: u16, encryption: Option<&PingTls>) -> Result<(), String> {
    let server = format!("{host}:{port}");
    let client = encryption.map(|how| TlsClient::new(host, how)).transpose()?;
    let mut answer = [0; 7];
    let exchange = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect((host, port))?;
        stream.set_read_timeout(Some(TIME))?;
        stream.set_write_timeout(Some(TIME))?;
        match client {
            None => ask(&mut stream, &mut answer),
            Some(mut client) => client.exchange(&mut stream, ASKED, &mut answer),
        }
    };
    exchange().map_err(|error| format!("no server answers at {server}: {error}"))?;
    check(&server, answer)
}

/// As [`ping`], of the server that listens at a file.
///
/// # Errors
/// As [`ping`].
pub fn ping_file(path: &Path) -> Result<(), String> {
    let server = path.display().to_string();
    let mut answer = [0; 7];
    let mut exchange = || -> std::io::Result<()> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIME))?;
        stream.set_write_timeout(Some(TIME))?;
        ask(&mut stream, &mut answer)
    };
    exchange().map_err(|error| format!("no server answers at {server}: {error}"))?;
    check(&server, answer)
}
