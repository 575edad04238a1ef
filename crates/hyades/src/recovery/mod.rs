//! Recovery: rebuilds the tables from the streams of a log.
//!
//! Incarnations are replayed one after the other. Within one, records of a data-only log are
//! applied by row version in any order ([`last_writer_wins`]); a log that holds commands is
//! replayed in the order of its vectors ([`wavefront`], or [`pools`] for comparison). Records that
//! list their predecessors are judged by these lists ([`dataflow`]). All others are judged by the
//! rule that acknowledged them, [`crate::logging::admits`], applied to the ends of the streams.
//! Recovery changes nothing on disk.

pub(crate) mod apply;
pub(crate) mod catalogue;
pub(crate) mod command;
mod cursor;
pub(crate) mod dataflow;
pub(crate) mod decode;
pub(crate) mod finish;
pub(crate) mod graph;
pub(crate) mod held_deltas;
mod idle_detector;
pub(crate) mod last_writer_wins;
mod load;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod pools;
mod prefetching;
mod read_ahead;
mod replay;
pub(crate) mod report;
pub(crate) mod runner;
mod stream_order;
pub(crate) mod threads;
mod undecided;
mod version_collector;
pub(crate) mod wavefront;

use crate::engine::Engine;
use crate::error::Error;
use crate::logging::unstamped::Unstamped;
use crate::storage::table::TableData;
use catalogue::Catalogue;
use held_deltas::HeldDeltas;
use hyades_platform::clock;
use hyades_platform::epoch::{Epoch, MAX_EPOCH};
use hyades_wal::{ReaderEnd, Recovering, StreamReader};
use plan::{Plan, Replay};
use read_ahead::LaneReader;
use replay::{ReplayContext, ReplayCounters};
use report::{IncarnationReport, Loss, Progress, RecoveryReport};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The result of recovery.
pub(crate) struct Recovered {
    pub report: RecoveryReport,
    pub ends: Vec<ReaderEnd>,
    /// The highest epoch in the log.
    pub max_epoch: u64,
}

