//! The connection to the primary: received data, in lines or in pieces, and requests. No wait
//! outlasts the wish of clients, or this server, by more than the time of a look-up of the name and
//! of an attempt to connect.

use crate::base::clock::Clock;
use crate::clients::{Calls, ClientEntry};
use crate::config::PrimaryAddress;
use crate::state::Shared;
use crate::state::migration::{TargetPatience, push_words};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// The buffer is cut after this many taken bytes.
const MOST_TAKEN: usize = 64 << 10;

/// After this time in a system call the thread checks whether the connection is still wanted.
const SLICE: Duration = Duration::from_millis(100);

/// The longest attempt to connect to an address, and the longest look-up of the name.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// The longest time in which the primary may take no sent data.
pub const WRITE_TIME: Duration = Duration::from_secs(5);

/// Longest line of the handshake in bytes.
const LONGEST_LINE: usize = 64 << 10;

/// A connection.
pub struct Link<'a> {
    shared: &'a Shared,
    number: u64,
    stream: TcpStream,
    scratch: Box<[u8]>,
    received: Vec<u8>,
    /// The taken bytes of `received`.
    taken: usize,
}

/// Appends a request.
pub fn push_request(out: &mut Vec<u8>, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    push_words(out, words.len(), &words);
}

impl<'a> Link<'a> {
    /// Connects, for the wish with this number.
    ///
    /// # Errors
    /// The failure, in a sentence.
    pub fn connect(
        shared: &'a Shared,
        address: &PrimaryAddress,
        number: u64,
    ) -> Result<Link<'a>, String> {
        let addresses = (String::new(), String::new());
        let calls = Calls::new(Waker::noop().clone());
        let client = ClientEntry::new(shared.clients.next_id(), addresses, 0, calls);
        let clock: &Clock = &shared.clock;
        let patience = TargetPatience {
            stop: &shared.stop_signal,
            clock,
            client: &client,
            idle: CONNECT_TIME,
        };
        let found = shared.wiring.lookups.find(&address.host, address.port, &patience);
        let found = found.map_err(|_| format!("the host {} has no address", address.host))?;
        let mut error = format!("the host {} has no address", address.host);
        for place in found {
            if !shared.live_import.is_wanted(number) || shared.stopping().is_some() {
                return Err("the connection is not wanted any more".to_string());
            }
            match TcpStream::connect_timeout(&place, CONNECT_TIME) {
                Ok(stream) => {
                    let failed = |error: std::io::Error| error.to_string();
                    stream.set_nodelay(true).map_err(failed)?;
                    stream.set_read_timeout(Some(SLICE)).map_err(failed)?;
                    stream.set_write_timeout(Some(WRITE_TIME)).map_err(failed)?;
                    return Ok(Link {
                        shared,
                        number,
                        stream,
                        scratch: vec![0; CHUNK].into_boxed_slice(),
                        received: Vec::new(),
                        taken: 0,
                    });
                }
                Err(failed) => error = format!("cannot connect to {place}: {failed}"),
            }
        }
        Err(error)
    }

    /// A second handle of the connection, for a writing thread.
    ///
    /// # Errors
    /// No handle is available.
    pub fn writer(&self) -> Result<TcpStream, String> {
        self.stream.try_clone().map_err(|error| error.to_string())
    }

    /// Received bytes, not taken yet.
    pub fn pending(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Takes pending bytes.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        } else if self.taken >= MOST_TAKEN {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Waits until bytes were received.
    ///
    /// # Errors
    /// No bytes came in time; the connection has ended, or is not wanted any more.
    pub fn receive(&mut self) -> Result<(), String> {
        let (began, import) = (Instant::now(), &self.shared.live_import);
        loop {
            if !import.is_wanted(self.number) || self.shared.stopping().is_some() {
                return Err("the connection is not wanted any more".to_string());
            }
            match self.stream.read(&mut self.scratch) {
                Ok(0) => return Err("the primary has closed the connection".to_string()),
                Ok(read) => {
                    import.numbers.last_io_ms.store(self.shared.clock.now_ms(), Relaxed);
                    self.received.extend_from_slice(&self.scratch[..read]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    let most = self.shared.settings.primary_timeout();
                    if began.elapsed() >= most {
                        let seconds = most.as_secs();
                        return Err(format!("the primary has sent nothing for {seconds} s"));
                    }
                }
                Err(error) => return Err(format!("the connection has failed: {error}")),
            }
        }
    }

    /// The next non-empty line: empty lines keep the connection alive.
    ///
    /// # Errors
    /// As [`Link::receive`]; the line is too long.
    pub fn line(&mut self) -> Result<String, String> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', self.pending()) {
                let line = self.pending()[..end].to_vec();
                self.take(end + 1);
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_string();
                if !line.is_empty() {
                    return Ok(line);
                }
            }
            if self.pending().len() > LONGEST_LINE {
                return Err("the primary has sent no reply of the protocol".to_string());
            }
            self.receive()?;
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The primary does not take the request.
    pub fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let mut out = Vec::new();
        push_request(&mut out, words);
        let sent = self.stream.write_all(&out);
        sent.map_err(|error| format!("the primary takes nothing: {error}"))
    }

    /// Sends a request, and returns the line of the reply.
    ///
    /// # Errors
    /// As [`Link::send`] and [`Link::line`].
    pub fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        self.send(words)?;
        self.line()
    }
}
