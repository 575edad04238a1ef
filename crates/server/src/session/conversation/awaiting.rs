//! Commands that wait for the members of a replicated database: WAIT and WAITAOF for standbys,
//! HYADES.AFTER for the state that this standby serves. No later command of the client runs before
//! the reply. The loop looks again and again: nothing tells of what other members do.

use super::{Conversation, Turn};
use crate::client::{AwaitedMember, AwaitingCommand};
use crate::resp::reply::Reply;
use std::time::{Duration, Instant};

/// How often a loop looks.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

impl Conversation {
    /// Whether a command waits for a standby.
    pub fn is_awaiting(&self) -> bool {
        self.client.awaits.is_some()
    }

    /// When the waiting command is to be looked at.
    pub(super) fn awaited_at(&self) -> Option<Instant> {
        let awaits = self.client.awaits.as_ref()?;
        Some(awaits.until.map_or(awaits.looks_at, |until| until.min(awaits.looks_at)))
    }

    /// Looks at the waiting command, if there is one. False if it goes on waiting.
    pub(super) fn look_at_awaited(&mut self, turn: &Turn<'_>) -> bool {
        let Some(AwaitingCommand { what, until, .. }) = &self.client.awaits else { return true };
        let now = Instant::now();
        let (found, is_enough) = what.found(turn.shared);
        if !is_enough && until.is_none_or(|until| now < until) {
            if let Some(awaits) = &mut self.client.awaits {
                awaits.looks_at = now + LOOKS_EVERY;
            }
            return false;
        }
        let Some(AwaitingCommand { what, .. }) = self.client.awaits.take() else { return true };
        let from = self.replies.buffer().len();
        what.write(found, &mut Reply::new(self.replies.buffer(), self.client.is_resp3));
        // The writes that standbys have are durable here before the client hears of standbys.
        self.client.waits_for_disk = matches!(what, AwaitedMember::Synced { .. });
        self.seal_local(from, false);
        true
    }

    /// Forgets the waiting command.
    pub(super) fn forget_awaited(&mut self) {
        self.client.awaits = None;
    }
}
