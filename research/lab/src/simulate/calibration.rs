//! The calibration of the model: runs to fit the costs, and held-out runs to check the model.

use super::fit::{self, Fitted};
use super::{parts, sharing};
use hyades_cli::failure::Failure;
use hyades_cli::place::{DeviceKind, Place};
use hyades_cli::progress::Bar;
use hyades_scaling::costs::{Costs, ReplayParts, SCHEMES, SchemeCosts, scheme};
use hyades_scaling::forward;
use hyades_scaling::machine::Machine;
use hyades_scaling::replay;
use hyades_scaling::rules::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The contents of a calibration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Calibration {
    pub costs: Costs,
    /// The runs of the fit. A rate that the model misses here is beyond the model.
    #[serde(default)]
    pub fitted: Vec<Point>,
    /// The held-out runs, not used for the fit.
    pub validation: Vec<Point>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub point: String,
    /// Acknowledged or replayed transactions per second.
    pub measured: f64,
    /// The same rate, computed by the model.
    pub model: f64,
    /// `model / measured - 1`.
    pub residual: f64,
}

impl Point {
    pub fn new(point: String, measured: f64, model: f64) -> Point {
        Point { point, measured, model, residual: model / measured - 1.0 }
    }
}

/// A protocol with a kind of record.
pub(super) type Scheme = (&'static str, &'static str);

/// The skew for the fit of the costs, and a second skew for the effect of skew.
pub(super) const FITTED: [f64; 2] = [0.6, 1.5];
/// The held-out skews with contention.
pub(super) const HELD_OUT: [f64; 2] = [0.9, 1.2];

/// A held-out machine: two slow devices, small buffers.
const SLOW_DEVICES: usize = 2;
const SLOW_BANDWIDTH: f64 = 40e6;
const SLOW_LATENCY: f64 = 1e-3;
const SLOW_BUFFER: u64 = 512 << 10;

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conditions {
    pub workers: usize,
    pub theta: f64,
    /// Whether the log is on the slow devices; in memory otherwise.
    pub is_throttled: bool,
    /// The number of threads for recovery of the log after the run.
    pub recovery_threads: Option<usize>,
}

impl Conditions {
    /// A log in memory, without recovery.
    pub fn memory(workers: usize, theta: f64) -> Conditions {
        Conditions { workers, theta, is_throttled: false, recovery_threads: None }
    }

    /// The same machine in the model.
    pub fn machine(&self, rows: u32, seconds: f64) -> Machine {
        // Whole epochs, also in short runs.
        let seconds = (seconds / 0.04).ceil().max(1.0) * 0.04;
        let memory = Machine { workers: self.workers, theta: self.theta, rows, ..fit_machine() };
        let memory = Machine { seconds, ..memory };
        if !self.is_throttled {
            return memory;
        }
        Machine {
            devices: SLOW_DEVICES,
            bandwidth: SLOW_BANDWIDTH,
            latency: SLOW_LATENCY,
            buffer: SLOW_BUFFER,
            ..memory
        }
    }

    /// The options of `hyades-lab bench ycsb` for the run.
    pub fn words(&self, (protocol, record): Scheme) -> String {
        let mut words =
            format!("--workers {} --theta {} --protocol {protocol}", self.workers, self.theta);
        if protocol == "none" {
            return words;
        }
        words +=
            &format!(" --record {record} --stream-choice fixed --streams {}", streams(protocol));
        words += &match (self.is_throttled, protocol) {
            (false, _) => " --device memory".to_string(),
            (true, _) => format!(
                " --device throttled:bandwidth={}MB/s,latency={}ms,depth=1,over=memory --buffer \
                 {SLOW_BUFFER} --segment 512KiB",
                SLOW_BANDWIDTH / 1e6,
                SLOW_LATENCY * 1e3
            ),
        };
        if self.is_throttled && streams(protocol) > 1 {
            words += &format!(" --devices {SLOW_DEVICES}");
        }
        if let Some(threads) = self.recovery_threads {
            words += &format!(" --recover --recovery-threads {threads}");
        }
        words
    }

