//! Taurus 2020, sections 5.5 and 5.6: the full mix, contention, parallelism at replay, long
//! transactions.

use super::setup::*;
use super::taurus_2020_memory::counts;
use crate::checks::{share, with_interval};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, LEAST, TOLERANCE, of_band, of_cost, of_fall, of_same};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![full_mix(table), contention(table), parallelism(table), accesses(table)]
}

fn bars(group: &'static str, title: &str, metric: Metric) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    Panel { group, title: title.to_string(), metric, shape }
}

fn full_mix(table: &Table<'_>) -> Experiment {
    let all = [NONE, SERIAL_COMMAND, TAURUS_DATA, TAURUS_COMMAND, SERIAL_DATA];
    let schemes = if table.size.fine { &all[..] } else { &all[..4] };
    let runs = schemes.iter().copied().map(|scheme| {
        let command = table.full_mix().under("no-wait").with(DEEP);
        let command = command.by(scheme, "memory", 1, 4);
        let command = if scheme.label == NONE.label { command } else { command.recovered() };
        command.run("Full mix", scheme.label, 0.0)
    });
    let mut runs: Vec<Run> = runs.collect();
    if table.size.fine {
        runs.extend([TAURUS_DATA, TAURUS_COMMAND].map(|scheme| {
            let command = table.full_mix().under("no-wait").with(DEEP);
            let command = command.by(scheme, "memory", 1, 1);
            command.run(FEW_STREAMS, on_one_stream(scheme), 0.0)
        }));
    }
    // The paper's axis: fewer workers, beside the runs above.
    let by_workers: Vec<Run> = if table.size.fine { mix_by_workers(table, &runs) } else { vec![] };
    let mut panels = vec![
        bars("Full mix", "(a) Logging", Metric::Throughput),
        bars("Full mix", "(b) Recovery", Metric::ReplayRate),
    ];
    panels.extend((!by_workers.is_empty()).then(|| Panel {
        group: BY_WORKERS,
        title: "(c) Logging, by workers".to_string(),
        metric: Metric::Throughput,
        shape: Shape::Lines { x: "workers", log_x: false, log_y: false },
    }));
    Experiment {
        id: "2020-full-mix",
        paper: Paper::Taurus2020,
        source: "Figure 12, section 5.5",
        title: "TPC-C, all five transactions",
        claim: "With two-phase locking Taurus is about 11.7 % below no logging. With commands it \
                recovers 12.8 times as fast as serial logging.",
        how: "The log in shared memory, four streams, two-phase locking without waiting, with all \
              inserts, deletes, scans and secondary indexes. A thread for each core replays: their \
              number limits the factor of recovery."
            .to_string(),
        differs: vec![
            format!("{} warehouses, not 80", table.size.warehouses),
            format!("{} cores, not 80 workers", table.here.cores),
            "the log in memory, not on NVMe drives".to_string(),
            "all deletes, scans and indexes of the standard, beyond the paper's".to_string(),
        ],
        runs: runs.into_iter().chain(by_workers).collect(),
        panels,
        checks: vec![
            below("Taurus data"),
            below("Taurus command"),
            Check::times("Full mix", Metric::ReplayRate, "Taurus command", "Serial command", 12.8)
                .claimed("section 5.5")
                .not_by_threads(
                    "Full mix",
                    [("Taurus command", 0.0), ("Serial command", 0.0)],
                    12.8,
                ),
        ],
        not_measured: None,
    }
}

/// The group of runs of the full mix by the number of workers.
const BY_WORKERS: &str = "Full mix by workers";

/// The given runs, with all workers, and the same runs with fewer workers, without recovery.
fn mix_by_workers(table: &Table<'_>, all: &[Run]) -> Vec<Run> {
    let mut out = Vec::new();
    for scheme in [NONE, SERIAL_COMMAND, TAURUS_DATA, TAURUS_COMMAND, SERIAL_DATA] {
        let most = f64::from(table.workers());
        for count in counts(table).into_iter().filter(|count| *count < most) {
            let command = table.full_mix().under("no-wait").with(DEEP);
            let command = command.fixed("--workers", &count.to_string());
            out.push(command.by(scheme, "memory", 1, 4).run(BY_WORKERS, scheme.label, count));
        }
        let is_same = |run: &&Run| run.group == "Full mix" && run.series == scheme.label;
        let same = all.iter().find(is_same);
        out.extend(same.map(|run| Run { group: BY_WORKERS, x: most, ..run.clone() }));
    }
    out
}

