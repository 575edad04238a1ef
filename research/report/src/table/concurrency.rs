//! A comparison of the concurrency controls: contention, and long reads beside updates.

use super::setup::*;
use crate::chart::Spread;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Check, Finding, Level, of_band, of_fall};

/// A concurrency control, by label and name on the command line.
type Control = (&'static str, &'static str);

const SILO: Control = ("Silo", "silo");
const TICTOC: Control = ("TicToc", "tictoc");
const HEKATON: Control = ("Hekaton", "hekaton");
const TIMESTAMP_ORDER: Control = ("Timestamp order", "timestamp-order");
const NO_WAIT: Control = ("No-wait", "no-wait");
const WAIT_DIE: Control = ("Wait-die", "wait-die");
const CONTROLS: [Control; 6] = [SILO, TICTOC, HEKATON, TIMESTAMP_ORDER, NO_WAIT, WAIT_DIE];

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![contention(table), long_reads(table)]
}

/// Accesses of a transaction, the share of writes, and the group of runs.
const SHORT: (u32, &str, &str) = (2, "0.5", "2 accesses, half of them writes");
const LONG: (u32, &str, &str) = (16, "0.2", "16 accesses, a fifth of them writes");

/// The rate of a control, over the rate of Silo at the same point, is at least `aim`.
fn keeps(group: &'static str, control: Control, theta: f64, aim: f64) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(group, Metric::Throughput, (control.0, theta), (SILO.0, theta))?;
        let text = format!(
            "{group}, theta {theta}: the rate of {} is {} times that of Silo (expected: at least \
             {aim})",
            control.0,
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, aim, f64::INFINITY) })
    })
}

/// TicToc meets fewer conflicts than Silo, in long transactions on hot rows.
fn fewer_conflicts(claim: &'static str, judge: fn(&Spread) -> Level) -> Check {
    Check::new(move |view| {
        let (point, over) = ((TICTOC.0, 1.2), (SILO.0, 1.2));
        let ratio = view.ratio(LONG.2, Metric::Conflicts, point, over)?;
        let text = format!(
            "{}, theta 1.2: TicToc has {} times the conflicts of Silo ({claim})",
            LONG.2,
            with_interval(&ratio)
        );
        Some(Finding { text, level: judge(&ratio) })
    })
    .claimed("TicToc, section 5")
}

fn contention(table: &Table<'_>) -> Experiment {
    let all = [0.0, 0.6, 1.2];
    let mut runs = Vec::new();
    for ((accesses, write_share, group), few) in [(SHORT, 0.6), (LONG, 1.2)] {
        let thetas = table.steps(&all, &[few]);
        for (label, name) in CONTROLS {
            for theta in &thetas {
                let command = table.ycsb_with(&format!(
                    "--theta {theta} --accesses {accesses} --write-share {write_share} \
                     --protocol none"
                ));
                let command = command.fixed("--concurrency", name);
                runs.push(command.run(group, label, *theta));
            }
        }
    }
    let panel = |group, title: &str, metric| Panel {
        group,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x: "Zipf exponent theta", log_x: false, log_y: false },
    };
    Experiment {
        id: "concurrency-contention",
        paper: Paper::Concurrency,
        source: "TicToc, abstract and section 5; Hekaton, section 5",
        title: "Contention",
        claim: "TicToc has fewer aborts than Silo where transactions read rows that others \
                overwrite (their paper: up to 3.3 times fewer). Several versions cost a part of \
                the rate where there are no conflicts.",
        how: "YCSB without a log, one column written. Two workers meet far less often than the \
              papers' 24 to 80. Expected of two cores: 0.9, 0.85 and 0.8 times the rate of Silo \
              at theta 0.6 for TicToc, Hekaton and timestamp order; at theta 1.2 and 16 accesses \
              0.7 times the conflicts for TicToc."
            .to_string(),
        differs: vec![
            format!("{} workers, not 24 to 80, and {} rows", table.here.cores, table.rows()),
            "the expected rates are our aims; the papers have none for so few cores".to_string(),
        ],
        runs,
        panels: vec![
            panel(SHORT.2, "(a) 2 accesses", Metric::Throughput),
            panel(SHORT.2, "(b) 2 accesses, conflicts", Metric::Conflicts),
            panel(LONG.2, "(c) 16 accesses", Metric::Throughput),
            panel(LONG.2, "(d) 16 accesses, conflicts", Metric::Conflicts),
        ],
        checks: vec![
            keeps(SHORT.2, TICTOC, 0.6, 0.9),
            keeps(SHORT.2, HEKATON, 0.6, 0.85),
            keeps(SHORT.2, TIMESTAMP_ORDER, 0.6, 0.8),
            fewer_conflicts("paper: fewer", of_fall),
            fewer_conflicts("expected: at most 0.7", |ratio| of_band(ratio, 0.0, 0.7)),
        ],
        not_measured: None,
    }
}

