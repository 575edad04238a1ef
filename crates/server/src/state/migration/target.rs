//! A connection to a server, as the target of keys. A call blocks its thread, so it may not run in
//! an event loop. Every wait is bounded: each step by the client's time limit, and all steps by the
//! end of the client or of this server.

use super::Lookups;
use super::TargetName;
use crate::base::clock::Clock;
use crate::clients::ClientEntry;
use crate::resp::reply::Reply;
use crate::state::stopping::StopSignal;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A call of the system returns after this time, to check whether this server or the client ends.
const SLICE: Duration = Duration::from_millis(50);

/// The same for an attempt to connect; the attempt then begins anew.
const CONNECT_SLICE: Duration = Duration::from_secs(2);

/// Longest reply, in bytes: OK, or an error.
const LONGEST_REPLY: usize = 4 << 10;

/// Why an exchange with a target has ended without its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFailure {
    /// The host of the target has no address, or does not accept in time.
    Unreachable,
    /// The target accepts no connection, has closed the connection during a write, or takes nothing
    /// in time.
    Writing {
        /// The time has run out.
        is_late: bool,
    },
    /// The target has closed the connection before its reply, or does not reply in time.
    Reading {
        /// The time has run out.
        is_late: bool,
    },
    /// The reply does not fit the command, or there is more than one reply. Earlier replies may
    /// have been wrong too.
    Foreign,
}

impl TargetFailure {
    /// The error text for the client, in the words of Redis if Redis has the error.
    pub fn text(self) -> &'static str {
        match self {
            TargetFailure::Unreachable => "IOERR error or timeout connecting to the client",
            TargetFailure::Writing { .. } => "IOERR error or timeout writing to target instance",
            TargetFailure::Reading { .. } => "IOERR error or timeout reading from target instance",
            TargetFailure::Foreign => {
                "IOERR the target instance replies neither OK nor an error, or more than it was \
                 asked: it may be no server of this protocol"
            }
        }
    }

    /// Whether the target may have closed the connection since its last use.
    pub fn may_be_stale(self) -> bool {
        matches!(
            self,
            TargetFailure::Writing { is_late: false } | TargetFailure::Reading { is_late: false }
        )
    }
}

/// Limits of the wait for a target.
#[derive(Clone, Copy)]
pub struct TargetPatience<'a> {
    /// This server, which may stop.
    pub stop: &'a StopSignal,
    /// The wall clock.
    pub clock: &'a Clock,
    /// The client, which may be killed.
    pub client: &'a ClientEntry,
    /// The longest time without a byte sent or received; not zero.
    pub idle: Duration,
}

/// Whether a time has run out. (The system has two errors for the case.)
fn is_late(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl TargetPatience<'_> {
    /// Whether the wait has to end.
    pub fn has_ended(&self) -> bool {
        self.client.is_killed.load(Relaxed) || self.stop.cause().is_some()
    }

    /// How long a call of the system may take.
    pub fn slice(&self) -> Duration {
        self.idle.min(SLICE)
    }

    /// Repeats a call of the system, of a slice at most, until a result or an error.
    fn wait<T>(&self, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let began = Instant::now();
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) => {
                    if began.elapsed() >= self.idle || self.has_ended() {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }
}

/// Connects to an address until a deadline.
fn connect_to(
    address: &SocketAddr,
    deadline: Instant,
    patience: &TargetPatience<'_>,
) -> Result<TcpStream, Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || patience.has_ended() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, left.min(CONNECT_SLICE)) {
            Err(error) if is_late(&error) => {}
            result => return result,
        }
    }
}

/// A connection to a target.
pub struct MigrationTarget {
    stream: TcpStream,
    /// Received and unread bytes.
    received: Vec<u8>,
    /// The number of the database in use, if the target was told a number.
    pub database: Option<i64>,
    /// The target has refused a password or a database: nothing more is sent to the target.
    pub has_refused: bool,
}

