//! State of a running transaction: the rows it read, the gaps it saw, the writes it buffers.

use super::earlier::EarlierVersions;
use super::known::KnownRows;
use crate::engine::RowIdBlock;
use crate::engine::active::ReaderTimes;
use crate::engine::snapshots::SnapshotState;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::determinism::{Determinism, Drawn};
use crate::logging::write::{Pending, Write, final_writes};
use crate::storage::descents::IndexPositions;
use crate::storage::gap::{Gap, GapPlaces};
use crate::storage::old_versions::OldVersionWriter;
use crate::storage::record::{Record, word};
use crate::storage::row::apply_delta;
use crate::storage::secondary::IndexEntry;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use crate::storage::usage::UsageCells;
use crate::storage::wanted::PrefetchedRow;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::random::Random;
use hyades_platform::reclaim::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Source of hidden row ids.
pub(crate) enum RowIds<'s> {
    /// New ids, from a running database.
    Fresh(&'s mut RowIdBlock),
    /// The ids stated in the record of a replayed command.
    Recorded(std::slice::Iter<'s, u64>),
    /// Those of a call that was logged before it runs: its record states where they begin. None if
    /// it states nothing.
    Stated(RowIdBlock),
}

/// Buffers that a session or a replay thread reuses between transactions.
pub(crate) struct Workspace {
    pub scratch: Vec<u8>,
    pub old_versions: OldVersionWriter,
    /// What it has added to the tables.
    pub usage: Arc<UsageCells>,
    readers: ReaderTimes,
    known: KnownRows,
    /// Number of the newest savepoint.
    last_savepoint: u64,
}

impl Workspace {
    pub fn new(usage: Arc<UsageCells>) -> Self {
        // Sessions start at numbers far apart, so that a savepoint of one is not valid in another.
        let last_savepoint = Random::from_entropy().next_u64() >> 1;
        Workspace {
            scratch: Vec::new(),
            old_versions: OldVersionWriter::default(),
            usage,
            readers: ReaderTimes::default(),
            known: KnownRows::new(),
            last_savepoint,
        }
    }

    /// Bytes of its largest buffer: the largest row, or the largest transaction, has needed them.
    pub fn room_bytes(&self) -> usize {
        self.scratch.capacity().max(self.known.bytes())
    }

    /// Frees these buffers. No transaction runs.
    pub fn free_room(&mut self) {
        (self.scratch, self.known) = (Vec::new(), KnownRows::new());
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
    /// Whether the transaction has read the row, if only to learn whether it exists. Kept where
    /// blind writes matter.
    pub is_read: bool,
    /// Whether the transaction overwrites the row; known at commit.
    pub overwritten: bool,
}

/// Whether a row that a transaction has read and overwrites is observed as both.
#[inline(always)]
fn tells_blind_writes<P: LoggingProtocol>() -> bool {
    P::TELLS_BLIND_WRITES && !mutation::is(Mutation::OverwrittenAsUnread)
}

pub(crate) struct TxnState<'s, P: LoggingProtocol> {
    pub arena: &'s Bump,
    pub guard: &'s Guard,
    pub stamp: &'s mut P::TxnStamp,
    pub reads: ArenaVec<'s, ReadRow<'s, P::RowStamp>>,
    pub held: ArenaVec<'s, HeldLock<'s, P::RowStamp>>,
    pub gaps: ArenaVec<'s, Gap<'s, P::RowStamp>>,
    /// Where gaps are in `gaps`.
    pub gap_places: GapPlaces,
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
    pub max_tid: Tid,
    /// Whether it had any operation except blind writes.
    pub has_read: bool,
    /// The row versions that it reads and its view of them, in replays that keep several versions.
    pub versions: Option<EarlierVersions<'s>>,
    /// What it reads, if that is not the present.
    pub snapshot: Option<&'s SnapshotState>,
    /// Where rows are in `writes` and `held`.
    known: &'s mut KnownRows,
    /// An operation met a conflict. The transaction runs again, whatever the body returns.
    pub conflict: bool,
    pub rolled_back: bool,
    /// An operation has written, or would have if it had not failed.
    pub is_writer: bool,
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
    /// Where it keeps what it overwrites.
    pub old_versions: &'s mut OldVersionWriter,
    /// What it adds to the tables.
    pub usage: &'s UsageCells,
    /// Transactions for which it keeps that, found at commit.
    pub readers: &'s mut ReaderTimes,
    /// Its slot among the active transactions, and what it reads as of, under a concurrency control
    /// that has these.
    pub slot: u32,
    pub as_of: Tid,
    /// It has looked whether a key of a unique index is free.
    pub checks_uniqueness: bool,
    /// Whether it may wait for its turn. Not if it must not wait at all, or if its thread is in the
    /// middle of another transaction, for which others may wait.
    pub may_wait: bool,
    /// The partition that it holds for replicated rows alone, for which any one would do.
    pub any_partition: u64,
    /// It has stated that it needs all partitions: it enters them when it first writes.
    pub states_all: bool,
    /// It is a call whose record may be the call itself, which replay repeats.
    pub may_be_repeated: bool,
    /// The slots that it may access, if it is a call that was logged before it runs.
    pub stated_slots: Option<u64>,
    /// What such a call has drawn that its record does not state.
    pub lacks: Drawn,
    /// Why such a call ends with an abort, whatever its body returns.
    pub refused: Option<Abort>,
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
        let Workspace { scratch, old_versions, usage, readers, known, last_savepoint } = workspace;
        known.begin();
        TxnState {
            arena,
            guard,
            stamp,
            reads: ArenaVec::with_capacity_in(64, arena),
            held: ArenaVec::with_capacity_in(64, arena),
            gaps: ArenaVec::with_capacity_in(16, arena),
            gap_places: GapPlaces::default(),
            writes: ArenaVec::with_capacity_in(32, arena),
            links: ArenaVec::new_in(arena),
            stale: ArenaVec::new_in(arena),
            inserted: ArenaVec::with_capacity_in(4, arena),
            last_found: None,
            places: None,
            wanted: ArenaVec::with_capacity_in(32, arena),
            row_ids_used: ArenaVec::new_in(arena),
            row_ids,
            determinism,
            max_tid: Tid::NONE,
            has_read: false,
            versions: None,
            snapshot: None,
            known,
            conflict: false,
            rolled_back: false,
            is_writer: false,
            operations: 0,
            check_at: CHECK_INTERVAL,
            ignored: 0,
            savepoints: ArenaVec::new_in(arena),
            last_savepoint,
            scratch,
            old_versions,
            usage,
            readers,
            slot: 0,
            as_of: Tid::NONE,
            checks_uniqueness: false,
            may_wait: true,
            any_partition: 0,
            states_all: false,
            may_be_repeated: false,
            stated_slots: None,
            lacks: Drawn::NOTHING,
            refused: None,
        }
    }

    /// A call that was logged before it runs has drawn what its record does not state: it is rolled
    /// back.
    #[cold]
    pub fn lack(&mut self, drawn: Drawn) {
        if self.conflict && self.lacks == Drawn::NOTHING {
            // It has met a conflict before, and runs again.
            return;
        }
        self.lacks = self.lacks.with(drawn);
        self.meet_conflict();
    }

    /// Ends such a call with an abort, whatever its body makes of it.
    #[cold]
    pub fn refuse(&mut self, abort: Abort) -> Result<(), Abort> {
        Err(*self.refused.get_or_insert(abort))
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

    /// Adds an acquired lock, of a row that is not read yet.
    #[inline]
    pub fn push_lock(&mut self, table: u32, record: &'s Record<P::RowStamp>, writer: bool) {
        self.held.push(HeldLock { record, table, writer, is_read: false, overwritten: false });
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
        let base = Tid::NONE;
        self.writes.push(Write { record, table, pending, base, replaces, superseded: false });
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
    ) -> Result<Option<&'s [u8]>, Abort> {
        let write = &self.writes[at];
        match write.pending {
            Pending::Put(row) => Ok(Some(row)),
            Pending::Delete => Ok(None),
            Pending::Delta(_, delta) => {
                // The row under the delta is in the read set or locked.
                let mut row = Vec::with_capacity(write.record.row_len());
                match self.versions {
                    Some(versions) => {
                        let (to, scratch) = (self.arena, &mut Vec::new());
                        let read = versions.read(table, write.record, to, scratch, self.guard);
                        row.extend_from_slice(read.unwrap_or_default());
                    }
                    None => table.read_row(write.record, &mut row),
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
    /// were locked, except as rows read, where blind writes matter.
    #[inline(always)]
    pub fn observe(&mut self, protocol: &P, overwrites: bool) {
        let own_write = |record| self.known.get(record).is_some_and(|known| known.write != 0);
        for read in &mut self.reads {
            let is_locked = || read.record.word.load(Ordering::Relaxed) & word::LOCKED != 0;
            read.overwritten = overwrites && is_locked() && own_write(read.record);
            if !read.overwritten || tells_blind_writes::<P>() {
                protocol.observe_read(&read.record.stamp, self.stamp);
            }
        }
        self.observe_held(protocol, overwrites);
    }

    /// The part of [`TxnState::observe`] that concerns locks.
    #[inline(always)]
    pub fn observe_held(&mut self, protocol: &P, overwrites: bool) {
        let own_write = |record| self.known.get(record).is_some_and(|known| known.write != 0);
        for held in &mut self.held {
            held.overwritten = overwrites && held.writer && own_write(held.record);
            if held.overwritten {
                protocol.observe_write(&held.record.stamp, self.stamp);
            }
            // A row that was locked for writing and is not written counts as read.
            if !held.overwritten || (tells_blind_writes::<P>() && held.is_read) {
                protocol.observe_read(&held.record.stamp, self.stamp);
            }
        }
    }

    /// Marks the rows of the read set that the transaction overwrites.
    pub fn mark_overwritten(&mut self) {
        for read in &mut self.reads {
            let known = self.known.get(read.record);
            read.overwritten = known.is_some_and(|known| known.write != 0);
        }
    }

    /// Remembers a conflict: the transaction runs again, and its next operation fails.
    #[cold]
    pub fn meet_conflict(&mut self) {
        self.conflict = true;
        self.check_at = 0;
    }

    /// The writes that no later write supersedes.
    pub fn final_writes(&self) -> impl Iterator<Item = &Write<'s, P::RowStamp>> {
        final_writes(&self.writes)
    }
}
