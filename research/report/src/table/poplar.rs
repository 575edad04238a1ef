//! Poplar, section 6.

use super::curve::{Claims, at_mark, checks, panels, throttled};
use super::setup::*;
use crate::axis::short;
use crate::chart::Spread;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, TOLERANCE, of_fall};
use crate::reasons::{percent, worker_us};
use crate::scale::SSD;

pub(super) fn experiments(table: &Table<'_>, slow: &Table<'_>) -> Vec<Experiment> {
    vec![logging(slow), latency(table), scan(table), recovery(slow)]
}

/// The paper's central log is serial logging.
const SCHEMES: [Scheme; 6] = [SERIAL_DATA, GSN, SILO_R, POPLAR, TAURUS_DATA, TAURUS_2016_DATA];

/// GSN as measured in the paper: each worker writes and syncs each transaction of the worker.
const ALONE: &str = "GSN, flushed by workers (NVM-D)";
/// The time of a write to a device, beside moving the bytes, in microseconds.
const WRITE_US: f64 = 22.0;

/// Makes workers flush their own records, as in NVM-D.
const OWN: &str = "--flushed-by workers";

/// Flushes as in the paper: after 5 ms, or when half of the buffer is full. The paper's 30 MB are
/// scaled as the devices.
const FLUSH: &str = "--flush-interval 5ms --flush-fill 4MiB --buffer 8MiB";

/// Streams for a stream of each worker's own, at most the engine's limit.
fn files(table: &Table<'_>) -> u32 {
    table.workers().clamp(1, 64)
}

fn write_only(table: &Table<'_>) -> Command {
    table.ycsb_with("--theta 0 --accesses 1 --write-share 1 --write-columns all")
}

/// Adds [`FLUSH`], except under GSN, whose workers flush their own records as soon as possible; and
/// the paper's epochs under Silo-R.
fn flushed(command: Command, scheme: Scheme) -> Command {
    match scheme.label {
        label if label == GSN.label => command,
        label if label == SILO_R.label => command.with(FLUSH).with("--epoch 50ms"),
        _ => command.with(FLUSH),
    }
}

/// Has recovery load a checkpoint of the population, of as many files in all as there are cores
/// (the paper's m x n).
fn checkpointed(table: &Table<'_>) -> String {
    let files = table.here.cores.div_ceil(SSD.devices).clamp(1, 64);
    format!("--checkpoint-population --checkpoint-files {files}")
}

/// A quick report leaves out schemes not in the paper. So do TPC-C, and a curve except at the mark.
fn is_shown(table: &Table<'_>, (group, times): (&str, f64), scheme: &Scheme) -> bool {
    table.size.fine && times == 1.0 && group == "YCSB"
        || ![TAURUS_DATA.label, TAURUS_2016_DATA.label].contains(&scheme.label)
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for times in table.bandwidths(&[1.0, 16.0], &[1.0]) {
        let device = table.device(&SSD, times);
        for (group, base) in [("YCSB", write_only(table)), ("TPC-C", table.mixed())] {
            let base = base.under("silo");
            if group == "TPC-C" && times != 1.0 {
                // The population takes longer than the runs.
                continue;
            }
            for scheme in
                SCHEMES.into_iter().filter(|scheme| is_shown(table, (group, times), scheme))
            {
                let command = base.clone().with(DEEP).by(scheme, &device, SSD.devices, 1);
                let command = flushed(command, scheme).with(&checkpointed(table)).recovered();
                out.push(command.run(group, scheme.label, times));
            }
            if times == 1.0 {
                // Each worker waits until each transaction is on the worker's device.
                let each = files(table).div_ceil(SSD.devices);
                let alone = base.with(DEEP).with(OWN).by(GSN, &device, SSD.devices, each);
                out.push(alone.run(group, ALONE, times));
            }
        }
    }
    out
}

fn differs(table: &Table<'_>) -> Vec<String> {
    let mut out = vec![
        format!("YCSB has {} rows, not 10 M", table.rows()),
        format!("TPC-C has {} warehouses, not 20, and logs changed columns", table.size.warehouses),
        format!("{} cores, not 20", table.here.cores),
        "buffers of 8 MiB, not 30, flushed after 5 ms or at half, as in the paper".to_string(),
        "the central log is ours: serial logging on one device".to_string(),
        "an SSN has an epoch in its upper bits, which Poplar does without".to_string(),
    ];
    out.extend(throttled(table, &SSD));
    out
}

