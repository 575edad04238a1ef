//! Command logging on arrival (Malviya, Weisberg, Madden, Stonebraker: "Rethinking Main Memory OLTP
//! Recovery", ICDE 2014, section III): a call is logged before execution, so that the record
//! becomes durable while the call waits and runs. docs/protocols/arrival.md explains departures
//! from the paper.
//!
//! Each partition has a *latch*, which protects the vector and the TID of the call that arrived
//! last in the partition. A call takes the latches of its partitions, in ascending order. Under the
//! latches the call takes a TID above the partitions' TIDs, enters the queues of the partitions,
//! joins the partitions' vectors, reserves a frame, and leaves its own vector and TID in each
//! partition. Nothing under the latches waits for the log: long arguments are written before. So in
//! a partition calls run in the order of their vectors and TIDs, and there is no other order: calls
//! without a common partition neither wait for nor know of each other. Vectors are as under Taurus:
//! component i means everything in stream i up to a position. Vectors are on disk, and replay
//! follows them.
//!
//! A call is acknowledged once the call has run, and its record and everything named by its vector
//! are durable, whether the call has committed or aborted: replay runs the call again, with the
//! same outcome. A read-only transaction that is not a call has no record. At its end the
//! transaction joins the vectors of its partitions, which may include calls that arrived during the
//! transaction.
//!
//! Nothing but calls is logged. The stamp of a record is its vector, then the slots that the call
//! may access ([`push_slots`]), and in some records outcomes of earlier calls ([`outcomes`]).
//!
//! [`outcomes`]: hyades::plug::outcomes

use hyades::plug::bytes::members;
use hyades::plug::outcomes::{StatedSum, push_sums, take_sums};
use hyades::plug::vectors::clear;
use hyades::plug::{
    ArrivedPlace, Call, Draft, LoggingProtocol, Needs, Stamp, StampFormat, StampKind, StartContext,
    StartsOnLog, Tid, VectorStamp, is_met,
};
use hyades_platform::broken;
use hyades_platform::epoch::Epoch;
use hyades_platform::sync::Padded;
use hyades_wal::{Lane, Log, Lsn, compress, lsn_vector::join};
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

pub struct Arrival {
    log: Log,
    lanes: usize,
    partitions: Box<[Padded<Mutex<LastArrived>>]>,
}

/// The TID and the vector left by the call that arrived last in a partition. With few streams both
/// are beside the latch: taking the latch fetches no other cache line, and no line shared with
/// another partition.
struct LastArrived {
    tid: Tid,
    vector: SmallVec<[Lsn; 4]>,
}

/// State of a session's transaction.
pub struct ArrivedVector {
    vector: Vec<Lsn>,
    is_zero: bool,
}

impl Arrival {
    fn latch(&self, partition: usize) -> MutexGuard<'_, LastArrived> {
        self.partitions[partition].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl LoggingProtocol for Arrival {
    const LOGS_FIRST: bool = true;

    type RowStamp = ();
    type TxnStamp = ArrivedVector;

    fn txn_stamp(&self) -> ArrivedVector {
        ArrivedVector { vector: vec![0; self.lanes], is_zero: true }
    }

    fn begin(&self, txn: &mut ArrivedVector, _: hyades::RecordKind) {
        if !txn.is_zero {
            clear(&mut txn.vector);
            txn.is_zero = true;
        }
    }

    /// Adds `order` to the vector of a call, which replay follows, too.
    fn follow(&self, txn: &mut ArrivedVector, order: &Needs) {
        order.iter().for_each(|(lane, lsn)| {
            let own = &mut txn.vector[lane.index()];
            *own = lsn.max(*own);
        });
        txn.is_zero = false;
    }

    fn observe_partitions(&self, set: u64, txn: &mut ArrivedVector) {
        for partition in members(set) {
            join(&mut txn.vector, &self.latch(partition).vector);
            txn.is_zero = false;
        }
    }

    fn arrive<'d, 'w: 'd, M: Stamp>(
        &self,
        txn: &mut ArrivedVector,
        set: u64,
        epoch: &Epoch,
        enter: impl FnOnce(Tid) -> bool,
        draft: impl FnOnce(Tid) -> Draft<'d, 'w, M>,
    ) -> Option<ArrivedPlace> {
        let (mut enter, late) = (Some(enter), broken!(EnterAfterLogging));
        // 1. Latch the partitions, ascending; take a TID above their TIDs, in the current epoch;
        // enter their queues.
        let mut latched: SmallVec<[MutexGuard<'_, LastArrived>; 4]> =
            members(set).map(|partition| self.latch(partition)).collect();
        let last = latched.iter().map(|left| left.tid).max().unwrap_or(Tid::NONE);
        let tid = last.next_in(epoch).expect("a log of calls has no limit of epochs");
        if !late && !enter.take().is_some_and(|enter| enter(tid)) {
            return None;
        }

        // 2. Join the partitions' vectors.
        txn.is_zero = false;
        latched.iter().for_each(|left| join(&mut txn.vector, &left.vector));

        // 3. Reserve the frame; leave the vector with the own position, and the TID.
        let draft = draft(tid);
        let (stream, call) = (draft.stream, draft.command.expect("nothing but calls is logged"));
        let reserved = draft.compose(|out| self.encode(txn, stream, &call, out)).reserve();
        let (start, end, bytes) = (reserved.start(), reserved.end(), reserved.bytes);
        debug_assert!(txn.vector[stream] < end, "nothing depends on what is not yet reserved");
        txn.vector[stream] = end;
        let home_only = broken!(StampHomeOnly);
        for left in latched.iter_mut().take(if home_only { 1 } else { usize::MAX }) {
            left.vector.copy_from_slice(&txn.vector);
            left.tid = tid;
        }

        // 4. Unlatch, and fill.
        drop(latched);
        reserved.fill(tid);
        if late {
            std::thread::yield_now();
            enter.take().map(|enter| enter(tid));
        }
        Some(ArrivedPlace { tid, stream, start, end, bytes })
    }

    fn needs(&self, txn: &mut ArrivedVector, own: Option<(usize, Lsn)>, needs: &mut Needs) {
        let frontier = self.log.frontier();
        let alone = own.is_some() && broken!(AckByOwnFrameAlone);
        for (lane, &lsn) in txn.vector.iter().enumerate().filter(|_| !alone) {
            // Zero is durable, and not looked up.
            if lsn != 0 && own != Some((lane, lsn)) && !is_met(frontier.durable(lane), lsn) {
                needs.push((Lane::position(lane), lsn));
            }
        }
        // Last, and so checked first: a session's records become durable in order.
        if let Some((stream, end)) = own
            && !broken!(AckBeforeOwnFrame)
        {
            needs.push((Lane::position(stream), end));
        }
    }
}

impl Arrival {
    fn encode(&self, txn: &ArrivedVector, stream: usize, call: &Call<'_>, out: &mut Vec<u8>) {
        let load = |lsn: &AtomicU64| lsn.load(Ordering::Acquire);
        compress::encode(out, &txn.vector, self.log.anchors(stream), load);
        let slots_at = out.len();
        push_slots(out, call.slots);
        if !call.outcomes.is_empty() {
            out[slots_at] |= WITH_OUTCOMES;
            push_sums(out, call.outcomes);
        }
    }
}

impl StartsOnLog for Arrival {
    const NAME: &'static str = "arrival";
    const VECTORS: bool = true;
    const STAMPS: StampFormat = StampFormat::Vectors { read: read_stamp, skip: Some(skip_stamp) };

