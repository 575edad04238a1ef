//! TLS between a socket and a conversation, without either: bytes of the network in, bytes of the
//! client out, and in reverse.
//!
//! Both ways are bounded: at most one record is incomplete, and at most [`MOST_SEALED`] bytes are
//! encrypted before the socket has taken earlier bytes.

mod client;
mod files;

pub use client::TlsClient;

use crate::config::TlsSettings;
use rustls::server::{NoServerSessionStorage, ServerConfig, ServerConnection};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the handshake of a client, before the client is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Most bytes encrypted at once.
const MOST_SEALED: usize = 64 << 10;

/// A larger empty buffer is freed.
const KEPT: usize = 4 << 10;

/// The first byte of a client that speaks TLS.
const HANDSHAKE_RECORD: u8 = 22;

/// The reason to close a connection that does not begin with TLS.
const NOT_TLS: &str = "the client does not speak TLS";

/// The encryption of the connections of a server.
pub struct Encryption(Arc<ServerConfig>);

impl Encryption {
    /// Reads the files named by the settings.
    ///
    /// # Errors
    /// Names the wrong file, the expected content, and the remedy.
    pub fn new(settings: &TlsSettings) -> Result<Encryption, String> {
        let mut config = files::configuration(settings)?;
        config.ignore_client_order = settings.prefers_own_suites;
        // A resumed session would not check its certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Encryption(Arc::new(config)))
    }

    /// A new connection.
    ///
    /// # Errors
    /// The connection cannot be encrypted.
    pub fn stream(&self) -> Result<TlsStream, String> {
        let connection = ServerConnection::new(self.0.clone());
        let mut connection = connection.map_err(|error| error.to_string())?;
        // Written bytes are taken out at once.
        connection.set_buffer_limit(None);
        Ok(TlsStream {
            connection,
            sealed: Vec::new(),
            sent: 0,
            has_begun: false,
            has_ended: false,
            is_closed: false,
            deadline: Instant::now() + HANDSHAKE,
        })
    }
}

/// The encryption of a connection.
pub struct TlsStream {
    connection: ServerConnection,
    /// Encrypted bytes for the socket.
    sealed: Vec<u8>,
    /// Bytes of `sealed` already sent.
    sent: usize,
    /// A byte has arrived.
    has_begun: bool,
    /// The client has announced the end of its bytes.
    has_ended: bool,
    /// The client was told the end of the server's bytes, or the fault.
    is_closed: bool,
    /// The deadline for the handshake.
    deadline: Instant,
}

impl TlsStream {
    /// Decrypts bytes of the socket, and passes on the client's bytes.
    ///
    /// # Errors
    /// The bytes violate TLS; the client is to be told by [`TlsStream::output`].
    pub fn receive(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), String> {
        if !self.has_begun && bytes.first().is_some_and(|first| *first != HANDSHAKE_RECORD) {
            self.is_closed = true;
            return Err(NOT_TLS.to_string());
        }
        self.has_begun = true;
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_ended {
            let before = rest.len();
            let taken = self.connection.read_tls(&mut rest);
            let processed = self.connection.process_new_packets();
            // Bytes of a handshake, or of an alert.
            self.take_sealed();
            let processed = taken.map_err(|error| error.to_string()).and_then(|_| {
                let state = processed.map_err(|error| error.to_string())?;
                // The connection takes some bytes, or the loop would not end.
                if rest.len() == before { Err("a record is too long".into()) } else { Ok(state) }
            });
            let state = processed.inspect_err(|_| self.is_closed = true)?;
            let mut reader = self.connection.reader();
            while let Ok(said) = reader.fill_buf()
                && !said.is_empty()
            {
                take(said);
                let length = said.len();
                reader.consume(length);
            }
            self.has_ended = state.peer_has_closed();
        }
        Ok(())
    }

    /// Encrypts the first of the bytes if the socket has taken all before. Returns their number.
    pub fn seal(&mut self, said: &[u8]) -> usize {
        if !self.output().is_empty() || self.is_closed || self.is_handshaking() {
            return 0;
        }
        let most = &said[..said.len().min(MOST_SEALED)];
        let sealed = self.connection.writer().write(most).unwrap_or(0);
        self.take_sealed();
        sealed
    }

    fn take_sealed(&mut self) {
        while self.connection.wants_write() {
            let Ok(1..) = self.connection.write_tls(&mut self.sealed) else { return };
        }
    }

    /// Bytes for the socket to send.
    pub fn output(&self) -> &[u8] {
        &self.sealed[self.sent..]
    }

    /// Notes a number of bytes sent by the socket.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        debug_assert!(self.sent <= self.sealed.len());
        if self.sent == self.sealed.len() {
            self.sent = 0;
            match self.sealed.capacity() > KEPT {
                true => self.sealed = Vec::new(),
                false => self.sealed.clear(),
            }
        }
    }

    /// Tells the client the end of the server's bytes.
    pub fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.connection.send_close_notify();
            self.take_sealed();
        }
    }

    /// Whether the client has announced the end of its bytes. If the socket ends without the
    /// announcement, the last bytes of the client may be cut off.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the client was told the end of the server's bytes.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the handshake of the client is not complete yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The deadline for the client's handshake, if not complete.
    pub fn deadline(&self) -> Option<Instant> {
        self.is_handshaking().then_some(self.deadline)
    }
}

#[cfg(test)]
mod tests;
