//! A connection: its socket, its conversation, and the encryption between them.

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

/// About the most bytes that are sent to a client before others are served.
const MOST_WRITTEN: usize = 1 << 20;

/// A client's connection.
pub struct Connection {
    /// Its socket.
    pub socket: ClientSocket,
    /// How it is encrypted. Boxed: the others carry its address alone.
    tls: Option<Box<TlsStream>>,
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
    /// The socket may take more than it was given in this turn.
    has_more: bool,
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

    /// Whether there is more to be sent, and the socket has not refused it: no event tells when it
    /// may be sent.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether it is to be served without waiting for an event: what was held back is in the
    /// socket, or in the conversation already.
    pub fn goes_on(&self) -> bool {
        self.has_traffic() || self.conversation.has_work() && !self.conversation.is_full()
    }

    /// The same, whatever its next command waits for: there is something to be read or sent.
    pub fn has_traffic(&self) -> bool {
        self.has_more || self.may_be_read() || self.conversation.may_receive()
    }

    /// Whether there may be something to read, and room for it.
    fn may_be_read(&self) -> bool {
        self.is_readable && !self.is_held_back()
    }

    /// Whether the client is not read for now. While its command waits, one that has closed its
    /// side is read to its end, which is that of its command as well: there is no more than the
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
                // Without the client's word the end may be missing. That of a handshake, too.
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
                // A read that did not fill the buffer has emptied the socket; what comes later is
                // an event of its own.
                self.is_readable = (read == buffer.len() || self.is_half_closed) && !self.has_ended;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.is_over = true,
        }
        self.end_waiting();
    }

    /// A client that has closed its side is not there any more for what its command waits for. Its
    /// connection may have to stay for a while, for what it was to be told before.
    fn end_waiting(&mut self) {
        if self.has_ended {
            self.conversation.hang_up();
        }
    }

    /// Takes what the socket of an encrypted connection has brought.
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

    /// Tells the client of an encrypted connection, if its socket takes it at once, that or why no
    /// more is sent.
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

    /// Encrypts what may be sent next; behind the last of it, that no more is sent.
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

    /// Bytes of replies, and of their encryption, that were not sent.
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

    /// Sends what may be sent.
    pub fn write(&mut self, shared: &Shared) {
        let mut written = 0;
        self.has_more = false;
        self.end_waiting();
        // A reply waits before its first byte is sent: one that is too long is not sent at all.
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
                    // A client that reads is not idle.
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
        self.entry.input.store(self.conversation.input_bytes() as u64, Relaxed);
        self.entry.output.store(self.output_bytes() as u64, Relaxed);
        let own = size_of::<Connection>() + size_of::<ClientEntry>();
        self.entry.buffers.store((own + self.conversation.buffer_bytes()) as u64, Relaxed);
        self.entry.watched.store(self.conversation.watched_keys() as u32, Relaxed);
        self.limit_output(shared);
    }

    /// Bytes that wait for the client.
    fn unread(&self) -> u64 {
        (self.output_bytes() + self.entry.inbox.bytes()) as u64
    }

    /// What may wait for it.
    pub fn limit(&self, shared: &Shared) -> OutputLimit {
        shared.settings.output_limits.get(self.entry.listens())
    }

    /// Disconnects it if it leaves too much unread.
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

    /// Disconnects it since it leaves too much unread.
    fn end_over_limit(&mut self, shared: &Shared) {
        if !std::mem::replace(&mut self.is_over, true) {
            shared.stats.counters.over_output.fetch_add(1, Relaxed);
        }
    }

    /// When it has to be served, whatever happens until then.
    pub fn next_deadline(&self, shared: &Shared) -> Option<Instant> {
        let seconds = || Duration::from_secs(self.limit(shared).seconds);
        let ends = self.high_since.and_then(|since| since.checked_add(seconds()));
        let own = self.conversation.deadline();
        let handshake = self.tls.as_ref().and_then(|tls| tls.deadline());
        ends.into_iter().chain(own).chain(handshake).min()
    }

    /// Whether nothing more is to be done for it.
    pub fn is_done(&self) -> bool {
        let is_ending = self.conversation.is_closing() || self.has_ended;
        let is_said = match &self.tls {
            // What would be said now has come too late.
            Some(tls) if tls.is_closed() => tls.output().is_empty(),
            _ => self.output_bytes() == 0 && self.conversation.is_idle(),
        };
        // What an executor runs for it may publish; and what it has published may wait for the disk
        // longer than its replies do.
        let is_over = self.conversation.has_delivered() && !self.conversation.is_waiting_for_job();
        (is_ending && is_said || self.is_cut_off()) && is_over
    }

    /// Whether it is closed at once: its socket has failed, or CLIENT KILL has named it.
    pub fn is_cut_off(&self) -> bool {
        self.is_over || self.entry.is_killed.load(Relaxed)
    }
}
