//! A stream's part of the graph: what is known of the record at each position.
//!
//! **Cells.** Two records end at least [`CELL`] bytes apart, so each multiple of [`CELL`] has at
//! most one record, in the cell with the position's number modulo the cells of a window. A cell has
//! the number of the window that it is in, a state, and the first edge to a successor:
//!
//! - no state: only successors are known, the record is a ghost, or is being replayed by the reader
//!   of the stream;
//! - *waits*: the record was read, and waits;
//! - *live* or *dead*: settled. There are no successors any more, and none are added.
//!
//! The cell of a position is used from the moment when the settled position is at most a window
//! less a cell before it: all earlier positions of the same cell have settled then, whatever the
//! cell says.
//!
//! **Order.** The ends of the records that wait are in a ring, in the order of the stream. `first`
//! is the lowest number of the ring whose record has not settled. It is raised by delegation, as in
//! the rings of pools: the thread that settles the first record raises `first` over all settled
//! records. Neither thread misses the other: each writes its own variable, then reads the variable
//! of the other, all SeqCst.

use super::waiters::Waiters;
use hyades_platform::broken;
use hyades_platform::sync::{
    AtomicBool, AtomicU64, Mutex, Ordering, Padded, Unpoisoned, checker_fence,
};
use hyades_wal::Lsn;
use std::collections::HashSet;

/// Bytes of a stream that a cell stands for. A frame has a checksum, a length and a kind in 6 bytes
/// at least, and a record has a TID and the length of a list.
pub(super) const CELL: u64 = 8;

/// Records of a stream from the first that waits to the last, at most.
const RING: usize = if cfg!(loom) { 4 } else { 1 << 10 };

/// States of a cell.
const WAITS: u64 = 1;
const LIVE: u64 = 2;
const DEAD: u64 = 3;

const STATE_SHIFT: u32 = 32;
const WINDOW_SHIFT: u32 = 34;

/// A cell's word: the number of the window, the state, and the first edge.
fn word(window: u64, state: u64, edges: u32) -> u64 {
    window << WINDOW_SHIFT | state << STATE_SHIFT | u64::from(edges)
}

fn state_of(word: u64) -> u64 {
    word >> STATE_SHIFT & 3
}

fn window_of(word: u64) -> u64 {
    word >> WINDOW_SHIFT
}

/// The successors of a record that has settled.
pub(super) struct Taken {
    /// The first edge; 0 if there is none.
    pub edges: u32,
    pub live: bool,
}

pub(super) struct Lane {
    /// Everything up to here was truncated below a checkpoint, or is of an earlier incarnation.
    start: Lsn,
    /// Bytes of a window: a power of two.
    window: u64,
    /// Everything up to here has settled: the effects of settled records, and `any_dead`, are
    /// visible to a thread that has read the position.
    settled: Padded<AtomicU64>,
    /// Everything up to here was read. Written by the reader of the stream.
    scanned: AtomicU64,
    any_dead: AtomicBool,
    /// Ends of the records settled as dead.
    dead: Mutex<HashSet<Lsn>>,
    cells: Box<[AtomicU64]>,
    ring: Box<[AtomicU64]>,
    first: Padded<AtomicU64>,
    /// The number of the next record that waits. Written by the reader of the stream.
    next: AtomicU64,
    /// The end of the stream, once known; `Lsn::MAX` before.
    end: AtomicU64,
    /// Nodes that need everything up to a position.
    pub positions: Waiters,
    /// Successors of records for which there is no cell yet.
    pub far: Waiters,
    /// A named position at which no record ends, up to the other positions of the cell; 0 if none
    /// was found.
    misnamed: AtomicU64,
}

impl Lane {
    pub fn new(start: Lsn, window: u64) -> Lane {
        debug_assert!(window.is_power_of_two(), "positions are masked");
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Lane {
            start,
            window,
            settled: Padded(AtomicU64::new(start)),
            scanned: AtomicU64::new(start),
            any_dead: AtomicBool::new(false),
            dead: Mutex::default(),
            cells: zeros((window / CELL) as usize),
            ring: zeros(RING),
            first: Padded(AtomicU64::new(0)),
            next: AtomicU64::new(0),
            end: AtomicU64::new(Lsn::MAX),
            positions: Waiters::default(),
            far: Waiters::default(),
            misnamed: AtomicU64::new(0),
        }
    }

    /// The first position of a cell with a name at which no record ends, if one was found. What the
    /// name was to order is not known then.
    pub fn misnamed(&self) -> Option<Lsn> {
        Some(self.misnamed.load(Ordering::Relaxed)).filter(|lsn| *lsn != 0)
    }

