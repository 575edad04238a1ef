//! The flusher of a stream: a thread that writes what is filled, syncs it and raises the frontier.

mod batch;

use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER, BatchHeader, SegmentHeader};
use crate::frame::{self, FrameKind};
use crate::log::Shared;
use crate::segment::Prepared;
use crate::stream::{FLUSHER_SLOT, Stream};
use crate::supply::Supply;
use hyades_platform::broken;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::clock;
use hyades_platform::sync::{self, locked};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most bytes of frames in a batch without a remote: larger ones gain no throughput, and delay
/// the writers that wait for room.
const MAX_BATCH: u64 = 2 << 20;
/// The least time between the beginnings of a busy flusher's batches, unless a thread waits for it:
/// it collects work rather than take processor time from the threads that produce it. A flusher
/// that was idle begins at once.
const SPACING_NS: u64 = 500_000;
/// The same after a batch of at least [`SUBSTANTIAL`] bytes, when there is enough work that
/// processors are scarce: a wake-up, write and sync takes tens of microseconds of processor time,
/// whatever the size of the batch.
const LOADED_SPACING_NS: u64 = 2_000_000;
/// A batch size in bytes: some tens of small records.
const SUBSTANTIAL: u64 = 1 << 10;
/// The longest time between the anchors of a stream that is being written, beside other streams.
/// An anchor states how far the others are durable: a directory of an earlier time beside this one
/// is found at the next opening, if it lacks what was durable that long before the last record
/// here.
const ANCHOR_AGE_NS: u64 = 100_000_000;
/// The interval in bytes of a log that is to have none, for experiments.
const NO_ANCHORS: u64 = 1 << 40;
/// The pause before an urgent mark, which could not be stated because a commit is in progress,
/// is tried again.
const URGENT_PAUSE: Duration = Duration::from_micros(50);

/// A panic stops the log; otherwise its waiters would wait for ever.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.frontier.fail("a log flusher panicked");
        }
    }
}

/// The segment being written.
#[derive(Debug)]
struct Current {
    segment: Prepared,
    /// The file offset of the next batch; 0 while the segment has not begun.
    offset: u64,
}

/// The flusher of one stream.
#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    lane: usize,
    current: Current,
    supply: Supply,
    next_anchor: Lsn,
    /// When the last anchor was placed.
    anchored_at_ns: u64,
    /// Heartbeats that are not yet durable: (end, mark).
    heartbeats: VecDeque<(Lsn, u64)>,
    /// The last mark for which a heartbeat was placed.
    stated: u64,
    /// `wanted_mark` and `urgent` as last read.
    asked: (u64, u64),
    /// Set if a wanted mark could not be stated: it is tried again after this time.
    retry: Option<Duration>,
    zeros: Vec<u8>,
    idle_since_work: u32,
    flushed_at_ns: u64,
    batch_began_ns: u64,
    /// The end of a batch that is in the file, and not yet known as stored by the remote. In a
    /// stepped log alone, whose thread does not wait.
    under_way: Option<Lsn>,
}

impl Flusher {
    pub(crate) fn new(shared: Arc<Shared>, lane: usize, segment: Prepared, supply: Supply) -> Self {
        let start = shared.frontier.durable(lane);
        let block = shared.options.block_bytes;
        debug_assert!(
            segment.length.is_multiple_of(block as u64),
            "{} bytes are no whole blocks",
            segment.length
        );
        let zeros = vec![0; block];
        shared.streams[lane].order.register(FLUSHER_SLOT);
        let mut flusher = Self {
            next_anchor: start + shared.options.anchor_interval_bytes,
            anchored_at_ns: clock::monotonic_ns(),
            shared,
            lane,
            current: Current { segment, offset: 0 },
            supply,
            heartbeats: VecDeque::new(),
            stated: 0,
            asked: (0, 0),
            retry: None,
            zeros,
            idle_since_work: 0,
            flushed_at_ns: 0,
            batch_began_ns: 0,
            under_way: None,
        };
        flusher.supply.ask();
        flusher
    }

    fn stream(&self) -> &Stream {
        &self.shared.streams[self.lane]
    }

