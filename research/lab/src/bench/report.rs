//! The report of a run: one JSON object whose keys scripts rely on, or text for people.

use super::busy::BusyProcessors;
use super::choices::{Concurrency, Engine, Isolation, Protocol, RecordKind, Store};
use super::deuteronomy::Observed;
use super::knobs::RecoveryKind;
use super::phases::PhaseReport;
use super::replicating::Replicated;
use super::scanners::{OldVersions, Scans};
use super::settings::Settings;
use super::timeline::Contrast;
use crate::device::{DeviceChoice, NvmReport};
use hyades::{IncarnationReport, StreamRead};
use hyades_cli::place::DeviceKind;
use hyades_cli::units::{bytes, count, exact, rate, time};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A finished run. Its fields, in this order, are the keys of the JSON object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The workload's name.
    pub workload: String,
    /// The logging protocol.
    pub protocol: Protocol,
    /// The contents of log records; none without a log.
    pub record: Option<RecordKind>,
    /// The concurrency control; auto for an engine that is a store with its own.
    pub concurrency: Concurrency,
    /// The isolation of transactions.
    pub isolation: Isolation,
    /// The engine.
    pub engine: Engine,
    /// The data component; null for an engine without one.
    pub dc: Option<Store>,
    /// Its memory for versions and for what the data component caches; null for an engine that
    /// keeps all rows in memory.
    pub budget_bytes: Option<u64>,
    /// Worker threads.
    pub workers: usize,
    /// Partitions of the rows; absent if the concurrency control has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<usize>,
    /// Threads that own partitions and run their calls; absent if transactions take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<usize>,
    /// Posted calls; absent if workers run their transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posted: Option<Posted>,
    /// What a crash can lose of what was acknowledged; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_lose: Option<String>,
    /// Log streams; 0 without a log.
    pub streams: usize,
    /// The device of the log; none without a log.
    pub device: Option<DeviceChoice>,
    /// Its memory; absent on other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvm: Option<NvmReport>,
    /// Transactions per worker awaiting acknowledgement.
    pub in_flight: usize,
    /// The measured interval in seconds.
    pub seconds: f64,
    /// Transactions acknowledged within it.
    pub acknowledged: u64,
    /// The same per second.
    pub acknowledged_per_s: f64,
    /// Rollbacks among them that the caller saw.
    pub rollbacks: u64,
    /// Attempts that met a conflict and were run again.
    pub aborts: u64,
    /// Bytes of frames, without padding.
    pub log_bytes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Bytes of frames per acknowledged transaction.
    pub log_bytes_per_transaction: Option<f64>,
    /// From the first attempt to the acknowledgement.
    pub latency_us: Latency,
    /// Processor time of the workers per acknowledged transaction; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_cpu_us: Option<f64>,
    /// Processors that were busy with this process; absent where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_processors: Option<BusyProcessors>,
    /// The phases of transactions; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseReport>,
    /// Checkpoints; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// Scans beside the workload; null without scanners.
    #[serde(default)]
    pub scans: Option<Scans>,
    /// Older versions of rows that snapshots need; null without scanners.
    #[serde(default)]
    pub versions: Option<OldVersions>,
    /// Reads that needed the data component; null for an engine without one.
    pub cache: Option<Cache>,
    /// What was observed of a transaction component's operations; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// The standbys; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicated: Option<Replicated>,
    /// The population.
    pub load: Load,
    /// The recovery.
    pub recovery: Recovery,
    /// Whether the workload's consistency conditions hold; none if it has none.
    pub consistent: Option<bool>,
}

/// Latencies in microseconds; none if nothing was acknowledged.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// Calls that the workers posted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Posted {
    /// The limit of open calls; null if workers wait before a refusal.
    pub limit: Option<usize>,
    /// Calls refused within the interval because as many were open.
    pub refused: u64,
}

/// Checkpoints taken while the workload ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Checkpoints {
    /// How many were taken.
    pub taken: u64,
    /// How many failed.
    pub failed: u64,
    /// How long the last took, in seconds.
    pub seconds: Option<f64>,
    /// The size of the checkpoint in bytes.
    pub bytes: Option<u64>,
    /// The rows of the checkpoint.
    pub rows: Option<u64>,
    /// The rows changed since the checkpoint before.
    pub changed_rows: Option<u64>,
    /// The longest estimated replay time of the log at any time, in seconds.
    pub longest_replay_seconds: f64,
    /// The reason for a missed bound on the replay time.
    pub bound_missed: Option<String>,
    /// Throughput and latency during checkpoints and between them.
    #[serde(flatten)]
    pub contrast: Contrast,
}

