//! The resources bound to the last handle of a log: threads, directory locks, the manifest. Also
//! truncation.
//!
//! Invariant: no file is removed or reused before the manifest durably stops naming the file.

use crate::Lsn;
use crate::error::Error;
use crate::flusher::Flusher;
use crate::log::Shared;
use crate::manifest::{Checkpoint, Covered, Manifest, part_name};
use crate::preparer::{Preparer, Request};
use crate::segment::{Prepared, segment_path, stream_dir};
use crate::start::LaneStart;
use crate::supply::Supply;
use hyades_platform::broken;
use hyades_platform::device::DirectoryLock;
use hyades_platform::event;
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

    /// Durably changes the manifest: the new manifest names the checkpoint, and neither the earlier
    /// incarnations nor the segments of lanes below the positions `up_to`, and has the catalogue if
    /// given. Then releases the files no longer named. Returns the manifest before.
    fn truncate(
        &self,
        up_to: &[(usize, Lsn)],
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
    ) -> Result<Manifest, Error> {
        let _files = locked(&self.files);
        let mut manifest = locked(&self.manifest);
        let before = manifest.clone();
        let mut next = before.clone();
        keep_newest_incarnation(&mut next);
        let newest = next.newest().map(|newest| newest.number);
        assert_eq!(newest, Some(checkpoint.incarnation), "the checkpoint is of another run");
        assert!(
            before.checkpoint.as_ref().is_none_or(|old| old.number < checkpoint.number),
            "checkpoint {} has the files of an earlier one",
            checkpoint.number
        );
        next.checkpoint = Some(checkpoint);
        if let Some(catalogue) = catalogue {
            next.catalogue = catalogue;
        }
        let mut gone = Vec::new();
        for &(lane, up_to) in up_to {
            let segments = locked(&self.shared.segments[lane]);
            // A segment can go if the next segment begins at or below the position.
            let n = segments.windows(2).take_while(|pair| pair[1].1 <= up_to).count();
            debug_assert!(
                n < segments.len().max(1),
                "the segment that is being written is truncated"
            );
            let Some(stream) = next.stream_mut(self.shared.streams[lane].id) else { continue };
            if let Some(&(sequence, start)) = segments.get(n)
                && n > 0
                && sequence > stream.first_sequence
            {
                debug_assert!(start <= up_to, "frames from {up_to} to {start} are still needed");
                stream.first_sequence = sequence;
                stream.kept_from = stream.kept_from.max(start);
                gone.push((lane, n));
            }
        }
        let device = &*self.shared.options.device;
        // The truncated frames, or frames skipped from now on, may hold the last statement of a
        // stream's mark.
        if let Some(newest) = next.incarnations.last_mut() {
            for (lane, dim) in newest.dims.iter_mut().enumerate() {
                dim.mark = self.shared.frontier.mark(lane);
            }
        }
        if broken!(TruncateBeforeManifest) {
            self.release(&before, &next, &gone);
            next.write(device, &self.manifest_dir)?;
        } else {
            next.write(device, &self.manifest_dir)?;
            self.release(&before, &next, &gone);
        }
        *manifest = next;
        Ok(before)
    }

    /// Removes or recycles the files named by `before` and not by `next`. A remaining file is a
    /// leftover, removed by the next opening.
    fn release(&self, before: &Manifest, next: &Manifest, gone: &[(usize, usize)]) {
        let device = &*self.shared.options.device;
        for &(lane, n) in gone {
            let id = self.shared.streams[lane].id;
            let (Some(old), Some(new)) = (before.stream(id), next.stream(id)) else { continue };
            {
                let mut segments = locked(&self.shared.segments[lane]);
                segments.drain(..n);
                let is_named = |&(sequence, start): &(u64, Lsn)| {
                    sequence == new.first_sequence && start <= new.kept_from
                };
                debug_assert!(
                    segments.first().is_some_and(is_named),
                    "a segment of stream {id} that the manifest names is removed"
                );
            }
            let removed = new.first_sequence - old.first_sequence;
            event!(DEBUG, "segments truncated", stream = id.0, segments = removed);
            let place = stream_dir(&before.dirs[old.dir], id);
            let gone = old.first_sequence..new.first_sequence;
            let paths = gone.map(|sequence| segment_path(&place, sequence)).collect();
            if let Some(requests) = &locked(&self.running).requests {
                let _ = requests.send(Request::Retired { lane, paths });
            }
        }
        for stream in before.streams.iter().filter(|s| next.stream(s.id).is_none()) {
            let mut dims = next.incarnations.iter().flat_map(|incarnation| &incarnation.dims);
            let is_kept = dims.any(|dim| dim.stream == stream.id);
            debug_assert!(!is_kept, "an incarnation of the manifest needs stream {}", stream.id);
            let dir = stream_dir(&before.dirs[stream.dir], stream.id);
            for name in device.list(&dir).unwrap_or_default() {
                let _ = device.remove(&dir.join(name));
            }
        }
        if let Some(old) = &before.checkpoint {
            for (at, part) in old.parts.iter().enumerate() {
                let name = part_name(old.number, at);
                debug_assert!(!next.names_part(part.dir, &name), "the manifest still names {name}");
                let _ = device.remove(&before.dirs[part.dir].join(name));
            }
        }
    }

    pub(crate) fn adopt(
        &self,
        checkpoint: Checkpoint,
        catalogue: Option<Vec<u8>>,
    ) -> Result<u64, Error> {
        let lane_of =
            |covered: &Covered| self.shared.streams.iter().position(|s| s.id == covered.stream);
        let positions: Vec<(usize, Lsn)> = checkpoint
            .streams
            .iter()
            .filter_map(|covered| Some((lane_of(covered)?, covered.from)))
            .collect();
        let before = self.truncate(&positions, checkpoint, catalogue)?;
        let now = locked(&self.manifest);
        let kept = |manifest: &Manifest| -> u128 {
            let incarnations = manifest.incarnations.iter().flat_map(|i| &i.dims);
            incarnations
                .filter_map(|dim| {
                    let from = manifest.stream(dim.stream)?.kept_from.max(dim.start);
                    // A still open end counts the same in both manifests.
                    Some(u128::from(dim.end.unwrap_or(u64::MAX).saturating_sub(from)))
                })
                .sum()
        };
        Ok(kept(&before).saturating_sub(kept(&now)) as u64)
    }
}

/// Keeps only the newest incarnation and the streams of the incarnation.
fn keep_newest_incarnation(manifest: &mut Manifest) {
    let Some(newest) = manifest.incarnations.pop() else { return };
    manifest.streams.retain(|s| newest.dims.iter().any(|d| d.stream == s.id));
    manifest.incarnations = vec![newest];
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.frontier.stop("the log was dropped without being closed");
        drop(self.join());
    }
}
