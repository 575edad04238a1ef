//! YCSB on a transaction component over a data component: keys and values instead of rows.

mod counted;
mod driver;
mod keys;
mod observed;
mod options;

use super::choices::{Engine, Store};
use super::measured::Measured;
use super::outcome::{Ran, Recovered, report_of};
use super::report::{Cache, Load, Recovery};
use super::settings::Settings;
use super::ycsb::Ycsb;
use clap::Args;
use counted::Counted;
use hyades_cli::failure::{Failure, usage};
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_deuteronomy::{DataComponent, Database, LogOptions, MemoryData, Options};
pub use keys::{Access, Drawer, KeyAccesses, KeysAndValues, fill};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub use observed::Observed;
use observed::Observer;
use options::ComponentOptions;

/// Default memory for versions and for what the data component caches.
const BUDGET: u64 = 256 << 20;
/// The least.
const LEAST_BUDGET: u64 = 1 << 20;
/// The longest value.
const LONGEST_VALUE: usize = 64 << 10;
/// The value of the paper.
const VALUE_BYTES: usize = 100;

/// What runs the transactions.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct EngineOptions {
    /// What runs the transactions: memory, the engine that keeps all rows in memory; deuteronomy, a
    /// transaction component over a data component; or redb, fjall, lmdb, rocksdb or hash-map, to
    /// compare with (see below)
    #[arg(long, default_value = "memory")]
    engine: Engine,
    /// Data component of deuteronomy: memory, which recovery fills again from the whole log, load
    /// included; redb, a database in a file beside the log; or fjall or rocksdb, one in a directory
    /// there [default: memory]
    #[arg(long, value_name = "STORE")]
    dc: Option<Store>,
    /// Memory of deuteronomy for versions and, half of it, for the caches of the store; the
    /// buffers of the log are extra. As engines, redb and fjall use all of it as cache. lmdb has
    /// the page cache instead [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    budget: Option<u64>,
    /// Length of the values of engines other than memory [default: 100]
    #[arg(long, value_name = "N")]
    value_bytes: Option<usize>,
    #[command(flatten)]
    component: ComponentOptions,
}

impl EngineOptions {
    /// Whether a transaction component runs the transactions.
    pub fn is_component(&self) -> bool {
        self.engine == Engine::Deuteronomy
    }

    /// Whether a store by itself runs them.
    pub fn is_store(&self) -> bool {
        self.engine.is_store()
    }

    /// Whether they are on keys and values, not on rows.
    pub fn has_keys(&self) -> bool {
        self.engine != Engine::Memory
    }

