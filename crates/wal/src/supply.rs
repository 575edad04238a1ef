//! The segments of a flusher, with a segment prepared ahead.

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
    /// The preparer, if without a thread of its own.
    preparer: Option<Arc<Mutex<Preparer>>>,
    urgency: Arc<Urgency>,
    /// The length of the segment requested last, and the maximum.
    length: u64,
    most: u64,
    /// The time of the last request; not set before the first.
    asked_at_ns: Option<u64>,
}

impl Supply {
    /// Makes the supply of a stream with segments of `length`, growing up to `most`.
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

    /// Asks for the segment after the segment begun now.
    pub(crate) fn ask(&mut self) {
        let length = (self.length * 2).min(self.most);
        let now = clock::monotonic_ns();
        // Of a freshly opened log nothing is known: treated as idle.
        let took = self.asked_at_ns.map_or(IDLE, |then| Duration::from_nanos(now - then));
        let within = took.mul_f64(length as f64 / self.length as f64);
        (self.length, self.asked_at_ns) = (length, Some(now));
        self.request(within);
    }

    fn request(&self, within: Duration) {
        let request = Request::Next { lane: self.lane, length: self.length, within };
        // The preparer outlives the flushers; if the preparer is gone, `next` reports the loss.
        let _ = self.requests.send(request);
    }

    /// Returns the requested segment. Waits if necessary.
    pub(crate) fn next(&self) -> Result<Prepared, Error> {
        self.receive()?.or_else(|_| {
            // The attempt may have been long ago, with a full disk. Retry: the segment is needed
            // now.
            self.request(Duration::ZERO);
            self.receive()?
        })
    }

    /// A segment, or the error from its preparation.
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
