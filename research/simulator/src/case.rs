//! One history: a database opened several times, each time until a crash or a close, and the checks
//! in between. The run from an opening to a crash or a close is called a *life*.

use crate::checkpoints::CheckpointCounts;
use crate::ending::Ending;
use crate::history::{History, LosesOverwritten, Verdict};
use crate::isolation::workload::{self, Load};
use crate::kept::SavedFailure;
use crate::life::{Counters, Runner, SessionResult, Work};
use crate::plan::{Combination, Plan};
use crate::traces::ProcedureTraces;
use crate::wakers::Wakers;
use crate::{checkpoints, database, stepped};
use fastrand::Rng;
use hyades::{Database, ProcedureId, RecordKind, Replay};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk, SimulatedFault};
use hyades_platform::sync::locked;
use hyades_schemes::PLOVER;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// The result of a history.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Ended lives, clean shutdowns included, and failed attempts to open.
    pub crashes: u64,
    /// Acknowledged transactions.
    pub acknowledged: u64,
    /// Injected faults and exercised features, with their counts.
    pub faults: BTreeMap<&'static str, u64>,
    /// Violations found in recovered states.
    pub verdict: Verdict,
    /// Replies and messages sent before their predecessors, and transactions that survived without
    /// the earlier transactions in their client's order.
    pub out_of_order: Vec<String>,
    /// Openings, checkpoints and shutdowns that failed although nothing was damaged.
    pub refused_wrongly: Vec<String>,
    /// Transactions that did not end, or were not answered, in time.
    pub late: Vec<String>,
    /// Set if the process keeps more memory from history to history.
    pub grown: Option<String>,
    /// Set if the history did not end: the state of its threads.
    pub hung: Option<String>,
    /// The disk before the opening with the failure, or before the last opening.
    pub image: Option<SimulatedDisk>,
    /// The life before the failure, in readable form.
    pub story: String,
    /// The life in binary form, so that the image can be checked again.
    pub kept: Option<SavedFailure>,
}

impl Outcome {
    /// Whether no violation was found.
    pub fn is_sound(&self) -> bool {
        let in_time = self.late.is_empty() && self.hung.is_none();
        let in_order = self.out_of_order.is_empty();
        let is_right = self.verdict.is_sound() && in_order && self.refused_wrongly.is_empty();
        is_right && in_time && self.grown.is_none()
    }

    /// All violations, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let refused = self.refused_wrongly.iter().map(|s| format!("refused wrongly: {s}"));
        let late = self.late.iter().map(|s| format!("late: {s}"));
        let hung = self.hung.iter().map(|how| format!("hung: {how}"));
        let order = self.out_of_order.iter().map(|s| format!("out of order: {s}"));
        let grown = self.grown.iter().map(|how| format!("grown: {how}"));
        let wrong = self.verdict.sentences().chain(order).chain(refused);
        wrong.chain(late).chain(grown).chain(hung).collect()
    }
}

pub(crate) struct Case {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) disk: SimulatedDisk,
    /// Number of log directories used so far.
    pub(crate) dirs: usize,
    pub(crate) history: History,
    /// Combination with which the database was last opened.
    pub(crate) now: Combination,
    pub(crate) counters: Arc<Counters>,
    pub(crate) outcome: Outcome,
    stage: Stage,
}

pub(crate) struct Opened {
    pub(crate) db: Database,
    pub(crate) device: SimulatedDevice,
    pub(crate) procedure: ProcedureId,
    pub(crate) combination: Combination,
    /// Whether a fault was armed during the opening. The fault may have hit a thread started there.
    pub(crate) faulty: bool,
    /// The reads and writes of its procedure, where the procedure may run on other threads.
    pub(crate) traces: ProcedureTraces,
}

impl Opened {
    pub(crate) fn work<'d>(&'d self, plan: &Plan, counters: &'d Arc<Counters>) -> Work<'d> {
        Work {
            db: &self.db,
            procedure: self.procedure,
            tables: plan.tables,
            counters,
            traces: &self.traces,
            calls_only: self.combination.calls_only(),
            data_only: self.combination.record == RecordKind::Data,
            transactions: plan.transactions,
            shape: plan.shape,
            conduct: plan.conduct,
            wakers: plan.conduct.wakers.then(|| Wakers::new(counters, plan.tables)),
            readers: AtomicUsize::new(usize::from(plan.shape.reader && !plan.stepped)),
            steps: (0..plan.sessions).map(|_| AtomicU64::default()).collect(),
        }
    }
}

/// The current work of a history: for the report of a hang.
pub type Stage = Arc<Mutex<String>>;

