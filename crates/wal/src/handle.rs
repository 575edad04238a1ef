//! The resources bound to the last handle of a log: threads, directory locks, the manifest.

use crate::archive::Archive;
use crate::base_files::Pins;
use crate::error::Error;
use crate::flusher::Flusher;
use crate::log::Shared;
use crate::manifest::{Checkpoint, Manifest};
use crate::preparer::{Preparer, Request};
use crate::segment::Prepared;
use crate::start::LaneStart;
use crate::stream::Stream;
use crate::supply::Supply;
use crate::truncation::{Gone, TruncatedLane, Truncation};
use hyades_platform::broken;
use hyades_platform::device::DirectoryLock;
use hyades_platform::sync::locked;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

/// The resources released with the last [`Log`](crate::Log) handle.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) manifest_dir: PathBuf,
    pub(crate) running: Mutex<Running>,
    /// Held while files are removed, or while all files must stay; taken before `manifest`.
    pub(crate) files: Mutex<()>,
    /// The bases that are read from the files.
    pub(crate) pins: Pins,
}

#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) flushers: Vec<JoinHandle<()>>,
    pub(crate) preparer: Option<JoinHandle<()>>,
    pub(crate) requests: Option<mpsc::Sender<Request>>,
    pub(crate) locks: Vec<DirectoryLock>,
}

impl Handle {
    pub(crate) fn spawn(&self, lanes: Vec<LaneStart>) -> Result<(), Error> {
        let failed = |source| Error::Io {
            path: self.manifest_dir.clone(),
            action: "start a thread for the log in",
            source,
        };
        debug_assert_eq!(lanes.len(), self.shared.streams.len(), "each stream has one flusher");
        let mut running = locked(&self.running);
        let (requests, receiver) = mpsc::channel();
        let mut places = Vec::new();
        let mut starts = Vec::new();
        for lane in lanes {
            places.push(lane.place);
            starts.push((lane.first, lane.replies));
        }
        let device = Arc::clone(&self.shared.options.device);
        let urgency = Arc::clone(&self.shared.urgency);
        let preparer = Preparer::new(device, places, receiver, urgency);
        running.requests = Some(requests.clone());
        let supply = |lane, first: &Prepared, replies| {
            let lengths = (first.length, self.shared.options.segment_bytes);
            Supply::new(lane, lengths, requests.clone(), replies, Arc::clone(&self.shared.urgency))
        };
        if self.shared.options.stepped {
            let preparer = Arc::new(Mutex::new(preparer));
            for (lane, (first, replies)) in starts.into_iter().enumerate() {
                let shared = Arc::clone(&self.shared);
                let supply = supply(lane, &first, replies).stepped(Arc::clone(&preparer));
                let flusher = Flusher::new(shared, lane, first, supply);
                *locked(&self.shared.stepped[lane]) = Some(flusher);
            }
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("log-preparer".into());
        let preparer = thread.spawn(move || preparer.run());
        running.preparer = Some(preparer.map_err(failed)?);
        for (lane, (first, replies)) in starts.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let supply = supply(lane, &first, replies);
            let flusher = Flusher::new(Arc::clone(&shared), lane, first, supply);
            let thread = std::thread::Builder::new().name(format!("log-flusher-{lane}"));
            let thread = if self.shared.options.flushed_by_writers {
                *locked(&self.shared.stepped[lane]) = Some(flusher);
                thread.spawn(move || shared.assist_writers(lane))
            } else {
                thread.spawn(move || flusher.run())
            };
            running.flushers.push(thread.map_err(failed)?);
        }
        Ok(())
    }

    /// Waits for the threads to end; the log has stopped already. Returns the rest, the directory
    /// locks.
    pub(crate) fn join(&self) -> Running {
        for stream in &self.shared.streams {
            stream.wake.notify();
            self.shared.frontier.wake_early(stream.lane);
        }
        // A stepped flusher and the shared state hold each other: dropping the flusher breaks the
        // cycle. (Where writers flush, the stream's thread drops the flusher: the current thread
        // may be the stream's thread, in a waker.)
        if self.shared.options.stepped {
            self.shared.stepped.iter().for_each(|flusher| drop(locked(flusher).take()));
        }
        let mut running = std::mem::take(&mut *locked(&self.running));
        // Dropping the sender is not enough: the current thread may be a flusher's, and the flusher
        // still has a sender.
        if let Some(requests) = running.requests.take() {
            // If sending fails, the preparer has ended already.
            let _ = requests.send(Request::Stop);
        }
        // A segment in preparation is finished at once.
        let _urgent = self.shared.urgency.begin();
        let me = std::thread::current().id();
        let threads = running.flushers.drain(..).chain(running.preparer.take());
        // A waker may drop the last handle on a flusher's own thread; a thread cannot join itself.
        for thread in threads.filter(|t| t.thread().id() != me) {
            // A panic of the thread has poisoned the log; nothing else can be done about it.
            let _ = thread.join();
        }
        running
    }

    /// Durably changes the manifest, see [`Truncation::plan`]; then releases the files no longer
    /// named. Returns how many bytes of frames went.
    pub(crate) fn adopt(
        &self,
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
    ) -> Result<u64, Error> {
        // No other truncation changes the manifest meanwhile.
        let _files = locked(&self.files);
        let manifest = locked(&self.manifest).clone();
        let dims = manifest.newest().map_or(&[][..], |newest| &newest.dims);
        let lane = |(lane, stream): (usize, &Stream)| {
            let (start, durable) = (dims[lane].start, self.shared.frontier.durable(lane));
            let mut begun = locked(&self.shared.segments[lane]).clone();
            if manifest.member.is_some() {
                // A segment taken by the flusher and not yet written does not state the anchor in
                // effect: a mirror that goes on with these files needs the segment before.
                begun.retain(|(_, from)| *from <= start || *from < durable);
            }
            TruncatedLane { stream: stream.id, begun, mark: self.shared.frontier.mark(lane) }
        };
        let lanes: Vec<_> = self.shared.streams.iter().enumerate().map(lane).collect();
        let truncation = Truncation::plan(&manifest, checkpoint, catalogue, &lanes);
        let device = &*self.shared.options.device;
        if let Some(archive) = &self.shared.options.archive {
            if broken!(TruncateUnarchived) {
                truncation.next.write(device, &self.manifest_dir)?;
            }
            Archive::new(device, archive).keep(&manifest, &truncation.next)?;
        }
        let (next, bytes) = (truncation.next.clone(), truncation.bytes());
        let files = (device, &self.pins);
        let mut manifest = locked(&self.manifest);
        truncation.carry_out(files, &self.manifest_dir, |gone| self.retire(gone))?;
        *manifest = next;
        Ok(bytes)
    }

    /// Removes or recycles segments.
    fn retire(&self, gone: &Gone) {
        gone.take_from(&mut locked(&self.shared.segments[gone.lane]));
        if let Some(requests) = &locked(&self.running).requests {
            let _ = requests.send(Request::Retired { lane: gone.lane, paths: gone.paths.clone() });
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.frontier.stop("the log was dropped without being closed");
        drop(self.join());
    }
}
