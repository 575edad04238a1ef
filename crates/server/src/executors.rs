//! Threads for work that would hold up an event loop.

use crate::commands::{Job, JobReply};
use crate::server::StopOnPanic;
use crate::shared::Shared;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A job, the version of its reply, and what takes the reply.
type Order = (Job, bool, Box<dyn FnOnce(JobReply) + Send>);

/// Takes jobs.
#[derive(Clone)]
pub struct Executors {
    quick: Sender<Order>,
    slow: Sender<Order>,
}

impl Executors {
    /// Starts `threads` threads, and one for slow jobs. They end when all handles are dropped.
    pub fn start(
        shared: &Arc<Shared>,
        threads: usize,
    ) -> std::io::Result<(Executors, Vec<JoinHandle<()>>)> {
        let (quick, quick_orders) = channel();
        let (slow, slow_orders) = channel();
        let quick_orders = Arc::new(Mutex::new(quick_orders));
        let slow_orders = Arc::new(Mutex::new(slow_orders));
        let start = |number| {
            let orders = if number < threads { &quick_orders } else { &slow_orders };
            let (shared, receiver) = (shared.clone(), Arc::clone(orders));
            let thread = std::thread::Builder::new().name(format!("executor-{number}"));
            let guard = StopOnPanic(shared.clone());
            thread.spawn(move || guard.run(|| run(&shared, &receiver)))
        };
        let threads = (0..threads + 1).map(start).collect::<Result<_, _>>()?;
        Ok((Executors { quick, slow }, threads))
    }

    /// Has a job run; `done` gets its reply on another thread.
    pub fn submit(&self, job: Job, resp3: bool, done: impl FnOnce(JobReply) + Send + 'static) {
        // It fails only if the server has stopped, and then no client is left.
        let orders = if job.is_slow { &self.slow } else { &self.quick };
        let _ = orders.send((job, resp3, Box::new(done)));
    }
}

fn run(shared: &Shared, receiver: &Mutex<Receiver<Order>>) {
    loop {
        let order = receiver.lock().expect("no holder panics").recv();
        let Ok((job, resp3, done)) = order else { return };
        // A job that was not begun when the server stops has no effect and no reply. Its loop is
        // told, since it waits for those that were.
        match shared.stopping() {
            None => done(job.run(shared, resp3)),
            Some(_) => done(JobReply::default()),
        }
    }
}
