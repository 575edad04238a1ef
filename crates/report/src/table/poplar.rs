//! Poplar, section 6.

use super::*;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, of_distance};
use crate::scale::{Load, SSD};

pub(super) fn experiments(table: &Table<'_>, slow: &Table<'_>) -> Vec<Experiment> {
    vec![logging(slow), latency(table), scan(table), recovery(slow)]
}

/// The paper's central log is serial logging.
const SCHEMES: [Scheme; 6] = [SERIAL_DATA, GSN, SILO_R, POPLAR, TAURUS_DATA, TAURUS_2016_DATA];

/// GSN as the paper measured it: each worker waits for each of its transactions.
const ALONE: &str = "GSN (NVM-D), one at a time";

/// Flushes as in the paper: after 5 ms, or when half of the buffer is full. The paper's 30 MB are
/// scaled like the devices.
const FLUSH: &str = "--flush-interval 5ms --flush-fill 4MiB --buffer 8MiB";

fn device(table: &Table<'_>, load: Load) -> String {
    format!("{},over=memory", SSD.device(table.rates, load))
}

fn write_only(table: &Table<'_>) -> Command {
    table.ycsb_with("--theta 0 --accesses 1 --write-share 1 --write-columns all")
}

/// Adds [`FLUSH`], except under GSN, whose workers flush their own records as soon as they can.
fn flushed(command: Command, scheme: Scheme) -> Command {
    if scheme.label == GSN.label { command } else { command.with(FLUSH) }
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for scheme in SCHEMES {
        let ycsb = write_only(table).with(DEEP).by(scheme, &device(table, Load::Ycsb), 2, 1);
        out.push(flushed(ycsb, scheme).recovered().run("YCSB", scheme.label, 0.0));
        if scheme.label == GSN.label {
            // Each worker waits for each of its transactions.
            let alone = write_only(table).with("--in-flight 1");
            let alone = alone.by(scheme, &device(table, Load::Ycsb), 2, 1);
            out.push(alone.run("YCSB", ALONE, 0.0));
            let alone = table.mixed().with("--in-flight 1");
            let alone = alone.by(scheme, &device(table, Load::Mixed), 2, 1);
            out.push(alone.run("TPC-C", ALONE, 0.0));
        }
        let tpcc = table.mixed().with(DEEP).by(scheme, &device(table, Load::Mixed), 2, 1);
        out.push(flushed(tpcc, scheme).recovered().run("TPC-C", scheme.label, 0.0));
    }
    out
}

fn how(table: &Table<'_>) -> String {
    format!(
        "The paper has SSDs of 1.2 GB/s. Here throttled devices in memory have {} MB/s for YCSB \
         and {} MB/s for TPC-C, scaled by the common rule: two devices, and one for serial \
         logging, which is the paper's CENTR. Two workers.",
        SSD.scaled(table.rates, Load::Ycsb),
        SSD.scaled(table.rates, Load::Mixed)
    )
}

fn bars(group: &'static str, title: &str, metric: Metric, log: bool) -> Panel {
    let paper = match (metric, group) {
        (Metric::Throughput, _) | (Metric::ReplayRate, _) => {
            vec![("Poplar", "Serial data", 2.0), ("Silo-R", "Serial data", 2.0)]
        }
        _ => Vec::new(),
    };
    Panel { group, title: title.to_string(), metric, shape: Shape::Bars { log, paper } }
}

fn logging(table: &Table<'_>) -> Experiment {
    let rate = Metric::Throughput;
    Experiment {
        id: "poplar-logging",
        paper: Paper::Poplar,
        source: "Figures 5, 6 and 7, section 6.3",
        title: "Throughput and latency on two SSDs",
        claim: "Poplar and Silo have about twice the throughput of a central log. NVM-D is about \
                280 (YCSB) and 131 times (TPC-C) slower than Poplar. Silo's latency is about six \
                times that of the others.",
        how: format!(
            "{} In the paper NVM-D's workers write each transaction and wait for it. Ours has \
             group commit, and is shown both ways: with group commit, and with one transaction at \
             a time per worker. The paper has twenty workers, we have two.",
            how(table)
        ),
        runs: runs(table),
        panels: vec![
            bars("YCSB", "(a) YCSB, write-only", rate, false),
            bars("TPC-C", "(b) TPC-C", rate, false),
            bars("YCSB", "(c) YCSB, latency at full load", Metric::LatencyP50, false),
            bars("YCSB", "(d) YCSB, traffic", Metric::DeviceRate, false),
        ],
        checks: vec![
            Check::times("YCSB", rate, "Poplar", "Serial data", 2.0).resting_on(Basis::Calibrated),
            Check::times("TPC-C", rate, "Poplar", "Serial data", 2.0).resting_on(Basis::Calibrated),
            Check::same("YCSB", rate, "Poplar", "Silo-R"),
            Check::times("YCSB", rate, "Poplar", ALONE, 280.0),
            Check::times("TPC-C", rate, "Poplar", ALONE, 131.0),
        ],
        not_measured: None,
    }
}