/// Replays everything that `recovering` holds into `tables`.
pub(crate) fn recover<S: Default + Send + Sync + 'static>(
    recovering: &Recovering,
    tables: Arc<Vec<TableData<S>>>,
    catalogue: Arc<Catalogue>,
    row_ids: Arc<AtomicU64>,
    plan: &Plan<'_>,
) -> Result<Recovered, Error> {
    // An epoch above all others, so that garbage can be removed at once during replay.
    let epoch = Arc::new(Epoch::new(MAX_EPOCH));
    let replay = ReplayContext {
        engine: Engine::new(tables, Unstamped::<S>::default(), epoch, row_ids),
        catalogue,
        held: HeldDeltas::default(),
        counts: ReplayCounters::default(),
        failure: Mutex::new(None),
        failed: false.into(),
        later: Mutex::default(),
        absent: Mutex::new(Vec::new()),
    };
    let damage = recovering.damage().iter();
    let losses = damage.map(|error| Loss::File(error.to_string())).collect();
    let mut readers = recovering.readers();
    let bytes_total: u64 = readers.iter().map(StreamReader::bytes_total).sum();
    let mut report = RecoveryReport {
        found: !recovering.is_fresh(),
        threads: plan.threads,
        losses,
        ..RecoveryReport::default()
    };
    if let Some(checkpoint) = &recovering.manifest().checkpoint {
        let began = clock::monotonic_ns();
        load::load(&replay, recovering, checkpoint, plan.threads)?;
        report.image_seconds = (clock::monotonic_ns() - began) as f64 / 1e9;
        report.image_rows = checkpoint.rows;
        report.image_bytes = checkpoint.parts.iter().map(|p| p.bytes).sum();
    }
    let replay_began = clock::monotonic_ns();
    let mut ends = Vec::new();
    for incarnation in &recovering.manifest().incarnations {
        let began = clock::monotonic_ns();
        let ahead = recovering.device().reads_wait();
        let lanes: Vec<LaneReader> = readers
            .extract_if(.., |r| r.incarnation == incarnation.number)
            .map(|reader| LaneReader::new(reader, ahead))
            .collect();
        let streams = lanes.len();
        let before = (report.records, report.bytes, report.dead);
        let finished = std::sync::atomic::AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            if let Some(tell) = plan.progress {
                scope.spawn(|| {
                    report_progress(&replay.counts, tell, plan, bytes_total, streams, &finished);
                });
            }
            let checkpoint = recovering.manifest().checkpoint.as_ref();
            let shape = decode::RecordShape::of(incarnation, streams, checkpoint).until(plan.until);
            let result = if shape.predecessors {
                let threads = if plan.kind == Replay::Serial { 1 } else { plan.threads };
                dataflow::replay(&replay, lanes, shape, !plan.salvage, threads)
            } else if incarnation.data_only {
                last_writer_wins::replay(&replay, lanes, shape, plan.threads)
            } else if plan.kind == Replay::Pools && shape.has_vectors() {
                pools::replay(&replay, lanes, shape, plan.threads)
            } else {
                // A log without vectors has one order, that of its stream.
                let serial = plan.kind == Replay::Serial || !shape.has_vectors();
                let threads = if serial { 1 } else { plan.threads };
                wavefront::replay(&replay, lanes, shape, threads)
            };
            finished.store(true, Ordering::Release);
            result
        });
        if let Some(error) = replay.failure.lock().expect("no holder panics").take() {
            return Err(error);
        }
        ends.extend(result?);
        if plan.salvage {
            let damaged = recovering.damaged_streams(incarnation, &ends)?;
            report.losses.extend(damaged.into_iter().map(Loss::from));
        } else {
            // Reports damage as such, before the loss makes commands of the next incarnation fail.
            recovering.judge_incarnation(incarnation, &ends)?;
        }
        finish::finish_incarnation(&replay)?;
        let counts = &replay.counts;
        report.records = counts.records.load(Ordering::Relaxed);
        report.bytes = counts.bytes.load(Ordering::Relaxed);
        report.dead = counts.dead.load(Ordering::Relaxed);
        report.incarnations.push(IncarnationReport {
            number: incarnation.number,
            records: report.records - before.0,
            bytes: report.bytes - before.1,
            dead: report.dead - before.2,
            seconds: (clock::monotonic_ns() - began) as f64 / 1e9,
            streams,
        });
        if report.losses.iter().any(|loss| matches!(loss, Loss::Stream { .. })) {
            // Later incarnations depend on what is lost here, and their vectors do not show it.
            let later = recovering.manifest().incarnations.iter().map(|i| i.number);
            let later = later.filter(|&number| number > incarnation.number);
            report.losses.extend(later.map(Loss::Incarnation));
            break;
        }
    }
    report.replay_seconds = (clock::monotonic_ns() - replay_began) as f64 / 1e9;
    finish::finish(&replay)?;
    let max_epoch = replay.counts.max_epoch.load(Ordering::Relaxed);
    Ok(Recovered { report, ends, max_epoch })
}

/// Reports progress to the callback until recovery has finished.
fn report_progress(
    counts: &ReplayCounters,
    tell: &(dyn Fn(&Progress) + Send + Sync),
    plan: &Plan<'_>,
    bytes_total: u64,
    streams: usize,
    finished: &std::sync::atomic::AtomicBool,
) {
    loop {
        let done = finished.load(Ordering::Acquire);
        let seconds = (clock::monotonic_ns() - plan.started_ns) as f64 / 1e9;
        let bytes_done = counts.bytes.load(Ordering::Relaxed);
        let left = bytes_total.saturating_sub(bytes_done) as f64;
        let estimate = (bytes_done > 0).then(|| left * seconds / bytes_done as f64);
        tell(&Progress {
            phase: "replaying the log",
            bytes_done,
            bytes_total,
            records_done: counts.records.load(Ordering::Relaxed),
            streams,
            seconds,
            estimate_seconds: if done { Some(0.0) } else { estimate },
        });
        if done {
            return;
        }
        for _ in 0..20 {
            if finished.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
