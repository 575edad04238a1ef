//! One run of the process of a soak test, from its start to its kill: settings, devices, and the
//! work beside the workers.

use super::data::SoakData;
use super::removals::Removals;
use crate::plan::Combination;
use hyades::{Database, Error, ProcedureId, Transaction};
use hyades_platform::device::{
    Device, FileDevice, Nvm, NvmDevice, StripedDevice, Throttle, ThrottledDevice,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of removed rows that may wait for long transactions, and of versions for snapshots.
const LIMIT: u64 = 64 << 20;

/// Memory without extra latency.
const NVM: Nvm = Nvm { factor: 1.0, first_ns: 0.0, line_ns: 0.0 };

/// The device of the log.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum SoakDevice {
    Disk,
    /// Each sync takes this number of milliseconds.
    Slow(u64),
    Striped,
    /// Mapped files.
    Nvm,
}

/// Parameters of one run of the process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SoakLife {
    pub(super) combination: Combination,
    checkpoint_ms: Option<u64>,
    exact_checkpoints: bool,
    pub(super) session_each: bool,
    pub(super) in_flight: usize,
    pub(super) asynchronous: bool,
    patience: u32,
    device: SoakDevice,
    one_more_index: bool,
    /// Whether tickets are polled with wakers that panic, and dropped.
    pub(super) wakers: bool,
    pub(super) removals: Option<Removals>,
    /// Milliseconds of a visitor of a snapshot for each row.
    pub(super) visitor_ms: Option<u64>,
    /// Milliseconds between the opening and the end of a held snapshot.
    pub(super) snapshot_ms: Option<u64>,
    /// Milliseconds of the body of a transaction.
    pub(super) body_ms: Option<u64>,
    pub(super) data: SoakData,
}

/// `Some` of one of the choices, in one case of `one_in`.
fn rarely<T: Copy>(rng: &mut fastrand::Rng, one_in: u32, choices: &[T]) -> Option<T> {
    (rng.u32(0..one_in) == 0).then(|| choices[rng.usize(0..choices.len())])
}

impl SoakLife {
    /// A random life of a database with these data. The other striped files of a database would be
    /// missed, so all of its lives are striped or none is.
    pub(super) fn random(rng: &mut fastrand::Rng, data: SoakData, striped: bool) -> SoakLife {
        let device = match rng.u32(0..6) {
            _ if striped => SoakDevice::Striped,
            0 => SoakDevice::Slow([1, 20, 200][rng.usize(0..3)]),
            1 => SoakDevice::Nvm,
            _ => SoakDevice::Disk,
        };
        SoakLife {
            combination: Combination::random(rng),
            checkpoint_ms: [None, Some(20), Some(300)][rng.usize(0..3)],
            exact_checkpoints: rng.u32(0..4) == 0,
            session_each: rng.u32(0..4) == 0,
            in_flight: [1, 8, 200][rng.usize(0..3)],
            asynchronous: rng.u32(0..6) == 0,
            patience: rarely(rng, 4, &[1, 300, 10_000]).unwrap_or(0),
            device,
            one_more_index: rng.u32(0..4) == 0,
            wakers: rng.u32(0..3) == 0,
            removals: (rng.u32(0..2) == 0).then(|| Removals::random(rng)),
            visitor_ms: rarely(rng, 4, &[1, 20, 1000]),
            snapshot_ms: rarely(rng, 4, &[10, 500, 10_000]),
            body_ms: rarely(rng, 4, &[1, 100, 3000]),
            data,
        }
    }

    /// Bound for the resident memory of the process in bytes, which follows from the live data, the
    /// data that may wait to be freed, and 256 MiB for all else. An opening takes up to half as
    /// much again.
    pub(super) fn memory_limit(&self) -> u64 {
        let removals = self.removals.map_or(0, |removals| removals.memory());
        let working = (256 << 20) + 4 * LIMIT + self.data.memory() + removals;
        working + working / 2
    }

    fn device(&self, dir: &Path) -> Arc<dyn Device> {
        let disk = FileDevice::shared();
        match self.device {
            SoakDevice::Disk => disk,
            SoakDevice::Slow(ms) => {
                let throttle = Throttle { latency_ns: ms * 1_000_000, ..Throttle::default() };
                Arc::new(ThrottledDevice::new(disk, throttle))
            }
            SoakDevice::Striped => {
                let dirs: [PathBuf; 2] = [dir.to_path_buf(), other_stripes(dir)];
                Arc::new(StripedDevice::new(dirs.map(|dir| (dir, Arc::clone(&disk))).into(), 4096))
            }
            SoakDevice::Nvm => Arc::new(NvmDevice::new(disk, NVM)),
        }
    }

    /// Opens the database. Returns the database with the procedure that runs a worker's
    /// transaction.
    pub(super) fn open(&self, dir: &Path) -> Result<(Database, ProcedureId), Error> {
        let Combination { protocol, concurrency, record, streams } = self.combination;
        let mut builder = Database::builder()
            .protocol(protocol)
            .concurrency(concurrency)
            .record(record)
            .streams(streams)
            .asynchronous(self.asynchronous)
            .patience(self.patience)
            .removed_limit(LIMIT)
            .snapshots(|snapshots| snapshots.memory = LIMIT)
            .log_settings(|log| {
                log.device = Some(self.device(dir));
                log.buffer_bytes = 1 << 20;
                log.segment_bytes = 1 << 22;
            })
            .checkpoint_settings(|settings| {
                settings.interval = self.checkpoint_ms.map(Duration::from_millis);
                settings.share = 0.5;
                settings.fuzzy &= !self.exact_checkpoints;
            });
        for schema in self.data.schemas(self.one_more_index) {
            builder.table(schema);
        }
        let data = self.data;
        let run = move |tx: &Transaction<'_>, worker: u64| data.step(tx, worker);
        let id = builder.procedure("step", 1, run);
        Ok((builder.open(dir)?, id))
    }
}

/// The second directory of a striped database.
pub(super) fn other_stripes(dir: &Path) -> PathBuf {
    dir.with_extension("stripes")
}
