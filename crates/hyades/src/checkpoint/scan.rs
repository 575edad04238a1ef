//! The rows of a checkpoint: all writers scan the tables at once, each a part of its own.
//!
//! The tables are divided into parts: ranges of keys or of hashes. A writer claims the next part,
//! walks over the part, and claims another; for a row no writer waits for another. Shared are the
//! parts not yet claimed, the number of parts not yet walked, and the blocks taken from the side
//! buffer, by any writer, for all writers.
//!
//! Invariant: the side buffer is taken for the last time when *every* part has been walked. A row
//! skipped by a scan for its later version was saved before the change to the later version, so
//! before the end of the walk over the row's part; a row not yet reached may be saved as long as
//! the part of any writer is not walked. So a writer without a part waits for the other writers.
//!
//! Memory: a writer holds a block, and the rows that its last bucket had in excess of the block.

use super::pace::Pace;
use crate::engine::cut::{BLOCK_BYTES, Cut, RowBlock};
use crate::storage::Stamp;
use crate::storage::record::{Record, word};
use crate::storage::table::{TableData, WalkPosition};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::reclaim::pin;
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The most parts of a table: enough for writers to end at about the same time.
const PARTS: usize = 64;

/// Which rows belong to the checkpoint.
#[derive(Clone, Copy)]
pub(super) struct RowChoice {
    pub epoch: EpochNumber,
    /// Whether rows of epochs after the cut are written as well.
    pub fuzzy: bool,
    /// The cut of the previous checkpoint, or 0.
    pub before: EpochNumber,
}

/// The source of the rows, shared by the writers of all files.
pub(super) struct RowSource<'s, S: Stamp> {
    cut: &'s Cut,
    pace: &'s Pace<'s>,
    choice: RowChoice,
    block_bytes: usize,
    /// The parts not claimed yet.
    unclaimed: Mutex<std::vec::IntoIter<TablePart<'s, S>>>,
    /// The number of parts not walked to the end. Lowered by the writer of the part (Release), read
    /// by all writers (Acquire): with 0, all that the walks saw happened before.
    unwalked: AtomicUsize,
    saved: Mutex<SavedRows>,
    /// The number of rows with versions after `choice.before`, plus saved rows, all being
    /// overwritten. Added to by writers; Relaxed: read when the writers have ended.
    changed: AtomicU64,
}

/// A part of a table: the walk over the part begins, or goes on, here.
type TablePart<'s, S> = (&'s TableData<S>, WalkPosition);

/// Blocks taken from the side buffer.
#[derive(Default)]
struct SavedRows {
    blocks: VecDeque<RowBlock>,
    /// Whether the side buffer was taken for the last time.
    are_over: bool,
}

/// What a writer has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Write the block.
    Block,
    /// Wait a little: other writers walk over the last parts.
    Wait,
    /// End: all rows were handed out.
    End,
}

impl<'s, S: Stamp> RowSource<'s, S> {
    pub fn new(
        tables: &'s [TableData<S>],
        (cut, pace): (&'s Cut, &'s Pace<'s>),
        choice: RowChoice,
        block_bytes: usize,
        writers: usize,
    ) -> Self {
        let most = if writers == 1 { 1 } else { PARTS };
        let parts_of = |table: &'s TableData<S>| {
            let starts = table.walk_starts(most, &pin()).into_iter();
            starts.map(move |start| (table, start))
        };
        let parts: Vec<TablePart<'s, S>> = tables.iter().flat_map(parts_of).collect();
        RowSource {
            cut,
            pace,
            choice,
            block_bytes: block_bytes.clamp(1, BLOCK_BYTES),
            unwalked: AtomicUsize::new(parts.len()),
            unclaimed: Mutex::new(parts.into_iter()),
            saved: Mutex::default(),
            changed: AtomicU64::new(0),
        }
    }

    /// The scan of one writer.
    pub fn scan(&self) -> RowScan<'_, 's, S> {
        RowScan { source: self, part: None, row: Vec::new(), ready: VecDeque::new(), changed: 0 }
    }

    /// The number of changed rows, once the scans have been dropped.
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// Whether the side buffer should be taken now: sessions may be waiting for room.
    fn presses(&self) -> bool {
        self.cut.held() as usize >= 4 * BLOCK_BYTES || !self.cut.has_room()
    }

    /// Takes the rows saved so far, in excess of the blocks taken before. The caller holds `saved`.
    fn take_saved(&self, saved: &mut SavedRows) {
        let taken = self.cut.take(self.choice.epoch);
        debug_assert!(taken.is_empty() || !self.choice.fuzzy, "no row is saved for a fuzzy cut");
        let rows = taken.iter().map(|block| u64::from(block.rows)).sum::<u64>();
        self.changed.fetch_add(rows, Ordering::Relaxed);
        saved.blocks.extend(taken);
    }

