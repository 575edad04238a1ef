//! The results of a transaction of commands beside rows and replies.

use crate::clients::monitors::MonitorLine;
use crate::clients::tracking::Changed;
use crate::data::keyspace::{Events, Wait, WatchedKey};
use hyades::{SessionOrder, Ticket};
use std::time::Duration;

/// The results of a run, or of a job: the conversation finishes both in the same way.
#[derive(Default)]
pub struct RunEnd {
    /// The ticket of the transaction: the replies leave once the transaction is acknowledged.
    pub ticket: Option<Ticket>,
    /// The number of replies that depend on the ticket.
    pub replies: usize,
    /// Where the parts of EXEC's reply end, counted from its begin: the head of the array, then
    /// each reply. Empty if there is no such array, or if no other replies are inserted into the
    /// array.
    pub exec_ends: Vec<usize>,
    /// The wait of the command, if the command has no reply yet.
    pub wait: Option<Wait>,
    /// Messages about the writes.
    pub events: Events,
    /// The writes, for clients that track.
    pub changed: Changed,
    /// Keys remembered where no event loop ran the commands.
    pub read_elsewhere: Vec<Vec<u8>>,
    /// The lines for clients that monitor.
    pub lines: Vec<MonitorLine>,
    /// Whether the reply holds whatever becomes of the database: the reply is sent although the
    /// role of the member has ended.
    pub is_certain: bool,
    /// Whether the client's earlier watched keys are dropped.
    pub unwatched: bool,
    /// The keys watched from here on.
    pub watched: Vec<WatchedKey>,
    /// The order of the client's transactions, if another thread had it meanwhile.
    pub order: Option<SessionOrder>,
    /// How long the commands took.
    pub time: Duration,
}