    /// What runs the transactions.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The length of the values.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes.unwrap_or(VALUE_BYTES)
    }

    fn store(&self) -> Store {
        self.dc.unwrap_or(Store::Memory)
    }

    /// The memory for versions and caches.
    pub fn budget(&self) -> u64 {
        self.budget.unwrap_or(BUDGET)
    }

    /// Whether a transaction component runs the transactions, after a check against the options
    /// that are for one of the engines only.
    ///
    /// # Errors
    /// Wrong usage, in one sentence.
    pub fn check(
        &self,
        of_rows: Option<&'static str>,
        of_engine: Option<&'static str>,
    ) -> Result<bool, Failure> {
        if !self.has_keys() {
            let set = [
                ("--dc", self.dc.is_some()),
                ("--budget", self.budget.is_some()),
                ("--value-bytes", self.value_bytes.is_some()),
            ];
            let first = set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
            return match first.or(self.component.first_set()) {
                None => Ok(false),
                Some(name) => usage(format!(
                    "{name} is for --engine deuteronomy: add that, or leave {name} out"
                )),
            };
        }
        if let Some(name) = of_rows.or(of_engine) {
            return match self.is_component() {
                true => usage(format!(
                    "{name} is for --engine memory: --engine deuteronomy logs data in streams \
                     with LSN vectors, orders transactions by timestamps, and stores keys and \
                     values"
                )),
                false => usage(format!(
                    "{name} is for --engine memory: {} stores keys and values in its own way",
                    self.engine.word()
                )),
            };
        }
        if !(LEAST_BUDGET..=1 << 40).contains(&self.budget()) {
            return usage(format!("--budget must be 1MiB to 1TiB, not {} bytes", self.budget()));
        }
        if !(1..=LONGEST_VALUE).contains(&self.value_bytes()) {
            let value_bytes = self.value_bytes();
            return usage(format!("--value-bytes must be 1 to {LONGEST_VALUE}, not {value_bytes}"));
        }
        let of_component = self.dc.map(|_| "--dc").or(self.component.first_set());
        if let Some(name) = of_component.filter(|_| self.is_store()) {
            return usage(format!(
                "{name} is for --engine deuteronomy: add that, or leave {name} out"
            ));
        }
        self.check_build()?;
        Ok(self.is_component())
    }

    /// Whether this build has the store that is needed.
    fn check_build(&self) -> Result<(), Failure> {
        let name = if self.is_component() { self.store().word() } else { self.engine.word() };
        let is_built = match name {
            "redb" => cfg!(feature = "redb"),
            "fjall" => cfg!(feature = "fjall"),
            "lmdb" => cfg!(feature = "lmdb"),
            "rocksdb" => cfg!(feature = "rocksdb"),
            _ => true,
        };
        if !is_built {
            let otherwise = if self.is_component() { "--dc memory" } else { "another engine" };
            return usage(format!(
                "this build has no {name}: build it with --features {name}, or choose {otherwise}"
            ));
        }
        Ok(())
    }

    /// Opens the data component, whose file is in this directory.
    fn open_store(&self, dir: &Path) -> Result<Arc<dyn DataComponent>, Failure> {
        let _cache = (self.budget() / 2) as usize;
        match self.store() {
            Store::Memory => Ok(Arc::new(MemoryData::new())),
            #[cfg(feature = "redb")]
            Store::Redb => {
                open_at(dir, "data.redb", |path| hyades_deuteronomy::RedbData::open(path, _cache))
            }
            #[cfg(feature = "fjall")]
            Store::Fjall => {
                open_at(dir, "data.fjall", |path| hyades_deuteronomy::FjallData::open(path, _cache))
            }
            #[cfg(feature = "rocksdb")]
            Store::RocksDb => open_at(dir, "data.rocksdb", |path| {
                hyades_deuteronomy::RocksDbData::open(path, _cache)
            }),
            #[allow(unreachable_patterns, reason = "in a build with all stores")]
            _ => unreachable!("the options were checked"),
        }
    }

    /// The memory for versions.
    fn version_bytes(&self) -> usize {
        let cached = if self.store() == Store::Memory { 0 } else { self.budget() / 2 };
        (self.budget() - cached) as usize
    }
}

/// Opens a store in a file or directory of `dir`.
#[cfg(any(feature = "redb", feature = "fjall", feature = "rocksdb"))]
fn open_at<D: DataComponent + 'static>(
    dir: &Path,
    name: &str,
    open: impl FnOnce(&Path) -> Result<D, hyades_deuteronomy::Error>,
) -> Result<Arc<dyn DataComponent>, Failure> {
    let path = dir.join(name);
    let what = format!("cannot open {}", path.display());
    std::fs::create_dir_all(dir).map_err(Failure::doing(&what))?;
    Ok(Arc::new(open(&path).map_err(Failure::doing(what))?))
}

fn open(settings: &Settings, own: &EngineOptions) -> Result<(Database, Arc<Counted>), Failure> {
    let mut dirs = settings.dirs.clone();
    if settings.device.is_striped() {
        // A striped device has the other directories; the log is given the first only.
        dirs.truncate(1);
    }
    let data = Arc::new(Counted::new(own.open_store(&dirs[0])?, own.component.observe));
    let mut log = LogOptions::new(dirs, settings.streams);
    log.device = settings.device.open_with(&settings.dirs, settings.knobs.last_device.as_ref());
    settings.knobs.apply_to_log(&settings.device, &mut log);
    let mut options = Options::new(log);
    options.memory_bytes = own.version_bytes();
    own.component.apply(&mut options);
    let database = Database::open(options, Arc::clone(&data) as Arc<dyn DataComponent>)?;
    Ok((database, data))
}

/// Bytes of frames, and bytes written to the devices.
fn log_bytes(database: &Database) -> (u64, u64) {
    let log = database.log();
    let streams = (0..log.streams()).map(|stream| log.stats(stream));
    streams.fold((0, 0), |sum, stats| (sum.0 + stats.frame_bytes, sum.1 + stats.device_bytes))
}

