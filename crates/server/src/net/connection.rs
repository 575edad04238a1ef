//! A connection: socket, conversation, and the encryption between both.

use crate::clients::ClientEntry;
use crate::config::OutputLimit;
use crate::session::conversation::Conversation;
use crate::sockets::client_socket::ClientSocket;
use crate::state::Shared;
use crate::tls::TlsStream;
use mio::event::Event;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// About the most bytes sent to a client before other clients are served.
const MOST_WRITTEN: usize = 1 << 20;

/// A client's connection.
pub struct Connection {
    /// The socket.
    pub socket: ClientSocket,
    /// The encryption. Boxed: connections without encryption carry an address alone.
    tls: Option<Box<TlsStream>>,
    /// The conversation on the connection.
    pub conversation: Conversation,
    /// The state as other threads see it.
    pub entry: Arc<ClientEntry>,
    /// The socket may have something to read. Events come once, so the flag is kept.
    is_readable: bool,
    /// The client has closed its side; bytes sent before may still be in the socket, and the end
    /// has no event of its own.
    is_half_closed: bool,
    /// The socket takes no more for now.
    is_blocked: bool,
    /// The socket may take more bytes in the current turn.
    has_more: bool,
    /// The client sends nothing more: the connection is closed behind its replies.
    has_ended: bool,
    /// The socket has failed.
    is_over: bool,
    /// The connection stands in the loop's list of connections to serve.
    pub is_listed: bool,
    /// The key under which the loop keeps the connection: see [`Conversation::deadline`].
    pub deadline: Option<Instant>,
    /// Start of the time with more unread bytes than the client may leave unread for long.
    high_since: Option<Instant>,
    /// The era of the loop when the client connected.
    #[cfg(feature = "replication")]
    pub era: u64,
}

impl Connection {
    /// Makes the connection of an accepted socket.
    pub fn new(
        shared: &Shared,
        socket: ClientSocket,
        tls: Option<Box<TlsStream>>,
        entry: ClientEntry,
    ) -> Connection {
        let entry = Arc::new(entry);
        Connection {
            socket,
            tls,
            conversation: Conversation::new(&shared.access, entry.clone()),
            entry,
            is_readable: true,
            is_half_closed: false,
            is_blocked: false,
            has_more: false,
            has_ended: false,
            is_over: false,
            is_listed: false,
            deadline: None,
            high_since: None,
            #[cfg(feature = "replication")]
            era: 0,
        }
    }

    /// Notes an event of the socket.
    pub fn note(&mut self, event: &Event) {
        // After its end there is nothing to read, whatever else the socket reports.
        if !self.has_ended {
            self.is_half_closed |= event.is_read_closed();
            self.is_readable |= event.is_readable() || event.is_read_closed();
        }
        if event.is_writable() {
            self.is_blocked = false;
        }
    }

    /// Whether there is more to be sent, and the socket has not refused it: no event tells when the
    /// rest may be sent.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether the connection is to be served without waiting for an event: input that was held
    /// back is in the socket, or in the conversation already.
    pub fn goes_on(&self) -> bool {
        self.has_traffic() || self.conversation.has_work() && !self.conversation.is_full()
    }

    /// Whether there is something to be read or sent, whatever the next command waits for.
    pub fn has_traffic(&self) -> bool {
        self.has_more || self.may_be_read() || self.conversation.may_receive()
    }

    /// Whether there may be something to read, and room for the bytes.
    fn may_be_read(&self) -> bool {
        self.is_readable && !self.is_held_back()
    }

    /// Whether the client is not read for now. While a command waits, a client with a closed side
    /// is read to its end, and the end is the end of the command as well: there is no more than the
    /// socket has.
    fn is_held_back(&self) -> bool {
        let conversation = &self.conversation;
        let waits =
            conversation.is_blocked() || conversation.is_set_aside() || conversation.is_held();
        conversation.is_full() || conversation.is_ahead() && !(waits && self.is_half_closed)
    }