/// Why workers that flush their own records lose less than in the paper: the waits of a transaction
/// on a device with this bandwidth.
fn one_by_one(view: &View<'_>, group: &str, megabytes: f64) -> Option<String> {
    let at = |metric| view.median(group, ALONE, 1.0, metric);
    let bytes = at(Metric::DeviceRate)? * 1e6 / at(Metric::Throughput)?;
    let (all, moved) = (worker_us(view, group, (ALONE, 1.0))?, bytes / megabytes);
    let explained = (WRITE_US + moved) / all;
    (explained >= 0.75).then(|| {
        format!(
            "a transaction takes a worker of {ALONE} {} \u{b5}s here, {} of them for its write: \
             {WRITE_US} as in the paper, and {} to move {} bytes at {} MB/s",
            short(all),
            percent(explained),
            short(moved),
            short(bytes),
            short(megabytes)
        )
    })
}

fn logging(table: &Table<'_>) -> Experiment {
    let rate = Metric::Throughput;
    let central = || vec![("Poplar", "Serial data", 2.0), ("Silo-R", "Serial data", 2.0)];
    let claims: [Claims; 2] = [("YCSB", central()), ("TPC-C", central())];
    let mut panels = panels(&claims, rate);
    let curve = |group, title: &str, metric| Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Curve,
    };
    panels.extend([
        curve("YCSB", "(e) YCSB, latency at full load", Metric::LatencyP50),
        curve("TPC-C", "(f) TPC-C, latency at full load", Metric::LatencyP50),
        curve("YCSB", "(g) YCSB, traffic", Metric::DeviceRate),
        curve("TPC-C", "(h) TPC-C, traffic", Metric::DeviceRate),
    ]);
    let mut checks = checks(table, &SSD, &claims, (rate, "section 6.3, figure 5"));
    let same = Check::same_at("YCSB", rate, ("Poplar", 1.0), ("Silo-R", 1.0));
    let same = same.claimed("section 6.3, figure 5");
    checks.push(at_mark(table, &SSD, same, ("YCSB", rate), ["Poplar", "Silo-R"]));
    // No two workers share a device.
    let alone = files(table) <= SSD.devices && table.axes.log_dirs.is_empty();
    let megabytes = SSD.scaled(&table.here, 1.0);
    for (group, times) in [("YCSB", 280.0), ("TPC-C", 131.0)] {
        let check = Check::times_at(group, rate, ("Poplar", 1.0), (ALONE, 1.0), times);
        let check = check.claimed("section 6.3, figure 5");
        let why = move |view: &View<'_>| one_by_one(view, group, megabytes).filter(|_| alone);
        checks.push(check.not_by(why));
    }
    let mut differs = differs(table);
    differs.extend([
        "GSN has group commit on two streams here; in a second series workers write and sync each \
         transaction to a stream of their own, as NVM-D's do"
            .to_string(),
        "latency at full load is the length of the queue, 65,536 transactions per worker, and is \
         not judged"
            .to_string(),
    ]);
    Experiment {
        id: "poplar-logging",
        paper: Paper::Poplar,
        source: "Figures 5, 6 and 7, section 6.3",
        title: "Throughput and latency on two SSDs",
        claim: "Poplar and Silo have about twice the throughput of a central log. NVM-D is about \
                280 (YCSB) and 131 times (TPC-C) slower than Poplar. Silo's latency is about six \
                times that of the others.",
        how: format!("{} Under Silo.", table.scaled(&SSD)),
        differs,
        runs: runs(table),
        panels,
        checks,
        not_measured: None,
    }
}

fn bars(title: &str, metric: Metric) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    Panel { group: "YCSB", title: title.to_string(), metric, shape }
}

