//! Threads that do the same thing to several devices at a time.

use std::io;
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// One thread for each device beside the first, which is served by whoever asks.
#[derive(Debug)]
pub(super) struct Workers {
    /// Behind a lock, for a sender is used by many.
    jobs: Vec<Mutex<mpsc::Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// For so many devices.
    pub fn new(devices: usize) -> Self {
        let mut workers = Workers { jobs: Vec::new(), threads: Vec::new() };
        for number in 1..devices {
            let (sender, receiver) = mpsc::channel::<Job>();
            let thread = std::thread::Builder::new().name(format!("stripe-{number}"));
            // Without its thread a device is served by whoever asks, in turn.
            let Ok(thread) = thread.spawn(move || receiver.iter().for_each(|job| job())) else {
                break;
            };
            workers.jobs.push(Mutex::new(sender));
            workers.threads.push(thread);
        }
        workers
    }

    /// Runs each job on its device's thread, and the first device's here. Returns when all are done,
    /// with their results in the order of the jobs.
    pub fn run<T: Send + 'static>(
        &self,
        jobs: Vec<(usize, Box<dyn FnOnce() -> io::Result<T> + Send>)>,
    ) -> Vec<io::Result<T>> {
        let (sender, receiver) = mpsc::channel();
        let mut here = Vec::new();
        let mut results: Vec<_> = jobs.iter().map(|_| None).collect();
        // What the calling thread can do alone needs no one else.
        let alone = jobs.len() == 1;
        for (at, (device, job)) in jobs.into_iter().enumerate() {
            let worker = device.checked_sub(1).and_then(|n| self.jobs.get(n)).filter(|_| !alone);
            let Some(worker) = worker else {
                here.push((at, job));
                continue;
            };
            let sender = sender.clone();
            let run = Box::new(move || drop(sender.send((at, job()))));
            // A worker ends only with its sender; if it panicked, the result is missing below.
            let _ = worker.lock().unwrap_or_else(|e| e.into_inner()).send(run);
        }
        drop(sender);
        for (at, job) in here {
            results[at] = Some(job());
        }
        for (at, result) in receiver {
            results[at] = Some(result);
        }
        let gone = || Err(io::Error::other("the thread of a striped device has stopped"));
        results.into_iter().map(|result| result.unwrap_or_else(gone)).collect()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.clear();
        for thread in self.threads.drain(..) {
            // The last file may be dropped by a job.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
