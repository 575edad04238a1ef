//! What a transaction remembers until it ends: what it read, which gaps it saw, what it will write.

use super::known::KnownRows;
use crate::engine::RowIdBlock;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::record::{Change, RecordHead};
use crate::storage::descents::IndexPositions;
use crate::storage::gap::Gap;
use crate::storage::layout::Layout;
use crate::storage::record::{Record, word};
use crate::storage::row::{Assignments, apply_delta, push_varint};
use crate::storage::secondary::IndexEntry;
use crate::storage::table::TableData;
use crate::storage::wanted::Wanted;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use crossbeam_epoch::Guard;
use hyades_platform::random::Random;
use std::sync::atomic::Ordering;

/// A row's pending change.
#[derive(Clone, Copy)]
pub(crate) enum Pending<'s> {
    /// The whole row.
    Put(&'s [u8]),
    /// Changed columns: their set, and the delta.
    Delta(u64, &'s [u8]),
    Delete,
}

pub(crate) struct Write<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    pub pending: Pending<'s>,
    /// The version that the write follows; known once the row is locked.
    pub base: u64,
    /// The earlier write of the same row that this one replaces.
    pub replaces: Option<u32>,
    pub superseded: bool,
}

/// An index entry that the transaction relies on until it ends.
pub(crate) struct Link<'s, S> {
    pub table: u32,
    pub index: u16,
    pub entry: &'s IndexEntry<S>,
    /// The transaction has put it in; otherwise it was there.
    pub fresh: bool,
}

/// An entry that will be stale once the transaction has committed.
pub(crate) struct Stale<'s> {
    pub table: u32,
    pub index: u16,
    pub key: &'s [u8],
}

/// Time and randomness, taken once and written to a command's record if they were used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Determinism {
    pub time_us: Option<i64>,
    pub seed: Option<u64>,
    /// How many random numbers were drawn.
    pub drawn: u64,
}

impl Determinism {
    /// What a command's record says of them.
    pub fn recorded(head: &RecordHead) -> Self {
        Determinism { time_us: head.time_us, seed: head.seed, drawn: 0 }
    }

