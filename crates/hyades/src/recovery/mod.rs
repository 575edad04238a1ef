//! Recovery: from the streams of a log back to the tables.
//!
//! Incarnations are replayed one after the other; within one, records of a data-only log are
//! applied by row version in any order ([`last_writer_wins`]), and a log that holds commands is
//! replayed along its vectors ([`wavefront`], or [`pools`] for comparison). Where records list their
//! predecessors, these lists decide ([`dataflow`]). Otherwise what is replayed is decided
//! by the rule that acknowledged it, [`crate::logging::admits`], applied to where the streams end.
//! Nothing on disk changes.

mod announcing;
pub(crate) mod apply;
pub(crate) mod catalogue;
pub(crate) mod command;
mod cursor;
pub(crate) mod dataflow;
pub(crate) mod decode;
pub(crate) mod finish;
pub(crate) mod graph;
pub(crate) mod hands;
pub(crate) mod held_deltas;
pub(crate) mod last_writer_wins;
pub(crate) mod parts;
pub(crate) mod pools;
mod read_ahead;
mod seats;
mod syncing;
pub(crate) mod threads;
mod undecided;
pub(crate) mod wavefront;

use crate::checkpoint::load;
use crate::config::Replay as ReplayKind;
use crate::engine::Engine;
use crate::error::Error;
use crate::garbage::Garbage;
use crate::logging::predecessors::Id;
use crate::logging::unstamped::Unstamped;
use crate::storage::table::Table;
use catalogue::Catalogue;
use held_deltas::HeldDeltas;
use hyades_platform::clock;
use hyades_platform::epoch::{Epoch, MAX_EPOCH};
use hyades_wal::{ReaderEnd, Recovering, StreamReader};
use read_ahead::LaneReader;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How far recovery has come; given to the callback of [`crate::Builder::on_progress`].
#[derive(Clone, Debug)]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// Log bytes read so far.
    pub bytes_done: u64,
    /// Log bytes on disk; what is valid of them may end earlier.
    pub bytes_total: u64,
    /// Transactions replayed so far.
    pub records_done: u64,
    /// Streams of the incarnation being replayed.
    pub streams: usize,
    /// Seconds since recovery began.
    pub seconds: f64,
    /// Seconds still to go at the present rate, once there is one.
    pub estimate_seconds: Option<f64>,
}

/// What was recovered of one incarnation of the log.
#[derive(Clone, Debug, Default)]
pub struct IncarnationReport {
    /// Its number, counted from 1.
    pub number: u32,
    /// Live transactions replayed.
    pub records: u64,
    /// Records of transactions that depended on something that was lost: never acknowledged.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its streams.
    pub streams: usize,
}

/// What opening a database found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Whether the directory held a log at all.
    pub found: bool,
    /// From the call of open until the database took transactions.
    pub seconds: f64,
    /// Replay threads used.
    pub threads: usize,
    /// Live transactions replayed.
    pub records: u64,
    /// Dead records passed over.
    pub dead: u64,
    /// Log bytes replayed.
    pub bytes: u64,
    /// How long it took to load the checkpoint: rows and their index entries.
    pub image_seconds: f64,
    /// Rows loaded from the checkpoint.
    pub image_rows: u64,
    /// Bytes of the checkpoint's files.
    pub image_bytes: u64,
    /// How long it took to replay the log that the checkpoint does not cover; this is what
    /// [`crate::Builder::max_recovery`] bounds.
    pub replay_seconds: f64,
    /// By incarnation, oldest first.
    pub incarnations: Vec<IncarnationReport>,
    /// What could not be read, where a damaged log was recovered all the same.
    pub losses: Vec<Loss>,
}

/// What could not be read of a damaged log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Something is missing or damaged as a whole.
    File(String),
    /// A stream breaks off.
    Stream {
        /// The incarnation of the log.
        incarnation: u32,
        /// The stream.
        stream: u32,
        /// Everything below this position is there.
        valid_to: u64,
        /// From there to here something was durable; how much there was behind it is not known.
        durable_to: u64,
        /// The file and the byte, and what is wrong.
        message: String,
    },
    /// A whole incarnation: one before it is damaged, and what it built on is not known.
    Incarnation(u32),
}

