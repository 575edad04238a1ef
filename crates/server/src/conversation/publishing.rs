//! What a conversation publishes and receives.

use super::{Conversation, MOST_UNSENT};
use crate::channels::{Channels, Publication};
use crate::data::keyspace::Events;
use crate::resp::reply::Reply;
use crate::shared::Shared;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages that wait for what their publisher was told before.
#[derive(Default)]
pub(super) struct Outbox {
    messages: VecDeque<(u64, Arc<Channels>, Arc<Publication>)>,
}

impl Conversation {
    /// Whether all that it has published was handed to the subscribers.
    pub fn has_delivered(&self) -> bool {
        self.outbox.messages.is_empty()
    }

    /// Takes what the last command has published: it is delivered when the replies so far, and
    /// those of the transaction whose replies are being written, are on disk.
    pub(super) fn publish(&mut self, channels: &Arc<Channels>) {
        for publication in self.client.published.drain(..) {
            let mark = self.replies.next_mark();
            self.outbox.messages.push_back((mark, channels.clone(), Arc::new(publication)));
        }
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
        let waiting = self.replies.first_waiting();
        while let Some((_, channels, publication)) =
            self.outbox.messages.pop_front_if(|(mark, ..)| waiting.is_none_or(|of| of > *mark))
        {
            channels.deliver(&publication);
        }
    }

    /// Forgets what it has not delivered: the log has failed.
    pub(super) fn forget_published(&mut self) {
        self.outbox.messages.clear();
    }

    /// Appends the messages that were published for it, as far as it reads them.
    pub(super) fn receive(&mut self) {
        let entry = self.client.entry.clone();
        while !entry.inbox.is_empty() && self.replies.unsent() < MOST_UNSENT {
            let Some(delivery) = entry.inbox.take() else { return };
            if self.client.subscriptions.wants(&delivery) {
                let mut reply = Reply::new(self.replies.buffer(), self.client.is_resp3);
                delivery.write(&mut reply);
                self.replies.seal_free();
            }
        }
    }
}
