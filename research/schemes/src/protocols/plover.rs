//! Plover: parallel logging by partitions (Zhou, Guo, Hu, Qian, Zhou: "Plover: parallel logging for
//! replication systems", Frontiers of Computer Science 14(4), 2020), as run by the Taurus paper
//! (VLDB 2020, section 5).
//!
//! Rows are partitioned among the streams by their keys, and each stream has a counter. A
//! transaction draws a number above the counters of all touched partitions, including partitions
//! that the transaction only read, and raises these counters to the number in one step. The
//! transaction writes a record to each written partition, with the partition's changes, the number,
//! and the set of partitions with a record. So numbers grow along every stream, and along every
//! dependency, because two dependent transactions have touched a common partition; except that
//! under silo, which validates before the draw, an overwriter of rows read by another transaction
//! may draw a lower number: nothing that is recovered needs that order (docs/protocols/plover.md).
//!
//! A transaction is acknowledged, and belongs to the recovered state, iff its number is not above
//! the common mark (the lowest of all streams): then all records of the transaction and of its
//! dependencies are durable. Each stream is replayed alone. Checking only the touched partitions,
//! as the paper's description suggests, is not enough: docs/protocols/plover.md has the sequence.
//!
//! The stamp of a row is the set of partitions that have written to the row: the row's own
//! partition. The stamp of a gap has the partitions of the keys deleted from the gap. So readers of
//! absent keys know the touched partitions. A row not written since the log was opened touches no
//! partition: the row is durable, and so orders nothing.
//!
//! Column deltas are sound: the version that a delta follows has a lower number. There are no read
//! stamps, so commands cannot be replayed: data records only.

use super::counters::Counters;
use hyades::RecordKind;
use hyades::plug::bytes::{push_varint, take, take_varint};
use hyades::plug::{
    Draft, LoggingProtocol, Needs, NumberStamp, Reserved, RowRef, Stamp, StampFormat, StartContext,
    StartsOnLog, Tid,
};
use hyades_platform::broken;
use hyades_wal::{Log, Lsn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Plover {
    log: Log,
    streams: usize,
    counters: Arc<Counters>,
}

/// State of a session's transaction. Sets have a bit for each partition.
#[derive(Default)]
pub struct Touched {
    /// Partitions that the transaction depends on or writes to.
    touched: u64,
    /// The highest number that the transaction follows in the session's order.
    follows: u64,
    number: u64,
}

/// Returns the partitions in a set, ascending.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

impl Plover {
    /// Returns the partition of a row: the stream of the row's changes.
    fn partition(&self, table: u32, key: &[u8]) -> usize {
        let mut hash = u64::from(table) + 1;
        for word in key.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 32;
        }
        // The upper bits depend on all bytes of a key, also on the last bytes, usually the first to
        // differ.
        ((u128::from(hash) * self.streams as u128) >> 64) as usize
    }
}

/// Adds to the set of a row or gap. Written under the row's write protection (a gap's set under the
/// leaf's lock), read by readers within the validated window: Release and Acquire.
fn add(row: &AtomicU64, set: u64) {
    if row.load(Ordering::Relaxed) & set != set {
        row.fetch_or(set, Ordering::AcqRel);
    }
}

impl LoggingProtocol for Plover {
    const PARTITIONED: bool = true;
    type RowStamp = AtomicU64;
    type TxnStamp = Touched;

    fn txn_stamp(&self) -> Touched {
        Touched::default()
    }

    fn begin(&self, txn: &mut Touched, _: RecordKind) {
        *txn = Touched::default();
    }

    /// Raises the transaction's number above all followed numbers, whichever partitions the
    /// followed transactions touched.
    fn follow(&self, txn: &mut Touched, order: &Needs) {
        txn.follows = order.iter().map(|(_, number)| number).max().unwrap_or(0);
    }

    #[inline]
    fn observe_read(&self, row: &AtomicU64, txn: &mut Touched) {
        txn.touched |= row.load(Ordering::Acquire);
    }

    #[inline]
    fn observe_write(&self, row: &AtomicU64, txn: &mut Touched) {
        txn.touched |= row.load(Ordering::Acquire);
    }

