//! Continuations: reads of the data component without a waiting thread of a caller.
//!
//! A transaction with a missing key leaves a [`Reading`] with the readers, a few threads started on
//! demand, and is woken at the reading's end. An operation with its version in memory never gets
//! here: the operation ends where it began, and allocates nothing.
//!
//! A reading dropped before a reader has begun leaves the queue. So the queue has at most as many
//! readings as there are futures.
//!
//! Invariants: each reading left with the readers ends, with a result or an error, in a panic of
//! the data component and at the close of the database, too, or is dropped; and its waker is called
//! then. A panicking waker, or a waker dropping the database, ends no other reading.

use super::TransactionComponent;
use super::version::Version;
use crate::error::Error;
use crate::threads::ends_until;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread::{JoinHandle, current};
use std::time::Instant;

/// The result of a read.
type ReadResult = Result<Version, Error>;

#[derive(Debug)]
enum ReadingState {
    /// Not ended; the waker of the last look.
    UnderWay(Option<Waker>),
    Ended(ReadResult),
    Taken,
}

/// A read of the data component. A future; if dropped, the read is not begun any more, or the
/// result is of no use.
pub(crate) struct Reading {
    shared: Arc<SharedReading>,
    /// The place of a waiting reading: the component, and the number in the queue.
    queued: Option<(Arc<TransactionComponent>, u64)>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((component, number)) = &self.queued {
            locked(&component.readers.queue).readings.remove(number);
        }
    }
}

#[derive(Debug)]
struct SharedReading {
    key: Box<[u8]>,
    hash: u64,
    number: u64,
    state: Mutex<ReadingState>,
}

#[derive(Debug, Default)]
struct ReaderQueue {
    /// In the order of arrival.
    readings: BTreeMap<u64, Arc<SharedReading>>,
    /// How many there were.
    added: u64,
    threads: Vec<JoinHandle<()>>,
    /// Threads waiting for a reading.
    idle: usize,
    closed: bool,
}

/// The threads for reading the data component for continuations.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    queue: Mutex<ReaderQueue>,
    arrived: Condvar,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn closed() -> Error {
    Error::DataComponent("the database was closed while it was to be read".into())
}

impl SharedReading {
    fn end(&self, result: ReadResult) {
        let before = std::mem::replace(&mut *locked(&self.state), ReadingState::Ended(result));
        debug_assert!(matches!(before, ReadingState::UnderWay(_)), "a reading ends twice");
        if let ReadingState::UnderWay(Some(waker)) = before {
            // The waker is code of a caller. A panic of the waker was reported, and is not for the
            // current thread.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl Future for Reading {
    type Output = ReadResult;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ReadResult> {
        let mut state = locked(&self.shared.state);
        if let ReadingState::UnderWay(waker) = &mut *state {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, ReadingState::Taken) {
            ReadingState::Ended(result) => Poll::Ready(result),
            ReadingState::UnderWay(_) | ReadingState::Taken => {
                panic!("a reading was polled after it had ended")
            }
        }
    }
}

impl Readers {
    /// The next reading; None if there will be none.
    fn next(&self) -> Option<Arc<SharedReading>> {
        let mut queue = locked(&self.queue);
        loop {
            if let Some((_, reading)) = queue.readings.pop_first() {
                return Some(reading);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.arrived.wait(queue).unwrap_or_else(|e| e.into_inner());
            queue.idle -= 1;
        }
    }

    /// Ends the threads, and the readings not begun. A reader thread calling `close`, in a waker,
    /// ends after returning. Returns whether the other threads have ended by `until`: a thread may
    /// be at a hanging data component.
    pub fn close(&self, until: Instant) -> bool {
        let (readings, threads) = {
            let mut queue = locked(&self.queue);
            queue.closed = true;
            (std::mem::take(&mut queue.readings), std::mem::take(&mut queue.threads))
        };
        self.arrived.notify_all();
        readings.values().for_each(|reading| reading.end(Err(closed())));
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != current().id();
        let mut all = true;
        for thread in threads.into_iter().filter(is_other) {
            all &= ends_until(thread, until);
        }
        all
    }
}

impl TransactionComponent {
    /// F1, F2: begins to read a key of the data component. Where a single thread does all work, the
    /// read is done at once.
    pub fn begin_to_read(self: &Arc<Self>, key: &[u8], hash: u64, number: u64) -> Reading {
        let state = Mutex::new(ReadingState::UnderWay(None));
        let shared = Arc::new(SharedReading { key: key.into(), hash, number, state });
        let mut reading = Reading { shared, queued: None };
        let shared = &reading.shared;
        if self.options.log.stepped {
            self.end_reading(shared);
            return reading;
        }
        let mut queue = locked(&self.readers.queue);
        if queue.closed {
            drop(queue);
            shared.end(Err(closed()));
            return reading;
        }
        queue.added += 1;
        let number = queue.added;
        queue.readings.insert(number, Arc::clone(shared));
        // The idle threads may be fewer than the waiting readings.
        if queue.readings.len() > queue.idle && queue.threads.len() < self.options.reader_threads {
            match self.start_reader() {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    queue.readings.remove(&number);
                    drop(queue);
                    let why = format!("no thread could start to read it: {error}");
                    shared.end(Err(Error::DataComponent(why)));
                    return reading;
                }
                // Other threads will read the key.
                Err(_) => {}
            }
        }
        drop(queue);
        self.readers.arrived.notify_one();
        reading.queued = Some((Arc::clone(self), number));
        reading
    }

    fn start_reader(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let component = Arc::clone(self);
        std::thread::Builder::new().name("hyades-reader".into()).spawn(move || {
            while let Some(reading) = component.readers.next() {
                component.end_reading(&reading);
            }
        })
    }

    fn end_reading(&self, reading: &SharedReading) {
        let SharedReading { key, hash, number, .. } = reading;
        let read = catch_unwind(AssertUnwindSafe(|| self.read_data(key, *hash, *number)));
        let panicked = |_| Err(Error::DataComponent("it panicked while it read a key".into()));
        reading.end(read.unwrap_or_else(panicked));
    }
}
