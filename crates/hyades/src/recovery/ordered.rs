//! The loop of the threads of an ordered replay, for every rule that decides on the next record.

use super::fallback::SerialFallback;
use super::idle_detector::{IdleDetector, deadlock_error};
use super::replay::ReplayContext;
use super::runner::RecordRunner;
use super::threads;
use crate::error::Error;
use crate::storage::Stamp;
use hyades_platform::clock;
use hyades_wal::{Lsn, StreamId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The replay of one incarnation, in an order demanded by its records' vectors or lists.
pub(crate) trait OrderedReplay<S: Stamp>: Sync {
    /// The state of one thread.
    type Thread;

    /// Unsuccessful rounds before a thread sleeps.
    const SPINS: u32;

    fn context(&self) -> &ReplayContext<S>;

    /// The state of the thread with this number.
    fn thread(&self, number: usize) -> Self::Thread;

    fn runner(thread: &mut Self::Thread) -> &mut RecordRunner;

    /// Reads or runs some records. Returns false if nothing could be done. Unless `thorough` is
    /// set, the step may rely on hints that nothing has happened since the thread's last round.
    fn step(&self, thread: &mut Self::Thread, thorough: bool) -> Result<bool, Error>;

    /// Returns a stream with unresolved records, and its resolved position. `None` if replay is
    /// complete.
    fn unresolved(&self) -> Option<(StreamId, Lsn)>;

    /// Whether one thread replays alone while that is faster.
    fn falls_back(&self) -> bool {
        false
    }

    /// Returns the number of resolved bytes of all streams; where replay
    /// [falls back](Self::falls_back).
    fn resolved(&self) -> u64 {
        0
    }

    /// Notes that the thread has found nothing to do, or ends (`idle` is false).
    fn note_idle(&self, _thread: &mut Self::Thread, _idle: bool) {}

    /// Called between unsuccessful rounds, before the thread begins to sleep between rounds.
    fn pause(_idle_rounds: u32) {
        std::thread::yield_now();
    }

    /// Sleeps until there may be something to do.
    fn sleep(&self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    /// Called by each thread at its end.
    fn ended(&self) {}
}

/// Runs the replay on `threads` threads until the replay is complete or has failed. A log with
/// records waiting for each other is an error.
pub(crate) fn run<S: Stamp, R: OrderedReplay<S>>(replay: &R, threads: usize) {
    let idle_detector = IdleDetector::new(threads);
    let fallback = (threads > 1 && replay.falls_back()).then(|| SerialFallback::new(threads));
    let ended = |number: usize| {
        idle_detector.leave(number);
        replay.ended();
    };
    let work = |number: usize| work(replay, &idle_detector, fallback.as_ref(), number);
    threads::run_on(replay.context(), threads, work, ended);
    if let Some(fallback) = fallback {
        replay.context().counts.alone_ns.fetch_add(fallback.alone_ns(), Ordering::Relaxed);
    }
}

fn work<S: Stamp, R: OrderedReplay<S>>(
    replay: &R,
    idle_detector: &IdleDetector,
    fallback: Option<&SerialFallback>,
    number: usize,
) -> Result<(), Error> {
    let context = replay.context();
    let mut thread = replay.thread(number);
    let mut idle_rounds = 0;
    while !context.has_failed() {
        if let Some(fallback) = fallback {
            if fallback.rests(number) {
                R::runner(&mut thread).report(context);
                // The replaying thread does not hand work over to a resting thread.
                replay.note_idle(&mut thread, false);
                if replay.unresolved().is_none() {
                    break;
                }
                idle_rounds = 0;
                idle_detector.rest(number, || fallback.rest());
                continue;
            }
            if number == 0 {
                fallback.look(|| replay.resolved());
            }
        }
        // After a long idle time, prepares the check for a deadlock.
        let idle_long = idle_rounds > R::SPINS;
        let snapshot = idle_long.then(|| idle_detector.all_others_rest(number)).flatten();
        if replay.step(&mut thread, idle_long)? {
            idle_rounds = 0;
            continue;
        }
        if idle_rounds == 0 {
            R::runner(&mut thread).report(context);
            replay.note_idle(&mut thread, true);
        }
        let began_ns = fallback.map(|_| clock::monotonic_ns());
        let Some((stream, resolved)) = replay.unresolved() else { break };
        if snapshot.is_some_and(|then| idle_detector.unchanged_since(&then)) {
            return Err(deadlock_error(stream, resolved));
        }
        idle_rounds += 1;
        R::runner(&mut thread).waited();
        if idle_rounds <= R::SPINS {
            R::pause(idle_rounds);
        } else {
            idle_detector.rest(number, || replay.sleep());
        }
        if let (Some(fallback), Some(began_ns)) = (fallback, began_ns) {
            fallback.was_idle_since(began_ns);
        }
    }
    replay.note_idle(&mut thread, false);
    R::runner(&mut thread).finish(context);
    Ok(())
}
