//! A log that is being written.

use crate::Lsn;
use crate::base_files::Pins;
use crate::error::{Error, Poisoned};
use crate::flusher::{Flusher, StopOnPanic};
use crate::frame;
use crate::frontier::Frontier;
use crate::group::Group;
use crate::handle::{Handle, Running};
use crate::lane::{Lane, LaneKind};
use crate::manifest::{Checkpoint, Manifest};
use crate::marks::Marks;
use crate::options::LogOptions;
use crate::order::Order;
use crate::preparer::Urgency;
use crate::ring::Ring;
use crate::start::LaneStart;
use crate::stream::{Counters, FLUSHER_SLOT, Stream, StreamStats};
use crate::stream_id::StreamId;
use crate::writer::Writer;
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::device::{Device, DirectoryLock};
use hyades_platform::event;
use hyades_platform::event::Event;
use hyades_platform::latency::LatencyCounts;
use hyades_platform::sync::{Padded, locked};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

/// The state shared by the writers, the flushers and the handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: LogOptions,
    pub(crate) uuid: [u8; 16],
    pub(crate) incarnation: u32,
    pub(crate) streams: Vec<Stream>,
    pub(crate) frontier: Frontier,
    pub(crate) max_payload: usize,
    /// Set by `stop_collecting`, read by the flushers. SeqCst, because a flusher reads the flag
    /// after announcing a nap.
    pub(crate) closing: AtomicBool,
    /// Computes the streams' marks. Set once, by a protocol that has them.
    pub(crate) marks: OnceLock<Arc<dyn Marks>>,
    /// The highest common mark requested so far. Raised after every stream was asked for it: a
    /// request that is not higher need not ask them again (Release and Acquire).
    asked: AtomicU64,
    /// Marks up to this one are wanted at once, for a flush of everything. Raised by the
    /// flushing thread, read by the flushers (SeqCst: they read it after announcing their sleep).
    pub(crate) urgent: AtomicU64,
    /// Tells the preparer when segments are needed at once.
    pub(crate) urgency: Arc<Urgency>,
    free_slots: Mutex<Vec<usize>>,
    /// (sequence, start) of each lane's begun segments.
    pub(crate) segments: Vec<Mutex<Vec<(u64, Lsn)>>>,
    /// The flushers of a log that is stepped, or that writers flush, until it stops.
    pub(crate) stepped: Vec<Mutex<Option<Flusher>>>,
}

impl Shared {
    pub(crate) fn free_slot(&self, slot: usize) {
        let mut free = locked(&self.free_slots);
        debug_assert!(!free.contains(&slot), "two writers have slot {slot}");
        free.push(slot);
    }

    /// Flushes a stream of a log that is stepped, or that writers flush; false if there is nothing
    /// to flush or it has stopped.
    pub(crate) fn step(&self, lane: usize) -> bool {
        self.step_with(lane, false)
    }

    /// The same; `waits` for the remote, if any.
    fn step_with(&self, lane: usize, waits: bool) -> bool {
        let Some(flusher) = self.stepped.get(lane) else { return false };
        if self.frontier.poisoned().is_some() {
            return false;
        }
        let _mark = OnDatabaseThread::begin();
        let mut flusher = locked(flusher);
        // The log stops before the lock is released: another thread that waits for it would write
        // the same frames behind a batch whose write or sync has failed.
        let _guard = StopOnPanic(self);
        let result = flusher.as_mut().map_or(Ok(false), |flusher| flusher.step(waits));
        result.unwrap_or_else(|error| {
            self.frontier.fail_by(&error);
            false
        })
    }

    /// Waits until a stream is durable up to `lsn`, flushing it if the log is stepped. False if the
    /// log has stopped.
    pub(crate) fn reached(&self, lane: usize, lsn: Lsn) -> bool {
        while self.options.stepped
            && self.frontier.durable(lane) < lsn
            && self.step_with(lane, true)
        {}
        self.wake_flusher(lane);
        self.frontier.reached(lane, lsn)
    }

    /// Makes the stream's flusher stop collecting work, because a thread waits for the stream.
    fn wake_flusher(&self, stream: usize) {
        self.frontier.wake_early(stream);
        if self.options.flushed_by_writers {
            self.streams[stream].wake.notify();
        }
    }

    /// Requests that a lane reach `number`: makes the streams state their marks. Positions
    /// need no request, since flushers always flush, or writers what they have written.
    pub(crate) fn request(&self, lane: Lane, number: u64) {
        let n = self.streams.len();
        match lane.kind(n) {
            LaneKind::Position(stream) => {
                if self.options.flushed_by_writers && self.frontier.durable(stream) < number {
                    self.streams[stream].wake.notify();
                }
            }
            LaneKind::Mark(stream) => self.ask_stream(stream, number),
            LaneKind::Common if self.asked.load(Ordering::Acquire) < number => {
                (0..n).for_each(|stream| self.ask_stream(stream, number));
                self.asked.fetch_max(number, Ordering::Release);
            }
            LaneKind::Common => {}
        }
    }

