//! The Taurus report of 2016: lists of predecessors.

use super::*;
use crate::chart::Stack;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check};
use crate::scale::{FLASH, Load};

const SCHEMES: [Scheme; 7] = [
    NONE,
    SERIAL_DATA,
    TAURUS_2016_DATA,
    TAURUS_DATA,
    SERIAL_COMMAND,
    TAURUS_2016_COMMAND,
    TAURUS_COMMAND,
];

pub(super) fn experiments(table: &Table<'_>, slow: &Table<'_>) -> Vec<Experiment> {
    vec![logging(slow), recovery(slow), loggers(slow), bytes(table)]
}

/// Flushes as in the report: after 5 ms, or when half of the buffer is full. The report's 16 MB are
/// scaled like the devices.
const FLUSH: &str = "--flush-interval 5ms --flush-fill 1MiB --buffer 2MiB";

/// The report runs on TicToc, and so do its figures here.
const TICTOC: &str = "--concurrency tictoc";

/// The half of TPC-C that the report runs.
fn tpcc(table: &Table<'_>) -> Command {
    table.mixed().with(TICTOC).with(DEEP)
}

/// YCSB as in the report: uniform, two rows read and written, values passed as arguments.
fn ycsb(table: &Table<'_>) -> Command {
    let ycsb = table.ycsb_with("--theta 0 --accesses 2 --read-and-write --values argument");
    ycsb.with(TICTOC).with(DEEP)
}

fn device(table: &Table<'_>, load: Load) -> String {
    format!("{},over=memory", FLASH.device(table.rates, load))
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for scheme in SCHEMES {
        for (group, load) in [("YCSB", Load::Ycsb), ("TPC-C", Load::Mixed)] {
            let command = if group == "YCSB" { ycsb(table) } else { tpcc(table) };
            let command = command.by(scheme, &device(table, load), FLASH.devices, 1);
            let logged = scheme.label != NONE.label;
            let command = if logged { command.with(FLUSH).recovered() } else { command };
            out.push(command.run(group, scheme.label, 0.0));
        }
    }
    out
}

fn how(table: &Table<'_>) -> String {
    format!(
        "The paper has {}. Here 4 throttled devices in memory have {} MB/s for YCSB and {} MB/s \
         for TPC-C, scaled by the common rule. Two workers, under TicToc. Our TPC-C does all \
         inserts and maintains its indexes.",
        FLASH.name,
        FLASH.scaled(table.rates, Load::Ycsb),
        FLASH.scaled(table.rates, Load::Mixed)
    )
}

fn bars(
    group: &'static str,
    title: &str,
    metric: Metric,
    paper: Vec<(&'static str, &'static str, f64)>,
) -> Panel {
    Panel { group, title: title.to_string(), metric, shape: Shape::Bars { log: false, paper } }
}

fn logging(table: &Table<'_>) -> Experiment {
    let rate = Metric::Throughput;
    Experiment {
        id: "2016-logging",
        paper: Paper::Taurus2016,
        source: "Figures 5 and 6, sections 6.3 and 6.4",
        title: "Throughput, latency, traffic",
        claim: "Taurus is 3.8 (data) and 2.67 times (command) as fast as serial logging. On TPC-C \
                serial data logging has 0.29 M/s, Taurus data logging 1.09 M/s. Latency stays \
                around 5 ms, the flush interval; that of serial logging is longer, because its \
                device is saturated.",
        how: how(table),
        runs: runs(table),
        panels: vec![
            bars(
                "YCSB",
                "(a) YCSB",
                rate,
                vec![
                    ("Taurus 2016 data", "Serial data", 3.8),
                    ("Taurus 2016 command", "Serial command", 2.67),
                ],
            ),
            bars(
                "TPC-C",
                "(b) TPC-C",
                rate,
                vec![("Taurus 2016 data", "Serial data", 1.09 / 0.29)],
            ),
            bars("YCSB", "(c) YCSB, latency", Metric::LatencyP50, Vec::new()),
            bars("TPC-C", "(d) TPC-C, latency", Metric::LatencyP50, Vec::new()),
            bars("YCSB", "(e) YCSB, traffic", Metric::DeviceRate, Vec::new()),
            bars("TPC-C", "(f) TPC-C, traffic", Metric::DeviceRate, Vec::new()),
        ],
        checks: vec![
            Check::times("YCSB", rate, "Taurus 2016 data", "Serial data", 3.8)
                .resting_on(Basis::Calibrated),
            Check::times("YCSB", rate, "Taurus 2016 command", "Serial command", 2.67),
            Check::times("TPC-C", rate, "Taurus 2016 data", "Serial data", 1.09 / 0.29)
                .resting_on(Basis::Throttle),
            Check::times("YCSB", Metric::LatencyP50, "Taurus 2016 data", "Serial data", 0.8),
        ],
        not_measured: None,
    }
}

