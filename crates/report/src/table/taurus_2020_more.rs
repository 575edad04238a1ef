//! Taurus 2020, sections 4.2, 5.5 and 5.6: the full mix, contention, long transactions, streams,
//! compression of vectors, parallelism at replay.

use super::*;
use crate::chart::{Line, Spread, Stack};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Check, Finding, Level, of_distance};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![
        full_mix(table),
        contention(table),
        parallelism(table),
        accesses(table),
        breakdown(table),
        streams(table),
        anchors(table),
    ]
}

fn bars(group: &'static str, title: &str, metric: Metric) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    Panel { group, title: title.to_string(), metric, shape }
}

fn full_mix(table: &Table<'_>) -> Experiment {
    let schemes = [NONE, SERIAL_DATA, SERIAL_COMMAND, TAURUS_DATA, TAURUS_COMMAND];
    let runs = schemes.map(|scheme| {
        let command = table.full_mix().with("--concurrency no-wait").with(DEEP);
        let command = command.by(scheme, "memory", 1, 4);
        let command = if scheme.label == NONE.label { command } else { command.recovered() };
        command.run("Full mix", scheme.label, 0.0)
    });
    Experiment {
        id: "2020-full-mix",
        paper: Paper::Taurus2020,
        source: "Figure 12, section 5.5",
        title: "TPC-C, all five transactions",
        claim: "With two-phase locking Taurus is about 11.7 % below no logging. With commands it \
                recovers 12.8 times as fast as serial logging.",
        how: "The log in shared memory, four streams, two-phase locking without waiting, with all \
              inserts, deletes, scans and secondary indexes. Two threads replay, so a factor of \
              two is the limit."
            .to_string(),
        runs: runs.into(),
        panels: vec![
            bars("Full mix", "(a) Logging", Metric::Throughput),
            bars("Full mix", "(b) Recovery", Metric::ReplayRate),
        ],
        checks: vec![
            Check::new(|view| {
                let none = view.median("Full mix", "No logging", 0.0, Metric::Throughput)?;
                let best = ["Taurus data", "Taurus command"]
                    .iter()
                    .filter_map(|s| view.median("Full mix", s, 0.0, Metric::Throughput))
                    .fold(0.0, f64::max);
                let below = 100.0 * (1.0 - best / none);
                Some(Finding {
                    text: format!("Taurus is {below:.1} % below no logging (paper: 11.7 %)"),
                    level: of_distance(below, 13.5, 25.0),
                })
            }),
            Check::times("Full mix", Metric::ReplayRate, "Taurus command", "Serial command", 12.8),
        ],
        not_measured: None,
    }
}

fn contention(table: &Table<'_>) -> Experiment {
    let thetas = table.steps(&[0.0, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4], &[0.0, 0.6, 0.8, 1.0, 1.2]);
    let schemes = [NONE, SERIAL_COMMAND, TAURUS_DATA, TAURUS_COMMAND, SILO_R];
    let mut runs = Vec::new();
    for scheme in schemes {
        for theta in &thetas {
            let command = table.ycsb_with(&format!("--theta {theta} --accesses 2")).with(DEEP);
            let command = command.by(scheme, "memory", 1, 4);
            let command = if scheme.label == NONE.label { command } else { command.recovered() };
            runs.push(command.run("YCSB", scheme.label, *theta));
        }
    }
    let lines = |title: &str, metric| Panel {
        group: "YCSB",
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
        how: "The log in shared memory, four streams, one column written. Two workers have far \
              fewer conflicts than 56."
            .to_string(),
        runs,
        panels: vec![
            lines("(a) Logging", Metric::Throughput),
            lines("(b) Recovery", Metric::ReplayRate),
            lines("(c) Conflicts", Metric::Conflicts),
        ],
        checks: vec![
            Check::falls("YCSB", Metric::Throughput, "Taurus command", 0.6, 1.2),
            Check::falls("YCSB", Metric::ReplayRate, "Taurus command", 0.8, 1.2),
            Check::new(|view| {
                let at = |theta| view.median("YCSB", "Serial command", theta, Metric::ReplayRate);
                let gain = at(1.2)? / at(0.0)?;
                Some(Finding {
                    text: format!(
                        "Serial command recovery at theta 1.2 is {gain:.2} times that at 0 \
                         (paper: faster)"
                    ),
                    level: if gain > 1.1 { Level::Holds } else { Level::Fails },
                })
            }),
        ],
        not_measured: None,
    }
}