    /// Notes the name in a cell that has edges although the stream is past the cell: a record takes
    /// the edges when it settles.
    fn note_misnamed(&self, number: usize, word: u64) {
        if state_of(word) == 0 && word as u32 != 0 {
            self.misnamed.store(self.begin(number, word).max(1), Ordering::Relaxed);
        }
    }

    /// The first position of a cell with this word.
    fn begin(&self, number: usize, word: u64) -> Lsn {
        window_of(word).wrapping_sub(1).wrapping_mul(self.window) + number as u64 * CELL
    }

    pub fn settled(&self) -> Lsn {
        self.settled.load(Ordering::SeqCst)
    }

    pub fn scanned(&self) -> Lsn {
        self.scanned.load(Ordering::SeqCst)
    }

    /// The end of the stream, once known.
    pub fn end(&self) -> Option<Lsn> {
        Some(self.end.load(Ordering::SeqCst)).filter(|end| *end != Lsn::MAX)
    }

    pub fn set_end(&self, end: Lsn) {
        debug_assert_eq!(self.end(), None, "a stream ends once");
        debug_assert!(end >= self.scanned(), "a stream ends behind all that was read of it");
        self.end.store(end, Ordering::SeqCst);
    }

    /// Number of records from the first that waits to the last.
    pub fn waiting(&self) -> usize {
        // The first number first: it is never above a later next number.
        let first = self.first.load(Ordering::Acquire);
        (self.next.load(Ordering::Acquire) - first) as usize
    }

    /// The last position that has a cell. All positions of the cell a window before have settled,
    /// also those up to a cell's bytes behind the same place.
    pub fn last_near(&self) -> Lsn {
        self.settled() + self.window - CELL
    }

    /// Whether a position has no cell so far.
    pub fn is_far(&self, end: Lsn) -> bool {
        end > self.last_near()
    }

    /// See [`super::Graph::has_room`]. Called by the reader of the stream.
    pub fn has_room(&self, end: Lsn) -> bool {
        let waiting = self.waiting();
        if waiting == 0 {
            // The thread that settled the last waiting record may not have raised the settled
            // position yet. Without the raise, a name of an earlier position would take the cell
            // from the record at `end`.
            self.advance();
            return true;
        }
        waiting < RING && !self.is_far(end)
    }

    fn cell_number(&self, end: Lsn) -> usize {
        (end / CELL) as usize & (self.cells.len() - 1)
    }

    fn cell(&self, end: Lsn) -> &AtomicU64 {
        &self.cells[self.cell_number(end)]
    }

    /// The number of the window of a position. A number returns after 2^30 windows: no thread takes
    /// that long from a look at a cell to its change.
    fn window(&self, end: Lsn) -> u64 {
        (end / self.window + 1) & ((1 << (u64::BITS - WINDOW_SHIFT)) - 1)
    }

    /// Whether the collected record with this end settled as dead.
    fn died(&self, end: Lsn) -> bool {
        self.dead.lock().unpoisoned().contains(&end) && !broken!(ForgetDeadPredecessors)
    }

    /// Returns the result of settling the record with this end: true for live. `None` before.
    #[inline]
    pub fn known(&self, end: Lsn) -> Option<bool> {
        if end <= self.start {
            return Some(true);
        }
        // The cell first: while the position is not settled afterwards, the cell was not used for
        // a later position.
        let word = self.cell(end).load(Ordering::SeqCst);
        if end <= self.settled() {
            // Relaxed: the flag was set before the position was raised.
            let any_dead = self.any_dead.load(Ordering::Relaxed);
            return Some(!any_dead || !self.died(end));
        }
        if window_of(word) == self.window(end) && state_of(word) >= LIVE {
            return Some(state_of(word) == LIVE);
        }
        self.end().is_some_and(|last| end > last).then_some(false)
    }