/// Reads that needed the data component.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    /// The share of reads of single keys that found a version in memory; null without such reads.
    pub hit_rate: Option<f64>,
    /// Reads of the device for the others; null where the data component does not tell.
    pub device_reads: Option<u64>,
}

/// The population.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Rows.
    pub records: u64,
    /// Log bytes.
    pub bytes: u64,
}

/// Result of the recovery; all null unless requested.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recovery {
    /// Seconds from opening until the database accepts transactions.
    pub seconds: Option<f64>,
    /// Part of these that recovered the population.
    pub image_seconds: Option<f64>,
    /// Rows of the loaded checkpoint; absent without a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_rows: Option<u64>,
    /// Bytes of the checkpoint's files; absent without a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// Live transactions of the run.
    pub records: Option<u64>,
    /// Log bytes of the run.
    pub bytes: Option<u64>,
    /// Replayed transactions per second, without the population.
    pub records_per_s: Option<f64>,
    /// Threads used.
    pub threads: Option<usize>,
    /// The most memory that older versions of rows took; absent where rows had one version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_bytes: Option<u64>,
    /// The time that replay spent on reading the log; absent where nothing was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Whether the page cache was dropped before; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<bool>,
    /// Whether the digest of the state equals that before the crash.
    pub state_matches: Option<bool>,
}

/// The time of the replay threads, without the population: waiting for the log, and all else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// Seconds, summed over the threads, in which they read the log or waited for it to be read.
    pub wait_seconds: f64,
    /// All further seconds, summed likewise: of replay, or of waiting for other threads.
    pub replaying_seconds: f64,
    /// By stream.
    pub streams: Vec<ReadingOfStream>,
}

/// One stream of [`Reading`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadingOfStream {
    /// The number of the stream.
    pub stream: u32,
    /// Log bytes read.
    pub bytes: u64,
    /// Seconds of reading the stream and comparing checksums.
    pub read_seconds: f64,
    /// Seconds, summed over the replay threads, of waiting for the reading.
    pub wait_seconds: f64,
}

impl Reading {
    /// Sums over the threads of these incarnations' replay; none without incarnations.
    pub fn of(incarnations: &[IncarnationReport]) -> Option<Reading> {
        let reading = |read: &StreamRead| ReadingOfStream {
            stream: read.stream,
            bytes: read.bytes,
            read_seconds: read.read_seconds,
            wait_seconds: read.wait_seconds,
        };
        let streams: Vec<_> = StreamRead::by_stream(incarnations).iter().map(reading).collect();
        let wait_seconds = streams.iter().map(|stream| stream.wait_seconds).sum::<f64>();
        let of_threads =
            |incarnation: &IncarnationReport| incarnation.seconds * incarnation.threads as f64;
        let all_seconds = incarnations.iter().map(of_threads).sum::<f64>();
        let replaying_seconds = (all_seconds - wait_seconds).max(0.0);
        (!streams.is_empty()).then_some(Reading { wait_seconds, replaying_seconds, streams })
    }
}

impl Report {
    /// Whether all checks hold.
    pub fn holds(&self) -> bool {
        self.recovery.state_matches != Some(false)
            && self.consistent != Some(false)
            && self.replicated.as_ref().is_none_or(Replicated::holds)
    }