    fn ask_stream(&self, stream: usize, number: u64) {
        let stream = &self.streams[stream];
        if stream.wanted_mark.fetch_max(number, Ordering::SeqCst) < number {
            stream.notify();
        }
    }

    /// Requests that a lane reach `number` for a thread that sleeps until then.
    fn wake_early(&self, lane: Lane, number: u64) {
        self.request(lane, number);
        let n = self.streams.len();
        match lane.kind(n) {
            LaneKind::Position(stream) | LaneKind::Mark(stream) => self.wake_flusher(stream),
            LaneKind::Common => {
                for stream in (0..n).filter(|&s| self.frontier.mark(s) < number) {
                    self.wake_flusher(stream);
                }
            }
        }
    }

    /// Requests that one of the slots reach its number, and flushes a stepped log until one has.
    pub(crate) fn reach_any(&self, wanted: &[(Lane, u64)]) {
        wanted.iter().for_each(|&(lane, number)| self.wake_early(lane, number));
        if !self.options.stepped {
            return;
        }
        let is_reached = || wanted.iter().any(|&(lane, number)| self.frontier.at(lane) >= number);
        // A flush places anchors of its own, and may leave them to the next one.
        let step_all =
            || (0..self.streams.len()).fold(false, |went, lane| self.step_with(lane, true) | went);
        while !is_reached() && step_all() {}
    }

    /// Waits until all marks have reached `number`, which is to happen as soon as possible.
    fn reach_marks(&self, number: u64) -> Result<(), Poisoned> {
        self.urgent.fetch_max(number, Ordering::SeqCst);
        self.request(self.frontier.common_lane(), number);
        for (lane, stream) in self.streams.iter().enumerate() {
            // It may have been asked before and be pausing before it tries again.
            stream.notify();
            self.wake_flusher(lane);
            while self.options.stepped
                && self.frontier.mark(lane) < number
                && self.step_with(lane, true)
            {}
            self.frontier.wait(self.frontier.mark_lane(lane), number)?;
        }
        self.frontier.wait(self.frontier.common_lane(), number)
    }

    pub(crate) fn add_segment(&self, lane: usize, sequence: u64, start: Lsn) {
        let mut segments = locked(&self.segments[lane]);
        let is_later = |&(last, from): &(u64, Lsn)| last < sequence && from <= start;
        debug_assert!(
            segments.last().is_none_or(is_later),
            "segment {sequence} is not behind the last"
        );
        segments.push((sequence, start));
        event!(DEBUG, "segment begun", stream = self.streams[lane].id.0, sequence = sequence);
    }
}

/// What `Recovering::start` has prepared.
pub(crate) struct Opened {
    pub(crate) options: LogOptions,
    pub(crate) locks: Vec<DirectoryLock>,
    pub(crate) manifest: Manifest,
    pub(crate) manifest_dir: PathBuf,
    pub(crate) lanes: Vec<LaneStart>,
}

/// A log being written: N streams, each with its flusher. Clones are handles to the same log.
///
/// Dropping the last handle without [`close`](Log::close) stops the flushers as a crash would: what
/// is not durable is lost, and its waiters get [`Poisoned`].
#[derive(Clone, Debug)]
pub struct Log {
    pub(crate) handle: Arc<Handle>,
}