    /// The name of the run, for the page.
    pub fn name(&self, (protocol, record): Scheme) -> String {
        let scheme = if protocol == "none" { "no log".into() } else { scheme(protocol, record) };
        let workers = if self.workers == 1 { "1 worker" } else { "2 workers" };
        let device = match self.is_throttled {
            true if streams(protocol) == 1 => "log on a device of 40 MB/s and 1 ms",
            true => "log on two devices of 40 MB/s and 1 ms",
            false => "log in memory",
        };
        format!("{scheme}, {workers}, theta {}, {device}", self.theta)
    }
}

impl Conditions {
    /// The name of the recovery after the run.
    pub fn recovery_name(&self, scheme: Scheme) -> String {
        let threads = match self.recovery_threads {
            Some(1) | None => "1 thread".to_string(),
            Some(threads) => format!("{threads} threads"),
        };
        format!("{}: recovery by {threads}", self.name(scheme))
    }
}

fn fit_machine() -> Machine {
    Machine { streams: 4, devices: 1, ..Machine::default() }
}

fn streams(protocol: &str) -> usize {
    if protocol == "serial" { 1 } else { fit_machine().streams }
}

/// The held-out runs with a log.
pub(super) fn held_out() -> Vec<Conditions> {
    let skewed = HELD_OUT.map(|theta| Conditions {
        recovery_threads: Some(if theta == HELD_OUT[0] { 2 } else { 1 }),
        ..Conditions::memory(2, theta)
    });
    let slow = Conditions { is_throttled: true, ..Conditions::memory(2, FITTED[0]) };
    skewed.into_iter().chain([slow]).collect()
}

