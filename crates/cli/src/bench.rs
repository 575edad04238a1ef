//! `hyades bench`: transfers between accounts, as fast as this machine makes them durable.

use clap::Args;
use fastrand::Rng;
use hdrhistogram::Histogram;
use hyades::{CommitQueue, Database, Error};
use hyades_cli::failure::Failure;
use hyades_cli::machine::{self, cores};
use hyades_cli::place::{DeviceKind, Place};
use hyades_cli::progress::Bar;
use hyades_cli::record::RecordKind;
use hyades_cli::units::{self, bytes, count, rate, time};
use hyades_platform::clock::monotonic_ns;
use hyades_workloads::bank::{Bank, BankConfig, BankInput};
use hyades_workloads::{Workload, populate};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Transfers started by a worker between two checks for acknowledgements.
const DRAIN_EVERY: usize = 64;

/// Options of `hyades bench`. It needs none.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    /// The measured interval, after a warm-up of a tenth of it: seconds, or a number with a unit
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = units::some_seconds)]
    seconds: f64,
    /// Accounts, at least 2
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..))]
    accounts: u64,
    /// Worker threads [default: the number of cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Transfers of a worker that await their acknowledgement; with 1, a worker waits for each
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: u32,
    /// Log streams, 1 to 64
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// What is logged: data, command or adaptive
    #[arg(long, default_value = "data")]
    record: RecordKind,
    /// Directory for the log, empty or absent; several for several devices [default: a temporary
    /// one, removed at the end]
    #[arg(long, value_name = "DIR")]
    log_dir: Vec<PathBuf>,
    /// Store the log in lanes of a log service, too: nats://HOST:PORT,HOST:PORT,../NAME. The lanes
    /// are new, and removed at the end
    #[cfg(feature = "replication")]
    #[arg(long, value_name = "ADDRESS")]
    replicated: Option<hyades_replication::nats::Address>,
    #[cfg(feature = "replication")]
    #[command(flatten)]
    log_service: crate::replication::LogServiceOptions,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The measured interval, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy)]
struct Interval {
    begin: u64,
    end: u64,
}

/// The transfers acknowledged within the interval.
struct Measured {
    /// Microseconds from the start of a transfer to its acknowledgement.
    latency: Histogram<u64>,
    log_bytes: u64,
}

/// Runs `hyades bench`.
///
/// # Errors
/// Errors of the database; or a directory is not empty.
pub fn bench(options: &BenchOptions) -> Result<bool, Failure> {
    let place = Place::new(&options.log_dir, DeviceKind::File, 1)?;
    let mut bank = Bank::new(BankConfig { accounts: options.accounts, ..BankConfig::default() });
    let builder =
        Database::builder().streams(options.streams as usize).record(options.record.record());
    let mut builder = place.dirs.iter().skip(1).fold(builder, |all, dir| all.log_dir(dir));
    bank.declare(&mut builder);
    #[cfg(feature = "replication")]
    let lanes = {
        let (how, streams) = (&options.log_service, options.streams as usize);
        let create = |address| crate::replication::NewLanes::create(address, how, streams);
        options.replicated.as_ref().map(create).transpose()?
    };
    #[cfg(feature = "replication")]
    if let Some(lanes) = &lanes {
        builder = builder.remote(lanes.remote());
    }
    let database = builder.open(&place.dirs[0])?;
    populate(&bank, &database, cores(), |_| ())?;
    let measured = run(options, &bank, &database)?;
    let broken = bank.check(&database)?.unwrap_or_default();
    for violation in broken.iter().take(10) {
        eprintln!("  {violation}");
    }
    database.close()?;
    let consistent = broken.is_empty();
    let text = match options.json {
        true => json(options, &measured, consistent),
        false => text(options, &place, &measured, consistent),
    };
    println!("{text}");
    Ok(consistent)
}

fn run(options: &BenchOptions, bank: &Bank, database: &Database) -> Result<Measured, Failure> {
    let begin = monotonic_ns() + (options.seconds * 1e8) as u64;
    let interval = Interval { begin, end: begin + (options.seconds * 1e9) as u64 };
    // For the progress alone, hence Relaxed.
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let acknowledged = &acknowledged;
        let work = move |number| worker(options, bank, database, number, interval, acknowledged);
        let threads: Vec<_> =
            (0..workers(options)).map(|number| scope.spawn(move || work(number))).collect();
        let log_bytes = watch(database, interval, acknowledged);
        let mut latency = new_histogram();
        for thread in threads {
            let own = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            latency += own;
        }
        Ok(Measured { latency, log_bytes })
    })
}

fn workers(options: &BenchOptions) -> usize {
    options.workers.map_or_else(cores, |workers| workers as usize)
}

