//! What a transaction of commands has left beside rows and replies.

use crate::clients::monitors::MonitorLine;
use crate::clients::tracking::Changed;
use crate::data::keyspace::{Events, Wait, WatchedKey};
use hyades::{SessionOrder, Ticket};
use std::time::Duration;

/// What a run, or a job, has left: the conversation finishes both in the same way.
#[derive(Default)]
pub struct RunEnd {
    /// Of the transaction that the replies tell of: they leave once that is acknowledged.
    pub ticket: Option<Ticket>,
    /// The number of replies that depend on the ticket.
    pub replies: usize,
    /// Where the parts of EXEC's reply end, counted from its begin: the head of the array, then
    /// each reply. Empty if there is no such array, or no other replies stand in it.
    pub exec_ends: Vec<usize>,
    /// What the command waits for, if it has no reply yet.
    pub wait: Option<Wait>,
    /// Messages of what was written.
    pub events: Events,
    /// What was written, for clients that track.
    pub changed: Changed,
    /// Keys that were remembered where no event loop ran the commands.
    pub read_elsewhere: Vec<Vec<u8>>,
    /// What clients that monitor are told.
    pub lines: Vec<MonitorLine>,
    /// Whether the client watches nothing any more of what it watched before.
    pub unwatched: bool,
    /// What the client watches from here on.
    pub watched: Vec<WatchedKey>,
    /// The order of the client's transactions, if another thread had it meanwhile.
    pub order: Option<SessionOrder>,
    /// How long the commands took.
    pub time: Duration,
}