fn parallelism(table: &Table<'_>) -> Experiment {
    let thetas = table.steps(&[0.0, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4], &[0.0, 0.6, 0.8, 1.0, 1.2]);
    let mut runs = Vec::new();
    for (label, streams) in [("Taurus command, 4 streams", 4), ("Taurus command, 16 streams", 16)] {
        for theta in &thetas {
            let run = table
                .ycsb_with(&format!("--theta {theta} --accesses 2"))
                .with(&format!("--protocol taurus --record command --streams {streams}"))
                // The runner replaces LOG by a directory, and adds the output of `log stat` on it.
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
        runs,
        panels: vec![Panel {
            group: "YCSB",
            title: "Parallelism in the log".to_string(),
            metric: Metric::Parallelism,
            shape: Shape::Lines { x: "Zipf exponent theta", log_x: false, log_y: true },
        }],
        checks: vec![
            Check::falls("YCSB", Metric::Parallelism, "Taurus command, 4 streams", 0.8, 1.2),
            Check::falls("YCSB", Metric::Parallelism, "Taurus command, 16 streams", 0.8, 1.2),
        ],
        not_measured: None,
    }
}

const ACCESS_SCHEMES: [Scheme; 4] = [NONE, SERIAL_DATA, TAURUS_DATA, TAURUS_COMMAND];

fn accesses(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[2.0, 20.0, 200.0, 2_000.0], &[2.0, 20.0, 200.0]);
    let mut runs = Vec::new();
    for scheme in ACCESS_SCHEMES {
        for accesses in &steps {
            // Fewer transactions in flight if they are long, so that the engine's tables fit.
            let in_flight = (16_384.0 / accesses).max(64.0) as u64;
            let options = format!(
                "--theta 0.6 --accesses {accesses} --concurrency no-wait --in-flight {in_flight}"
            );
            let command = table.ycsb_with(&options).with(PROCESSOR).by(scheme, "memory", 1, 4);
            runs.push(command.run("YCSB", scheme.label, *accesses));
        }
    }
    let last = steps.last().copied().unwrap_or(200.0);
    Experiment {
        id: "2020-accesses",
        paper: Paper::Taurus2020,
        source: "Figures 14 and 15, section 5.6",
        title: "Long transactions",
        claim: "Throughput is inversely proportional to the number of accesses. Vectors take 0.6 % \
                of the time from 2 to 200 accesses and 2.1 % at 2,000.",
        how: "The log in shared memory, four streams, two-phase locking without waiting. Panel \
              (b) is a difference of runs: the workers' processor time per transaction of Taurus \
              data logging minus that of serial data logging, over the former. It contains \
              everything that Taurus adds (vectors, the table of rows that have vectors, four \
              flushers instead of one), so it is an upper bound of the paper's figure. It \
              contains the noise between runs."
            .to_string(),
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
                title: "(b) What Taurus adds to serial data".to_string(),
                metric: Metric::WorkerTime,
                shape: Shape::Derived {
                    lines: added,
                    x: "accesses per transaction",
                    log_x: true,
                    y: "share of worker time (%)",
                },
            },
        ],
        checks: vec![
            Check::new(move |view| {
                let at = |x| view.median("YCSB", "Taurus data", x, Metric::Throughput);
                let ratio = at(2.0)? / at(last)? / (last / 2.0);
                Some(Finding {
                    text: format!(
                        "From 2 to {last} accesses throughput falls by {ratio:.2} times the number \
                         of accesses (paper: 1)"
                    ),
                    level: of_distance((ratio.ln()).abs(), 0.5, 1.1),
                })
            }),
            Check::new(move |view| {
                let lines = added(view, "YCSB");
                let (x, share) = lines.first()?.points.last()?;
                Some(Finding {
                    text: format!(
                        "At {x} accesses all that Taurus adds is {:.1} % of the time (paper, \
                         vectors alone: 0.6 to 2.1 %)",
                        share.median
                    ),
                    level: of_distance(share.median, 3.0, 10.0),
                })
            }),
        ],
        not_measured: None,
    }
}

fn added(view: &View<'_>, group: &'static str) -> Vec<Line> {
    let line = |label: &str, of: &str, over: &str| Line {
        label: label.to_string(),
        points: view
            .runs(group)
            .filter(|run| run.series == of)
            .filter_map(|run| {
                let all = worker_time(view, group, of, run.x)?;
                let base = worker_time(view, group, over, run.x)?;
                Some((run.x, Spread::one(100.0 * (all - base).max(0.0) / all)))
            })
            .collect(),
    };
    vec![line("Taurus data above serial data", "Taurus data", "Serial data")]
}