    /// The report as text. `settings` has details that are not in the object.
    pub fn text(&self, settings: &Settings) -> String {
        let mut out = String::new();
        let mut line = |label: &str, value: String| {
            let _ = writeln!(out, "  {label:<14}{value}");
        };
        self.run_text(settings, &mut line);
        line(
            "acknowledged",
            format!(
                "{} in {}: {}  ({} rollbacks, {} conflicts retried)",
                count(self.acknowledged as f64),
                time(self.seconds),
                rate(self.acknowledged_per_s),
                count(self.rollbacks as f64),
                count(self.aborts as f64)
            ),
        );
        if let Some(Posted { limit: Some(limit), refused }) = self.posted {
            let refused = exact(refused);
            line("refused", format!("{refused} calls, because {limit} posted ones were open"));
        }
        if let Latency { p50: Some(p50), p99: Some(p99), max: Some(max) } = self.latency_us {
            let us = |us: f64| time(us * 1e-6);
            line("latency", format!("p50 {}, p99 {}, max {}", us(p50), us(p99), us(max)));
        }
        if let Some(phases) = &self.phases {
            line("phases", phases.text());
        }
        if self.record.is_some() {
            let each = self
                .log_bytes_per_transaction
                .map_or(String::new(), |each| format!(": {} per transaction", bytes(each)));
            let [log, device] = [self.log_bytes, self.device_bytes].map(|all| bytes(all as f64));
            line("log", format!("{log}{each}; {device} to the device"));
        }
        if let Some(nvm) = &self.nvm {
            line("nvm", nvm.text());
        }
        if let Some(lost) = &self.can_lose {
            line("a crash loses", lost.clone());
        }
        if let Some(replicated) = &self.replicated {
            line("replicated", replicated.text());
        }
        self.scans_text(&mut line);
        self.checkpoint_text(&mut line);
        self.recovery_text(settings.knobs.recovery, &mut line);
        if let Some(consistent) = self.consistent {
            line("conditions", if consistent { "hold" } else { "VIOLATED" }.to_string());
        }
        if settings.device.lowest() == DeviceKind::Memory && self.record.is_some() {
            line("note", "the log is in shared memory: not durable".to_string());
        }
        out
    }

    /// What ran, and on what.
    fn run_text(&self, settings: &Settings, line: &mut impl FnMut(&str, String)) {
        let log = match self.record {
            None if self.engine.is_store() => self.engine.word().to_string(),
            None => "no log".to_string(),
            Some(record) => format!(
                "{} {}, {} {}, device {}",
                self.protocol.word(),
                record.word(),
                self.streams,
                if self.streams == 1 { "stream" } else { "streams" },
                settings.device.word()
            ),
        };
        let offered = settings.rate.map_or(String::new(), |r| format!(", offered {}", rate(r)));
        let (name, workers) = (&self.workload, self.workers);
        let sites = match (self.sites, self.posted) {
            (Some(sites), _) => format!(" with {sites} sites"),
            (None, Some(_)) => ", calls posted".to_string(),
            (None, None) => String::new(),
        };
        line(
            "run",
            format!(
                "{name}: {log}, {}{sites}, {workers} workers, {} in flight each{offered}",
                self.concurrency.word(),
                self.in_flight
            ),
        );
        if let (Some(store), Some(budget)) = (self.dc, self.budget_bytes) {
            let rate = self.cache.and_then(|cache| cache.hit_rate);
            let hits = rate.map_or(String::new(), |r| format!("; {:.1} % hits", r * 100.0));
            let (engine, store) = (self.engine.word(), store.word());
            line(
                "engine",
                format!("{engine} over {store}, {} of memory{hits}", bytes(budget as f64)),
            );
        }
        if let (true, Some(budget)) = (self.engine.is_store(), self.budget_bytes) {
            let memory = bytes(budget as f64);
            line("engine", format!("{memory} of memory; transactions in flight share commits"));
        }
        if let Some(observed) = &self.observed {
            let share = observed.collecting_share * 100.0;
            line("collecting", format!("{share:.2} % of the workers' time"));
        }
        let mut loaded = format!("{} rows", exact(self.load.records));
        if self.load.bytes > 0 {
            loaded += &format!(", {} of log", bytes(self.load.bytes as f64));
        }
        line("load", loaded);
    }

    fn scans_text(&self, line: &mut impl FnMut(&str, String)) {
        let (Some(scans), Some(versions)) = (self.scans, self.versions) else { return };
        line(
            "scans",
            format!(
                "{} completed, {} failed: {} rows/s; at most {} older versions, {}",
                exact(scans.completed),
                exact(scans.failed),
                count(scans.rows_per_s),
                count(versions.peak as f64),
                bytes(versions.peak_bytes as f64)
            ),
        );
    }