    /// The next random number; `fresh` gives a seed.
    pub fn random(&mut self, fresh: impl FnOnce() -> u64) -> u64 {
        let seed = *self.seed.get_or_insert_with(fresh);
        self.drawn += 1;
        split_mix(seed.wrapping_add(self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014: the
/// finaliser. Its numbers are part of what command replay repeats, so it may never change.
fn split_mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Where hidden row ids come from.
pub(crate) enum RowIds<'s> {
    /// A running database gives out the next ones.
    Fresh(&'s mut RowIdBlock),
    /// A replayed command takes those that its record carries.
    Recorded(std::slice::Iter<'s, u64>),
}

/// Working memory that a session, or a replaying thread, keeps between transactions.
pub(crate) struct Workspace {
    pub scratch: Vec<u8>,
    known: KnownRows,
    /// The number of the savepoint that was given out last.
    last_savepoint: u64,
}

impl Workspace {
    pub fn new() -> Self {
        // Sessions begin at numbers far from each other, so that one's savepoints are not
        // another's.
        let last_savepoint = Random::from_entropy().next_u64() >> 1;
        Workspace { scratch: Vec::new(), known: KnownRows::new(), last_savepoint }
    }
}

/// A transaction looks after at least so many operations whether what it has seen is still current.
pub(crate) const CHECK_INTERVAL: u32 = 1024;

/// A row that was read.
pub(crate) struct ReadRow<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    /// The version word then.
    pub seen: u64,
    /// The transaction overwrites it: known once its write set is locked.
    pub overwritten: bool,
}

/// A lock that is held, under two-phase locking.
pub(crate) struct HeldLock<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    pub writer: bool,
    /// The transaction overwrites it: known once it commits.
    pub overwritten: bool,
}

pub(crate) struct TxnState<'s, P: LoggingProtocol> {
    pub arena: &'s Bump,
    pub guard: &'s Guard,
    pub stamp: &'s mut P::TxnStamp,
    pub reads: ArenaVec<'s, ReadRow<'s, P::RowStamp>>,
    pub held: ArenaVec<'s, HeldLock<'s, P::RowStamp>>,
    pub gaps: ArenaVec<'s, Gap<'s, P::RowStamp>>,
    pub writes: ArenaVec<'s, Write<'s, P::RowStamp>>,
    pub links: ArenaVec<'s, Link<'s, P::RowStamp>>,
    pub stale: ArenaVec<'s, Stale<'s>>,
    /// Records that this transaction put under keys that had none.
    pub placed: ArenaVec<'s, (u32, &'s Record<P::RowStamp>)>,
    /// The row found last, which is often wanted again: read, then written.
    pub last_found: Option<(u32, &'s Record<P::RowStamp>)>,
    /// Places in ordered indexes, if it has inserted or announced something.
    pub places: Option<&'s mut IndexPositions<'s>>,
    /// Rows whose buckets are on their way to the cache.
    pub wanted: ArenaVec<'s, Wanted>,
    /// The row ids given out.
    pub row_ids_used: ArenaVec<'s, u64>,
    pub row_ids: RowIds<'s>,
    pub determinism: Determinism,
    /// The highest version read or to be overwritten.
    pub max_tid: u64,
    /// Which rows are in `writes` and `held`.
    known: &'s mut KnownRows,
    /// An operation met a conflict: whatever the caller makes of it, the transaction runs again.
    pub conflict: bool,
    pub rolled_back: bool,
    /// Operations so far, and after how many of them the transaction looks whether what it saw is
    /// still current.
    pub operations: u32,
    pub check_at: u32,
    /// Operations after the first conflict.
    pub ignored: u32,
    /// The savepoints there are: their numbers, and how many writes there were.
    pub savepoints: ArenaVec<'s, (u64, usize)>,
    pub last_savepoint: &'s mut u64,
    /// Working memory, kept by the session.
    pub scratch: &'s mut Vec<u8>,
}

impl<'s, P: LoggingProtocol> TxnState<'s, P> {
    #[inline(always)]
    pub fn new(
        arena: &'s Bump,
        guard: &'s Guard,
        stamp: &'s mut P::TxnStamp,
        workspace: &'s mut Workspace,
        row_ids: RowIds<'s>,
        determinism: Determinism,
    ) -> Self {
        let Workspace { scratch, known, last_savepoint } = workspace;
        known.begin();
        TxnState {
            arena,
            guard,
            stamp,
            reads: ArenaVec::with_capacity_in(64, arena),
            held: ArenaVec::with_capacity_in(64, arena),
            gaps: ArenaVec::with_capacity_in(16, arena),
            writes: ArenaVec::with_capacity_in(32, arena),
            links: ArenaVec::new_in(arena),
            stale: ArenaVec::new_in(arena),
            placed: ArenaVec::new_in(arena),
            last_found: None,
            places: None,
            wanted: ArenaVec::with_capacity_in(32, arena),
            row_ids_used: ArenaVec::new_in(arena),
            row_ids,
            determinism,
            max_tid: 0,
            known,
            conflict: false,
            rolled_back: false,
            operations: 0,
            check_at: CHECK_INTERVAL,
            ignored: 0,
            savepoints: ArenaVec::new_in(arena),
            last_savepoint,
            scratch,
        }
    }

    /// The latest write of this row.
    #[inline]
    pub fn own_write(&self, record: &Record<P::RowStamp>) -> Option<usize> {
        let known = self.known.get(record)?;
        (known.write as usize).checked_sub(1)
    }

    /// The place in `held` of the lock on this row.
    #[inline]
    pub fn own_lock(&self, record: &Record<P::RowStamp>) -> Option<usize> {
        let known = self.known.get(record)?;
        (known.held as usize).checked_sub(1)
    }

    /// Adds a lock that was taken.
    #[inline]
    pub fn push_lock(&mut self, table: u32, record: &'s Record<P::RowStamp>, writer: bool) {
        self.held.push(HeldLock { record, table, writer, overwritten: false });
        self.known.entry(record).held = self.held.len() as u32;
    }

    /// Adds a write, replacing an earlier one of the same row.
    pub fn push_write(
        &mut self,
        table: u32,
        record: &'s Record<P::RowStamp>,
        pending: Pending<'s>,
    ) {
        let known = self.known.entry(record);
        let replaces = known.write.checked_sub(1);
        known.write = self.writes.len() as u32 + 1;
        if let Some(at) = replaces {
            self.writes[at as usize].superseded = true;
        }
        self.writes.push(Write { record, table, pending, base: 0, replaces, superseded: false });
    }

    /// Takes back the writes from `len` on.
    pub fn truncate_writes(&mut self, len: usize) {
        while self.writes.len() > len {
            let write = self.writes.pop().expect("it is longer");
            self.known.entry(write.record).write = write.replaces.map_or(0, |at| at + 1);
            if let Some(at) = write.replaces {
                self.writes[at as usize].superseded = false;
            }
        }
        self.rolled_back = true;
    }

    /// The row as it will be after write `at`; `None` if it will be absent.
    pub fn own_row(
        &self,
        at: usize,
        table: &TableData<P::RowStamp>,
        protocol: &P,
    ) -> Result<Option<&'s [u8]>, Abort> {
        let write = &self.writes[at];
        match write.pending {
            Pending::Put(row) => Ok(Some(row)),
            Pending::Delete => Ok(None),
            Pending::Delta(_, delta) => {
                // The row below the delta is protected: it was read, or is locked.
                let mut row = Vec::with_capacity(write.record.row_len());
                match protocol.versions(self.stamp) {
                    Some((versions, view)) => drop(versions.read(write.record, view, &mut row)),
                    None => write.record.read_row(&mut row),
                }
                if !table.layout.is_valid(&row) {
                    // Torn by a writer that came in between: validation would fail anyway.
                    return Err(Abort::Conflict);
                }
                apply_delta(&table.layout, &mut row, delta)?;
                Ok(Some(self.arena.alloc_slice_copy(&row)))
            }
        }
    }

    /// Whether every gap that was seen is as it was.
    pub fn gaps_are_current(&self) -> bool {
        self.gaps.iter().all(Gap::is_current)
    }

    /// Folds the stamps of what was read, or is locked, into the transaction's own. Unless the
    /// transaction writes nothing after all, its write set is locked: what is in it is told apart
    /// (and, where locks are held, folded as what a writer overwrites).
    #[inline(always)]
    pub fn observe(&mut self, protocol: &P, overwrites: bool) {
        let own_write = |record| self.known.get(record).is_some_and(|known| known.write != 0);
        for read in &mut self.reads {
            let is_locked = || read.record.word.load(Ordering::Relaxed) & word::LOCKED != 0;
            read.overwritten = overwrites && is_locked() && own_write(read.record);
            if !read.overwritten {
                protocol.observe_read(&read.record.stamp, self.stamp);
            }
        }
        for held in &mut self.held {
            held.overwritten = overwrites && held.writer && own_write(held.record);
            if held.overwritten {
                protocol.observe_write(&held.record.stamp, self.stamp);
            } else {
                protocol.observe_read(&held.record.stamp, self.stamp);
            }
        }
    }

    /// Whether it was given something that a command's record has to repeat beside its arguments.
    #[inline]
    pub fn has_drawn(&self) -> bool {
        let given = &self.determinism;
        given.time_us.is_some() || given.seed.is_some() || !self.row_ids_used.is_empty()
    }

    /// A checksum of what the transaction writes: tables, keys, and what becomes of the rows. The
    /// same call of a deterministic procedure on the same rows gives the same.
    #[cold]
    pub fn outcome(&self, tables: &[TableData<P::RowStamp>]) -> u32 {
        self.final_writes().fold(0, |sum, write| {
            let (kind, content): (u8, &[u8]) = match write.pending {
                Pending::Put(row) => (0, row),
                Pending::Delta(_, delta) => (1, delta),
                Pending::Delete => (2, &[]),
            };
            let key = write.record.key();
            let sum =
                crc32c::crc32c_append(sum, &tables[write.table as usize].log_id.to_le_bytes());
            let sum = crc32c::crc32c_append(sum, &(key.len() as u32).to_le_bytes());
            let sum = crc32c::crc32c_append(sum, key);
            crc32c::crc32c_append(crc32c::crc32c_append(sum, &[kind]), content)
        })
    }

    /// The writes that count.
    pub fn final_writes(&self) -> impl Iterator<Item = &Write<'s, P::RowStamp>> {
        self.writes.iter().filter(|w| !w.superseded)
    }
}