fn recovery(table: &Table<'_>) -> Experiment {
    let rate = Metric::ReplayRate;
    let bars = |group, title, paper| bars(group, title, rate, paper);
    let ratios = vec![
        ("Taurus 2016 data", "Serial data", 4.9),
        ("Taurus 2016 command", "Serial command", 9.8),
    ];
    Experiment {
        id: "2016-recovery",
        paper: Paper::Taurus2016,
        source: "Figure 8, section 6.4, abstract",
        title: "Recovery",
        claim: "Taurus recovers 4.9 (data) and 9.8 times (command) as fast as serial logging.",
        how: format!("The logs of the figure above. {}", how(table)),
        runs: runs(table),
        panels: vec![bars("YCSB", "(a) YCSB", ratios.clone()), bars("TPC-C", "(b) TPC-C", ratios)],
        checks: vec![
            Check::times("YCSB", rate, "Taurus 2016 data", "Serial data", 4.9),
            Check::times("YCSB", rate, "Taurus 2016 command", "Serial command", 9.8),
            Check::times("TPC-C", rate, "Taurus 2016 command", "Serial command", 9.8),
        ],
        not_measured: None,
    }
}

fn loggers(table: &Table<'_>) -> Experiment {
    let schemes = [
        TAURUS_DATA,
        TAURUS_COMMAND,
        TAURUS_2016_DATA,
        TAURUS_2016_COMMAND,
        SILO_R,
        PLOVER,
        POPLAR,
        GSN,
    ];
    let counts = table.steps(&[1.0, 2.0, 4.0, 8.0], &[1.0, 2.0, 4.0]);
    let last = counts.last().copied().unwrap_or(4.0);
    // Slow enough that all devices together are the bottleneck for command records of 25 bytes at a
    // quarter of our rate.
    let one = (table.rates.ycsb * 0.25 * 25.0 / 1e6 / last).clamp(0.5, 100.0);
    let device = format!("throttled:bandwidth={one:.1}MB/s,latency=100us,depth=1,over=memory");
    let base = |scheme: Scheme| {
        let words = "--theta 0 --accesses 2 --write-share 1 --buffer 128KiB --segment 512KiB";
        // A population that is not logged as commands is read back through the slow devices.
        let by_rows = [SILO_R, PLOVER, POPLAR, GSN].iter().any(|s| s.label == scheme.label);
        let rows = if by_rows { 2_000 } else { table.size.rows };
        // Two workers for each device, because a worker waits while its stream's buffer is full.
        let workers = format!("--workers {}", 2.0 * last);
        table.small_ycsb_with(rows, words).with(DEEP).with(&workers)
    };
    let mut runs = Vec::new();
    for scheme in schemes {
        for devices in &counts {
            let command = base(scheme).by(scheme, &device, *devices as u32, 1);
            runs.push(command.run("YCSB", scheme.label, *devices));
        }
    }
    for scheme in [SERIAL_DATA, SERIAL_COMMAND] {
        for devices in [1.0, last] {
            let given = if devices > 1.0 { format!("--devices {devices}") } else { String::new() };
            let command = base(scheme).by(scheme, &device, 1, 1).with(&given);
            runs.push(command.run("YCSB", scheme.label, devices));
        }
    }
    let mut checks: Vec<Check> = schemes
        .iter()
        .map(|scheme| Check::grows_with("YCSB", Metric::Throughput, scheme.label, last))
        .map(|check| check.resting_on(Basis::Throttle))
        .collect();
    checks.extend([
        Check::stays_at_one("YCSB", SERIAL_DATA.label, last),
        Check::stays_at_one("YCSB", SERIAL_COMMAND.label, last),
        Check::follows_bytes("YCSB", last, TAURUS_COMMAND.label, TAURUS_DATA.label),
        Check::follows_bytes("YCSB", 1.0, SERIAL_COMMAND.label, SERIAL_DATA.label),
    ]);
    Experiment {
        id: "2016-loggers",
        paper: Paper::Taurus2016,
        source: "Figure 9, section 6.5; Poplar, figures 6 and 9",
        title: "More devices",
        claim: "With one logger Taurus is as fast as serial logging or slightly slower. With more \
                loggers its throughput grows, and that of serial logging does not. Poplar claims \
                the same of itself and of Silo.",
        how: format!(
            "Throttled devices in memory have {one:.1} MB/s each, so that even {last} of them \
             together are the bottleneck for command records at a quarter of our rate. Each \
             device has one log stream, and there are two workers for each device of the largest \
             number. Transactions write one column of two rows; where a scheme logs its \
             population as rows there are 2,000 rows, because the population is read back from \
             the slow devices. Expected: each device adds at least 0.9 times the throughput of \
             one to a parallel scheme and nothing to serial logging, and commands exceed data by \
             the ratio of their record sizes."
        ),
        runs,
        panels: vec![
            Panel {
                group: "YCSB",
                title: "(a) Throughput".to_string(),
                metric: Metric::Throughput,
                shape: Shape::Lines { x: "devices", log_x: true, log_y: true },
            },
            Panel {
                group: "YCSB",
                title: "(b) Traffic".to_string(),
                metric: Metric::DeviceRate,
                shape: Shape::Lines { x: "devices", log_x: false, log_y: false },
            },
        ],
        checks,
        not_measured: None,
    }
}

