//! The settings of one run, which child processes receive.

use super::choices::{Concurrency, Isolation, Protocol, RecordKind};
use super::knobs::{FlushedBy, Knobs};
use super::measured::Drive;
use super::posting::Posting;
use super::replicating::Replicating;
use super::scanners::Scanning;
use super::workload::Workload;
use crate::device::DeviceChoice;
use hyades::Builder;
use hyades_cli::units;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// All settings of a run. Child processes receive them as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The workload.
    pub workload: Workload,
    /// The logging protocol.
    pub protocol: Protocol,
    /// What records hold.
    pub record: RecordKind,
    /// The concurrency control.
    pub concurrency: Concurrency,
    /// What transactions are protected from.
    pub isolation: Isolation,
    /// How often no-wait looks again for a lock.
    #[serde(default)]
    pub patience: u32,
    /// Whether workers post their calls, and to what.
    #[serde(default)]
    pub posting: Posting,
    /// Whether standbys follow the log.
    #[serde(default)]
    pub replicating: Replicating,
    /// Whether transactions are acknowledged before they are on disk.
    #[serde(default)]
    pub asynchronous: bool,
    /// Log streams; 0 without a log.
    pub streams: usize,
    /// Log directories, filled in once they are known.
    pub dirs: Vec<PathBuf>,
    /// The device of the log.
    pub device: DeviceChoice,
    /// Worker threads.
    pub workers: usize,
    /// Transactions per worker awaiting acknowledgement.
    pub in_flight: usize,
    /// Offered load per second, over all workers.
    pub rate: Option<f64>,
    /// Measured seconds.
    pub seconds: f64,
    /// Seconds of warm-up.
    pub warmup: f64,
    /// Bytes of memory to reserve; the default if none.
    pub reserve_memory: Option<u64>,
    /// The seed.
    pub seed: u64,
    /// Length of an epoch in seconds; the protocol's default if none.
    pub epoch: Option<f64>,
    /// Bound on the replay time in seconds, which checkpoints keep.
    pub max_recovery: Option<f64>,
    /// Seconds between checkpoints.
    pub checkpoint_interval: Option<f64>,
    /// Share of processor time that writing checkpoints may use.
    pub checkpoint_share: f64,
    /// File for the timeline.
    pub timeline: Option<PathBuf>,
    /// Whether to crash and recover.
    pub recover: bool,
    /// Threads that recover; 0 for all cores.
    pub recovery_threads: usize,
    /// Scans beside the workload.
    #[serde(default)]
    pub scanning: Scanning,
    /// Options of experiments.
    pub knobs: Knobs,
    /// Whether results are JSON.
    pub json: bool,
}

impl Settings {
    /// The same settings for loading the population, on devices without emulated delays.
    pub fn loading(&self) -> Settings {
        let mut loading = self.clone();
        loading.device = self.device.unhindered();
        loading.knobs.last_device = None;
        loading.knobs.segment = self.knobs.segment_on(&self.device);
        loading.asynchronous = false;
        // Nothing runs beside the checkpoint of the population.
        loading.checkpoint_share = 1.0;
        loading.knobs.cut_changes = None;
        loading.knobs.flush_interval = None;
        loading.knobs.flush_fill = None;
        loading.knobs.flush_count = None;
        loading.knobs.flushed_by = FlushedBy::Streams;
        loading
    }

    /// Whether the run has files.
    pub fn has_files(&self) -> bool {
        match &self.workload {
            Workload::Ycsb(own) if own.engine.is_store() => own.engine.engine().has_files(),
            _ => self.protocol != Protocol::None,
        }
    }

    /// What a crash can lose of what was acknowledged, if anything.
    pub fn can_lose(&self) -> Option<String> {
        if !self.asynchronous {
            return None;
        }
        Some(match self.knobs.flush_interval {
            Some(interval) => format!(
                "what was committed during the last {} and one flush",
                units::time(interval)
            ),
            None => "what was committed during the last two flushes, and 2 ms".to_string(),
        })
    }

    /// How the workload is driven; over time, if a timeline is wanted.
    pub fn drive(&self, over_time: bool) -> Drive {
        Drive {
            workers: self.workers,
            in_flight: self.in_flight,
            rate: self.rate,
            warmup: self.warmup,
            seconds: self.seconds,
            seed: self.seed,
            processor_time: self.knobs.processor_time,
            phases: self.knobs.phases,
            timeline: over_time.then(|| self.dirs.clone()),
            scanning: self.scanning,
            posting: self.posting,
        }
    }

    /// A builder with these settings and this kind of record.
    pub fn builder(&self, record: hyades::RecordKind) -> Builder {
        let mut builder = hyades::Database::builder()
            .protocol(self.protocol.protocol())
            .concurrency(self.concurrency.control())
            .isolation(self.isolation.isolation())
            .patience(self.patience)
            .speculative_reads(self.knobs.speculative_reads)
            .record(record)
            .streams(self.streams.max(1))
            .recovery_threads(self.recovery_threads)
            .replay(self.knobs.recovery.replay());
        builder = self.posting.apply(builder).asynchronous(self.asynchronous);
        // A striped device has the other directories; the log is given the first only.
        for dir in self.dirs.iter().skip(1).filter(|_| !self.device.is_striped()) {
            builder = builder.log_dir(dir);
        }
        builder
            .checkpoint_settings(|checkpoints| {
                checkpoints.max_recovery = self.max_recovery.map(Duration::from_secs_f64);
                checkpoints.interval = self.checkpoint_interval.map(Duration::from_secs_f64);
                checkpoints.share = self.checkpoint_share;
                checkpoints.files_per_dir = self.knobs.checkpoint_files;
            })
            .log_settings(|log| {
                log.device =
                    Some(self.device.open_with(&self.dirs, self.knobs.last_device.as_ref()));
                self.knobs.apply(&self.device, log);
                log.epoch = self.epoch.map(Duration::from_secs_f64);
            })
    }
}
