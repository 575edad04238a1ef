//! The transactions in progress under a concurrency control with several versions of a row: the
//! timestamp of each transaction's reads, and the timestamp of its imminent commit.
//!
//! One clock draws the timestamps, which are the TIDs: a commit gets the next timestamp, a reader
//! the last. The clock's epoch is the database's epoch, so that snapshots and checkpoints, which
//! are prefixes by epoch, are prefixes by timestamp too.
//!
//! A session has a *slot*. Two orders of steps, SeqCst unless a store says otherwise, make a reader
//! and a writer find each other (`research/model/src/versions.rs` visits every interleaving):
//!
//! - A reader announces a bound, the value of the clock, and then reads the clock again for its
//!   timestamp. A writer draws its timestamp, then looks at the slots. If the writer does not see
//!   the bound of a reader, the reader's timestamp is not below the writer's, and the reader needs
//!   no row overwritten by the writer. For a reader with only a bound announced, the writer keeps
//!   everything.
//! - A writer has marked the rows to be written with the number of its slot. The writer announces
//!   the draw of a timestamp, draws the timestamp, and announces the timestamp. A reader of a
//!   marked row looks at the slot. If the writer draws nothing yet, the writer's timestamp will be
//!   above the reader's, drawn before.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::error::Error;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::Epoch;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{
    AtomicU32, AtomicU64, Ordering, Padded, Unpoisoned, checker_fence, fence,
};
use std::sync::{Mutex, OnceLock};

/// No transaction reads.
const IDLE: u64 = u64::MAX;

/// In the word of a transaction's read timestamp, below the TID: whether the TID is a bound.
const BOUND: u64 = 1;

/// No commit is under way, or its timestamp is not known yet: below all drawn timestamps.
const ACTIVE: u64 = 0;
const DRAWING: u64 = 1;

/// Slots are allocated in blocks. Few under loom, which keeps a history of every atomic.
const BLOCK: usize = if cfg!(loom) { 2 } else { 64 };
const MOST_BLOCKS: usize = 1 << 10;

/// The progress of a session's transaction. Written by the session, read by all sessions.
struct TransactionSlot {
    /// The TID of the transaction's reads, above [`BOUND`]; or [`IDLE`].
    reads: AtomicU64,
    /// The timestamp of its commit, or [`ACTIVE`] or [`DRAWING`].
    commits: AtomicU64,
    /// The bound that the transaction has announced, as in `reads`. Relaxed: for its session only.
    bound: AtomicU64,
    /// The value of `reads` of an ended transaction, for which nothing is kept any more. Written by
    /// sessions that keep versions, and reset at the beginning of a transaction.
    ended: AtomicU64,
    /// What the transaction is about to install, where others may read it.
    pending: Mutex<PendingRows>,
}

/// A row in the form of a record, and the address of its record; none for a deleted row.
pub type PendingRow = (usize, Option<Box<[u8]>>);

/// The rows that a preparing transaction is about to install, for readers that depend on its
/// commit.
#[derive(Default)]
struct PendingRows {
    /// The timestamp of the commit.
    at: Tid,
    rows: Vec<PendingRow>,
}

type SlotBlock = Box<[Padded<TransactionSlot>]>;

/// The progress of a transaction's commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparing {
    /// The commit has not begun: its timestamp will be above all timestamps drawn by now.
    No,
    /// The transaction draws its timestamp.
    Draws,
    At(Tid),
}

/// The readers that a committing transaction has found.
#[derive(Default)]
pub(crate) struct ReaderTimes {
    /// As in the slots.
    reads: Vec<u64>,
    /// Not above the read timestamp of any reader, now or later.
    lowest: Option<Tid>,
}

impl ReaderTimes {
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Whether any of the readers may read the version that begins at `base`, and ends now.
    pub fn want(&self, base: Tid) -> bool {
        self.reads.iter().any(|&reads| {
            let is_bound = reads & BOUND != 0 && !broken!(BoundAsTimestamp);
            is_bound || base.bits() <= reads >> 1
        })
    }

    /// A lower bound of the read timestamps of all readers, now and later.
    pub fn lowest(&self) -> Tid {
        self.lowest.unwrap_or(Tid::ABOVE_ALL)
    }
}

