//! Prefetching: loads the rows of the next records into the cache during the replay of other
//! records.
//!
//! Replay spends most of its time waiting for memory, and the log shows the next records. So the
//! rows of records are prefetched in small groups of records. First the hash buckets of all rows
//! touched by a group are loaded, then the rows, and then the group's records are replayed; the
//! groups before and behind pass through the other stages meanwhile.
//!
//! A data record names its rows. The rows of a command are known only to its procedure: the
//! procedure is run ahead of time over an [`Access`] with a conflict as the result of every
//! operation, a result always permitted. So the procedure runs up to its first operation, including
//! its own prefetch calls, and changes nothing in the database.

use super::apply::Applier;
use super::decode::Decoder;
use super::replay::ReplayContext;
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::determinism::Determinism;
use crate::logging::record::{Change, RecordHead};
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::range::Range;
use crate::storage::row::{Assignments, Row, take_varint};
use crate::storage::schema::{Columns, Set};
use crate::storage::value::Value;
use crate::storage::wanted::PrefetchedRow;
use crate::transaction::access::{Access, Index, Savepoint, Table, Transaction};
use hyades_platform::reclaim::Guard;
use hyades_wal::{Chunk, Lsn, StreamId};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Maximum number of records in a prefetched group.
const RECORDS: usize = 4;

/// A group also ends with the record that brings the group to this number of rows.
const ROWS: usize = 16;

/// Records per stretch of a trial. A trial alternates stretches without and with prefetching.
const STRETCH: u32 = 128;

/// Number of stretches of each kind in a trial.
const STRETCHES: usize = 8;

/// Records for which the outcome of a trial is kept.
const TRIAL_INTERVAL: u32 = 1 << 15;

/// Records that a thread replays without prefetching after a wait for other threads: another thread
/// may be waiting for these records.
const PAUSE_RECORDS: u32 = 64;

/// Maximum number of conflicts that a procedure may ignore when run ahead of time.
const MOST_CONFLICTS: u32 = 1000;

/// The prefetcher of one thread. While a group is replayed, the rows of the next group are loaded,
/// and the buckets of the group after the next.
#[derive(Default)]
pub(crate) struct Prefetcher {
    /// Rows of the last group; their buckets are being loaded.
    wanted: Vec<PrefetchedRow>,
    /// Buffer for the results of procedures, all ignored.
    result: Vec<u8>,
    /// The prefetched range of one stream: the stream's id, `from`, `to`, and the starts of the
    /// last two groups.
    stream: Option<StreamId>,
    from: Lsn,
    groups: [Lsn; 2],
    to: Lsn,
    /// Number of records still to be replayed without prefetching, regardless of the trial.
    pause_left: u32,
    trial: Trial,
}

/// Measures whether prefetching pays. Prefetching does not pay if rows are in the cache anyway, or
/// if procedures prefetch many rows themselves or compute for long before touching a row.
#[derive(Default)]
struct Trial {
    prefetches: bool,
    /// Set when a procedure panicked on its conflict or kept retrying: prefetching is off for good,
    /// since the cost in panic messages and time would exceed the savings.
    disabled: bool,
    /// Records left in the stretch, or until the next trial.
    left: u32,
    /// When the stretch began; `None` between trials.
    began: Option<Instant>,
    /// Durations of the stretches without and with prefetching.
    took: [Vec<Duration>; 2],
}

impl Trial {
    /// Whether the rows of the next record are to be prefetched.
    #[inline]
    fn next(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.turn(Instant::now()),
        }
        self.prefetches
    }

    /// Turns prefetching off for good.
    fn disable(&mut self) {
        (self.prefetches, self.disabled) = (false, true);
    }

    /// Ends a stretch and begins the next stretch, begins a trial, or applies the trial's outcome.
    #[cold]
    fn turn(&mut self, now: Instant) {
        if self.disabled {
            self.left = TRIAL_INTERVAL;
            return;
        }
        if let Some(began) = self.began.replace(now) {
            self.took[usize::from(self.prefetches)].push(now - began);
        }
        self.prefetches = !self.prefetches;
        self.left = STRETCH;
        if self.took.iter().all(|took| took.len() == STRETCHES) {
            // The slower half of the stretches may include waits.
            let [without, with] = std::mem::take(&mut self.took).map(|mut took| {
                took.sort_unstable();
                took[..STRETCHES / 2].iter().sum::<Duration>()
            });
            self.prefetches = with <= without;
            (self.left, self.began) = (TRIAL_INTERVAL, None);
        }
    }
}