impl MigrationTarget {
    /// Connects to a server: to the first of its addresses that accepts.
    ///
    /// # Errors
    /// No address accepts a connection.
    pub fn connect(
        name: &TargetName,
        lookups: &Lookups,
        patience: &TargetPatience<'_>,
    ) -> Result<MigrationTarget, TargetFailure> {
        let addresses = lookups.find(&name.host, name.port, patience)?;
        let (deadline, mut failure) = (Instant::now() + patience.idle, TargetFailure::Unreachable);
        for address in addresses {
            match connect_to(&address, deadline, patience) {
                Ok(stream) => {
                    // Without the option, only the last packet of a batch may leave late.
                    let _ = stream.set_nodelay(true);
                    let received = Vec::new();
                    return Ok(MigrationTarget {
                        stream,
                        received,
                        database: None,
                        has_refused: false,
                    });
                }
                Err(error) if is_late(&error) => failure = TargetFailure::Unreachable,
                Err(_) => failure = TargetFailure::Writing { is_late: false },
            }
        }
        Err(failure)
    }

    /// Checks for one reply to each command so far: the next reply then belongs to the next
    /// command.
    ///
    /// # Errors
    /// The target has sent more, or has closed the connection.
    pub fn check_step(&self) -> Result<(), TargetFailure> {
        if !self.received.is_empty() {
            return Err(TargetFailure::Foreign);
        }
        let peek = || {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        match peek() {
            Ok(0) => Err(TargetFailure::Reading { is_late: false }),
            Ok(_) => Err(TargetFailure::Foreign),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(TargetFailure::Reading { is_late: false }),
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The target does not take the bytes.
    pub fn write(
        &mut self,
        mut bytes: &[u8],
        patience: &TargetPatience<'_>,
    ) -> Result<(), TargetFailure> {
        let failed = |error: Error| TargetFailure::Writing { is_late: is_late(&error) };
        self.stream.set_write_timeout(Some(patience.slice())).map_err(failed)?;
        while !bytes.is_empty() {
            match patience.wait(|| self.stream.write(bytes)).map_err(failed)? {
                0 => return Err(TargetFailure::Writing { is_late: false }),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Reads the reply to a command, OK or an error, and returns the error.
    ///
    /// # Errors
    /// There is no OK or error.
    pub fn read(
        &mut self,
        patience: &TargetPatience<'_>,
    ) -> Result<Result<(), String>, TargetFailure> {
        let failed = |error: Error| TargetFailure::Reading { is_late: is_late(&error) };
        self.stream.set_read_timeout(Some(patience.slice())).map_err(failed)?;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.received) {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return match line.strip_suffix(b"\r\n") {
                    Some(b"+OK") => Ok(Ok(())),
                    Some([b'-', text @ ..]) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
                    _ => Err(TargetFailure::Foreign),
                };
            }
            if self.received.len() > LONGEST_REPLY {
                return Err(TargetFailure::Foreign);
            }
            let mut buffer = [0; LONGEST_REPLY];
            match patience.wait(|| self.stream.read(&mut buffer)).map_err(failed)? {
                0 => return Err(TargetFailure::Reading { is_late: false }),
                read => self.received.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// As [`MigrationTarget::write`] and [`MigrationTarget::read`].
    pub fn ask(
        &mut self,
        words: &[&[u8]],
        patience: &TargetPatience<'_>,
    ) -> Result<Result<(), String>, TargetFailure> {
        let mut out = Vec::new();
        push_words(&mut out, words.len(), words);
        self.write(&out, patience)?;
        self.read(patience)
    }
}

/// Appends the head of a command of `count` words, and its first words.
pub fn push_words(out: &mut Vec<u8>, count: usize, words: &[&[u8]]) {
    // Requests have the form of replies of version 2.
    let mut request = Reply::of_any_length(out, false);
    request.array(count);
    words.iter().for_each(|word| request.bulk(word));
}