pub(super) fn read(file: &Path) -> Result<Calibration, Failure> {
    let wrong = |why: String| {
        let file = file.display();
        Failure::Usage(format!(
            "{file} is not a calibration ({why}): make one with --calibrate {file}"
        ))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// Runs `hyades-lab bench` with `words` and returns the printed JSON.
fn bench(words: &str) -> Option<Value> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program)
        .args(words.split_whitespace())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn number(run: &Value, path: &str) -> Option<f64> {
    run.pointer(path).and_then(Value::as_f64).filter(|value| *value > 0.0)
}

fn rate(run: &Option<Value>) -> Option<f64> {
    number(run.as_ref()?, "/acknowledged_per_s")
}

/// Runs and counts the measurements.
struct Measurements {
    bar: Bar,
    done: u64,
    rows: u32,
    seconds: f64,
}

impl Measurements {
    fn run(&mut self, words: &str) -> Option<Value> {
        let run = bench(&format!("bench {words} --seconds {} --warmup 0.2 --json", self.seconds));
        self.done += 1;
        self.bar.set(self.done);
        run
    }

    /// The modelled workload.
    fn ycsb(&mut self, scheme: Scheme, conditions: &Conditions) -> Option<Value> {
        self.ycsb_in(scheme, conditions, "")
    }

    /// The modelled workload, and the parts of its log's replay.
    fn ycsb_and_parts(
        &mut self,
        scheme: Scheme,
        conditions: &Conditions,
    ) -> Option<(Value, ReplayParts)> {
        let place = Place::new(&[], DeviceKind::Memory, 1).ok()?;
        let dir = place.dirs.first()?;
        let run = self.ycsb_in(scheme, conditions, &format!("--log-dir {}", dir.display()))?;
        Some((run, parts::measure(dir).unwrap_or_default()))
    }

    fn ycsb_in(&mut self, scheme: Scheme, conditions: &Conditions, place: &str) -> Option<Value> {
        self.run(&format!(
            "ycsb {place} --rows {} --accesses 2 --write-columns all --values derived \
             --reserve-memory 512MiB --in-flight {} {}",
            self.rows,
            fit_machine().in_flight,
            conditions.words(scheme)
        ))
    }
}

pub(super) fn calibrate(rows: u32, seconds: f64) -> Result<Calibration, Failure> {
    // Whole epochs.
    let seconds = seconds.max(0.12);
    let runs = 4 + SCHEMES.len() * (2 + held_out().len());
    let bar = Bar::new("calibrating", runs as u64);
    let mut bench = Measurements { bar, done: 0, rows, seconds };
    let (line_ns, sharing) = sharing::measure();
    let mut fitted = Fitted::new(rows, line_ns);
    fitted.costs.sharing = sharing;
    for theta in FITTED {
        for workers in [1, 2] {
            let conditions = Conditions::memory(workers, theta);
            let run = bench.ycsb(("none", "data"), &conditions);
            let measured = rate(&run).ok_or_else(|| {
                Failure::Failed("the runs without a log gave no throughput".to_string())
            })?;
            fitted.measured.push((("none", "data"), conditions, measured));
        }
    }
    fit::without_log(&mut fitted);
    for scheme in SCHEMES {
        measure(&mut bench, scheme, &mut fitted);
    }
    let mut validation = Vec::new();
    for scheme in SCHEMES {
        for conditions in held_out() {
            let run = bench.ycsb(scheme, &conditions);
            validation.extend(compare(&fitted.costs, (rows, seconds), scheme, &conditions, &run));
        }
    }
    bench.bar.finish(&format!("calibrated with {} schemes", fitted.costs.schemes.len()));
    Ok(Calibration { fitted: fitted.points(), costs: fitted.costs, validation })
}

/// Measures the costs of a scheme with one worker, and fits the slowdown of two.
fn measure(bench: &mut Measurements, scheme: Scheme, fitted: &mut Fitted) {
    let usual = |workers| Conditions {
        recovery_threads: Some(workers),
        ..Conditions::memory(workers, FITTED[0])
    };
    let (alone, both) = (usual(1), usual(2));
    let Some((run, replay)) = bench.ycsb_and_parts(scheme, &alone) else { return };
    let costs = || {
        Some(SchemeCosts {
            worker_ns: 1e9 / number(&run, "/acknowledged_per_s")?,
            bytes: number(&run, "/log_bytes_per_transaction")?,
            replay_ns: number(&run, "/recovery/records_per_s").map(|rate| 1e9 / rate),
            slowdown: None,
            replay,
        })
    };
    let Some(costs) = costs() else { return };
    fitted.measured.push((scheme, alone.clone(), 1e9 / costs.worker_ns));
    fitted.replayed.extend(costs.replay_ns.map(|ns| (scheme, alone, 1e9 / ns)));
    let run = bench.ycsb(scheme, &both);
    fit::with_log(fitted, scheme, costs, rate(&run).map(|rate| (both.clone(), rate)));
    let replayed = run.as_ref().and_then(|run| number(run, "/recovery/records_per_s"));
    if let Some(replayed) = replayed {
        fit::replay(fitted, scheme, both, replayed);
    }
}

/// Compares a held-out run with the model: the throughput and, if there is one, the recovery.
fn compare(
    costs: &Costs,
    (rows, seconds): (u32, f64),
    scheme: Scheme,
    conditions: &Conditions,
    run: &Option<Value>,
) -> Vec<Point> {
    let (Some(word), Some(measured)) = (Protocol::from_word(scheme.0), rate(run)) else {
        return Vec::new();
    };
    let machine = conditions.machine(rows, seconds);
    let Ok(ran) = forward::run(costs, word, scheme, &machine) else { return Vec::new() };
    let model = ran.acknowledged as f64 / ran.seconds;
    let mut points = vec![Point::new(conditions.name(scheme), measured, model)];
    if let Some(threads) = conditions.recovery_threads {
        let measured = run.as_ref().and_then(|run| number(run, "/recovery/records_per_s"));
        let machine = Machine { workers: threads, ..machine };
        let replayed = replay::replay(costs, word, scheme, &machine, &ran);
        points.extend(measured.zip(replayed).map(|(measured, replayed)| {
            Point::new(conditions.recovery_name(scheme), measured, replayed.records_per_s)
        }));
    }
    points
}