impl Prefetcher {
    /// Notes that the thread had to wait for other threads.
    pub fn waited(&mut self) {
        self.pause_left = PAUSE_RECORDS;
    }

    /// Begins prefetches of the rows of the record at `at` in the chunk, and of the rows of the
    /// records behind it, unless already begun. Called before this thread replays the record.
    /// Returns false if no prefetch was begun for the record.
    #[inline]
    pub fn ensure_prefetched<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (stream, decoder): (StreamId, &Decoder),
        chunk: &Chunk,
        at: Lsn,
        guard: &Guard,
    ) -> bool {
        if self.pause_left > 0 {
            self.pause_left -= 1;
            return false;
        }
        if !self.trial.next() {
            return false;
        }
        let known = self.stream == Some(stream) && self.from <= at && at < self.to;
        if known && at < self.groups[0] {
            return true;
        }
        if !known {
            (self.stream, self.from, self.to) = (Some(stream), at, at);
            self.wanted.clear();
            self.prefetch_groups(replay, decoder, chunk, guard);
            self.groups[1] = self.to;
            self.prefetch_groups(replay, decoder, chunk, guard);
        }
        self.groups = [self.groups[1], self.to];
        self.prefetch_groups(replay, decoder, chunk, guard);
        true
    }

    /// Starts loading the rows of the last group, and the buckets of the next group.
    fn prefetch_groups<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        decoder: &Decoder,
        chunk: &Chunk,
        guard: &Guard,
    ) {
        PrefetchedRow::prefetch_records(&mut self.wanted, &replay.engine.tables, guard);
        self.wanted.clear();
        for frame in chunk.frames_from(self.to).take(RECORDS) {
            self.to = frame.end;
            if let Some((head, body)) = decoder.peek(&frame) {
                self.prefetch_buckets(replay, &head, body, guard);
            }
            if self.wanted.len() >= ROWS {
                break;
            }
        }
    }

    /// Starts loading the buckets of the rows touched by a record.
    fn prefetch_buckets<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        mut body: &[u8],
        guard: &Guard,
    ) {
        if !head.command {
            for _ in 0..ROWS {
                let next = Applier::next_change(replay, &mut body);
                let Some((at, key, change)) = next else { break };
                let table = &replay.engine.tables[at];
                let columns = match change {
                    Change::Delta { delta, .. } => {
                        columns_of(Assignments::new(&table.layout, delta).map(|(column, _)| column))
                    }
                    // The whole row is read to apply edits.
                    Change::Put(_) | Change::Edits { .. } | Change::Delete => Columns::ALL,
                };
                self.wanted.extend(PrefetchedRow::prefetch(table, &key, columns, guard));
            }
            return;
        }
        if self.trial.disabled {
            return;
        }
        // Errors in the record are reported at its replay.
        let Some(id) = take_varint(&mut body) else { return };
        let Ok(procedure) = replay.catalogue.procedure(id) else { return };
        self.result.clear();
        let access = PrefetchAccess {
            engine: &replay.engine,
            guard,
            wanted: RefCell::new(&mut self.wanted),
            determinism: RefCell::new(Determinism::recorded(head)),
            conflicts: Cell::new(0),
        };
        let run = || (procedure.body)(&Transaction(&access), body, &mut self.result);
        // The result is ignored. A panic not caused by the conflict recurs, and is reported, at the
        // replay of the record.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.trial.disable();
        }
    }
}

fn columns_of(columns: impl Iterator<Item = u16>) -> Columns {
    Columns(columns.fold(0, |set, column| set | 1 << column))
}

