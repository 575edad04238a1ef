//! Recovery: rebuilds the tables from the streams of a log.
//!
//! Incarnations are replayed one after the other. Within an incarnation, records of a data-only log
//! are applied by row version in any order ([`last_writer_wins`]); a log with commands is replayed
//! in the order of its vectors ([`wavefront`], or [`pools`] for comparison). Records with lists of
//! predecessors are judged by the lists ([`dataflow`]). All other records are judged by the rule of
//! their acknowledgement, [`crate::logging::admits`], applied to the ends of the streams. Recovery
//! changes nothing on disk.

pub(crate) mod apply;
mod arrived;
pub(crate) mod catalogue;
pub(crate) mod command;
mod cursor;
pub(crate) mod dataflow;
pub(crate) mod decode;
mod fallback;
pub(crate) mod finish;
mod floors;
mod former;
mod former_changes;
#[cfg(feature = "replication")]
pub(crate) mod frame_source;
pub(crate) mod graph;
pub(crate) mod held_deltas;
mod idle_detector;
pub(crate) mod last_writer_wins;
mod listed_images;
mod load;
mod ordered;
pub(crate) mod parts;
mod pause;
mod phases;
pub(crate) mod plan;
pub(crate) mod pools;
mod prefetching;
pub(crate) mod progress;
mod read_ahead;
pub(crate) mod replay;
pub(crate) mod report;
mod reporting;
pub(crate) mod runner;
pub(crate) mod schema_change;
mod serving;
#[cfg(feature = "replication")]
pub(crate) mod slice;
#[cfg(feature = "replication")]
pub(crate) mod standing_threads;
mod stored_catalogue;
mod stream_order;
pub(crate) mod threads;
mod tombstones;
mod version_collector;
pub(crate) mod wavefront;

use crate::error::Error;
use crate::logging::row_frame::RowFrames;
use crate::storage::Stamp;
use crate::storage::table::TableData;
use catalogue::Catalogue;
use decode::RecordShape;
use hyades_platform::epoch::EpochNumber;
use hyades_platform::sync::Unpoisoned;
use hyades_platform::{clock, event};
use hyades_wal::{Incarnation, Lsn, MARKS, ReaderEnd, Recovering, StreamEnd, StreamReader};
use plan::{Plan, Replay};
use progress::{Phase, RecoveryProgress};
use read_ahead::LaneReader;
use replay::ReplayContext;
use report::{IncarnationReport, Loss, RecoveryReport};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of recovery.
pub(crate) struct Recovered {
    pub report: RecoveryReport,
    pub ends: Vec<ReaderEnd>,
    /// The highest epoch in the log.
    pub max_epoch: EpochNumber,
}

/// Refuses a log of an experiment with cut changes.
fn refuse_cut(recovering: &Recovering) -> Result<(), Error> {
    let mut incarnations = recovering.manifest().incarnations.iter();
    let is_cut = |i: &&Incarnation| i.settings.contains_key(RowFrames::CUT);
    match incarnations.find(is_cut) {
        None => Ok(()),
        Some(incarnation) => Err(Error::Mismatch(format!(
            "incarnation {} of the log was written with changes cut to {} bytes for each \
             transaction, for an experiment: it cannot be recovered",
            incarnation.number,
            incarnation.settings[RowFrames::CUT]
        ))),
    }
}

/// Replays the whole content of `recovering` into `tables`.
pub(crate) fn recover<S: Stamp>(
    recovering: &Recovering,
    tables: Arc<Vec<TableData<S>>>,
    catalogue: Arc<Catalogue>,
    row_ids: Arc<AtomicU64>,
    plan: &Plan<'_>,
) -> Result<Recovered, Error> {
    debug_assert!(plan.threads > 0, "replay needs a thread");
    debug_assert!(!plan.kind.is_on_one_thread() || plan.threads == 1, "one order needs one thread");
    refuse_cut(recovering)?;
    let readers = recovering.readers();
    let bytes = readers.iter().map(StreamReader::bytes_total).sum::<u64>();
    let image = recovering.manifest().checkpoint.as_ref();
    let image_bytes = image.map_or(0, |image| image.parts.iter().map(|part| part.bytes).sum());
    let progress = RecoveryProgress::new(&readers, image_bytes);
    let replay = ReplayContext::new(tables, catalogue, row_ids, progress);
    let recovery = Recovery { recovering, replay, plan };
    let damage = recovering.damage().iter();
    let losses = damage.map(|error| Loss::File(error.to_string())).collect();
    let mut report = RecoveryReport {
        found: !recovering.is_fresh(),
        threads: plan.threads,
        losses,
        ..RecoveryReport::default()
    };
    event!(INFO, "log opened", found = report.found, bytes = bytes, threads = plan.threads);
    let ends = recovery.with_progress(|| recovery.run(readers, &mut report))?;
    let max_epoch = EpochNumber(recovery.replay.counts.max_epoch.load(Ordering::Relaxed));
    Ok(Recovered { report, ends, max_epoch })
}

