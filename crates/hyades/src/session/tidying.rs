//! Freeing of memory while a session is idle.

use super::{Commits, EngineSession};
use crate::erased::KEPT_BYTES;
use crate::logging::LoggingProtocol;
use crate::session::poisoning::PoisonOnPanic;
use bumpalo::Bump;
use hyades_platform::reclaim;

/// Items of garbage checked at a time.
const CHECKED: usize = 8_192;

impl<C: Commits<P>, P: LoggingProtocol> EngineSession<C, P> {
    /// Returns whether there is garbage, possibly still needed, or a large buffer.
    pub(super) fn has_unused(&self) -> bool {
        self.was_open
            || !self.garbage.is_empty()
            || self.shared.orphaned.len() > 0
            || self.arena.allocated_bytes() > KEPT_BYTES
            || self.payload.capacity() > KEPT_BYTES
            || self.workspace.room_bytes() > KEPT_BYTES
            || self.garbage.room_bytes() > KEPT_BYTES
    }

    /// Frees some of the garbage, of this session and of ended sessions, and the room needed by the
    /// session's largest transaction. The session is between transactions. Returns whether garbage
    /// was removed, or there was room to free.
    pub(super) fn free_unused(&mut self) -> bool {
        if self.was_open {
            self.clear_open();
        }
        let engine = &self.shared.engine;
        engine.epoch.advance_if_older_than(engine.epoch_interval);
        engine.snapshots.tidy(&engine.epoch);
        let before = self.garbage.len();
        if before > 0 {
            let stamp = self.stamp.as_mut().expect("a session has its stamp until it is dropped");
            let poison_on_panic = PoisonOnPanic::arm::<P>(&self.shared.control, self.log.as_ref());
            self.garbage.sweep_up_to::<C, P>(engine, stamp, CHECKED);
            self.tally.set_garbage(self.garbage.len());
            poison_on_panic.disarm();
        }
        let mut has_freed = self.garbage.len() < before;
        has_freed |= self.sweep_orphaned(CHECKED / 2) > 0;
        if self.arena.allocated_bytes() > KEPT_BYTES {
            self.arena = Bump::with_capacity(super::ARENA_BYTES);
            has_freed = true;
        }
        if self.payload.capacity() > KEPT_BYTES {
            self.payload = Vec::new();
            has_freed = true;
        }
        if self.workspace.room_bytes() > KEPT_BYTES {
            self.workspace.free_room();
            has_freed = true;
        }
        has_freed |= self.garbage.free_room(KEPT_BYTES);
        has_freed |= self.shared.orphaned.free_room(KEPT_BYTES);
        reclaim::settle();
        has_freed
    }
}
