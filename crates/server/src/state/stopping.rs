//! The end of a server: the cause, and the wait for the end.

use hyades_platform::sync::Unpoisoned;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Why a server stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// The server was asked to stop.
    Asked,
    /// The log failed, or the database could not be opened.
    Failed(String),
}

/// Tells all threads that the server stops.
#[derive(Default)]
pub struct StopSignal {
    cause: Mutex<Option<Stopping>>,
    stopped: Condvar,
}

impl StopSignal {
    /// Stops; the first cause counts.
    pub fn stop(&self, cause: Stopping) {
        self.cause.lock().unpoisoned().get_or_insert(cause);
        self.stopped.notify_all();
    }

    /// The cause of the stop of the server, if any.
    pub fn cause(&self) -> Option<Stopping> {
        self.cause.lock().unpoisoned().clone()
    }

    /// Waits until the server stops.
    pub fn wait(&self) -> Stopping {
        let mut stopping = self.cause.lock().unpoisoned();
        loop {
            match &*stopping {
                Some(cause) => return cause.clone(),
                None => stopping = self.stopped.wait(stopping).unpoisoned(),
            }
        }
    }

    /// Waits until the server stops, or until this time has passed.
    pub fn wait_at_most(&self, time: Duration) {
        let stopping = self.cause.lock().unpoisoned();
        let goes_on = |stopping: &mut Option<Stopping>| stopping.is_none();
        let _ended = self.stopped.wait_timeout_while(stopping, time, goes_on);
    }
}
