//! Prefetching: loads the rows of the next records into the cache while others are replayed.
//!
//! Replay spends most of its time waiting for memory, and the log shows what comes next. So records
//! are *announced* in small groups. First the hash buckets of all rows that they touch are loaded,
//! then the rows, and then the records are replayed; the groups before and behind pass through the
//! other stages meanwhile. An announcement has no other effect.
//!
//! A data record names its rows. The rows of a command are known only to its procedure: the
//! procedure is run ahead of time over an [`Access`] whose every operation ends with a conflict, as
//! any operation may. So it runs up to its first operation, including its own prefetch calls, and
//! changes nothing in the database.

use super::apply::Applier;
use super::decode::Decoder;
use super::replay::ReplayContext;
use crate::concurrency::state::Determinism;
use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::record::{Change, RecordHead};
use crate::logging::unstamped::Unstamped;
use crate::storage::key::KeyBytes;
use crate::storage::range::Range;
use crate::storage::row::{Assignments, Row, take_varint};
use crate::storage::schema::{Columns, Set};
use crate::storage::value::Value;
use crate::storage::wanted::PrefetchedRow;
use crate::transaction::access::{Access, Index, Savepoint, Table, Transaction};
use crossbeam_epoch::Guard;
use hyades_wal::{Chunk, Lsn};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Maximum number of records in a group that is announced together.
const RECORDS: usize = 4;

/// A group also ends with the record that brings it to this many rows.
const ROWS: usize = 16;

/// Records per stretch of a trial. A trial alternates stretches without and with announcing.
const STRETCH: u32 = 128;

/// Number of stretches of each kind in a trial.
const STRETCHES: usize = 8;

/// Records for which the outcome of a trial is kept.
const TRIAL_INTERVAL: u32 = 1 << 15;

/// Records that a thread replays without announcing after it had to wait for others: another thread
/// may be waiting for these records.
const PAUSE_RECORDS: u32 = 64;

/// Maximum number of conflicts that a procedure may ignore when it is run ahead of time.
const MOST_CONFLICTS: u32 = 1000;

/// The prefetcher of one thread. While a group is replayed, the rows of the next one are loaded,
/// and the buckets of the one after that.
#[derive(Default)]
pub(crate) struct Prefetcher {
    /// Rows of the last announced group, whose buckets are being loaded.
    wanted: Vec<PrefetchedRow>,
    /// Buffer for the results of procedures, which are ignored.
    result: Vec<u8>,
    /// The announced range of one stream: the stream's number, `from`, `to`, and where the last two
    /// groups begin.
    stream: u32,
    from: Lsn,
    groups: [Lsn; 2],
    to: Lsn,
    /// Number of records still to be replayed without announcing, regardless of the trial.
    hold: u32,
    trial: Trial,
}

/// Measures whether announcing pays. It does not if rows are in the cache anyway, or if procedures
/// prefetch many rows themselves or compute for long before they touch one.
#[derive(Default)]
struct Trial {
    announces: bool,
    /// Set when a procedure panicked on its conflict or kept retrying: announcing is off for good,
    /// because it would cost more panic messages and time than it saves.
    disabled: bool,
    /// Records left in the stretch, or until the next trial.
    left: u32,
    /// When the stretch began; `None` between trials.
    began: Option<Instant>,
    /// Durations of the stretches without and with announcing.
    took: [Vec<Duration>; 2],
}

