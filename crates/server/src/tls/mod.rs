//! TLS between a socket and a conversation, without either: bytes of the network in, bytes of the
//! client out, and the other way round.
//!
//! Both ways are bounded: at most one record is incomplete, and at most [`MOST_SEALED`] bytes are
//! encrypted before the socket has taken those before them.

mod client;
mod files;

pub use client::TlsClient;

use crate::config::TlsSettings;
use rustls::server::{NoServerSessionStorage, ServerConfig, ServerConnection};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client has shaken hands after this time, or it is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Most bytes that are encrypted at once.
const MOST_SEALED: usize = 64 << 10;

/// An empty buffer that is larger is freed.
const KEPT: usize = 4 << 10;

/// The first byte of a client that speaks TLS.
const HANDSHAKE_RECORD: u8 = 22;

/// Why a connection is closed that does not begin as TLS does.
const NOT_TLS: &str = "the client does not speak TLS";

/// How the connections of a server are encrypted.
pub struct Encryption(Arc<ServerConfig>);

impl Encryption {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// Says which file is wrong, what was expected, and what to do.
    pub fn new(settings: &TlsSettings) -> Result<Encryption, String> {
        let mut config = files::configuration(settings)?;
        config.ignore_client_order = settings.prefers_own_suites;
        // A session that goes on later would not look at its certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Encryption(Arc::new(config)))
    }

    /// A connection that begins.
    ///
    /// # Errors
    /// It cannot be encrypted.
    pub fn stream(&self) -> Result<TlsStream, String> {
        let connection = ServerConnection::new(self.0.clone());
        let mut connection = connection.map_err(|error| error.to_string())?;
        // What is written is taken out at once.
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
    /// Bytes of `sealed` that were sent.
    sent: usize,
    /// A byte has arrived.
    has_begun: bool,
    /// The client has said that it sends no more.
    has_ended: bool,
    /// The client was told that no more is sent, or what went wrong.
    is_closed: bool,
    /// Until when the client has to have shaken hands.
    deadline: Instant,
}

impl TlsStream {
    /// Decrypts bytes of the socket, and passes on what the client has said.
    ///
    /// # Errors
    /// They are not what TLS demands; the client is to be told by [`TlsStream::output`].
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
            // Of a handshake, or what is wrong.
            self.take_sealed();
            let processed = taken.map_err(|error| error.to_string()).and_then(|_| {
                let state = processed.map_err(|error| error.to_string())?;
                // It takes something, or this would not end.
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

    /// Encrypts the first of these bytes if the socket has taken all before. Returns their number.
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

    /// What the socket is to send.
    pub fn output(&self) -> &[u8] {
        &self.sealed[self.sent..]
    }

    /// The socket has sent a number of these bytes.
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

    /// Tells the client that no more is sent.
    pub fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.connection.send_close_notify();
            self.take_sealed();
        }
    }

    /// Whether the client has said that it sends no more. Where the socket ends without that,
    /// the end of what the client has sent may be cut off.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the client was told that no more is sent.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the client has not shaken hands yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Until when the client has to have shaken hands, if it has not.
    pub fn deadline(&self) -> Option<Instant> {
        self.is_handshaking().then_some(self.deadline)
    }
}

#[cfg(test)]
mod tests;