    /// After recovery all vectors are zero: an incarnation is a barrier, and everything in earlier
    /// incarnations precedes everything in this incarnation.
    fn start(context: &StartContext<'_>) -> Self {
        let (log, lanes) = (context.log.clone(), context.log.streams());
        let left =
            |_| Padded(Mutex::new(LastArrived { vector: smallvec![0; lanes], tid: Tid::NONE }));
        Arrival { log, lanes, partitions: (0..context.partitions).map(left).collect() }
    }
}

/// In place of the number of a slot: all slots.
const ALL_SLOTS: u8 = 64;
/// In place of the number of a slot: a set of slots follows.
const SLOT_SET: u8 = 65;
/// Added to the byte with which slots begin: outcomes of calls follow.
const WITH_OUTCOMES: u8 = 128;

/// Appends the slots that a call may access: the number of a single slot, or [`ALL_SLOTS`], or
/// [`SLOT_SET`] and the set as a word.
fn push_slots(out: &mut Vec<u8>, slots: u64) {
    match slots.count_ones() {
        1 => out.push(slots.trailing_zeros() as u8),
        u64::BITS => out.push(ALL_SLOTS),
        _ => {
            out.push(SLOT_SET);
            out.extend_from_slice(&slots.to_le_bytes());
        }
    }
}

/// Reads the output of [`push_slots`]; `None` if malformed.
fn take_slots(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    match first & !WITH_OUTCOMES {
        first @ 0..ALL_SLOTS => Some(1 << first),
        ALL_SLOTS => Some(u64::MAX),
        SLOT_SET => {
            let (slots, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*slots)).filter(|slots| *slots != 0)
        }
        _ => None,
    }
}

/// Reads slots, and the sums after the slots if there are any; `None` if malformed.
fn take_slots_and_sums(stamp: &mut &[u8], each: impl FnMut(StatedSum)) -> Option<u64> {
    let first = *stamp.first()?;
    let slots = take_slots(stamp)?;
    if first & WITH_OUTCOMES != 0 {
        take_sums(stamp, each)?;
    }
    Some(slots)
}

/// Reads a stamp: the vector, for needs and order; and the slots that the call may access.
pub fn read_stamp(
    kind: StampKind,
    stamp: &mut &[u8],
    out: VectorStamp<'_>,
) -> Result<(), &'static str> {
    if !kind.command {
        return Err("a record that is not a call's");
    }
    let used = compress::decode(stamp, out.anchor, out.validity)?;
    *stamp = &stamp[used..];
    out.order.copy_from_slice(out.validity);
    let (slots, sums) = (out.slots, out.outcomes);
    let taken = take_slots_and_sums(stamp, |sum| sums.push(sum));
    *slots = Some(taken.ok_or("the slots that its call may access")?);
    Ok(())
}

/// Advances `stamp` past the stamp, as [`read_stamp`] does. `None` if the stamp is malformed.
pub fn skip_stamp(_: StampKind, stamp: &mut &[u8]) -> Option<()> {
    *stamp = compress::skip(stamp)?;
    take_slots_and_sums(stamp, |_| ()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_read_back() {
        for slots in [1, 1 << 63, 3, u64::MAX, u64::MAX - 1, 1 << 63 | 1] {
            let mut bytes = Vec::new();
            push_slots(&mut bytes, slots);
            bytes.push(7);
            let mut rest = &bytes[..];
            assert_eq!(take_slots(&mut rest), Some(slots));
            assert_eq!(rest, [7]);
        }
        for malformed in [&[][..], &[66], &[SLOT_SET, 1], &[SLOT_SET, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(take_slots(&mut &malformed[..]), None);
        }
    }
}