    fn checkpoint_text(&self, line: &mut impl FnMut(&str, String)) {
        let Some(checkpoints) = &self.checkpoints else { return };
        let mut text = format!("{} taken, {} failed", checkpoints.taken, checkpoints.failed);
        let _ = write!(text, "; replay time at most {}", time(checkpoints.longest_replay_seconds));
        if let (Some(rows), Some(changed)) = (checkpoints.rows, checkpoints.changed_rows) {
            let share = changed as f64 / rows.max(1) as f64 * 100.0;
            let _ = write!(text, "; {share:.0} % of the rows in the last one had changed");
        }
        line("checkpoints", text);
        let contrast = &checkpoints.contrast;
        if let (Some(during), Some(between)) = (contrast.during_per_s, contrast.between_per_s) {
            let share = format!("{:.0} %", during / between.max(1e-9) * 100.0);
            let p99 = |us: Option<f64>| time(us.unwrap_or(0.0) * 1e-6);
            line(
                "throughput",
                format!(
                    "{} during checkpoints, {share} of the {} between them; p99 {} against {}",
                    rate(during),
                    rate(between),
                    p99(contrast.during_p99_us),
                    p99(contrast.between_p99_us)
                ),
            );
        }
        line("on disk", format!("at most {}", bytes(contrast.most_disk_bytes as f64)));
        if let Some(why) = &checkpoints.bound_missed {
            line("bound missed", why.clone());
        }
    }

    fn recovery_text(&self, how: RecoveryKind, line: &mut impl FnMut(&str, String)) {
        let Recovery { seconds: Some(seconds), .. } = self.recovery else { return };
        let r = &self.recovery;
        line(
            "recovery",
            format!(
                "{}{} on {}{}{}; {} transactions{}: {}",
                if r.cold == Some(true) { "cold reads, " } else { "" },
                time(seconds),
                match r.threads.unwrap_or(0) {
                    1 => "1 thread".to_string(),
                    threads => format!("{threads} threads"),
                },
                match how {
                    RecoveryKind::Automatic | RecoveryKind::Parallel => String::new(),
                    other => format!(" ({})", other.word()),
                },
                r.image_seconds
                    .map_or(String::new(), |s| format!(", of which {} for the load", time(s))),
                count(r.records.unwrap_or(0) as f64),
                r.bytes.map_or(String::new(), |size| format!(", {}", bytes(size as f64))),
                rate(r.records_per_s.unwrap_or(0.0)),
            ),
        );
        if let Some(Reading { wait_seconds, replaying_seconds, streams }) = &r.reading {
            let each = |stream: &ReadingOfStream| {
                format!("stream {}: {}", stream.stream, time(stream.read_seconds))
            };
            let each: Vec<String> = streams.iter().map(each).collect();
            line(
                "log read",
                format!(
                    "{} of the threads' time, {} for replay; {}",
                    time(*wait_seconds),
                    time(*replaying_seconds),
                    each.join(", ")
                ),
            );
        }
        if let Some(most) = r.version_bytes {
            line("versions", format!("at most {} of older versions of rows", bytes(most as f64)));
        }
        let same = r.state_matches == Some(true);
        line("state", if same { "matches that before the crash" } else { "DIFFERS" }.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_or_a_violation_does_not_hold() {
        let report = |state_matches, consistent| Report {
            workload: "bank".to_string(),
            protocol: Protocol::Taurus,
            record: Some(RecordKind::Data),
            concurrency: Concurrency::Silo,
            isolation: Isolation::Serializable,
            engine: Engine::Memory,
            dc: None,
            budget_bytes: None,
            workers: 1,
            partitions: None,
            sites: None,
            posted: None,
            can_lose: None,
            streams: 1,
            device: Some("file".parse().unwrap()),
            nvm: None,
            in_flight: 1,
            seconds: 1.0,
            acknowledged: 0,
            acknowledged_per_s: 0.0,
            rollbacks: 0,
            aborts: 0,
            log_bytes: 0,
            device_bytes: 0,
            log_bytes_per_transaction: None,
            latency_us: Latency::default(),
            worker_cpu_us: None,
            busy_processors: None,
            phases: None,
            checkpoints: None,
            scans: None,
            versions: None,
            cache: None,
            observed: None,
            replicated: None,
            load: Load::default(),
            recovery: Recovery { state_matches, ..Recovery::default() },
            consistent,
        };
        assert!(report(None, None).holds());
        assert!(report(Some(true), Some(true)).holds());
        assert!(!report(Some(false), Some(true)).holds());
        assert!(!report(Some(true), Some(false)).holds());
        assert!(!report(None, Some(false)).holds());
    }
}
