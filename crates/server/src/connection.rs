//! A connection: its socket, and its conversation.

use crate::clients::ClientEntry;
use crate::conversation::Conversation;
use crate::shared::Shared;
use mio::event::Event;
use mio::net::TcpStream;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A client's connection.
pub struct Connection {
    /// Its socket.
    pub socket: TcpStream,
    /// What is said on it.
    pub conversation: Conversation,
    /// What others see of it.
    pub entry: Arc<ClientEntry>,
    /// The socket may have something to read. Events come once, so this is kept.
    is_readable: bool,
    /// The client has closed its side; what it sent before may still be in the socket, and its end
    /// is no event of its own.
    is_half_closed: bool,
    /// The socket takes no more for now.
    is_blocked: bool,
    /// The client sends nothing more: the connection is closed behind its replies.
    has_ended: bool,
    /// The socket has failed.
    is_over: bool,
    /// The connection stands in the loop's list of those to serve.
    pub is_listed: bool,
    /// Under which the loop keeps it: see [`Conversation::deadline`].
    pub deadline: Option<Instant>,
    /// Since when more waits for it than it may leave unread for long.
    high_since: Option<Instant>,
}

impl Connection {
    /// A connection that was accepted.
    pub fn new(shared: &Shared, socket: TcpStream, entry: ClientEntry) -> Connection {
        let entry = Arc::new(entry);
        Connection {
            socket,
            conversation: Conversation::new(&shared.access, entry.clone()),
            entry,
            is_readable: true,
            is_half_closed: false,
            is_blocked: false,
            has_ended: false,
            is_over: false,
            is_listed: false,
            deadline: None,
            high_since: None,
        }
    }

    /// Something has happened to the socket.
    pub fn note(&mut self, event: &Event) {
        // After its end there is nothing to read, whatever the socket reports beside it.
        if !self.has_ended {
            self.is_half_closed |= event.is_read_closed();
            self.is_readable |= event.is_readable() || event.is_read_closed();
        }
        if event.is_writable() {
            self.is_blocked = false;
        }
    }

    /// Whether it is to be served without waiting for an event: what was held back is in the
    /// socket, or in the conversation already.
    pub fn goes_on(&self) -> bool {
        let conversation = &self.conversation;
        let may_be_read = self.is_readable && !conversation.is_ahead();
        (may_be_read || conversation.has_work()) && !conversation.is_full()
    }

    /// Reads once, unless the client has to read its replies first.
    pub fn read(&mut self, shared: &Shared, buffer: &mut [u8], now_ms: i64) {
        if !self.is_readable || self.has_ended || self.is_over {
            return;
        }
        if self.conversation.is_full() || self.conversation.is_ahead() {
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
                self.is_readable = read == buffer.len() || self.is_half_closed;
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
                    // A client that reads is not idle.
                    self.entry.active_ms.store(shared.clock.now_ms(), Relaxed);
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
        self.limit_output(shared);
    }

    /// Disconnects it if it leaves too much unread.
    fn limit_output(&mut self, shared: &Shared) {
        let unread = (self.conversation.output_bytes() + self.entry.inbox.bytes()) as u64;
        if unread == 0 {
            return self.high_since = None;
        }
        let limit = shared.settings.output_limits.get(self.entry.listens());
        self.high_since = match self.high_since {
            _ if !limit.is_high(unread) => None,
            Some(since) => Some(since),
            None => Some(Instant::now()),
        };
        let lasts = |since: Instant| since.elapsed() >= Duration::from_secs(limit.seconds);
        if limit.is_over(unread) || self.high_since.is_some_and(lasts) {
            self.is_over = true;
        }
    }

    /// When it has to be served, whatever happens until then.
    pub fn next_deadline(&self, shared: &Shared) -> Option<Instant> {
        let seconds = || shared.settings.output_limits.get(self.entry.listens()).seconds;
        let ends = self.high_since.map(|since| since + Duration::from_secs(seconds()));
        let own = self.conversation.deadline();
        ends.into_iter().chain(own).min()
    }

    /// Whether nothing more is to be done for it.
    pub fn is_done(&self) -> bool {
        let is_ending = self.conversation.is_closing() || self.has_ended;
        let is_said = self.conversation.output_bytes() == 0 && self.conversation.is_idle();
        is_ending && is_said || self.is_cut_off() && self.conversation.has_delivered()
    }

    /// Whether it is closed at once: its socket has failed, or CLIENT KILL has named it.
    pub fn is_cut_off(&self) -> bool {
        self.is_over || self.entry.is_killed.load(Relaxed)
    }
}
