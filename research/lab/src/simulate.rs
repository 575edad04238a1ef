//! `hyades-lab simulate`: a discrete-event model of larger machines, with this machine's costs. The
//! output says that the figures are simulated.

mod calibration;
mod fit;
mod parts;
mod sharing;

use calibration::{calibrate, read};
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units;
use hyades_scaling::forward::{self, RunResult};
use hyades_scaling::machine::{MAX_STREAMS, MAX_WORKERS, Machine};
use hyades_scaling::replay::{self, Replayed};
use hyades_scaling::rules::Protocol;
use hyades_scaling::usage::Usage;
use hyades_schemes::all_protocols;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Options of `hyades-lab simulate`.
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
    #[arg(long, default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=MAX_WORKERS as i64))]
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
    /// Requests that a device serves at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u16,
    /// The time between flushes (group commit): seconds, or a number with a unit; 0: the engine's
    /// own rule
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::seconds)]
    flush_interval: f64,
    /// Length of an epoch under silo-r: seconds, or a number with a unit
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = units::some_seconds)]
    epoch: f64,
    /// Log buffer of a stream
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = units::size)]
    buffer: u64,
    /// Log from one anchor to the next under taurus, summed over all streams
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = units::size)]
    anchor_interval: u64,
    /// Skew of the Zipf distribution over rows; 0 is uniform
    #[arg(long, default_value_t = 0.6)]
    theta: f64,
    /// Time to move a cache line between cores, in nanoseconds [default: measured here]
    #[arg(long, value_name = "NS", value_parser = units::positive)]
    line_ns: Option<f64>,
    /// Memory copied by all cores per second at recovery [default: as measured here by two cores,
    /// for each two]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    memory_bandwidth: Option<u64>,
    /// Simulated time; with --calibrate, the measured time of each run: seconds, or a number with a
    /// unit
    #[arg(long, value_name = "TIME", default_value = "0.1", value_parser = units::some_seconds)]
    seconds: f64,
    /// Rows
    #[arg(long, default_value_t = 100_000)]
    rows: u32,
    /// Seed of the random numbers: the same seed gives the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate the recovery of the log too
    #[arg(long)]
    recover: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl SimulateOptions {
    fn machine(&self) -> Machine {
        Machine {
            workers: self.workers.into(),
            streams: self.streams.into(),
            devices: self.devices.into(),
            bandwidth: self.bandwidth as f64,
            latency: self.latency,
            depth: self.depth.into(),
            flush_interval: self.flush_interval,
            epoch: self.epoch,
            buffer: self.buffer,
            anchor_interval: self.anchor_interval,
            rows: self.rows,
            theta: self.theta,
            memory: self.memory_bandwidth.map(|bytes| bytes as f64),
            seconds: self.seconds,
            seed: self.seed,
            ..Machine::default()
        }
    }
}

/// Runs `hyades-lab simulate`.
///
/// # Errors
/// Wrong usage; a calibration that cannot be made, read or written.
pub fn simulate(options: &SimulateOptions) -> Result<bool, Failure> {
    let machine = options.machine();
    // Before anything is measured.
    machine.check().map_err(Failure::Usage)?;
    let protocol = protocol(options)?;
    if let Some(file) = &options.calibrate {
        let calibration = calibrate(options.rows, options.seconds)?;
        let text = serde_json::to_string_pretty(&calibration)
            .map_err(Failure::doing("cannot write JSON"))?;
        let what = format!("cannot write {}", file.display());
        std::fs::write(file, &text).map_err(Failure::doing(what))?;
        println!("{text}");
        return Ok(true);
    }
    let mut costs = match &options.calibration {
        Some(file) => read(file)?,
        None => calibrate(options.rows, options.seconds)?,
    }
    .costs;
    if let Some(line) = options.line_ns {
        costs.line_ns = line;
    }
    let words = (options.protocol.as_str(), options.record.as_str());
    let ran = forward::run(&costs, protocol, words, &machine).map_err(Failure::Usage)?;
    let replayed = options.recover.then(|| replay::replay(&costs, protocol, words, &machine, &ran));
    let report = report(options, &machine, ran, replayed.flatten());
    print(options, &report);
    Ok(true)
}

