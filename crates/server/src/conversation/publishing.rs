//! What a conversation publishes and receives.

use super::{Conversation, MOST_UNSENT};
use crate::channels::{Channels, Delivery, Publication};
use crate::data::keyspace::Events;
use crate::monitors::{MonitorLine, Monitors};
use crate::resp::reply::Reply;
use crate::shared::Shared;
use hyades_platform::mutation::{self, Mutation};
use std::collections::VecDeque;
use std::sync::Arc;

/// What waits for what its sender was told before.
enum Outgoing {
    Message(Arc<Channels>, Arc<Publication>),
    Line(Arc<Monitors>, MonitorLine),
}

impl Outgoing {
    fn deliver(self) {
        match self {
            Outgoing::Message(channels, publication) => channels.deliver(&publication),
            Outgoing::Line(monitors, line) => monitors.deliver(&line),
        }
    }
}

/// Messages and lines, each with the mark of the transaction that it waits for.
#[derive(Default)]
pub(super) struct Outbox {
    messages: VecDeque<(u64, Outgoing)>,
}

impl Conversation {
    /// Whether all that it has published was handed to the subscribers.
    pub fn has_delivered(&self) -> bool {
        self.outbox.messages.is_empty()
    }

    /// Messages that wait for the disk.
    pub(super) fn undelivered(&self) -> usize {
        self.outbox.messages.len()
    }

    /// Takes what the last command has published: it is delivered when the replies so far, and
    /// those of the transaction whose replies are being written, are on disk.
    pub(super) fn publish(&mut self, channels: &Arc<Channels>) {
        for publication in self.client.published.drain(..) {
            let mark = self.replies.next_mark();
            let message = Outgoing::Message(channels.clone(), Arc::new(publication));
            self.outbox.messages.push_back((mark, message));
        }
    }

    /// Takes lines for the clients that monitor, as [`Conversation::publish`].
    pub(super) fn tell_monitors(
        &mut self,
        shared: &Shared,
        lines: impl IntoIterator<Item = MonitorLine>,
    ) {
        let mark = self.replies.next_mark();
        let outgoing = lines.into_iter().map(|line| Outgoing::Line(shared.monitors.clone(), line));
        self.outbox.messages.extend(outgoing.map(|line| (mark, line)));
    }

    /// Takes the messages of keys that a transaction has written, as [`Conversation::publish`].
    pub(super) fn publish_events(&mut self, shared: &Shared, events: Events) {
        if !events.is_empty() && shared.channels.is_heard() {
            self.client.published.extend(events);
            self.publish(&shared.channels);
        }
    }

    /// Delivers what is on disk.
    pub(super) fn deliver(&mut self) {
        if self.outbox.messages.is_empty() {
            return;
        }
        let is_early = mutation::is(Mutation::PublishEarly);
        let waiting = self.replies.first_waiting().filter(|_| !is_early);
        while let Some((_, outgoing)) =
            self.outbox.messages.pop_front_if(|(mark, ..)| waiting.is_none_or(|of| of > *mark))
        {
            outgoing.deliver();
        }
    }

    /// Forgets what it has not delivered: the log has failed.
    pub(super) fn forget_published(&mut self) {
        self.outbox.messages.clear();
    }

    /// Whether there are messages for it, and it has read enough of those before.
    pub fn may_receive(&self) -> bool {
        !self.client.entry.inbox.is_empty() && self.replies.unsent() < MOST_UNSENT
    }

    /// Appends the messages that were published for it, as far as it reads them.
    pub(super) fn receive(&mut self) {
        let entry = self.client.entry.clone();
        while self.may_receive() {
            let Some(delivery) = entry.inbox.take() else { return };
            let is_wanted = match &delivery {
                Delivery::Message(publication, pattern) => {
                    self.client.subscriptions.wants(publication, pattern)
                }
                Delivery::Line(_) => self.client.monitoring.is_some(),
            };
            if is_wanted {
                let mut reply = Reply::of_any_length(self.replies.buffer(), self.client.is_resp3);
                delivery.write(&mut reply);
                self.replies.seal_free();
            }
        }
    }
}
