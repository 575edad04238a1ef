//! A log stream being written: the state shared by its writers and its flusher.

use crate::Lsn;
use crate::frame::{self, FrameKind, Payload};
use crate::frontier::Frontier;
use crate::group::Group;
use crate::lsn_vector::covers;
use crate::order::Order;
use crate::pace::Pace;
use crate::ring::Ring;
use crate::stream_id::StreamId;
use hyades_platform::event;
use hyades_platform::event::Event;
use hyades_platform::latency::{LatencyCounts, LatencyHistogram};
use hyades_platform::sync::Padded;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The flusher's own slot, for anchors and heartbeats.
pub(crate) const FLUSHER_SLOT: usize = 0;

/// The shortest time of a sync reported to the operator.
const SLOW_SYNC_NS: u64 = 100_000_000;

/// Counters of one stream, since the opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Bytes of frames made durable.
    pub frame_bytes: u64,
    /// Bytes written to the device: frames, headers and padding.
    pub device_bytes: u64,
    /// Syncs, a sync for each batch.
    pub syncs: u64,
    /// Nanoseconds spent in writes and syncs.
    pub device_ns: u64,
}

/// Written by the flusher only, read by all threads; Relaxed, since each is independent.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    frame_bytes: AtomicU64,
    device_bytes: AtomicU64,
    syncs: LatencyHistogram,
    device_ns: AtomicU64,
}

impl Counters {
    fn add(&self, frame_bytes: u64, device_bytes: u64, device_ns: u64, sync_ns: u64) {
        self.frame_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        self.device_bytes.fetch_add(device_bytes, Ordering::Relaxed);
        self.syncs.record(sync_ns);
        self.device_ns.fetch_add(device_ns, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> StreamStats {
        StreamStats {
            frame_bytes: self.frame_bytes.load(Ordering::Relaxed),
            device_bytes: self.device_bytes.load(Ordering::Relaxed),
            syncs: self.syncs.get().count(),
            device_ns: self.device_ns.load(Ordering::Relaxed),
        }
    }

    /// The duration of each sync.
    pub(crate) fn sync_latency(&self) -> LatencyCounts {
        self.syncs.get()
    }
}

/// The shared state of one stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The stream's component in this incarnation's vectors.
    pub(crate) lane: usize,
    /// The stream's permanent id.
    pub(crate) id: StreamId,
    pub(crate) order: Order,
    pub(crate) ring: Ring,
    /// See `frame::seed`.
    pub(crate) seed: u32,
    /// The event on which the flusher sleeps while there is nothing to flush. A writer's addition
    /// to `log_lsn` and the flusher's load of it are SeqCst, so the writer's check for a sleeping
    /// flusher after the addition is a single load.
    pub(crate) wake: Event,
    /// The published anchor, by component. Written (Release) after the anchor frame has its
    /// position, read by writers (Acquire) before reserving positions: after reading a value, a
    /// writer gets a position behind an anchor with at least the value read. Components only grow,
    /// and each is compared separately when a vector is compressed, so a mix of two anchors is as
    /// good as either; no sequence lock is needed.
    pub(crate) published: Box<[AtomicU64]>,
    /// Anchors still needed by the flusher, each with the end of its frame: the flusher writes the
    /// anchor in effect into segment headers. Locked while an anchor is placed, so anchors only
    /// grow along the stream.
    pub(crate) anchors: Mutex<VecDeque<(Lsn, Vec<Lsn>)>>,
    /// The highest mark awaited by a thread. Raised by any thread, read by the flusher. SeqCst:
    /// raised before the check for a sleeping flusher, and read by the flusher after announcing
    /// sleep.
    pub(crate) wanted_mark: AtomicU64,
    pub(crate) counters: Counters,
    /// The frames collected in a flush interval.
    pub(crate) group: Group,
    /// On separate cache lines: written for each batch, read by sessions choosing a stream.
    pub(crate) pace: Padded<Pace>,
}

impl Stream {
    /// Copies a frame to its reserved position. The payload has the reserved length.
    ///
    /// # Safety
    /// The caller reserved `[start, start + frame::len(payload.len()))`, a range no longer than the
    /// ring, and has not published the range, and everything one ring size before its end is
    /// durable.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, start: Lsn, kind: FrameKind, payload: Payload<'_>) {
        let (head, len, rest) = frame::head(self.seed, start, kind, payload);
        // SAFETY: checksum, head and rest together have frame::len(payload.len()) bytes, no more
        // than the ring, to which the caller has exclusive access: the caller reserved the bytes
        // and has not published them, and the overwritten bytes are durable (contract).
        unsafe { self.ring.write_behind(start, head, len, rest) };
    }

    /// Raises an anchor's vector to at least the last anchor's. The caller holds `anchors`.
    pub(crate) fn next_anchor(&self, mut vector: Vec<Lsn>) -> Vec<Lsn> {
        debug_assert_eq!(vector.len(), self.published.len(), "an anchor of other streams");
        for (lane, published) in vector.iter_mut().zip(&self.published) {
            *lane = (*lane).max(published.load(Ordering::Acquire));
        }
        vector
    }

    /// Publishes an anchor with a placed frame. The caller holds `anchors`, here `placed`.
    pub(crate) fn publish_anchor(
        &self,
        placed: &mut VecDeque<(Lsn, Vec<Lsn>)>,
        end: Lsn,
        vector: Vec<Lsn>,
    ) {
        debug_assert!(
            placed.back().is_none_or(|(last, before)| *last < end && covers(&vector, before)),
            "an anchor is behind a later one, or states less than the one before it"
        );
        // Only after the anchor has its position; see `published`.
        for (lane, &lsn) in self.published.iter().zip(&vector) {
            lane.store(lsn, Ordering::Release);
        }
        placed.push_back((end, vector));
    }

    /// Counts a written and synced batch; times in nanoseconds.
    pub(crate) fn count_batch(&self, frames: u64, device: u64, device_ns: u64, sync_ns: u64) {
        self.counters.add(frames, device, device_ns, sync_ns);
        if sync_ns >= SLOW_SYNC_NS {
            event!(WARN, "slow sync", stream = self.id.0, milliseconds = sync_ns / 1_000_000);
        }
    }

    /// Wakes the flusher if asleep. Call this after raising `log_lsn` or `wanted_mark` (SeqCst).
    #[inline]
    pub(crate) fn notify(&self) {
        self.wake.notify_ordered();
    }

    /// Bytes reserved and not yet durable.
    #[inline]
    pub(crate) fn backlog(&self, frontier: &Frontier) -> u64 {
        // The durable position first: it never exceeds a later `log_lsn`.
        let durable = frontier.durable(self.lane);
        let log_lsn = self.order.log_lsn();
        debug_assert!(durable <= log_lsn, "{durable} is durable, but {log_lsn} not yet reserved");
        log_lsn - durable
    }
}