/// The protocol of a machine with workers.
fn protocol(options: &SimulateOptions) -> Result<Protocol, Failure> {
    let protocol = Protocol::from_word(&options.protocol).ok_or_else(|| {
        Failure::Usage(format!(
            "the model has no protocol {:?}: choose none, serial, taurus, silo-r, plover, poplar \
             or gsn",
            options.protocol
        ))
    })?;
    let mut engines = all_protocols().filter(|engine| engine.name() == options.protocol);
    if options.record == "command" && !engines.any(hyades::Protocol::takes_commands) {
        return Err(Failure::Usage(format!(
            "{} logging does not record the dependencies that replaying commands needs: choose \
             --record data, or --protocol {}",
            options.protocol,
            hyades::Protocol::names_taking_commands()
        )));
    }
    Ok(protocol)
}

fn print(options: &SimulateOptions, report: &Value) {
    if options.json {
        println!("{report}");
        return;
    }
    let number = |path| report.pointer(path).and_then(Value::as_f64);
    println!("  simulated     {}, {} workers", options.protocol, options.workers);
    let acknowledged = number("/acknowledged_per_s").unwrap_or(0.0);
    println!("  acknowledged  {}", units::rate(acknowledged));
    if let Some(median) = number("/latency_us/p50") {
        println!("  latency       p50 {}", units::time(median * 1e-6));
    }
    if let Some(rate) = number("/recovery/records_per_s") {
        println!("  recovery      {}", units::rate(rate));
    }
    for (what, path) in [("logging", "/usage"), ("recovery", "/recovery/usage")] {
        if let Some(usage) = report.pointer(path) {
            print_usage(what, usage);
        }
    }
}

/// Prints what gives way first, and where the time goes.
fn print_usage(what: &str, usage: &Value) {
    let word = |value: &Value| value.as_str().unwrap_or("").to_string();
    let percent = |value: &Value| 100.0 * value.as_f64().unwrap_or(0.0);
    let first = &usage["first"];
    let saturated = match first["is_saturated"].as_bool() {
        Some(true) => "saturated",
        _ => "nothing is saturated",
    };
    println!(
        "  {what:<12}  first: {}, used {:.0} % ({saturated})",
        word(&first["resource"]),
        percent(&first["utilisation"])
    );
    for kind in ["threads", "resources"] {
        let parts = usage[kind].as_array().into_iter().flatten();
        let parts = parts.filter(|part| percent(&part["share"]) >= 0.5);
        let parts: Vec<String> = parts
            .map(|part| format!("{} {:.0} %", word(&part["what"]), percent(&part["share"])))
            .collect();
        println!("    {kind:<12}{}", parts.join(", "));
    }
}

/// Where time goes, as JSON.
fn usage(usage: &Usage) -> Value {
    json!({"first": usage.first(), "threads": usage.threads, "resources": usage.resources})
}

/// Median, 99th percentile and highest of latencies, in microseconds.
fn quantiles(mut latencies: Vec<u64>) -> Value {
    latencies.sort_unstable();
    let quantile = |q: f64| {
        let last = latencies.len().checked_sub(1)?;
        Some(latencies[(last as f64 * q) as usize] as f64 / 1e3)
    };
    json!({"p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0)})
}

/// The result as JSON, with the keys of a measured run.
fn report(
    options: &SimulateOptions,
    machine: &Machine,
    ran: RunResult,
    replayed: Option<Replayed>,
) -> Value {
    json!({
        "simulated": true, "workload": "ycsb", "protocol": options.protocol,
        "record": options.record, "workers": machine.workers, "streams": machine.streams,
        "seed": machine.seed, "seconds": ran.seconds, "acknowledged": ran.acknowledged,
        "acknowledged_per_s": ran.acknowledged as f64 / ran.seconds,
        "aborts": ran.conflicts, "device_bytes": ran.bytes,
        "latency_us": quantiles(ran.latencies),
        "usage": usage(&ran.usage),
        "recovery": replayed.map(|replayed| json!({
            "records_per_s": replayed.records_per_s, "usage": usage(&replayed.usage),
        })),
    })
}

#[cfg(test)]
mod tests;