impl Log {
    pub(crate) fn run(opened: Opened) -> Result<Self, Error> {
        let Opened { options, locks, manifest, manifest_dir, lanes } = opened;
        let starts: Vec<Lsn> = lanes.iter().map(|l| l.start).collect();
        let uuid = manifest.uuid();
        let incarnation = manifest.next_incarnation - 1;
        let begun = manifest.newest().map(|newest| (newest.number, newest.dims.len()));
        debug_assert_eq!(
            begun,
            Some((incarnation, lanes.len())),
            "the manifest does not know this run"
        );
        debug_assert_eq!(lanes.len(), options.streams, "another number of streams was wanted");
        let stream = |(lane, l): (usize, &LaneStart)| Stream {
            lane,
            id: l.stream,
            order: Order::new(l.start, options.max_writers + 1)
                .reserving_by_exchange(options.reserve_by_exchange),
            ring: Ring::new(options.buffer_bytes),
            seed: frame::seed(&uuid, l.stream, incarnation),
            wake: Event::new(),
            published: starts.iter().map(|&s| AtomicU64::new(s)).collect(),
            anchors: Mutex::new(VecDeque::from([(starts[lane], starts.clone())])),
            wanted_mark: AtomicU64::new(0),
            counters: Counters::default(),
            group: Group::default(),
            pace: Padded::default(),
        };
        let shared = Arc::new(Shared {
            uuid,
            incarnation,
            streams: lanes.iter().enumerate().map(stream).collect(),
            frontier: Frontier::new(&starts).with_remote(options.remote.clone()),
            max_payload: options.max_payload(),
            closing: AtomicBool::new(false),
            marks: OnceLock::new(),
            asked: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            urgency: Arc::default(),
            free_slots: Mutex::new((FLUSHER_SLOT + 1..=options.max_writers).rev().collect()),
            segments: lanes.iter().map(|l| Mutex::new(l.begun.clone())).collect(),
            stepped: lanes.iter().map(|_| Mutex::new(None)).collect(),
            options,
        });
        let running = Mutex::new(Running { locks, ..Running::default() });
        let manifest = Mutex::new(manifest);
        // From here on, dropping the handle ends everything that was started.
        let (files, pins) = (Mutex::default(), Pins::default());
        let handle = Handle { shared, manifest, manifest_dir, running, files, pins };
        handle.spawn(lanes)?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Whether both are handles of one log.
    #[inline]
    pub fn is(&self, other: &Log) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.handle.shared.streams.len()
    }

    /// The number of this incarnation.
    pub fn incarnation(&self) -> u32 {
        self.handle.shared.incarnation
    }

    /// The stream's id, which the database never uses for another stream.
    pub fn stream_id(&self, stream: usize) -> StreamId {
        self.handle.shared.streams[stream].id
    }

    /// The durable position and mark of each stream.
    pub fn frontier(&self) -> &Frontier {
        &self.handle.shared.frontier
    }

    /// Makes streams state marks, as `marks` computes them, when they are flushed and when a
    /// thread waits for one. Call it once, before the first frame that has a number.
    pub fn install_marks(&self, marks: Arc<dyn Marks>) {
        let is_first = self.handle.shared.marks.set(marks).is_ok();
        debug_assert!(is_first, "a log has one source of marks");
    }

    /// The number of frontier slots that may be waited for, the [first](Lane::first) ones:
    /// marks only if there are any.
    pub fn lanes(&self) -> usize {
        let marks = self.handle.shared.marks.get().is_some();
        if marks { Lane::count(self.streams()) } else { self.streams() }
    }

    /// Requests that a slot of the frontier reach `number`, for a caller that polls it.
    #[inline]
    pub fn request(&self, lane: Lane, number: u64) {
        self.handle.shared.request(lane, number);
    }