/// The slots of all sessions, and the clock. See the module.
pub struct ActiveTransactions {
    blocks: Box<[OnceLock<SlotBlock>]>,
    /// The highest number ever used, from 1 on. Raised (SeqCst) before the slot is used.
    used: AtomicU32,
    /// Numbers whose sessions have ended.
    free: Mutex<Vec<u32>>,
    /// The highest timestamp drawn.
    clock: Padded<AtomicU64>,
}

impl Default for ActiveTransactions {
    fn default() -> Self {
        ActiveTransactions::new()
    }
}

impl ActiveTransactions {
    /// Without slots yet.
    pub fn new() -> Self {
        ActiveTransactions {
            blocks: (0..MOST_BLOCKS).map(|_| OnceLock::new()).collect(),
            used: AtomicU32::new(0),
            free: Mutex::default(),
            clock: Padded(AtomicU64::new(0)),
        }
    }

    /// Adds the slot of a session. Its number is not 0.
    pub fn add(&self) -> Result<u32, Error> {
        let mut free = self.free.lock().unpoisoned();
        if let Some(number) = free.pop() {
            return Ok(number);
        }
        let number = self.used.load(Ordering::SeqCst) + 1;
        let most = BLOCK * MOST_BLOCKS;
        if number as usize > most {
            let fault = format!("{most} sessions are open, the most there can be: close some");
            return Err(Error::Misuse(fault));
        }
        let slot = || TransactionSlot {
            reads: AtomicU64::new(IDLE),
            commits: AtomicU64::new(ACTIVE),
            bound: AtomicU64::new(IDLE),
            ended: AtomicU64::new(IDLE),
            pending: Mutex::default(),
        };
        self.blocks[(number as usize - 1) / BLOCK]
            .get_or_init(|| (0..BLOCK).map(|_| Padded(slot())).collect());
        self.used.store(number, Ordering::SeqCst);
        Ok(number)
    }

    /// Gives the slot of a session back. After a panic in a commit, rows stay marked with the
    /// number, and the slot is not used again.
    pub fn remove(&self, number: u32) {
        let is_idle = self.slot(number).reads.load(Ordering::SeqCst) == IDLE;
        self.end(number);
        if !is_idle {
            return;
        }
        self.free.lock().unpoisoned().push(number);
    }

    #[inline]
    fn slot(&self, number: u32) -> &TransactionSlot {
        let at = number as usize - 1;
        let block = self.blocks[at / BLOCK].get().expect("a number is used once it has its slot");
        &block[at % BLOCK]
    }

    fn slots(&self) -> impl Iterator<Item = (u32, &TransactionSlot)> {
        (1..=self.used.load(Ordering::SeqCst)).map(|number| (number, self.slot(number)))
    }

    /// Returns the clock, raised to the beginning of the current epoch.
    #[inline]
    fn now(&self, epoch: &Epoch) -> u64 {
        checker_fence();
        let now = self.clock.load(Ordering::SeqCst);
        let began = Tid::new(epoch.current(), 0).bits();
        if now >= began {
            return now;
        }
        self.clock.fetch_max(began, Ordering::SeqCst).max(began)
    }

    /// Begins a transaction of a session. Returns the timestamp of its reads.
    #[inline]
    pub fn begin(&self, number: u32, epoch: &Epoch) -> Tid {
        let slot = self.slot(number);
        let bound = self.now(epoch);
        slot.bound.store(bound << 1 | BOUND, Ordering::Relaxed);
        // Relaxed: seen by every thread that sees the bound.
        slot.ended.store(IDLE, Ordering::Relaxed);
        if !broken!(ReadBeforeAnnouncing) {
            slot.reads.store(bound << 1 | BOUND, Ordering::SeqCst);
        }
        if broken!(BoundAsTimestamp) {
            std::thread::yield_now();
        }
        checker_fence();
        let as_of = self.clock.load(Ordering::SeqCst);
        let slow = [Mutation::ReadBeforeAnnouncing, Mutation::BoundAsTimestamp];
        if slow.into_iter().any(mutation::is) {
            std::thread::yield_now();
        }
        // Release: until the timestamp is seen, the bound is.
        slot.reads.store(as_of << 1, Ordering::Release);
        Tid::from_bits(as_of)
    }