    /// Reserves a record for each written partition, all with the same number, above the counters
    /// of all touched partitions. The counters are locked in ascending order during the draw.
    fn append<'w, M: Stamp>(&self, txn: &mut Touched, draft: Draft<'_, 'w, M>) -> Reserved<'w> {
        let records = draft.compose_by_partition(
            |write| {
                let partition = self.partition(write.table, write.record.key());
                txn.touched |= 1 << partition;
                partition
            },
            // Room for the number, which is not known yet; whether the record is the first; the set
            // of all streams with a record.
            |stream, written, out| {
                out.extend_from_slice(&[0; 8]);
                out.push(u8::from(written.trailing_zeros() as usize == stream));
                push_varint(out, written);
            },
        );
        let highest = members(txn.touched).map(|partition| self.counters.lock(partition)).max();
        txn.number = highest.unwrap_or(0).max(txn.follows) + 1;
        let mut reserved = records.reserve();
        members(txn.touched).for_each(|partition| self.counters.unlock(partition, txn.number));
        reserved.patch(|stamp| stamp[..8].copy_from_slice(&txn.number.to_le_bytes()));
        reserved
    }

    #[inline]
    fn publish_write(&self, row: RowRef<'_, AtomicU64>, _: &mut Touched) {
        let table = row.table.expect("only rows are written");
        add(row.stamp, 1 << self.partition(table, row.key));
    }

    fn inherit(&self, to: &AtomicU64, from: &AtomicU64, _: &mut Touched) {
        add(to, from.load(Ordering::Acquire));
    }

    /// A reader waits for the last number of each touched partition: the reader may have read from
    /// the transaction with that number.
    fn needs(&self, txn: &mut Touched, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        let number = match own {
            Some(_) => txn.number,
            None => members(txn.touched).map(|p| self.counters.last(p)).max().unwrap_or(0),
        };
        if broken!(AckBeforeOwnFrame) || number == 0 {
            return;
        }
        let frontier = self.log.frontier();
        if broken!(TouchedMarksOnly) {
            let marks = members(txn.touched).map(|p| frontier.mark_lane(p));
            return marks.for_each(|mark| needs.push((mark, number)));
        }
        needs.push((frontier.common_lane(), number));
    }
}

impl StartsOnLog for Plover {
    const NAME: &'static str = "plover";
    const VECTORS: bool = false;
    const STAMPS: StampFormat = StampFormat::Number { read: read_stamp, version: None };
    const MARKS: Option<&'static str> = Some(hyades_wal::SEPARATE_NUMBERS);

    fn start(context: &StartContext<'_>) -> Self {
        let streams = context.log.streams();
        let counters = Arc::new(Counters::new(streams));
        context.log.install_marks(counters.clone());
        Plover { log: context.log.clone(), streams, counters }
    }
}

/// Reads a stamp: the number, 8 bytes; 1 for the first of the transaction's records, else 0; the
/// set of streams with a record, as a varint.
pub fn read_stamp(_: Tid, stamp: &mut &[u8], needs: &mut [Lsn]) -> Option<NumberStamp> {
    let streams = needs.len() / 2;
    let number = u64::from_le_bytes(take(stamp, 8)?.try_into().ok()?);
    *needs.last_mut()? = number;
    let first = take(stamp, 1)?[0];
    let written = take_varint(stamp)?;
    let known = first < 2 && written != 0 && written.checked_shr(streams as u32).unwrap_or(0) == 0;
    known.then_some(NumberStamp {
        number,
        has_read: None,
        counts: first == 1,
        written: Some(written),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_their_members_in_order() {
        assert_eq!(members(0).count(), 0);
        assert_eq!(members(1 | 1 << 5 | 1 << 63).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(members(u64::MAX).count(), 64);
    }

    #[test]
    fn a_stamp_with_streams_that_are_not_there_is_refused() {
        let stamp = |first: u8, written: u64| {
            let mut bytes = 9u64.to_le_bytes().to_vec();
            bytes.push(first);
            push_varint(&mut bytes, written);
            bytes
        };
        let read = |bytes: &[u8]| {
            let mut needs = [0; 7];
            let read = read_stamp(Tid::NONE, &mut &bytes[..], &mut needs);
            (read, needs[6])
        };
        let counted = |counts, written| {
            Some(NumberStamp { number: 9, has_read: None, counts, written: Some(written) })
        };
        assert_eq!(read(&stamp(1, 0b101)), (counted(true, 0b101), 9));
        assert_eq!(read(&stamp(0, 0b100)), (counted(false, 0b100), 9));
        for bad in [stamp(2, 1), stamp(1, 0), stamp(1, 0b1000), stamp(1, 1)[..9].to_vec()] {
            assert_eq!(read(&bad).0, None);
        }
    }
}