/// Where a transaction's time goes, by runs that differ in one thing.
fn breakdown(table: &Table<'_>) -> Experiment {
    // One worker, which has a core of its own; the flushers use the other.
    let base = |options: &str| {
        let command = format!("--theta 0 {options} --workers 1 --in-flight 8192");
        table.ycsb_with(&command).with(PROCESSOR)
    };
    let none =
        |options: &str, label: &str| base(options).with(NONE.options).run("YCSB", label, 0.0);
    let mut runs = vec![
        none("--accesses 2 --write-share 0", "reads 2"),
        none("--accesses 4 --write-share 0", "reads 4"),
        none("--accesses 2 --write-share 1", "writes 2"),
    ];
    let logged = |scheme: Scheme, streams: u32, label: &str| {
        base("--accesses 2 --write-share 1")
            .by(scheme, "memory", 1, streams)
            .run("YCSB", label, 0.0)
    };
    for (record, serial, taurus) in
        [("data", SERIAL_DATA, TAURUS_DATA), ("command", SERIAL_COMMAND, TAURUS_COMMAND)]
    {
        runs.push(logged(serial, 1, &format!("serial {record}")));
        runs.push(logged(taurus, 1, &format!("taurus {record} 1")));
        runs.push(logged(taurus, 4, &format!("taurus {record} 4")));
    }
    for (scheme, label) in
        [(SILO_R, "silo-r"), (POPLAR, "poplar"), (PLOVER, "plover"), (GSN, "gsn")]
    {
        runs.push(logged(scheme, 4, label));
    }
    Experiment {
        id: "2020-breakdown",
        paper: Paper::Taurus2020,
        source: "Figure 15, section 5.6; Poplar, figure 8; Taurus 2016, figure 7",
        title: "Where the time goes",
        claim: "Tuple tracking and the log buffer take most of the cost of logging; vectors take \
                0.6 to 2.1 %. Allocating a sequence number is the smallest part under every \
                scheme.",
        how: "Not from a profiler, but differences of processor time between runs that differ in \
              one thing: one worker, log in memory, two writes to uniformly chosen rows. Index \
              and read: the cost of two more reads. Lock and install: two writes minus two reads. \
              Driver and begin: the rest without a log. Record and buffer: serial logging minus \
              no logging, acknowledgement included. Tracking: what a scheme with one stream, or \
              with its sequence numbers, adds to serial logging. Vectors: four streams minus one. \
              A negative part is drawn as zero; runs differ by some percent, and so do the parts."
            .to_string(),
        runs,
        panels: vec![Panel {
            group: "YCSB",
            title: "Worker time of a transaction with two writes".to_string(),
            metric: Metric::WorkerTime,
            shape: Shape::Parts {
                stacks: parts,
                names: &[
                    "driver and begin",
                    "index and read",
                    "lock and install",
                    "record and buffer",
                    "tracking",
                    "vectors to 4 streams",
                ],
                y: "worker time / transaction (\u{b5}s)",
            },
        }],
        checks: vec![Check::new(|view| {
            let time = |series| worker_time(view, "YCSB", series, 0.0);
            let (one, four) = (time("taurus command 1")?, time("taurus command 4")?);
            let share = 100.0 * (four - one) / four;
            Some(Finding {
                text: format!(
                    "Four streams instead of one take {share:.1} % of the time of a Taurus command \
                     transaction (paper, vectors: 0.6 to 2.1 %)"
                ),
                level: of_distance(share, 3.0, 10.0),
            })
        })],
        not_measured: None,
    }
}

fn parts(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let time = |series: &str| worker_time(view, group, series, 0.0);
    let engine = || -> Option<[f64; 3]> {
        let (two, four, writes) = (time("reads 2")?, time("reads 4")?, time("writes 2")?);
        let reads = four - two;
        Some([two - reads, reads, writes - two])
    };
    let Some(engine) = engine() else { return Vec::new() };
    let base: f64 = engine.iter().sum();
    let mut out = Vec::new();
    let mut stack = |label: &str, more: Option<[f64; 3]>| {
        if let Some(more) = more {
            let parts = engine.into_iter().chain(more).collect();
            out.push(Stack { label: label.to_string(), parts });
        }
    };
    stack("No logging", Some([0.0; 3]));
    for record in ["data", "command"] {
        let serial = time(&format!("serial {record}"));
        stack(&format!("Serial {record}"), serial.map(|serial| [serial - base, 0.0, 0.0]));
        let taurus = || {
            let (one, four) =
                (time(&format!("taurus {record} 1"))?, time(&format!("taurus {record} 4"))?);
            Some([serial? - base, one - serial?, four - one])
        };
        stack(&format!("Taurus {record}"), taurus());
    }
    let serial = time("serial data");
    for (series, label) in
        [("silo-r", "Silo-R"), ("poplar", "Poplar"), ("plover", "Plover"), ("gsn", "GSN (NVM-D)")]
    {
        let numbered = || Some([serial? - base, time(series)? - serial?, 0.0]);
        stack(label, numbered());
    }
    out
}

