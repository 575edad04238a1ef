//! Timestamps of rows and gaps, kept beside the logging protocol's stamp, for concurrency controls
//! that order transactions by timestamps. TicToc keeps the interval in which a version is valid,
//! timestamp order the timestamp of the version's last reader.
//!
//! A version is valid from the timestamp of its writer, `wts`, to at least the highest timestamp of
//! its readers, `rts`: a later version has a timestamp above `rts`. A gap between rows has both as
//! well, with the `wts` of absorbed tombstones: otherwise an insertion could take a timestamp below
//! a reader that missed the key (docs/protocols/tictoc.md, C20). So both are inherited together
//! with the protocol's stamps; likewise the gap left by a tombstone inherits the last reader of the
//! row.

use hyades::plug::{LoggingProtocol, Tid};
use hyades_platform::sync::{AtomicU64, Ordering};

/// A timestamp has 48 bits: 2^48 conflicting commits, eight years at a million in a second. Higher
/// timestamps are replaced by this maximum; see [`super::tictoc`].
pub const MAX_TIMESTAMP: u64 = (1 << 48) - 1;

/// Bits for `rts - wts`.
const SPAN_BITS: u32 = 16;
const MAX_SPAN: u64 = (1 << SPAN_BITS) - 1;

/// When a version is valid, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub wts: u64,
    pub rts: u64,
}

impl Interval {
    /// Packs the interval into a word: `wts` above the difference. Too large a difference moves
    /// `wts` up: readers then take higher timestamps than necessary.
    fn pack(self) -> u64 {
        debug_assert!(self.wts <= self.rts && self.rts <= MAX_TIMESTAMP, "{self:?}");
        let wts = self.wts.max(self.rts.saturating_sub(MAX_SPAN));
        wts << SPAN_BITS | (self.rts - wts)
    }

    fn unpack(word: u64) -> Self {
        let wts = word >> SPAN_BITS;
        Interval { wts, rts: wts + (word & MAX_SPAN) }
    }

    fn join(self, other: Interval) -> Self {
        Interval { wts: self.wts.max(other.wts), rts: self.rts.max(other.rts) }
    }
}

/// The interval of the version in a row, or of a gap; or the TID of the last reader.
///
/// All accesses are SeqCst, like the accesses to version words and gap versions: a reader raises
/// `rts`, and then looks whether the row is locked; a writer locks the row, and then loads `rts`.
/// In the one total order either the reader sees the lock, or the writer sees the timestamp.
#[derive(Default)]
pub struct ValidFor(AtomicU64);

impl ValidFor {
    #[inline]
    pub fn load(&self) -> Interval {
        Interval::unpack(self.0.load(Ordering::SeqCst))
    }

    /// Sets both ends for a new version. The caller holds the row's lock.
    #[inline]
    pub fn set(&self, ts: u64) {
        self.0.store(Interval { wts: ts, rts: ts }.pack(), Ordering::SeqCst);
    }