/// An [`Access`] that prefetches the requested rows and returns no data.
struct PrefetchAccess<'r, S: Stamp> {
    engine: &'r Engine<Unstamped<S>>,
    guard: &'r Guard,
    wanted: RefCell<&'r mut Vec<PrefetchedRow>>,
    determinism: RefCell<Determinism>,
    conflicts: Cell<u32>,
}

impl<S: Stamp> PrefetchAccess<'_, S> {
    /// The result of every operation. A procedure that keeps retrying is ended by unwinding,
    /// without a panic message.
    fn conflict(&self) -> Abort {
        self.conflicts.set(self.conflicts.get() + 1);
        if self.conflicts.get() > MOST_CONFLICTS {
            resume_unwind(Box::new("a procedure does not pass a conflict on"));
        }
        Abort::Conflict
    }
}

impl<S: Stamp> Access for PrefetchAccess<'_, S> {
    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        // A handle that does not fit is reported by the operation itself.
        let declared = self.engine.tables.get(table.number() as usize);
        let Some(table) = declared.filter(|data| table.origin().fits(data.origin())) else {
            return;
        };
        let mut wanted = KeyBytes::new();
        if table.encode_key(key, &mut wanted).is_ok() {
            let wanted = PrefetchedRow::prefetch(table, &wanted, columns, self.guard);
            self.wanted.borrow_mut().extend(wanted);
        }
    }

    fn get<'a>(
        &'a self,
        table: Table,
        key: &[Value<'_>],
        columns: Columns,
    ) -> Result<Option<Row<'a>>, Abort> {
        self.prefetch(table, key, columns);
        Err(self.conflict())
    }

    fn version(&self, table: Table, key: &[Value<'_>]) -> Result<Option<u64>, Abort> {
        self.prefetch(table, key, Columns::NONE);
        Err(self.conflict())
    }

    fn update(&self, table: Table, key: &[Value<'_>], sets: &[Set<'_>]) -> Result<bool, Abort> {
        self.prefetch(table, key, columns_of(sets.iter().map(|set| set.column)));
        Err(self.conflict())
    }

    fn delete(&self, table: Table, key: &[Value<'_>]) -> Result<bool, Abort> {
        self.prefetch(table, key, Columns::NONE);
        Err(self.conflict())
    }

    fn insert(&self, _: Table, _: &[Value<'_>]) -> Result<u64, Abort> {
        Err(self.conflict())
    }

    fn upsert(&self, _: Table, _: &[Value<'_>]) -> Result<bool, Abort> {
        Err(self.conflict())
    }

    fn scan<'a>(
        &'a self,
        _: Table,
        _: Option<Index>,
        _: &Range<'_>,
        _: Columns,
    ) -> Result<&'a [Row<'a>], Abort> {
        Err(self.conflict())
    }

    fn savepoint(&self) -> Savepoint {
        Savepoint(0)
    }

    fn rollback_to(&self, _: Savepoint) -> Result<(), Abort> {
        Err(self.conflict())
    }

    fn now_us(&self) -> i64 {
        self.determinism.borrow().time_us.unwrap_or_default()
    }

    fn random(&self) -> u64 {
        self.determinism.borrow_mut().random(|| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial. The stretches take these times without and with prefetching, every fourth
    /// stretch ten times as long. Returns whether the trial decides for prefetching.
    fn settles(without: u64, with: u64) -> bool {
        let mut trial = Trial::default();
        let mut now = Instant::now();
        for n in 0.. {
            trial.turn(now);
            if trial.left == TRIAL_INTERVAL {
                assert_eq!(n, 2 * STRETCHES);
                break;
            }
            assert_eq!(trial.left, STRETCH);
            let took = if trial.prefetches { with } else { without };
            now += Duration::from_micros(if n % 4 == 1 { 10 * took } else { took });
        }
        trial.prefetches
    }

    #[test]
    fn a_trial_settles_for_what_was_faster() {
        assert!(settles(110, 100));
        assert!(!settles(100, 110));
    }

    #[test]
    fn nothing_is_tried_after_a_panic() {
        let mut trial = Trial::default();
        assert!(trial.next());
        trial.disable();
        assert!((0..3 * TRIAL_INTERVAL).all(|_| !trial.next()));
    }
}
