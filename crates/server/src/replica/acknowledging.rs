//! The thread that tells the primary the progress of this server: the offset up to which the stream
//! is on disk.
//!
//! The reading thread sends the tickets of its transactions, in their order, over a channel of
//! bounded length. So the stream is read only as fast as its commands become durable.

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

/// The interval of unasked acknowledgements.
const EACH: Duration = Duration::from_secs(1);

/// Most transactions not on disk yet.
pub const MOST_UNDER_WAY: usize = 64;

/// A step of the reading thread.
pub enum ReadStep {
    /// The thread has run a transaction.
    Ran {
        /// The ticket of the transaction.
        ticket: Ticket,
        /// The offset behind the commands.
        end: u64,
        /// Messages to subscribers.
        events: Events,
        /// Changes to tell to tracking clients.
        changed: Changed,
    },
    /// The thread has read commands without effect, up to an offset.
    Passed(u64),
    /// The primary has asked, at this offset.
    Asked(u64),
}

/// The state of the thread.
pub struct Acknowledger<'a> {
    /// The server.
    pub shared: &'a Shared,
    /// The connection.
    pub stream: TcpStream,
}

impl Acknowledger<'_> {
    /// Runs until the reading thread ends. All committed transactions are on disk then, unless the
    /// log has failed.
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
                        // The reading thread finds the connection closed.
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

    /// Takes a step. Returns false if the log has failed.
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
