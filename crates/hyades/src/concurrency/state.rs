//! State of a running transaction: rows read, gaps seen, writes buffered.

use super::ConcurrencyControl;
use super::known::KnownRows;
use super::sums::SumSet;
use crate::engine::RowIdBlock;
use crate::engine::active::ReaderTimes;
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
use hyades_platform::broken;
use hyades_platform::phase::{self, Phase};
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
    /// The ids of a call that was logged before its run: the record states the block. No ids if the
    /// record states no block.
    Stated(RowIdBlock),
}

/// Buffers that a session or a replay thread reuses between transactions.
pub(crate) struct Workspace {
    pub scratch: Vec<u8>,
    pub old_versions: OldVersionWriter,
    /// The usage that the session has added to the tables.
    pub usage: Arc<UsageCells>,
    /// Transactions for which overwritten versions are kept, found at commit.
    pub readers: ReaderTimes,
    /// Where rows are in the write set, and among the locks.
    known: KnownRows,
    /// Number of the newest savepoint.
    pub last_savepoint: u64,
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

    /// Bytes of the largest buffer, needed by the largest row or the largest transaction so far.
    pub fn room_bytes(&self) -> usize {
        self.scratch.capacity().max(self.known.bytes())
    }

    /// Frees the buffers. No transaction runs.
    pub fn free_room(&mut self) {
        (self.scratch, self.known) = (Vec::new(), KnownRows::new());
    }
}

/// Minimum number of operations between two checks of whether the reads are still current.
pub(crate) const CHECK_INTERVAL: u32 = 1024;

/// An entry of the read set.
pub struct ReadRow<'s, S> {
    pub record: &'s Record<S>,
    pub table: u32,
    /// The version word at the read.
    pub seen: u64,
    /// Whether the transaction overwrites the row; known once its write set is locked.
    pub overwritten: bool,
}

/// A row lock held under two-phase locking.
pub struct HeldLock<'s, S> {
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
    P::TELLS_BLIND_WRITES && !broken!(OverwrittenAsUnread)
}

/// The draws of a transaction that its replay as a command has to repeat.
pub(crate) struct Draws<'s> {
    pub row_ids: RowIds<'s>,
    /// Hidden row ids drawn by the transaction.
    pub row_ids_used: ArenaVec<'s, u64>,
    pub determinism: Determinism,
}

/// The changes of a transaction in indexes.
pub(crate) struct IndexChanges<'s, S> {
    pub links: ArenaVec<'s, Link<'s, S>>,
    pub stale: ArenaVec<'s, Stale<'s>>,
    /// Records inserted by this transaction under new keys.
    pub inserted: ArenaVec<'s, (u32, &'s Record<S>)>,
}

/// The announced accesses of a transaction.
pub(crate) struct Announced<'s> {
    /// Positions in ordered indexes; `None` until the transaction inserts or prefetches.
    pub places: Option<&'s mut IndexPositions<'s>>,
    /// Rows whose hash buckets are being prefetched.
    pub wanted: ArenaVec<'s, PrefetchedRow>,
}

/// When a running transaction is checked.
pub(crate) struct Checks {
    /// Operations since the last check of the reads, and the number at which the next check is due.
    pub operations: u32,
    pub check_at: u32,
    /// Operations after the first conflict.
    pub ignored: u32,
}

/// The state of a call whose record may be, or is, the call itself.
#[derive(Default)]
pub struct CallState {
    /// The record of the call may be the call itself, which replay repeats.
    pub may_be_repeated: bool,
    /// The slots that the call may access, if the call was logged before its run.
    pub stated_slots: Option<u64>,
    /// The draws of a call logged before its run that the record does not state.
    pub lacks: Drawn,
    /// The abort that ends a call logged before its run, whatever the body returns.
    pub refused: Option<Abort>,
}

