//! Command logging against physiological records, 2014.

mod at_home;
mod choice;
mod contents;
mod differential;
pub(super) mod load;
mod reading;
mod replicated;

use super::setup::*;
use crate::axis::short;
use crate::chart::Spread;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, TOLERANCE, of_band};
use crate::reasons::{percent, worker_us};

const SCHEMES: [Scheme; 4] = [NONE, SERIAL_COMMAND, ARRIVAL, PHYSIOLOGICAL];

/// The paper's concurrency control: a site runs its partitions' transactions in sequence.
const CONTROL: &str = "partitioned";

/// The difference in all experiments of this file.
const NO_SITES: &str = "no thread owns a partition: a transaction runs on its caller's thread when \
                        its turn has come, and a call costs no hand-over between threads";

/// The paper logs a command before the transaction runs, as the scheme on arrival, which the claims
/// name. Serial command is ours.
const AT_COMMIT: &str = "serial command, which logs a command at commit, is shown beside the \
                         paper's schemes, without a claim";

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    let mut all = vec![tpcc(table), load::experiment(table), voter(table)];
    // Left out where time is short: the claim is on bytes, and bytes vary little.
    all.extend(table.size.fine.then(|| differential::experiment(table)));
    all.extend([at_home::experiment(table), spanning(table), replicated::experiment(table)]);
    all.extend([choice::experiment(table), slow_stream(table)]);
    all
}

/// Why commands are shorter than the paper's, whose format is not known: records of changes are
/// not. `claimed`: the paper's bytes of a record of changes, and of a command.
fn by_short_commands(view: &View<'_>, group: &str, claimed: [f64; 2]) -> Option<String> {
    let bytes = |series| view.median(group, series, 0.0, Metric::BytesPerRecord);
    let (changes, command) = (bytes(PHYSIOLOGICAL.label)?, bytes(ARRIVAL.label)?);
    (changes * TOLERANCE >= claimed[0] && command * TOLERANCE < claimed[1]).then(|| {
        format!(
            "the changes of a transaction take {} bytes, in the paper about {}, but its command \
             {}, in the paper about {}: in our format a procedure takes a byte or two, and a \
             number as many bytes as its value needs; the paper does not give its own",
            short(changes),
            short(claimed[0]),
            short(command),
            short(claimed[1])
        )
    })
}

/// Bytes of TPC-C: ten times as many for the changes as for a command, of about 100 bytes.
const TPCC_BYTES: [f64; 2] = [1_000.0, 100.0];
/// Bytes of a vote.
const VOTE_BYTES: [f64; 2] = [81.0, 55.0];

const PAIR: [(&str, f64); 2] = [(PHYSIOLOGICAL.label, 0.0), (ARRIVAL.label, 0.0)];
const UNLOGGED: (&str, f64) = (NONE.label, 0.0);

/// Why logging takes a larger part of a vote than in the paper: of a shorter vote.
fn by_short_votes(view: &View<'_>) -> Option<String> {
    // Six sites with 95,000 votes per second.
    const PAPER_US: f64 = 6.0 / 0.095;
    let worker_time = |point| worker_us(view, "Voter", point);
    let (none, arrival) = (worker_time(UNLOGGED)?, worker_time((ARRIVAL.label, 0.0))?);
    let more = arrival - none;
    (more > 0.0 && more * TOLERANCE < PAPER_US * (TOLERANCE - 1.0)).then(|| {
        format!(
            "a vote takes a worker {} \u{b5}s without a log, and {} more if it is logged on \
             arrival; of a vote in the paper, {} \u{b5}s of a site, as much would be {:.1} %",
            short(none),
            short(more),
            short(PAPER_US),
            100.0 * more / PAPER_US
        )
    })
}

fn bars(title: &str, metric: Metric, paper: Vec<(&'static str, &'static str, f64)>) -> Panel {
    let shape = Shape::Bars { log: false, paper };
    Panel { group: "TPC-C", title: title.to_string(), metric, shape }
}

/// Group commit every 5 ms, as in the paper.
const FLUSH: &str = "--flush-interval 5ms";

/// The paper's best physiological records have no before-images.
fn logged(command: Command, scheme: Scheme) -> Command {
    let command = if scheme.label == NONE.label { command } else { command.with(FLUSH) };
    if scheme.label == PHYSIOLOGICAL.label { command.with("--no-undo") } else { command }
}