    /// Puts an edge into the list of a position that is not [far](Self::is_far). `link` is called
    /// with the next edge. Returns false if the position may have settled.
    pub fn push(&self, end: Lsn, edge: u32, link: impl Fn(u32)) -> bool {
        let (cell, window) = (self.cell(end), self.window(end));
        let seen = cell.load(Ordering::SeqCst);
        let (state, next) = if window_of(seen) == window {
            (state_of(seen), seen as u32)
        } else if end <= self.settled() {
            return false;
        } else {
            self.note_misnamed(self.cell_number(end), seen);
            (0, 0)
        };
        if state >= LIVE {
            return false;
        }
        link(next);
        let to = word(window, state, edge);
        cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Adds a record that waits, read by the reader of the stream.
    pub fn wait(&self, end: Lsn) {
        debug_assert!(self.waiting() < RING, "the reader has asked for room");
        let next = self.next.load(Ordering::Relaxed);
        self.ring[next as usize & (RING - 1)].store(end, Ordering::SeqCst);
        self.next.store(next + 1, Ordering::SeqCst);
        self.change(end, WAITS);
    }

    /// Settles the record with this end, and takes its successors.
    pub fn settle(&self, end: Lsn, live: bool) -> Taken {
        let edges = self.change(end, if live { LIVE } else { DEAD });
        Taken { edges, live }
    }

    /// Changes the state of a position. Settling takes the edges, which are returned.
    fn change(&self, end: Lsn, state: u64) -> u32 {
        let (cell, window) = (self.cell(end), self.window(end));
        let mut seen = cell.load(Ordering::SeqCst);
        loop {
            let is_same = window_of(seen) == window;
            debug_assert!(!is_same || state_of(seen) < LIVE, "a record settles once");
            let edges = if is_same { seen as u32 } else { 0 };
            if !is_same {
                self.note_misnamed(self.cell_number(end), seen);
            }
            let to = word(window, state, if state == WAITS { edges } else { 0 });
            match cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return edges,
                Err(now) => seen = now,
            }
        }
    }

    /// Keeps the end of a record that settles as dead.
    pub fn bury(&self, end: Lsn) {
        self.dead.lock().unpoisoned().insert(end);
        self.any_dead.store(true, Ordering::SeqCst);
    }

    /// The end of the stream is known: takes the successors of the position, unless a record was
    /// read there.
    pub fn lose(&self, end: Lsn) -> Taken {
        Taken { edges: self.lose_cell(self.cell_number(end)), live: false }
    }

    /// As [`Lane::lose`], for all positions.
    pub fn lose_all(&self) -> impl Iterator<Item = Taken> {
        let lost = (0..self.cells.len()).map(|cell| self.lose_cell(cell));
        lost.filter(|edges| *edges != 0).map(|edges| Taken { edges, live: false })
    }

    fn lose_cell(&self, number: usize) -> u32 {
        let cell = &self.cells[number];
        let mut seen = cell.load(Ordering::SeqCst);
        while state_of(seen) == 0 && seen as u32 != 0 {
            let to = word(window_of(seen), DEAD, 0);
            match cell.compare_exchange(seen, to, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    let behind = self.begin(number, seen) + CELL;
                    if self.end().is_some_and(|end| behind <= end) {
                        self.note_misnamed(number, seen);
                    }
                    return seen as u32;
                }
                Err(now) => seen = now,
            }
        }
        0
    }

    /// Whether the first record that waits ends here.
    pub fn is_first(&self, end: Lsn) -> bool {
        let first = self.first.load(Ordering::SeqCst);
        first != self.next.load(Ordering::SeqCst) && self.in_ring(first) == end
    }

    fn in_ring(&self, number: u64) -> Lsn {
        self.ring[number as usize & (RING - 1)].load(Ordering::SeqCst)
    }

    /// The reader of the stream has reached `to`.
    pub fn pass(&self, to: Lsn) {
        debug_assert!(to >= self.scanned(), "a stream is read in order");
        self.scanned.store(to, Ordering::SeqCst);
    }

    /// Raises the settled position over all records that have settled.
    pub fn advance(&self) {
        let settled = loop {
            // First, so that every waiting record up to here has a number below `next`.
            let scanned = self.scanned();
            let first = self.first.load(Ordering::SeqCst);
            if first == self.next.load(Ordering::SeqCst) {
                break scanned;
            }
            let end = self.in_ring(first);
            let word = self.cell(end).load(Ordering::SeqCst);
            if self.first.load(Ordering::SeqCst) != first {
                continue;
            }
            if window_of(word) != self.window(end) || state_of(word) < LIVE {
                break scanned.min(end - 1);
            }
            // If another thread was faster, there is nothing to do.
            let to = first + 1;
            let _ = self.first.compare_exchange(first, to, Ordering::SeqCst, Ordering::Relaxed);
            checker_fence();
        };
        if self.settled.load(Ordering::Relaxed) < settled {
            self.settled.fetch_max(settled, Ordering::SeqCst);
        }
    }

    /// Whether every list was taken.
    #[cfg(all(test, not(loom)))]
    pub fn has_no_edges(&self) -> bool {
        let is_empty = |cell: &AtomicU64| cell.load(Ordering::SeqCst) as u32 == 0;
        self.cells.iter().all(is_empty)
            && self.positions.take_above(0).is_none()
            && self.far.take_above(0).is_none()
    }
}
