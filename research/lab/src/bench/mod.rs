//! `hyades-lab bench`: loads, runs and measures a workload. With `--recover` it crashes at the end
//! and recovers in a fresh process.

pub mod busy;
pub mod choices;
pub mod deuteronomy;
mod driver;
pub mod help;
pub mod knobs;
mod measured;
pub mod options;
mod outcome;
mod phases;
mod posting;
pub mod replicating;
pub mod report;
pub mod scanners;
pub mod settings;
pub mod smallbank;
mod stores;
pub mod table;
mod tally;
pub mod tatp;
mod timeline;
pub mod vectors;
pub mod voter;
pub mod workload;
pub mod ycsb;

use choices::Protocol;
use hyades::{Database, RecordKind};
use hyades_cli::children;
use hyades_cli::failure::Failure;
use hyades_cli::memory;
use hyades_cli::place::{DeviceKind, Place};
use hyades_cli::progress::Bar;
use hyades_cli::units;
use hyades_platform::device::MemoryDevice;
use hyades_workloads::{
    Workload, bank::Bank, populate, smallbank::SmallBank, tatp::Tatp, tpcc::Tpcc, voter::Voter,
    ycsb::Ycsb,
};
use options::Bench;
use outcome::{Ran, Recovered, report_of};
use report::{Checkpoints, Load, Reading, Recovery};
use settings::Settings;
use workload::Workload as Choice;

/// Runs `hyades-lab bench`. True if all checks hold.
///
/// # Errors
/// Wrong usage, or a failure of the run.
pub fn bench(options: Bench) -> Result<bool, Failure> {
    match &options {
        Bench::Paper(options) => return crate::paper::paper(options),
        Bench::Table(options) => return table::table(options),
        Bench::Vectors(options) => return vectors::vectors(options),
        Bench::Ycsb(_) | Bench::Tpcc(_) | Bench::Bank(_) | Bench::Smallbank(_) => {}
        Bench::Tatp(_) | Bench::Voter(_) => {}
    }
    let mut settings = options.settings()?;
    let place = match settings.has_files() {
        false => None,
        true => Some(Place::new(&settings.dirs, settings.device.lowest(), settings.knobs.devices)?),
    };
    if let Some(place) = &place {
        settings.dirs.clone_from(&place.dirs);
    }
    let report = if settings.recover {
        let ran: Ran = children::run("bench-run", &settings, children::Ending::Killed)?;
        let recovered: Recovered =
            children::run("bench-recover", &settings, children::Ending::Good)?;
        let mut report = ran.report;
        report.recovery = recovered.recovery;
        report.recovery.state_matches = Some(ran.digest == recovered.digest);
        report.consistent = recovered.consistent;
        report
    } else {
        run(&settings)?.report
    };
    if settings.json {
        println!(
            "{}",
            serde_json::to_string(&report).map_err(Failure::doing("cannot write JSON"))?
        );
    } else {
        print!("{}", report.text(&settings));
        if let Some(place) = place.as_ref().filter(|place| !place.is_temporary()) {
            println!("  {:<14}kept in {}", "log", place.dirs[0].display());
        }
    }
    Ok(report.holds())
}

/// Loads and runs the workload. If it is to be recovered, the database stays open for the crash.
///
/// # Errors
/// Those of the database.
pub fn run(settings: &Settings) -> Result<Ran, Failure> {
    memory::reserve(settings.reserve_memory)?;
    match &settings.workload {
        Choice::Ycsb(own) if own.engine.is_component() => deuteronomy::run(settings, own),
        Choice::Ycsb(own) if own.engine.is_store() => stores::run(settings, own),
        Choice::Ycsb(own) => run_one(settings, || Ycsb::new(own.config(settings.seed))),
        Choice::Tpcc(own) => run_one(settings, || Tpcc::new(own.config(settings.seed))),
        Choice::Bank(own) => run_one(settings, || Bank::new(own.config())),
        Choice::Smallbank(own) => run_one(settings, || SmallBank::new(own.config(settings.seed))),
        Choice::Tatp(own) => run_one(settings, || Tatp::new(own.config(settings.seed))),
        Choice::Voter(own) => run_one(settings, || Voter::new(own.config(settings.seed))),
    }
}

