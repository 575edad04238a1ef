//! The parked records of a stream.

use hyades_wal::Lsn;

/// Slots of a window: more than the number of records that may wait, since records behind a slow
/// record keep their slots until the slow record was run.
pub(super) const WINDOW: usize = 32;

/// A missing position of a record: the watermark of stream `lane` has to reach `lsn`.
#[derive(Clone, Copy, Default)]
pub(super) struct MissingPosition {
    pub lane: usize,
    pub lsn: Lsn,
}

impl MissingPosition {
    /// Packed: the slot need not be checked.
    pub const NONE: u64 = u64::MAX;

    /// Packs the position into a word. A position that does not fit is packed as the lowest
    /// position: it is never missing, so the record is checked.
    pub fn pack(self) -> u64 {
        debug_assert!(self.lane < 64, "there are no more streams");
        if self.lsn >> 57 == 0 { self.lsn << 6 | self.lane as u64 } else { 0 }
    }

    pub fn unpack(packed: u64) -> MissingPosition {
        MissingPosition { lane: (packed & 63) as usize, lsn: packed >> 6 }
    }
}

/// A parked record: `what` is run, once the watermarks reach the record's vectors.
#[derive(Default)]
pub(super) struct WindowSlot<T> {
    pub start: Lsn,
    /// Whether the record was run, or is dead.
    pub done: bool,
    pub order: Vec<Lsn>,
    pub validity: Vec<Lsn>,
    pub what: T,
}

/// The parked records from the first unresolved record on. Slots are used in turn, so parking a
/// record allocates no slot.
pub(super) struct Window<T> {
    records: Box<[WindowSlot<T>]>,
    pub first: u64,
    pub next: u64,
}

impl<T: Default> Window<T> {
    pub fn new() -> Self {
        Window { records: (0..WINDOW).map(|_| WindowSlot::default()).collect(), first: 0, next: 0 }
    }
}

impl<T> Window<T> {
    /// The slot of the record with this number.
    pub fn slot(number: u64) -> usize {
        number as usize % WINDOW
    }

    pub fn record(&mut self, number: u64) -> &mut WindowSlot<T> {
        debug_assert!((self.first..self.next).contains(&number), "the record is in the window");
        &mut self.records[Self::slot(number)]
    }

    /// Adds a record; `None` if there is no room. Returns its number and its slot.
    pub fn push(&mut self) -> Option<(u64, &mut WindowSlot<T>)> {
        let number = self.next;
        if number - self.first == WINDOW as u64 {
            return None;
        }
        self.next += 1;
        Some((number, self.record(number)))
    }

    /// Removes the resolved records at the front. Returns their number, and the start of the first
    /// remaining record.
    pub fn settle(&mut self) -> (usize, Option<Lsn>) {
        let before = self.first;
        let mut left = None;
        while self.first < self.next && left.is_none() {
            let first = self.first;
            match self.record(first) {
                WindowSlot { done: true, .. } => self.first += 1,
                WindowSlot { start, .. } => left = Some(*start),
            }
        }
        ((self.first - before) as usize, left)
    }
}
