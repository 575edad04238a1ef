//! Taurus 2020, sections 4.1 and 5.6: the cost of vectors, by streams, and by the interval of
//! anchors.

use super::setup::*;
use super::{breakdown, vectors_alone};
use crate::axis::short;
use crate::chart::Line;
use crate::checks::{share, with_interval};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, TOLERANCE, of_fall, of_limit};

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![breakdown::experiment(table), streams(table), anchors(table)]
}

/// The share of a worker's time added by Taurus to serial logging, with `last` streams.
fn added(series: &'static str, over: &'static str, last: f64) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio("YCSB", Metric::WorkerTime, (series, last), (over, last))?;
        let share = share(&ratio);
        Some(Finding {
            text: format!(
                "With {last} streams all that {series} adds to {over} is {} % of the time (paper, \
                 vectors without vector instructions: up to 13.8 %)",
                with_interval(&share)
            ),
            level: of_limit(&share, 13.8),
        })
    })
    .resting_on(Basis::Context)
}

/// Runs with vectors folded without vector instructions, by record.
const PORTABLE: [(&str, Scheme); 2] =
    [("Taurus data, --simd off", TAURUS_DATA), ("Taurus command, --simd off", TAURUS_COMMAND)];
/// Each worker always writes the same stream, as in the paper.
const FIXED: &str = "Taurus command, --stream-choice fixed";
/// Vectors with more lanes are folded with vector instructions.
const WIDE: f64 = 8.0;

fn stream_runs(table: &Table<'_>, steps: &[f64]) -> Vec<Run> {
    let mut runs = Vec::new();
    for streams in steps {
        let base = |scheme: Scheme| {
            // A worker for each stream, so that all streams are written between two anchors.
            let command = table.ycsb_with("--theta 0.6 --accesses 2 --in-flight 1024");
            let command = command.under("no-wait").workers(*streams as u32).with(PROCESSOR);
            // Segments are allocated ahead, 64 of the default size would fill the memory.
            command.with("--segment 4MiB").by(scheme, "memory", 1, *streams as u32)
        };
        for scheme in [TAURUS_DATA, TAURUS_COMMAND, SERIAL_DATA, SERIAL_COMMAND] {
            runs.push(base(scheme).run("YCSB", scheme.label, *streams));
        }
        if table.size.fine || *streams > WIDE {
            let fixed = base(TAURUS_COMMAND).with("--stream-choice fixed");
            runs.push(fixed.run("YCSB", FIXED, *streams));
        }
        for (label, scheme) in PORTABLE.into_iter().filter(|_| *streams > WIDE) {
            runs.push(base(scheme).with("--simd off").run("YCSB", label, *streams));
        }
    }
    runs
}