impl From<hyades_wal::Damage> for Loss {
    fn from(damage: hyades_wal::Damage) -> Self {
        Loss::Stream {
            incarnation: damage.incarnation,
            stream: damage.stream,
            valid_to: damage.valid_to,
            durable_to: damage.durable_to,
            message: damage.error.to_string(),
        }
    }
}

/// What the threads of a replay share.
pub(crate) struct Replay<S: Default + Send + Sync + 'static> {
    pub engine: Engine<Unstamped<S>>,
    pub catalogue: Arc<Catalogue>,
    pub held: HeldDeltas,
    pub counts: Counts,
    /// The first error; everyone stops when there is one.
    pub failure: Mutex<Option<Error>>,
    pub failed: std::sync::atomic::AtomicBool,
    /// What records left behind where rows have several versions, by who left it.
    pub later: Mutex<VecDeque<(Id, Garbage)>>,
    /// Keys whose rows were absent when last applied: tombstones to clear away at the end.
    pub absent: Mutex<Vec<(u32, crate::storage::key::KeyBytes)>>,
}

/// Counters of the incarnation being replayed. Added to by every thread in batches, read for
/// progress: Relaxed throughout.
#[derive(Default)]
pub(crate) struct Counts {
    pub records: AtomicU64,
    pub dead: AtomicU64,
    pub bytes: AtomicU64,
    pub max_epoch: AtomicU64,
    pub max_row_id: AtomicU64,
}

impl<S: Default + Send + Sync + 'static> Replay<S> {
    /// Remembers the first error and stops everyone.
    pub fn fail(&self, error: Error) {
        self.failure.lock().expect("no holder panics").get_or_insert(error);
        self.failed.store(true, Ordering::Release);
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

/// What recovery hands on.
pub(crate) struct Recovered {
    pub report: RecoveryReport,
    pub ends: Vec<ReaderEnd>,
    /// The highest epoch in the log.
    pub max_epoch: u64,
}

/// How to recover.
pub(crate) struct Plan<'p> {
    pub threads: usize,
    pub kind: ReplayKind,
    pub progress: Option<&'p (dyn Fn(&Progress) + Send + Sync)>,
    pub started_ns: u64,
    /// What comes after this epoch is left out.
    pub until: u64,
    /// Goes as far as a damaged log allows.
    pub salvage: bool,
}

/// Replays everything that `recovering` holds into `tables`.
pub(crate) fn recover<S: Default + Send + Sync + 'static>(
    recovering: &Recovering,
    tables: Arc<Vec<Table<S>>>,
    catalogue: Arc<Catalogue>,
    row_ids: Arc<AtomicU64>,
    plan: &Plan<'_>,
) -> Result<Recovered, Error> {
    // Everything is ripe for clearing away during replay: its epoch lies above all others.
    let epoch = Arc::new(Epoch::new(MAX_EPOCH));
    let replay = Replay {
        engine: Engine::new(tables, Unstamped::<S>::default(), epoch, row_ids),
        catalogue,
        held: HeldDeltas::default(),
        counts: Counts::default(),
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
            let shape = decode::Shape::of(incarnation, streams, checkpoint).until(plan.until);
            let result = if shape.predecessors {
                let threads = if plan.kind == ReplayKind::Serial { 1 } else { plan.threads };
                dataflow::replay(&replay, lanes, shape, !plan.salvage, threads)
            } else if incarnation.data_only {
                last_writer_wins::replay(&replay, lanes, shape, plan.threads)
            } else if plan.kind == ReplayKind::Pools && shape.has_vectors() {
                pools::replay(&replay, lanes, shape, plan.threads)
            } else {
                // A log without vectors has one order, that of its stream.
                let serial = plan.kind == ReplayKind::Serial || !shape.has_vectors();
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
            // Damage is named as such, before what it took away lets the next incarnation's commands fail.
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
            // The next incarnation built on what is lost here, and its vectors do not tell.
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

/// Tells the caller how far recovery has come, until it has finished.
fn report_progress(
    counts: &Counts,
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