/// Shows progress until the interval ends. Returns the bytes logged in the interval.
fn watch(database: &Database, interval: Interval, acknowledged: &AtomicU64) -> u64 {
    let Interval { begin, end } = interval;
    let millis = |from: u64, to: u64| to.saturating_sub(from) / 1_000_000;
    let bar = Bar::new("measuring", millis(begin, end));
    let sleep_until = |then: u64| {
        while let left @ 1.. = then.saturating_sub(monotonic_ns()) {
            std::thread::sleep(Duration::from_nanos(left.min(100_000_000)));
            bar.set(millis(begin, monotonic_ns()));
            bar.say(format!("{} transfers", count(acknowledged.load(Relaxed) as f64)));
        }
    };
    sleep_until(begin);
    let before = database.stats().log_bytes;
    sleep_until(end);
    bar.clear();
    database.stats().log_bytes - before
}

fn new_histogram() -> Histogram<u64> {
    let mut latency = Histogram::new(3).expect("three significant digits are supported");
    latency.auto(true);
    latency
}

/// Runs transfers until the interval ends. Returns the latencies of acknowledgements within.
fn worker(
    options: &BenchOptions,
    bank: &Bank,
    database: &Database,
    number: usize,
    interval: Interval,
    acknowledged: &AtomicU64,
) -> Result<Histogram<u64>, Error> {
    let mut session = database.session()?;
    let mut queue: CommitQueue<u64> = database.commit_queue();
    let mut rng = Rng::with_seed(number as u64);
    let mut input = BankInput::default();
    let mut latency = new_histogram();
    let mut drain = |queue: &mut CommitQueue<u64>| {
        let now = monotonic_ns();
        let within = (interval.begin..interval.end).contains(&now);
        let before = latency.len();
        queue.drain(|began| {
            if within {
                latency.record((now - began) / 1_000).expect("the histogram resizes itself");
            }
        })?;
        acknowledged.fetch_add(latency.len() - before, Relaxed);
        Ok::<_, Error>(now)
    };
    let in_flight = options.in_flight as usize;
    let mut now = 0;
    while now < interval.end {
        for _ in 0..DRAIN_EVERY.min(in_flight) {
            bank.draw(&mut rng, number, &mut input);
            let began = monotonic_ns();
            let (outcome, ticket) = bank.run(&mut session, &input)?;
            match outcome {
                Err(abort) if !bank.expects(abort) => {
                    return Err(Error::Misuse(format!("a transfer aborted: {abort}")));
                }
                _ => queue.push(ticket, began),
            }
        }
        now = drain(&mut queue)?;
        while queue.len() >= in_flight {
            queue.wait_for_one()?;
            now = drain(&mut queue)?;
        }
    }
    while !queue.is_empty() {
        queue.wait_for_one()?;
        drain(&mut queue)?;
    }
    Ok(latency)
}

fn json(options: &BenchOptions, measured: &Measured, consistent: bool) -> String {
    let Measured { latency, log_bytes } = measured;
    let acknowledged = latency.len();
    let some = acknowledged > 0;
    let quantile = |q| some.then(|| latency.value_at_quantile(q));
    let per_transfer = some.then(|| *log_bytes as f64 / acknowledged as f64);
    serde_json::json!({
        "workload": "bank",
        "record": options.record,
        "workers": workers(options),
        "streams": options.streams,
        "in_flight": options.in_flight,
        "seconds": options.seconds,
        "acknowledged": acknowledged,
        "acknowledged_per_s": acknowledged as f64 / options.seconds,
        "latency_us": { "p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0) },
        "log_bytes": log_bytes,
        "log_bytes_per_transaction": per_transfer,
        "consistent": consistent,
    })
    .to_string()
}

fn text(options: &BenchOptions, place: &Place, measured: &Measured, consistent: bool) -> String {
    let Measured { latency, log_bytes } = measured;
    let acknowledged = latency.len();
    let at = |q| time(latency.value_at_quantile(q) as f64 * 1e-6);
    let each = *log_bytes as f64 / acknowledged.max(1) as f64;
    let device = machine::device_of(place.dirs.first().map(PathBuf::as_path));
    let kept = match place.is_temporary() {
        true => String::new(),
        false => format!("\n  kept in         {}", place.dirs[0].display()),
    };
    format!(
        "transfers between {} accounts: {} workers, {} in flight each, {} streams, {} records\n  \
         machine         {}; log on {device}\n  \
         acknowledged    {} in {}: {}\n  \
         latency         p50 {}, p99 {}, max {}\n  \
         log             {}: {} per transfer\n  \
         sum of money    {}{kept}",
        units::exact(options.accounts),
        workers(options),
        options.in_flight,
        options.streams,
        options.record.word(),
        machine::describe(),
        count(acknowledged as f64),
        time(options.seconds),
        rate(acknowledged as f64 / options.seconds),
        at(0.5),
        at(0.99),
        at(1.0),
        bytes(*log_bytes as f64),
        bytes(each),
        if consistent { "as it was" } else { "CHANGED" },
    )
}
