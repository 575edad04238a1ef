//! The thread that tells the primary how far this server is: up to which offset all is on disk.
//!
//! The thread that reads hands it the tickets of its transactions, in their order, over a channel
//! of a bounded length. So the stream is read only as fast as what it says becomes durable.

use super::link::{WRITE_TIME, push_request};
use crate::clients::tracking::Changed;
use crate::data::keyspace::Events;
use crate::state::Shared;
use crate::transact::failure;
use hyades::Ticket;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often the primary is told without being asked.
const EACH: Duration = Duration::from_secs(1);

/// Transactions that are not on disk, at most.
pub const MOST_UNDER_WAY: usize = 64;

/// What the thread that reads has done.
pub enum ReadStep {
    /// It has run a transaction.
    Ran {
        /// Its ticket.
        ticket: Ticket,
        /// The offset behind its commands.
        end: u64,
        /// Messages to subscribers.
        events: Events,
        /// What clients are told that track.
        changed: Changed,
    },
    /// It has read up to an offset what has no effect.
    Passed(u64),
    /// The primary wants to know, at this offset.
    Asked(u64),
}

/// What the thread has.
pub struct Acknowledger<'a> {
    /// The server.
    pub shared: &'a Shared,
    /// The connection.
    pub stream: TcpStream,
}

impl Acknowledger<'_> {
    /// Runs until the other thread ends. All that has committed is on disk then, unless the log has
    /// failed.
    pub fn run(mut self, steps: &Receiver<ReadStep>) {
        let mut next = Instant::now();
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let step = if left.is_zero() {
                self.acknowledge();
                next = Instant::now() + EACH;
                continue;
            } else {
                steps.recv_timeout(left)
            };
            match step {
                Ok(step) => {
                    if !self.take(step) {
                        // The other thread finds the connection closed.
                        let _ = self.stream.shutdown(Shutdown::Both);
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.acknowledge();
                    return;
                }
            }
        }
    }

    /// Whether the log has not failed.
    fn take(&mut self, step: ReadStep) -> bool {
        let durable = &self.shared.live_import.numbers.durable;
        match step {
            ReadStep::Ran { ticket, end, events, changed } => {
                if let Err(error) = ticket.wait() {
                    failure(self.shared, error);
                    return false;
                }
                durable.store(end, Relaxed);
                let channels = &self.shared.wiring.channels;
                events.into_iter().for_each(|event| channels.deliver(&Arc::new(event)));
                self.shared.wiring.tracking.tell(changed, 0);
            }
            ReadStep::Passed(end) => durable.store(end, Relaxed),
            ReadStep::Asked(end) => {
                durable.store(end, Relaxed);
                self.acknowledge();
            }
        }
        true
    }

    fn acknowledge(&mut self) {
        let offset = self.shared.live_import.numbers.durable.load(Relaxed).to_string();
        let mut out = Vec::new();
        push_request(&mut out, &["REPLCONF", "ACK", &offset]);
        let _ = self.stream.set_write_timeout(Some(WRITE_TIME));
        if self.stream.write_all(&out).is_err() {
            // A part may have been sent: nothing may follow.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}
