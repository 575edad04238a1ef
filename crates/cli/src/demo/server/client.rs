//! A client of Redis's protocol, as small as the demo needs.

use hyades_cli::failure::Failure;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, a number or a string.
    Text(String),
    /// No value.
    Nil,
    /// Several.
    Array(Vec<Reply>),
    /// An error.
    Error(String),
}

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    unsent: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens there.
    pub fn connect(address: SocketAddr) -> Result<Client, Failure> {
        Self::try_connect(address).map_err(Failure::doing(format!("cannot connect to {address}")))
    }

    /// As [`Client::connect`].
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream: BufReader::new(stream), unsent: Vec::new() })
    }

    /// Adds a command to be sent by [`Client::flush`].
    pub fn add(&mut self, words: &[&str]) {
        let out = &mut self.unsent;
        // Writing to memory does not fail.
        let _ = write!(out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(out, "${}\r\n{word}\r\n", word.len());
        }
    }

    /// Sends the added commands.
    ///
    /// # Errors
    /// The server is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The server is gone, or says something else.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let text = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let (kind, rest) = text.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let length =
            || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        Ok(match kind {
            "+" | ":" => Reply::Text(rest.to_string()),
            "-" => Reply::Error(rest.to_string()),
            "$" | "*" if length()? < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; length()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                Reply::Text(text)
            }
            "*" => Reply::Array((0..length()?).map(|_| self.reply()).collect::<io::Result<_>>()?),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// The server is gone, or replies an error.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        self.add(words);
        let reply = self.flush().and_then(|()| self.reply());
        match reply.map_err(Failure::doing("the server does not answer"))? {
            Reply::Error(text) => {
                Err(Failure::Failed(format!("the server replied to {}: {text}", words[0])))
            }
            reply => Ok(reply),
        }
    }
}