/// How far a scheme is below no logging.
fn below(series: &'static str) -> Check {
    Check::new(move |view| {
        let over = ("No logging", 0.0);
        let ratio = view.ratio("Full mix", Metric::Throughput, over, (series, 0.0))?;
        let below = share(&ratio);
        Some(Finding {
            text: format!(
                "{series} is {} % below no logging (paper: 11.7 %)",
                with_interval(&below)
            ),
            level: of_cost(&below, 11.7),
        })
    })
    .claimed("section 5.5")
    .not_by(move |view| by_streams(view, series))
    .measured_apart()
}

/// A series of the full mix with a single stream in place of four.
fn on_one_stream(scheme: Scheme) -> &'static str {
    if scheme.label == TAURUS_DATA.label { ONE_STREAM[0] } else { ONE_STREAM[1] }
}

const ONE_STREAM: [&str; 2] = ["Taurus data, one stream", "Taurus command, one stream"];
/// The group of runs with a single stream.
const FEW_STREAMS: &str = "Full mix, by streams";

/// Why logging costs more of the full mix here: four streams for two workers, where the paper has
/// one for five. With a single stream the same transactions cost less.
fn by_streams(view: &View<'_>, series: &'static str) -> Option<String> {
    let alone = if series == TAURUS_DATA.label { ONE_STREAM[0] } else { ONE_STREAM[1] };
    let rate = |group, series| view.median(group, series, 0.0, Metric::Throughput);
    let none = rate("Full mix", NONE.label)?;
    let (four, one) = (rate("Full mix", series)?, rate(FEW_STREAMS, alone)?);
    (four < none && one > four * LEAST).then(|| {
        format!(
            "with one stream in place of four it is {:.1} % below no logging: there are four \
             streams for two workers here, where the paper has one for five",
            100.0 * (1.0 - one / none)
        )
    })
}

/// The group of runs with different ways of replay.
const REPLAYED: &str = "Replay of commands";
/// Ways to replay the same command records: one by one, on all threads, on all threads from the
/// paper's pools, and the engine's own choice between the first two.
const SERIALLY: &str = "Taurus command, replayed serially";
const IN_PARALLEL: &str = "Taurus command, replayed in parallel";
const FROM_POOLS: &str = "Taurus command, replayed from pools";
const AUTOMATICALLY: &str = "Taurus command, chosen while it replays";
/// The options of each way. The last way is the default, so runs are shared with further panels.
const WAYS: [(&str, &str); 4] = [
    (SERIALLY, "--recovery serial"),
    (IN_PARALLEL, "--recovery parallel"),
    (FROM_POOLS, "--recovery pools"),
    (AUTOMATICALLY, ""),
];

fn contention_runs(table: &Table<'_>) -> Vec<Run> {
    let thetas = [0.0, 0.8, 1.2];
    let all = [NONE, SERIAL_DATA, SERIAL_COMMAND, TAURUS_DATA, TAURUS_COMMAND, PLOVER, SILO_R];
    let few = [SERIAL_COMMAND, TAURUS_COMMAND];
    let schemes = if table.size.fine { &all[..] } else { &few[..] };
    let mut runs = Vec::new();
    for theta in &thetas {
        let base = |scheme: Scheme| {
            let command = table.ycsb_with(&format!("--theta {theta} --accesses 2"));
            command.under("no-wait").with(DEEP).by(scheme, "memory", 1, 4)
        };
        for scheme in schemes {
            let command = base(*scheme);
            let command = if scheme.label == NONE.label { command } else { command.recovered() };
            runs.push(command.run("YCSB", scheme.label, *theta));
        }
        for (label, way) in WAYS {
            let command = base(TAURUS_COMMAND).recovered().with(way);
            runs.push(command.run(REPLAYED, label, *theta));
        }
        let serial = base(SERIAL_COMMAND).recovered();
        runs.push(serial.run(REPLAYED, SERIAL_COMMAND.label, *theta));
    }
    runs
}