    /// Begins the commit of a session's transaction, which has marked all rows to be written.
    /// Returns the timestamp of the commit. The session has entered the epoch of the commit. `None`
    /// if all timestamps of the epoch are drawn, and the epoch is at the limit of epochs.
    #[inline]
    pub fn prepare(&self, number: u32, epoch: &Epoch) -> Option<Tid> {
        let slot = self.slot(number);
        if !broken!(DrawBeforeSaying) {
            slot.commits.store(DRAWING, Ordering::SeqCst);
        }
        checker_fence();
        let tid = self.draw(epoch);
        if broken!(DrawBeforeSaying) {
            std::thread::yield_now();
        }
        if tid.epoch() > epoch.current() {
            // No commit is under way: the drawn timestamp is of none.
            slot.commits.store(ACTIVE, Ordering::Release);
            return None;
        }
        // Release: until the timestamp is seen, the transaction draws.
        slot.commits.store(tid.bits(), Ordering::Release);
        checker_fence();
        Some(tid)
    }

    /// Draws the next timestamp, in the current epoch; or, if all of them are drawn, in the next
    /// epoch, which is not current if the limit of epochs forbids it.
    #[inline]
    fn draw(&self, epoch: &Epoch) -> Tid {
        // One access to a line written by all sessions. A timestamp of an ended epoch is passed
        // over.
        let tid = loop {
            let tid = Tid::from_bits(self.clock.fetch_add(1, Ordering::SeqCst)).next();
            let began = Tid::new(epoch.current(), 0);
            if tid >= began {
                break tid;
            }
            self.clock.fetch_max(began.bits(), Ordering::SeqCst);
        };
        // More than 2^27 timestamps in one epoch overflow into the epoch number, and the epoch is
        // advanced to match.
        tid.reach(epoch);
        tid
    }

    /// Begins a transaction of a session that reads and commits as of its own timestamp. Nothing is
    /// committed at a timestamp above the current epoch, see [`Tid::reach`].
    ///
    /// The slot's stores before the draw need no order of their own: a thread that draws or reads
    /// the clock later sees the stores. So a writer with a later timestamp finds at least the
    /// bound.
    #[inline]
    pub fn begin_at(&self, number: u32, epoch: &Epoch) -> Tid {
        let slot = self.slot(number);
        let bound = self.clock.load(Ordering::SeqCst);
        slot.bound.store(bound << 1 | BOUND, Ordering::Relaxed);
        slot.ended.store(IDLE, Ordering::Relaxed);
        if !broken!(ReadBeforeAnnouncing) {
            slot.reads.store(bound << 1 | BOUND, Ordering::Release);
            slot.commits.store(DRAWING, Ordering::Release);
        }
        let tid = self.draw(epoch);
        if broken!(ReadBeforeAnnouncing) {
            std::thread::yield_now();
        }
        slot.commits.store(tid.bits(), Ordering::Release);
        slot.reads.store(tid.bits() << 1, Ordering::Release);
        tid
    }

    /// Returns the progress of the commit of a slot's transaction.
    #[inline]
    pub fn preparing(&self, number: u32) -> Preparing {
        match self.slot(number).commits.load(Ordering::SeqCst) {
            ACTIVE => Preparing::No,
            DRAWING => Preparing::Draws,
            tid => Preparing::At(Tid::from_bits(tid)),
        }
    }

    /// Shows what the transaction of a slot, which prepares at `at`, is about to install.
    pub fn show(&self, number: u32, at: Tid, rows: impl Iterator<Item = PendingRow>) {
        let mut pending = self.slot(number).pending.lock().unpoisoned();
        *pending = PendingRows { at, rows: rows.collect() };
    }

    /// Frees what the ended transaction of a slot has shown, which may have been large.
    pub fn hide(&self, number: u32) {
        self.slot(number).pending.lock().unpoisoned().rows = Vec::new();
    }