/// A recovery under way: the log, and the tables to replay into.
struct Recovery<'r, S: Stamp> {
    recovering: &'r Recovering,
    replay: ReplayContext<S>,
    plan: &'r Plan<'r>,
}

impl<S: Stamp> Recovery<'_, S> {
    /// Loads the checkpoint, replays all incarnations one after the other, and checks the tables.
    /// Returns the ends of the streams.
    fn run(
        &self,
        mut readers: Vec<StreamReader>,
        report: &mut RecoveryReport,
    ) -> Result<Vec<ReaderEnd>, Error> {
        self.load_checkpoint(report)?;
        let replay_began = clock::monotonic_ns();
        let incarnations = &self.recovering.manifest().incarnations;
        let mut ends = Vec::new();
        for incarnation in incarnations {
            let of_incarnation = readers.extract_if(.., |r| r.incarnation == incarnation.number);
            self.replay_incarnation(incarnation, of_incarnation.collect(), &mut ends, report)?;
            if report.losses.iter().any(|loss| matches!(loss, Loss::Stream { .. })) {
                // Later incarnations depend on the records lost here, and their vectors do not show
                // the dependency.
                let later = incarnations.iter().map(|i| i.number);
                let later = later.filter(|&number| number > incarnation.number);
                report.losses.extend(later.map(Loss::Incarnation));
                readers.clear();
                break;
            }
        }
        debug_assert!(readers.is_empty(), "each stream belongs to an incarnation of the manifest");
        report.replay_seconds = seconds_since(replay_began);
        self.replay.progress.enter(Phase::Check, 0);
        finish::finish(&self.replay)?;
        Ok(ends)
    }

    /// Loads the checkpoint, if there is one.
    fn load_checkpoint(&self, report: &mut RecoveryReport) -> Result<(), Error> {
        let Some(checkpoint) = &self.recovering.manifest().checkpoint else { return Ok(()) };
        let began = clock::monotonic_ns();
        load::load(&self.replay, self.recovering, checkpoint, self.plan.threads)?;
        report.image_seconds = seconds_since(began);
        report.image_rows = checkpoint.rows;
        report.image_bytes = checkpoint.parts.iter().map(|p| p.bytes).sum();
        event!(
            INFO,
            "checkpoint loaded",
            number = checkpoint.number,
            rows = report.image_rows,
            bytes = report.image_bytes,
            seconds = report.image_seconds,
        );
        Ok(())
    }

    /// Replays one incarnation and judges its end. Adds the ends of its streams to `ends`, and the
    /// replayed and lost records to the report.
    fn replay_incarnation(
        &self,
        incarnation: &Incarnation,
        readers: Vec<StreamReader>,
        ends: &mut Vec<ReaderEnd>,
        report: &mut RecoveryReport,
    ) -> Result<(), Error> {
        let began = clock::monotonic_ns();
        let ahead = self.recovering.device().reads_wait();
        let progress = &self.replay.progress;
        let starts: Vec<Lsn> = readers.iter().map(StreamReader::start).collect();
        let lanes: Vec<LaneReader> =
            readers.into_iter().map(|reader| LaneReader::new(reader, ahead, progress)).collect();
        let streams = lanes.len();
        let times: Vec<_> = lanes.iter().map(|lane| (lane.stream, lane.times())).collect();
        progress.enter(Phase::Log, streams);
        let result = self.replay_streams(incarnation, lanes);
        let named = |error| decode::name_tables(error, incarnation, self.plan.partitions);
        if let Some(error) = self.replay.failure.lock().unpoisoned().take() {
            return Err(named(error));
        }
        let (replayed, found) = result.map_err(named)?;
        debug_assert_eq!(replayed.len(), streams, "replay reads every stream to its end");
        let first = ends.len();
        ends.extend(replayed);
        if self.plan.salvage {
            let damaged = self.recovering.damaged_streams(incarnation, ends)?;
            report.losses.extend(damaged.into_iter().map(Loss::from));
        } else {
            // Reports damage as damage, before the loss makes commands of the next incarnation
            // fail.
            self.recovering.judge_incarnation(incarnation, ends)?;
        }
        check_found(incarnation, found.iter().flatten(), &starts, &ends[first..])?;
        finish::finish_incarnation(&self.replay)?;
        finish::compare_outcomes(&self.replay, self.plan.salvage)?;
        let is_sequential = RecordShape::of(incarnation, streams, None).is_sequential();
        let before = (report.records, report.bytes, report.dead);
        let counts = &self.replay.counts;
        report.records = counts.records.load(Ordering::Relaxed);
        report.one_thread_seconds = counts.alone_ns.load(Ordering::Relaxed) as f64 / 1e9;
        report.version_bytes = counts.version_bytes.load(Ordering::Relaxed);
        report.bytes = counts.bytes.load(Ordering::Relaxed);
        report.dead = counts.dead.load(Ordering::Relaxed);
        let of_incarnation = IncarnationReport {
            number: incarnation.number,
            records: report.records - before.0,
            bytes: report.bytes - before.1,
            dead: report.dead - before.2,
            seconds: seconds_since(began),
            streams,
            threads: if is_sequential { 1 } else { self.plan.threads },
            reads: times.iter().map(|(stream, times)| times.of(*stream)).collect(),
        };
        event!(
            INFO,
            "incarnation replayed",
            number = of_incarnation.number,
            records = of_incarnation.records,
            bytes = of_incarnation.bytes,
            dead = of_incarnation.dead,
            seconds = of_incarnation.seconds,
            streams = of_incarnation.streams,
        );
        report.incarnations.push(of_incarnation);
        Ok(())
    }

    /// Chooses the kind of replay for the streams of an incarnation, by the order of its records.
    /// Returns the ends of the streams, as read and, where records were judged by these, as found
    /// before.
    fn replay_streams(
        &self,
        incarnation: &Incarnation,
        lanes: Vec<LaneReader>,
    ) -> Result<(Vec<ReaderEnd>, Option<Vec<StreamEnd>>), Error> {
        let Recovery { recovering, replay, plan, .. } = self;
        let checkpoint = recovering.manifest().checkpoint.as_ref();
        let shape = RecordShape::of(incarnation, lanes.len(), checkpoint);
        let shape = shape.until(plan.until).over(incarnation, plan.partitions);
        let replayed = match (shape.predecessors, shape.data_only, shape.has_vectors(), plan.kind) {
            // Lists of predecessors decide liveness, and order commands.
            (true, _, _, Replay::Phases) => {
                phases::replay(replay, lanes, shape, !plan.salvage, plan.threads)
            }
            (true, _, _, _) => dataflow::replay(replay, lanes, shape, !plan.salvage, plan.threads),
            // The paper's order, also where versions would do.
            (false, _, true, Replay::Pools) => pools::replay(replay, lanes, shape, plan.threads),
            // Row versions decide, in any order of replay.
            (false, true, _, _) => {
                let found = recovering.find_ends(incarnation)?;
                let read = last_writer_wins::replay(replay, lanes, &found, shape, plan.threads);
                return Ok((read?, Some(found)));
            }
            // Vectors order the records.
            (false, false, true, kind) => {
                let falls_back = kind == Replay::Automatic;
                wavefront::replay(replay, lanes, shape, (plan.threads, falls_back))
            }
            // A log without vectors has one order, the order of its stream.
            (false, false, false, _) => wavefront::replay(replay, lanes, shape, (1, false)),
        };
        Ok((replayed?, None))
    }
}

/// Refuses an incarnation in which streams end elsewhere than was found before: records were judged
/// by the ends found before.
fn check_found<'f>(
    incarnation: &Incarnation,
    found: impl Iterator<Item = &'f StreamEnd>,
    starts: &[Lsn],
    read: &[ReaderEnd],
) -> Result<(), Error> {
    let has_marks = incarnation.settings.contains_key(MARKS);
    for ((found, read), &start) in found.zip(read).zip(starts) {
        // A salvage finds no end below the start, though nothing may be valid up to the start.
        let valid_to = read.valid_to.max(start);
        if found.valid_to != valid_to || (has_marks && found.mark != read.mark) {
            return Err(Error::Recovery(format!(
                "log stream {} was found to end at Lsn {} with mark {}, and when read ended at Lsn \
                 {valid_to} with mark {}: its files changed meanwhile, or the device returned \
                 different bytes; recover again",
                read.stream, found.valid_to, found.mark, read.mark
            )));
        }
    }
    Ok(())
}

fn seconds_since(began_ns: u64) -> f64 {
    (clock::monotonic_ns() - began_ns) as f64 / 1e9
}
