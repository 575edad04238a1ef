//! The segments of a flusher, one of which is prepared ahead.

use crate::error::Error;
use crate::preparer::{Preparer, Request, Urgency};
use crate::segment::Prepared;
use hyades_platform::clock;
use hyades_platform::sync::locked;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The time for which a segment lasts if hardly anything is written.
const IDLE: Duration = Duration::from_secs(3_600);

/// A flusher's end of the preparer.
#[derive(Debug)]
pub(crate) struct Supply {
    lane: usize,
    requests: mpsc::Sender<Request>,
    prepared: mpsc::Receiver<Result<Prepared, Error>>,
    /// The preparer, if it has no thread of its own.
    preparer: Option<Arc<Mutex<Preparer>>>,
    urgency: Arc<Urgency>,
    /// The length of the segment that was asked for last, and the most.
    length: u64,
    most: u64,
    /// When that was; not set before the first.
    asked_at_ns: Option<u64>,
}

impl Supply {
    /// For a stream whose segments have this length and grow up to `most`.
    pub(crate) fn new(
        lane: usize,
        (length, most): (u64, u64),
        requests: mpsc::Sender<Request>,
        prepared: mpsc::Receiver<Result<Prepared, Error>>,
        urgency: Arc<Urgency>,
    ) -> Self {
        let (preparer, asked_at_ns) = (None, None);
        Self { lane, requests, prepared, preparer, urgency, length, most, asked_at_ns }
    }

    /// Lets the flusher's own thread prepare segments.
    pub(crate) fn stepped(mut self, preparer: Arc<Mutex<Preparer>>) -> Self {
        self.preparer = Some(preparer);
        self
    }

    /// Asks for the segment after the one that begins now.
    pub(crate) fn ask(&mut self) {
        let length = (self.length * 2).min(self.most);
        let now = clock::monotonic_ns();
        // Of a log that has just been opened nothing is known: as if it stayed idle.
        let took = self.asked_at_ns.map_or(IDLE, |then| Duration::from_nanos(now - then));
        let within = took.mul_f64(length as f64 / self.length as f64);
        (self.length, self.asked_at_ns) = (length, Some(now));
        self.request(within);
    }

    fn request(&self, within: Duration) {
        let request = Request::Next { lane: self.lane, length: self.length, within };
        // The preparer outlives the flushers; if it is gone, `next` reports it.
        let _ = self.requests.send(request);
    }

    /// The segment that was asked for. Waits for it if need be.
    pub(crate) fn next(&self) -> Result<Prepared, Error> {
        self.receive()?.or_else(|_| {
            // It may have been tried long ago, when the disk was full. Retry, as it is needed now.
            self.request(Duration::ZERO);
            self.receive()?
        })
    }

    /// A segment, or the error of making it.
    fn receive(&self) -> Result<Result<Prepared, Error>, Error> {
        if let Ok(ready) = self.prepared.try_recv() {
            return Ok(ready);
        }
        let _urgent = self.urgency.begin();
        if let Some(preparer) = &self.preparer {
            locked(preparer).serve_waiting();
        }
        let gone = || Error::Invalid("the thread that prepares segments has stopped".into());
        self.prepared.recv().map_err(|_| gone())
    }
}