fn load(settings: &Settings, own: &Ycsb, database: &Database) -> Result<Load, Failure> {
    let accesses = own.accesses_to_keys();
    let bar = Bar::new("loading", accesses.rows);
    let began = Instant::now();
    driver::load(&accesses, database, settings, |done| bar.set(done))?;
    database.log().flush().map_err(hyades_wal::Error::from)?;
    let load = Load { records: accesses.rows, bytes: log_bytes(database).0 };
    let took = units::time(began.elapsed().as_secs_f64());
    bar.finish(&format!("loaded {} keys in {took}", units::exact(load.records)));
    Ok(load)
}

/// Loads and runs the workload. If it is to be recovered, the database stays open for the crash.
///
/// # Errors
/// Those of the database.
pub fn run(settings: &Settings, own: &Ycsb) -> Result<Ran, Failure> {
    // Loading is not measured, so it does not use a slow device.
    let (database, _) = open(&settings.loading(), &own.engine)?;
    let loaded = load(settings, own, &database)?;
    database.close()?;
    let (database, data) = open(settings, &own.engine)?;
    let accesses = own.accesses_to_keys();
    let observer = own.engine.component.observe.then(|| Observer::new(accesses.rows));
    let (measured, reads, observed) =
        driver::drive(&accesses, &database, settings, &data, observer.as_ref())?;
    let mut report = report(settings, own, &measured, loaded);
    report.observed = observed;
    let hits = reads.keys.saturating_sub(reads.fetched) as f64;
    let hit_rate = (reads.keys > 0).then(|| hits / reads.keys as f64);
    report.cache = Some(Cache { hit_rate, device_reads: None });
    if settings.recover {
        let digest = digest(&database)?;
        // The process is about to crash, so the log must not be closed cleanly.
        std::mem::forget(database);
        return Ok(Ran { report, digest });
    }
    database.close()?;
    Ok(Ran { report, digest: 0 })
}

fn report(
    settings: &Settings,
    own: &Ycsb,
    measured: &Measured,
    load: Load,
) -> super::report::Report {
    let mut report = report_of(settings, measured, load);
    report.engine = Engine::Deuteronomy;
    report.dc = Some(own.engine.store());
    report.budget_bytes = Some(own.engine.budget());
    report
}

/// Recovers the database after the crash.
///
/// # Errors
/// Those of the database.
pub fn recover(settings: &Settings, own: &Ycsb) -> Result<Recovered, Failure> {
    let began = Instant::now();
    let (database, _) = open(settings, &own.engine)?;
    let seconds = began.elapsed().as_secs_f64();
    let redone = database.recovered();
    eprintln!(
        "  recovered: {}, {} transactions, {} keys",
        units::time(seconds),
        units::count(redone.transactions as f64),
        units::count(redone.keys as f64)
    );
    let recovery = Recovery {
        seconds: Some(seconds),
        records: Some(redone.transactions),
        records_per_s: Some(redone.transactions as f64 / seconds.max(1e-9)),
        threads: Some(1),
        cold: settings.knobs.cold.then_some(true),
        ..Recovery::default()
    };
    let digest = digest(&database)?;
    database.close()?;
    Ok(Recovered { recovery, digest, consistent: None })
}

/// A digest of all keys and values, in no order.
fn digest(database: &Database) -> Result<u64, Failure> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::ops::Bound::{Excluded, Included, Unbounded};
    const AT_ONCE: usize = 1 << 16;
    let mut session = database.session()?;
    let (mut digest, mut after) = (0u64, None::<Arc<[u8]>>);
    loop {
        let from = after.as_deref().map_or(Included(&b""[..]), Excluded);
        let rows = session.execute(|tx| tx.scan(from, Unbounded, AT_ONCE))?;
        for row in &rows {
            let mut hasher = DefaultHasher::new();
            row.hash(&mut hasher);
            digest = digest.wrapping_add(hasher.finish());
        }
        match rows.last() {
            Some((key, _)) if rows.len() == AT_ONCE => after = Some(Arc::clone(key)),
            _ => return Ok(digest),
        }
    }
}
