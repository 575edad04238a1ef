//! Unwritten tables: rows of tables without writers need no read stamps.
//!
//! A command stamps every row read, so that an overwriting transaction is replayed after the
//! command. In a lookup table the read stamps are never used, and are most of the cost of a
//! command. So a table is **unwritten** until a transaction overwrites a row of the table: readers
//! leave no stamps. The first writer gives the table a **floor**, the reserved ends of the streams,
//! and follows everything below the floor; so does every later writer, until the eviction vector,
//! which every writer follows anyway, covers the floor (the floor is *evicted*). From the first
//! writer on, readers leave stamps. A table without writes for a while is unwritten again.
//!
//! Why unwritten tables are correct. Let R read a row, leave no stamp, and commit; let W overwrite
//! the row afterwards. R had reserved a position before R found the table unwritten; R validated,
//! or released its lock, after the check; and W checks the table after W has locked the row. So W
//! checks after R:
//!
//! - W finds the table unwritten, or a floor taken after R's check: R had a position by then, and
//!   is below the floor.
//! - A floor taken before R's check no longer existed at the check: the table had been written, the
//!   floor was evicted, and the table was unwritten again. W, which checks after R, finds a later
//!   state.
//!
//! Streams without a reader that skipped its stamp stay out of the floor: a stalled stream holds up
//! only transactions that may depend on the stream.

#[cfg(all(test, loom))]
mod loom_tests;

use hyades_platform::broken;
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering, Padded, checker_fence, yield_now};
use hyades_wal::{Lsn, lsn_vector::covers};

/// Readers leave no stamps.
const UNWRITTEN: u32 = 0;
/// A writer is about to take the floor.
const CHANGING: u32 = 1;
/// Writers follow everything below the floor.
const FLOOR: u32 = 2;
/// The eviction vector covers the floor.
const WRITTEN: u32 = 3;

/// The rounds of housekeeping without a write after which a table is unwritten again. A round is at
/// least an anchor's interval of the log; the first writer afterwards follows more than it needs
/// to.
const QUIET_ROUNDS: u32 = 16;

/// The positions that a writer has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterFollows {
    /// The vector, now raised.
    Vector,
    /// The eviction vector only.
    EvictionVector,
}

#[derive(Default)]
struct TableMark {
    /// Changed from [`UNWRITTEN`] by a writer, from [`CHANGING`] by the same writer; otherwise by
    /// housekeeping.
    phase: AtomicU32,
    /// 1 if the table was written since the last round, else 0.
    written: AtomicU32,
    /// Rounds without a writer. Used by housekeeping only.
    quiet: AtomicU32,
    /// The streams of readers that left no stamp, by bit. Never cleared: a reader with its bit set
    /// already relies on the bit.
    lanes: AtomicU64,
    /// Raised by the writer that changes the phase to [`FLOOR`].
    floor: Box<[AtomicU64]>,
}

/// The tables of a database.
pub(crate) struct UnwrittenTables {
    tables: Box<[Padded<TableMark>]>,
}

impl UnwrittenTables {
    pub fn new(tables: usize, lanes: usize) -> Self {
        assert!(lanes <= u64::BITS as usize, "a lane has a bit");
        let floor = || (0..lanes).map(|_| AtomicU64::new(0)).collect();
        let table = |_| Padded(TableMark { floor: floor(), ..TableMark::default() });
        UnwrittenTables { tables: (0..tables).map(table).collect() }
    }

    /// Returns whether a reader has to stamp rows of the table. The reader has a position in
    /// `lane`, and has not yet validated, or holds the row's lock.
    #[inline]
    pub fn needs_read_stamp(&self, table: u32, lane: usize) -> bool {
        let table = &self.tables[table as usize];
        // Relaxed: an unneeded stamp is never wrong.
        if table.phase.load(Ordering::Relaxed) != UNWRITTEN {
            return true;
        }
        let bit = 1 << lane;
        if table.lanes.load(Ordering::SeqCst) & bit == 0 {
            table.lanes.fetch_or(bit, Ordering::SeqCst);
        }
        // SeqCst: after the position was reserved and the bit was set. The writer that takes the
        // floor uses the reverse order.
        checker_fence();
        table.phase.load(Ordering::SeqCst) != UNWRITTEN
    }

    /// Called before rows of the table, which the caller has locked, are overwritten. Raises
    /// `order` to the positions that the caller has to follow. `reserved` returns the reserved end
    /// of a stream.
    #[inline]
    pub fn overwrite(
        &self,
        table: u32,
        order: &mut [u64],
        reserved: impl Fn(usize) -> Lsn,
    ) -> WriterFollows {
        let table = &self.tables[table as usize];
        // Relaxed: a hint to housekeeping. Stored once a round, or the cache line would move from
        // core to core.
        if table.written.load(Ordering::Relaxed) == 0 {
            table.written.store(1, Ordering::Relaxed);
        }
        // SeqCst: after the row's lock.
        checker_fence();
        if table.phase.load(Ordering::SeqCst) == WRITTEN {
            return WriterFollows::EvictionVector;
        }
        table.follow_floor(order, reserved)
    }

