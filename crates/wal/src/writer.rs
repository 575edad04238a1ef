//! Appending: reserve a position, then fill it.

use crate::Lsn;
use crate::frame::{self, FrameKind, Payload};
use crate::lane::Lane;
use crate::log::Shared;
use crate::pace::Choice;
use crate::stream::{FLUSHER_SLOT, Stream};
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::event;
use hyades_platform::sync::locked;
use smallvec::SmallVec;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The payload length in bytes of a void frame that measures a device.
const TRY_BYTES: usize = 8;

/// A thread's access to the log. It occupies a slot until it is dropped.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    slot: usize,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, slot: usize) -> Self {
        debug_assert_ne!(slot, FLUSHER_SLOT, "the flushers' slot is given to a writer");
        for stream in &shared.streams {
            stream.order.register(slot);
        }
        Self { shared, slot }
    }

    /// The largest payload that may be reserved, in bytes.
    pub fn max_payload(&self) -> usize {
        self.shared.max_payload
    }

    /// Bytes of a stream that are reserved and not yet durable.
    #[inline]
    pub fn backlog(&self, stream: usize) -> u64 {
        self.shared.streams[stream].backlog(&self.shared.frontier)
    }

    /// The backlog in bytes below which a stream has room: half of a buffer.
    #[inline]
    pub fn room(&self) -> u64 {
        self.shared.room()
    }

    /// Waits until the stream has room, or the log has stopped. Call it before taking locks, so
    /// that `fill` need not wait under them. Returns the backlog in bytes that it found.
    #[inline]
    pub fn wait_for_room(&self, stream: usize) -> u64 {
        let backlog = self.backlog(stream);
        if backlog >= self.room() {
            event!(DEBUG, "session waits for room in the log", stream = stream, backlog = backlog);
            self.shared.reached(stream, self.has_room_at(stream));
        }
        backlog
    }

    /// The position up to which the stream has to be durable to have room.
    fn has_room_at(&self, stream: usize) -> Lsn {
        (self.shared.streams[stream].order.log_lsn() + 1).saturating_sub(self.room())
    }

    /// Whether the stream's device may be slow or stuck, so that it is worthwhile to
    /// [choose](Self::choose_stream) again.
    pub fn may_be_slow(&self, stream: usize) -> bool {
        self.shared.may_be_slow(stream)
    }

    /// The initial stream for a writer: the one in which a record would be durable first,
    /// regardless of room if none has any. Of streams about equally good, each writer takes the
    /// first in an order of its own.
    pub fn first_stream(&self) -> usize {
        let own = self.slot - (FLUSHER_SLOT + 1);
        let choice = self.shared.find_fastest(own, None, true).choice;
        choice.map_or(own % self.shared.streams.len(), |choice| choice.stream)
    }

    /// The stream in which a record would be durable first, of those that have room; waits until
    /// one has. Idle streams whose device must be measured, for the first time or again, get a void
    /// frame. With `stays`, leaves the stream `current` only for one at least twice as good;
    /// otherwise takes the next of those about equally good, each writer in an order of its own.
    /// Returns `current` if the log has stopped. Call it before taking locks, like
    /// [`wait_for_room`](Self::wait_for_room).
    pub fn choose_stream(&mut self, current: usize, stays: bool) -> Choice {
        let streams = self.shared.streams.len();
        debug_assert!(current < streams, "stream {current} of {streams}");
        let next = self.slot - (FLUSHER_SLOT + 1) + current + 1;
        let tries = !broken!(BacklogInBytes);
        loop {
            let outlook = self.shared.find_fastest(next, stays.then_some(current), false);
            for stream in outlook.unmeasured.into_iter().filter(|_| tries) {
                self.reserve_in(stream, TRY_BYTES).void();
            }
            if let Some(choice) = outlook.choice {
                return choice;
            }
            let wanted =
                (0..streams).map(|stream| (Lane::position(stream), self.has_room_at(stream)));
            let wanted: SmallVec<[(Lane, Lsn); 16]> = wanted.collect();
            event!(DEBUG, "session waits for room in the log", streams = streams);
            self.shared.reach_any(&wanted);
            if self.shared.frontier.wait_any(&wanted).is_err() {
                return Choice { stream: current, is_slow: false };
            }
        }
    }

    /// The stream in which a record appended now would become durable first: `current` if idle. For
    /// event loops, before the records of a turn.
    pub fn first_free_stream(&self, current: usize) -> usize {
        self.shared.find_first_free(current, clock::monotonic_ns)
    }

    /// Whether writers [flush](Self::flush) what they have written.
    #[inline]
    pub fn flushes(&self) -> bool {
        self.shared.options.flushed_by_writers
    }

    /// Where [writers flush](crate::LogOptions::flushed_by_writers): writes and syncs the filled
    /// frames of a stream, until the stream is durable up to `lsn`. A writer calls this for its own
    /// frames; further frames become durable when a thread waits for them. Returns false if another
    /// writer's frame before `lsn` is not filled yet: the stream's thread then flushes the frame.
    /// Has no effect on other logs.
    pub fn flush(&self, stream: usize, lsn: Lsn) -> bool {
        self.flushes() && self.shared.flush_as_writer(stream, lsn)
    }

    /// The stream of a writer that keeps to one: those of different writers are spread evenly.
    pub fn own_stream(&self) -> usize {
        (self.slot - (FLUSHER_SLOT + 1)) % self.shared.streams.len()
    }

    /// Appends an anchor: later records of this stream may leave out the components that it covers.
    /// `vector` must be durable. The anchor is raised to at least the one before it.
    pub fn append_anchor(&mut self, stream: usize, vector: &[Lsn]) {
        let shared = Arc::clone(&self.shared);
        debug_assert!(shared.frontier.covers(vector), "an anchor states what is durable");
        let s = &shared.streams[stream];
        let mut placed = locked(&s.anchors);
        let vector = s.next_anchor(vector.to_vec());
        let mut payload = Vec::new();
        frame::anchor_payload(&mut payload, &vector);
        let reservation = self.reserve(stream, payload.len());
        s.publish_anchor(&mut placed, reservation.end(), vector);
        drop(placed);
        reservation.fill(FrameKind::Anchor, &payload);
    }

    /// Reserves a position for a frame with a payload of this length. This is the order point: the
    /// frame's LSN is known from here on. Takes no lock, allocates nothing, and never waits. Fill
    /// it soon: until then nothing behind it in the stream becomes durable.
    ///
    /// Panics if the payload is longer than [`max_payload`](Self::max_payload) or there is no such
    /// stream.
    #[inline(always)]
    pub fn reserve(&mut self, stream: usize, payload_len: usize) -> Reservation<'_> {
        self.reserve_in(stream, payload_len)
    }

    /// Reserves a position in each of several streams, as [`reserve`](Self::reserve) does, and
    /// passes each reservation to `take`. `places` are streams with payload lengths, in ascending
    /// order. A caller with several reservations fills them in this order: then a writer that waits
    /// for room in a stream never depends on one that waits in a later stream, so they cannot
    /// deadlock.
    ///
    /// Panics as `reserve` does, and if the streams are not in ascending order.
    pub fn reserve_each<'w>(
        &'w mut self,
        places: impl IntoIterator<Item = (usize, usize)>,
        mut take: impl FnMut(Reservation<'w>),
    ) {
        let writer: &'w Writer = self;
        let mut next = 0;
        for (stream, payload_len) in places {
            assert!(stream >= next, "a stream comes twice, or out of order");
            next = stream + 1;
            take(writer.reserve_in(stream, payload_len));
        }
    }

    /// Reserves a position. The slot must have no open reservation in the stream.
    #[inline(always)]
    fn reserve_in(&self, stream: usize, payload_len: usize) -> Reservation<'_> {
        assert!(
            payload_len <= self.shared.max_payload,
            "a payload of {payload_len} bytes, at most {}",
            self.shared.max_payload
        );
        let length = frame::len(payload_len) as u64;
        let stream = &self.shared.streams[stream];
        let start = stream.order.reserve(self.slot, length);
        Reservation { writer: self, stream, start, end: start + length, payload_len }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Reservations borrow the writer, so none is open in the slot.
        self.shared.free_slot(self.slot);
    }
}