fn latency(table: &Table<'_>) -> Experiment {
    let schemes = [SERIAL_DATA, GSN, SILO_R, POPLAR, TAURUS_DATA];
    // A fixed offered load at which no device is the bottleneck.
    let offered = (table.rates.ycsb * 0.05 / 1e3).round().max(1.0) * 1e3;
    let device = table.device(&SSD, 1.0);
    let mut runs = Vec::new();
    for scheme in schemes {
        let command = write_only(table).under("silo").with(DEEP);
        let command =
            command.with(&format!("--rate {offered}")).by(scheme, &device, SSD.devices, 1);
        runs.push(flushed(command, scheme).run("YCSB", scheme.label, 0.0));
    }
    let median = Metric::LatencyP50;
    let given =
        |check: Check| check.claimed("section 6.3, figure 7").resting_on(Basis::Construction);
    let mut differs = differs(table);
    differs.extend([
        "a fixed offered load, not few workers".to_string(),
        "\"short\" is read as the flush interval, 5 ms: the paper has no number".to_string(),
    ]);
    Experiment {
        id: "poplar-latency",
        paper: Paper::Poplar,
        source: "Figure 7, section 6.3",
        title: "Commit latency at low load",
        claim: "With few workers Poplar and the central log acknowledge after about 5 ms, the \
                flush interval. Silo takes about six times as long, because whole epochs become \
                durable.",
        how: format!(
            "The offered load is {offered} transactions per second, 5 % of our rate in memory. {}",
            table.scaled(&SSD)
        ),
        differs,
        runs,
        panels: vec![bars("(a) Median", median), bars("(b) 99th percentile", Metric::LatencyP99)],
        checks: vec![
            // The flush interval and the length of an epoch are settings: 5 ms, and a median of
            // half of 50 ms and a flush.
            given(Check::times("YCSB", median, "Silo-R", "Poplar", 6.0)),
            given(Check::costs("YCSB", median, "Poplar", 5.0)),
            given(Check::costs("YCSB", median, "Serial data", 5.0)),
            Check::shown("YCSB", median, "Taurus data", 0.0),
        ],
        not_measured: None,
    }
}

fn scan(table: &Table<'_>) -> Experiment {
    let lengths = [0.0, 50.0, 200.0];
    let all = [GSN, SILO_R, POPLAR, SERIAL_DATA, TAURUS_DATA];
    let schemes = if table.size.fine { &all[..] } else { &all[..3] };
    let mut runs = Vec::new();
    for scheme in schemes.iter().copied() {
        for length in &lengths {
            let own = scheme.label == GSN.label;
            let streams = if own { files(table) } else { 2 };
            let command = table
                .ycsb_with(&format!("--theta 0 --scan-length {length}"))
                .under("silo")
                .with(DEEP)
                .with(PROCESSOR)
                .by(scheme, "nvm:factor=2,over=memory", 1, streams);
            let interval = "--flush-interval 5ms --flush-fill 16KiB --buffer 128KiB";
            let command = match scheme.label {
                _ if own => command.with("--buffer 128KiB").with(OWN),
                label if label == SILO_R.label => command.with(interval).with("--epoch 50ms"),
                _ => command.with(interval),
            };
            runs.push(command.run("YCSB", scheme.label, *length));
        }
    }
    let lines = |title: &str, metric, log_y| Panel {
        group: "YCSB",
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "scan length L (rows)", log_x: false, log_y },
    };
    let rate = Metric::Throughput;
    Experiment {
        id: "poplar-scan",
        paper: Paper::Poplar,
        source: "Figure 10, section 6.3",
        title: "One write and a scan, on NVM",
        claim: "At L = 0 all schemes have the same throughput, and Silo acknowledges after 25.7 \
                ms where the others take 0.23 ms (112 times). All throughputs fall with L. The \
                cost of an SSN does not grow with L; that of a GSN does.",
        how: "The log is in mapped files, whose cache lines are flushed. A busy wait makes the \
              flushes take twice as long as was measured in memory. Two streams, under Silo. Under \
              GSN each worker stores its records into a file of its own, as NVM-D's do."
            .to_string(),
        differs: vec![
            format!("YCSB has {} rows, not 10 M; {} cores, not 20", table.rows(), table.here.cores),
            "buffers of 128 KiB, not 1 MiB, flushed after 5 ms or at an eighth, not a tenth"
                .to_string(),
            "65,536 transactions in flight per worker, where the paper's closed loop has few: \
             latency is the length of that queue and the time to write full buffers, and is not \
             judged; at a low load it would be the flush interval and half an epoch"
                .to_string(),
        ],
        runs,
        panels: vec![
            lines("(a) Throughput", rate, true),
            lines("(b) Median latency", Metric::LatencyP50, true),
        ],
        checks: vec![
            sooner_than_epochs(),
            Check::same("YCSB", rate, "Poplar", "Silo-R").claimed("section 6.3, figure 10"),
            // A scan is work, whatever the log does.
            Check::falls("YCSB", rate, "Poplar", 0.0, 200.0)
                .claimed("section 6.3, figure 10")
                .resting_on(Basis::Construction),
            grows_less(),
        ],
        not_measured: None,
    }
}

