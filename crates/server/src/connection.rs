//! A connection: its socket, and its conversation.

use crate::clients::ClientEntry;
use crate::conversation::Conversation;
use crate::shared::Shared;
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A client's connection.
pub struct Connection {
    /// Its socket.
    pub socket: TcpStream,
    /// What is said on it.
    pub conversation: Conversation,
    /// What others see of it.
    pub entry: Arc<ClientEntry>,
    /// The socket may have something to read. Events come once, so this is kept.
    pub is_readable: bool,
    /// The socket takes no more for now.
    is_blocked: bool,
    /// The client sends nothing more: the connection is closed behind its replies.
    has_ended: bool,
    /// The socket has failed.
    is_over: bool,
    /// The connection stands in the loop's list of those to serve.
    pub is_listed: bool,
}

impl Connection {
    /// A connection that was accepted.
    pub fn new(socket: TcpStream, entry: ClientEntry) -> Connection {
        let entry = Arc::new(entry);
        Connection {
            socket,
            conversation: Conversation::new(entry.clone()),
            entry,
            is_readable: true,
            is_blocked: false,
            has_ended: false,
            is_over: false,
            is_listed: false,
        }
    }

    /// The socket takes more.
    pub fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Reads once, unless the client has to read its replies first.
    pub fn read(&mut self, shared: &Shared, buffer: &mut [u8], now_ms: i64) {
        if !self.is_readable || self.has_ended || self.is_over || self.conversation.is_full() {
            return;
        }
        match self.socket.read(buffer) {
            Ok(0) => (self.has_ended, self.is_readable) = (true, false),
            Ok(read) => {
                self.entry.active_ms.store(now_ms, Relaxed);
                shared.counters.input.fetch_add(read as u64, Relaxed);
                self.conversation.feed(&buffer[..read]);
                // A read that did not fill the buffer has emptied the socket; what comes later is
                // an event of its own.
                self.is_readable = read == buffer.len();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.is_over = true,
        }
    }

    /// Sends what may be sent.
    pub fn write(&mut self, shared: &Shared) {
        while !self.is_blocked && !self.is_over && !self.conversation.output().is_empty() {
            match self.socket.write(self.conversation.output()) {
                Ok(sent) => {
                    shared.counters.output.fetch_add(sent as u64, Relaxed);
                    self.conversation.sent(sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
        }
        self.entry.input.store(self.conversation.input_bytes() as u64, Relaxed);
        self.entry.output.store(self.conversation.output_bytes() as u64, Relaxed);
    }

    /// Whether nothing more is to be done for it.
    pub fn is_done(&self) -> bool {
        let is_ending = self.conversation.is_closing() || self.has_ended;
        let is_said = self.conversation.output_bytes() == 0 && self.conversation.is_idle();
        is_ending && is_said || self.is_over || self.entry.is_killed.load(Relaxed)
    }
}
