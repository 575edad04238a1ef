//! Preparing segments ahead of need, and reusing retired segments.

use crate::error::Error;
use crate::segment::{Prepared, prepare, segment_path};
use hyades_platform::callback::OnDatabaseThread;
use hyades_platform::device::Device;
use hyades_platform::sync::locked;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Renames a retired file, for reuse.
fn recycle(
    device: &dyn Device,
    dir: &Path,
    sequence: u64,
    retired: &Path,
) -> Result<Prepared, Error> {
    let path = segment_path(dir, sequence);
    device.rename(retired, &path).map_err(Error::io(&path, "rename a retired segment to"))?;
    device.sync_dir(dir).map_err(Error::io(dir, "sync the directory"))?;
    let file = device.open(&path).map_err(Error::io(&path, "open"))?;
    let length = file.len().map_err(Error::io(&path, "measure"))?;
    Ok(Prepared { path, sequence, length, file })
}

/// A request to the preparer.
#[derive(Debug)]
pub(crate) enum Request {
    /// The next segment of a stream, of `length` bytes unless a retired segment is reused. Needed
    /// `within` this time at the stream's present speed.
    Next { lane: usize, length: u64, within: Duration },
    /// Files of a stream no longer needed, and removed from the manifest.
    Retired { lane: usize, paths: Vec<PathBuf> },
    /// No more requests. Needed because a flusher may still hold a sender.
    Stop,
}

/// The preparer's state of a stream.
#[derive(Debug)]
pub(crate) struct LanePlace {
    pub(crate) dir: PathBuf,
    /// The sequence number of the next segment.
    pub(crate) next_sequence: u64,
    /// Segments found prepared by the opening of the log.
    pub(crate) ready: VecDeque<Prepared>,
    pub(crate) reply: mpsc::Sender<Result<Prepared, Error>>,
}

/// Whether segments are needed at once: flushers wait for a segment, or the log ends.
#[derive(Debug, Default)]
pub(crate) struct Urgency {
    reasons: Mutex<usize>,
    more: Condvar,
}

impl Urgency {
    /// Adds a reason; the reason stands until the guard is dropped.
    pub(crate) fn begin(&self) -> UrgencyGuard<'_> {
        *locked(&self.reasons) += 1;
        self.more.notify_all();
        UrgencyGuard(self)
    }

    /// Waits for `time`; false if a segment is, or becomes, urgent.
    fn pause(&self, time: Duration) -> bool {
        let reasons = locked(&self.reasons);
        let waited = self.more.wait_timeout_while(reasons, time, |reasons| *reasons == 0);
        *waited.unwrap_or_else(|e| e.into_inner()).0 == 0
    }
}

/// A reason: see [`Urgency::begin`].
#[derive(Debug)]
pub(crate) struct UrgencyGuard<'a>(&'a Urgency);

impl Drop for UrgencyGuard<'_> {
    fn drop(&mut self) {
        *locked(&self.0.reasons) -= 1;
    }
}

/// The longest pause between two pieces of a segment: an idle log may become busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Spreads the writing of a segment over the time until the segment is needed: a flusher's sync
/// would wait for the writes on the device, and copying takes processor time.
struct SegmentPace<'a> {
    urgency: &'a Urgency,
    /// The time for a byte.
    ns_per_byte: f64,
    piece_began: Instant,
}

impl<'a> SegmentPace<'a> {
    fn new(urgency: &'a Urgency, time: Duration, length: u64) -> Self {
        let ns_per_byte = time.as_nanos() as f64 / length as f64;
        Self { urgency, ns_per_byte, piece_began: Instant::now() }
    }

    /// Waits until it is time for the piece after a piece of `bytes` bytes; false if there is no
    /// time.
    fn after(&mut self, bytes: u64) -> bool {
        let time = Duration::from_nanos((bytes as f64 * self.ns_per_byte) as u64);
        let left = time.saturating_sub(self.piece_began.elapsed());
        let has_time = self.urgency.pause(left.min(LONGEST_PAUSE));
        self.piece_began = Instant::now();
        has_time
    }
}

/// The number of retired files of a stream kept for reuse beyond the number needed last time.
const SPARE_FILES: usize = 2;

/// Retired files of a stream. The pool keeps as many as were needed between the last two
/// retirements, plus a few: with checkpoints at a steady rate, no file is created, zero-filled or
/// removed.
#[derive(Debug, Default)]
struct Pool {
    /// In order of retirement. An incarnation's first segments are short, and are removed first.
    files: VecDeque<PathBuf>,
    /// Segments requested since the last retirement; and between the last two.
    asked: usize,
    asked_before: usize,
}

impl Pool {
    /// Adds retired files; returns the files beyond the pool's size, for removal.
    fn retire(&mut self, paths: Vec<PathBuf>) -> impl Iterator<Item = PathBuf> {
        self.files.extend(paths);
        // Retirements without a request in between count as a single retirement.
        if self.asked > 0 {
            self.asked_before = std::mem::take(&mut self.asked);
        }
        let kept = self.asked_before + SPARE_FILES;
        self.files.drain(..self.files.len().saturating_sub(kept))
    }
}

