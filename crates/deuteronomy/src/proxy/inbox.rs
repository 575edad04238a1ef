//! The records handed over by sessions, an inbox for each stream; and the sleep of the proxy's
//! thread.
//!
//! Sessions of different streams do not meet at a lock. The thread of the proxy, before it sleeps,
//! says so, and then looks into each inbox. Of the thread and a session with a record at least one
//! finds the other: both take the lock of the stream's inbox, the session before its look for a
//! sleeper.

use super::Handed;
use crate::held_bytes::HeldBytes;
use hyades_platform::clock;
use hyades_platform::sync::{AtomicBool, Ordering, Padded, locked};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The records of a stream.
#[derive(Default)]
struct StreamInbox {
    records: Vec<Handed>,
    /// The bytes of the records, and the arrival time of the first record.
    bytes: usize,
    since_ns: u64,
    /// The bytes of the records beside the versions, as far as not counted in the held bytes yet.
    uncounted: usize,
}

/// What sessions ask of the thread of the proxy.
#[derive(Default)]
pub(super) struct Requests {
    /// The number of requests to apply, and the number at the beginning of the thread's last
    /// finished run.
    pub asked: u64,
    pub answered: u64,
    /// A session has asked for all applicable records, whatever the horizon.
    pub all_asked: bool,
    /// No more will come, and the thread of the proxy is to end.
    pub closed: bool,
}

/// The inboxes of all streams, and the requests.
pub(super) struct Inboxes {
    streams: Box<[Padded<Mutex<StreamInbox>>]>,
    pub requests: Mutex<Requests>,
    /// A record or a request has come, or the proxy is closed. Waited for by the thread of the
    /// proxy.
    pub arrived: Condvar,
    /// The thread of the proxy sleeps until woken. Set under the lock of the requests, before the
    /// look into the inboxes; read behind the lock of an inbox, which orders the two. Relaxed.
    asleep: AtomicBool,
    /// The waiting bytes not counted in the version table.
    held: HeldBytes,
    /// The most bytes of an inbox missing in `held`: each transaction reads the count, so the count
    /// changes rarely.
    most_uncounted: usize,
}

impl Inboxes {
    pub fn new(streams: usize, held: HeldBytes, memory_bytes: usize) -> Self {
        Self {
            streams: (0..streams).map(|_| Padded::default()).collect(),
            requests: Mutex::default(),
            arrived: Condvar::new(),
            asleep: AtomicBool::new(false),
            held,
            most_uncounted: (memory_bytes / 64).min(16 << 10) / streams.max(1),
        }
    }

    /// Takes a record.
    pub fn push(&self, record: Handed) {
        {
            let mut inbox = locked(&self.streams[record.stream]);
            if inbox.records.is_empty() {
                inbox.since_ns = clock::monotonic_ns();
            }
            inbox.bytes += record.bytes;
            inbox.uncounted += record.held_bytes();
            if inbox.uncounted >= self.most_uncounted {
                self.held.add(std::mem::take(&mut inbox.uncounted));
            }
            inbox.records.push(record);
        }
        // While records wait, the proxy looks for further records by itself: a wake-up for each
        // would cost more than all other work of a transaction.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // With the lock, the thread is not on its way to sleep.
            drop(locked(&self.requests));
            self.arrived.notify_one();
        }
    }

    /// Exchanges `records`, without an entry, for the records of a stream. Returns the arrival time
    /// of the first.
    pub fn take(&self, stream: usize, records: &mut Vec<Handed>) -> u64 {
        debug_assert!(records.is_empty(), "records would get into an inbox");
        let mut inbox = locked(&self.streams[stream]);
        std::mem::swap(records, &mut inbox.records);
        inbox.bytes = 0;
        self.held.add(std::mem::take(&mut inbox.uncounted));
        inbox.since_ns
    }

    /// The bytes of all records, and the arrival time of the oldest, by the monotonic clock.
    pub fn waiting(&self) -> (usize, Option<u64>) {
        self.streams.iter().fold((0, None), |(bytes, oldest), inbox| {
            let inbox = locked(inbox);
            let first = (!inbox.records.is_empty()).then_some(inbox.since_ns);
            (bytes + inbox.bytes, oldest.into_iter().chain(first).min())
        })
    }

    fn is_empty(&self) -> bool {
        self.streams.iter().all(|inbox| locked(inbox).records.is_empty())
    }

    /// The wait of the proxy's thread until there may be something to apply, or the proxy is asked
    /// to apply; where records wait in the scans, for `pause` at most. Returns false if the proxy
    /// is closed. A record gets into the scans by an inbox only: `scans`, the lock of the scans, is
    /// left once a record to come will wake the thread. After a wake the scans have to be looked at
    /// again: another thread may have taken the record in.
    pub fn wait<S>(&self, scans: S, waits: bool, pause: Duration) -> bool {
        let mut requests = locked(&self.requests);
        let is_asked = requests.asked > requests.answered;
        if is_asked || requests.closed {
        } else if waits {
            drop(scans);
            let waited = self.arrived.wait_timeout(requests, pause);
            requests = waited.unwrap_or_else(|e| e.into_inner()).0;
        } else {
            self.asleep.store(true, Ordering::Relaxed);
            let is_empty = self.is_empty();
            drop(scans);
            if is_empty {
                requests = self.arrived.wait(requests).unwrap_or_else(|e| e.into_inner());
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
        !requests.closed
    }

    /// Whether the thread of the proxy sleeps.
    #[cfg(test)]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}