/// All five transactions of TPC-C, partitioned by warehouse; each worker has its own warehouse.
fn partitioned_tpcc(table: &Table<'_>) -> Command {
    table.full_mix().under(CONTROL).with("--home worker").with(DEEP)
}

/// The paper's experiment on the cost of bytes.
const CUT: &str = "Physiological, cut";

/// A crash at the end, and recovery by one thread, so that replay can be compared.
fn replayed(command: Command, scheme: Scheme) -> Command {
    match scheme.label == NONE.label {
        true => command,
        false => command.recovered().with("--recovery-threads 1"),
    }
}

fn tpcc(table: &Table<'_>) -> Experiment {
    let runs = SCHEMES.map(|scheme| {
        let command = logged(partitioned_tpcc(table).by(scheme, "memory", 1, 1), scheme);
        replayed(command, scheme).run("TPC-C", scheme.label, 0.0)
    });
    let (rate, size, replay) = (Metric::Throughput, Metric::BytesPerRecord, Metric::ReplayRate);
    let mut runs: Vec<Run> = runs.into();
    let cut = partitioned_tpcc(table).by(PHYSIOLOGICAL, "memory", 1, 4);
    runs.push(logged(cut, PHYSIOLOGICAL).with("--cut-changes 100").run("TPC-C", CUT, 0.0));
    runs.extend(contents::runs(table));
    let [by_transaction, by_table] = contents::panels();
    let [beside_command, beside_rows] = contents::checks();
    let [read_commands, read_rows] = reading::checks(reading::TPCC);
    Experiment {
        id: "command-tpcc",
        paper: Paper::CommandLogging,
        source: "Figures 6 and 8, section V-C",
        title: "TPC-C: throughput, bytes, replay",
        claim: "Command logging has 1.5 times the throughput of physiological logging, and nearly \
                that of no logging. Its records take 50 to 170 bytes per transaction against \
                about ten times as many. Physiological records replay 1.5 times as fast; reading \
                them adds 8 % to replay, and commands less than 1 %. Their cost is processor \
                time: cutting them to 100 bytes gains 1 %.",
        how: "The log is in shared memory, which replaces a disk with a write cache, so that the \
              device is not the bottleneck. Partitions are ranges of warehouses. One stream for \
              all schemes; all five transactions. Physiological records without before-images, as \
              in the paper's best figures; cut: 100 bytes of each transaction. Replay by one \
              thread each. Panels (e) and (f) count what is in the logs of further runs (`hyades \
              log stat`)."
            .to_string(),
        differs: vec![
            NO_SITES.to_string(),
            format!("{} workers on {} warehouses", table.here.cores, table.size.warehouses),
            AT_COMMIT.to_string(),
            "no snapshot is written beside the run".to_string(),
        ],
        runs,
        panels: vec![
            bars("(a) Throughput", rate, vec![(ARRIVAL.label, PHYSIOLOGICAL.label, 1.5)]),
            bars("(b) Bytes", size, vec![(PHYSIOLOGICAL.label, ARRIVAL.label, 10.0)]),
            bars(
                "(c) Replay by one thread",
                replay,
                vec![(PHYSIOLOGICAL.label, ARRIVAL.label, 1.5)],
            ),
            reading::panel("TPC-C"),
            by_transaction,
            by_table,
        ],
        checks: vec![
            Check::times("TPC-C", rate, ARRIVAL.label, PHYSIOLOGICAL.label, 1.5)
                .claimed("section V-C.1, figure 6"),
            Check::same("TPC-C", rate, ARRIVAL.label, NONE.label)
                .claimed("section V-C.1, figure 6"),
            Check::times("TPC-C", size, PHYSIOLOGICAL.label, ARRIVAL.label, 10.0)
                .claimed("section V-C.3")
                .above_by(|view| by_short_commands(view, "TPC-C", TPCC_BYTES)),
            Check::times("TPC-C", replay, PHYSIOLOGICAL.label, ARRIVAL.label, 1.5)
                .claimed("section V-C.5, figure 8")
                .not_by_replay_time("TPC-C", PAIR, UNLOGGED),
            within("TPC-C", ARRIVAL.label, 50.0, 170.0).claimed("section V-C.3"),
            Check::times("TPC-C", rate, CUT, PHYSIOLOGICAL.label, 1.01).claimed("section V-C.4"),
            read_commands,
            read_rows,
            beside_command,
            beside_rows,
        ],
        not_measured: None,
    }
}

