//! A primary and its standbys: figures 9 and 10 of the paper, on one machine.

use super::*;

/// Runs without transactions that span warehouses, by the number of standbys.
const BY_STANDBYS: &str = "New-Order by standbys";
/// Runs with two standbys, by the share of transactions that span warehouses.
const BY_SHARE: &str = "New-Order on three copies";

const COMMAND: &str = SERIAL_COMMAND.label;
const DATA: &str = SERIAL_DATA.label;
/// The paper's three copies of each partition.
const STANDBYS: f64 = 2.0;

/// The rows of a warehouse where time is short.
const FEW_ROWS: &str = "--items 10000 --customers 300";

/// New-Orders, of which `share` percent use a second warehouse.
fn orders(table: &Table<'_>, share: f64) -> Command {
    let warehouses = table.size.warehouses.max(2).to_string();
    let command = table.new_order().fixed("--warehouses", &warehouses).with(DEEP);
    let is_short = !table.size.fine && !table.is_test();
    let command = if is_short { command.with(FEW_ROWS) } else { command };
    let remote = format!("--home worker --remote {}", share / 100.0);
    command.fixed("--concurrency", "silo").with(&remote)
}

/// A run whose log is in lanes, which `standbys` standbys follow.
fn followed(table: &Table<'_>, scheme: Scheme, standbys: f64, share: f64) -> Command {
    let command = logged(orders(table, share).by(scheme, "memory", 1, 1), scheme);
    let mut command = command.with(&format!("--standbys {standbys}"));
    if let Some(address) = &table.axes.log_service {
        command = command.with(&format!("--log-service {address}"));
        if let Some(replicas) = table.axes.lane_replicas {
            command = command.with(&format!("--lane-replicas {replicas}"));
        }
    }
    // Reserving memory and loading; at the end the standbys replay what they have not shown.
    command.load = 0.8;
    command.seconds += 0.6 * standbys;
    command
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut runs = vec![orders(table, 0.0).with(NONE.options).run(BY_STANDBYS, NONE.label, 0.0)];
    for scheme in [SERIAL_COMMAND, SERIAL_DATA] {
        for standbys in table.steps(&[0.0, 1.0, STANDBYS], &[0.0, STANDBYS]) {
            let command = followed(table, scheme, standbys, 0.0);
            runs.push(command.run(BY_STANDBYS, scheme.label, standbys));
        }
        for share in table.steps(&[0.0, 5.0, 100.0], &[0.0, 100.0]) {
            let command = followed(table, scheme, STANDBYS, share);
            runs.push(command.run(BY_SHARE, scheme.label, share));
        }
    }
    runs
}

fn panels() -> Vec<Panel> {
    let by_standbys = |title: &str, metric| Panel {
        group: BY_STANDBYS,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "standbys", log_x: false, log_y: false },
    };
    let by_share = |title: &str, metric| Panel {
        group: BY_SHARE,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "New-Orders of two warehouses (%)", log_x: false, log_y: false },
    };
    vec![
        by_standbys("(a) The primary", Metric::Throughput),
        by_standbys("(b) All copies", Metric::CopiedRate),
        by_standbys("(c) Latency of the primary, median", Metric::LatencyP50),
        by_standbys("(d) Latency of the primary, 99th percentile", Metric::LatencyP99),
        by_standbys("(e) Lag while the workload runs", Metric::StandbyAge),
        by_standbys("(f) Lag at its end", Metric::CatchUp),
        by_standbys("(g) All copies, by processor time", Metric::CopiedPerProcessor),
        by_share("(h) Three copies, by processor time", Metric::CopiedPerProcessor),
        by_share("(i) The primary of three copies", Metric::Throughput),
    ]
}

/// Why the schemes do not meet where many transactions span warehouses: the transactions are no
/// longer than the others.
fn by_short_spans(share: f64) -> impl Fn(&View<'_>) -> Option<String> {
    move |view| {
        let at = |share| view.median(BY_SHARE, DATA, share, Metric::CopiedPerProcessor);
        let kept = at(share)? / at(0.0)?;
        (kept * TOLERANCE >= 1.0).then(|| {
            format!(
                "without partitions nothing waits for a New-Order of two warehouses: at {share} % \
                 a processor second takes {} of the transactions at 0 % with {DATA}",
                percent(kept)
            )
        })
    }
}

/// The processors' time for a transaction on all copies, in microseconds.
fn each_us(view: &View<'_>, series: &str, standbys: f64) -> Option<f64> {
    Some(1e6 / view.median(BY_STANDBYS, series, standbys, Metric::CopiedPerProcessor)?)
}

/// Why commands gain less on three copies than in the paper: the copies share the processors, and
/// running a command again takes as much of them as installing its rows.
fn by_shared_processors(view: &View<'_>) -> Option<String> {
    let times = |series| {
        let (alone, all) = (each_us(view, series, 0.0)?, each_us(view, series, STANDBYS)?);
        Some((alone, all, all / alone))
    };
    let ((alone, all, more), (alone_rows, all_rows, more_rows)) = (times(COMMAND)?, times(DATA)?);
    (more * TOLERANCE > more_rows).then(|| {
        format!(
            "three copies share the processors here: a transaction takes {} \u{b5}s of them with \
             {COMMAND}, {} times the {} of one copy, and {} with {DATA}, {} times the {} of one",
            short(all),
            short(more),
            short(alone),
            short(all_rows),
            short(more_rows),
            short(alone_rows)
        )
    })
}

