//! When replies leave: once their transaction is durable, or before, by the client's choice.

use super::{Conversation, Silence};
use crate::client::Durability;
use crate::state::Shared;
use hyades::Ticket;
use hyades_platform::broken;

/// The longest time of early replies, in milliseconds, under [`Durability::Second`].
const SECOND_MS: i64 = 1_000;

impl Conversation {
    /// Ends the replies of a transaction not acknowledged yet. Returns the mark that the
    /// transaction's ticket frees. No reply is early while another process may be primary: early
    /// replies may be lost, and are not stale.
    pub(super) fn seal_transaction(
        &mut self,
        shared: &Shared,
        replies: usize,
        ticket: &Ticket,
    ) -> u64 {
        let now_ms = shared.clock.now_ms();
        let is_early = match self.exec_durability.unwrap_or(self.client.durability) {
            Durability::Acknowledged => broken!(ReplyBeforeAdmitted),
            Durability::Second => self.replies.early_for_ms(now_ms) < SECOND_MS,
            Durability::Free => true,
        };
        match is_early && ticket.may_answer() {
            true => self.replies.seal_early(replies, now_ms),
            false => self.replies.seal_parked(replies),
        }
    }

    /// Ends a reply that depends on nothing, unless the client does not want the reply. A client
    /// without replies gets messages.
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