impl Trial {
    /// Whether the next record is to be announced.
    #[inline]
    fn next(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.turn(Instant::now()),
        }
        self.announces
    }

    /// Turns announcing off for good.
    fn give_up(&mut self) {
        (self.announces, self.disabled) = (false, true);
    }

    /// Ends a stretch and begins the next one, begins a trial, or applies its outcome.
    #[cold]
    fn turn(&mut self, now: Instant) {
        if self.disabled {
            self.left = TRIAL_INTERVAL;
            return;
        }
        if let Some(began) = self.began.replace(now) {
            self.took[usize::from(self.announces)].push(now - began);
        }
        self.announces = !self.announces;
        self.left = STRETCH;
        if self.took.iter().all(|took| took.len() == STRETCHES) {
            // The slower half of the stretches may include waits.
            let [without, with] = std::mem::take(&mut self.took).map(|mut took| {
                took.sort_unstable();
                took[..STRETCHES / 2].iter().sum::<Duration>()
            });
            self.announces = with <= without;
            (self.left, self.began) = (TRIAL_INTERVAL, None);
        }
    }
}

impl Prefetcher {
    /// Called when the thread had to wait for others.
    pub fn waited(&mut self) {
        self.hold = PAUSE_RECORDS;
    }

    /// Called before this thread replays the record that begins at `at` in the chunk. Makes sure
    /// that it and those behind it were announced. Returns false if it is not announced.
    #[inline]
    pub fn ensure_prefetched<S: Default + Send + Sync + 'static>(
        &mut self,
        replay: &ReplayContext<S>,
        (stream, decoder): (u32, &Decoder),
        chunk: &Chunk,
        at: Lsn,
        guard: &Guard,
    ) -> bool {
        if self.hold > 0 {
            self.hold -= 1;
            return false;
        }
        if !self.trial.next() {
            return false;
        }
        let known = self.stream == stream && self.from <= at && at < self.to;
        if known && at < self.groups[0] {
            return true;
        }
        if !known {
            (self.stream, self.from, self.to) = (stream, at, at);
            self.wanted.clear();
            self.prefetch(replay, decoder, chunk, guard);
            self.groups[1] = self.to;
            self.prefetch(replay, decoder, chunk, guard);
        }
        self.groups = [self.groups[1], self.to];
        self.prefetch(replay, decoder, chunk, guard);
        true
    }

    /// Starts loading the rows of the last announced group, and announces the next group.
    fn prefetch<S: Default + Send + Sync + 'static>(
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
                self.announce_record(replay, &head, body, guard);
            }
            if self.wanted.len() >= ROWS {
                break;
            }
        }
    }

    fn announce_record<S: Default + Send + Sync + 'static>(
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
                    Change::Put(_) | Change::Delete => Columns::ALL,
                };
                self.wanted.extend(PrefetchedRow::prefetch(table, &key, columns, guard));
            }
            return;
        }
        if self.trial.disabled {
            return;
        }
        // Errors in the record are reported when it is replayed.
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
        let run = || (procedure.body)(&Transaction::new(&access), body, &mut self.result);
        // The result is ignored. A panic that the conflict did not cause recurs, and is reported,
        // when the record is replayed.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.trial.give_up();
        }
    }
}

fn columns_of(columns: impl Iterator<Item = u16>) -> Columns {
    Columns(columns.fold(0, |set, column| set | 1 << column))
}

/// An [`Access`] that announces the requested rows and returns no data.
struct PrefetchAccess<'r, S: Default + Send + Sync + 'static> {
    engine: &'r Engine<Unstamped<S>>,
    guard: &'r Guard,
    wanted: RefCell<&'r mut Vec<PrefetchedRow>>,
    determinism: RefCell<Determinism>,
    conflicts: Cell<u32>,
}

impl<S: Default + Send + Sync + 'static> PrefetchAccess<'_, S> {
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

impl<S: Default + Send + Sync + 'static> Access for PrefetchAccess<'_, S> {
    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        let Some(table) = self.engine.tables.get(table.0 as usize) else { return };
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

    /// Runs a trial whose stretches take these times without and with announcing, every fourth one
    /// ten times as long. Returns whether the trial decides for announcing.
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
            let took = if trial.announces { with } else { without };
            now += Duration::from_micros(if n % 4 == 1 { 10 * took } else { took });
        }
        trial.announces
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
        trial.give_up();
        assert!((0..3 * TRIAL_INTERVAL).all(|_| !trial.next()));
    }
}
