//! The results that the processes of a run and of its recovery return.

use super::busy::BusyProcessors;
use super::choices::{Engine, Protocol};
use super::measured::Measured;
use super::phases::PhaseReport;
use super::report::{Latency, Load, Posted, Recovery, Report};
use super::settings::Settings;
use serde::{Deserialize, Serialize};

/// The result of a run, and what the recovery is compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// The report.
    pub report: Report,
    /// The digest of the state.
    pub digest: u64,
}

/// The result of a recovery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The figures of the recovery.
    pub recovery: Recovery,
    /// The digest of the recovered state.
    pub digest: u64,
    /// Whether the workload's invariants hold, if there are any.
    pub consistent: Option<bool>,
}

/// The report of a run without recovery.
pub fn report_of(settings: &Settings, measured: &Measured, load: Load) -> Report {
    let logged = settings.protocol != Protocol::None;
    let some = measured.acknowledged > 0;
    let quantile = |q| some.then(|| measured.latency.value_at_quantile(q) as f64 / 1e3);
    let longest = measured.latency_max_ns as f64 / 1e3;
    let latency_us = Latency {
        // The histogram rounds up within its precision.
        p50: quantile(0.5).map(|us| us.min(longest)),
        p99: quantile(0.99).map(|us| us.min(longest)),
        max: some.then_some(longest),
    };
    let scanned = measured.scanned.map(|scanned| scanned.report(measured.seconds));
    let (scans, versions) = scanned.unzip();
    Report {
        workload: settings.workload.name().to_string(),
        protocol: settings.protocol,
        record: logged.then_some(settings.record),
        concurrency: settings.concurrency,
        isolation: settings.isolation,
        engine: Engine::Memory,
        dc: None,
        budget_bytes: None,
        workers: settings.workers,
        posted: settings
            .posting
            .posts()
            .then_some(Posted { limit: settings.posting.posted_calls, refused: measured.refused }),
        partitions: settings.posting.partitions_under(settings.concurrency),
        sites: settings.posting.site_threads(),
        can_lose: settings.can_lose(),
        streams: settings.streams,
        device: logged.then(|| settings.device.clone()),
        nvm: settings.device.nvm().ok().flatten().filter(|_| logged),
        in_flight: settings.in_flight,
        seconds: measured.seconds,
        acknowledged: measured.acknowledged,
        acknowledged_per_s: measured.acknowledged as f64 / measured.seconds,
        rollbacks: measured.rollbacks,
        aborts: measured.conflicts,
        log_bytes: measured.log_bytes,
        device_bytes: measured.device_bytes,
        log_bytes_per_transaction: some
            .then(|| measured.log_bytes as f64 / measured.acknowledged as f64),
        latency_us,
        worker_cpu_us: measured
            .worker_cpu_ns
            .filter(|_| some)
            .map(|ns| ns as f64 / 1e3 / measured.acknowledged as f64),
        busy_processors: measured
            .busy_ns
            .map(|(workers, all)| BusyProcessors::new(workers, all, measured.seconds)),
        phases: measured
            .phases
            .and_then(|times| PhaseReport::new(&times, measured, settings.workers)),
        checkpoints: None,
        scans,
        versions,
        cache: None,
        observed: None,
        replicated: None,
        load,
        recovery: Recovery::default(),
        consistent: None,
    }
}