/// Poplar acknowledges before an epoch has ended. Latency with full queues is the time to drain
/// them, and latency with short ones is what the settings say: neither is a result of a protocol.
fn sooner_than_epochs() -> Check {
    Check::new(|view| {
        let median = Metric::LatencyP50;
        let ratio = view.ratio("YCSB", median, (SILO_R.label, 0.0), (POPLAR.label, 0.0))?;
        let ms = |series| Some(short(view.median("YCSB", series, 0.0, median)?));
        Some(Finding {
            text: format!(
                "YCSB, median latency (ms) with full queues: {} with Silo-R, half an epoch of 50 \
                 ms and a flush, is {} times {} with Poplar (paper: 25.7, 112 and 0.23)",
                ms(SILO_R.label)?,
                with_interval(&ratio),
                ms(POPLAR.label)?
            ),
            level: Level::Undecided,
        })
    })
    .claimed("section 6.3, figure 10")
    .resting_on(Basis::Context)
}

/// From 50 to 200 rows scanned the time of a transaction grows less with an SSN than with a GSN.
/// The interval of the quotient of both growths is the widest allowed by the growths' intervals.
fn grows_less() -> Check {
    Check::new(|view| {
        let growth =
            |series| view.ratio("YCSB", Metric::WorkerTime, (series, 200.0), (series, 50.0));
        let (gsn, ssn) = (growth(GSN.label)?, growth(POPLAR.label)?);
        let quotient = Spread {
            low: ssn.low / gsn.high,
            median: ssn.median / gsn.median,
            high: ssn.high / gsn.low,
            count: ssn.count.min(gsn.count),
            dropped: ssn.dropped.max(gsn.dropped),
        };
        Some(Finding {
            text: format!(
                "From L = 50 to L = 200 the time of a transaction grows {} times with GSN and {} \
                 times with Poplar (paper: more with GSN)",
                with_interval(&gsn),
                with_interval(&ssn)
            ),
            level: of_fall(&quotient),
        })
    })
    .claimed("section 6.3, figure 10")
    .not_by(by_scanned_rows)
}

/// Why the time with a GSN does not grow more: a GSN adds to the time of a row, but more to the
/// time without any row.
fn by_scanned_rows(view: &View<'_>) -> Option<String> {
    let row = |series| {
        let ends = [(series, 200.0), (series, 50.0)];
        let each = |[long, short]: [f64; 2]| (long - short) / 150.0;
        view.by_rounds("YCSB", Metric::WorkerTime, ends, each)
    };
    let none = |series| view.median("YCSB", series, 0.0, Metric::WorkerTime);
    let (gsn, ssn) = (row(GSN.label)?, row(POPLAR.label)?);
    let (base, ssn_base) = (none(GSN.label)?, none(POPLAR.label)?);
    (gsn.median > ssn.median && base > ssn_base * TOLERANCE).then(|| {
        format!(
            "a row of the scan takes {} \u{b5}s with GSN and {} with Poplar, but what does not \
             grow is longer with GSN, too, whose workers flush: without a scan a transaction takes \
             {} \u{b5}s with GSN and {} with Poplar",
            with_interval(&gsn),
            with_interval(&ssn),
            short(base),
            short(ssn_base)
        )
    })
}

/// The group of runs by the number of devices.
const BY_DEVICES: &str = "YCSB by devices";

fn device_runs(table: &Table<'_>) -> Vec<Run> {
    let device = table.device(&SSD, 1.0);
    // The central log has one device at any number of devices: the line is a single run.
    let schemes = if table.size.fine { &[POPLAR, SILO_R, SERIAL_DATA][..] } else { &[POPLAR][..] };
    let mut out = Vec::new();
    for scheme in schemes {
        for devices in table.steps(&[1.0, 2.0, 4.0], &[1.0, 2.0]) {
            let command = write_only(table).under("silo").with(DEEP);
            let command = command.by(*scheme, &device, devices as u32, 1);
            let command = flushed(command, *scheme).with(&checkpointed(table)).recovered();
            out.push(command.run(BY_DEVICES, scheme.label, devices));
        }
    }
    out
}