    /// Blocks until a slot of the frontier has reached `number`.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn wait(&self, lane: Lane, number: u64) -> Result<(), Poisoned> {
        if self.frontier().at(lane) >= number {
            return Ok(());
        }
        self.handle.shared.reach_any(&[(lane, number)]);
        self.frontier().wait(lane, number)
    }

    /// Blocks until one of several slots of the frontier has reached the number beside it; returns
    /// at once if there are none.
    ///
    /// # Errors
    /// The log stopped before any was reached.
    pub fn wait_any(&self, wanted: &[(Lane, u64)]) -> Result<(), Poisoned> {
        self.wait_any_or_to_answer(wanted, false)
    }

    /// As [`wait_any`](Self::wait_any); with `answers`, returns also once transactions that have
    /// only read may be acknowledged. A stepped log has no thread that could extend the lease
    /// meanwhile.
    pub(crate) fn wait_any_or_to_answer(
        &self,
        wanted: &[(Lane, u64)],
        answers: bool,
    ) -> Result<(), Poisoned> {
        self.handle.shared.reach_any(wanted);
        self.frontier().wait_any_or_to_answer(wanted, answers)
    }

    /// Parks a waker until a slot of the frontier has reached `number`, or the log stops. The waker
    /// may be woken early: check again then. Returns its key, for [`Log::withdraw`].
    pub fn register(&self, lane: Lane, number: u64, waker: Waker) -> u64 {
        self.handle.shared.wake_early(lane, number);
        self.frontier().register(lane, number, waker)
    }

    /// Withdraws a parked waker, unless it has been woken: it is not needed any more.
    pub fn withdraw(&self, lane: Lane, number: u64, key: u64) {
        self.frontier().withdraw(lane, number, key);
    }

    /// The highest number of all frames reserved so far; 0 where frames have no numbers.
    pub fn highest_number(&self) -> u64 {
        self.handle.shared.marks.get().map_or(0, |marks| marks.highest())
    }

    /// The largest payload of a frame, in bytes.
    pub fn max_payload(&self) -> usize {
        self.handle.shared.max_payload
    }

    /// The stream's published anchor, by component, for
    /// [`compress::encode`](crate::compress::encode). Load it with Acquire and before reserving:
    /// then the anchor is before the frame.
    #[inline]
    pub fn anchors(&self, stream: usize) -> &[AtomicU64] {
        &self.handle.shared.streams[stream].published
    }

    /// Returns a writer for the calling thread.
    ///
    /// # Errors
    /// [`Error::Writers`]: all `max_writers` are in use.
    pub fn writer(&self) -> Result<Writer, Error> {
        let shared = &self.handle.shared;
        let Some(slot) = locked(&shared.free_slots).pop() else {
            return Err(Error::Writers(shared.options.max_writers));
        };
        Ok(Writer::new(Arc::clone(shared), slot))
    }

    /// The end of the stream's last reservation.
    #[inline]
    pub fn next_lsn(&self, stream: usize) -> Lsn {
        self.handle.shared.streams[stream].order.log_lsn()
    }

    /// Bytes of a stream that are reserved and not yet durable.
    #[inline]
    pub fn backlog(&self, stream: usize) -> u64 {
        self.handle.shared.streams[stream].backlog(&self.handle.shared.frontier)
    }

    /// Why the log has stopped, if it has.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.frontier().poisoned()
    }

    /// Whether the calling thread is one of the log's flushers, which run wakers. It must not wait
    /// for the log, which would wait for it.
    pub fn is_flusher_thread(&self) -> bool {
        let me = std::thread::current().id();
        locked(&self.handle.running).flushers.iter().any(|thread| thread.thread().id() == me)
    }

    /// The counters of a stream.
    pub fn stats(&self, stream: usize) -> StreamStats {
        self.handle.shared.streams[stream].counters.get()
    }

    /// The duration of each sync of a stream.
    pub fn sync_latency(&self, stream: usize) -> LatencyCounts {
        self.handle.shared.streams[stream].counters.sync_latency()
    }

    /// The buffer of each stream in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.handle.shared.options.buffer_bytes
    }

    /// Waits until everything reserved so far is durable and, if frames have numbers, every stream
    /// has stated so.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn flush(&self) -> Result<(), Poisoned> {
        let number = self.highest_number();
        for stream in 0..self.streams() {
            let target = self.next_lsn(stream);
            if !self.handle.shared.reached(stream, target) {
                self.frontier().wait(Lane::position(stream), target)?;
            }
        }
        self.handle.shared.reach_marks(number)
    }

    /// Writes and syncs what a stream of a stepped log has to flush; false if there is nothing, or
    /// the log has stopped. Has no effect on a log with threads.
    pub fn step(&self, stream: usize) -> bool {
        self.handle.shared.step(stream)
    }

    /// A copy of the manifest as it is now.
    pub fn manifest(&self) -> Manifest {
        locked(&self.handle.manifest).clone()
    }

    /// The number of the next checkpoint, and where its parts go: for each, the index of its
    /// directory in [`Manifest::dirs`] and its file. There are `parts` parts for each directory
    /// that the log writes to.
    pub fn next_checkpoint(&self, parts: usize) -> (u64, Vec<(usize, PathBuf)>) {
        let given = &self.handle.shared.options.dirs;
        locked(&self.handle.manifest).next_checkpoint(parts, given)
    }

    /// The device that holds the log.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.handle.shared.options.device
    }

    /// Makes recovery begin with this checkpoint: the manifest records it durably, and the log that
    /// it covers is truncated, that is, all earlier incarnations and whole segments below its
    /// positions. Only then are files removed or reused, including those of the last checkpoint.
    /// The caller has made its parts durable, names included, and guarantees that every stream is
    /// durable up to its position and to the end of every frame whose epoch is not above the cut.
    /// Returns how many bytes of frames were truncated.
    ///
    /// # Errors
    /// The manifest could not be written; then it is not known which of the two checkpoints counts,
    /// and nothing is truncated.
    pub fn adopt(&self, checkpoint: Checkpoint) -> Result<u64, Error> {
        self.handle.adopt(checkpoint, None)
    }

    /// Like [`Log::adopt`]; the same manifest also replaces the engine's catalogue.
    ///
    /// # Errors
    /// As [`Log::adopt`]; it is not known either which catalogue counts.
    pub fn adopt_with_catalogue(
        &self,
        checkpoint: Checkpoint,
        catalogue: Vec<u8>,
    ) -> Result<u64, Error> {
        self.handle.adopt(checkpoint, Some(catalogue))
    }

    /// Keeps all files until the guard is dropped; a truncation waits for it.
    pub(crate) fn keep_files(&self) -> MutexGuard<'_, ()> {
        locked(&self.handle.files)
    }
}