/// Makes segments ahead of need, on a separate thread or, in a stepped log, for a calling flusher.
#[derive(Debug)]
pub(crate) struct Preparer {
    device: Arc<dyn Device>,
    lanes: Vec<LanePlace>,
    pools: Vec<Pool>,
    requests: mpsc::Receiver<Request>,
    urgency: Arc<Urgency>,
}

impl Preparer {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        lanes: Vec<LanePlace>,
        requests: mpsc::Receiver<Request>,
        urgency: Arc<Urgency>,
    ) -> Self {
        let is_next = |place: &LanePlace| {
            let mut back = place.ready.iter().rev().zip(1..);
            back.all(|(ready, before)| ready.sequence + before == place.next_sequence)
        };
        debug_assert!(
            lanes.iter().all(is_next),
            "a segment is missing behind those that are ready"
        );
        let pools = lanes.iter().map(|_| Pool::default()).collect();
        Self { device, lanes, pools, requests, urgency }
    }

    /// Serves requests until [`Request::Stop`], or until all senders are gone. Runs on a separate
    /// thread: zero-filling a file and syncing a directory take long, and the result should be
    /// ready when a flusher needs it.
    pub(crate) fn run(mut self) {
        let _mark = OnDatabaseThread::begin();
        while let Ok(request) = self.requests.recv() {
            if let Request::Stop = request {
                return;
            }
            self.serve(request);
        }
    }

    /// Serves the pending requests: for a log without threads.
    pub(crate) fn serve_waiting(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            self.serve(request);
        }
    }

    fn serve(&mut self, request: Request) {
        let Self { device, lanes, pools, urgency, .. } = self;
        let device = &**device;
        let streams = lanes.len() as u32;
        match request {
            Request::Next { lane, length, within } => {
                let (place, pool) = (&mut lanes[lane], &mut pools[lane]);
                pool.asked += 1;
                // A file that cannot be reused, for lack of permissions, say, is not needed.
                let mut reused = || {
                    let old = pool.files.pop_back()?;
                    let recycled = recycle(device, &place.dir, place.next_sequence, &old);
                    recycled.ok().or_else(|| {
                        let _ = device.remove(&segment_path(&place.dir, place.next_sequence));
                        let _ = device.remove(&old);
                        None
                    })
                };
                let made = if let Some(ready) = place.ready.pop_front() {
                    Ok(ready)
                } else if let Some(old) = reused() {
                    Ok(old)
                } else {
                    // All streams may have asked at once; half of the time is left for the rest.
                    let mut pace = SegmentPace::new(urgency, within / (2 * streams), length);
                    prepare(device, &place.dir, place.next_sequence, length, |path| {
                        device.create_in_pieces(path, length, &mut |bytes| pace.after(bytes))
                    })
                };
                if let Ok(made) = &made {
                    debug_assert!(
                        made.sequence <= place.next_sequence,
                        "segment {} is missing",
                        place.next_sequence
                    );
                    place.next_sequence = place.next_sequence.max(made.sequence + 1);
                }
                // If the flusher has ended, the segment is not needed.
                let _ = place.reply.send(made);
            }
            Request::Retired { lane, paths } => {
                let next = segment_path(&lanes[lane].dir, lanes[lane].next_sequence);
                debug_assert!(
                    paths.iter().all(|path| path.file_name() < next.file_name()),
                    "a segment that was not yet made is to be written again"
                );
                for path in pools[lane].retire(paths) {
                    // A remaining file is a leftover, removed by the next opening.
                    let _ = device.remove(&path);
                }
            }
            Request::Stop => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_spread_over_its_time() {
        let urgency = Urgency::default();
        let began = Instant::now();
        let mut pace = SegmentPace::new(&urgency, Duration::from_millis(40), 1 << 20);
        assert!((0..4).all(|_| pace.after(1 << 18)));
        assert!(began.elapsed() >= Duration::from_millis(40), "{:?}", began.elapsed());
    }

    #[test]
    fn a_pause_has_a_longest_time() {
        let urgency = Urgency::default();
        let began = Instant::now();
        let mut pace = SegmentPace::new(&urgency, Duration::from_secs(3_600), 1 << 18);
        assert!(pace.after(1 << 18));
        let took = began.elapsed();
        assert!((LONGEST_PAUSE..Duration::from_secs(60)).contains(&took), "{took:?}");
    }

    #[test]
    fn what_hurries_ends_a_pause_and_all_that_follow() {
        let urgency = Urgency::default();
        std::thread::scope(|scope| {
            let pausing = scope.spawn(|| urgency.pause(Duration::from_secs(3_600)));
            let reason = urgency.begin();
            assert!(!pausing.join().unwrap());
            assert!(!urgency.pause(Duration::from_secs(3_600)));
            let other = urgency.begin();
            drop(reason);
            assert!(!urgency.pause(Duration::from_secs(3_600)), "there is one left");
            drop(other);
            assert!(urgency.pause(Duration::from_millis(1)));
        });
    }
}
