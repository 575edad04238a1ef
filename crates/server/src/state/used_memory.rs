//! The memory that counts for `maxmemory`, and the measures when no memory is left.

use super::Shared;
use hyades::{Abort, Session, Transaction};
use hyades_platform::resident::resident_bytes;
use std::sync::atomic::Ordering::Relaxed;

/// The pages of the process are counted again after this time, in milliseconds.
const COUNTED_MS: i64 = 10;

/// While writes are refused, sleeping loops are woken at this interval, in milliseconds.
const WOKEN_MS: i64 = 100;

/// Empty transactions of a loop in a turn. Each transaction frees a share of the removed rows.
const EMPTY_TRANSACTIONS: u32 = 8;

impl Shared {
    /// Bytes that count for `maxmemory`.
    pub fn used_memory(&self) -> u64 {
        match self.settings.memory_counter() {
            Some(allocated) => allocated().saturating_sub(self.log_buffers()),
            None => self.resident_memory(),
        }
    }

    /// Bytes allocated and not freed by the program; if unknown, the bytes of its pages.
    pub fn allocated_memory(&self) -> u64 {
        match self.settings.memory_counter() {
            Some(allocated) => allocated(),
            None => self.resident_memory(),
        }
    }

    /// Bytes of the buffers of all log streams: allocated at the start, whatever there is to write.
    pub fn log_buffers(&self) -> u64 {
        self.store.opened.get().map_or(0, |opened| {
            let log = opened.database.log();
            log.map_or(0, |log| (log.streams() * log.buffer_bytes()) as u64)
        })
    }

    fn resident_memory(&self) -> u64 {
        let (memory, now) = (&self.limits.memory, self.clock.now_ms());
        if now - memory.counted_ms.load(Relaxed) >= COUNTED_MS {
            memory.resident.store(resident_bytes(), Relaxed);
            memory.counted_ms.store(now, Relaxed);
        }
        memory.resident.load(Relaxed)
    }

    /// Notes the present memory as the memory of a server without data.
    pub fn note_memory_at_start(&self) {
        self.limits.memory.at_start.store(self.used_memory(), Relaxed);
    }

    /// The memory of a server without data, in bytes; 0 before it is known.
    pub fn memory_at_start(&self) -> u64 {
        self.limits.memory.at_start.load(Relaxed)
    }

    /// Bytes of removed rows that are about to be freed. No command is refused for these bytes.
    pub fn removed_memory(&self) -> u64 {
        #[cfg(test)]
        if let Some(removed) = self.limits.memory.removed.get() {
            return removed();
        }
        self.store.opened.get().map_or(0, |opened| opened.database.removed_bytes())
    }

    /// Whether more memory is used than `maxmemory` allows.
    #[inline]
    pub fn is_out_of_memory(&self) -> bool {
        let most = self.settings.max_memory();
        most > 0 && self.used_memory().saturating_sub(self.removed_memory()) > most
    }

    /// Wakes sleeping loops after a command was refused for lack of memory: the loops may have rows
    /// to free.
    pub fn note_out_of_memory(&self) {
        let (woken, now) = (&self.limits.memory.woken_ms, self.clock.now_ms());
        if now - woken.load(Relaxed) >= WOKEN_MS {
            woken.store(now, Relaxed);
            self.wiring.wake_all();
        }
    }

    /// If no memory is left, frees some rows deleted by a loop's transactions.
    pub fn free_deleted(&self, session: &mut Session) {
        if self.is_out_of_memory() {
            for _ in 0..EMPTY_TRANSACTIONS {
                // A failure here occurs again at the next command, which reports the error.
                let _ = session.attempt(|_: &Transaction<'_>| Ok::<(), Abort>(()));
            }
        }
    }
}