    /// Flushes one batch; false if there is nothing to flush, or if the remote has no answer yet
    /// and is not to be waited for.
    pub(crate) fn step(&mut self, waits: bool) -> Result<bool, Error> {
        if let Some(to) = self.under_way {
            return self.store(to, waits);
        }
        let durable = self.shared.frontier.durable(self.lane);
        self.own_frames(durable);
        let cut = self.stream().order.cut(durable);
        if cut == durable {
            return Ok(false);
        }
        self.flush(durable, cut)?;
        match self.under_way {
            Some(to) if waits => self.store(to, true),
            under_way => Ok(under_way.is_none()),
        }
    }

    /// The wanted marks as last read, and the time to wait before the next try to state a mark.
    pub(crate) fn wanted(&self) -> ((u64, u64), Option<Duration>) {
        (self.asked, self.retry)
    }

    /// Runs until the log stops.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _mark = OnDatabaseThread::begin();
        let _guard = StopOnPanic(&shared);
        while shared.frontier.poisoned().is_none() {
            if let Err(error) = self.turn() {
                shared.frontier.fail_by(&error);
            }
        }
    }

    /// Flushes once, or waits for something to flush.
    fn turn(&mut self) -> Result<(), Error> {
        let durable = self.shared.frontier.durable(self.lane);
        // Before a mark is stated, so that it covers what is collected meanwhile.
        if let Some(interval) = self.shared.options.flush_interval
            && self.stream().order.log_lsn() > durable
            && self.collect(durable, interval)
        {
            return Ok(());
        }
        self.own_frames(durable);
        self.stream().group.flush();
        // This batch serves all waiters for positions below the cut.
        self.shared.frontier.take_wanted(self.lane);
        let cut = self.stream().order.cut(durable);
        if cut == durable {
            self.wait_for_work(durable);
            return Ok(());
        }
        self.idle_since_work = 0;
        let started = clock::monotonic_ns();
        self.stream().pace.begin(started, (cut - durable).min(self.max_batch()));
        let to = self.flush(durable, cut)?;
        let ended = clock::monotonic_ns();
        self.stream().pace.end(ended);
        let took = ended - started;
        let (spacing, recent) = if to - durable < SUBSTANTIAL {
            (SPACING_NS, 4 * SPACING_NS)
        } else {
            (LOADED_SPACING_NS, 2 * LOADED_SPACING_NS)
        };
        let busy = started - self.batch_began_ns < recent;
        self.batch_began_ns = started;
        if self.shared.options.flush_interval.is_none() && took < spacing && busy && to == cut {
            self.nap(Duration::from_nanos(spacing - took), to);
        }
        Ok(())
    }

    /// States a mark, and places a due anchor.
    fn own_frames(&mut self, durable: Lsn) {
        self.state_mark(durable);
        // Only along with other work: an idle log writes nothing.
        let log_lsn = self.stream().order.log_lsn();
        if log_lsn > durable && (log_lsn >= self.next_anchor || self.is_anchor_old()) {
            let mut vector = vec![0; self.shared.streams.len()];
            self.shared.frontier.load_into(&mut vector);
            let mut placed = locked(&self.stream().anchors);
            let vector = self.stream().next_anchor(vector);
            let mut payload = Vec::new();
            frame::anchor_payload(&mut payload, &vector);
            if let Some(end) = self.place(durable, FrameKind::Anchor, &payload) {
                self.stream().publish_anchor(&mut placed, end, vector);
                drop(placed);
                self.next_anchor = end + self.shared.options.anchor_interval_bytes;
                self.anchored_at_ns = clock::monotonic_ns();
            }
        }
    }

    /// Whether the last anchor says too little of the other streams.
    fn is_anchor_old(&self) -> bool {
        let age_ns = || clock::monotonic_ns().saturating_sub(self.anchored_at_ns);
        let are_wanted = self.shared.options.anchor_interval_bytes < NO_ANCHORS;
        are_wanted && self.shared.streams.len() > 1 && age_ns() >= ANCHOR_AGE_NS
    }

    /// Where frames have numbers: states the stream's mark, along with other work or because a
    /// thread waits for it. An idle log writes nothing.
    fn state_mark(&mut self, durable: Lsn) {
        // No clone of the shared state: all flushing writers would change the same count.
        let Some(marks) = self.shared.marks.get() else { return };
        let wanted = self.stream().wanted_mark.load(Ordering::SeqCst);
        let urgent = self.shared.urgent.load(Ordering::SeqCst);
        self.asked = (wanted, urgent);
        self.retry = None;
        if wanted <= self.stated && self.stream().order.log_lsn() <= durable {
            return;
        }
        let now = urgent > self.stated;
        let mark = marks.mark(self.lane, wanted, now);
        let pause = if now { URGENT_PAUSE } else { marks.pause() };
        if mark > self.stated && self.place_heartbeat(durable, mark) {
            self.stated = mark;
        }
        if wanted > self.stated {
            self.retry = Some(pause);
        }
    }

    /// Places a heartbeat; false if there is no room for it.
    fn place_heartbeat(&mut self, durable: Lsn, mark: u64) -> bool {
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&mark.to_le_bytes());
        payload[8..].copy_from_slice(&durable.to_le_bytes());
        let Some(end) = self.place(durable, FrameKind::Heartbeat, &payload) else { return false };
        debug_assert!(
            self.heartbeats.back().is_none_or(|(last, _)| *last < end),
            "heartbeats leave the queue in another order than they become durable"
        );
        self.heartbeats.push_back((end, mark));
        if broken!(MarkInMemory) {
            self.shared.frontier.raise(self.lane, durable, Some(mark));
        }
        true
    }

    /// Reserves and fills a frame of the flusher's own, if there is room for it.
    fn place(&self, durable: Lsn, kind: FrameKind, payload: &[u8]) -> Option<Lsn> {
        let stream = self.stream();
        let length = frame::len(payload.len()) as u64;
        let limit = durable + stream.ring.size();
        let start = stream.order.try_reserve(FLUSHER_SLOT, length, limit)?;
        debug_assert!(start + length <= limit, "the flusher would wait for room of its own making");
        // SAFETY: `try_reserve` gave [start, start + length) to the flusher's slot alone, and it is
        // published only below. It starts at or above `durable` and ends at or below `limit`, one
        // ring size above that, so it is not longer than the ring, and everything one ring size
        // before its end is durable.
        unsafe { stream.put(start, kind, payload.into()) };
        stream.order.publish(FLUSHER_SLOT, start + length);
        Some(start + length)
    }

    /// Waits when nothing can be flushed: sleeps if nothing is reserved; otherwise spins or naps.
    fn wait_for_work(&mut self, durable: Lsn) {
        let stream = &self.shared.streams[self.lane];
        if stream.order.log_lsn() != durable {
            // A writer is copying a frame. That takes well under a microsecond, unless it was
            // descheduled.
            self.idle_since_work = self.idle_since_work.saturating_add(1);
            match self.idle_since_work {
                0..20 => sync::spin_hint(),
                20..40 => sync::yield_now(),
                40..60 => std::thread::sleep(Duration::from_micros(20)),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
            return;
        }
        self.idle_since_work = 0;
        // Announce, then check: writers, and a thread that stops the log, use the opposite order.
        let listener = stream.wake.listen();
        if stream.order.log_lsn() == durable
            && stream.wanted_mark.load(Ordering::SeqCst) == self.asked.0
            && self.shared.urgent.load(Ordering::SeqCst) == self.asked.1
            && self.shared.frontier.poisoned().is_none()
        {
            listener.wait(self.retry);
        }
    }

    /// Under a flush interval: naps if it has not elapsed. True if the flush has to wait longer.
    fn collect(&self, durable: Lsn, interval: Duration) -> bool {
        let stream = self.stream();
        let backlog = stream.order.log_lsn() - durable;
        let elapsed = clock::monotonic_ns().saturating_sub(self.flushed_at_ns);
        let left = (interval.as_nanos() as u64).saturating_sub(elapsed);
        if left == 0
            || backlog >= self.shared.fill_bytes()
            || stream.group.is_full(self.shared.options.flush_fill_frames)
            || self.shared.closing.load(Ordering::SeqCst)
        {
            return false;
        }
        self.nap(Duration::from_nanos(left.min(1_000_000)), durable);
        true
    }

    /// Naps to let work collect, unless a thread waits for the stream or its buffer is half full.
    fn nap(&self, nap: Duration, durable: Lsn) {
        let stream = self.stream();
        let listener = self.shared.frontier.nap_event(self.lane).listen();
        if stream.order.log_lsn() - durable < stream.ring.size() / 2
            && !self.shared.frontier.take_wanted(self.lane)
            && self.shared.frontier.poisoned().is_none()
            && !self.shared.closing.load(Ordering::SeqCst)
        {
            listener.wait(Some(nap));
        }
    }

    fn rotate(&mut self) -> Result<(), Error> {
        let segment = self.supply.next()?;
        debug_assert_eq!(
            segment.sequence,
            self.current.segment.sequence + 1,
            "an opening would miss a segment between these"
        );
        self.shared.add_segment(
            self.lane,
            segment.sequence,
            self.shared.frontier.durable(self.lane),
        );
        self.current = Current { segment, offset: 0 };
        self.supply.ask();
        Ok(())
    }

    /// One vectored write of the segment header if it is due, the batch header, the frames directly
    /// from the ring, and the padding. Returns the bytes written.
    fn write(&mut self, from: Lsn, to: Lsn) -> Result<u64, Error> {
        let block = self.shared.options.block_bytes;
        let stream = &self.shared.streams[self.lane];
        let offset = self.current.offset;
        let header = if offset == 0 { self.segment_header(from) } else { Vec::new() };
        let first = offset as usize + header.len();
        debug_assert!(
            first >= format::header_bytes(block)
                && first.is_multiple_of(block)
                && offset.is_multiple_of(block as u64),
            "a batch at byte {first} would be written over a durable block"
        );
        debug_assert!(to - from <= MAX_BATCH, "a batch of {} bytes", to - from);
        let batch = BatchHeader {
            stream: stream.id,
            incarnation: self.shared.incarnation,
            start: from,
            durable: from,
            length: (to - from) as u32,
        }
        .encode(&self.shared.uuid);
        // SAFETY: `to` is at most the cut, below which everything is filled and visible, as `flush`
        // checked, and which is at most one ring size above the durable position. No writer
        // overwrites the range before it is reported durable, which is after this write and its
        // sync.
        let (a, b) = unsafe { stream.ring.slices(from, to) };
        let used = BATCH_HEADER + (to - from) as usize;
        let padding = &self.zeros[..used.next_multiple_of(block) - used];
        let slices = [&header, &batch[..], a, b, padding];
        let total: usize = slices.iter().map(|s| s.len()).sum();
        let slices = slices.map(IoSlice::new);
        let Prepared { path, file, length, .. } = &self.current.segment;
        // A recycled segment may be of another block size.
        let length = length.next_multiple_of(block as u64);
        debug_assert!(
            offset + total as u64 <= length,
            "a batch ends beyond its segment of {length} bytes"
        );
        file.write_at(&slices, offset).map_err(Error::io(path, "write to"))?;
        self.current.offset += total as u64;
        Ok(total as u64)
    }

    fn segment_header(&self, start: Lsn) -> Vec<u8> {
        // Exactly the anchor in effect here. A later one may cover a record in another stream that
        // depends on the record being decoded.
        let anchors = locked(&self.stream().anchors);
        let in_effect = anchors.iter().rev().find(|(end, _)| *end <= start);
        debug_assert!(in_effect.is_some(), "the anchor in effect at {start} was dropped");
        SegmentHeader {
            block_bytes: self.shared.options.block_bytes as u32,
            uuid: self.shared.uuid,
            stream: self.stream().id,
            incarnation: self.shared.incarnation,
            sequence: self.current.segment.sequence,
            start,
            durable: start,
            anchor: in_effect.map_or_else(Vec::new, |(_, vector)| vector.clone()),
        }
        .encode()
    }
}
