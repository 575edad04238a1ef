//! Taurus 2020, sections 4.1 and 5.6: what vectors cost, by parts of the time, by streams, and by
//! the interval of anchors.

use super::*;
use crate::chart::{Line, Stack};
use crate::checks::{share, with_interval};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, of_limit};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![breakdown(table), streams(table), anchors(table)]
}

/// Runs that differ in one thing.
fn breakdown_runs(table: &Table<'_>) -> Vec<Run> {
    // One worker, which has a core of its own; the flushers use the other.
    let base = |options: &str| {
        let command = format!("--theta 0 {options} --in-flight 8192");
        table.ycsb_with(&command).under("no-wait").fixed("--workers", "1").with(PROCESSOR)
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
    runs
}

/// Where a transaction's time goes, by runs that differ in one thing.
fn breakdown(table: &Table<'_>) -> Experiment {
    Experiment {
        id: "2020-breakdown",
        paper: Paper::Taurus2020,
        source: "Figure 15, section 5.6; Poplar, figure 8",
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
        differs: vec![
            "one worker, not 56: no time for locks and for shared counters".to_string(),
            "differences of runs, not a profiler: the paper's parts are others, so none is judged"
                .to_string(),
            "one worker writes one stream at a time, so that vectors have few lanes: what four \
             streams add is a lower bound"
                .to_string(),
            "the log in memory: no time for persistence".to_string(),
        ],
        runs: breakdown_runs(table),
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
        checks: vec![
            Check::new(|view| {
                let (of, over) = (("taurus command 4", 0.0), ("taurus command 1", 0.0));
                let share = share(&view.ratio("YCSB", Metric::WorkerTime, of, over)?);
                Some(Finding {
                    text: format!(
                        "Four streams instead of one take {} % of the time of a Taurus command \
                         transaction (paper, vectors: 0.6 to 2.1 %)",
                        with_interval(&share)
                    ),
                    level: of_limit(&share, 2.1),
                })
            })
            .resting_on(Basis::Context),
        ],
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

/// The share of a worker's time that Taurus adds to serial logging, with `last` streams.
fn added(of: &'static str, over: &'static str, last: f64) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio("YCSB", Metric::WorkerTime, (of, last), (over, last))?;
        let share = share(&ratio);
        Some(Finding {
            text: format!(
                "With {last} streams all that {of} adds to {over} is {} % of the time (paper, \
                 vectors without vector instructions: up to 13.8 %)",
                with_interval(&share)
            ),
            level: of_limit(&share, 13.8),
        })
    })
    .resting_on(Basis::Context)
}