    /// Called after the eviction vector has been raised to `eviction`, by one thread at a time.
    pub fn housekeep(&self, eviction: &[Lsn]) {
        for table in &self.tables {
            table.housekeep(eviction);
        }
    }
}

impl TableMark {
    #[cold]
    fn follow_floor(&self, order: &mut [u64], reserved: impl Fn(usize) -> Lsn) -> WriterFollows {
        loop {
            // Acquire half: pairs with the Release of the writer that took the floor, or of the
            // housekeeping that found it evicted.
            match self.phase.load(Ordering::SeqCst) {
                WRITTEN => return WriterFollows::EvictionVector,
                FLOOR => {
                    for (lane, floor) in order.iter_mut().zip(&self.floor) {
                        *lane = (*lane).max(floor.load(Ordering::Relaxed));
                    }
                    return WriterFollows::Vector;
                }
                // The changing writer needs a few loads and stores, unless it was descheduled.
                CHANGING => yield_now(),
                _ => self.take_floor(&reserved),
            }
        }
    }

    fn take_floor(&self, reserved: impl Fn(usize) -> Lsn) {
        let (from, to) = (UNWRITTEN, CHANGING);
        if self.phase.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return;
        }
        // SeqCst: a reader that did not see the change had its position, and its bit, before.
        checker_fence();
        let lanes = self.lanes.load(Ordering::SeqCst);
        for (lane, floor) in self.floor.iter().enumerate() {
            if lanes >> lane & 1 == 1 && !broken!(ForgetUnmarkedReaders) {
                floor.store(reserved(lane), Ordering::Relaxed);
            }
        }
        // Release half: a thread that finds the phase [`FLOOR`] finds the floor.
        self.phase.store(FLOOR, Ordering::SeqCst);
    }

    fn housekeep(&self, eviction: &[Lsn]) {
        match self.phase.load(Ordering::SeqCst) {
            FLOOR => {
                let floor: Vec<Lsn> =
                    self.floor.iter().map(|lane| lane.load(Ordering::Relaxed)).collect();
                if covers(eviction, &floor) {
                    self.quiet.store(0, Ordering::Relaxed);
                    // Release half: a writer that finds the phase, and then loads the eviction
                    // vector, finds the floor covered.
                    self.phase.store(WRITTEN, Ordering::SeqCst);
                }
            }
            WRITTEN => {
                let written = self.written.load(Ordering::Relaxed) != 0;
                if written {
                    self.written.store(0, Ordering::Relaxed);
                }
                let quiet = if written { 0 } else { self.quiet.load(Ordering::Relaxed) + 1 };
                self.quiet.store(quiet, Ordering::Relaxed);
                if quiet >= QUIET_ROUNDS {
                    self.phase.store(UNWRITTEN, Ordering::SeqCst);
                }
            }
            _ => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn followed(tables: &UnwrittenTables, reserved: Lsn) -> (WriterFollows, Vec<u64>) {
        let mut order = vec![0; 3];
        let follows = tables.overwrite(1, &mut order, |lane| reserved + lane as u64);
        (follows, order)
    }

    #[test]
    fn writers_follow_the_unmarked_readers_until_these_are_evicted() {
        let tables = UnwrittenTables::new(2, 3);
        assert!(!tables.needs_read_stamp(1, 0));
        assert!(!tables.needs_read_stamp(1, 2));
        // No reader skipped a stamp in stream 1.
        assert_eq!(followed(&tables, 10), (WriterFollows::Vector, vec![10, 0, 12]));
        assert_eq!(followed(&tables, 20), (WriterFollows::Vector, vec![10, 0, 12]));
        assert!(tables.needs_read_stamp(1, 0));
        assert!(!tables.needs_read_stamp(0, 0), "the other table is as it was");
        tables.housekeep(&[10, 99, 11]);
        assert_eq!(followed(&tables, 20), (WriterFollows::Vector, vec![10, 0, 12]));
        tables.housekeep(&[10, 0, 12]);
        assert_eq!(followed(&tables, 20), (WriterFollows::EvictionVector, vec![0; 3]));
        assert!(tables.needs_read_stamp(1, 0));
    }

    #[test]
    fn a_table_that_is_left_alone_is_unwritten_again() {
        let tables = UnwrittenTables::new(2, 3);
        assert!(!tables.needs_read_stamp(1, 0));
        followed(&tables, 10);
        tables.housekeep(&[10; 3]);
        for _ in 0..2 {
            followed(&tables, 20);
            // The first round finds the table written.
            for _ in 0..QUIET_ROUNDS {
                tables.housekeep(&[10; 3]);
                assert!(tables.needs_read_stamp(1, 0));
            }
        }
        tables.housekeep(&[10; 3]);
        assert!(!tables.needs_read_stamp(1, 1));
        assert_eq!(followed(&tables, 30), (WriterFollows::Vector, vec![30, 31, 0]));
    }
}