fn bytes(table: &Table<'_>) -> Experiment {
    let mut runs = Vec::new();
    let schemes = [
        SERIAL_DATA,
        TAURUS_2016_DATA,
        TAURUS_DATA,
        SERIAL_COMMAND,
        TAURUS_2016_COMMAND,
        TAURUS_COMMAND,
    ];
    for scheme in schemes {
        let ycsb = ycsb(table).by(scheme, "memory", 1, 4).recovered();
        runs.push(ycsb.run("YCSB", scheme.label, 0.0));
        let tpcc = tpcc(table).by(scheme, "memory", 1, 4).recovered();
        runs.push(tpcc.run("TPC-C", scheme.label, 0.0));
    }
    let size = Metric::BytesPerRecord;
    Experiment {
        id: "2016-bytes",
        paper: Paper::Taurus2016,
        source: "Table 1, section 6.6",
        title: "Bytes per record",
        claim: "Redo and dependencies take 252 + 20.5 bytes (data) and 244 + 30.6 bytes (command) \
                on YCSB, and 1,899.7 + 68.5 and 196.9 + 77.8 bytes on TPC-C.",
        how: "TicToc, four streams, log in memory. Bytes of frames per replayed record, with \
              checksums and headers. The bytes of dependencies are the difference to serial \
              logging of the same records."
            .to_string(),
        runs,
        panels: vec![parts("YCSB", "(a) YCSB"), parts("TPC-C", "(b) TPC-C")],
        checks: vec![
            Check::at_most("TPC-C", size, "Serial command", 200.0),
            Check::adds_at_most("TPC-C", size, "Taurus command", "Serial command", 30.0),
            Check::at_most("YCSB", size, "Serial data", 252.0),
            Check::adds_at_most("YCSB", size, "Taurus data", "Serial data", 20.5),
            Check::at_most("YCSB", size, "Serial command", 244.0),
            Check::adds_at_most("YCSB", size, "Taurus command", "Serial command", 30.6),
            Check::at_most("YCSB", size, "Taurus data", 272.5),
            Check::at_most("YCSB", size, "Taurus command", 274.6),
            Check::at_most("TPC-C", size, "Taurus data", 1_968.2),
            Check::at_most("TPC-C", size, "Taurus command", 274.7),
            Check::at_most("YCSB", size, "Taurus 2016 data", 272.5),
            Check::at_most("TPC-C", size, "Taurus 2016 command", 274.7),
        ],
        not_measured: None,
    }
}

fn parts(group: &'static str, title: &str) -> Panel {
    Panel {
        group,
        title: title.to_string(),
        metric: Metric::BytesPerRecord,
        shape: Shape::Parts {
            stacks: split,
            names: &["redo and headers", "dependencies"],
            y: "log bytes / record",
        },
    }
}

/// Bytes of serial logging and the bytes that a scheme adds, beside those of the paper.
fn split(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let bytes = |series: &str| view.median(group, series, 0.0, Metric::BytesPerRecord);
    let mut out = Vec::new();
    let papers = match group {
        "YCSB" => [[252.0, 20.5], [244.0, 30.6]],
        _ => [[1_899.7, 68.5], [196.9, 77.8]],
    };
    for (record, paper) in ["data", "command"].into_iter().zip(papers) {
        out.push(Stack { label: format!("2016 report, {record}"), parts: paper.to_vec() });
        let Some(redo) = bytes(&format!("Serial {record}")) else { continue };
        out.push(Stack { label: format!("Serial {record}"), parts: vec![redo, 0.0] });
        for scheme in ["Taurus", "Taurus 2016"] {
            if let Some(all) = bytes(&format!("{scheme} {record}")) {
                let label = format!("{scheme} {record}");
                out.push(Stack { label, parts: vec![redo, (all - redo).max(0.0)] });
            }
        }
    }
    out
}