fn streams(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[1.0, 2.0, 4.0, 16.0], &[1.0, 4.0, 16.0]);
    let schemes = [TAURUS_DATA, TAURUS_COMMAND, SERIAL_DATA, SERIAL_COMMAND];
    let mut runs = Vec::new();
    for streams in &steps {
        for scheme in schemes {
            // A worker for each stream, so that all streams are written between two anchors.
            let command = table.ycsb_with("--theta 0.6 --accesses 2 --in-flight 1024");
            let command = command.under("no-wait").workers(*streams as u32).with(PROCESSOR);
            let command = command.by(scheme, "memory", 1, *streams as u32);
            runs.push(command.run("YCSB", scheme.label, *streams));
        }
    }
    let last = steps.last().copied().unwrap_or(16.0);
    Experiment {
        id: "2020-streams",
        paper: Paper::Taurus2020,
        source: "Figure 16, section 5.6",
        title: "The number of log files",
        claim: "Vector instructions save up to 89.5 % of the overhead of LSN vectors; without \
                them the overhead grows with the number of log files.",
        how: "As many workers as streams, so that all lanes of the vectors are in use; log in \
              memory. The workers' processor time per transaction with Taurus minus that with \
              serial logging of the same records by as many workers. `cargo bench -p hyades \
              --bench vectors` (docs/performance.md) counts the instructions of vectors alone."
            .to_string(),
        differs: vec![
            "vector instructions cannot be switched off in a run, so their gain is not judged"
                .to_string(),
            "the difference holds everything that Taurus adds, the table of rows included, not \
             only vectors"
                .to_string(),
            format!("up to 16 workers share {} cores; the paper has 64", table.here.cores),
        ],
        runs,
        panels: vec![
            Panel {
                group: "YCSB",
                title: "(a) What Taurus adds to serial logging".to_string(),
                metric: Metric::WorkerTime,
                shape: Shape::Derived {
                    lines: above_serial,
                    x: "log streams, and workers",
                    log_x: true,
                    y: "worker time / transaction (\u{b5}s)",
                },
            },
            Panel {
                group: "YCSB",
                title: "(b) Processor time".to_string(),
                metric: Metric::WorkerTime,
                shape: Shape::Lines { x: "log streams, and workers", log_x: true, log_y: false },
            },
        ],
        checks: vec![
            added(TAURUS_DATA.label, SERIAL_DATA.label, last),
            added(TAURUS_COMMAND.label, SERIAL_COMMAND.label, last),
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
                let (of, over) = ((of, run.x), (over, run.x));
                Some((run.x, view.difference(group, Metric::WorkerTime, of, over)?))
            })
            .collect(),
    };
    vec![line("Taurus data", "Serial data"), line("Taurus command", "Serial command")]
}

/// Streams of the two series.
const ANCHORED: [(u32, &str); 2] =
    [(4, "Taurus command, 4 streams"), (16, "Taurus command, 16 streams")];

fn anchors(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[4.0, 16.0, 128.0, 1024.0], &[4.0, 128.0]);
    let (closest, farthest) = (steps[0], steps[steps.len() - 1]);
    let mut runs = Vec::new();
    for kilobytes in &steps {
        for (streams, label) in ANCHORED {
            let command = table
                .ycsb_with("--theta 0.6 --accesses 2 --write-share 1 --in-flight 1024")
                .under("no-wait")
                .workers(streams)
                .with(&format!("--protocol taurus --record command --streams {streams}"))
                .with(&format!("--device memory --anchor-interval {kilobytes}KiB"))
                // The runner replaces LOG by a directory, and adds what `log stat` says of it.
                .with("--log-dir LOG");
            runs.push(command.run("YCSB", label, *kilobytes));
        }
    }
    let lines = |title: &str, metric, log_y| Panel {
        group: "YCSB",
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "bytes between anchors (KiB)", log_x: true, log_y },
    };
    let many = ANCHORED[1].1;
    Experiment {
        id: "2020-anchors",
        paper: Paper::Taurus2020,
        source: "Figure 4, section 4.1",
        title: "Compression of vectors: bytes against parallelism",
        claim: "Vector components at or below the last anchor are left out of a record, so that \
                frequent anchors make records shorter. At replay the anchor stands for them, so \
                that frequent anchors make records depend on more than they have to.",
        how: "The paper has no figure for it. A worker for each stream; command records of \
              transactions whose accesses all write; an uncompressed vector would take 8 bytes for \
              each stream. Panel (c) has the transactions over the longest chain of transactions \
              that wait for each other at replay, from the real log (`hyades log stat`)."
            .to_string(),
        differs: vec!["the paper gives no numbers: the directions are judged".to_string()],
        runs,
        panels: vec![
            lines("(a) Log bytes", Metric::BytesPerTransaction, false),
            lines("(b) Throughput", Metric::Throughput, false),
            lines("(c) Parallelism in the log", Metric::Parallelism, true),
        ],
        checks: vec![
            Check::falls("YCSB", Metric::BytesPerTransaction, many, farthest, closest),
            Check::falls("YCSB", Metric::Parallelism, many, farthest, closest),
        ],
        not_measured: None,
    }
}
