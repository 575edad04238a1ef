//! `hyades-lab torture`: random histories on simulated disks that fail, for a given time.

use crate::bench::choices::{Engine, Protocol, Store};
use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::units;
use hyades_cli::words;
use hyades_deuteronomy::torture::{self as lives, DataStore, LifeCounts, LifeOptions, WrongCounts};
use hyades_simulator::Report;
use hyades_simulator::clients::torture_clients;
use hyades_simulator::torture::{self, SHRINK_FOR, Scheduler};
use std::path::{Path, PathBuf};

/// The mutation of the simulated disk; all further mutations are of the engine.
const LYING_FSYNC: &str = "lying-fsync";

/// The column not reported for a transaction component: clients get no replies and no messages.
const OUT_OF_ORDER: &str = "out_of_order";

/// Options of `hyades-lab torture`.
#[derive(Args, Clone, Debug)]
pub struct TortureOptions {
    /// Start no new history after this time: seconds, or a number with a unit, as in 10m
    #[arg(long, value_name = "TIME", default_value = "180", value_parser = units::some_seconds)]
    seconds: f64,
    /// Seed of the first history; each later one has the next number [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Report a history that takes longer than this as hung: seconds, or a number with a unit
    #[arg(long, value_name = "TIME", default_value = "180", value_parser = units::some_seconds)]
    hangs_after: f64,
    /// What decides the order of events: "threads" (real threads), "stepped" (the seed, so that a
    /// history repeats exactly), or "both", in turn [default: both; always stepped with --engine
    /// deuteronomy]
    #[arg(long)]
    scheduler: Option<Word>,
    /// What is tortured: memory, the engine that keeps all rows in memory; or deuteronomy, a
    /// transaction component over a data component
    #[arg(long, default_value = "memory")]
    engine: Engine,
    /// Data component of deuteronomy: memory, of which a crash keeps a random part; redb, on a file
    /// that loses power; or fjall, on files that survive the process, in a build with --features
    /// fjall [default: memory]
    #[arg(long, value_name = "STORE")]
    dc: Option<Store>,
    /// Start histories under this protocol only; after a crash a history may continue under another
    /// [default: all but none, in turn; a run of a few seconds reaches only the first ones]
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Torture the server by clients of this kind: resp, Redis's protocol. The server then logs
    /// under its default protocol [default: none; the engine is tortured by transactions]
    #[arg(long, value_name = "PROTOCOL", conflicts_with_all = ["protocol", "scheduler", "again"])]
    clients: Option<Clients>,
    /// Torture a replicated database: three members and a log service, all simulated, on one thread
    /// and in an order that follows from the seed. In a build with --features replication
    #[arg(long, conflicts_with_all = [
        "engine", "dc", "protocol", "scheduler", "clients", "again", "keep",
    ])]
    replicated: bool,
    /// With --replicated: the most histories
    #[arg(long, value_name = "NUMBER", requires = "replicated")]
    histories: Option<u64>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Keep a failing history in a new directory in this one [default: the system's directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run the history kept in this directory again, up to 200 times, until it fails
    #[arg(long, value_name = "DIR", conflicts_with_all = ["seconds", "seed"])]
    again: Option<PathBuf>,
    /// Break a rule on purpose, to test that torture finds it: lying-fsync, or, in a debug build
    /// with --features mutations, any rule of docs/reliability.md
    #[arg(long, value_name = "RULE")]
    mutation: Option<String>,
}

words! {
    /// The clients that torture the server.
    Clients ("kind of client") {
        /// Clients of Redis's protocol.
        Resp = "resp",
    }
}

words! {
    /// What decides the order of events.
    Word ("scheduler") {
        /// In turn.
        Both = "both",
        /// Real threads.
        Threads = "threads",
        /// The seed.
        Stepped = "stepped",
    }
}

/// Runs `hyades-lab torture`. True if no history failed.
///
/// # Errors
/// An unknown rule; or a failing history could not be kept.
pub fn torture(options: &TortureOptions) -> Result<bool, Failure> {
    if options.replicated {
        return replicated(options);
    }
    if options.engine == Engine::Deuteronomy {
        return torture_component(options);
    }
    if options.engine.is_store() {
        return Err(Failure::Usage(format!(
            "{} is not ours to torture: --engine memory or deuteronomy is",
            options.engine.word()
        )));
    }
    if options.dc.is_some() {
        return Err(Failure::Usage(
            "--dc is for --engine deuteronomy: add that, or leave --dc out".to_string(),
        ));
    }
    let lying_sync = options.mutation.as_deref() == Some(LYING_FSYNC);
    if let Some(rule) = options.mutation.as_deref().filter(|_| !lying_sync) {
        break_rule(rule)?;
    }
    if let Some(place) = &options.again {
        return again(place);
    }
    let scheduler = options.scheduler.unwrap_or(Word::Both);
    let settings = torture::Options {
        seconds: options.seconds,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48)),
        lying_sync,
        scheduler: match scheduler {
            Word::Both => Scheduler::Both,
            Word::Threads => Scheduler::Threads,
            Word::Stepped => Scheduler::Stepped,
        },
        hangs_after: std::time::Duration::from_secs_f64(options.hangs_after),
        shrink_for: SHRINK_FOR,
        protocol: options.protocol.map(Protocol::protocol),
        keep: options.keep.clone().unwrap_or_else(std::env::temp_dir),
    };
    let say = |line: &str| eprintln!("{line}");
    let result = match options.clients {
        Some(clients) => {
            say(&format!("torture by clients of {}, with seed {}", clients.word(), settings.seed));
            torture_clients(&settings, say)
        }
        None => {
            let scheduler = scheduler.word();
            say(&format!("torture with seed {}, scheduler {scheduler}", settings.seed));
            torture::torture(&settings, say)
        }
    };
    let found = result.map_err(Failure::doing("a failing history could not be kept"))?;
    for (fault, times) in &found.faults {
        eprintln!("{times:>10}  {fault}");
    }
    print(options, &found.report, found.kept.as_deref())?;
    Ok(found.report.is_sound())
}