fn latency(table: &Table<'_>) -> Experiment {
    let schemes = [SERIAL_DATA, GSN, SILO_R, POPLAR, TAURUS_DATA];
    // A fixed offered load at which no device is the bottleneck.
    let offered = (table.rates.ycsb * 0.05 / 1e3).round().max(1.0) * 1e3;
    let mut runs = Vec::new();
    for scheme in schemes {
        let command = write_only(table).with(DEEP).with(&format!("--rate {offered}"));
        let command = command.by(scheme, &device(table, Load::Ycsb), 2, 1);
        runs.push(flushed(command, scheme).run("YCSB", scheme.label, 0.0));
    }
    let median = Metric::LatencyP50;
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
            how(table)
        ),
        runs,
        panels: vec![
            bars("YCSB", "(a) Median", median, false),
            bars("YCSB", "(b) 99th percentile", Metric::LatencyP99, false),
        ],
        checks: vec![
            Check::times("YCSB", median, "Silo-R", "Poplar", 6.0),
            Check::at_most("YCSB", median, "Poplar", 5.0),
            Check::at_most("YCSB", median, "Taurus data", 5.0),
        ],
        not_measured: None,
    }
}

fn scan(table: &Table<'_>) -> Experiment {
    let lengths = table.steps(&[0.0, 10.0, 50.0, 100.0, 200.0], &[0.0, 50.0, 200.0]);
    let schemes = [SERIAL_DATA, GSN, SILO_R, POPLAR, TAURUS_DATA];
    let mut runs = Vec::new();
    for scheme in schemes {
        for length in &lengths {
            let command = table
                .ycsb_with(&format!("--theta 0 --scan-length {length}"))
                .with("--flush-interval 5ms --flush-fill 16KiB --buffer 128KiB")
                .with(DEEP)
                .with(PROCESSOR)
                .by(scheme, "nvm:factor=2,over=memory", 1, 2);
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
        how: "NVM is emulated by a busy wait for each flushed cache line, at twice the latency of \
              memory. Two streams, two workers. The paper has buffers of 1 MiB, flushed after 5 \
              ms or when a tenth is full. Here they are an eighth of that, which is about our \
              rate over the paper's."
            .to_string(),
        runs,
        panels: vec![
            lines("(a) Throughput", rate, true),
            lines("(b) Median latency", Metric::LatencyP50, true),
        ],
        checks: vec![
            Check::times("YCSB", Metric::LatencyP50, "Silo-R", "Poplar", 112.0),
            Check::same("YCSB", rate, "Poplar", "Silo-R"),
            Check::falls("YCSB", rate, "Poplar", 0.0, 200.0),
            Check::new(|view| {
                let kept = |series| {
                    let time = |x| worker_time(view, "YCSB", series, x);
                    Some(time(200.0)? / time(50.0)?)
                };
                let (gsn, ssn) = (kept("GSN (NVM-D)")?, kept("Poplar")?);
                Some(Finding {
                    text: format!(
                        "From L = 50 to L = 200 the time of a transaction grows {gsn:.2} times \
                         with GSN and {ssn:.2} times with Poplar (paper: more with GSN)"
                    ),
                    level: of_distance(ssn / gsn, 0.98, 1.05),
                })
            }),
        ],
        not_measured: None,
    }
}

fn recovery(table: &Table<'_>) -> Experiment {
    let time = Metric::ReplayRate;
    Experiment {
        id: "poplar-recovery",
        paper: Paper::Poplar,
        source: "Tables 2 and 3, figure 11, section 6.4",
        title: "Recovery from two SSDs",
        claim: "The central log recovers in 104 s, Silo and Poplar in 51 s, from 9 GB of \
                checkpoint and 77 GB of log (YCSB); in 197, 95 and 96 s from 40 and 117 GB \
                (TPC-C). Recovery from two devices is twice as fast as from one.",
        how: format!(
            "Rates instead of times, because the logs differ in length. The population is \
             recreated instead of read from a checkpoint, and not counted. {}",
            how(table)
        ),
        runs: runs(table),
        panels: vec![
            bars("YCSB", "(a) YCSB", time, false),
            bars("TPC-C", "(b) TPC-C", time, false),
        ],
        checks: vec![
            Check::times("YCSB", time, "Poplar", "Serial data", 2.04).resting_on(Basis::Throttle),
            Check::times("TPC-C", time, "Poplar", "Serial data", 2.05).resting_on(Basis::Throttle),
            Check::same("YCSB", time, "Poplar", "Silo-R"),
            Check::same("TPC-C", time, "Poplar", "Silo-R"),
        ],
        not_measured: None,
    }
}