/// A reserved, unfilled position in a stream. Dropped unfilled, it becomes a void frame.
#[derive(Debug)]
#[must_use = "dropping a reservation voids it"]
pub struct Reservation<'a> {
    writer: &'a Writer,
    stream: &'a Stream,
    start: Lsn,
    end: Lsn,
    payload_len: usize,
}

impl Reservation<'_> {
    /// The stream that it is in.
    #[inline]
    pub fn stream(&self) -> usize {
        self.stream.lane
    }

    /// Where the frame begins.
    #[inline]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Where the frame ends: its Lsn.
    #[inline]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Copies the frame to its position. Waits for the device only if the stream's buffer is full;
    /// if the log stops meanwhile, writes nothing, since nothing becomes durable any more. Returns
    /// whether the frame was written: if not, its place holds other bytes.
    ///
    /// Panics if the payload does not have the reserved length (the reservation is voided then).
    #[inline(always)]
    pub fn fill<'p>(self, kind: FrameKind, payload: impl Into<Payload<'p>>) -> bool {
        let payload = payload.into();
        assert_eq!(payload.len(), self.payload_len, "the payload has not the reserved length");
        ManuallyDrop::new(self).put(kind, payload)
    }

    /// Abandons the reservation; it stays in the log as a void frame of the same length.
    pub fn void(self) {
        drop(self);
    }

    #[inline(always)]
    fn put(&self, kind: FrameKind, payload: Payload<'_>) -> bool {
        let (shared, stream) = (&self.writer.shared, self.stream);
        debug_assert_eq!(
            self.end - self.start,
            frame::len(payload.len()) as u64,
            "the frame at {} is of another length than its reservation",
            self.start
        );
        let needed = self.end.saturating_sub(stream.ring.size());
        if shared.frontier.durable(stream.lane) < needed {
            stream.order.raise_allocated(self.writer.slot, self.start);
            if !shared.reached(stream.lane, needed) {
                // The log has stopped. The frame was not written, so it must not be published.
                return false;
            }
        }
        // SAFETY: this writer reserved [start, end), of the payload's length, and publishes it only
        // below: a reservation is put once, by `fill` or by `drop`. Everything one ring size before
        // `end` is durable, as was just checked, so the flusher does not read these bytes. The
        // frame is no longer than the ring: its payload has at most `max_payload` bytes.
        unsafe { stream.put(self.start, kind, payload) };
        stream.order.publish(self.writer.slot, self.end);
        if !shared.options.flushed_by_writers {
            stream.notify();
        }
        if shared.options.flush_interval.is_some() {
            shared.collect(stream, self.start, self.end);
        }
        true
    }
}

