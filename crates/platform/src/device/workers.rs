//! Threads for operations on several devices in parallel.

use crate::sync::locked;
use std::io;
use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// An operation on the device with the number `device` of a set.
pub(super) struct Task<T> {
    pub device: usize,
    pub run: Box<dyn FnOnce() -> io::Result<T> + Send>,
}

impl<T> Task<T> {
    pub fn new(device: usize, run: impl FnOnce() -> io::Result<T> + Send + 'static) -> Self {
        Task { device, run: Box::new(run) }
    }
}

/// A thread per device but the first; the first device's tasks run on the calling thread.
#[derive(Debug)]
pub(super) struct Workers {
    /// A sender is shared by all callers, hence the mutex.
    jobs: Vec<Mutex<mpsc::Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads for `devices` devices.
    pub fn new(devices: usize) -> Self {
        let mut workers = Workers { jobs: Vec::new(), threads: Vec::new() };
        for number in 1..devices {
            let (sender, receiver) = mpsc::channel::<Job>();
            let thread = std::thread::Builder::new().name(format!("stripe-{number}"));
            // A device without a started thread is served by the calling thread, in turn.
            let Ok(thread) = thread.spawn(move || receiver.iter().for_each(|job| job())) else {
                break;
            };
            workers.jobs.push(Mutex::new(sender));
            workers.threads.push(thread);
        }
        workers
    }

    /// Runs each task on its device's thread, and the first device's tasks on the calling thread.
    /// Returns when all are done, with the results in the order of the tasks.
    pub fn run<T: Send + 'static>(&self, tasks: Vec<Task<T>>) -> Vec<io::Result<T>> {
        let (sender, receiver) = mpsc::channel();
        let mut here = Vec::new();
        let mut results: Vec<_> = tasks.iter().map(|_| None).collect();
        // A single task runs on the calling thread.
        let alone = tasks.len() == 1;
        for (at, Task { device, run }) in tasks.into_iter().enumerate() {
            let worker = device.checked_sub(1).and_then(|n| self.jobs.get(n)).filter(|_| !alone);
            let Some(worker) = worker else {
                here.push((at, run));
                continue;
            };
            let sender = sender.clone();
            let job = Box::new(move || drop(sender.send((at, run()))));
            // If the worker has panicked, the result is missing below.
            let _ = locked(worker).send(job);
        }
        drop(sender);
        for (at, run) in here {
            results[at] = Some(run());
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
            // A job may drop the last reference to the set; the job's thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
