//! The threads that run posted calls: start, work and end.

use super::sites::{SiteJob, Sites};
use super::{Caller, NoOutcome, PostedCalls, closed};
use crate::error::Error;
use hyades_platform::event;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

thread_local! {
    static IS_SITE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a site, of any database: a site waits for no site.
pub(super) fn is_site() -> bool {
    IS_SITE.get()
}

impl PostedCalls {
    /// Starts the threads; at least one, and all if the threads are sites, or returns the error.
    #[cold]
    pub(super) fn start(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = self.state();
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.closed.load(Ordering::SeqCst) {
            // The closing thread runs the remaining calls, but not the calls at sites.
            let is_lost = self.sites.is_some();
            return if is_lost { Err(closed()) } else { Ok(()) };
        }
        for number in state.threads.len()..self.threads {
            let is_enough = number > 0 && self.sites.is_none();
            let caller = match self.caller() {
                Ok(caller) => caller,
                // The program's own sessions occupy the other slots of the log.
                Err(_) if is_enough => break,
                Err(error) => return Err(error),
            };
            let calls = self.clone();
            let name = if self.sites.is_some() { "site" } else { "posted calls" };
            let started =
                thread::Builder::new().name(format!("{name} {number}")).spawn(move || match calls
                    .sites
                    .is_some()
                {
                    true => calls.work_at(caller, number),
                    false => calls.work(caller),
                });
            match started {
                Ok(thread) => {
                    state.own.push(thread.thread().id());
                    state.threads.push(thread);
                }
                Err(_) if is_enough => break,
                Err(error) => {
                    let fault = format!("no thread for posted calls can be started: {error}");
                    return Err(Error::Misuse(fault));
                }
            }
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    /// Does the work of a thread.
    fn work(&self, mut caller: Caller) {
        event!(DEBUG, "thread for posted calls started");
        loop {
            let session = &mut caller.session;
            let Some(job) = self.next(true, || session.hand_over_garbage()) else { return };
            self.run(&mut caller, job);
        }
    }

    /// Does the work of the thread of a site.
    fn work_at(&self, mut caller: Caller, site: usize) {
        event!(DEBUG, "thread of a site started");
        IS_SITE.set(true);
        let sites = self.sites.as_ref().expect("its thread was started");
        let mut batch = VecDeque::new();
        while sites.take(site, &mut batch, || caller.session.hand_over_garbage()) {
            for job in batch.drain(..) {
                match job {
                    SiteJob::Run(job, standstill) => {
                        let _others = standstill.as_deref().map(|standstill| standstill.begin());
                        self.run(&mut caller, job);
                    }
                    SiteJob::Stop(standstill) => standstill.stop(),
                }
            }
        }
    }

    #[cold]
    pub(super) fn let_threads_end(&self) {
        // A thread that has looked before sleeps by now.
        drop(self.state());
        self.moved.notify_all();
        self.sites.iter().for_each(Sites::end);
    }

    /// Returns whether the calling thread runs posted calls.
    pub fn is_own_thread(&self) -> bool {
        self.state().own.contains(&thread::current().id())
    }

    /// Gives seats and sessions back.
    fn clear(&self) {
        let seats = std::mem::take(&mut self.state().seats);
        seats.into_iter().for_each(|seat| self.engine.remove_seat(seat));
        self.posters.clear();
    }

    /// Takes no more calls, and waits until the open calls have ended. Without threads the calling
    /// thread runs the calls.
    pub fn close(&self) {
        let mut state = self.state();
        self.closed.store(true, Ordering::SeqCst);
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.moved.notify_all();
        if self.is_over() {
            self.let_threads_end();
        }
        if threads.is_empty() {
            self.run_rest();
        }
        for thread in threads {
            // A panic of a procedure is in its reply.
            let _ = thread.join();
        }
        self.clear();
    }

    fn run_rest(&self) {
        if self.is_over() {
            return;
        }
        let mut caller = self.caller();
        while let Some(job) = self.next(true, || ()) {
            match &mut caller {
                Ok(caller) => self.run(caller, job),
                Err(_) => {
                    let fault = "the database was closed before the call was run";
                    let failed = NoOutcome::Failed(Error::Misuse(fault.to_string()));
                    self.end(job, Err(failed));
                }
            }
        }
    }
}
