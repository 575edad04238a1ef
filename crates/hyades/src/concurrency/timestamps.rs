//! Timestamps of rows, for concurrency controls that order transactions by them: what rows and
//! transactions keep beside the logging protocol's stamps. Which timestamps a row has is a matter
//! of the concurrency control, see [`RowTimes`]: the interval in which its version is valid, or the
//! timestamp of the last transaction that has read it.
//!
//! A version is valid from the timestamp of its writer, `wts`, to at least the highest timestamp of
//! its readers, `rts`: what overwrites it has a timestamp above that. A gap between rows has both
//! as well, `wts` of the tombstones that it absorbed: without them an insertion could take a
//! timestamp below that of a reader that missed its key (docs/protocols/tictoc.md, C20). So they
//! are inherited where the protocol's stamps are; and so is the last timestamp that has read a row,
//! by the gap that its tombstone leaves.

use crate::logging::draft::{Draft, Reserved};
use crate::logging::record::RecordKind;
use crate::logging::row_frame::RowFrames;
use crate::logging::settings::LogSettings;
use crate::logging::{
    HotRows, LoggingProtocol, Needs, RowRef, RowTimes, StartContext, StartsOnLog,
};
use crate::storage::Stamp;
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::{AtomicU64, Ordering};
use hyades_wal::{Lsn, Writer};
use std::time::Duration;

/// A timestamp has 48 bits: 2^48 conflicting commits, eight years at a million in a second. A
/// transaction that would need more gets this one; see [`super::tictoc`].
pub(super) const MAX_TIMESTAMP: u64 = (1 << 48) - 1;

/// Bits for `rts - wts`.
const SPAN_BITS: u32 = 16;
const MAX_SPAN: u64 = (1 << SPAN_BITS) - 1;

/// When a version is valid, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub wts: u64,
    pub rts: u64,
}

impl Interval {
    /// In a word: `wts` above the difference. If that is too large, `wts` moves up: readers then
    /// take higher timestamps than they must.
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

/// The interval of the version in a row, or of a gap; or the TID of its last reader.
///
/// All accesses are SeqCst, like those of version words and gap versions: a reader raises `rts`,
/// and then looks whether the row is locked; a writer locks the row, and then loads `rts`. In their
/// one total order either the reader sees the lock, or the writer sees the timestamp.
#[derive(Default)]
pub(super) struct ValidFor(AtomicU64);

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