/// State of a running transaction: the part of every concurrency control, and the control's own
/// part.
pub struct TxnState<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> {
    pub arena: &'s Bump,
    pub guard: &'s Guard,
    pub stamp: &'s mut P::TxnStamp,
    /// The concurrency control's own part.
    pub control: C::Txn<'s>,
    pub reads: ArenaVec<'s, ReadRow<'s, C::Row>>,
    pub held: ArenaVec<'s, HeldLock<'s, C::Row>>,
    pub gaps: ArenaVec<'s, Gap<'s, C::Row>>,
    /// Where gaps are in `gaps`.
    pub gap_places: GapPlaces,
    pub writes: ArenaVec<'s, Write<'s, C::Row>>,
    /// The sums of a transaction that has read sums, or changes them.
    pub(crate) sums: Option<Box<SumSet<'s, C::Row>>>,
    pub index_changes: IndexChanges<'s, C::Row>,
    /// The row found last, often accessed again: read, then written.
    pub last_found: Option<(u32, &'s Record<C::Row>)>,
    pub announced: Announced<'s>,
    pub draws: Draws<'s>,
    /// Highest version read or about to be overwritten.
    pub max_tid: Tid,
    /// Whether the transaction had any operation except blind writes.
    pub has_read: bool,
    /// An operation met a conflict. The transaction runs again, whatever the body returns.
    pub conflict: bool,
    pub rolled_back: bool,
    /// An operation has written, or would have written without a failure.
    pub is_writer: bool,
    pub checks: Checks,
    /// Valid savepoints: number, and length of `writes` at creation.
    pub savepoints: ArenaVec<'s, (u64, usize)>,
    /// Buffers of the session.
    pub workspace: &'s mut Workspace,
    pub call: CallState,
}

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> TxnState<'s, C, P> {
    #[inline(always)]
    pub fn new(
        arena: &'s Bump,
        guard: &'s Guard,
        stamp: &'s mut P::TxnStamp,
        control: C::Txn<'s>,
        workspace: &'s mut Workspace,
        row_ids: RowIds<'s>,
        determinism: Determinism,
    ) -> Self {
        workspace.known.begin();
        TxnState {
            arena,
            guard,
            stamp,
            control,
            reads: ArenaVec::with_capacity_in(64, arena),
            held: ArenaVec::with_capacity_in(64, arena),
            gaps: ArenaVec::with_capacity_in(16, arena),
            gap_places: GapPlaces::default(),
            writes: ArenaVec::with_capacity_in(32, arena),
            sums: None,
            index_changes: IndexChanges {
                links: ArenaVec::new_in(arena),
                stale: ArenaVec::new_in(arena),
                inserted: ArenaVec::with_capacity_in(4, arena),
            },
            last_found: None,
            announced: Announced { places: None, wanted: ArenaVec::with_capacity_in(32, arena) },
            draws: Draws { row_ids, row_ids_used: ArenaVec::new_in(arena), determinism },
            max_tid: Tid::NONE,
            has_read: false,
            conflict: false,
            rolled_back: false,
            is_writer: false,
            checks: Checks { operations: 0, check_at: CHECK_INTERVAL, ignored: 0 },
            savepoints: ArenaVec::new_in(arena),
            workspace,
            call: CallState::default(),
        }
    }

    /// Rolls back a call that was logged before its run: the call has drawn a value that the record
    /// does not state.
    #[cold]
    pub fn lack(&mut self, drawn: Drawn) {
        if self.conflict && self.call.lacks == Drawn::NOTHING {
            // The call has met a conflict before, and runs again.
            return;
        }
        self.call.lacks = self.call.lacks.with(drawn);
        self.meet_conflict();
    }

    /// Aborts a call that was logged before its run, whatever the body returns.
    #[cold]
    pub fn refuse(&mut self, abort: Abort) -> Result<(), Abort> {
        Err(*self.call.refused.get_or_insert(abort))
    }

    /// Returns the index in `writes` of the latest write of this row.
    #[inline]
    pub fn own_write(&self, record: &Record<C::Row>) -> Option<usize> {
        let known = self.workspace.known.get(record)?;
        (known.write as usize).checked_sub(1)
    }

    /// Returns the index in `held` of the lock on this row.
    #[inline]
    pub fn own_lock(&self, record: &Record<C::Row>) -> Option<usize> {
        let known = self.workspace.known.get(record)?;
        (known.held as usize).checked_sub(1)
    }

    /// Adds an acquired lock, of a row that is not read yet.
    #[inline]
    pub fn push_lock(&mut self, table: u32, record: &'s Record<C::Row>, writer: bool) {
        self.held.push(HeldLock { record, table, writer, is_read: false, overwritten: false });
        self.workspace.known.entry(record).held = self.held.len() as u32;
    }

    /// Adds a write, which replaces an earlier write of the same row.
    pub fn push_write(&mut self, table: u32, record: &'s Record<C::Row>, pending: Pending<'s>) {
        let known = self.workspace.known.entry(record);
        let replaces = known.write.checked_sub(1);
        known.write = self.writes.len() as u32 + 1;
        if let Some(at) = replaces {
            self.writes[at as usize].superseded = true;
        }
        let base = Tid::NONE;
        self.writes.push(Write { record, table, pending, base, replaces, superseded: false });
    }

    /// Removes the writes from index `len` on and restores the writes replaced by them.
    pub fn truncate_writes(&mut self, len: usize) {
        while self.writes.len() > len {
            let write = self.writes.pop().expect("it is longer");
            self.workspace.known.entry(write.record).write = write.replaces.map_or(0, |at| at + 1);
            if let Some(at) = write.replaces {
                self.writes[at as usize].superseded = false;
            }
        }
        self.rolled_back = true;
    }