/// Runs histories of replicated databases. True if no history failed.
#[cfg(feature = "replication")]
fn replicated(options: &TortureOptions) -> Result<bool, Failure> {
    use hyades_simulator::replicated::{Column, ReplicatedOptions, torture_replicated};
    if let Some(rule) = options.mutation.as_deref() {
        break_rule(rule)?;
    }
    let settings = ReplicatedOptions {
        seconds: options.seconds,
        histories: options.histories.unwrap_or(u64::MAX),
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48)),
        hangs_after: std::time::Duration::from_secs_f64(options.hangs_after),
    };
    eprintln!("torture of replicated databases with seed {}", settings.seed);
    let report = torture_replicated(&settings, |line| eprintln!("{line}"));
    for (what, times) in &report.counts {
        eprintln!("{times:>10}  {what}");
    }
    report.trace.iter().for_each(|line| eprintln!("{line}"));
    if options.json {
        let line = serde_json::to_string(&report);
        println!("{}", line.map_err(Failure::doing("the report could not be written"))?);
        return Ok(report.is_sound());
    }
    println!("seed               {}", report.seed);
    println!("histories          {}", report.histories);
    println!("acknowledged       {}", report.acknowledged);
    for column in Column::ALL {
        println!("{:<18} {}", column.name(), report.wrong[column.name()]);
    }
    println!("seconds            {:.1}", report.seconds);
    if let Some(seed) = report.failed {
        let rule = options.mutation.as_deref();
        let rule = rule.map_or_else(String::new, |rule| format!(" --mutation {rule}"));
        println!("failing seed       {seed}");
        println!(
            "to repeat it       hyades-lab torture --replicated --seed {seed} --histories 1{rule}"
        );
    }
    Ok(report.is_sound())
}

#[cfg(not(feature = "replication"))]
fn replicated(_options: &TortureOptions) -> Result<bool, Failure> {
    Err(Failure::Usage(
        "this build has no replication: build it with --features replication".to_string(),
    ))
}

/// Runs the lives of a transaction component. True if no history failed.
fn torture_component(options: &TortureOptions) -> Result<bool, Failure> {
    let of_engine = [
        (
            "--scheduler",
            options.scheduler.is_some(),
            "a history of --engine deuteronomy runs on one thread, in the order of its seed",
        ),
        (
            "--protocol",
            options.protocol.is_some(),
            "a transaction component has one protocol, its own",
        ),
        (
            "--again",
            options.again.is_some(),
            "of a history of --engine deuteronomy only the seed is kept, and --seed repeats it",
        ),
        (
            "--clients",
            options.clients.is_some(),
            "the server that they talk to keeps its rows in that engine",
        ),
    ];
    if let Some((name, _, why)) = of_engine.into_iter().find(|(_, is_set, _)| *is_set) {
        return Err(Failure::Usage(format!("{name} is for --engine memory: {why}")));
    }
    let lying_sync = options.mutation.as_deref() == Some(LYING_FSYNC);
    if let Some(rule) = options.mutation.as_deref().filter(|_| !lying_sync) {
        break_rule(rule)?;
    }
    let settings = LifeOptions {
        seconds: options.seconds,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48)),
        store: data_store(options.dc.unwrap_or(Store::Memory))?,
        lying_sync,
        hangs_after: std::time::Duration::from_secs_f64(options.hangs_after),
        keep: options.keep.clone().unwrap_or_else(std::env::temp_dir),
    };
    eprintln!("torture of deuteronomy over {:?} with seed {}", settings.store, settings.seed);
    let ran = lives::torture(&settings, |line| eprintln!("{line}"));
    let ran = ran.map_err(Failure::doing("a failing history could not be written down"))?;
    for (why, times) in &ran.met.aborted {
        eprintln!("{times:>10}  {why}");
    }
    print_met(&ran.met);
    let WrongCounts { lost, partial, resurrected, diverged, refused_wrongly, late, grown } =
        ran.wrong;
    let report = Report {
        seed: settings.seed,
        histories: ran.histories,
        crashes: ran.crashes,
        acknowledged: ran.acknowledged,
        lost: lost as u64,
        partial: partial as u64,
        resurrected: resurrected as u64,
        diverged: diverged as u64,
        refused_wrongly: refused_wrongly as u64,
        late: late as u64,
        grown: grown as u64,
        hung: u64::from(ran.failed.as_ref().is_some_and(|failed| failed.hung)),
        seconds: ran.seconds,
        ..Report::default()
    };
    print(options, &report, ran.failed.as_ref().map(|failed| failed.file.as_path()))?;
    Ok(ran.failed.is_none())
}