/// Runs a history. Keeps the current work in `stage`.
pub fn run(plan: &Plan, stage: &Stage) -> Outcome {
    // Computes the list before the history starts: the computation opens databases, which would
    // consume the history's random numbers and simulated time.
    Combination::with_calls();
    if plan.isolation {
        return run_for_isolation(plan);
    }
    if plan.stepped {
        stepped::begin(plan.seed);
    }
    let outcome = run_lives(plan, stage);
    stepped::end();
    outcome
}

fn run_for_isolation(plan: &Plan) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.faults.insert("clients' histories checked for a serial order", 1);
    outcome.crashes = plan.lives as u64 - 1;
    match workload::run_and_check(&Load::of(plan)) {
        Ok(answered) => outcome.acknowledged = answered,
        Err(anomaly) => {
            outcome.story.clone_from(&anomaly);
            outcome.verdict.diverged.push(anomaly);
        }
    }
    outcome
}

fn run_lives(plan: &Plan, stage: &Stage) -> Outcome {
    let mut case = Case {
        plan: plan.clone(),
        rng: Rng::with_seed(plan.seed ^ 0x5EED),
        disk: SimulatedDisk::new(),
        dirs: 1,
        history: History::default(),
        now: plan.combination,
        counters: Arc::default(),
        outcome: Outcome::default(),
        stage: Arc::clone(stage),
    };
    let shape = plan.shape.features(&plan.tables, plan.sessions);
    for feature in shape.into_iter().chain(plan.conduct.features(plan)) {
        *case.outcome.faults.entry(feature).or_default() += 1;
    }
    for life in 0..plan.lives {
        let Some(opened) = case.open(life) else { break };
        if !case.outcome.is_sound() {
            break;
        }
        case.live(opened);
    }
    // The state left by the last life is checked as well.
    if case.outcome.is_sound() {
        let story = case.story();
        let image = case.disk.fork();
        drop(case.open(plan.lives));
        case.outcome.image.get_or_insert(image);
        if case.outcome.story.is_empty() {
            case.outcome.story = story;
        }
    }
    case.outcome
}

