//! Threads for work that would hold up an event loop.

use crate::commands::{Job, JobReply, Lane};
use crate::state::{Held, Shared, StopOnPanic};
use hyades_platform::sync::Unpoisoned;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// A job with its database, the version of its reply, and the receiver of the reply and of the
/// database, which is held until the reply is taken.
type Order = (Job, Held, bool, Box<dyn FnOnce(JobReply, Held) + Send>);

/// The lanes; all but two have one thread.
const LANES: [Lane; 6] =
    [Lane::Data, Lane::Disk, Lane::Long, Lane::Unbounded, Lane::Network, Lane::Scripts];

/// Threads for long scripts. Each keeps a script until the end of the script, or of its time; the
/// threads have less of the processors than event loops.
const SCRIPT_THREADS: usize = 8;

/// The priority of the script threads, of 19 for the lowest.
const NICE: i32 = 10;

/// Takes jobs.
#[derive(Clone)]
pub struct Executors {
    /// By [`Lane`].
    lanes: [Sender<Order>; LANES.len()],
}

impl Executors {
    /// Starts `threads` threads for jobs on data, some for scripts, and one for each other lane.
    /// The threads end when all handles are dropped.
    pub fn start(
        shared: &Arc<Shared>,
        threads: usize,
    ) -> std::io::Result<(Executors, Vec<JoinHandle<()>>)> {
        let mut handles = Vec::new();
        let mut start = |lane: Lane| {
            let (sender, receiver) = channel();
            let receiver = Arc::new(Mutex::new(receiver));
            let count = match lane {
                Lane::Data => threads,
                Lane::Scripts => SCRIPT_THREADS,
                _ => 1,
            };
            for _ in 0..count {
                let (shared, receiver) = (shared.clone(), Arc::clone(&receiver));
                let name = format!("executor-{}", handles.len());
                let guard = StopOnPanic(shared.clone());
                let thread = std::thread::Builder::new().name(name);
                handles.push(thread.spawn(move || guard.run(|| run(&shared, &receiver, lane)))?);
            }
            Ok::<_, std::io::Error>(sender)
        };
        let [data, disk, long, unbounded, network, scripts] = LANES.map(&mut start);
        Ok((Executors { lanes: [data?, disk?, long?, unbounded?, network?, scripts?] }, handles))
    }

    /// Has a job run; `done` gets its reply on another thread.
    pub fn submit(
        &self,
        job: Job,
        held: Held,
        resp3: bool,
        done: impl FnOnce(JobReply, Held) + Send + 'static,
    ) {
        // The send fails only if the server has stopped, and then no client is left.
        let _ = self.lanes[job.lane as usize].send((job, held, resp3, Box::new(done)));
    }
}

/// The next job of a lane. The thread of the network meanwhile closes connections whose time has
/// ended; without such connections it sleeps. `None` once all handles are dropped.
fn next(shared: &Shared, receiver: &Mutex<Receiver<Order>>, lane: Lane) -> Option<Order> {
    let receiver = receiver.lock().unpoisoned();
    loop {
        let end = shared.wiring.targets.first_end().filter(|_| lane == Lane::Network);
        let Some(end) = end else { return receiver.recv().ok() };
        match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(order) => return Some(order),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => shared.wiring.targets.release(Instant::now()),
        }
    }
}

fn run(shared: &Arc<Shared>, receiver: &Mutex<Receiver<Order>>, lane: Lane) {
    if lane == Lane::Scripts {
        // Where the system forbids the change, the threads compete like all threads.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    }
    while let Some((job, held, resp3, done)) = next(shared, receiver, lane) {
        let is_current = shared.store.opened.is_current(&held) || !held.has_database();
        let reply = match (shared.stopping(), shared.store.log_failure()) {
            // The job of a role that has ended has no effect, and no client any more.
            _ if !is_current => JobReply::default(),
            (None, _) => job.run(shared, resp3),
            // The job has no effect any more, and says why.
            (Some(_), Some(_)) if matches!(lane, Lane::Data | Lane::Network | Lane::Scripts) => {
                job.run(shared, resp3)
            }
            (Some(_), Some(cause)) => {
                let bytes = format!("-MISCONF {cause}\r\n").into_bytes();
                JobReply { bytes, ..JobReply::default() }
            }
            // A job not begun when the server stops has no effect and no reply. Its loop is told,
            // since the loop waits for the begun jobs.
            (Some(_), None) => JobReply::default(),
        };
        done(reply, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::time::Duration;

    /// A job without an end holds up the jobs of its own lane alone.
    #[test]
    fn jobs_wait_for_their_own_lane() {
        let shared = Shared::new(Settings::default());
        let (executors, threads) = Executors::start(&shared, 1).unwrap();
        let (ended, until_ended) = channel();
        // Long scripts have several threads.
        for long in LANES.into_iter().filter(|lane| *lane != Lane::Scripts) {
            let (let_go, goes_on) = channel::<()>();
            let mut blocks = Job::new(move |_, _| assert!(goes_on.recv().is_err()));
            blocks.lane = long;
            executors.submit(blocks, Held::default(), false, |_, _| ());
            for lane in LANES {
                let mut job = Job::new(|_, reply| reply.ok());
                job.lane = lane;
                let ended = ended.clone();
                let done = move |_, _| ended.send(lane).unwrap();
                executors.submit(job, Held::default(), false, done);
            }
            let next = || until_ended.recv_timeout(Duration::from_secs(60)).unwrap();
            let others: Vec<Lane> = (1..LANES.len()).map(|_| next()).collect();
            assert!(!others.contains(&long), "{long:?} {others:?}");
            drop(let_go);
            assert_eq!(next(), long);
        }
        drop(executors);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
