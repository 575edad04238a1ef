//! A log that is being written.

use crate::Lsn;
use crate::error::{Error, Poisoned};
use crate::flusher::Flusher;
use crate::frame;
use crate::frontier::Frontier;
use crate::manifest::{Manifest, StreamEntry};
use crate::options::LogOptions;
use crate::order::Order;
use crate::ring::Ring;
use crate::segment::{Preparer, Request, segment_path, stream_dir};
use crate::start::Lane;
use crate::stream::{Counters, FLUSHER_SLOT, Stream, StreamStats};
use crate::writer::Writer;
use hyades_platform::device::DirectoryLock;
use hyades_platform::event::Event;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What the writers, the flushers and the handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: LogOptions,
    pub(crate) uuid: [u8; 16],
    pub(crate) incarnation: u32,
    pub(crate) streams: Vec<Stream>,
    pub(crate) frontier: Frontier,
    pub(crate) max_payload: usize,
    /// Set once by `close`; read by the flushers, which then let nothing collect any more. SeqCst,
    /// because they look at it after they announced a nap.
    pub(crate) closing: AtomicBool,
    free_slots: Mutex<Vec<usize>>,
    /// (sequence, start) of each lane's begun segments.
    segments: Vec<Mutex<Vec<(u64, Lsn)>>>,
    /// The flushers of a stepped log, until it stops.
    stepped: Vec<Mutex<Option<Flusher>>>,
}

impl Shared {
    pub(crate) fn free_slot(&self, slot: usize) {
        locked(&self.free_slots).push(slot);
    }

    /// Flushes a stream of a stepped log; false if there was nothing to flush, or the log has stopped.
    pub(crate) fn step(&self, lane: usize) -> bool {
        let Some(flusher) = self.stepped.get(lane) else { return false };
        if self.frontier.poisoned().is_some() {
            return false;
        }
        let result = locked(flusher).as_mut().map_or(Ok(false), Flusher::step);
        result.unwrap_or_else(|error| {
            self.frontier.stop(&error.to_string());
            false
        })
    }

    /// Waits until a stream is durable up to `lsn`, and flushes it for that if nobody else does. False
    /// if the log has stopped.
    pub(crate) fn reached(&self, lane: usize, lsn: Lsn) -> bool {
        while self.options.stepped && self.frontier.durable(lane) < lsn && self.step(lane) {}
        self.frontier.hurry(lane);
        self.frontier.reached(lane, lsn)
    }

    pub(crate) fn add_segment(&self, lane: usize, sequence: u64, start: Lsn) {
        locked(&self.segments[lane]).push((sequence, start));
    }
}

/// What `Recovering::start` found and prepared.
pub(crate) struct Opened {
    pub(crate) options: LogOptions,
    pub(crate) locks: Vec<DirectoryLock>,
    pub(crate) manifest: Manifest,
    pub(crate) manifest_dir: PathBuf,
    pub(crate) lanes: Vec<Lane>,
}

/// Everything that ends with the last [`Log`] handle.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    manifest: Mutex<Manifest>,
    manifest_dir: PathBuf,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    flushers: Vec<JoinHandle<()>>,
    preparer: Option<JoinHandle<()>>,
    requests: Option<mpsc::Sender<Request>>,
    locks: Vec<DirectoryLock>,
}

/// A log that is being written: N streams, each with its flusher. Clones are handles to the same
/// log.
///
/// Dropping the last handle without [`close`](Log::close) stops the flushers as a crash would: what
/// is not durable is lost, and whoever waits for it sees [`Poisoned`].
#[derive(Clone, Debug)]
pub struct Log {
    handle: Arc<Handle>,
}

impl Log {
    pub(crate) fn run(opened: Opened) -> Result<Self, Error> {
        let Opened { options, locks, manifest, manifest_dir, lanes } = opened;
        let starts: Vec<Lsn> = lanes.iter().map(|l| l.start).collect();
        let uuid = manifest.uuid();
        let incarnation = manifest.next_incarnation - 1;
        let stream = |(lane, l): (usize, &Lane)| Stream {
            lane,
            id: l.stream,
            order: Order::new(l.start, options.max_writers + 1),
            ring: Ring::new(options.buffer_bytes),
            seed: frame::seed(&uuid, l.stream, incarnation),
            wake: Event::new(),
            published: starts.iter().map(|&s| AtomicU64::new(s)).collect(),
            anchors: Mutex::new(VecDeque::from([(starts[lane], starts.clone())])),
            heartbeat: AtomicU64::new(0),
            counters: Counters::default(),
        };
        let shared = Arc::new(Shared {
            uuid,
            incarnation,
            streams: lanes.iter().enumerate().map(stream).collect(),
            frontier: Frontier::new(&starts),
            max_payload: options.max_payload(),
            closing: AtomicBool::new(false),
            free_slots: Mutex::new((FLUSHER_SLOT + 1..=options.max_writers).rev().collect()),
            segments: lanes.iter().map(|l| Mutex::new(l.begun.clone())).collect(),
            stepped: lanes.iter().map(|_| Mutex::new(None)).collect(),
            options,
        });
        let running = Mutex::new(Running { locks, ..Running::default() });
        let manifest = Mutex::new(manifest);
        // From here on, dropping the handle ends whatever was started.
        let handle = Handle { shared, manifest, manifest_dir, running };
        handle.spawn(lanes)?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.handle.shared.streams.len()
    }