    /// The highest TID that has read it.
    #[inline]
    pub fn last_read(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Raises the highest TID that has read it to at least `tid`.
    #[inline]
    pub fn raise_last_read(&self, tid: Tid) {
        if self.0.load(Ordering::SeqCst) < tid.bits() {
            self.0.fetch_max(tid.bits(), Ordering::SeqCst);
        }
    }

    /// Raises both ends to at least those of `from`.
    fn inherit(&self, from: &ValidFor) {
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

/// The stamp of a row or gap: its interval, and the logging protocol's stamp.
#[derive(Default)]
pub(crate) struct TimestampedRow<S> {
    pub(super) valid: ValidFor,
    stamp: S,
}

/// State of a session's transaction.
pub(crate) struct TimestampedTxn<T> {
    /// The lowest timestamp that it may commit at, as far as is known: not below what its session
    /// committed at, or the version of a row that it read; above the readers of what it overwrites.
    /// Where rows keep their last readers: the last reader of what it overwrites, as a TID.
    pub(super) at_least: u64,
    /// For each row in its read set, until when the version is valid, as read.
    pub(super) until: Vec<u64>,
    /// The current epoch before it read its first row; 0 until then.
    pub(super) began: EpochNumber,
    /// The timestamp of the session's last transaction.
    pub(super) last: u64,
    stamp: T,
}

/// A logging protocol whose rows also have timestamps. Its hooks are those of the protocol, and
/// keep the lowest timestamp that the transaction may commit at.
pub(crate) struct Timestamped<P> {
    protocol: P,
    times: RowTimes,
}

/// The stamp of a row or gap under protocol `P`.
pub(super) type RowStamp<P> = <Timestamped<P> as LoggingProtocol>::RowStamp;

impl<P> Timestamped<P> {
    /// A protocol that needs no log.
    pub fn without_log(protocol: P, times: RowTimes) -> Self {
        Timestamped { protocol, times }
    }
}

impl<P: LoggingProtocol> Timestamped<P> {
    /// Observes the version in a row, like `observe_read`. Returns until when it is valid.
    #[inline(always)]
    pub(super) fn observe_version(
        &self,
        row: &TimestampedRow<P::RowStamp>,
        txn: &mut TimestampedTxn<P::TxnStamp>,
    ) -> u64 {
        let Interval { wts, rts } = row.valid.load();
        txn.at_least = txn.at_least.max(wts);
        self.protocol.observe_read(&row.stamp, &mut txn.stamp);
        rts
    }
}

impl<P: LoggingProtocol> LoggingProtocol for Timestamped<P> {
    const TRACKS_READERS: bool = P::TRACKS_READERS;
    const PARTITIONED: bool = P::PARTITIONED;
    const TELLS_BLIND_WRITES: bool = P::TELLS_BLIND_WRITES;
    type RowStamp = TimestampedRow<P::RowStamp>;
    type TxnStamp = TimestampedTxn<P::TxnStamp>;

    fn txn_stamp(&self) -> Self::TxnStamp {
        TimestampedTxn {
            at_least: 0,
            until: Vec::new(),
            began: EpochNumber::default(),
            last: 0,
            stamp: self.protocol.txn_stamp(),
        }
    }

    fn end_session(&self, txn: Self::TxnStamp) {
        self.protocol.end_session(txn.stamp);
    }

    #[inline]
    fn enter_stream(&self, writer: &mut Writer, stream: usize) {
        self.protocol.enter_stream(writer, stream);
    }

    fn housekeep(&self) {
        self.protocol.housekeep();
    }

    #[inline]
    fn begin(&self, txn: &mut Self::TxnStamp, record: RecordKind) {
        txn.at_least = txn.last;
        txn.until.clear();
        txn.began = EpochNumber::default();
        self.protocol.begin(&mut txn.stamp, record);
    }

    fn follow(&self, txn: &mut Self::TxnStamp, order: &Needs) {
        self.protocol.follow(&mut txn.stamp, order);
    }

    #[inline]
    fn prefetch(&self, row: &Self::RowStamp) {
        self.protocol.prefetch(&row.stamp);
    }

    #[inline]
    fn observe_read(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        match self.times {
            RowTimes::Intervals => _ = self.observe_version(row, txn),
            RowTimes::LastReads => self.protocol.observe_read(&row.stamp, &mut txn.stamp),
        }
    }

    #[inline]
    fn observe_write(&self, row: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        let above = match self.times {
            RowTimes::Intervals => row.valid.load().rts + 1,
            RowTimes::LastReads => row.valid.last_read(),
        };
        txn.at_least = txn.at_least.max(above);
        self.protocol.observe_write(&row.stamp, &mut txn.stamp);
    }

    fn replay_lag(&self, txn: &Self::TxnStamp) -> u64 {
        self.protocol.replay_lag(&txn.stamp)
    }

    #[inline]
    fn append<'w, M: Stamp>(
        &self,
        txn: &mut Self::TxnStamp,
        draft: Draft<'_, 'w, M>,
    ) -> Reserved<'w> {
        self.protocol.append(&mut txn.stamp, draft)
    }

    #[inline]
    fn publish_read(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        self.protocol.publish_read(row.with_stamp(&row.stamp.stamp), &mut txn.stamp);
    }

    #[inline]
    fn publish_write(&self, row: RowRef<'_, Self::RowStamp>, txn: &mut Self::TxnStamp) {
        self.protocol.publish_write(row.with_stamp(&row.stamp.stamp), &mut txn.stamp);
    }

    fn inherit(&self, to: &Self::RowStamp, from: &Self::RowStamp, txn: &mut Self::TxnStamp) {
        if !broken!(GapsWithoutTimestamps) {
            match self.times {
                RowTimes::Intervals => to.valid.inherit(&from.valid),
                RowTimes::LastReads => {
                    to.valid.raise_last_read(Tid::from_bits(from.valid.last_read()))
                }
            }
        }
        self.protocol.inherit(&to.stamp, &from.stamp, &mut txn.stamp);
    }

    fn observe_versions(&self, highest: Tid, txn: &mut Self::TxnStamp) {
        self.protocol.observe_versions(highest, &mut txn.stamp);
    }

    fn removes(&self, version: Tid) {
        self.protocol.removes(version);
    }

    #[inline]
    fn needs(&self, txn: &mut Self::TxnStamp, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        self.protocol.needs(&mut txn.stamp, own, needs);
    }
}

impl<P: StartsOnLog> StartsOnLog for Timestamped<P> {
    const NAME: &'static str = P::NAME;
    const VECTORS: bool = P::VECTORS;
    const PREDECESSORS: bool = P::PREDECESSORS;
    const MARKS: Option<&'static str> = P::MARKS;
    const EPOCH: Duration = P::EPOCH;

    fn rows(settings: &LogSettings) -> RowFrames {
        P::rows(settings)
    }

    fn hot_rows(&self) -> HotRows {
        self.protocol.hot_rows()
    }

    fn start(context: &StartContext<'_>) -> Self {
        Timestamped { protocol: P::start(context), times: context.times }
    }
}

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

    /// Commits as a writer does, unless another has the lock. Returns its timestamp.
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

    /// Commits at `ts` as a reader does. Returns the version that it has read, if it is valid.
    fn read(row: &Row, ts: u64) -> Option<u64> {
        let seen = row.word.load(Ordering::Acquire);
        let until = row.valid.load();
        checker_fence();
        let is_seen = || row.word.load(Ordering::SeqCst) == seen;
        if seen % 2 == 1 || !is_seen() || until.wts > ts {
            return None;
        }
        // What the body does comes here.
        let mut is_current = is_seen();
        if is_current && until.rts < ts {
            row.valid.raise(ts);
            checker_fence();
            is_current = is_seen();
        }
        (is_current || until.rts >= ts).then_some(seen)
    }

    /// Whatever two readers and a writer do at once: a reader of the first version has a timestamp
    /// below that of what overwrites it.
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