    /// Calls `read` with the row that the transaction of a slot, which prepares at `at`, is about
    /// to install at `record`. `None` if the transaction shows nothing, or has ended.
    pub fn pending<T>(
        &self,
        number: u32,
        at: Tid,
        record: usize,
        read: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Option<T> {
        let pending = self.slot(number).pending.lock().unpoisoned();
        let is_wanted = |(shown, _): &&PendingRow| *shown == record;
        let (_, row) = pending.rows.iter().find(is_wanted).filter(|_| pending.at == at)?;
        Some(read(row.as_deref()))
    }

    /// Ends a session's transaction, which has no marked rows any more.
    #[inline]
    pub fn end(&self, number: u32) {
        let slot = self.slot(number);
        slot.commits.store(ACTIVE, Ordering::Release);
        slot.reads.store(IDLE, Ordering::Release);
    }

    /// Finds the readers for which transaction `tid`, of slot `number`, keeps the overwritten
    /// versions.
    #[inline]
    pub fn find_readers(&self, number: u32, tid: Tid, found: &mut ReaderTimes) {
        found.reads.clear();
        let mut lowest = tid.bits();
        for (_, slot) in self.slots().filter(|(other, _)| *other != number) {
            let reads = slot.reads.load(Ordering::SeqCst);
            let is_later = reads & BOUND == 0 && reads >> 1 >= tid.bits();
            if reads == IDLE || is_later || slot.ended.load(Ordering::SeqCst) == reads {
                continue;
            }
            found.reads.push(reads);
            lowest = lowest.min(reads >> 1);
        }
        found.lowest = Some(Tid::from_bits(lowest));
        if broken!(OverlookReaders) {
            found.reads.clear();
        }
    }

    /// Returns a lower bound of the read timestamps of all transactions, now and later.
    pub fn lowest(&self, epoch: &Epoch) -> Tid {
        let now = self.now(epoch);
        let reads = self.slots().filter_map(|(_, slot)| {
            let reads = slot.reads.load(Ordering::SeqCst);
            (reads != IDLE && slot.ended.load(Ordering::SeqCst) != reads).then_some(reads >> 1)
        });
        Tid::from_bits(reads.fold(now, u64::min))
    }

    /// Returns a lower bound of the read timestamps, at replay, of all transactions whose record
    /// has no position yet: a transaction reads as of its own timestamp, or, with `snapshots`, as
    /// of its original reads; but a transaction with a timestamp of a later epoch than its reads is
    /// not replayed as a command. An ended transaction is no exception: it may commit.
    pub fn replay_floor(&self, epoch: &Epoch, snapshots: bool) -> Tid {
        // In this order: a transaction that draws later gets a timestamp above `now`.
        let now = Tid::from_bits(self.now(epoch));
        let above_now = if snapshots { Tid::new(now.epoch(), 0) } else { now };
        let committing = self.slots().filter_map(|(_, slot)| {
            let commits = slot.commits.load(Ordering::SeqCst);
            match commits {
                ACTIVE => None,
                tid if tid != DRAWING && !snapshots => Some(tid),
                // If another transaction has begun since, the committing transaction is logged.
                _ => Some(slot.reads.load(Ordering::SeqCst) >> 1),
            }
        });
        Tid::from_bits(committing.fold(above_now.bits(), u64::min))
    }

    /// The last timestamp drawn.
    pub fn latest(&self, epoch: &Epoch) -> Tid {
        Tid::from_bits(self.now(epoch))
    }

    /// Ends the transaction with the lowest read timestamp below `tid`: nothing is kept for the
    /// transaction any more. Returns false if there is none.
    pub fn end_oldest(&self, tid: Tid) -> bool {
        loop {
            let readers = self.slots().filter_map(|(_, slot)| {
                // In this order: another transaction that begins in between has reset `ended`, and
                // the exchange fails, or ends a transaction with the same read timestamp.
                let ended = slot.ended.load(Ordering::SeqCst);
                let reads = slot.reads.load(Ordering::SeqCst);
                (reads != ended && reads >> 1 < tid.bits()).then_some((reads, ended, slot))
            });
            let Some((reads, ended, slot)) = readers.min_by_key(|(reads, ..)| *reads) else {
                return false;
            };
            let (done, failed) = (Ordering::SeqCst, Ordering::SeqCst);
            if slot.ended.compare_exchange(ended, reads, done, failed).is_ok() {
                return true;
            }
        }
    }

    /// Whether the transaction in a slot, which reads as of `as_of`, was ended: by its timestamp,
    /// or by the bound announced before. To be called after the read of an older version.
    #[inline]
    pub fn has_ended(&self, number: u32, as_of: Tid) -> bool {
        fence(Ordering::Acquire);
        let slot = self.slot(number);
        let ended = slot.ended.load(Ordering::SeqCst);
        ended == as_of.bits() << 1 || ended == slot.bound.load(Ordering::Relaxed)
    }
}