    /// Reads once, unless the client has to read its replies first.
    pub fn read(&mut self, shared: &Shared, buffer: &mut [u8], now_ms: i64) {
        if !self.is_readable || self.has_ended || self.is_over {
            return;
        }
        if self.is_held_back() {
            return;
        }
        match self.socket.read(buffer) {
            Ok(0) => {
                (self.has_ended, self.is_readable) = (true, false);
                // Without the client's word the end may be missing, also the end of a handshake.
                self.is_over |= self.tls.as_ref().is_some_and(|tls| !tls.has_ended());
            }
            Ok(read) => {
                self.entry.active_ms.store(now_ms, Relaxed);
                shared.stats.counters.input.fetch_add(read as u64, Relaxed);
                shared.stats.counters.reads.fetch_add(1, Relaxed);
                match self.tls.is_some() {
                    false => self.conversation.feed(&buffer[..read]),
                    true => self.decrypt(shared, &buffer[..read]),
                }
                // A read that did not fill the buffer has emptied the socket; later bytes have an
                // event of their own.
                self.is_readable = (read == buffer.len() || self.is_half_closed) && !self.has_ended;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.is_over = true,
        }
        self.end_waiting();
    }

    /// Ends the wait of a command whose client has closed its side. The connection may have to stay
    /// for a while, for earlier replies.
    fn end_waiting(&mut self) {
        if self.has_ended {
            self.conversation.hang_up();
        }
    }

    /// Takes the bytes that the socket of an encrypted connection has brought.
    fn decrypt(&mut self, shared: &Shared, bytes: &[u8]) {
        let Some(tls) = &mut self.tls else { return };
        let conversation = &mut self.conversation;
        match tls.receive(bytes, |said| conversation.feed(said)) {
            Ok(()) => self.has_ended = tls.has_ended(),
            Err(why) => {
                shared.stats.counters.tls_failures.fetch_add(1, Relaxed);
                shared.stats.failed_handshakes.note(&self.entry.address, &why);
                self.is_over = true;
                self.part();
            }
        }
    }

    /// Tells the client of an encrypted connection, if its socket takes the message at once, that
    /// no more is sent, or why.
    pub fn part(&mut self) {
        if let Some(tls) = &mut self.tls
            && !self.is_blocked
        {
            tls.close();
            if let Ok(sent) = self.socket.write(tls.output()) {
                tls.sent(sent);
            }
        }
    }

    /// Encrypts the next output; behind the last output, the message that no more is sent.
    fn encrypt(&mut self) {
        let ends = self.has_ended || self.conversation.is_closing();
        let Some(tls) = &mut self.tls else { return };
        if tls.is_handshaking() || !tls.output().is_empty() {
            return;
        }
        if !self.conversation.output().is_empty() {
            let sealed = tls.seal(self.conversation.output());
            self.conversation.sent(sealed);
        } else if ends && self.conversation.output_bytes() == 0 && self.conversation.is_idle() {
            tls.close();
        }
    }

    /// Bytes of replies, and of their encryption, not sent yet.
    pub fn output_bytes(&self) -> usize {
        self.conversation.output_bytes() + self.tls.as_ref().map_or(0, |tls| tls.output().len())
    }

    /// Whether the client has not shaken hands yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Disconnects a client that has not shaken hands in time.
    pub fn end_slow_handshake(&mut self, shared: &Shared) {
        let deadline = self.tls.as_ref().and_then(|tls| tls.deadline());
        if !self.is_over && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            shared.stats.counters.tls_failures.fetch_add(1, Relaxed);
            shared
                .stats
                .failed_handshakes
                .note(&self.entry.address, "its handshake takes too long");
            self.is_over = true;
        }
    }

