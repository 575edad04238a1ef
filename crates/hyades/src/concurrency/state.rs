//! State of a running transaction: the rows it read, the gaps it saw, the writes it buffers.

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
use crate::storage::wanted::PrefetchedRow;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use crossbeam_epoch::Guard;
use hyades_platform::random::Random;
use std::sync::atomic::Ordering;

/// Buffered change of a row.
#[derive(Clone, Copy)]
pub(crate) enum Pending<'s> {
    /// The whole row.
    Put(&'s [u8]),
    /// Changed columns: their set as a bit mask, and the encoded delta.
    Delta(u64, &'s [u8]),
    Delete,
}

pub(crate) struct Write<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    pub pending: Pending<'s>,
    /// TID of the version that the write follows; known once the row is locked.
    pub base: u64,
    /// Index in `writes` of the earlier write of the same row that this one replaces.
    pub replaces: Option<u32>,
    pub superseded: bool,
}

/// An index entry that stays pinned until the transaction ends.
pub(crate) struct Link<'s, S> {
    pub table: u32,
    pub index: u16,
    pub entry: &'s IndexEntry<S>,
    /// Whether the transaction inserted the entry; otherwise it existed before.
    pub fresh: bool,
}

/// An index entry that becomes stale when the transaction commits.
pub(crate) struct Stale<'s> {
    pub table: u32,
    pub index: u16,
    pub key: &'s [u8],
}

/// Time and random seed of a transaction, fixed when first used. A command's record states them if
/// they were used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Determinism {
    pub time_us: Option<i64>,
    pub seed: Option<u64>,
    /// Number of random numbers drawn.
    pub drawn: u64,
}

impl Determinism {
    /// Restores the values that a command's record states.
    pub fn recorded(head: &RecordHead) -> Self {
        Determinism { time_us: head.time_us, seed: head.seed, drawn: 0 }
    }