/// Recovers the database after the crash.
///
/// # Errors
/// Those of the database.
pub fn recover(settings: &Settings) -> Result<Recovered, Failure> {
    memory::reserve(settings.reserve_memory)?;
    for dir in settings.dirs.iter().filter(|_| settings.knobs.cold) {
        let what = format!("cannot drop the files in {} from the page cache", dir.display());
        let bytes = hyades_platform::device::drop_cached(dir).map_err(Failure::doing(what))?;
        let size = units::bytes(bytes as f64);
        eprintln!("dropped {size} in {} from the page cache", dir.display());
    }
    match &settings.workload {
        Choice::Ycsb(own) if own.engine.is_component() => deuteronomy::recover(settings, own),
        Choice::Ycsb(own) => recover_one(settings, Ycsb::new(own.config(settings.seed))),
        Choice::Tpcc(own) => recover_one(settings, Tpcc::new(own.config(settings.seed))),
        Choice::Bank(own) => recover_one(settings, Bank::new(own.config())),
        Choice::Smallbank(own) => recover_one(settings, SmallBank::new(own.config(settings.seed))),
        Choice::Tatp(own) => recover_one(settings, Tatp::new(own.config(settings.seed))),
        Choice::Voter(own) => recover_one(settings, Voter::new(own.config(settings.seed))),
    }
}

fn open<W: Workload>(
    settings: &Settings,
    workload: &mut W,
    record: RecordKind,
    what: &'static str,
) -> Result<Database, Failure> {
    let bar = std::sync::Arc::new(Bar::new(what, 1));
    let shown = bar.clone();
    let mut builder = settings.builder(record).on_progress(move |p| shown.show(p));
    workload.declare(&mut builder);
    let none = std::path::PathBuf::new();
    let database = builder.open(settings.dirs.first().unwrap_or(&none))?;
    let report = database.recovery();
    if report.found {
        bar.finish(&format!(
            "{what}: {} on {} threads, {} transactions, {}",
            units::time(report.seconds),
            report.threads,
            units::count(report.records as f64),
            units::bytes(report.bytes as f64)
        ));
    }
    Ok(database)
}

fn load<W: Workload>(
    settings: &Settings,
    workload: &W,
    database: &Database,
) -> Result<Load, Failure> {
    let bar = Bar::new("loading", workload.parts() as u64);
    let began = std::time::Instant::now();
    populate(workload, database, settings.workers, |done| bar.set(done as u64))?;
    let load = Load { records: database.rows(), bytes: database.stats().log_bytes };
    let took = units::time(began.elapsed().as_secs_f64());
    bar.finish(&format!("loaded {} rows in {took}", units::exact(load.records)));
    Ok(load)
}

