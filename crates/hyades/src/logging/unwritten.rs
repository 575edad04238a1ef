//! Tables that nobody writes: their rows need not remember who reads them.
//!
//! A command leaves its mark on every row that it read, so that whoever overwrites the row is replayed after
//! it. In a table that is only looked up, nobody ever comes for the marks, and they are most of what a
//! command costs. So a table is **unwritten** until somebody overwrites a row of it: its readers leave no
//! mark. The first writer gives the table a **floor**, the positions up to where the streams are reserved,
//! and follows all that is below it; so does every writer that comes later, until the floor is cold, which
//! every writer follows anyway. From the first writer on, readers leave their marks. A table that was not
//! written for a while is unwritten again.
//!
//! The argument. Let R read a row, leave no mark, and commit; let W overwrite the row after that. R had taken its
//! place before it found the table unwritten; that was before it validated, or let go of its lock; and W
//! looks at the table after it has locked the row. So W looks after R has:
//!
//! - W finds the table unwritten, or a floor that was taken after R looked: R had its place by then, and is
//!   below the floor.
//! - A floor that was taken before R looked was gone by then: the table had been written, cooled, and was
//!   unwritten again. W, who looks after R, finds what came after that.
//!
//! Lanes in which nobody was ever spared a mark stay out of the floor: a stream that stands still holds up
//! only those who may depend on it.

#[cfg(all(test, loom))]
mod loom_tests;

use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicU32, AtomicU64, Ordering, Padded, checker_fence, yield_now};
use hyades_wal::{Lsn, lsn_vector::covers};

/// Readers leave no mark.
const UNWRITTEN: u32 = 0;
/// Somebody is about to take the floor.
const CHANGING: u32 = 1;
/// Writers follow what is below the floor.
const FLOOR: u32 = 2;
/// The floor is cold.
const WRITTEN: u32 = 3;

/// A table is unwritten after it was not written for so many rounds of housekeeping. A round is at least
/// an anchor's interval of the log; the first writer after that follows more than it would have to.
const QUIET_ROUNDS: u32 = 16;

/// What a writer has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// The vector that was raised.
    Vector,
    /// What is cold.
    Cold,
}

#[derive(Default)]
struct TableMark {
    /// Changed from [`UNWRITTEN`] by writers, and by the one of them who did that; otherwise by housekeeping.
    phase: AtomicU32,
    /// Whether it was written since the last round: 1 if so.
    written: AtomicU32,
    /// Rounds without a writer. Of housekeeping alone.
    quiet: AtomicU32,
    /// The lanes of readers who left no mark, by bit. Never taken back: a reader who finds its bit set
    /// relies on that.
    lanes: AtomicU64,
    /// Raised by who changes the phase to [`FLOOR`].
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

    /// Whether a row of the table has to remember this reader, who has its place in `lane`, and has not yet
    /// validated, or holds the row's lock.
    #[inline]
    pub fn has_to_remember(&self, table: u32, lane: usize) -> bool {
        let table = &self.tables[table as usize];
        // Relaxed: to leave a mark is never wrong.
        if table.phase.load(Ordering::Relaxed) != UNWRITTEN {
            return true;
        }
        let bit = 1 << lane;
        if table.lanes.load(Ordering::SeqCst) & bit == 0 {
            table.lanes.fetch_or(bit, Ordering::SeqCst);
        }
        // SeqCst: after the place was taken and the bit was set. Who takes the floor does it the other
        // way round.
        checker_fence();
        table.phase.load(Ordering::SeqCst) != UNWRITTEN
    }

    /// Somebody is about to overwrite rows of the table, which it has locked. Raises `order` to what it has
    /// to follow. `reserved` says up to where a stream is reserved.
    #[inline]
    pub fn overwrite(
        &self,
        table: u32,
        order: &mut [u64],
        reserved: impl Fn(usize) -> Lsn,
    ) -> Follows {
        let table = &self.tables[table as usize];
        // Relaxed: a hint to housekeeping. Stored once a round, or the line would go from core to core.
        if table.written.load(Ordering::Relaxed) == 0 {
            table.written.store(1, Ordering::Relaxed);
        }
        // SeqCst: after the lock.
        checker_fence();
        if table.phase.load(Ordering::SeqCst) == WRITTEN {
            return Follows::Cold;
        }
        table.follow_floor(order, reserved)
    }