/// The bytes of a record lie in a range of the paper's.
fn within(group: &'static str, series: &'static str, from: f64, to: f64) -> Check {
    Check::new(move |view| {
        let ours = view.at(group, series, 0.0, Metric::BytesPerRecord)?;
        let text = format!(
            "{group}: a record of {series} has {} bytes (paper: {from} to {to})",
            with_interval(&ours)
        );
        Some(Finding { text, level: of_band(&ours, from, to) })
    })
}

fn partitioned_voter(table: &Table<'_>) -> Command {
    table.voter().under(CONTROL).with(DEEP)
}

fn voter(table: &Table<'_>) -> Experiment {
    let runs = SCHEMES.map(|scheme| {
        let command = logged(partitioned_voter(table).by(scheme, "memory", 1, 1), scheme);
        replayed(command, scheme).run("Voter", scheme.label, 0.0)
    });
    let (rate, size, replay) = (Metric::Throughput, Metric::BytesPerRecord, Metric::ReplayRate);
    let bars = |title: &str, metric, pair: (&'static str, &'static str), ratio| Panel {
        group: "Voter",
        title: title.to_string(),
        metric,
        shape: Shape::Bars { log: false, paper: vec![(pair.0, pair.1, ratio)] },
    };
    let (command, physiological) = (ARRIVAL.label, PHYSIOLOGICAL.label);
    let [read_commands, read_rows] = reading::checks(reading::VOTES);
    Experiment {
        id: "command-voter",
        paper: Paper::CommandLogging,
        source: "Figures 3 and 5, section V-C",
        title: "Voter",
        claim: "Command logging against physiological logging: 95 k/s against 80 k/s, 55 bytes \
                against 81, and replay at 100 k/s against 500 k/s, to which reading the log \
                adds less than 1 % against 30 %.",
        how: "Votes with a limit for each caller; the log is in shared memory, one stream. \
              Physiological records without before-images. Replay by one thread each."
            .to_string(),
        differs: vec![
            NO_SITES.to_string(),
            format!("{} workers, not six sites", table.here.cores),
            AT_COMMIT.to_string(),
            "no clients and no network: a call costs a fraction of VoltDB's, so the log's share is \
             another"
                .to_string(),
        ],
        runs: runs.into(),
        panels: vec![
            bars("(a) Throughput", rate, (command, physiological), 1.19),
            bars("(b) Bytes", size, (physiological, command), 1.47),
            bars("(c) Replay by one thread", replay, (physiological, command), 5.0),
            reading::panel("Voter"),
        ],
        checks: vec![
            Check::times("Voter", rate, command, physiological, 1.19)
                .claimed("section V-C.1, figure 3"),
            Check::same("Voter", rate, command, NONE.label)
                .claimed("section V-C.1, figure 3")
                .not_by(by_short_votes),
            Check::costs("Voter", size, command, 55.0)
                .claimed("section V-C.3")
                .above_by(|view| by_short_commands(view, "Voter", VOTE_BYTES)),
            Check::costs("Voter", size, physiological, 81.0).claimed("section V-C.3"),
            Check::times("Voter", replay, physiological, command, 5.0)
                .claimed("section V-C.5, figure 5")
                .not_by_replay_time("Voter", PAIR, UNLOGGED),
            read_commands,
            read_rows,
        ],
        not_measured: None,
    }
}

/// The rows of the transactions under a control without partitions.
const SHARED: &str = "Shared rows, Taurus command";
/// Threads with partitions of their own, as in the paper.
const SITES: &str = "Two sites, on arrival";

/// Shares of New-Orders that span partitions, in percent.
const SHARES: [f64; 6] = [0.0, 1.0, 5.0, 10.0, 50.0, 100.0];

