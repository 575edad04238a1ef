//! The conduct of the program around a database in a history: its wakers, the length of its
//! transactions, its devices, rarer settings, and changes of the schema. Two histories of three are
//! plain; each of the others draws one or two features. Under Hekaton half of all histories read
//! speculatively.

use crate::plan::Plan;
use fastrand::Rng;
use hyades::{Builder, Concurrency};
use hyades_platform::device::{Device, Nvm, NvmDevice, SimulatedDevice, StripedDevice};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// The device of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum LogDevice {
    /// One disk.
    #[default]
    Disk,
    /// Files spread over two directories in units of this many bytes.
    Striped(u64),
    /// Memory, flushed by lines.
    Nvm,
}

/// Stated times, so that a history is the same on every machine.
const NVM: Nvm = Nvm { factor: 2.0, first_ns: 200.0, line_ns: 5.0 };

/// Unusual conduct of the program around a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conduct {
    /// Whether tickets are polled with wakers that begin transactions or panic, and dropped.
    pub wakers: bool,
    /// Whether closures pause between their steps.
    pub long_bodies: bool,
    /// Whether transactions are acknowledged before they are on disk.
    pub asynchronous: bool,
    /// How many times a transaction looks again for a lock; see [`Builder::patience`].
    pub patience: u32,
    /// Whether the cuts of checkpoints are exact.
    pub exact_checkpoints: bool,
    /// The device of the log.
    pub device: LogDevice,
    /// Whether transactions under Hekaton read what others are about to commit.
    #[serde(default)]
    pub speculative_reads: bool,
}

impl Conduct {
    /// The conduct of a seed. Adjusts the tables of the plan.
    pub(crate) fn random(rng: &mut Rng, plan: &mut Plan) -> Conduct {
        let hekaton = plan.combination.concurrency == Concurrency::Hekaton;
        let speculative_reads = hekaton && rng.clone().bool();
        let mut conduct = Conduct { speculative_reads, ..Conduct::default() };
        if rng.u32(0..3) != 0 {
            return conduct;
        }
        for _ in 0..rng.usize(1..3) {
            match rng.u32(0..8) {
                0 => conduct.wakers = true,
                // A reader of everything has little time before it counts as starved.
                1 if !plan.shape.reader => conduct.long_bodies = true,
                2 => conduct.asynchronous = true,
                3 => conduct.patience = [1, 100, 10_000][rng.usize(0..3)],
                4 => conduct.exact_checkpoints = true,
                // A stalled stream occupies the workers of all streams.
                5 if !plan.shape.stalled => {
                    conduct.device = LogDevice::Striped([512, 4096, 1 << 16][rng.usize(0..3)]);
                }
                6 => conduct.device = LogDevice::Nvm,
                // Each change writes all rows.
                _ if !plan.is_heavy() => plan.tables.changes = true,
                _ => {}
            }
        }
        conduct
    }

    /// Names of the features.
    pub(crate) fn features(&self, plan: &Plan) -> Vec<&'static str> {
        let all = [
            (self.wakers, "wakers that begin transactions, panic, or are dropped"),
            (self.long_bodies, "long transactions"),
            (self.asynchronous, "acknowledged before durable"),
            (self.patience > 0, "patience"),
            (self.exact_checkpoints, "exact cuts of checkpoints"),
            (matches!(self.device, LogDevice::Striped(_)) && !plan.stepped, "a striped device"),
            (self.device == LogDevice::Nvm, "non-volatile memory"),
            (plan.tables.changes && !plan.stepped, "changes of the schema"),
            (self.speculative_reads, "speculative reads"),
        ];
        all.into_iter().filter(|(drawn, _)| *drawn).map(|(_, name)| name).collect()
    }

    /// The log's device, on a simulated disk. Stepped histories have one thread, and striped files
    /// more.
    pub(crate) fn device(&self, disk: &SimulatedDevice, stepped: bool) -> Arc<dyn Device> {
        let disk = || Arc::new(disk.clone()) as Arc<dyn Device>;
        match self.device {
            LogDevice::Striped(unit) if !stepped => {
                let dirs = ["/db", "/other"].map(|dir| (PathBuf::from(dir), disk()));
                Arc::new(StripedDevice::new(dirs.into(), unit))
            }
            LogDevice::Nvm => Arc::new(NvmDevice::new(disk(), NVM)),
            _ => disk(),
        }
    }

    /// Applies the settings.
    pub(crate) fn settings(&self, builder: Builder) -> Builder {
        let exact = self.exact_checkpoints;
        builder
            .asynchronous(self.asynchronous)
            .patience(self.patience)
            .speculative_reads(self.speculative_reads)
            .checkpoint_settings(|settings| settings.fuzzy &= !exact)
    }
}
