//! Without the feature `replication`: no command waits for a standby.

use super::{Conversation, Turn};
use std::time::Instant;

impl Conversation {
    /// Whether a command waits for a standby.
    #[inline]
    pub const fn is_awaiting(&self) -> bool {
        false
    }

    /// When the waiting command is to be looked at.
    #[inline]
    pub(super) const fn awaited_at(&self) -> Option<Instant> {
        None
    }

    /// Looks at the waiting command, if there is one. False if it goes on waiting.
    #[inline]
    pub(super) const fn look_at_awaited(&mut self, _: &Turn<'_>) -> bool {
        true
    }

    /// Forgets the waiting command.
    pub(super) const fn forget_awaited(&mut self) {}
}
