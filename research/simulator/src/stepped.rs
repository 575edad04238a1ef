//! Lives that repeat exactly: one thread runs all sessions, flushes all streams and recovers, in an
//! order that follows from the seed, in simulated time.
//!
//! Under optimistic concurrency control, transactions of several sessions interleave: between the
//! steps of a transaction, other transactions run. Where a transaction holds rows while it runs,
//! another transaction on the same thread would wait for the rows, so each runs as a whole. Real
//! parallelism is left to the histories with threads.

use crate::case::{Case, Opened};
use crate::checkpoints::CheckpointCounts;
use crate::ending::Ending;
use crate::history::ExecutedTransaction;
use crate::life::Runner;
use fastrand::Rng;
use hyades::Concurrency;
use hyades_platform::clock;
use hyades_platform::device::SimulatedFault;
use hyades_schemes::{PARTITIONED, TIMESTAMP_ORDER, WAIT_DIE};
use std::cell::RefCell;

/// Start of the simulated time in nanoseconds: a moment in 2026.
const BEGAN_NS: u64 = 1_790_000_000_000_000_000;

/// Makes the calling thread deterministic: its time is simulated, and its random numbers follow
/// from the seed.
pub(crate) fn begin(seed: u64) {
    clock::simulate(Some(BEGAN_NS));
    fastrand::seed(seed);
}

/// Returns the calling thread to real time.
pub(crate) fn end() {
    clock::simulate(None);
}

fn pass_time(rng: &mut Rng) {
    // An epoch is 10 ms long.
    clock::simulate(Some(clock::monotonic_ns() + rng.u64(1..2_000_000)));
}

/// Runs the sessions, then kills the process or cuts the power. Returns true if the ending is quiet
/// and everything was flushed.
pub(crate) fn work(case: &mut Case, opened: &Opened, ending: Ending) -> bool {
    let mut rng = Rng::with_seed(case.rng.u64(..));
    let work = opened.work(&case.plan, &case.counters);
    let seeds: Vec<u64> = (0..case.plan.sessions).map(|_| rng.u64(..)).collect();
    let runners = seeds.into_iter().enumerate().map(|(at, seed)| {
        let runner = Runner::new(&work, seed, at);
        runner.ok().map(RefCell::new)
    });
    let Some(runners) = runners.collect::<Option<Vec<_>>>() else { return false };
    let quiet = ending.is_quiet();
    let transactions = case.plan.sessions * case.plan.transactions;
    let enough = if quiet { transactions } else { rng.usize(0..transactions + 1) };
    // Under these a running transaction may hold rows that an inner transaction needs.
    let holds = [Concurrency::NoWait, Concurrency::Hekaton, TIMESTAMP_ORDER, PARTITIONED, WAIT_DIE];
    let interleaves = !holds.contains(&opened.combination.concurrency);
    let mut taken = case.takes_checkpoints().then(CheckpointCounts::default);
    let failed = run(&mut rng, opened, &runners, enough, interleaves, &mut taken).is_none();
    match ending {
        Ending::PowerCut => {
            die_while_flushing(&mut rng, opened);
            case.disk.power_cut(rng.u64(..));
        }
        Ending::Close | Ending::StopsClosing | Ending::Quiet => {}
        _ => case.disk.kill(),
    }
    let flushed = quiet && !failed && opened.db.log().is_some_and(|log| log.flush().is_ok());
    let by_wakers = work.wakers.as_ref().map(|wakers| wakers.end());
    let mut ran: Vec<ExecutedTransaction> = by_wakers.unwrap_or_default();
    for runner in runners {
        let mut runner = runner.into_inner();
        // An acknowledgement missing by now stays open.
        let _ = runner.drain();
        ran.extend(runner.into_ran());
    }
    if flushed {
        ran.iter_mut().for_each(|ran| ran.acknowledged = true);
    }
    case.history.life = ran;
    case.note_checkpoints(taken.unwrap_or_default(), flushed && !opened.faulty);
    flushed
}

/// Stops the process within the writes and syncs of a last round of flushes, so that the following
/// power cut finds unsynced data.
fn die_while_flushing(rng: &mut Rng, opened: &Opened) {
    let Some(log) = opened.db.log() else { return };
    opened.device.arm(SimulatedFault::Stop(rng.u64(0..2 * log.streams() as u64)));
    let first = rng.usize(0..log.streams());
    for stream in 0..log.streams() {
        log.step((first + stream) % log.streams());
    }
}

/// Runs `enough` transactions and flushes in between. Returns `None` if the database failed.
fn run(
    rng: &mut Rng,
    opened: &Opened,
    runners: &[RefCell<Runner<'_>>],
    enough: usize,
    interleaves: bool,
    taken: &mut Option<CheckpointCounts>,
) -> Option<()> {
    let log = opened.db.log()?;
    // For each stream, one in this number of opportunities to flush is used.
    let lazy: Vec<u32> = (0..log.streams()).map(|_| [1, 2, 8, 40][rng.usize(0..4)]).collect();
    // A checkpoint is taken before one in this number of transactions, if at all.
    let seldom = [10, 60, 300][rng.usize(0..3)];
    let mut begun = 0;
    while begun < enough {
        pass_time(rng);
        if rng.bool() {
            let stream = rng.usize(0..log.streams());
            if rng.u32(0..lazy[stream]) == 0 {
                log.step(stream);
            }
            continue;
        }
        begun += 1;
        if let Some(taken) = taken.as_mut().filter(|_| rng.u32(0..seldom) == 0) {
            taken.take_stepped(&opened.db);
        }
        let at = rng.usize(0..runners.len());
        let mut runner = runners[at].borrow_mut();
        let mut depth = 0;
        let mut between = || {
            if interleaves && depth < 3 && rng.u32(0..4) == 0 {
                depth += 1;
                // A session in the middle of a transaction cannot be borrowed.
                if let Ok(mut other) = runners[rng.usize(0..runners.len())].try_borrow_mut() {
                    // If the database has failed, the outer transaction reports the failure.
                    let _ = other.step(false, &mut || {});
                }
            }
        };
        runner.step(false, &mut between).ok()?;
    }
    Some(())
}