fn streams(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[1.0, 2.0, 4.0, 8.0, 16.0], &[1.0, 4.0, 16.0]);
    let base = || {
        let command = "--theta 0.6 --accesses 2 --workers 1 --in-flight 8192";
        table.ycsb_with(command).with(PROCESSOR)
    };
    let mut runs = Vec::new();
    for streams in &steps {
        for scheme in [TAURUS_DATA, TAURUS_COMMAND] {
            let command = base().by(scheme, "memory", 1, *streams as u32);
            runs.push(command.run("YCSB", scheme.label, *streams));
        }
    }
    runs.push(base().by(SERIAL_DATA, "memory", 1, 1).run("YCSB", SERIAL_DATA.label, 1.0));
    runs.push(base().by(SERIAL_COMMAND, "memory", 1, 1).run("YCSB", SERIAL_COMMAND.label, 1.0));
    Experiment {
        id: "2020-streams",
        paper: Paper::Taurus2020,
        source: "Figure 16, section 5.6",
        title: "The number of log files",
        claim: "Vector instructions save up to 89.5 % of the overhead of LSN vectors; without \
                them the overhead grows with the number of log files.",
        how: "One worker, log in memory: its processor time per transaction with Taurus minus \
              that with serial logging of the same records. It contains everything that Taurus \
              adds, except the time of the flushers on the second core. Scalar code cannot be \
              selected for a run; `cargo bench -p hyades --bench vectors` (docs/performance.md) \
              counts the instructions that vector instructions save."
            .to_string(),
        runs,
        panels: vec![
            Panel {
                group: "YCSB",
                title: "(a) What Taurus adds to serial logging".to_string(),
                metric: Metric::WorkerTime,
                shape: Shape::Derived {
                    lines: above_serial,
                    x: "log streams",
                    log_x: true,
                    y: "worker time / transaction (ns)",
                },
            },
            Panel {
                group: "YCSB",
                title: "(b) Throughput of one worker".to_string(),
                metric: Metric::Throughput,
                shape: Shape::Lines { x: "log streams", log_x: true, log_y: false },
            },
        ],
        checks: vec![
            Check::flat("YCSB", Metric::WorkerTime, "Taurus command", 1.15),
            Check::flat("YCSB", Metric::WorkerTime, "Taurus data", 1.15),
        ],
        not_measured: None,
    }
}

fn above_serial(view: &View<'_>, group: &'static str) -> Vec<Line> {
    let line = |of: &str, over: &str| Line {
        label: of.to_string(),
        points: view
            .runs(group)
            .filter(|run| run.series == of)
            .filter_map(|run| {
                let all = worker_time(view, group, of, run.x)?;
                let base = worker_time(view, group, over, 1.0)?;
                Some((run.x, Spread::one(1e3 * (all - base).max(0.0))))
            })
            .collect(),
    };
    vec![line("Taurus data", "Serial data"), line("Taurus command", "Serial command")]
}

fn anchors(table: &Table<'_>) -> Experiment {
    let steps =
        table.steps(&[4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0], &[4.0, 32.0, 256.0]);
    let mut runs = Vec::new();
    for kilobytes in &steps {
        for streams in [4, 16] {
            let command = table
                .ycsb_with("--theta 0.6 --accesses 2 --write-share 1")
                .with(&format!("--protocol taurus --record command --streams {streams}"))
                .with(&format!("--device memory --anchor-interval {kilobytes}KiB"));
            runs.push(command.run(
                "YCSB",
                format!("Taurus command, {streams} streams"),
                *kilobytes,
            ));
        }
    }
    let lines = |title: &str, metric| Panel {
        group: "YCSB",
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "bytes between anchors (KiB)", log_x: true, log_y: false },
    };
    Experiment {
        id: "2020-anchors",
        paper: Paper::Taurus2020,
        source: "Figure 4, section 4.1",
        title: "Compression of vectors and the interval of anchors",
        claim: "Vector components at or below the last anchor are left out of a record. Anchors \
                make records shorter, but take space themselves.",
        how: "The paper has no figure for it. Command records of transactions whose accesses all \
              write; an uncompressed vector would take 8 bytes for each stream."
            .to_string(),
        runs,
        panels: vec![
            lines("(a) Log bytes", Metric::BytesPerTransaction),
            lines("(b) Throughput", Metric::Throughput),
        ],
        checks: vec![Check::new(|view| {
            let points =
                view.points("YCSB", "Taurus command, 16 streams", Metric::BytesPerTransaction);
            let four =
                view.points("YCSB", "Taurus command, 4 streams", Metric::BytesPerTransaction);
            let at = |points: &[(f64, Spread)]| {
                points.iter().find(|(x, _)| *x == 32.0).map(|(_, spread)| spread.median)
            };
            let (small, large) = (at(&four)?, at(&points)?);
            Some(Finding {
                text: format!(
                    "With anchors every 32 KiB, twelve more streams cost {:.1} bytes per \
                     transaction, of the 96 bytes of their vector components",
                    large - small
                ),
                level: of_distance(large - small, 24.0, 60.0),
            })
        })],
        not_measured: None,
    }
}