fn run_one<W: Workload>(settings: &Settings, make: impl Fn() -> W) -> Result<Ran, Failure> {
    #[cfg(feature = "replication")]
    if settings.replicating.standbys.is_some() {
        return replicating::run(settings, make);
    }
    let mut workload = make();
    // The population is logged as commands where the protocol allows it, because they are short. It
    // is an incarnation of its own.
    let commands =
        settings.concurrency.control().takes_commands_under(settings.protocol.protocol());
    let record = if commands { RecordKind::Command } else { RecordKind::Data };
    // Loading is not measured, so it does not use a slow device.
    let mut database = open(&settings.loading(), &mut workload, record, "opening")?;
    let load = load(settings, &workload, &database)?;
    if settings.protocol != Protocol::None {
        if settings.knobs.checkpoint_population {
            database.checkpoint()?;
        }
        database.close()?;
        workload = make();
        let record = settings.record.record();
        database = open(settings, &mut workload, record, "reopening after loading")?;
    }
    if settings.device.lowest() == DeviceKind::Memory && settings.protocol != Protocol::None {
        let root = std::path::Path::new(MemoryDevice::ROOT);
        memory::reserve_for_log(root, settings.reserve_memory)?;
    }
    let checkpoints = settings.max_recovery.is_some() || settings.checkpoint_interval.is_some();
    let over_time = checkpoints || settings.timeline.is_some();
    let measured = driver::drive(&workload, &database, &settings.drive(over_time))?;
    let mut report = report_of(settings, &measured, load);
    if let (Some(path), Some(timeline)) = (&settings.timeline, &measured.timeline) {
        timeline.write(path, &title(settings))?;
    }
    if checkpoints {
        let stats = database.checkpoints();
        let last = stats.last.as_ref();
        report.checkpoints = Some(Checkpoints {
            taken: stats.taken,
            failed: stats.failed,
            seconds: last.map(|last| last.seconds),
            bytes: last.map(|last| last.bytes),
            rows: last.map(|last| last.rows),
            changed_rows: last.map(|last| last.changed_rows),
            longest_replay_seconds: stats.longest_replay_seconds,
            bound_missed: stats.bound_missed,
            contrast: measured.timeline.map(|timeline| timeline.contrast()).unwrap_or_default(),
        });
    }
    if settings.recover {
        if let Some(log) = database.log().filter(|_| settings.asynchronous) {
            // What was acknowledged before it was on disk may be lost, but is to be compared.
            log.flush().map_err(Failure::doing("the log could not be written"))?;
        }
        let digest = database.digest();
        // The process is about to crash, so the log must not be closed cleanly.
        std::mem::forget(database);
        return Ok(Ran { report, digest });
    }
    report.consistent = check(&workload, &database)?;
    database.close()?;
    Ok(Ran { report, digest: 0 })
}

/// The title of the timeline's drawing.
fn title(settings: &Settings) -> String {
    format!(
        "{}, {} workers, {} streams, {} records",
        settings.protocol.word(),
        settings.workers,
        settings.streams,
        settings.record.word()
    )
}

fn recover_one<W: Workload>(settings: &Settings, mut workload: W) -> Result<Recovered, Failure> {
    let record = settings.record.record();
    let database = open(settings, &mut workload, record, "recovering")?;
    let report = database.recovery();
    // The first incarnation is the population's, unless a checkpoint holds it.
    let populated = report.incarnations.first().is_some_and(|i| i.number == 1);
    let (image, runs) = report.incarnations.split_at(usize::from(populated));
    let image_seconds = image.iter().map(|i| i.seconds).sum::<f64>() + report.image_seconds;
    let records = runs.iter().map(|i| i.records).sum();
    let replay_seconds = (report.seconds - image_seconds).max(1e-9);
    let recovery = Recovery {
        seconds: Some(report.seconds),
        image_seconds: Some(image_seconds),
        image_rows: (report.image_rows > 0).then_some(report.image_rows),
        image_bytes: (report.image_rows > 0).then_some(report.image_bytes),
        records: Some(records),
        bytes: Some(runs.iter().map(|i| i.bytes).sum()),
        records_per_s: Some(records as f64 / replay_seconds),
        // One where the order of a stream is the only one, whatever was given.
        threads: Some(runs.iter().map(|i| i.threads).max().unwrap_or(report.threads)),
        version_bytes: (report.version_bytes > 0).then_some(report.version_bytes),
        reading: Reading::of(runs),
        cold: settings.knobs.cold.then_some(true),
        state_matches: None,
    };
    let digest = database.digest();
    let consistent = check(&workload, &database)?;
    database.close()?;
    Ok(Recovered { recovery, digest, consistent })
}

fn check<W: Workload>(workload: &W, database: &Database) -> Result<Option<bool>, Failure> {
    let violations = workload.check(database)?;
    for violation in violations.iter().flatten().take(10) {
        eprintln!("  {violation}");
    }
    Ok(violations.map(|violations| violations.is_empty()))
}