    /// Returns the next random number. `fresh` supplies the seed for the first one.
    pub fn random(&mut self, fresh: impl FnOnce() -> u64) -> u64 {
        let seed = *self.seed.get_or_insert_with(fresh);
        self.drawn += 1;
        split_mix(seed.wrapping_add(self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// Finaliser of a splittable generator (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). Command replay repeats its numbers, so it must never change.
fn split_mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Source of hidden row ids.
pub(crate) enum RowIds<'s> {
    /// New ids, from a running database.
    Fresh(&'s mut RowIdBlock),
    /// The ids stated in the record of a replayed command.
    Recorded(std::slice::Iter<'s, u64>),
}

/// Buffers that a session or a replay thread reuses between transactions.
pub(crate) struct Workspace {
    pub scratch: Vec<u8>,
    known: KnownRows,
    /// Number of the newest savepoint.
    last_savepoint: u64,
}

impl Workspace {
    pub fn new() -> Self {
        // Sessions start at numbers far apart, so that a savepoint of one is not valid in another.
        let last_savepoint = Random::from_entropy().next_u64() >> 1;
        Workspace { scratch: Vec::new(), known: KnownRows::new(), last_savepoint }
    }
}

/// Minimum number of operations between two checks of whether the reads are still current.
pub(crate) const CHECK_INTERVAL: u32 = 1024;

/// An entry of the read set.
pub(crate) struct ReadRow<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    /// The version word when it was read.
    pub seen: u64,
    /// Whether the transaction overwrites the row; known once its write set is locked.
    pub overwritten: bool,
}

/// A row lock held under two-phase locking.
pub(crate) struct HeldLock<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    pub writer: bool,
    /// Whether the transaction overwrites the row; known at commit.
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
    /// Records that this transaction inserted under new keys.
    pub inserted: ArenaVec<'s, (u32, &'s Record<P::RowStamp>)>,
    /// The row found last, which is often accessed again: read, then written.
    pub last_found: Option<(u32, &'s Record<P::RowStamp>)>,
    /// Positions in ordered indexes; `None` until the transaction inserts or prefetches.
    pub places: Option<&'s mut IndexPositions<'s>>,
    /// Announced rows whose hash buckets are being prefetched.
    pub wanted: ArenaVec<'s, PrefetchedRow>,
    /// Hidden row ids drawn by the transaction.
    pub row_ids_used: ArenaVec<'s, u64>,
    pub row_ids: RowIds<'s>,
    pub determinism: Determinism,
    /// Highest version read or about to be overwritten.
    pub max_tid: u64,
    /// Where rows are in `writes` and `held`.
    known: &'s mut KnownRows,
    /// An operation met a conflict. The transaction runs again, whatever the body returns.
    pub conflict: bool,
    pub rolled_back: bool,
    /// Operations since the last check of the reads, and how many of them make the next one due.
    pub operations: u32,
    pub check_at: u32,
    /// Operations after the first conflict.
    pub ignored: u32,
    /// Valid savepoints: number, and length of `writes` when it was created.
    pub savepoints: ArenaVec<'s, (u64, usize)>,
    pub last_savepoint: &'s mut u64,
    /// Buffer owned by the session.
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
            inserted: ArenaVec::new_in(arena),
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

    /// Returns the index in `writes` of the latest write of this row.
    #[inline]
    pub fn own_write(&self, record: &Record<P::RowStamp>) -> Option<usize> {
        let known = self.known.get(record)?;
        (known.write as usize).checked_sub(1)
    }

    /// Returns the index in `held` of the lock on this row.
    #[inline]
    pub fn own_lock(&self, record: &Record<P::RowStamp>) -> Option<usize> {
        let known = self.known.get(record)?;
        (known.held as usize).checked_sub(1)
    }

    /// Adds an acquired lock.
    #[inline]
    pub fn push_lock(&mut self, table: u32, record: &'s Record<P::RowStamp>, writer: bool) {
        self.held.push(HeldLock { record, table, writer, overwritten: false });
        self.known.entry(record).held = self.held.len() as u32;
    }

    /// Adds a write, which replaces an earlier one of the same row.
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

    /// Removes the writes from index `len` on and restores those that they replaced.
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

    /// Returns the row as it is after write `at`; `None` if it is absent then.
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
                // The row under the delta is in the read set or locked.
                let mut row = Vec::with_capacity(write.record.row_len());
                match protocol.versions(self.stamp) {
                    Some((versions, view)) => drop(versions.read(write.record, view, &mut row)),
                    None => write.record.read_row(&mut row),
                }
                if !table.layout.is_valid(&row) {
                    // Torn by a concurrent writer: validation would fail anyway.
                    return Err(Abort::Conflict);
                }
                apply_delta(&table.layout, &mut row, delta)?;
                Ok(Some(self.arena.alloc_slice_copy(&row)))
            }
        }
    }

    /// Whether every gap seen is unchanged.
    pub fn gaps_are_current(&self) -> bool {
        self.gaps.iter().all(Gap::is_current)
    }

    /// Folds the stamps of the rows read or locked into the transaction's own stamp. If
    /// `overwrites`, the write set is locked and its rows are marked as overwritten. Under
    /// two-phase locking their stamps are folded here as well; under Silo that was done when they
    /// were locked.
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

    /// Whether the transaction drew time, randomness or row ids, which a command's record has to
    /// state.
    #[inline]
    pub fn used_nondeterminism(&self) -> bool {
        let given = &self.determinism;
        given.time_us.is_some() || given.seed.is_some() || !self.row_ids_used.is_empty()
    }

    /// Checksum of the final writes: tables, keys, and new content. The same call of a
    /// deterministic procedure on the same rows yields the same value.
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

    /// The writes that no later write supersedes.
    pub fn final_writes(&self) -> impl Iterator<Item = &Write<'s, P::RowStamp>> {
        self.writes.iter().filter(|w| !w.superseded)
    }
}

impl<S> Write<'_, S> {
    /// Returns the write in the form of a data record.
    pub fn change(&self) -> Change<'_> {
        match self.pending {
            Pending::Put(row) => Change::Put(row),
            Pending::Delta(_, delta) => Change::Delta { base: self.base, delta },
            Pending::Delete => Change::Delete,
        }
    }

    /// Writes the change into the row; the caller holds its write protection. Returns whether the
    /// row exists afterwards.
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

/// Writes changed columns into a row; the caller holds its write protection.
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

/// Returns one delta with the effect of `first` followed by `second`.
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