/// Two devices are read twice as fast as one.
fn twice(table: &Table<'_>) -> Check {
    let (poplar, one) = (POPLAR.label, SSD.scaled(&table.here, 1.0));
    let check = Check::times_at(BY_DEVICES, Metric::ReplayRate, (poplar, 2.0), (poplar, 1.0), 2.0);
    let check = check.claimed("section 6.4, figure 11");
    match table.axes.log_dirs.is_empty() {
        true => {
            let series = vec![(poplar, 1.0, one), (poplar, 2.0, 2.0 * one)];
            check.unless_bound(BY_DEVICES, Metric::ReplayBandwidth, series)
        }
        false => check,
    }
}

fn recovery_panels(claims: &[Claims; 2]) -> Vec<Panel> {
    let time = Metric::ReplayRate;
    let mut panels = panels(claims, time);
    panels.extend(["YCSB", "TPC-C"].into_iter().zip(panels.len() as u8..).map(|(group, at)| {
        Panel {
            group,
            title: format!("({}) {group}, loading the checkpoint", char::from(b'a' + at)),
            metric: Metric::ImageRate,
            shape: Shape::Curve,
        }
    }));
    panels.push(Panel {
        group: BY_DEVICES,
        title: "(g) YCSB, by the number of devices; the central log has one".to_string(),
        metric: time,
        shape: Shape::Lines { x: "devices", log_x: true, log_y: true },
    });
    panels.extend([("h", "YCSB"), ("i", "TPC-C")].map(|(letter, group)| Panel {
        group,
        title: format!("({letter}) {group}, checkpoint and log"),
        metric: Metric::WholeBandwidth,
        shape: Shape::Curve,
    }));
    panels
}

fn recovery(table: &Table<'_>) -> Experiment {
    let time = Metric::ReplayRate;
    let claims: [Claims; 2] = [
        ("YCSB", vec![("Poplar", "Serial data", 2.04)]),
        ("TPC-C", vec![("Poplar", "Serial data", 2.05)]),
    ];
    let place = "tables 2 and 3";
    let mut checks = checks(table, &SSD, &claims, (time, place));
    for group in ["YCSB", "TPC-C"] {
        let same = Check::same_at(group, time, ("Poplar", 1.0), ("Silo-R", 1.0)).claimed(place);
        checks.push(at_mark(table, &SSD, same, (group, time), ["Poplar", "Silo-R"]));
    }
    let loads: [Claims; 2] = [
        ("YCSB", vec![("Poplar", "Serial data", 2.04)]),
        ("TPC-C", vec![("Poplar", "Serial data", 2.07)]),
    ];
    checks.extend(self::checks(table, &SSD, &loads, (Metric::ImageRate, place)));
    // The paper's times of the whole, over as many bytes.
    let whole: [Claims; 2] = [
        ("YCSB", vec![("Poplar", "Serial data", 2.04)]),
        ("TPC-C", vec![("Poplar", "Serial data", 2.05)]),
    ];
    checks.extend(self::checks(table, &SSD, &whole, (Metric::WholeBandwidth, place)));
    checks.push(twice(table));
    let mut differs = differs(table);
    differs.extend([
        "rates instead of times, because logs differ in length: of the whole, the bytes of \
         checkpoint and log over the time of both"
            .to_string(),
        "the checkpoint is of the population".to_string(),
    ]);
    Experiment {
        id: "poplar-recovery",
        paper: Paper::Poplar,
        source: "Tables 2 and 3, figure 11, section 6.4",
        title: "Recovery from two SSDs",
        claim: "The central log recovers in 104 s, Silo and Poplar in 51 s, from 9 GB of \
                checkpoint and 77 GB of log (YCSB); in 197, 95 and 96 s from 40 and 117 GB \
                (TPC-C). The checkpoint takes 10.9 s with the central log and 5.3 s with Poplar \
                (YCSB), or 50 and 24 s (TPC-C). Recovery from two devices is twice as fast as \
                from one.",
        how: format!("The logs of the figure above. {}", table.scaled(&SSD)),
        differs,
        runs: runs(table).into_iter().chain(device_runs(table)).collect(),
        panels: recovery_panels(&claims),
        checks,
        not_measured: None,
    }
}