/// Prints the events of the lives of a transaction component.
fn print_met(met: &LifeCounts) {
    for (times, what) in [
        (met.scans as u64, "scans"),
        (met.snapshots as u64, "snapshots"),
        (met.long_snapshots as u64, "long snapshots"),
        (met.empty_keys as u64, "histories with a key of no bytes"),
        (met.long_keys as u64, "histories with a key of 1,000 bytes"),
        (met.empty_values as u64, "values of no bytes"),
        (met.large_values as u64, "values of 5,000 bytes and more"),
        (met.many_streams as u64, "lives with more than six streams"),
        (met.other_streams as u64, "lives with another number of streams than the last"),
        (met.checkpoints as u64, "checkpoints"),
        (met.truncated, "bytes of the log truncated"),
        (met.failed_openings as u64, "openings that failed as they had to"),
        (met.redone, "keys applied again at openings"),
        (met.dead, "transactions found dead at openings"),
    ] {
        eprintln!("{times:>10}  {what}");
    }
}

fn data_store(store: Store) -> Result<DataStore, Failure> {
    match store {
        Store::Memory => Ok(DataStore::Memory),
        #[cfg(feature = "redb")]
        Store::Redb => Ok(DataStore::Redb),
        #[cfg(feature = "fjall")]
        Store::Fjall => Ok(DataStore::Fjall),
        #[cfg(feature = "rocksdb")]
        Store::RocksDb => Ok(DataStore::RocksDb),
        #[allow(unreachable_patterns, reason = "in a build with all stores")]
        missing => Err(Failure::Usage(format!(
            "this build has no {0}: build it with --features {0}, or choose --dc memory",
            missing.word()
        ))),
    }
}

/// The report as JSON, without the column not reported for a transaction component.
fn json_of_component(report: &Report) -> serde_json::Result<String> {
    let mut line = serde_json::to_value(report)?;
    if let Some(columns) = line.as_object_mut() {
        columns.remove(OUT_OF_ORDER);
    }
    serde_json::to_string(&line)
}

fn print(options: &TortureOptions, report: &Report, kept: Option<&Path>) -> Result<(), Failure> {
    let is_component = options.engine == Engine::Deuteronomy;
    if options.json {
        let line = match is_component {
            true => json_of_component(report),
            false => serde_json::to_string(report),
        };
        println!("{}", line.map_err(Failure::doing("the report could not be written"))?);
        return Ok(());
    }
    println!("seed               {}", report.seed);
    println!("histories          {}", report.histories);
    println!("crashes            {}", report.crashes);
    println!("acknowledged       {}", report.acknowledged);
    println!("lost               {}", report.lost);
    println!("partial            {}", report.partial);
    println!("resurrected        {}", report.resurrected);
    println!("diverged           {}", report.diverged);
    if !is_component {
        println!("out of order       {}", report.out_of_order);
    }
    println!("refused wrongly    {}", report.refused_wrongly);
    println!("late               {}", report.late);
    println!("grown              {}", report.grown);
    println!("hung               {}", report.hung);
    println!("seconds            {:.1}", report.seconds);
    if let Some(kept) = kept {
        println!("kept in            {}", kept.display());
    }
    Ok(())
}

fn again(place: &Path) -> Result<bool, Failure> {
    let doing = format!("the history in {} could not be run", place.display());
    match torture::again(place, 200).map_err(Failure::doing(doing))? {
        Some(wrong) => {
            wrong.iter().for_each(|sentence| println!("{sentence}"));
            Ok(false)
        }
        None => {
            println!("it did not fail again: its disk is in {}", place.join("disk").display());
            Ok(true)
        }
    }
}

#[cfg(all(feature = "mutations", debug_assertions))]
fn break_rule(name: &str) -> Result<(), Failure> {
    use hyades_platform::mutation::{self, Mutation};
    let rule = Mutation::ALL.iter().copied().find(|rule| rule.name() == name);
    let names = Mutation::ALL.iter().map(|rule| rule.name()).collect::<Vec<_>>().join(", ");
    let unknown =
        || Failure::Usage(format!("{name:?} is not a rule: choose {names}, {LYING_FSYNC}"));
    mutation::set(Some(rule.ok_or_else(unknown)?));
    Ok(())
}

#[cfg(not(all(feature = "mutations", debug_assertions)))]
fn break_rule(name: &str) -> Result<(), Failure> {
    Err(Failure::Usage(format!(
        "this build cannot break the rule {name:?}: make a debug build with --features \
         mutations, or choose {LYING_FSYNC}"
    )))
}