    /// The number of this incarnation.
    pub fn incarnation(&self) -> u32 {
        self.handle.shared.incarnation
    }

    /// How far each stream is durable.
    pub fn frontier(&self) -> &Frontier {
        &self.handle.shared.frontier
    }

    /// The largest payload of a frame, in bytes.
    pub fn max_payload(&self) -> usize {
        self.handle.shared.max_payload
    }

    /// The stream's published anchor, lane by lane; see [`anchor`](Self::anchor). Load with Acquire.
    #[inline]
    pub fn anchors(&self, stream: usize) -> &[AtomicU64] {
        &self.handle.shared.streams[stream].published
    }

    /// A lane of the stream's published anchor, for [`compress::encode`](crate::compress::encode).
    /// Load it before the place is reserved: then the anchor lies before the frame.
    #[inline]
    pub fn anchor(&self, stream: usize, lane: usize) -> u64 {
        // Acquire; see `Stream::published`.
        self.handle.shared.streams[stream].published[lane].load(Ordering::Acquire)
    }

    /// A writer for the calling thread.
    ///
    /// # Errors
    /// There are `max_writers` of them already.
    pub fn writer(&self) -> Result<Writer, Error> {
        let shared = &self.handle.shared;
        let Some(slot) = locked(&shared.free_slots).pop() else {
            return Err(Error::Invalid(format!(
                "all {} writers of the log are in use: drop one, or raise max_writers",
                shared.options.max_writers
            )));
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

    /// The stream with the fewest bytes to flush.
    pub fn least_backlogged(&self) -> usize {
        (0..self.streams()).min_by_key(|&s| self.backlog(s)).unwrap_or(0)
    }

    /// Why the log has stopped, if it has.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.frontier().poisoned()
    }

    /// The counters of a stream.
    pub fn stats(&self, stream: usize) -> StreamStats {
        self.handle.shared.streams[stream].counters.get()
    }

    /// Asks for a heartbeat frame that states `mark`. The caller knows that no frame that the
    /// stream gets from now on has a lower one. Once it is durable, [`Frontier::mark`] is at least
    /// `mark`.
    pub fn heartbeat(&self, stream: usize, mark: u64) {
        let stream = &self.handle.shared.streams[stream];
        // SeqCst: raised before the look for a sleeping flusher, which looks at it after
        // announcing.
        stream.heartbeat.fetch_max(mark.saturating_add(1), Ordering::SeqCst);
        stream.notify();
    }

    /// Waits until everything reserved so far is durable.
    ///
    /// # Errors
    /// The log stopped before.
    pub fn flush(&self) -> Result<(), Poisoned> {
        for stream in 0..self.streams() {
            let target = self.next_lsn(stream);
            if !self.handle.shared.reached(stream, target) {
                self.frontier().wait(stream, target)?;
            }
        }
        Ok(())
    }

    /// Writes and syncs what a stream of a stepped log has to flush; false if there is nothing, or the
    /// log has stopped. Nothing happens to a log with threads.
    pub fn step(&self, stream: usize) -> bool {
        self.handle.shared.step(stream)
    }

    /// A copy of the manifest as it is now.
    pub fn manifest(&self) -> Manifest {
        locked(&self.handle.manifest).clone()
    }

    /// Gives up the frames of a lane's stream below `up_to`, segment by segment, including those of
    /// earlier incarnations. The manifest says so, durably, before a file is reused. Returns from
    /// where on frames are kept.
    ///
    /// # Errors
    /// The manifest could not be written; nothing is given up then.
    pub fn retire(&self, lane: usize, up_to: Lsn) -> Result<Lsn, Error> {
        self.handle.retire(lane, up_to)
    }

    /// Gives up all incarnations before this one.
    ///
    /// # Errors
    /// As [`retire`](Self::retire).
    pub fn retire_past_incarnations(&self) -> Result<(), Error> {
        self.handle.retire_past()
    }

    /// Makes everything reserved so far durable, records the clean end, and releases the
    /// directories. All other handles and writers are useless from then on. A reservation that is
    /// never filled holds this up.
    ///
    /// # Errors
    /// The log had stopped before, or the manifest could not be written.
    pub fn close(self) -> Result<(), Error> {
        let handle = &self.handle;
        handle.shared.closing.store(true, Ordering::SeqCst);
        for stream in &handle.shared.streams {
            handle.shared.frontier.hurry(stream.lane);
        }
        self.flush()?;
        handle.shared.frontier.stop("it was closed");
        let Running { locks, .. } = handle.join();
        let mut manifest = locked(&handle.manifest);
        if let Some(newest) = manifest.incarnations.last_mut() {
            newest.clean = true;
            for (lane, dim) in newest.dims.iter_mut().enumerate() {
                dim.end = Some(handle.shared.frontier.durable(lane));
            }
        }
        manifest.write(&*handle.shared.options.device, &handle.manifest_dir)?;
        drop(locks);
        Ok(())
    }
}

impl Handle {
    fn spawn(&self, lanes: Vec<Lane>) -> Result<(), Error> {
        let failed = |source| Error::Io {
            path: self.manifest_dir.clone(),
            action: "start a thread for the log in",
            source,
        };
        let mut running = locked(&self.running);
        let (requests, receiver) = mpsc::channel();
        let mut places = Vec::new();
        let mut starts = Vec::new();
        for lane in lanes {
            places.push(lane.place);
            starts.push((lane.first, lane.replies));
        }
        let device = Arc::clone(&self.shared.options.device);
        let preparer = Preparer::new(device, places, receiver);
        running.requests = Some(requests.clone());
        if self.shared.options.stepped {
            let preparer = Arc::new(Mutex::new(preparer));
            for (lane, (first, replies)) in starts.into_iter().enumerate() {
                let shared = Arc::clone(&self.shared);
                let flusher = Flusher::new(shared, lane, first, requests.clone(), replies);
                let flusher = flusher.stepped(Arc::clone(&preparer));
                *locked(&self.shared.stepped[lane]) = Some(flusher);
            }
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("log-preparer".into());
        let preparer = thread.spawn(move || preparer.run());
        running.preparer = Some(preparer.map_err(failed)?);
        for (lane, (first, replies)) in starts.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let flusher = Flusher::new(shared, lane, first, requests.clone(), replies);
            let thread = std::thread::Builder::new().name(format!("log-flusher-{lane}"));
            running.flushers.push(thread.spawn(move || flusher.run()).map_err(failed)?);
        }
        Ok(())
    }