impl Drop for Reservation<'_> {
    #[cold]
    fn drop(&mut self) {
        let zeros = vec![0; self.payload_len];
        self.put(FrameKind::Void, Payload::from(&zeros));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::order::tests::interrupt_by;
    use crate::{FrameKind, IncarnationSettings, Log, LogOptions, open};
    use hyades_platform::device::MemoryDevice;
    use std::sync::mpsc;
    use std::time::Duration;

    const BUFFER: usize = 1 << 14;

    fn fill(log: &Log, bytes: usize) {
        let mut writer = log.writer().unwrap();
        let payload = [7; 500];
        for _ in 0..bytes / payload.len() {
            writer.reserve(0, payload.len()).fill(FrameKind::Record, &payload[..]);
        }
    }

    /// A writer is interrupted while it reserves, until others have reserved more than the buffer.
    #[test]
    fn a_writer_that_was_interrupted_gets_room() {
        let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
        let mut options = LogOptions::new(vec![dir.path().to_owned()], 1);
        options.buffer_bytes = BUFFER;
        options.segment_bytes = 1 << 16;
        options.device = MemoryDevice::shared();
        let recovering = open(options).unwrap();
        let verdict = recovering.verdict(&[]).unwrap();
        let log = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            let (others, observer) = (log.clone(), log.writer().unwrap());
            interrupt_by(move || {
                std::thread::spawn(move || fill(&others, 4 * BUFFER));
                let order = &observer.shared.streams[0].order;
                while order.log_lsn() <= BUFFER as u64 {
                    std::thread::yield_now();
                }
            });
            fill(&log, 500);
            ended.send(log.close()).unwrap();
        });
        let closed = end.recv_timeout(Duration::from_secs(60)).expect("it gets room");
        closed.unwrap();
    }
}
