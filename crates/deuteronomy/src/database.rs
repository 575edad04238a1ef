//! Opening and closing a database.

use crate::config::Options;
use crate::data_component::DataComponent;
use crate::error::Error;
use crate::proxy::StopOnPanic;
use crate::proxy::lag::Lag;
use crate::recovery::{Recovered, restart};
use crate::session::Session;
use crate::threads::ends_until;
use crate::ticket::CommitQueue;
use crate::transaction_component::TransactionComponent;
use hyades_platform::sync::locked;
use hyades_wal::Log;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A database: a transaction component over a data component.
///
/// Dropping it without [`close`](Database::close) stops it as a crash would.
pub struct Database {
    component: Arc<TransactionComponent>,
    /// The threads of the proxy and of checkpoints; none in a stepped log.
    threads: Mutex<Vec<JoinHandle<()>>>,
    recovered: Recovered,
}

impl Database {
    /// Opens a database: a new one, or the one that is there, recovered. Then every acknowledged
    /// transaction is there, and none in part.
    ///
    /// # Errors
    /// The options do not fit; the log and the data component do not belong together; the log is in
    /// use, damaged, or was not written by a transaction component; the data component failed.
    pub fn open(options: Options, data: Arc<dyn DataComponent>) -> Result<Self, Error> {
        options.check()?;
        // The versions that are to take it come later.
        let redo_memory = options.memory_bytes / 2;
        let (log, first_ts, recovered) = restart(options.log.clone(), &*data, redo_memory)?;
        let component = Arc::new(TransactionComponent::new(log, first_ts, data, options));
        let database = Self { component, threads: Mutex::default(), recovered };
        if !database.component.options.log.stepped {
            database.start_threads()?;
        }
        Ok(database)
    }

    /// Starts the thread of the proxy, and that of the checkpoints.
    fn start_threads(&self) -> Result<(), Error> {
        self.start("hyades-proxy", |component| {
            let mut ran = Ok(());
            while ran.is_ok() && component.proxy.wait(&component.log) {
                ran = component.run_proxy_as_asked();
                if component.is_checkpoint_due() {
                    component.checkpoints.tell_due();
                }
            }
            ran
        })?;
        let has_redone = self.recovered.keys > 0;
        self.start("hyades-checkpoint", move |component| {
            // What was redone is stable: earlier incarnations of the log are not needed.
            let mut ran = if has_redone { component.checkpoint().map(drop) } else { Ok(()) };
            while matches!(ran, Ok(()) | Err(Error::Stalled(_))) && component.checkpoints.wait() {
                ran = component.checkpoint_if_due();
            }
            ran
        })
    }

    /// Starts a thread without which the log would grow without end: where it ends with an error,
    /// or panics, the log is stopped. The first cause is kept.
    fn start(
        &self,
        name: &str,
        run: impl FnOnce(&TransactionComponent) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let component = Arc::clone(&self.component);
        let run = move || {
            let _guard = StopOnPanic(&component.log);
            match run(&component) {
                Ok(()) | Err(Error::Stalled(_)) => {}
                Err(error) => component.log.stop(&error.to_string()),
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread
            .map_err(|e| Error::Invalid(format!("the thread {name} could not start: {e}")))?;
        locked(&self.threads).push(thread);
        Ok(())
    }

    /// What the opening has found and done.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// A session for the calling thread.
    ///
    /// # Errors
    /// [`Error::Sessions`]: as many exist as the options allow.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.component))
    }

    /// A queue for the transactions of this database that wait for acknowledgement.
    pub fn commit_queue<T>(&self) -> CommitQueue<T> {
        CommitQueue::new(&self.component.log)
    }

    /// Makes the data component stable, and truncates the log that is not needed any more. Runs by
    /// itself as [`Options::redo_bytes`](crate::Options::redo_bytes) says. Returns how many bytes
    /// of the log were truncated; 0 where the data component does not outlive the process.
    ///
    /// # Errors
    /// The data component or the log failed, now or before. [`Error::Stalled`]: it cannot be begun.
    pub fn checkpoint(&self) -> Result<u64, Error> {
        self.component.checkpoint()
    }

    /// Of a stepped log: hands to the data component what may be applied. Returns whether anything
    /// was.
    ///
    /// # Errors
    /// The data component failed.
    pub fn step_proxy(&self) -> Result<bool, Error> {
        self.component.run_proxy()
    }

    /// The log, for its counters and its frontier, and to step it.
    pub fn log(&self) -> &Log {
        &self.component.log
    }

    /// About how many bytes the versions in memory take.
    pub fn version_bytes(&self) -> usize {
        self.component.versions.bytes()
    }

    /// How many transactions were aborted while they ran, because the budget of memory was
    /// exhausted: see [`Abort::Shed`](crate::Abort::Shed).
    pub fn shed(&self) -> u64 {
        self.component.room.shed()
    }

    /// How many threads apply operations to the data component: see
    /// [`Options::proxy_threads`](crate::Options::proxy_threads).
    pub fn proxy_threads(&self) -> usize {
        self.component.proxy.pool().running()
    }

    /// How long transactions have looked for versions to drop, since the memory for these was
    /// nearly exhausted; the sum over all sessions.
    pub fn collecting(&self) -> Duration {
        Duration::from_nanos(self.component.collecting_ns.load(Ordering::Relaxed))
    }

    /// How far the data component is behind what is committed.
    pub fn lag(&self) -> Lag {
        self.component.proxy.lag()
    }

    /// Ends the threads; false if one is at a call of the data component that does not return.
    /// Nothing waits for that one any more: it ends when the call returns.
    fn stop_threads(&self) -> bool {
        self.component.proxy.close();
        self.component.checkpoints.close();
        let threads = std::mem::take(&mut *locked(&self.threads));
        let until = Instant::now() + self.component.options.store_patience;
        let mut all = self.component.readers.close(until);
        for thread in threads {
            all &= ends_until(thread, until);
        }
        all
    }

    /// Makes everything durable and stable, and closes the log. Sessions are useless afterwards.
    ///
    /// # Errors
    /// The log or the data component failed, now or before; [`Error::Stalled`], where the log is in
    /// use until the call returns. Then what is not stable is applied from the log when the
    /// database is opened again.
    pub fn close(self) -> Result<(), Error> {
        // What is waited for from here on is flushed at once, whatever the flush interval is.
        self.component.log.stop_collecting();
        if !self.stop_threads() {
            let stalled = Error::Stalled(self.component.options.store_patience);
            self.component.log.stop(&stalled.to_string());
            return Err(stalled);
        }
        self.component.log.flush().map_err(hyades_wal::Error::from)?;
        // A log that was stopped when all was durable can be flushed, and is not sound.
        if let Some(poisoned) = self.component.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        self.component.checkpoint()?;
        self.component.log.clone().close()?;
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop_threads();
        // Last: they have helped with the checkpoint of a database that is closed.
        self.component.proxy.pool().close(Instant::now() + self.component.options.store_patience);
        self.component.log.stop("the database was dropped without being closed");
    }
}
