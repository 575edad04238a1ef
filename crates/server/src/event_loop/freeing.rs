//! What a loop frees while it has nothing else to do: rows that were deleted, and the room that its
//! largest transaction has needed.
//!
//! Later transactions would free the rows, but an idle server runs none. A loop that has been idle
//! for a moment therefore frees some, again and again until nothing is left. Then it sleeps until a
//! client, or a thread that has removed keys, wakes it.

use super::EventLoop;
use std::time::{Duration, Instant};

/// A loop frees memory once it has been idle for this time, and as long after a round that freed
/// some. Longer than an epoch: rows that were deleted before can be freed.
const IDLE: Duration = Duration::from_millis(20);

/// The longest pause between two rounds, while an open snapshot needs what was deleted.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// It ends after this many rounds in a row that freed nothing: what a round removes is freed by the
/// next one, if another thread might still be reading it.
const LAST_ROUNDS: u32 = 3;

/// A round has freed something if at least as many bytes less are used.
const FREED_BYTES: u64 = 16 << 10;

/// When a loop frees memory.
#[derive(Default)]
pub(super) struct Freeing {
    /// The next round; `None` if there is nothing to free.
    pub(super) due: Option<Instant>,
    /// Rounds in a row that freed nothing.
    in_vain: u32,
}

impl EventLoop {
    /// Runs a round that is due, if no connection is to be served.
    pub(super) fn free_unused(&mut self) {
        let (Some(session), Some(due)) = (&mut self.session, self.freeing.due) else { return };
        let now = Instant::now();
        if due > now || !self.listed.is_empty() {
            return;
        }
        let before = self.shared.used_memory();
        session.free_unused();
        let freed = before.saturating_sub(self.shared.used_memory());
        let (in_vain, is_left) = (&mut self.freeing.in_vain, session.has_unused());
        *in_vain = if freed < FREED_BYTES { *in_vain + 1 } else { 0 };
        let pause = match is_left {
            true => (IDLE * (1 << (*in_vain).min(6))).min(LONGEST_PAUSE),
            false => IDLE,
        };
        let goes_on = is_left || *in_vain < LAST_ROUNDS;
        self.freeing.due = goes_on.then(|| now + pause);
    }

    /// Plans a round if there is something to free; a later one if the loop was not idle.
    pub(super) fn plan_freeing(&mut self, has_served: bool) {
        let Some(session) = &self.session else { return };
        let is_planned = self.freeing.due.is_some();
        if is_planned && has_served || !is_planned && session.has_unused() {
            self.freeing = Freeing { due: Some(Instant::now() + IDLE), in_vain: 0 };
        }
    }
}
