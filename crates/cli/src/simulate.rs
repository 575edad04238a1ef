//! `hyades simulate`: a discrete-event model of larger machines, with the costs of this one. Its
//! output says that it is simulated.

use crate::failure::Failure;
use crate::progress::Bar;
use crate::units;
use clap::Args;
use hyades_scaling::costs::{Costs, SchemeCosts};
use hyades_scaling::forward::{self, RunResult};
use hyades_scaling::machine::{MAX_STREAMS, Machine};
use hyades_scaling::replay;
use hyades_scaling::rules::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Options of `hyades simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateOptions {
    /// Measure this machine's costs, compare the model with runs that it was not fitted to, and
    /// write both to this file; nothing else is simulated
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// File with costs that --calibrate wrote [default: measure them first]
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    calibration: Option<PathBuf>,
    /// Logging protocol: none, serial, taurus, silo-r, plover, poplar or gsn
    #[arg(long, default_value = "taurus")]
    protocol: String,
    /// What is logged: data, or command (under none, serial and taurus only)
    #[arg(long, default_value = "data", value_parser = ["data", "command"])]
    record: String,
    /// Workers, 1 to 256, each on a core of its own
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Log streams, 1 to 16
    #[arg(long, default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=MAX_STREAMS as i64))]
    streams: u16,
    /// Devices, 1 to 256; the streams are spread over them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    devices: u16,
    /// Bandwidth of a device, in bytes per second, as in 500MB
    #[arg(long, value_name = "SIZE", default_value = "20GB", value_parser = units::size)]
    bandwidth: u64,
    /// Latency of a write, in addition to the transfer time: seconds, or a number with a unit
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = units::seconds)]
    latency: f64,
    /// Time for which each flush collects records (group commit): seconds, or a number with a unit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::seconds)]
    flush_interval: f64,
    /// Time to move a cache line between cores, in nanoseconds [default: measured here]
    #[arg(long, value_name = "NS", value_parser = units::positive)]
    line_ns: Option<f64>,
    /// Simulated time; with --calibrate, the measured time of each run: seconds, or a number with a
    /// unit
    #[arg(long, value_name = "TIME", default_value = "0.1", value_parser = units::some_seconds)]
    seconds: f64,
    /// Rows of the calibration runs
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Simulate the recovery of the log too
    #[arg(long)]
    recover: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The contents of a calibration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Calibration {
    costs: Costs,
    /// Runs that the model was not fitted to.
    validation: Vec<Point>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    point: String,
    /// Acknowledged transactions per second.
    measured: f64,
    /// The same, computed by the model.
    model: f64,
    /// `model / measured - 1`.
    residual: f64,
}

/// The schemes whose costs are measured. Those that this build does not have are skipped.
const SCHEMES: [(&str, &str); 8] = [
    ("serial", "data"),
    ("serial", "command"),
    ("taurus", "data"),
    ("taurus", "command"),
    ("silo-r", "data"),
    ("plover", "data"),
    ("poplar", "data"),
    ("gsn", "data"),
];

/// Runs `hyades simulate`.
///
/// # Errors
/// Wrong usage; a calibration that cannot be made, read or written.
pub fn simulate(options: &SimulateOptions) -> Result<bool, Failure> {
    let protocol = Protocol::from_word(&options.protocol).ok_or_else(|| {
        Failure::Usage(format!(
            "the model has no protocol {:?}: choose none, serial, taurus, silo-r, plover, poplar \
             or gsn",
            options.protocol
        ))
    })?;
    let mut engines = hyades::Protocol::all().filter(|engine| engine.name() == options.protocol);
    if options.record == "command" && !engines.any(hyades::Protocol::takes_commands) {
        return Err(Failure::Usage(format!(
            "{} logging does not record the dependencies that replaying commands needs: choose \
             --record data, or --protocol {}",
            options.protocol,
            hyades::Protocol::names_taking_commands()
        )));
    }
    if let Some(file) = &options.calibrate {
        let calibration = calibrate(options)?;
        let text = serde_json::to_string_pretty(&calibration)
            .map_err(Failure::doing("cannot write JSON"))?;
        let what = format!("cannot write {}", file.display());
        std::fs::write(file, &text).map_err(Failure::doing(what))?;
        println!("{text}");
        return Ok(true);
    }
    let mut calibration = match &options.calibration {
        Some(file) => read(file)?,
        None => calibrate(options)?,
    };
    if let Some(line) = options.line_ns {
        calibration.costs.line_ns = line;
    }
    let machine = Machine {
        workers: options.workers.into(),
        streams: options.streams.into(),
        devices: options.devices.into(),
        bandwidth: options.bandwidth.max(1) as f64,
        latency: options.latency,
        flush_interval: options.flush_interval,
        seconds: options.seconds,
        ..Machine::default()
    };
    let words = (options.protocol.as_str(), options.record.as_str());
    let costs = &calibration.costs;
    let ran = forward::run(costs, protocol, words, &machine).ok_or_else(|| {
        Failure::Usage(format!(
            "the calibration has no costs for {} {}: the build that made it does not have them",
            words.0, words.1
        ))
    })?;
    let replayed =
        if options.recover { replay::rate(costs, protocol, words, &machine, &ran) } else { None };
    let report = report(options, &machine, ran, replayed);
    if options.json {
        println!("{report}");
    } else {
        let number = |path| report.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        println!("  simulated     {}, {} workers", options.protocol, options.workers);
        println!("  acknowledged  {}", units::rate(number("/acknowledged_per_s")));
        println!("  latency       p50 {}", units::time(number("/latency_us/p50") * 1e-6));
        if let Some(rate) = replayed {
            println!("  recovery      {}", units::rate(rate));
        }
    }
    Ok(true)
}

/// The result as JSON, with the keys of a measured run.
fn report(
    options: &SimulateOptions,
    machine: &Machine,
    mut ran: RunResult,
    replayed: Option<f64>,
) -> Value {
    ran.latencies.sort_unstable();
    let quantile = |q: f64| {
        let last = ran.latencies.len().checked_sub(1)?;
        Some(ran.latencies[(last as f64 * q) as usize] as f64 / 1e3)
    };
    json!({
        "simulated": true, "workload": "ycsb", "protocol": options.protocol,
        "record": options.record, "workers": machine.workers, "streams": machine.streams,
        "seconds": ran.seconds, "acknowledged": ran.acknowledged,
        "acknowledged_per_s": ran.acknowledged as f64 / ran.seconds,
        "device_bytes": ran.bytes,
        "latency_us": {"p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0)},
        "line_share": ran.line_share,
        "recovery": {"records_per_s": replayed},
    })
}

fn read(file: &Path) -> Result<Calibration, Failure> {
    let wrong = |why: String| {
        let file = file.display();
        Failure::Usage(format!(
            "{file} is not a calibration ({why}): make one with --calibrate {file}"
        ))
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// Runs the modelled workload with this many workers and returns the JSON that it prints.
fn bench(options: &SimulateOptions, workers: usize, more: &str) -> Option<Value> {
    let words = format!(
        "bench ycsb --rows {} --theta 0 --accesses 2 --write-columns all --workers {workers} \
         --seconds {} --warmup 0.2 --reserve-memory 512MiB --in-flight 8192 {more} --json",
        options.rows, options.seconds
    );
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

fn calibrate(options: &SimulateOptions) -> Result<Calibration, Failure> {
    let bar = Bar::new("calibrating", 2 + 2 * SCHEMES.len() as u64);
    let mut done = 0;
    let mut measure = |workers, more: &str| {
        let run = bench(options, workers, more);
        done += 1;
        bar.set(done);
        run
    };
    let rate = |run: &Option<Value>| number(run.as_ref()?, "/acknowledged_per_s");
    let failed = || Failure::Failed("the runs without a log gave no throughput".to_string());
    let one = rate(&measure(1, "--protocol none")).ok_or_else(failed)?;
    let two = rate(&measure(2, "--protocol none")).ok_or_else(failed)?;
    let mut schemes = BTreeMap::new();
    for (protocol, record) in SCHEMES {
        let more = format!(
            "--protocol {protocol} --record {record} --device memory --recover --recovery-threads 1"
        );
        let Some(run) = measure(1, &more) else { continue };
        let costs = || {
            Some(SchemeCosts {
                worker_ns: 1e9 / number(&run, "/acknowledged_per_s")?,
                bytes: number(&run, "/log_bytes_per_transaction")?,
                replay_ns: number(&run, "/recovery/records_per_s").map(|rate| 1e9 / rate),
            })
        };
        if let Some(costs) = costs() {
            schemes.insert(format!("{protocol} {record}"), costs);
        }
    }
    let slowdown = (2.0 * one / two).max(1.0);
    let costs = Costs { none_ns: 1e9 / one, slowdown, line_ns: line_ns(), schemes };
    // Validation points, which the costs do not use: the same with two workers.
    let mut validation = Vec::new();
    for (protocol, record) in SCHEMES {
        let Some(word) = Protocol::from_word(protocol) else { continue };
        let more = format!("--protocol {protocol} --record {record} --device memory");
        let Some(measured) = rate(&measure(2, &more)) else { continue };
        let Some(ran) = forward::run(&costs, word, (protocol, record), &Machine::default()) else {
            continue;
        };
        let model = ran.acknowledged as f64 / ran.seconds;
        validation.push(Point {
            point: format!("{protocol} {record}, 2 workers, log in memory"),
            measured,
            model,
            residual: model / measured - 1.0,
        });
    }
    bar.finish(&format!("calibrated with {} schemes", costs.schemes.len()));
    Ok(Calibration { costs, validation })
}

/// Measures the time to move a cache line from one core to another, in nanoseconds.
fn line_ns() -> f64 {
    const ROUNDS: u64 = 200_000;
    // Each side writes it in turn and the other reads it. Only this value is exchanged, and joining
    // the thread orders the rest, hence Relaxed.
    let ball = AtomicU64::new(0);
    let play = |parity: u64| {
        let began = Instant::now();
        let mut next = parity;
        while next < ROUNDS {
            let mut spins = 0_u32;
            while ball.load(Ordering::Relaxed) != next {
                spins += 1;
                // Both threads may be on the same core.
                if spins.is_multiple_of(10_000) {
                    std::thread::yield_now();
                }
                spin_loop();
            }
            ball.store(next + 1, Ordering::Relaxed);
            next += 2;
        }
        began.elapsed()
    };
    let took = std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        let own = play(0);
        other.join().map_or(own, |theirs| own.max(theirs))
    });
    (took.as_nanos() as f64 / ROUNDS as f64).clamp(5.0, 1_000.0)
}