    /// Returns a block of saved rows. These go first, while rows are saved: sessions may be waiting
    /// for room in the side buffer. Rows saved after the last part was walked are not needed.
    fn saved_block(&self) -> Option<RowBlock> {
        let mut saved = self.saved.lock().unpoisoned();
        if saved.blocks.is_empty() && !saved.are_over && self.presses() {
            self.take_saved(&mut saved);
        }
        saved.blocks.pop_front()
    }

    /// Called by a writer that finds neither a part nor a saved block.
    fn rest(&self) -> Next {
        let are_walked = self.unwalked.load(Ordering::Acquire) == 0;
        if !are_walked && !broken!(SavedTakenEarly) {
            return Next::Wait;
        }
        let mut saved = self.saved.lock().unpoisoned();
        if !saved.are_over {
            saved.are_over = true;
            self.take_saved(&mut saved);
        }
        // Other writers may have taken the blocks found here.
        if saved.blocks.is_empty() { Next::End } else { Next::Block }
    }
}

/// The scan of one writer: at most one part at a time.
pub(super) struct RowScan<'a, 's, S: Stamp> {
    source: &'a RowSource<'s, S>,
    part: Option<TablePart<'s, S>>,
    row: Vec<u8>,
    /// Scanned rows in excess of a full block.
    ready: VecDeque<RowBlock>,
    changed: u64,
}

impl<S: Stamp> Drop for RowScan<'_, '_, S> {
    fn drop(&mut self) {
        self.source.changed.fetch_add(self.changed, Ordering::Relaxed);
    }
}

impl<S: Stamp> RowScan<'_, '_, S> {
    /// Fills `out` with the next rows, if the result is [`Next::Block`].
    pub fn next(&mut self, out: &mut RowBlock) -> Next {
        out.bytes.clear();
        out.rows = 0;
        loop {
            if let Some(ready) = self.ready.pop_front().or_else(|| self.source.saved_block()) {
                *out = ready;
                return Next::Block;
            }
            while out.bytes.len() < self.source.block_bytes && self.is_in_part() {
                self.walk(out);
            }
            if out.rows > 0 {
                return Next::Block;
            }
            // Only absent rows may have followed the last full block.
            if !self.ready.is_empty() {
                continue;
            }
            match self.source.rest() {
                // The block is in the queue of saved blocks.
                Next::Block => {}
                other => return other,
            }
        }
    }

    /// Whether there is a part to walk over. Claims one if the last part is walked.
    fn is_in_part(&mut self) -> bool {
        if self.part.is_none() {
            self.part = self.source.unclaimed.lock().unpoisoned().next();
        }
        self.part.is_some()
    }

    /// Adds rows to `out` until `out` is full or one step of the walk ends.
    fn walk(&mut self, out: &mut RowBlock) {
        let RowScan { source, part, row, ready, changed } = self;
        let Some((table, at)) = part else { return };
        let RowChoice { epoch, fuzzy, before } = source.choice;
        let (pace, block_bytes) = (source.pace, source.block_bytes);
        let last = if fuzzy { EpochNumber::ABOVE_ALL } else { epoch };
        table.walk(at, &pin(), |record| {
            // The walk continues to the end of a bucket, and rows may be of any length.
            if out.bytes.len() >= block_bytes && !broken!(LongBlocks) {
                ready.push_back(std::mem::take(out));
            }
            let taken = take_row(table, record, last, pace, row, out);
            *changed += u64::from(taken.is_some_and(|tid| tid.epoch() > before));
            if out.bytes.len() >= block_bytes && !broken!(LongBlocks) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if matches!(at, WalkPosition::End) {
            *part = None;
            let unwalked = source.unwalked.fetch_sub(1, Ordering::AcqRel);
            debug_assert!(unwalked > 0, "a part is walked once");
        }
    }
}

/// Adds a row to `out` if its version's epoch is at most `last`. Returns the version, or `None` if
/// the row was skipped.
fn take_row<S: Stamp>(
    table: &TableData<S>,
    record: &Record<S>,
    last: EpochNumber,
    pace: &Pace<'_>,
    row: &mut Vec<u8>,
    out: &mut RowBlock,
) -> Option<Tid> {
    let mut attempts = 0u32;
    loop {
        let seen = record.word.load(Ordering::Acquire);
        let tid = word::tid(seen);
        // All transactions of the cut are installed, so an active writer is after the cut.
        if tid.epoch() > last || seen & (word::ABSENT | word::DEAD) != 0 {
            return None;
        }
        if seen & word::LOCKED == 0 {
            row.clear();
            table.read_row(record, row);
            // The copy must precede the second load of the version word.
            fence(Ordering::Acquire);
            if record.word.load(Ordering::Relaxed) == seen {
                debug_assert!(row.len() >= table.layout.fixed_bytes, "a row has all its columns");
                out.push(table, record.key(), tid, row);
                return Some(tid);
            }
        }
        attempts += 1;
        match attempts {
            0..64 => std::hint::spin_loop(),
            64..128 => std::thread::yield_now(),
            // Once the pace is over, the row may stay locked for ever, but the checkpoint is
            // abandoned.
            _ if pace.is_over() => return None,
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
}