fn contention_checks() -> Vec<Check> {
    let replay = Metric::ReplayRate;
    vec![
        Check::falls("YCSB", Metric::Throughput, "Taurus command", 0.8, 1.2)
            .claimed("section 5.6, figure 13a"),
        // The paper's recovery is that from pools; ours is shown beside it.
        Check::falls(REPLAYED, replay, FROM_POOLS, 0.8, 1.2).claimed("section 5.6, figure 13b"),
        Check::falls(REPLAYED, replay, IN_PARALLEL, 0.8, 1.2).resting_on(Basis::Context),
        Check::beside_at(REPLAYED, replay, (FROM_POOLS, 1.2), (IN_PARALLEL, 1.2)),
        Check::rises(REPLAYED, replay, SERIAL_COMMAND.label, 0.0, 1.2)
            .claimed("section 5.6, figure 13b"),
        serially_faster(FROM_POOLS).claimed("section 5.6").measured_apart(),
        serially_faster(IN_PARALLEL).resting_on(Basis::Context),
        keeps_up(0.0),
        keeps_up(1.2),
    ]
}

/// With much skew one thread replays faster than all.
fn serially_faster(all: &'static str) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(REPLAYED, Metric::ReplayRate, (SERIALLY, 1.2), (all, 1.2))?;
        Some(Finding {
            text: format!(
                "At theta 1.2 {SERIALLY} is {} times as fast as {all} (paper: faster beyond 1.0)",
                with_interval(&ratio)
            ),
            level: of_fall(&ratio.inverse()),
        })
    })
}

/// The engine's choice during replay is about as fast as the better of both ways, round by round.
fn keeps_up(theta: f64) -> Check {
    Check::new(move |view| {
        let ways = [(AUTOMATICALLY, theta), (SERIALLY, theta), (IN_PARALLEL, theta)];
        let over_better = |[chosen, one, all]: [f64; 3]| chosen / one.max(all);
        let ratio = view.by_rounds(REPLAYED, Metric::ReplayRate, ways, over_better)?;
        Some(Finding {
            text: format!(
                "At theta {theta} the way that is chosen while it replays is {} times as fast as \
                 the better of both (expected: about 1)",
                with_interval(&ratio)
            ),
            level: of_same(&ratio),
        })
    })
}

fn contention(table: &Table<'_>) -> Experiment {
    let lines = |group, title: &str, metric| Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "Zipf exponent theta", log_x: false, log_y: false },
    };
    Experiment {
        id: "2020-contention",
        paper: Paper::Taurus2020,
        source: "Figure 13, section 5.6",
        title: "Contention",
        claim: "The throughput of every scheme falls when theta exceeds 1.0. Recovery gets slower \
                with Taurus beyond 0.8, and faster with serial logging; beyond 1.0 Taurus \
                recovers serially.",
        how: "The log in shared memory, four streams, two-phase locking without waiting, one \
              column written. In panel (d) Taurus logs are replayed by one thread, by all, by all \
              from the pools of section 3.3 (`--recovery pools`), and by what the engine chooses \
              while it replays (`--recovery automatic`), which is the paper's fallback: there it \
              is expected to be about as fast as the better of the first two. The paper's claims \
              are tested of the pools, its recovery."
            .to_string(),
        differs: vec![
            format!("{} workers, not 56: far fewer conflicts", table.here.cores),
            "the log in memory, not on eight hard disks".to_string(),
            "one column is written and logged, not the row".to_string(),
            "Silo-R runs under the same locking as the others, in the paper under Silo".to_string(),
        ],
        runs: contention_runs(table),
        panels: vec![
            lines("YCSB", "(a) Logging", Metric::Throughput),
            lines("YCSB", "(b) Recovery", Metric::ReplayRate),
            lines("YCSB", "(c) Conflicts", Metric::Conflicts),
            lines(REPLAYED, "(d) Ways to recover", Metric::ReplayRate),
        ],
        checks: contention_checks(),
        not_measured: None,
    }
}

