//! Command logging against physiological records, 2014.

use super::*;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::Check;

const SCHEMES: [Scheme; 5] = [NONE, SERIAL_COMMAND, PHYSIOLOGICAL, SERIAL_DATA, TAURUS_COMMAND];

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![tpcc(table), latency(table), voter(), distributed()]
}

fn bars(title: &str, metric: Metric, paper: Vec<(&'static str, &'static str, f64)>) -> Panel {
    let shape = Shape::Bars { log: false, paper };
    Panel { group: "TPC-C", title: title.to_string(), metric, shape }
}

/// Group commit every 5 ms, as in the paper.
const FLUSH: &str = "--flush-interval 5ms";

fn tpcc(table: &Table<'_>) -> Experiment {
    let runs = SCHEMES.map(|scheme| {
        let command = table.full_mix().with(DEEP).by(scheme, "memory", 1, 4);
        let logged = scheme.label != NONE.label;
        let command = if logged { command.with(FLUSH).recovered() } else { command };
        command.run("TPC-C", scheme.label, 0.0)
    });
    let (rate, size) = (Metric::Throughput, Metric::BytesPerRecord);
    Experiment {
        id: "command-tpcc",
        paper: Paper::CommandLogging,
        source: "Figures 6 and 8, section V-C",
        title: "TPC-C: throughput, bytes, replay",
        claim: "Command logging has 1.5 times the throughput of physiological logging, and nearly \
                that of no logging. Its records take 50 to 170 bytes per transaction against \
                about ten times as many. Physiological records replay 1.5 times as fast. Their \
                cost is processor time: cutting them to 100 bytes gains 1 %.",
        how: "The log is in shared memory, which replaces a disk with a write cache, so that the \
              device is not the bottleneck. One stream for all schemes except Taurus; all five \
              transactions. Shortened records are not measured, because such a log cannot be \
              recovered."
            .to_string(),
        runs: runs.into(),
        panels: vec![
            bars("(a) Throughput", rate, vec![("Serial command", "Physiological", 1.5)]),
            bars("(b) Bytes", size, vec![("Physiological", "Serial command", 10.0)]),
            bars("(c) Replay", Metric::ReplayRate, vec![("Physiological", "Serial command", 1.5)]),
        ],
        checks: vec![
            Check::times("TPC-C", rate, "Serial command", "Physiological", 1.5),
            Check::same("TPC-C", rate, "Serial command", "No logging"),
            Check::times("TPC-C", size, "Physiological", "Serial command", 10.0),
            Check::times("TPC-C", Metric::ReplayRate, "Physiological", "Serial command", 1.5),
            Check::at_most("TPC-C", size, "Serial command", 170.0),
        ],
        not_measured: None,
    }
}

fn latency(table: &Table<'_>) -> Experiment {
    let rates =
        [0.2, 0.5, 0.8].map(|f| (table.rates.mixed() * 0.4 * f / 1e3).round().max(1.0) * 1e3);
    let mut runs = Vec::new();
    for scheme in [SERIAL_COMMAND, PHYSIOLOGICAL, TAURUS_COMMAND] {
        for rate in rates {
            let command = table.full_mix().with(DEEP).by(scheme, "memory", 1, 4);
            let command = command.with(FLUSH).with(&format!("--rate {rate}"));
            runs.push(command.run("TPC-C", scheme.label, rate));
        }
    }
    let metric = Metric::LatencyP50;
    let last = rates[2];
    Experiment {
        id: "command-latency",
        paper: Paper::CommandLogging,
        source: "Figures 4 and 7, section V-C",
        title: "Latency by offered load",
        claim: "At low load all schemes take 5 to 7 ms, the interval of group commit. On TPC-C \
                physiological logging is at least 45 % slower, because it saturates earlier.",
        how: "Offered loads of 8, 20 and 32 % of the rate of Payment and New-Order in memory."
            .to_string(),
        runs,
        panels: vec![Panel {
            group: "TPC-C",
            title: "TPC-C".to_string(),
            metric,
            shape: Shape::Lines {
                x: "offered load (transactions / s)",
                log_x: false,
                log_y: false,
            },
        }],
        checks: vec![Check::times_at(
            "TPC-C",
            metric,
            ("Physiological", last),
            ("Serial command", last),
            1.45,
        )],
        not_measured: None,
    }
}

fn voter() -> Experiment {
    Experiment {
        id: "command-voter",
        paper: Paper::CommandLogging,
        source: "Figures 3 to 5, section V-C",
        title: "Voter",
        claim: "Command logging against physiological logging: 95 k/s against 80 k/s, 55 bytes \
                against 81, and replay at 100 k/s against 500 k/s. Latency is 15 % longer with \
                physiological records.",
        how: String::new(),
        runs: Vec::new(),
        panels: Vec::new(),
        checks: Vec::new(),
        not_measured: Some("this build has no Voter workload"),
    }
}

fn distributed() -> Experiment {
    Experiment {
        id: "command-distributed",
        paper: Paper::CommandLogging,
        source: "Figures 9 and 10, section V-D",
        title: "Several nodes, replicas",
        claim: "Three nodes reach 2.6, 2.4 and 1.5 M tpmC without logging, with command logging, \
                and with physiological logging. The advantage disappears as more transactions \
                span partitions.",
        how: String::new(),
        runs: Vec::new(),
        panels: Vec::new(),
        checks: Vec::new(),
        not_measured: Some("the engine runs on one node"),
    }
}