    /// Raises `rts` to at least `ts`. Never wrong: too high a value only makes later timestamps
    /// higher.
    #[inline]
    pub fn raise(&self, ts: u64) {
        let mut seen = self.0.load(Ordering::SeqCst);
        while Interval::unpack(seen).rts < ts {
            let raised = Interval { rts: ts, ..Interval::unpack(seen) }.pack();
            let swap = self.0.compare_exchange(seen, raised, Ordering::SeqCst, Ordering::SeqCst);
            match swap {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The highest TID of the readers.
    #[inline]
    pub fn last_read(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Raises the highest TID of the readers to at least `tid`.
    #[inline]
    pub fn raise_last_read(&self, tid: Tid) {
        if self.0.load(Ordering::SeqCst) < tid.bits() {
            self.0.fetch_max(tid.bits(), Ordering::SeqCst);
        }
    }

    /// Raises both ends to at least the ends of `from`.
    pub fn inherit(&self, from: &ValidFor) {
        let from = from.load();
        let join = |word| {
            let now = Interval::unpack(word);
            let joined = now.join(from);
            (joined != now).then(|| joined.pack())
        };
        // An `Err` says that nothing has to change.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join);
    }
}

/// The metadata of a row or gap: timestamps, and the stamp of the logging protocol.
#[derive(Default)]
pub struct TimestampedRow<S> {
    pub valid: ValidFor,
    pub stamp: S,
}

/// The metadata of a row or gap under protocol `P`.
pub type RowStamp<P> = TimestampedRow<<P as LoggingProtocol>::RowStamp>;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Packing keeps `rts`, and moves `wts` up at most.
    #[test]
    fn intervals_come_back_and_are_never_too_early() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut near = |at: u64| at.saturating_add(rng.u64(0..4)).saturating_sub(2);
        for _ in 0..10_000 {
            for at in [0, MAX_SPAN, 1 << 20, MAX_TIMESTAMP - MAX_SPAN, MAX_TIMESTAMP] {
                let wts = near(at).min(MAX_TIMESTAMP);
                for span in [0, 1, MAX_SPAN, 1 << 30] {
                    let rts = (wts + near(span)).min(MAX_TIMESTAMP);
                    let packed = Interval::unpack(Interval { wts, rts }.pack());
                    assert_eq!(packed.rts, rts);
                    assert_eq!(packed.wts, wts.max(rts.saturating_sub(MAX_SPAN)));
                }
            }
        }
    }

    #[test]
    fn a_gap_inherits_the_later_of_both_ends() {
        let (to, from) = (ValidFor::default(), ValidFor::default());
        to.set(7);
        to.raise(9);
        from.set(3);
        from.raise(12);
        to.inherit(&from);
        assert_eq!(to.load(), Interval { wts: 7, rts: 12 });
        to.raise(MAX_TIMESTAMP);
        assert_eq!(to.load().rts, MAX_TIMESTAMP);
        to.raise(5);
        assert_eq!(to.load().rts, MAX_TIMESTAMP, "it is never lowered");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use hyades_platform::sync::checker_fence;
    use std::sync::Arc;

    /// A row: its version word, even while unlocked, and its interval.
    #[derive(Default)]
    struct Row {
        word: AtomicU64,
        valid: ValidFor,
    }

    /// Commits like a writer, unless the row is locked. Returns the timestamp.
    fn overwrite(row: &Row) -> Option<u64> {
        let seen = row.word.load(Ordering::Acquire);
        if seen % 2 == 1 {
            return None;
        }
        let (unlocked, locked) = (Ordering::SeqCst, Ordering::Relaxed);
        row.word.compare_exchange(seen, seen | 1, unlocked, locked).ok()?;
        checker_fence();
        let ts = row.valid.load().rts + 1;
        row.valid.set(ts);
        row.word.store(seen + 2, Ordering::Release);
        Some(ts)
    }

    /// Commits at `ts` like a reader. Returns the version read, if valid.
    fn read(row: &Row, ts: u64) -> Option<u64> {
        let seen = row.word.load(Ordering::Acquire);
        let until = row.valid.load();
        checker_fence();
        let is_seen = || row.word.load(Ordering::SeqCst) == seen;
        if seen % 2 == 1 || !is_seen() || until.wts > ts {
            return None;
        }
        // The body of the transaction would run here.
        let mut is_current = is_seen();
        if is_current && until.rts < ts {
            row.valid.raise(ts);
            checker_fence();
            is_current = is_seen();
        }
        (is_current || until.rts >= ts).then_some(seen)
    }

    /// In every interleaving of two readers and a writer, a reader of the first version has a
    /// timestamp below the timestamp of the next version.
    #[test]
    fn a_version_begins_after_all_readers_of_the_one_before() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let row = Arc::new(Row::default());
            let readers = [3, 5].map(|ts| {
                let row = Arc::clone(&row);
                loom::thread::spawn(move || read(&row, ts).filter(|seen| *seen == 0).map(|_| ts))
            });
            let written = overwrite(&row).expect("no other writer");
            for reader in readers {
                let read_at = reader.join().unwrap();
                assert!(read_at.is_none_or(|ts| ts < written), "{read_at:?} {written}");
            }
        });
    }
}
