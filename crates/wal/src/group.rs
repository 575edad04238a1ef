//! Frames collected in a stream for the next flush: group commit by count.

use hyades_platform::sync::Padded;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts frames collected by a flush interval. A hint when to flush, and so Relaxed: a missed
/// frame is flushed when the interval ends.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Frames filled so far. Written by writers, read by all.
    filled: Padded<AtomicU64>,
    /// `filled` when the last flush began. Written by the flusher, read by writers.
    flushed: AtomicU64,
}

impl Group {
    /// Counts a filled frame. Returns whether the frame completes a group of `most`.
    pub(crate) fn add(&self, most: u64) -> bool {
        let filled = self.filled.fetch_add(1, Relaxed) + 1;
        filled.saturating_sub(self.flushed.load(Relaxed)) == most
    }

    /// Whether a group of `most` is complete.
    pub(crate) fn is_full(&self, most: Option<u64>) -> bool {
        let collected = || self.filled.load(Relaxed).saturating_sub(self.flushed.load(Relaxed));
        most.is_some_and(|most| collected() >= most)
    }

    /// Begins the next group: a flush takes the filled frames.
    pub(crate) fn flush(&self) {
        self.flushed.store(self.filled.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_completes_a_group() {
        let group = Group::default();
        assert!(!group.is_full(None) && !group.is_full(Some(1)));
        let complete: Vec<bool> = (0..5).map(|_| group.add(3)).collect();
        assert_eq!(complete, [false, false, true, false, false]);
        assert!(group.is_full(Some(5)) && !group.is_full(Some(6)));
        group.flush();
        assert!(!group.is_full(Some(1)));
        assert!(group.add(1) && group.is_full(Some(1)));
    }
}
