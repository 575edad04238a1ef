//! Threads for work that would hold up an event loop.

use crate::commands::Job;
use crate::resp::reply::Reply;
use crate::server::StopOnPanic;
use crate::shared::Shared;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A job, the version of its reply, and what takes the reply.
type Order = (Job, bool, Box<dyn FnOnce(Vec<u8>) + Send>);

/// Takes jobs.
#[derive(Clone)]
pub struct Executors(Sender<Order>);

impl Executors {
    /// Starts `threads` threads. They end when all handles are dropped.
    pub fn start(
        shared: &Arc<Shared>,
        threads: usize,
    ) -> std::io::Result<(Executors, Vec<JoinHandle<()>>)> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |number| {
            let (shared, receiver) = (shared.clone(), Arc::clone(&receiver));
            let thread = std::thread::Builder::new().name(format!("executor-{number}"));
            let guard = StopOnPanic(shared.clone());
            thread.spawn(move || guard.run(|| run(&shared, &receiver)))
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok((Executors(sender), threads))
    }

    /// Has a job run; `done` gets its reply on another thread.
    pub fn submit(&self, job: Job, resp3: bool, done: impl FnOnce(Vec<u8>) + Send + 'static) {
        // It fails only if the server has stopped, and then no client is left.
        let _ = self.0.send((job, resp3, Box::new(done)));
    }
}

fn run(shared: &Shared, receiver: &Mutex<Receiver<Order>>) {
    loop {
        let order = receiver.lock().expect("no holder panics").recv();
        let Ok((job, resp3, done)) = order else { return };
        let mut out = Vec::new();
        job(shared, &mut Reply::new(&mut out, resp3));
        done(out);
    }
}