fn parallelism(table: &Table<'_>) -> Experiment {
    let thetas = table.steps(&[0.0, 0.8, 1.2], &[0.8, 1.2]);
    let mut runs = Vec::new();
    for (label, streams) in [("Taurus command, 4 streams", 4), ("Taurus command, 16 streams", 16)] {
        for theta in &thetas {
            let run = table
                .ycsb_with(&format!("--theta {theta} --accesses 2"))
                .with(&format!("--protocol taurus --record command --streams {streams}"))
                // The runner replaces LOG by a directory, and adds the output of `log stat`.
                .with("--device memory --log-dir LOG")
                .run("YCSB", label, *theta);
            runs.push(run);
        }
    }
    Experiment {
        id: "2020-parallelism",
        paper: Paper::Taurus2020,
        source: "Sections 3.5 and 5.6",
        title: "Parallelism in the log",
        claim: "Recovery loses parallelism when theta exceeds 0.8.",
        how: "From the real log: transactions over the longest chain of transactions that wait \
              for each other by their vectors (`hyades log stat`). Runs have a fixed time, so \
              faster runs have longer logs. The result does not depend on the number of \
              processors."
            .to_string(),
        differs: vec![
            "the paper measures the speed of recovery; this is what the log itself allows, and it \
             follows from the skew of the keys"
                .to_string(),
            format!("{} workers wrote the log, not 56", table.here.cores),
        ],
        runs,
        panels: vec![Panel {
            group: "YCSB",
            title: "Parallelism in the log".to_string(),
            metric: Metric::Parallelism,
            shape: Shape::Lines { x: "Zipf exponent theta", log_x: false, log_y: true },
        }],
        // The skew of the keys alone makes the chains longer, under every exact log.
        checks: ["Taurus command, 4 streams", "Taurus command, 16 streams"]
            .map(|label| {
                Check::falls("YCSB", Metric::Parallelism, label, 0.8, 1.2)
                    .claimed("section 5.6, figure 13b")
                    .resting_on(Basis::Construction)
            })
            .into(),
        not_measured: None,
    }
}

const ACCESS_SCHEMES: [Scheme; 4] = [NONE, SERIAL_DATA, TAURUS_DATA, TAURUS_COMMAND];

fn accesses(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[2.0, 20.0, 200.0, 2_000.0], &[2.0, 200.0]);
    let mut runs = Vec::new();
    for scheme in ACCESS_SCHEMES {
        for accesses in &steps {
            // Fewer transactions in flight if transactions are long, so the engine's tables fit.
            let in_flight = (16_384.0 / accesses).max(64.0) as u64;
            let options = format!("--theta 0.6 --accesses {accesses} --in-flight {in_flight}");
            let command = table.ycsb_with(&options).under("no-wait");
            let command = command.by(scheme, "memory", 1, 4);
            runs.push(command.run("YCSB", scheme.label, *accesses));
        }
    }
    let last = steps.last().copied().unwrap_or(200.0);
    Experiment {
        id: "2020-accesses",
        paper: Paper::Taurus2020,
        source: "Figure 14, section 5.6",
        title: "Long transactions",
        claim: "Throughput is inversely proportional to the number of accesses.",
        how: "The log in shared memory, four streams, two-phase locking without waiting. Panel \
              (b) has the conflicts of the same runs. Where the time goes: 2020-breakdown."
            .to_string(),
        differs: vec![
            format!("{} workers, not 56", table.here.cores),
            "the log in memory, not on disks".to_string(),
        ],
        runs,
        panels: vec![
            Panel {
                group: "YCSB",
                title: "(a) Throughput".to_string(),
                metric: Metric::Throughput,
                shape: Shape::Lines { x: "accesses per transaction", log_x: true, log_y: true },
            },
            Panel {
                group: "YCSB",
                title: "(b) Conflicts".to_string(),
                metric: Metric::Conflicts,
                shape: Shape::Lines { x: "accesses per transaction", log_x: true, log_y: false },
            },
        ],
        checks: vec![
            Check::new(move |view| {
                let at = |x| ("Taurus data", x);
                let fall = view.ratio("YCSB", Metric::Throughput, at(2.0), at(last))?;
                Some(Finding {
                    text: format!(
                        "From 2 to {last} accesses throughput falls {} times (paper: in inverse \
                         proportion, {} times)",
                        with_interval(&fall),
                        last / 2.0
                    ),
                    level: of_band(&fall, last / 2.0 / TOLERANCE, last / 2.0 * TOLERANCE),
                })
            })
            // Without contention a hundred times the work takes a hundred times as long.
            .claimed("section 5.6, figure 14")
            .resting_on(Basis::Construction),
        ],
        not_measured: None,
    }
}
