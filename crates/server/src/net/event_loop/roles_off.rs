//! Without the feature `replication`: a loop has the same role to its end.

use super::{EventLoop, Message};
use crate::net::connection::Connection;
use hyades::{CommitQueue, Snapshot};
use std::convert::Infallible;
use std::time::Instant;

pub(super) use NoParting as Parting;

/// No era ends.
pub(super) type NoParting = Infallible;

impl EventLoop {
    pub(super) const fn look_at_role(&self) {}

    pub(super) const fn note_era(&self, _: &mut Connection) {}

    pub(super) const fn puts_off(&self, _: u64) -> bool {
        false
    }

    pub(super) const fn part_abruptly(&self) {}

    pub(super) const fn drops_job(&self, _: u64, _: bool) -> bool {
        false
    }

    pub(super) const fn end_parting(&self) {}

    pub(super) const fn parting_end(&self) -> Option<Instant> {
        None
    }

    pub(super) const fn open_snapshot(&self) -> Option<Snapshot> {
        None
    }

    pub(super) fn is_queue_empty(&self) -> bool {
        self.queue.as_ref().is_none_or(CommitQueue::is_empty)
    }

    pub(super) fn take_messages(&self) -> Vec<Message> {
        self.mailbox.take()
    }
}