impl<S> Write<'_, S> {
    /// The write as a data record holds it.
    pub fn change(&self) -> Change<'_> {
        match self.pending {
            Pending::Put(row) => Change::Put(row),
            Pending::Delta(_, delta) => Change::Delta { base: self.base, delta },
            Pending::Delete => Change::Delete,
        }
    }

    /// Writes the change into the row; the caller holds its write protection. Returns whether the
    /// row is there afterwards.
    pub fn install(&self, layout: &Layout, guard: &Guard, scratch: &mut Vec<u8>) -> bool {
        match self.pending {
            Pending::Put(row) => self.record.store_row(row, guard),
            Pending::Delta(columns, delta) => {
                install_delta(self.record, layout, columns, delta, guard, scratch)
            }
            Pending::Delete => return false,
        }
        true
    }
}

/// Writes changed columns into a row whose write protection the caller holds.
pub(crate) fn install_delta<S>(
    record: &Record<S>,
    layout: &Layout,
    columns: u64,
    delta: &[u8],
    guard: &Guard,
    scratch: &mut Vec<u8>,
) {
    if columns & layout.variable_set == 0 && !layout.has_nulls {
        for (column, bytes) in Assignments::new(layout, delta) {
            let at = layout.columns[column as usize].offset as usize;
            record.store_range(at, bytes.expect("the table has no nulls"));
        }
        return;
    }
    scratch.clear();
    record.read_row(scratch);
    apply_delta(layout, scratch, delta).expect("the row's size was checked when it was written");
    record.store_row(scratch, guard);
}

/// The delta that has the effect of `first` and then `second`.
pub(crate) fn merge_deltas<'s>(
    layout: &Layout,
    first: &[u8],
    second: &[u8],
    second_columns: u64,
    arena: &'s Bump,
) -> &'s [u8] {
    let mut out = Vec::with_capacity(first.len() + second.len());
    let kept = Assignments::new(layout, first).filter(|(c, _)| second_columns >> c & 1 == 0);
    let mut all: Vec<_> = kept.chain(Assignments::new(layout, second)).collect();
    all.sort_unstable_by_key(|(column, _)| *column);
    push_varint(&mut out, all.len() as u64);
    for (column, bytes) in all {
        push_varint(&mut out, (column as u64) << 1 | bytes.is_none() as u64);
        if let Some(bytes) = bytes {
            if layout.columns[column as usize].kind.width().is_none() {
                push_varint(&mut out, bytes.len() as u64);
            }
            out.extend_from_slice(bytes);
        }
    }
    arena.alloc_slice_copy(&out)
}
