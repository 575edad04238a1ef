//! The memory that a loop frees while it has nothing else to do: deleted rows, and the room of its
//! largest transaction.
//!
//! Later transactions would free the rows, but an idle server runs none. A loop that has been idle
//! for a moment therefore frees some, again and again until nothing is left. Then the loop sleeps
//! until a client, or a thread that has removed keys, wakes it.

use super::EventLoop;
use std::time::{Duration, Instant};

/// A loop frees memory once it has been idle for this time, and as long after a successful round.
/// Longer than an epoch: rows deleted before can be freed.
const IDLE: Duration = Duration::from_millis(20);

/// The longest pause between two rounds, while an open snapshot needs deleted rows.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The loop stops freeing after this many rounds in a row without success: rows that a round
/// removes are freed by the next round, if another thread might still be reading them.
const LAST_ROUNDS: u32 = 3;

/// A round is a success if it has removed rows, or if at least this many fewer bytes are used.
const FREED_BYTES: u64 = 16 << 10;

/// When a loop frees memory.
#[derive(Default)]
pub(super) struct Freeing {
    /// The next round; `None` if there is nothing to free.
    pub(super) due: Option<Instant>,
    /// Rounds in a row without success.
    in_vain: u32,
}

impl Freeing {
    /// Plans the next round after a round.
    fn note(&mut self, now: Instant, has_freed: bool, is_left: bool) {
        self.in_vain = if has_freed { 0 } else { self.in_vain.saturating_add(1) };
        let pause = match is_left {
            true => (IDLE * (1 << self.in_vain.min(6))).min(LONGEST_PAUSE),
            false => IDLE,
        };
        let goes_on = is_left || self.in_vain < LAST_ROUNDS;
        self.due = goes_on.then(|| now + pause);
    }
}

impl EventLoop {
    /// Runs a due round, if no connection is to be served.
    pub(super) fn free_unused(&mut self) {
        let (Some(session), Some(due)) = (&mut self.session, self.freeing.due) else { return };
        let now = Instant::now();
        if due > now || !self.listed.is_empty() {
            return;
        }
        let before = self.shared.used_memory();
        // Removed rows may be freed later, and other threads allocate memory meanwhile.
        let has_removed = session.free_unused();
        let freed = before.saturating_sub(self.shared.used_memory());
        self.freeing.note(now, has_removed || freed >= FREED_BYTES, session.has_unused());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_one_another_while_they_free_something_and_then_seldom() {
        let mut freeing = Freeing::default();
        let now = Instant::now();
        let mut pause = |has_freed, is_left| {
            freeing.note(now, has_freed, is_left);
            freeing.due.map(|due| due.duration_since(now))
        };
        for _ in 0..100 {
            assert_eq!(pause(true, true), Some(IDLE));
        }
        // A snapshot needs the rest.
        for millis in [40, 80, 160, 320, 640, 1_000, 1_000, 1_000] {
            assert_eq!(pause(false, true), Some(Duration::from_millis(millis)));
        }
        assert_eq!(pause(true, true), Some(IDLE), "it is closed");
        // Nothing is left: a loop sleeps soon.
        assert_eq!(pause(true, false), Some(IDLE));
        assert_eq!(pause(false, false), Some(IDLE));
        assert_eq!(pause(false, false), Some(IDLE));
        assert_eq!(pause(false, false), None);
    }
}