/// New-Orders, by the share of New-Orders that span partitions.
fn spanning_runs(table: &Table<'_>, group: &'static str) -> Vec<Run> {
    let mut runs = Vec::new();
    for share in table.steps(&SHARES, &[0.0, 50.0, 100.0]) {
        let orders = || {
            let remote = format!("--home worker --remote {}", share / 100.0);
            let warehouses = table.size.warehouses.max(2).to_string();
            table.new_order().fixed("--warehouses", &warehouses).with(DEEP).with(&remote)
        };
        // Physiological records run only at the shares of the paper's figure.
        let is_of_paper = [0.0, 50.0, 100.0].contains(&share);
        for scheme in [ARRIVAL, PHYSIOLOGICAL] {
            if is_of_paper || scheme.label == ARRIVAL.label {
                let command = orders().under(CONTROL).by(scheme, "memory", 1, 1);
                runs.push(logged(command, scheme).run(group, scheme.label, share));
            }
        }
        if share == 50.0 && !table.size.fine {
            continue;
        }
        let sites = orders().fixed("--concurrency", CONTROL).with("--sites 2");
        let sites = sites.by(ARRIVAL, "memory", 1, 1);
        runs.push(sites.with(FLUSH).run(group, SITES, share));
        if share == 1.0 || share == 5.0 {
            continue;
        }
        let shared = orders().fixed("--concurrency", "silo").by(TAURUS_COMMAND, "memory", 1, 4);
        runs.push(shared.with(FLUSH).run(group, SHARED, share));
    }
    runs
}

/// A scheme is nowhere slower than a second scheme.
fn not_below(
    group: &'static str,
    series: &'static str,
    over: &'static str,
    shares: &[f64],
) -> Vec<Check> {
    let at = |share: &f64| {
        let share = *share;
        Check::new(move |view| {
            let metric = Metric::Throughput;
            let ratio = view.ratio(group, metric, (series, share), (over, share))?;
            Some(Finding {
                text: format!(
                    "{group} at {share} %: {series} is {} times {over} (expected: at least 1)",
                    with_interval(&ratio)
                ),
                level: of_band(&ratio, 1.0, f64::INFINITY),
            })
        })
    };
    shares.iter().map(at).collect()
}

/// A scheme keeps the part `part` of its own rate at 0 % where `share` percent span partitions.
fn keeps_own(group: &'static str, series: &'static str, share: f64, part: f64) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(group, Metric::Throughput, (series, share), (series, 0.0))?;
        let text = format!(
            "{group}: {series} at {share} % is {} times that at 0 % (expected: at least {part})",
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, part, f64::INFINITY) })
    })
}

/// Where the rate of `over` exceeds the rate of `series`; no paper claims the point.
fn crossing(group: &'static str, series: &'static str, over: &'static str) -> Check {
    Check::new(move |view| {
        let at = |(share, _): (f64, Spread)| {
            let ratio = view.ratio(group, Metric::Throughput, (series, share), (over, share))?;
            Some((share, ratio))
        };
        let points = view.points(group, series, Metric::Throughput);
        let ratios: Vec<(f64, Spread)> = points.into_iter().filter_map(at).collect();
        let last = ratios.last()?;
        let text = match ratios.iter().find(|(_, ratio)| ratio.median < 1.0) {
            Some((share, ratio)) => format!(
                "{group}: at {share} % the rate of {over} exceeds that of {series}, which is {} \
                 times it",
                with_interval(ratio)
            ),
            None => format!(
                "{group}: {series} is nowhere slower than {over}; at {} % it is {} times it",
                last.0,
                with_interval(&last.1)
            ),
        };
        Some(Finding { text, level: Level::Undecided })
    })
    .resting_on(Basis::Context)
}