    /// Sends the output, as far as it may be sent.
    pub fn write(&mut self, shared: &Shared) {
        let mut written = 0;
        self.has_more = false;
        self.end_waiting();
        // A reply waits before its first byte is sent: nothing of a too long reply leaves.
        let is_over_limit = self.entry.is_over_limit.load(Relaxed);
        if is_over_limit || self.limit(shared).is_over(self.unread()) {
            self.end_over_limit(shared);
        }
        loop {
            if self.tls.is_some() {
                self.encrypt();
            }
            let output = match &self.tls {
                None => self.conversation.output(),
                Some(tls) => tls.output(),
            };
            if self.is_blocked || self.is_over || output.is_empty() {
                break;
            }
            if written >= MOST_WRITTEN {
                self.has_more = true;
                break;
            }
            match self.socket.write(output) {
                Ok(sent) => {
                    // A reading client is not idle.
                    self.entry.active_ms.store(shared.clock.now_ms(), Relaxed);
                    shared.stats.counters.output.fetch_add(sent as u64, Relaxed);
                    shared.stats.counters.writes.fetch_add(1, Relaxed);
                    written += sent;
                    match &mut self.tls {
                        None => self.conversation.sent(sent),
                        Some(tls) => tls.sent(sent),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
        }
        self.entry.sizes.input.store(self.conversation.input_bytes() as u64, Relaxed);
        self.entry.sizes.output.store(self.output_bytes() as u64, Relaxed);
        let own = size_of::<Connection>() + size_of::<ClientEntry>();
        self.entry.sizes.buffers.store((own + self.conversation.buffer_bytes()) as u64, Relaxed);
        self.entry.sizes.watched.store(self.conversation.watched_keys() as u32, Relaxed);
        self.limit_output(shared);
    }

    /// Bytes waiting for the client.
    fn unread(&self) -> u64 {
        (self.output_bytes() + self.entry.inbox.bytes()) as u64
    }

    /// Bounds of the bytes waiting for the client.
    pub fn limit(&self, shared: &Shared) -> OutputLimit {
        shared.settings.output_limits.get(self.entry.listens())
    }

    /// Disconnects the client if it leaves too much unread.
    fn limit_output(&mut self, shared: &Shared) {
        let (unread, limit) = (self.unread(), self.limit(shared));
        if unread == 0 {
            return self.high_since = None;
        }
        self.high_since = match self.high_since {
            _ if !limit.is_high(unread) => None,
            Some(since) => Some(since),
            None => Some(Instant::now()),
        };
        let lasts = |since: Instant| since.elapsed() >= Duration::from_secs(limit.seconds);
        if limit.is_over(unread) || self.high_since.is_some_and(lasts) {
            self.end_over_limit(shared);
        }
    }

    /// Disconnects the client since it leaves too much unread.
    fn end_over_limit(&mut self, shared: &Shared) {
        if !std::mem::replace(&mut self.is_over, true) {
            shared.stats.counters.over_output.fetch_add(1, Relaxed);
        }
    }

    /// When the connection has to be served, whatever happens until then.
    pub fn next_deadline(&self, shared: &Shared) -> Option<Instant> {
        let seconds = || Duration::from_secs(self.limit(shared).seconds);
        let ends = self.high_since.and_then(|since| since.checked_add(seconds()));
        let own = self.conversation.deadline();
        let handshake = self.tls.as_ref().and_then(|tls| tls.deadline());
        ends.into_iter().chain(own).chain(handshake).min()
    }

    /// Whether nothing more is to be done for the connection.
    pub fn is_done(&self) -> bool {
        let is_ending = self.conversation.is_closing() || self.has_ended;
        let is_said = match &self.tls {
            // Further output is too late now.
            Some(tls) if tls.is_closed() => tls.output().is_empty(),
            _ => self.output_bytes() == 0 && self.conversation.is_idle(),
        };
        // A job that an executor runs for the client may publish; and messages published before may
        // wait for the disk longer than the replies do.
        let is_over = self.conversation.has_delivered() && !self.conversation.is_waiting_for_job();
        (is_ending && is_said || self.is_cut_off()) && is_over
    }

    /// Whether the connection is closed at once: its socket has failed, or CLIENT KILL has named
    /// it.
    pub fn is_cut_off(&self) -> bool {
        self.is_over || self.entry.is_killed.load(Relaxed)
    }
}
