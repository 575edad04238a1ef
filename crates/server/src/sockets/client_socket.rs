//! The socket of a client: of the network, or of this machine alone.

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{Read, Result, Write};

/// The socket of a client.
pub enum ClientSocket {
    /// Of the network.
    Tcp(TcpStream),
    /// Of this machine: the client has connected to the socket file named by `unixsocket`.
    Unix(UnixStream),
}

impl ClientSocket {
    /// Whether the client has connected to a file.
    pub fn is_unix(&self) -> bool {
        matches!(self, ClientSocket::Unix(_))
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            ClientSocket::Tcp(stream) => stream,
            ClientSocket::Unix(stream) => stream,
        }
    }
}

impl Read for ClientSocket {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self {
            ClientSocket::Tcp(stream) => stream.read(buffer),
            ClientSocket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for ClientSocket {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            ClientSocket::Tcp(stream) => stream.write(bytes),
            ClientSocket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            ClientSocket::Tcp(stream) => stream.flush(),
            ClientSocket::Unix(stream) => stream.flush(),
        }
    }
}

impl Source for ClientSocket {
    fn register(&mut self, registry: &Registry, token: Token, interest: Interest) -> Result<()> {
        self.source().register(registry, token, interest)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interest: Interest) -> Result<()> {
        self.source().reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> Result<()> {
        self.source().deregister(registry)
    }
}