    /// Waits for the threads to end; the log is stopped already. Hands back what they were started
    /// with.
    fn join(&self) -> Running {
        for stream in &self.shared.streams {
            stream.wake.notify();
            self.shared.frontier.hurry(stream.lane);
        }
        // A flusher holds what holds it.
        self.shared.stepped.iter().for_each(|flusher| drop(locked(flusher).take()));
        let mut running = std::mem::take(&mut *locked(&self.running));
        // The preparer ends when nobody can ask it any more.
        running.requests = None;
        let me = std::thread::current().id();
        let threads = running.flushers.drain(..).chain(running.preparer.take());
        // A waker may drop the last handle on a flusher's own thread.
        for thread in threads.filter(|t| t.thread().id() != me) {
            // A panic there has poisoned the log, which is all that can be done about it.
            let _ = thread.join();
        }
        running
    }

    fn retire(&self, lane: usize, up_to: Lsn) -> Result<Lsn, Error> {
        let mut manifest = locked(&self.manifest);
        let id = self.shared.streams[lane].id;
        let mut segments = locked(&self.shared.segments[lane]);
        // A segment goes when the next one begins at or below the position.
        let gone = segments.windows(2).take_while(|pair| pair[1].1 <= up_to).count();
        let Some(&(first_sequence, kept_from)) = segments.get(gone) else { return Ok(0) };
        let mut next = manifest.clone();
        let Some(stream) = next.stream_mut(id) else { return Ok(0) };
        let from = stream.first_sequence;
        if gone == 0 || first_sequence <= from {
            return Ok(stream.kept_from);
        }
        stream.first_sequence = first_sequence;
        stream.kept_from = stream.kept_from.max(kept_from);
        let dir = stream.dir;
        let place = stream_dir(&next.dirs[dir], id);
        next.write(&*self.shared.options.device, &self.manifest_dir)?;
        *manifest = next;
        segments.drain(..gone);
        let paths = (from..first_sequence).map(|sequence| segment_path(&place, sequence)).collect();
        if let Some(requests) = &locked(&self.running).requests {
            // If the preparer is gone, the files go when the log is opened next.
            let _ = requests.send(Request::Retired { lane, paths });
        }
        Ok(kept_from)
    }

    fn retire_past(&self) -> Result<(), Error> {
        let starts: Vec<Lsn> = {
            let mut manifest = locked(&self.manifest);
            let mut next = manifest.clone();
            let Some(newest) = next.incarnations.pop() else { return Ok(()) };
            let starts = newest.dims.iter().map(|d| d.start).collect();
            let used = |s: &StreamEntry| newest.dims.iter().any(|d| d.stream == s.id);
            let unused: Vec<_> = next.streams.iter().filter(|s| !used(s)).cloned().collect();
            next.streams.retain(used);
            next.incarnations = vec![newest];
            let device = &*self.shared.options.device;
            next.write(device, &self.manifest_dir)?;
            for stream in unused {
                let dir = stream_dir(&next.dirs[stream.dir], stream.id);
                for name in device.list(&dir).unwrap_or_default() {
                    // What cannot be removed does no harm: nothing refers to it.
                    let _ = device.remove(&dir.join(name));
                }
            }
            *manifest = next;
            starts
        };
        for (lane, start) in starts.into_iter().enumerate() {
            self.retire(lane, start)?;
        }
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.frontier.stop("the log was dropped without being closed");
        drop(self.join());
    }
}
