//! A log stream while it is written: what its writers and its flusher share.

use crate::Lsn;
use crate::frame::{self, FrameKind, Payload};
use crate::frontier::Frontier;
use crate::order::Order;
use crate::pace::Pace;
use crate::ring::Ring;
use hyades_platform::event::Event;
use hyades_platform::sync::Padded;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The slot of the flusher itself, for anchors and heartbeats.
pub(crate) const FLUSHER_SLOT: usize = 0;

/// Counters of one stream, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Bytes of frames made durable.
    pub frame_bytes: u64,
    /// Bytes written to the device: frames, headers and padding.
    pub device_bytes: u64,
    /// Syncs, one for each batch.
    pub syncs: u64,
    /// Nanoseconds spent in writes and syncs.
    pub device_ns: u64,
}

/// Written by the flusher only, read by anyone; Relaxed, since each stands alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    frame_bytes: AtomicU64,
    device_bytes: AtomicU64,
    syncs: AtomicU64,
    device_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, frame_bytes: u64, device_bytes: u64, device_ns: u64) {
        self.frame_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        self.device_bytes.fetch_add(device_bytes, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.device_ns.fetch_add(device_ns, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> StreamStats {
        StreamStats {
            frame_bytes: self.frame_bytes.load(Ordering::Relaxed),
            device_bytes: self.device_bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            device_ns: self.device_ns.load(Ordering::Relaxed),
        }
    }
}

/// The shared state of one stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The lane of this incarnation's vectors.
    pub(crate) lane: usize,
    /// The stream's id for ever.
    pub(crate) id: u32,
    pub(crate) order: Order,
    pub(crate) ring: Ring,
    /// See `frame::seed`.
    pub(crate) seed: u32,
    /// Where the flusher sleeps while there is nothing to flush. A writer's addition to `log_lsn`
    /// and the flusher's load of it are SeqCst, so that a writer's look for sleepers after it is
    /// one load.
    pub(crate) wake: Event,
    /// The published anchor, lane by lane. Written by the flusher (Release) after the anchor frame
    /// got its place, read by writers (Acquire) before theirs: a writer that sees a lane's value
    /// gets a place behind an anchor with at least this value. Each lane is compared on its own
    /// when a vector is compressed, and only grows, so a mixture of two anchors is as good as
    /// either; no sequence lock is needed.
    pub(crate) published: Box<[AtomicU64]>,
    /// Anchors that the flusher still has to know, each with the end of its frame: it writes the one in
    /// effect into segment headers. Whoever places an anchor holds this meanwhile, so that anchors only
    /// grow along the stream.
    pub(crate) anchors: Mutex<VecDeque<(Lsn, Vec<Lsn>)>>,
    /// A heartbeat that is wanted: its mark + 1, or 0. Raised by anyone, taken by the flusher.
    pub(crate) heartbeat: AtomicU64,
    /// The highest mark that somebody waits for. Raised by anyone, read by the flusher. SeqCst: raised
    /// before the look for a sleeping flusher, which looks at it after announcing.
    pub(crate) wanted_mark: AtomicU64,
    pub(crate) counters: Counters,
    /// On lines of its own: written for each batch, and read by sessions that choose a stream.
    pub(crate) pace: Padded<Pace>,
}

impl Stream {
    /// Copies a frame to its reserved place. The payload's length is the one reserved.
    ///
    /// # Safety
    /// The caller reserved `[start, start + frame::len(payload.len()))` and has not published it,
    /// and everything one ring size before its end is durable.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, start: Lsn, kind: FrameKind, payload: Payload<'_>) {
        let (head, len, rest) = frame::head(self.seed, start, kind, payload);
        // SAFETY: all together is the reservation (contract).
        unsafe { self.ring.write_behind(start, head, len, rest) };
    }

    /// An anchor's vector at least as high as the last one's. The caller holds `anchors`.
    pub(crate) fn next_anchor(&self, mut vector: Vec<Lsn>) -> Vec<Lsn> {
        for (lane, published) in vector.iter_mut().zip(&self.published) {
            *lane = (*lane).max(published.load(Ordering::Acquire));
        }
        vector
    }

    /// Announces an anchor whose frame has its place. The caller holds `anchors`, here `placed`.
    pub(crate) fn publish_anchor(
        &self,
        placed: &mut VecDeque<(Lsn, Vec<Lsn>)>,
        end: Lsn,
        vector: Vec<Lsn>,
    ) {
        // After the anchor has its place; see `published`.
        for (lane, &lsn) in self.published.iter().zip(&vector) {
            lane.store(lsn, Ordering::Release);
        }
        placed.push_back((end, vector));
    }

    /// Wakes the flusher if it sleeps. After `log_lsn`, `heartbeat` or `wanted_mark` was raised
    /// (SeqCst).
    #[inline]
    pub(crate) fn notify(&self) {
        self.wake.notify_ordered();
    }

    /// Bytes reserved and not yet durable.
    #[inline]
    pub(crate) fn backlog(&self, frontier: &Frontier) -> u64 {
        // Durable first: it never exceeds a later log_lsn.
        let durable = frontier.durable(self.lane);
        self.order.log_lsn().saturating_sub(durable)
    }
}