/// Transactions that span partitions, on one node.
fn spanning(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "New-Order";
    const PLACE: &str = "section V-C.6, figure 9";
    let metric = Metric::Throughput;
    let (command, physiological) = (ARRIVAL.label, PHYSIOLOGICAL.label);
    let mut checks = vec![
        Check::times_at(GROUP, metric, (command, 0.0), (physiological, 0.0), 1.5)
            .claimed(PLACE)
            .not_by_bytes(GROUP, [(command, 0.0), (physiological, 0.0)]),
        Check::times_at(GROUP, metric, (command, 50.0), (physiological, 50.0), 1.4)
            .claimed(PLACE)
            .not_by_bytes(GROUP, [(command, 50.0), (physiological, 50.0)]),
        Check::same_at(GROUP, metric, (command, 100.0), (physiological, 100.0))
            .claimed(PLACE)
            .not_by_bytes(GROUP, [(command, 100.0), (physiological, 100.0)]),
    ];
    // A transaction that has two partitions to itself keeps others from both, whatever the log.
    checks.extend([command, SITES].map(|series| {
        let falls = Check::falls(GROUP, metric, series, 0.0, 100.0);
        falls.claimed(PLACE).resting_on(Basis::Construction)
    }));
    let shares: &[f64] = if table.size.fine { &SHARES } else { &[0.0, 100.0] };
    checks.extend(not_below(GROUP, command, SITES, shares));
    checks.extend(table.size.fine.then(|| keeps_own(GROUP, command, 10.0, 0.9)));
    checks.push(crossing(GROUP, command, SHARED));
    Experiment {
        id: "command-spanning",
        paper: Paper::CommandLogging,
        source: "Figure 9, section V-C",
        title: "Transactions that span partitions",
        claim: "On one node command logging has 1.5 times the throughput of physiological logging \
                if no New-Order spans partitions, still 1.4 times at 50 %, and the same at 100 %. \
                Throughput falls with the share.",
        how: "New-Order alone; the share of those with items of a second warehouse. The log is in \
              shared memory. Beside it the same transactions run by two sites, threads that own \
              the partitions, to which the workers post their calls; and under Silo, with Taurus. \
              What is expected of turns is ours: beside sites, and that at 10 % they keep 0.9 of \
              their own rate at 0 %. Where the rates of turns and of Silo cross is shown, without \
              a claim."
            .to_string(),
        differs: vec![
            format!("without sites {NO_SITES}"),
            "what spans partitions waits for no messages between nodes".to_string(),
            "the clients share the processors with the sites".to_string(),
            format!("{} workers on {} warehouses", table.here.cores, table.size.warehouses),
        ],
        runs: spanning_runs(table, GROUP),
        panels: vec![Panel {
            group: GROUP,
            title: GROUP.to_string(),
            metric,
            shape: Shape::Lines {
                x: "New-Orders that span partitions (%)",
                log_x: false,
                log_y: false,
            },
        }],
        checks,
        not_measured: None,
    }
}

/// One of four streams is on a device twenty times slower.
fn slow_stream(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Voter";
    const DEVICE: &str = "throttled:bandwidth=100MB/s,latency=1ms,depth=1,over=memory";
    let all = [ARRIVAL, TAURUS_COMMAND];
    let schemes = if table.size.fine { &all[..] } else { &all[..1] };
    let mut runs = Vec::new();
    for scheme in schemes.iter().copied() {
        for slow in [1.0, 20.0] {
            let command = table.voter().emulated().fixed("--concurrency", CONTROL);
            let command = command.with("--in-flight 8192 --rate 20000").by(scheme, DEVICE, 4, 1);
            let last = DEVICE.replace("latency=1ms", &format!("latency={slow}ms"));
            let command = command.with(&format!("--last-device {last}"));
            runs.push(command.run(GROUP, scheme.label, slow));
        }
    }
    let lines = |title: &str, metric| Panel {
        group: GROUP,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "a write to the slow device (ms)", log_x: true, log_y: true },
    };
    let expected = |scheme: &Scheme| Check::waits(GROUP, scheme.label, (1.0, 20.0), 1.3, true);
    let checks = schemes.iter().map(expected).collect();
    Experiment {
        id: "command-slow-stream",
        paper: Paper::CommandLogging,
        source: "section III, on one command log for each node",
        title: "One stream is slow",
        claim: "A call waits for its own record, and for those of the calls before it in its \
                partitions. So a slow stream does not delay calls of other partitions.",
        how:
            "20,000 votes per second. Four streams, each on a device whose writes take 1 ms; those \
              of the last one take as long as the axis says. A session moves to the stream with \
              the least to do. Expected, by our rule: the median grows 1.3 times at most. The \
              throughput is the offered load."
                .to_string(),
        differs: vec![
            "the paper has one log for each node, and no figure of this".to_string(),
            NO_SITES.to_string(),
        ],
        runs,
        panels: vec![
            lines("(a) Median", Metric::LatencyP50),
            lines("(b) 99th percentile", Metric::LatencyP99),
        ],
        checks,
        not_measured: None,
    }
}
