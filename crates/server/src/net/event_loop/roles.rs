//! How a loop follows the roles of a member of a replicated database.
//!
//! A new *era* ends the connections of earlier eras (`state/membership.rs`): each is told what is
//! certain, and closed. A new database takes the place of the old one once the loop holds nothing
//! of the old one: session, queue, replies that wait for the log, jobs.
//!
//! Invariant: a connection runs nothing in a later era, and no transaction of a connection is in a
//! queue of another database.

use super::{EventLoop, Message};
use crate::net::connection::Connection;
use crate::state::membership::Role;
use hyades::{CommitQueue, Snapshot};
use std::time::{Duration, Instant};

/// How long the connections of earlier eras may take to be told what is certain.
const PARTING: Duration = Duration::from_secs(1);

/// The end of an era.
pub(super) struct Parting {
    /// Connections that are left then are closed.
    ends: Instant,
    /// The log has stopped: no more outcomes will be known.
    is_abrupt: bool,
}

impl EventLoop {
    /// Looks whether the role has changed.
    pub(super) fn look_at_role(&mut self) {
        let era = self.shared.membership.era();
        if era != self.era {
            self.era = era;
            self.begin_parting();
        }
        let is_current = self.shared.store.opened.is_current(&self.held);
        if self.parting.is_none() && !is_current {
            self.let_go();
        }
    }

    /// Begins to part from all connections so far.
    fn begin_parting(&mut self) {
        let ends = Instant::now() + PARTING;
        let was_abrupt = self.parting.as_ref().is_some_and(|parting| parting.is_abrupt);
        let is_abrupt = was_abrupt || self.shared.membership.role() == Role::LogStopped;
        self.parting = Some(Parting { ends, is_abrupt });
        for id in self.ids() {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.conversation.part();
            }
            self.list(id);
        }
        self.set_aside.clear();
    }

    fn ids(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }

    /// Notes the era of a connection.
    pub(super) fn note_era(&self, connection: &mut Connection) {
        connection.era = self.era;
    }

    /// Whether a connection is of an earlier era.
    fn is_of_earlier_era(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.era < self.era)
    }

    /// Whether a connection waits until the loop has parted from earlier ones: it is served later.
    pub(super) fn puts_off(&mut self, id: u64) -> bool {
        let waits = self.parting.is_some() && !self.is_of_earlier_era(id);
        if waits && let Some(connection) = self.connections.get_mut(&id) {
            connection.is_listed = false;
            self.pausing.push(id);
        }
        waits
    }

    /// The log has stopped: what was not known to be durable by now will not be known here.
    pub(super) fn part_abruptly(&mut self) {
        self.queue = None;
        if self.parting.is_none() {
            self.begin_parting();
        }
        if let Some(parting) = &mut self.parting {
            parting.is_abrupt = true;
        }
        for id in self.ids() {
            if self.is_of_earlier_era(id)
                && let Some(connection) = self.connections.get_mut(&id)
            {
                connection.conversation.part();
                connection.conversation.abandon();
                connection.write(&self.shared);
            }
            self.list(id);
        }
    }

    /// For the reply of a job: whether the connection has ended, and its outcome is not known.
    pub(super) fn drops_job(&mut self, id: u64, is_certain: bool) -> bool {
        let is_dropped = !is_certain
            && self.parting.as_ref().is_some_and(|parting| parting.is_abrupt)
            && self.is_of_earlier_era(id);
        if is_dropped {
            self.close(id);
        }
        is_dropped
    }

    /// Ends parting once nothing is left to be said, or the time is over.
    pub(super) fn end_parting(&mut self) {
        let Some(parting) = &self.parting else { return };
        let is_over = Instant::now() >= parting.ends;
        let left: Vec<u64> =
            self.ids().into_iter().filter(|id| self.is_of_earlier_era(*id)).collect();
        if !left.is_empty() && !is_over {
            return;
        }
        for id in left {
            if let Some(connection) = self.connections.get_mut(&id) {
                // Jobs of the client end as after CLIENT KILL.
                connection.entry.kill();
                connection.conversation.abandon();
            }
            self.close(id);
        }
        self.parting = None;
        self.look_at_role();
    }

    /// When parting ends.
    pub(super) fn parting_end(&self) -> Option<Instant> {
        self.parting.as_ref().map(|parting| parting.ends)
    }

    /// Lets the old database go.
    fn let_go(&mut self) {
        let had_database = self.session.is_some();
        // Dropped at the end of the function, after the tickets of connections.
        let _held = std::mem::take(&mut self.held);
        (self.session, self.queue) = (None, None);
        self.parked.clear();
        for id in self.ids() {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            // A run of the old database cannot go on in the next one.
            if had_database && !connection.conversation.lets_go() {
                self.close(id);
            }
        }
    }

    /// The state that all runs of a turn read, if this is a standby.
    pub(super) fn open_snapshot(&self) -> Option<Snapshot> {
        if !self.shared.membership.is_on()
            || !self.shared.membership.only_reads()
            || self.session.is_none()
            || self.listed.is_empty()
        {
            return None;
        }
        // Of the session's database: another one is read once the session is let go.
        let opened = self.shared.store.opened.get()?;
        let is_own = self.shared.store.opened.is_current(&self.held);
        is_own.then(|| opened.database.open_snapshot())
    }

    /// Whether the loop waits for the log no more.
    pub(super) fn is_queue_empty(&self) -> bool {
        self.queue.as_ref().is_none_or(CommitQueue::is_empty)
    }

    /// Takes the messages of other threads, and looks at the role: a reply that comes after the end
    /// of its role is found with the end.
    pub(super) fn take_messages(&mut self) -> Vec<Message> {
        let messages = self.mailbox.take();
        self.look_at_role();
        messages
    }
}