/// Time after which a transaction that does not depend on the stalled stream counts as stuck. A
/// transaction needs far less; the machine may be busy.
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// Waits until each session has left its current transaction. Returns a message if a session is
/// stuck.
fn wait_for_steps(steps: &[AtomicU64]) -> Option<String> {
    let before: Vec<u64> = steps.iter().map(|step| step.load(Ordering::Relaxed)).collect();
    let began = std::time::Instant::now();
    let is_stuck = |at: &usize| {
        let now = steps[*at].load(Ordering::Relaxed);
        now == before[*at] && now % 2 == 1
    };
    while let Some(at) = (0..steps.len()).find(is_stuck) {
        if began.elapsed() >= STUCK_AFTER {
            return Some(format!(
                "session {at} is in a transaction for {} s: one stream stands still, and another \
                 is idle",
                STUCK_AFTER.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Starts the thread of a session.
fn start_session<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: &'scope Work<'_>,
    at: usize,
    seed: u64,
) -> ScopedJoinHandle<'scope, SessionResult> {
    let run = move || Runner::new(work, seed, at).map(Runner::run).unwrap_or_default();
    let name = format!("session-{at}");
    let spawned = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
    spawned.expect("a thread can be spawned")
}

/// Joins a thread and propagates its panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Case {
    /// Keeps the current work from now on.
    fn enter_stage(&self, what: String) {
        *locked(&self.stage) = what;
    }

    pub(crate) fn note(&mut self, fault: &'static str) {
        *self.outcome.faults.entry(fault).or_default() += 1;
    }

    /// Opens the database, retries after crashes and faults during opening, and checks the state.
    fn open(&mut self, life: usize) -> Option<Opened> {
        let varies = self.plan.varies && life > 0;
        let combination =
            if varies { self.plan.combination.next(&mut self.rng) } else { self.plan.combination };
        self.now = combination;
        // A change takes a checkpoint, with threads of its own.
        if self.plan.tables.changes && !self.plan.stepped {
            self.plan.tables.noted = life >= self.plan.lives / 2;
            self.plan.tables.by_version = Rng::with_seed(self.plan.seed ^ life as u64).bool();
        }
        if self.rng.u32(0..4) == 0 {
            self.dirs = self.dirs.max(self.rng.usize(1..4));
        }
        for attempt in 0.. {
            self.enter_stage(format!("opening {life}, attempt {attempt}"));
            let image = self.disk.fork();
            let device = self.disk.process(self.rng.u64(..));
            if self.plan.lying_sync {
                device.arm(SimulatedFault::LyingSync);
            }
            let faulty = attempt < 4 && self.rng.u32(0..3) == 0;
            if faulty {
                self.arm_for_opening(&device);
            }
            if self.rng.u32(0..4) == 0 {
                self.note("short and interrupted transfers");
                device.arm(SimulatedFault::Short);
            }
            let settings = self.rng.u64(..);
            let traces = ProcedureTraces::default();
            let (builder, procedure) = database::builder_tracing(
                (&self.plan, combination),
                &device,
                self.dirs,
                settings,
                &traces,
            );
            let (threads, replay) = self.random_replay();
            match builder.replay(replay).recovery_threads(threads).open("/db") {
                Ok(db) => {
                    device.disarm();
                    if self.plan.lying_sync {
                        device.arm(SimulatedFault::LyingSync);
                    }
                    // Drops the traces of replay.
                    traces.clear();
                    match database::sites(&self.plan, combination, settings) {
                        Some(1) => self.note("lives with one site"),
                        Some(_) => self.note("lives with sites that stop for each other"),
                        None => {}
                    }
                    let opened = Opened { db, device, procedure, combination, faulty, traces };
                    self.examine(&opened, image);
                    return Some(opened);
                }
                Err(error) if !faulty => {
                    self.fail(image, |outcome| {
                        outcome.refused_wrongly.push(format!("opening {combination:?}: {error}"));
                    });
                    return None;
                }
                Err(_) => {
                    self.outcome.crashes += 1;
                    self.crash();
                }
            }
        }
        None
    }

    pub(crate) fn random_replay(&mut self) -> (usize, Replay) {
        if self.plan.stepped {
            return (1, [Replay::Wavefront, Replay::Serial][self.rng.usize(0..2)]);
        }
        // Of a clone: known seeds draw the same as before.
        let drawn = match self.rng.clone().u32(0..4) {
            0 => [Replay::Automatic, Replay::Pools, Replay::Phases],
            _ => [Replay::Wavefront, Replay::Pools, Replay::Serial],
        };
        let replay = drawn[self.rng.usize(0..3)];
        (self.rng.usize(1..4), replay)
    }

    fn arm_for_opening(&mut self, device: &SimulatedDevice) {
        let (fault, name) = match self.rng.u32(0..8) {
            0..=3 => (SimulatedFault::Stop(self.rng.u64(0..50)), "killed while opening"),
            4 => (SimulatedFault::Read(self.rng.u64(0..30)), "a read fails while opening"),
            5 => (SimulatedFault::Write(self.rng.u64(0..12)), "a write fails while opening"),
            6 => (SimulatedFault::Full(self.rng.u64(0..400_000)), "disk full while opening"),
            _ => {
                let (after, for_ever) = (self.rng.u64(0..12), self.rng.bool());
                (SimulatedFault::Sync { after, for_ever }, "a sync fails while opening")
            }
        };
        self.note(name);
        device.arm(fault);
    }

    /// Ends the process, and in half of the cases cuts the power.
    fn crash(&mut self) {
        if self.rng.bool() {
            self.disk.power_cut(self.rng.u64(..));
        } else {
            self.note("killed: the page cache stays");
            self.disk.kill();
        }
    }

    /// Runs transactions until the life ends.
    fn live(&mut self, opened: Opened) {
        self.history.loses_overwritten = LosesOverwritten::under(opened.combination.protocol);
        let (ending, name) = Ending::draw(&mut self.rng);
        self.note(name);
        self.enter_stage(format!("a life under {:?}: {name}", opened.combination));
        let device = opened.device.clone();
        ending.arm(&mut self.rng, &device);
        let mut stream_stops = false;
        if self.stalls(ending) {
            let stream = self.rng.usize(0..opened.combination.streams);
            device.slow(&format!("stream-{stream:04}"), None);
        } else if !self.plan.stepped && self.rng.u32(0..3) == 0 {
            stream_stops = self.slow_a_stream(&device, ending);
        }
        if self.rng.u32(0..4) == 0 {
            self.note("short and interrupted transfers");
            device.arm(SimulatedFault::Short);
        }
        let sound = if self.plan.stepped {
            stepped::work(self, &opened, ending)
        } else {
            self.work(&opened, ending, stream_stops)
        };
        self.enter_stage(format!("the end of a life: {name}"));
        let Opened { db, faulty, .. } = opened;
        if matches!(ending, Ending::Close | Ending::StopsClosing) && sound {
            let stops = ending == Ending::StopsClosing;
            if stops {
                device.arm(SimulatedFault::Stop(self.rng.u64(0..12)));
            }
            match db.close() {
                Ok(()) => self.history.life.iter_mut().for_each(|ran| ran.acknowledged = true),
                Err(_) if faulty || stops => {}
                Err(error) => {
                    let image = self.disk.fork();
                    self.fail(image, |outcome| {
                        outcome.refused_wrongly.push(format!("closing: {error}"));
                    });
                }
            }
            if self.rng.bool() {
                self.disk.power_cut(self.rng.u64(..));
            }
        } else if matches!(ending, Ending::PowerCut | Ending::Quiet) {
            drop(db);
            self.disk.power_cut(self.rng.u64(..));
        } else {
            drop(db);
            self.crash();
        }
        self.outcome.crashes += 1;
        let acknowledged = self.history.life.iter().filter(|ran| ran.acknowledged).count();
        self.outcome.acknowledged += acknowledged as u64;
    }

    /// Whether one stream is stalled in this life, so that no transaction may wait for the stream
    /// to begin or end. Excluded are Plover, where a change goes to the stream of its row and all
    /// streams are needed, and endings that inject another fault, which may end the life earlier.
    fn stalls(&self, ending: Ending) -> bool {
        let Combination { streams, protocol, .. } = self.now;
        let kills = matches!(ending, Ending::PowerCut | Ending::Kill);
        let free = streams > 1 && protocol != PLOVER;
        self.plan.shape.stalled && !self.plan.stepped && kills && free
    }

    /// Slows the device of a stream, or stops the device: returns whether it stops.
    fn slow_a_stream(&mut self, device: &SimulatedDevice, ending: Ending) -> bool {
        let dir = format!("stream-{:04}", self.rng.u32(0..4));
        let stopped = !ending.is_quiet() && self.rng.bool();
        // Upper bound for the delay of each write. Heavy plans write hundreds of megabytes through
        // small buffers and must not take minutes.
        let longest_us = if self.plan.is_heavy() { 200 } else { 3000 };
        let pace = (!stopped).then(|| Duration::from_micros(self.rng.u64(100..longest_us)));
        self.note(if stopped { "a stream stopped" } else { "a stream far slower" });
        device.slow(&dir, pace);
        stopped
    }

    /// Runs the sessions, then kills the process or cuts the power. Returns false if the flush of a
    /// quiet ending fails. If a stream stops, transactions may starve.
    fn work(&mut self, opened: &Opened, ending: Ending, stream_stops: bool) -> bool {
        let work = opened.work(&self.plan, &self.counters);
        let seeds: Vec<u64> = (0..self.plan.sessions).map(|_| self.rng.u64(..)).collect();
        let mut time = Duration::from_micros(self.rng.u64(200..12_000));
        if self.plan.shape.reader {
            // Time for the reader to finish or to starve.
            time = Duration::from_secs(6);
        }
        if self.stalls(ending) {
            time = Duration::from_millis(200);
        }
        let power_seed = self.rng.u64(..);
        let disk = &self.disk;
        let (over, seed) = (AtomicBool::new(false), self.rng.u64(..));
        let takes = self.takes_checkpoints();
        let (stalls, mut stuck) = (self.stalls(ending), None);
        let (ended, taken): (Vec<SessionResult>, CheckpointCounts) = std::thread::scope(|scope| {
            let taker = takes.then(|| scope.spawn(|| checkpoints::take(&opened.db, seed, &over)));
            let start = |(at, seed)| start_session(scope, &work, at, seed);
            let threads: Vec<_> = seeds.into_iter().enumerate().map(start).collect();
            let began = std::time::Instant::now();
            while !ending.is_quiet()
                && began.elapsed() < time
                && !threads.iter().all(|t| t.is_finished())
            {
                std::thread::sleep(Duration::from_micros(100));
            }
            if stalls {
                stuck = wait_for_steps(&work.steps);
            }
            match ending {
                Ending::Close | Ending::StopsClosing | Ending::Quiet => {}
                Ending::PowerCut => disk.power_cut(power_seed),
                _ => disk.kill(),
            }
            let ended = threads.into_iter().map(joined).collect();
            over.store(true, Ordering::Release);
            (ended, taker.map(joined).unwrap_or_default())
        });
        let mut ran = work.wakers.as_ref().map(|wakers| wakers.end()).unwrap_or_default();
        let mut starved = Vec::new();
        for ended in ended {
            ran.extend(ended.ran);
            starved.extend(ended.starved);
        }
        if stream_stops {
            starved.clear();
        }
        starved.extend(stuck);
        self.history.life = ran;
        if !starved.is_empty() {
            let image = self.disk.fork();
            self.fail(image, |outcome| outcome.late.extend(starved));
        }
        self.note_checkpoints(taken, ending.is_quiet() && !opened.faulty);
        if ending == Ending::Quiet {
            if opened.db.log().is_some_and(|log| log.flush().is_err()) {
                return false;
            }
            // After the flush all transactions are durable, so all must be recovered.
            self.history.life.iter_mut().for_each(|ran| ran.acknowledged = true);
        }
        true
    }
}
