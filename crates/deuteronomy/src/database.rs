//! Opening and closing a database.

use crate::config::Options;
use crate::data_component::DataComponent;
use crate::error::Error;
use crate::proxy::StopOnPanic;
use crate::recovery::{Recovered, restart};
use crate::session::Session;
use crate::threads::ends_until;
use crate::ticket::CommitQueue;
use crate::transaction_component::TransactionComponent;
use hyades_platform::event;
use hyades_platform::sync::locked;
use hyades_wal::Log;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// A database: a transaction component over a data component.
///
/// Dropping a database without [`close`](Database::close) stops the database like a crash.
pub struct Database {
    component: Arc<TransactionComponent>,
    /// The threads of the proxy and of checkpoints; none in a stepped log.
    threads: Mutex<Vec<JoinHandle<()>>>,
    recovered: Recovered,
}

impl Database {
    /// Opens a database: a new database, or the existing database, recovered. Then every
    /// acknowledged transaction is there, and none in part.
    ///
    /// # Errors
    /// The options do not fit; the log and the data component do not belong together; the log is in
    /// use, damaged, or was not written by a transaction component; the data component failed.
    pub fn open(options: Options, data: Arc<dyn DataComponent>) -> Result<Self, Error> {
        options.check()?;
        // The versions that are to take up the budget come later.
        let redo_memory = options.memory_bytes / 2;
        let began = Instant::now();
        let (log, first_ts, recovered) = restart(options.log.clone(), &*data, redo_memory)?;
        event!(
            INFO,
            "database opened",
            transactions = recovered.transactions,
            dead = recovered.dead,
            keys = recovered.keys,
            seconds = began.elapsed().as_secs_f64(),
        );
        let component = Arc::new(TransactionComponent::new(log, first_ts, data, options));
        let database = Self { component, threads: Mutex::default(), recovered };
        if !database.component.options.log.stepped {
            database.start_threads()?;
        }
        Ok(database)
    }

    /// Starts the thread of the proxy, and the thread of the checkpoints.
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
            // The redone operations are stable: earlier incarnations of the log are not needed.
            let mut ran = if has_redone { component.checkpoint().map(drop) } else { Ok(()) };
            while matches!(ran, Ok(()) | Err(Error::Stalled(_))) && component.checkpoints.wait() {
                ran = component.checkpoint_if_due();
            }
            ran
        })
    }

    /// Starts a thread necessary for bounding the log: where the thread ends with an error, or
    /// panics, the log is stopped. The first cause is kept.
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

    /// Returns the counts of the opening.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    pub(crate) fn component(&self) -> &TransactionComponent {
        &self.component
    }

    /// A session for the calling thread.
    ///
    /// # Errors
    /// [`Error::Sessions`]: as many exist as the options allow.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.component))
    }

    /// Returns a queue for the database's transactions waiting for acknowledgement.
    pub fn commit_queue<T>(&self) -> CommitQueue<T> {
        CommitQueue::new(&self.component.log)
    }

    /// Makes the data component stable, and truncates the part of the log no longer needed. Runs by
    /// itself according to [`Options::redo_bytes`](crate::Options::redo_bytes). Returns the number
    /// of truncated bytes of the log; 0 where the data component does not outlive the process.
    ///
    /// # Errors
    /// The data component or the log failed, now or before. [`Error::Stalled`]: the checkpoint
    /// cannot be begun.
    pub fn checkpoint(&self) -> Result<u64, Error> {
        self.component.checkpoint()
    }

    /// For a stepped log: hands all applicable records to the data component. Returns whether
    /// anything was applied.
    ///
    /// # Errors
    /// The data component failed.
    pub fn step_proxy(&self) -> Result<bool, Error> {
        self.component.run_proxy()
    }

    /// The log, for its counters and its frontier, and for stepping.
    pub fn log(&self) -> &Log {
        &self.component.log
    }

    /// Ends the threads; false if a thread is at a hanging call of the data component. Nothing
    /// waits for the hanging thread any more: the thread ends when the call returns.
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
    /// use until the call returns. Then operations not stable are applied from the log at the next
    /// opening.
    pub fn close(self) -> Result<(), Error> {
        // Awaited records are flushed at once from here on, whatever the flush interval.
        self.component.log.stop_collecting();
        if !self.stop_threads() {
            let stalled = Error::Stalled(self.component.options.store_patience);
            self.component.log.stop(&stalled.to_string());
            return Err(stalled);
        }
        self.component.log.flush().map_err(hyades_wal::Error::from)?;
        // A log stopped with everything durable can be flushed, and is not sound.
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
        // Last: the threads have helped with the checkpoint of a closing database.
        self.component.proxy.pool().close(Instant::now() + self.component.options.store_patience);
        self.component.log.stop("the database was dropped without being closed");
    }
}
