//! When a client is told of a transaction: once it is durable, or before.
//!
//! Whatever a client chooses, its transactions are in the log in their order, and another client
//! that sees what they wrote is told so only when that is durable, unless it chose likewise.

use super::{Conversation, Silence};
use crate::shared::Shared;
use hyades_platform::mutation::{self, Mutation};

/// When the replies of a transaction are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it, and all that it has seen, is on disk.
    #[default]
    Acknowledged,
    /// At once, unless the client was told of something that is not on disk after a second.
    Second,
    /// At once.
    Free,
}

impl Durability {
    const ALL: [Durability; 3] = [Durability::Acknowledged, Durability::Second, Durability::Free];

    /// Its name in HYADES.DURABILITY.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Acknowledged => "ack",
            Durability::Second => "1s",
            Durability::Free => "none",
        }
    }

    /// The one that has this name.
    pub fn named(name: &[u8]) -> Option<Durability> {
        Self::ALL.into_iter().find(|of| name.eq_ignore_ascii_case(of.name().as_bytes()))
    }
}

/// The longest that replies are sent early, in milliseconds, under [`Durability::Second`].
const SECOND_MS: i64 = 1_000;

impl Conversation {
    /// The replies of a transaction that is not acknowledged end here. Returns the mark that its
    /// ticket frees.
    pub(super) fn seal_transaction(&mut self, shared: &Shared, replies: usize) -> u64 {
        let now_ms = shared.clock.now_ms();
        let is_early = match self.exec_durability.unwrap_or(self.client.durability) {
            Durability::Acknowledged => mutation::is(Mutation::ReplyBeforeAdmitted),
            Durability::Second => self.replies.early_for_ms(now_ms) < SECOND_MS,
            Durability::Free => true,
        };
        match is_early {
            true => self.replies.seal_early(replies, now_ms),
            false => self.replies.seal_parked(replies),
        }
    }

    /// Ends a reply that depends on nothing, unless the client does not want it. A client that
    /// wants no replies gets messages.
    pub(super) fn seal_local(&mut self, from: usize, is_message: bool) {
        if self.client.silence != Silence::None && !is_message {
            self.replies.buffer().truncate(from);
        }
        if self.client.silence == Silence::This {
            self.client.silence = Silence::None;
        }
        let waits = std::mem::take(&mut self.client.waits_for_disk);
        if self.replies.buffer().len() > from {
            match waits {
                true => self.replies.seal_behind(),
                false => self.replies.seal_free(),
            }
        }
    }
}