/// Command logging is `paper` times as fast as data logging on all of three copies.
fn gap(share: f64, paper: f64) -> Check {
    let (metric, points) = (Metric::CopiedPerProcessor, [(COMMAND, share), (DATA, share)]);
    let check = match paper == 1.0 {
        true => Check::same_at(BY_SHARE, metric, points[0], points[1]),
        false => Check::times_at(BY_SHARE, metric, points[0], points[1], paper),
    };
    let check = check.claimed("section V-C.6, figure 10");
    match share == 0.0 {
        true => check.not_by(by_shared_processors),
        false => check.not_by(by_short_spans(share)).above_by(by_short_spans(share)),
    }
}

/// The part of the rate that a scheme keeps with two standbys; no paper has the figure.
fn kept(series: &'static str, metric: Metric) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(BY_STANDBYS, metric, (series, STANDBYS), (series, 0.0))?;
        let (what, times) = (metric.label(), with_interval(&ratio));
        let text = format!(
            "{BY_STANDBYS}, {what}: {series} with two standbys is {times} times itself without, \
             on the same processors"
        );
        Some(Finding { text, level: Level::Undecided })
    })
    .resting_on(Basis::Context)
}

fn checks(table: &Table<'_>) -> Vec<Check> {
    let rate = Metric::PerProcessor;
    let alone = [(COMMAND, 0.0), (DATA, 0.0)];
    let mut checks = vec![
        Check::times_at(BY_STANDBYS, rate, alone[0], alone[1], 1.5)
            .claimed("section V-C.6, figure 9")
            .above_by_bytes(BY_STANDBYS, 0.0, COMMAND, DATA)
            .not_by_bytes(BY_STANDBYS, alone),
        Check::same_at(BY_STANDBYS, rate, alone[0], UNLOGGED).claimed("section V-C.6, figure 9"),
        gap(0.0, 2.0),
    ];
    checks.extend(table.size.fine.then(|| gap(5.0, 1.2)));
    checks.push(gap(100.0, 1.0));
    for metric in [Metric::Throughput, Metric::CopiedRate] {
        checks.push(Check::beside(BY_SHARE, metric, COMMAND, DATA));
    }
    for series in [COMMAND, DATA] {
        checks.extend([
            kept(series, Metric::Throughput),
            kept(series, Metric::CopiedRate),
            Check::shown(BY_STANDBYS, Metric::StandbyAge, series, STANDBYS),
            Check::shown(BY_STANDBYS, Metric::CatchUp, series, STANDBYS),
        ]);
    }
    checks.push(busy(table.here.cores));
    checks
}

/// The processors that the runs had: fewer than there are if other work ran on the machine.
fn busy(cores: u32) -> Check {
    Check::new(move |view| {
        let had = |series, standbys| {
            let at = |metric| view.median(BY_STANDBYS, series, standbys, metric);
            Some(at(Metric::WorkerProcessors)? + at(Metric::OtherProcessors)?)
        };
        let (alone, all) = (had(NONE.label, 0.0)?, had(COMMAND, STANDBYS)?);
        let text = format!(
            "{BY_STANDBYS}: of {cores} processors {} had {}, and {COMMAND} with two standbys {}",
            NONE.label,
            short(alone),
            short(all)
        );
        Some(Finding { text, level: Level::Undecided })
    })
    .resting_on(Basis::Context)
}

fn how(table: &Table<'_>) -> String {
    let service = match &table.axes.log_service {
        None => "The log service is in the memory of the process: it keeps every message, answers \
                 at once, and waits for no disk and no network, so that lanes cost the least that \
                 they can cost."
            .to_string(),
        Some(_) => "The log service is NATS JetStream.".to_string(),
    };
    format!(
        "New-Order alone, as fast as the primary takes it. A primary with 0, 1 and 2 standbys in \
         one process: its log is in a file and in the lane of a log service, and a transaction is \
         acknowledged once both have it. {service} A standby reads the lane, writes files of its \
         own, and replays: commands again, one after the other, or rows. The log files are in \
         shared memory; cut marks come every 20 ms. A rate on all copies counts from the start of \
         the run until the last standby shows the last transaction. All copies share the \
         processors and use all that they get, so that the schemes are compared by the \
         transactions of a second of processor time, which other work on the machine disturbs \
         less: of primary, clients and standbys until the last standby shows the last \
         transaction. Lag is the age of the state \
         that a standby shows. At the end the digest of every standby is compared with the \
         primary's: a run whose standbys differ has no figures."
    )
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    Experiment {
        id: "command-standbys",
        paper: Paper::CommandLogging,
        source: "Figures 9 and 10, section V-C.6",
        title: "Standbys that replay commands, and standbys that replay rows",
        claim: "With one copy command logging has 1.5 times the throughput of physiological \
                logging, slightly less than without a log. With three copies of each partition \
                it has almost twice the throughput, 1.2 times if 5 % of New-Orders span \
                partitions, and the same beyond 10 %.",
        how: how(table),
        differs: vec![
            format!(
                "the primary, its clients and all standbys share {} cores, where the paper has a \
                 machine of 12 cores for each copy: what a standby does is taken from the primary",
                table.here.cores
            ),
            "a standby follows: the primary acknowledges what the log service has, and does not \
             wait until a standby has run it, as VoltDB's copies do. The rate on all copies does"
                .to_string(),
            "physiological records are not replicated: rows in one stream (serial, data), changed \
             columns without before-images, stand for them"
                .to_string(),
            "Silo, without partitions, because no standby follows a log of partitioned execution: \
             a New-Order of two warehouses occupies nothing else"
                .to_string(),
            "without a log there is no standby, so that no logging is shown for one copy alone"
                .to_string(),
            format!("{} workers on {} warehouses", table.workers(), table.size.warehouses.max(2)),
        ],
        runs: runs(table),
        panels: panels(),
        checks: checks(table),
        not_measured: None,
    }
}