    /// Returns the row after write `at`; `None` if the row is absent then.
    pub fn own_row(&self, at: usize, table: &TableData<C::Row>) -> Result<Option<&'s [u8]>, Abort> {
        let write = &self.writes[at];
        match write.pending {
            Pending::Put(row) => Ok(Some(row)),
            Pending::Delete => Ok(None),
            Pending::Delta(_, delta) => {
                // The row under the delta is in the read set or locked.
                let mut row = Vec::with_capacity(write.record.row_len());
                C::read_base(self, table, write.record, &mut row);
                if !table.layout.is_valid(&row) {
                    // Torn by a concurrent writer: validation would fail anyway.
                    return Err(Abort::Conflict);
                }
                apply_delta(&table.layout, &mut row, delta)?;
                Ok(Some(self.arena.alloc_slice_copy(&row)))
            }
        }
    }

    /// Whether every gap seen is unchanged, and every sum.
    pub fn gaps_are_current(&self) -> bool {
        self.gaps.iter().all(Gap::is_current)
            && self.sums.as_ref().is_none_or(|sums| sums.are_current())
    }

    /// Whether the transaction has seen gaps, or sums.
    pub fn has_seen_gaps(&self) -> bool {
        !self.gaps.is_empty() || self.sums.as_ref().is_some_and(|sums| sums.has_read())
    }

    /// Folds the metadata of a row or gap read: the hooks of the protocol and the control.
    #[inline(always)]
    pub fn observe_read(&mut self, protocol: &P, row: &C::Row) {
        C::observe_read(row, &mut self.control);
        protocol.observe_read(C::stamp(row), self.stamp);
    }

    /// Like [`TxnState::observe_read`], for an overwritten row, or an entered gap.
    #[inline(always)]
    pub fn observe_write(&mut self, protocol: &P, row: &C::Row) {
        C::observe_write(row, &mut self.control);
        protocol.observe_write(C::stamp(row), self.stamp);
    }

    /// Folds the stamps of the rows read or locked into the transaction's own stamp. If
    /// `overwrites`, the write set is locked and its rows are marked as overwritten. Under
    /// two-phase locking the stamps of the write set are folded here as well; under Silo locking
    /// has folded them, except as rows read, where blind writes matter.
    #[inline(always)]
    pub fn observe(&mut self, protocol: &P, overwrites: bool) {
        let _measured = phase::enter(Phase::Tracking);
        let own_write =
            |record| self.workspace.known.get(record).is_some_and(|known| known.write != 0);
        for read in &mut self.reads {
            let is_locked = || read.record.word.load(Ordering::Relaxed) & word::LOCKED != 0;
            read.overwritten = overwrites && is_locked() && own_write(read.record);
            if !read.overwritten || tells_blind_writes::<P>() {
                C::observe_read(&read.record.stamp, &mut self.control);
                protocol.observe_read(C::stamp(&read.record.stamp), self.stamp);
            }
        }
        self.observe_held(protocol, overwrites);
    }

    /// The part of [`TxnState::observe`] that concerns locks.
    #[inline(always)]
    pub fn observe_held(&mut self, protocol: &P, overwrites: bool) {
        let own_write =
            |record| self.workspace.known.get(record).is_some_and(|known| known.write != 0);
        for held in &mut self.held {
            held.overwritten = overwrites && held.writer && own_write(held.record);
            if held.overwritten {
                C::observe_write(&held.record.stamp, &mut self.control);
                protocol.observe_write(C::stamp(&held.record.stamp), self.stamp);
            }
            // A row locked for writing but not written counts as read.
            if !held.overwritten || (tells_blind_writes::<P>() && held.is_read) {
                C::observe_read(&held.record.stamp, &mut self.control);
                protocol.observe_read(C::stamp(&held.record.stamp), self.stamp);
            }
        }
    }

    /// Marks the rows of the read set that the transaction overwrites.
    pub fn mark_overwritten(&mut self) {
        for read in &mut self.reads {
            let known = self.workspace.known.get(read.record);
            read.overwritten = known.is_some_and(|known| known.write != 0);
        }
    }

    /// Remembers a conflict: the transaction runs again, and its next operation fails.
    #[cold]
    pub fn meet_conflict(&mut self) {
        self.conflict = true;
        self.checks.check_at = 0;
    }

    /// The writes that no later write supersedes.
    pub fn final_writes(&self) -> impl Iterator<Item = &Write<'s, C::Row>> {
        final_writes(&self.writes)
    }
}
