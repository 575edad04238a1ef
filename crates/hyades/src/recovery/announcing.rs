//! Looking ahead: the rows of the next records come from memory while others are replayed.
//!
//! Replay waits for memory most of the time, and a log says what comes next. So records are announced
//! in small groups: first the buckets of all rows that they touch are loaded, then the rows, and then
//! they are replayed, each while the groups before and behind are elsewhere on that way. Nothing
//! follows from an announcement but that.
//!
//! A data record names its rows. Those of a command only its procedure knows: it is run ahead of its
//! time over an [`Access`] whose every operation ends with a conflict, as any operation may. So it gets
//! to its first operation, having announced what it does itself, and nothing happens in the database.

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
use crate::storage::wanted::Wanted;
use crate::transaction::access::{Access, Index, Savepoint, Table, Transaction};
use crossbeam_epoch::Guard;
use hyades_wal::{Chunk, Lsn};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// A group of records that is announced together has so many records at most.
const RECORDS: usize = 4;

/// And ends with the record that makes it so many rows.
const ROWS: usize = 16;

/// Whether announcing pays is tried out: stretches of so many records are replayed with and without it,
const STRETCH: u32 = 128;

/// so many of each,
const STRETCHES: usize = 8;

/// and what was faster is kept to for so many records.
const SETTLED: u32 = 1 << 15;

/// A thread that had to wait for others announces so many records nothing: whoever waits for what it replays
/// must not wait for its announcements as well.
const HOLD: u32 = 64;

/// So many conflicts a procedure may go on after when it is begun ahead of its time.
const MOST_CONFLICTS: u32 = 1000;

/// One thread's means of looking ahead: while a group is replayed, the rows of the next one come, and the
/// buckets of the one after that.
#[derive(Default)]
pub(crate) struct Announcer {
    /// Rows of the group announced last, whose buckets are on their way.
    wanted: Vec<Wanted>,
    /// Results of procedures, which nobody wants.
    result: Vec<u8>,
    /// What has been announced of one stream: its number, from where, to where; and where the last two groups
    /// begin.
    stream: u32,
    from: Lsn,
    groups: [Lsn; 2],
    to: Lsn,
    /// Records that are not announced, whatever the trial says.
    hold: u32,
    trial: Trial,
}

/// Finds out whether announcing pays. It does not where rows are in the cache anyway, and where procedures
/// announce many rows themselves or compute for long before they touch one.
#[derive(Default)]
struct Trial {
    announces: bool,
    /// A procedure panicked at its conflict, or tried again and again: its messages, and its time, are not worth it.
    gave_up: bool,
    /// Records left of the stretch, or until the next trial.
    left: u32,
    /// When the stretch began; none between trials.
    began: Option<Instant>,
    /// How long stretches took without announcing and with.
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

    /// Nothing is announced any more.
    fn give_up(&mut self) {
        (self.announces, self.gave_up) = (false, true);
    }

    /// A stretch ends, or a trial begins.
    #[cold]
    fn turn(&mut self, now: Instant) {
        if self.gave_up {
            self.left = SETTLED;
            return;
        }
        if let Some(began) = self.began.replace(now) {
            self.took[usize::from(self.announces)].push(now - began);
        }
        self.announces = !self.announces;
        self.left = STRETCH;
        if self.took.iter().all(|took| took.len() == STRETCHES) {
            // The longer half has waits in it.
            let [without, with] = std::mem::take(&mut self.took).map(|mut took| {
                took.sort_unstable();
                took[..STRETCHES / 2].iter().sum::<Duration>()
            });
            self.announces = with <= without;
            (self.left, self.began) = (SETTLED, None);
        }
    }
}

impl Announcer {
    /// The thread had to wait for others.
    pub fn waited(&mut self) {
        self.hold = HOLD;
    }

    /// The record of the stream that begins at `at` in the chunk is about to be replayed by this thread: sees
    /// to it that it was announced, and those behind it. False if it is not.
    #[inline]
    pub fn keep_ahead<S: Default + Send + Sync + 'static>(
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
            self.announce(replay, decoder, chunk, guard);
            self.groups[1] = self.to;
            self.announce(replay, decoder, chunk, guard);
        }
        self.groups = [self.groups[1], self.to];
        self.announce(replay, decoder, chunk, guard);
        true
    }

    /// Has the rows of the group announced last loaded, and announces the next.
    fn announce<S: Default + Send + Sync + 'static>(
        &mut self,
        replay: &ReplayContext<S>,
        decoder: &Decoder,
        chunk: &Chunk,
        guard: &Guard,
    ) {
        Wanted::fetch_all(&mut self.wanted, &replay.engine.tables, guard);
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
                self.wanted.extend(Wanted::announce(table, &key, columns, guard));
            }
            return;
        }
        if self.trial.gave_up {
            return;
        }
        // What is wrong with a record is found out when it is replayed.
        let Some(id) = take_varint(&mut body) else { return };
        let Ok(procedure) = replay.catalogue.procedure(id) else { return };
        self.result.clear();
        let access = Announcing {
            engine: &replay.engine,
            guard,
            wanted: RefCell::new(&mut self.wanted),
            determinism: RefCell::new(Determinism::recorded(head)),
            conflicts: Cell::new(0),
        };
        let run = || (procedure.body)(&Transaction::over(&access), body, &mut self.result);
        // Whatever comes of it. A panic that has nothing to do with the conflict comes again, and is
        // reported, when the record is replayed.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.trial.give_up();
        }
    }
}

fn columns_of(columns: impl Iterator<Item = u16>) -> Columns {
    Columns(columns.fold(0, |set, column| set | 1 << column))
}

/// Announces what it is asked for, and gives nothing.
struct Announcing<'r, S: Default + Send + Sync + 'static> {
    engine: &'r Engine<Unstamped<S>>,
    guard: &'r Guard,
    wanted: RefCell<&'r mut Vec<Wanted>>,
    determinism: RefCell<Determinism>,
    conflicts: Cell<u32>,
}

impl<S: Default + Send + Sync + 'static> Announcing<'_, S> {
    /// What every operation ends with. A procedure that tries again and again is ended here, as by a panic, but
    /// without its message.
    fn conflict(&self) -> Abort {
        self.conflicts.set(self.conflicts.get() + 1);
        if self.conflicts.get() > MOST_CONFLICTS {
            resume_unwind(Box::new("a procedure does not pass a conflict on"));
        }
        Abort::Conflict
    }
}

impl<S: Default + Send + Sync + 'static> Access for Announcing<'_, S> {
    fn prefetch(&self, table: Table, key: &[Value<'_>], columns: Columns) {
        let Some(table) = self.engine.tables.get(table.0 as usize) else { return };
        let mut wanted = KeyBytes::new();
        if table.encode_key(key, &mut wanted).is_ok() {
            let wanted = Wanted::announce(table, &wanted, columns, self.guard);
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

    /// Runs a trial in which a stretch takes so long without announcing and with, every fourth one ten times
    /// as long; returns what it settles for.
    fn settles(without: u64, with: u64) -> bool {
        let mut trial = Trial::default();
        let mut now = Instant::now();
        for n in 0.. {
            trial.turn(now);
            if trial.left == SETTLED {
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
        assert!((0..3 * SETTLED).all(|_| !trial.next()));
    }
}