/// The share of Taurus's time over serial logging saved by vector instructions.
fn saved(taurus: &'static str, without: &'static str, serial: &'static str, x: f64) -> Check {
    Check::new(move |view| {
        let series = [(taurus, x), (without, x), (serial, x)];
        let saved =
            view.by_rounds("YCSB", Metric::WorkerTime, series, |[with, without, base]| {
                100.0 * (without - with) / (without - base)
            })?;
        Some(Finding {
            text: format!(
                "With {x} streams vector instructions save {} % of all that {taurus} adds to \
                 {serial}: a difference of whole runs, which hardly shows the time of vectors",
                with_interval(&saved)
            ),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Context)
}

/// Without vector instructions, Taurus's additional time grows with the number of streams.
fn grows(few: f64, many: f64) -> Check {
    let ((without, _), on, over) = (PORTABLE[1], TAURUS_COMMAND.label, SERIAL_COMMAND.label);
    Check::new(move |view| {
        // So few lanes are folded without vector instructions in any case.
        let series = [(without, many), (over, many), (on, few), (over, few)];
        let growth =
            view.by_rounds("YCSB", Metric::WorkerTime, series, |[a, b, c, d]| (a - b) / (c - d))?;
        Some(Finding {
            text: format!(
                "Without vector instructions all that {on} adds with {many} streams is {} times \
                 that with {few}: a difference of whole runs",
                with_interval(&growth)
            ),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Context)
}

fn streams(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[1.0, 4.0, 16.0, 64.0], &[4.0, 16.0]);
    let last = steps.last().copied().unwrap_or(16.0);
    // The paper's axis, with more numbers of streams: the runs are short.
    let alone = table.steps(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], &[1.0, 8.0, 64.0]);
    let mut checks = vectors_alone::checks(&alone);
    checks.extend([
        added(TAURUS_DATA.label, SERIAL_DATA.label, last),
        added(TAURUS_COMMAND.label, SERIAL_COMMAND.label, last),
        grows(4.0, last),
    ]);
    for ((without, scheme), serial) in PORTABLE.into_iter().zip([SERIAL_DATA, SERIAL_COMMAND]) {
        checks.push(saved(scheme.label, without, serial.label, last).measured_apart());
    }
    Experiment {
        id: "2020-streams",
        paper: Paper::Taurus2020,
        source: "Figure 16, section 5.6",
        title: "The number of log files",
        claim: "Vector instructions save up to 89.5 % of the overhead of LSN vectors; without \
                them the overhead grows with the number of log files.",
        how: format!(
            "{} Beside them are whole transactions: as many workers as streams, so that all lanes \
             of the vectors are in use, with the log in memory; the workers' processor time per \
             transaction with Taurus minus that with serial logging of the same records by as many \
             workers. Vectors of more than eight lanes are folded with vector instructions, or \
             without (`--simd off`). A worker moves to the stream with the least to do, or stays \
             on its own (`--stream-choice fixed`). `cargo bench -p hyades --bench vectors` \
             (docs/performance.md) counts the instructions of vectors alone.",
            vectors_alone::HOW
        ),
        differs: vec![
            vectors_alone::DIFFERS[0].to_string(),
            vectors_alone::DIFFERS[1].to_string(),
            "in (c) the difference holds all that Taurus adds, with the table of rows: a share \
             of it is lower than the same share of vectors"
                .to_string(),
            format!("up to {last} workers share {} cores; the paper has 64", table.here.cores),
        ],
        runs: vectors_alone::runs(table, &alone)
            .into_iter()
            .chain(stream_runs(table, &steps))
            .collect(),
        panels: vectors_alone::panels().into_iter().chain(whole_panels()).collect(),
        checks,
        not_measured: None,
    }
}

/// The time of whole transactions.
fn whole_panels() -> [Panel; 2] {
    let x = "log streams, and workers";
    [
        Panel {
            group: "YCSB",
            title: "(c) What Taurus adds to serial logging".to_string(),
            metric: Metric::WorkerTime,
            shape: Shape::Derived {
                lines: above_serial,
                x,
                log_x: true,
                y: "worker time / transaction (\u{b5}s)",
            },
        },
        Panel {
            group: "YCSB",
            title: "(d) Processor time".to_string(),
            metric: Metric::WorkerTime,
            shape: Shape::Lines { x, log_x: true, log_y: false },
        },
    ]
}

fn above_serial(view: &View<'_>, group: &'static str) -> Vec<Line> {
    let line = |series: &str, over: &str| Line {
        label: series.to_string(),
        points: view
            .runs(group)
            .filter(|run| run.series == series)
            .filter_map(|run| {
                let (point, over) = ((series, run.x), (over, run.x));
                Some((run.x, view.difference(group, Metric::WorkerTime, point, over)?))
            })
            .collect(),
    };
    let [(data, _), (command, _)] = PORTABLE;
    vec![
        line(TAURUS_DATA.label, SERIAL_DATA.label),
        line(data, SERIAL_DATA.label),
        line(TAURUS_COMMAND.label, SERIAL_COMMAND.label),
        line(command, SERIAL_COMMAND.label),
        line(FIXED, SERIAL_COMMAND.label),
    ]
}

/// Streams of the two series.
const ANCHORED: [(u32, &str); 2] =
    [(4, "Taurus command, 4 streams"), (16, "Taurus command, 16 streams")];
/// The group of runs with 16 streams, and uniformly chosen rows.
const NO_HOT_ROWS: &str = "YCSB, theta 0";

/// Why anchors hardly reduce the parallelism of replay: chains of hot rows are longer than chains
/// of anchors. Without hot rows, anchors do reduce the parallelism.
fn by_hot_rows(view: &View<'_>, closest: f64, farthest: f64) -> Option<String> {
    let (many, metric) = (ANCHORED[1].1, Metric::Parallelism);
    let uniform = view.ratio(NO_HOT_ROWS, metric, (many, closest), (many, farthest))?;
    let [even, hot] = [NO_HOT_ROWS, "YCSB"].map(|group| view.median(group, many, farthest, metric));
    let (even, hot) = (even?, hot?);
    (of_fall(&uniform) == Level::Holds && hot * TOLERANCE < even).then(|| {
        format!(
            "hot rows are what replay waits for: with rows chosen uniformly the same falls to {} \
             times, from {} where hot rows leave {}",
            with_interval(&uniform),
            short(even),
            short(hot)
        )
    })
}

fn anchors(table: &Table<'_>) -> Experiment {
    let steps = table.steps(&[4.0, 16.0, 128.0, 1024.0], &[4.0, 128.0]);
    let (closest, farthest) = (steps[0], steps[steps.len() - 1]);
    let mut runs = Vec::new();
    let base = |theta: f64, streams: u32, kilobytes: f64| {
        let options = format!("--theta {theta} --accesses 2 --write-share 1 --in-flight 1024");
        table
            .ycsb_with(&options)
            .under("no-wait")
            .workers(streams)
            .with(&format!("--protocol taurus --record command --streams {streams}"))
            .with(&format!("--device memory --anchor-interval {kilobytes}KiB"))
            // The runner replaces LOG by a directory, and adds the output of `log stat`.
            .with("--log-dir LOG")
    };
    for kilobytes in &steps {
        for (streams, label) in ANCHORED {
            runs.push(base(0.6, streams, *kilobytes).run("YCSB", label, *kilobytes));
        }
    }
    let (most, many) = ANCHORED[1];
    for kilobytes in [closest, farthest] {
        runs.push(base(0.0, most, kilobytes).run(NO_HOT_ROWS, many, kilobytes));
    }
    let lines = |title: &str, metric, log_y| Panel {
        group: "YCSB",
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "bytes between anchors (KiB)", log_x: true, log_y },
    };
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
              that wait for each other at replay, from the real log (`hyades log stat`). Panel \
              (d) is (c) with rows that are chosen uniformly, so that none is hot."
            .to_string(),
        differs: vec!["the paper gives no numbers: the directions are judged".to_string()],
        runs,
        panels: vec![
            lines("(a) Log bytes", Metric::BytesPerTransaction, false),
            lines("(b) Throughput", Metric::Throughput, false),
            lines("(c) Parallelism in the log", Metric::Parallelism, true),
            Panel {
                group: NO_HOT_ROWS,
                ..lines("(d) The same without hot rows", Metric::Parallelism, true)
            },
        ],
        checks: vec![
            Check::falls("YCSB", Metric::BytesPerTransaction, many, farthest, closest)
                .claimed("section 4.1"),
            Check::falls("YCSB", Metric::Parallelism, many, farthest, closest)
                .claimed("section 4.1")
                .not_by(move |view| by_hot_rows(view, closest, farthest))
                .measured_apart(),
        ],
        not_measured: None,
    }
}
