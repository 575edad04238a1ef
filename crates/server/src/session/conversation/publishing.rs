//! Messages from and to the client of a conversation.

use super::{Conversation, MOST_UNSENT};
use crate::clients::channels::{Channels, Delivery, Publication};
use crate::clients::monitors::{MonitorLine, Monitors};
use crate::clients::tracking::{Changed, Invalidation, Tracking};
use crate::data::keyspace::Events;
use crate::resp::reply::Reply;
use crate::state::Shared;
use hyades_platform::broken;
use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

/// Most messages and lines handed on before other connections have their turn.
const MOST_DELIVERED: usize = 1_024;

/// Messages that wait for the earlier replies of their sender: one or more, in their order.
enum Outgoing {
    Messages(Arc<Channels>, IntoIter<Publication>),
    Lines(Arc<Monitors>, IntoIter<MonitorLine>),
    /// With the number of the client that has written.
    Changed(Arc<Tracking>, IntoIter<Changed>, u64),
}

impl Outgoing {
    /// Delivers the first message. False if there is none.
    fn deliver_next(&mut self) -> bool {
        match self {
            Outgoing::Messages(channels, messages) => {
                let next = messages.next().map(Arc::new);
                next.map(|publication| channels.deliver(&publication)).is_some()
            }
            Outgoing::Lines(monitors, lines) => {
                lines.next().map(|line| monitors.deliver(&line)).is_some()
            }
            Outgoing::Changed(tracking, pieces, writer) => {
                pieces.next().map(|changed| tracking.tell(changed, *writer)).is_some()
            }
        }
    }
}

/// Messages and lines, with the mark of their transaction.
#[derive(Default)]
pub(super) struct Outbox {
    outgoing: VecDeque<(u64, Outgoing)>,
    /// The number of messages and lines.
    count: usize,
}

impl Outbox {
    fn add(&mut self, mark: u64, count: usize, outgoing: Outgoing) {
        if count > 0 {
            self.outgoing.push_back((mark, outgoing));
            self.count += count;
        }
    }
}

impl Conversation {
    /// Whether all published messages were handed to the subscribers.
    pub fn has_delivered(&self) -> bool {
        self.outbox.count == 0
    }

    /// Whether a published message is on disk, and was not handed on yet.
    pub fn has_deliverable(&self) -> bool {
        let first = self.outbox.outgoing.front();
        first.is_some_and(|(mark, _)| self.is_deliverable(*mark))
    }

    fn is_deliverable(&self, mark: u64) -> bool {
        let is_early = broken!(PublishEarly);
        is_early || self.replies.first_waiting().is_none_or(|first| first > mark)
    }

    /// Messages that wait for the disk.
    pub(super) fn undelivered(&self) -> usize {
        self.outbox.count
    }

    /// Takes the messages published by the last command: delivered when the replies so far, and the
    /// replies of the transaction being written, are on disk.
    pub(super) fn publish(&mut self, channels: &Arc<Channels>) {
        if !self.client.published.is_empty() {
            let published = std::mem::take(&mut self.client.published);
            self.add_messages(channels, published);
        }
    }

    fn add_messages(&mut self, channels: &Arc<Channels>, messages: Vec<Publication>) {
        let (mark, count) = (self.replies.next_mark(), messages.len());
        let outgoing = Outgoing::Messages(channels.clone(), messages.into_iter());
        self.outbox.add(mark, count, outgoing);
    }

    /// Takes lines for monitoring clients, as [`Conversation::publish`].
    pub(super) fn tell_monitors(&mut self, shared: &Shared, lines: Vec<MonitorLine>) {
        if !lines.is_empty() {
            let (mark, count) = (self.replies.next_mark(), lines.len());
            let outgoing = Outgoing::Lines(shared.wiring.monitors.clone(), lines.into_iter());
            self.outbox.add(mark, count, outgoing);
        }
    }

    /// Takes the messages of a transaction's written keys, as [`Conversation::publish`].
    pub(super) fn publish_events(&mut self, shared: &Shared, events: Events) {
        if !events.is_empty() && shared.wiring.channels.is_heard() {
            self.add_messages(&shared.wiring.channels, events);
        }
    }

    /// Takes the writes of a transaction, for tracking clients, as [`Conversation::publish`].
    pub(super) fn tell_trackers(&mut self, shared: &Shared, changed: Changed) {
        if !matches!(changed, Changed::Nothing) {
            let pieces = changed.pieces();
            let (mark, count) = (self.replies.next_mark(), pieces.len());
            let (tracking, writer) = (shared.wiring.tracking.clone(), self.client.entry.id);
            self.outbox.add(mark, count, Outgoing::Changed(tracking, pieces.into_iter(), writer));
        }
    }

    /// Tells the client of keys written while another thread ran its commands, once the client has
    /// the reply: earlier messages about the keys may stand in front of the reply.
    pub(super) fn tell_reads(&self, shared: &Shared, keys: &[Vec<u8>]) {
        let (tracking, entry) = (&shared.wiring.tracking, &self.client.entry);
        for key in keys.iter().filter(|key| !tracking.remembers(entry, key)) {
            tracking.tell_reader(entry, key);
        }
    }

    /// Whether a tracking client, or its substitute, is told in its version of the protocol.
    fn hears_of_writes(&self, what: &Invalidation, in_place: bool) -> bool {
        match (self.client.is_resp3, what) {
            (true, _) => in_place || self.client.tracks.is_some(),
            (false, Invalidation::Broken(_)) => false,
            (false, _) => in_place && !self.client.subscriptions.is_empty(),
        }
    }

    /// Delivers the messages that are on disk, a bounded number: see
    /// [`Conversation::has_deliverable`].
    pub fn deliver(&mut self) {
        let mut left = MOST_DELIVERED;
        while left > 0 && self.has_deliverable() {
            let Some((_, outgoing)) = self.outbox.outgoing.front_mut() else { return };
            while left > 0 && outgoing.deliver_next() {
                (left, self.outbox.count) = (left - 1, self.outbox.count - 1);
            }
            if left > 0 {
                self.outbox.outgoing.pop_front();
            }
        }
        if self.outbox.count == 0 {
            self.outbox.outgoing.clear();
        }
    }

    /// Forgets undelivered messages: the log has failed.
    pub(super) fn forget_published(&mut self) {
        self.outbox = Outbox::default();
    }

    /// Whether there are messages for the client, and enough of the earlier messages are read.
    pub fn may_receive(&self) -> bool {
        !self.client.entry.inbox.is_empty() && self.replies.unsent() < MOST_UNSENT
    }

    /// Appends the messages published for the client, as far as the client reads them.
    pub(super) fn receive(&mut self) {
        let entry = self.client.entry.clone();
        while self.may_receive() {
            let Some(delivery) = entry.inbox.take() else { return };
            let is_wanted = match &delivery {
                Delivery::Message(publication, pattern) => {
                    self.client.subscriptions.wants(publication, pattern)
                }
                Delivery::Line(_) => self.client.monitoring.is_some(),
                Delivery::Invalidation(what, in_place) => self.hears_of_writes(what, *in_place),
            };
            if is_wanted {
                let mut reply = Reply::of_any_length(self.replies.buffer(), self.client.is_resp3);
                delivery.write(&mut reply);
                self.replies.seal_free();
            }
        }
    }
}