const READS: &str = "A worker that updates, and a thread that reads the whole table";

/// A series of [`READS`].
fn series(control: Control, with: &str) -> String {
    format!("{}, {with}", control.0)
}

/// No scan of a snapshot fails.
fn never_fails(control: Control) -> Check {
    Check::new(move |view| {
        let label = series(control, "by a snapshot");
        let failed = view.at(READS, &label, 0.0, Metric::ScansFailed)?;
        let text = format!("{label}: {} scans failed (expected: none)", with_interval(&failed));
        Some(Finding { text, level: of_band(&failed, 0.0, 0.0) })
    })
}

/// A snapshot reads at least as many rows as a transaction.
fn is_as_fast(control: Control) -> Check {
    Check::new(move |view| {
        let at = |with: &str| series(control, with);
        let (snapshot, over) = (at("by a snapshot"), at("by a transaction"));
        let ratio = view.ratio(READS, Metric::ScanRate, (&snapshot, 0.0), (&over, 0.0))?;
        let times = if ratio.median.is_finite() {
            format!("{} times the rows of a transaction", with_interval(&ratio))
        } else {
            let rounds = ratio.count;
            format!("rows where no transaction reads the whole table, in {rounds} rounds")
        };
        let text = format!("{}: a snapshot reads {times} (expected: at least as many)", control.0);
        Some(Finding { text, level: of_band(&ratio, 1.0, f64::INFINITY) })
    })
}

fn long_reads(table: &Table<'_>) -> Experiment {
    let mut runs = Vec::new();
    for control in [SILO, NO_WAIT, HEKATON, TIMESTAMP_ORDER] {
        for (with, option) in [("by a snapshot", "view"), ("by a transaction", "plain")] {
            let command = table.ycsb_with(&format!(
                "--ordered --theta 0.6 --accesses 2 --write-share 1 --protocol none --scanners 1 \
                 --scan-with {option}"
            ));
            let command = command.fixed("--workers", "1").fixed("--concurrency", control.1);
            runs.push(command.run(READS, series(control, with), 0.0));
        }
    }
    let bars = |title: &str, metric| Panel {
        group: READS,
        title: title.to_string(),
        metric,
        shape: Shape::Bars { log: true, paper: Vec::new() },
    };
    Experiment {
        id: "concurrency-long-reads",
        paper: Paper::Concurrency,
        source: "Hekaton, section 5",
        title: "Long reads beside updates",
        claim: "Long reads stop the updates of a scheme that locks one version, and never end \
                where they are validated against one version. With several versions neither has \
                to wait.",
        how: "YCSB, only updates, without a log; the reading thread begins again at once. Both \
              have a core. A snapshot is a service of storage under every concurrency control: no \
              scan may fail, and it reads at least as many rows as a transaction does."
            .to_string(),
        differs: vec![
            "one worker updates and one thread reads, not many".to_string(),
            "the papers' long readers read a part of the table, ours all of it".to_string(),
        ],
        runs,
        panels: vec![
            bars("(a) Updates", Metric::Throughput),
            bars("(b) Rows read in scans that ended", Metric::ScanRate),
            bars("(c) Scans that failed", Metric::ScansFailed),
        ],
        checks: vec![
            never_fails(SILO),
            never_fails(NO_WAIT),
            never_fails(HEKATON),
            never_fails(TIMESTAMP_ORDER),
            is_as_fast(SILO),
            is_as_fast(NO_WAIT),
        ],
        not_measured: None,
    }
}
