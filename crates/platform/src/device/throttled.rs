//! A device with a given bandwidth, latency and queue depth, on top of another device.

use super::schedule::{Schedule, Throttle};
use super::{Device, DeviceFile, forward_names};
use crate::clock;
use crate::sync::locked;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Bytes per transfer. A write transfers a piece early once two pieces are unsynced; reads are
/// split into pieces. Other requests are served in between.
const PIECE: u64 = 1 << 20;

/// Wraps a device and makes the device as slow as asked, never faster.
///
/// A write costs nothing until the next sync, or until 2 MiB are unsynced. The sync returns at the
/// time of the write's durability on the modelled device; the inner device syncs within the same
/// time, so the figures are the figures of a device without a volatile cache. Reads share the
/// bandwidth. All files of the device share the bandwidth and the queue: requests are served in
/// order of arrival, at most `depth` at a time. Operations on names, and the zeros of a new file,
/// are free.
///
/// Waiting threads sleep. Up to 2 ms lost by a thread's late waking are made up for, so the rate is
/// exact.
#[derive(Clone, Debug)]
pub struct ThrottledDevice {
    inner: Arc<dyn Device>,
    queue: Arc<Queue>,
}

impl ThrottledDevice {
    /// Wraps `inner` with the speed of `throttle`.
    pub fn new(inner: Arc<dyn Device>, throttle: Throttle) -> Self {
        let state = ThrottleState {
            schedule: Schedule::new(throttle),
            in_service: 0,
            next_ticket: 0,
            waiting: VecDeque::new(),
        };
        let depth = throttle.depth.max(1);
        let queue = Queue { depth, state: Mutex::new(state), turn: Condvar::new() };
        ThrottledDevice { inner, queue: Arc::new(queue) }
    }

    fn wrap(&self, inner: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(ThrottledFile {
            inner,
            queue: Arc::clone(&self.queue),
            unsynced: AtomicU64::new(0),
            read_to: AtomicU64::new(u64::MAX),
            late_ns: AtomicU64::new(0),
        })
    }
}

#[derive(Debug)]
struct ThrottleState {
    schedule: Schedule,
    in_service: usize,
    next_ticket: u64,
    /// Tickets of the waiting requests, in order of arrival.
    waiting: VecDeque<u64>,
}

/// The device's request queue, first come, first served.
#[derive(Debug)]
struct Queue {
    depth: usize,
    state: Mutex<ThrottleState>,
    turn: Condvar,
}

/// A request in service; drop makes room for another.
struct Turn<'q>(&'q Queue);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().in_service -= 1;
        self.0.turn.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        locked(&self.state)
    }

    fn enter(&self) -> Turn<'_> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        while state.waiting.front() != Some(&ticket) || state.in_service == self.depth {
            state = self.turn.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.waiting.pop_front();
        state.in_service += 1;
        drop(state);
        // There may be room for the next request, too.
        self.turn.notify_all();
        Turn(self)
    }

    /// Serves a request: `operate` performs the request on the inner device and returns the bytes
    /// transferred. `late_ns` is the delay of the answer to the file's last request.
    fn serve<T>(
        &self,
        late_ns: &AtomicU64,
        positioned: bool,
        operate: impl FnOnce() -> io::Result<(T, u64)>,
    ) -> io::Result<T> {
        let arrival = clock::monotonic_ns().saturating_sub(late_ns.swap(0, Ordering::Relaxed));
        let turn = self.enter();
        let entered = clock::monotonic_ns();
        let (result, bytes) = operate()?;
        let done = self.state().schedule.admit(arrival, entered, bytes, positioned);
        clock::sleep_until(done);
        drop(turn);
        late_ns.store(clock::monotonic_ns().saturating_sub(done), Ordering::Relaxed);
        Ok(result)
    }
}

#[derive(Debug)]
struct ThrottledFile {
    inner: Arc<dyn DeviceFile>,
    queue: Arc<Queue>,
    /// Bytes written and not yet transferred. Relaxed: a write to be covered by a sync returned
    /// before the sync began.
    unsynced: AtomicU64,
    /// The end of the last read. Relaxed: a file has a single reader at a time; with two, a latency
    /// more or less would be charged.
    read_to: AtomicU64,
    /// How late the last request was answered, in nanoseconds. Relaxed, as `read_to`.
    late_ns: AtomicU64,
}

impl ThrottledFile {
    fn pass<T>(
        &self,
        positioned: bool,
        operate: impl FnOnce() -> io::Result<(T, u64)>,
    ) -> io::Result<T> {
        self.queue.serve(&self.late_ns, positioned, operate)
    }
}

impl DeviceFile for ThrottledFile {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.inner.write_at(slices, offset)?;
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        self.unsynced.fetch_add(bytes, Ordering::Relaxed);
        let piece = |unsynced: u64| (unsynced >= 2 * PIECE).then(|| unsynced - PIECE);
        while self.unsynced.fetch_update(Ordering::Relaxed, Ordering::Relaxed, piece).is_ok() {
            self.pass(false, || Ok(((), PIECE)))?;
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        for piece in buffer.chunks_mut(PIECE as usize) {
            let at = offset + done as u64;
            let positioned = self.read_to.load(Ordering::Relaxed) != at;
            let n = self.pass(positioned, || {
                let n = self.inner.read_at(piece, at)?;
                Ok((n, n as u64))
            })?;
            self.read_to.store(at + n as u64, Ordering::Relaxed);
            done += n;
            if n < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.unsynced.swap(0, Ordering::Relaxed) {
            0 => self.inner.sync_data(),
            bytes => self.pass(true, || Ok((self.inner.sync_data()?, bytes))),
        }
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Device for ThrottledDevice {
    fn name(&self) -> &'static str {
        "throttled"
    }

    fn reads_wait(&self) -> bool {
        true
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.create(path, len)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(self.inner.open_read(path)?))
    }

    fn write_small(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.queue.serve(&AtomicU64::new(0), true, || {
            Ok((self.inner.write_small(path, bytes)?, bytes.len() as u64))
        })
    }

    forward_names!();
}

#[cfg(test)]
mod tests;