    /// The cold vector has been raised to `cold`. One at a time.
    pub fn keep_house(&self, cold: &[Lsn]) {
        for table in &self.tables {
            table.keep_house(cold);
        }
    }
}

impl TableMark {
    #[cold]
    fn follow_floor(&self, order: &mut [u64], reserved: impl Fn(usize) -> Lsn) -> Follows {
        loop {
            // Acquire half: pairs with the Release of who took the floor, or found it cold.
            match self.phase.load(Ordering::SeqCst) {
                WRITTEN => return Follows::Cold,
                FLOOR => {
                    for (lane, floor) in order.iter_mut().zip(&self.floor) {
                        *lane = (*lane).max(floor.load(Ordering::Relaxed));
                    }
                    return Follows::Vector;
                }
                // Who changes it goes through a few loads and stores, unless it was descheduled.
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
        // SeqCst: a reader who did not see the change had its place, and its bit, before.
        checker_fence();
        let lanes = self.lanes.load(Ordering::SeqCst);
        for (lane, floor) in self.floor.iter().enumerate() {
            if lanes >> lane & 1 == 1 && !mutation::is(Mutation::ForgetUnmarkedReaders) {
                floor.store(reserved(lane), Ordering::Relaxed);
            }
        }
        // Release half: whoever finds a floor finds this one.
        self.phase.store(FLOOR, Ordering::SeqCst);
    }

    fn keep_house(&self, cold: &[Lsn]) {
        match self.phase.load(Ordering::SeqCst) {
            FLOOR => {
                let floor: Vec<Lsn> =
                    self.floor.iter().map(|lane| lane.load(Ordering::Relaxed)).collect();
                if covers(cold, &floor) {
                    self.quiet.store(0, Ordering::Relaxed);
                    // Release half: who finds it cold, and then loads the cold vector, finds one above
                    // the floor.
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

    fn followed(tables: &UnwrittenTables, reserved: Lsn) -> (Follows, Vec<u64>) {
        let mut order = vec![0; 3];
        let follows = tables.overwrite(1, &mut order, |lane| reserved + lane as u64);
        (follows, order)
    }

    #[test]
    fn writers_follow_the_unmarked_readers_until_these_are_cold() {
        let tables = UnwrittenTables::new(2, 3);
        assert!(!tables.has_to_remember(1, 0));
        assert!(!tables.has_to_remember(1, 2));
        // Nobody was spared a mark in lane 1.
        assert_eq!(followed(&tables, 10), (Follows::Vector, vec![10, 0, 12]));
        assert_eq!(followed(&tables, 20), (Follows::Vector, vec![10, 0, 12]));
        assert!(tables.has_to_remember(1, 0));
        assert!(!tables.has_to_remember(0, 0), "the other table is as it was");
        tables.keep_house(&[10, 99, 11]);
        assert_eq!(followed(&tables, 20), (Follows::Vector, vec![10, 0, 12]));
        tables.keep_house(&[10, 0, 12]);
        assert_eq!(followed(&tables, 20), (Follows::Cold, vec![0; 3]));
        assert!(tables.has_to_remember(1, 0));
    }

    #[test]
    fn a_table_that_is_left_alone_is_unwritten_again() {
        let tables = UnwrittenTables::new(2, 3);
        assert!(!tables.has_to_remember(1, 0));
        followed(&tables, 10);
        tables.keep_house(&[10; 3]);
        for _ in 0..2 {
            followed(&tables, 20);
            // The first round finds that it was written.
            for _ in 0..QUIET_ROUNDS {
                tables.keep_house(&[10; 3]);
                assert!(tables.has_to_remember(1, 0));
            }
        }
        tables.keep_house(&[10; 3]);
        assert!(!tables.has_to_remember(1, 1));
        assert_eq!(followed(&tables, 30), (Follows::Vector, vec![30, 31, 0]));
    }
}
