//! The Taurus report of 2016: lists of predecessors.

use super::curve::{Claims, checks, panels, throttled};
use super::*;
use crate::chart::Stack;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, of_fall};
use crate::scale::FLASH;

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
const TICTOC: &str = "tictoc";

/// The half of TPC-C that the report runs.
fn tpcc(table: &Table<'_>) -> Command {
    table.mixed().under(TICTOC).with(DEEP)
}

/// YCSB as in the report: uniform, two rows read and written, values passed as arguments.
fn ycsb(table: &Table<'_>) -> Command {
    let ycsb = table.ycsb_with("--theta 0 --accesses 2 --read-and-write --values argument");
    ycsb.under(TICTOC).with(DEEP)
}

/// A workload under a scheme. A transaction of YCSB touches one field of a row, of 100 bytes. Data
/// records of TPC-C, by their length in table 1, hold whole rows.
fn of(table: &Table<'_>, group: &str, scheme: Scheme) -> Command {
    let command = if group == "YCSB" { ycsb(table) } else { tpcc(table) };
    let whole = group == "TPC-C" && scheme.options.ends_with("data");
    if whole { command.with("--whole-rows") } else { command }
}

const GROUPS: [&str; 2] = ["YCSB", "TPC-C"];

/// TPC-C, whose population takes longer than its runs, has two bandwidths, and one in a quick
/// report.
fn is_run(table: &Table<'_>, group: &str, times: f64) -> bool {
    group == "YCSB" || times == 1.0 || table.size.fine && times == 16.0
}

/// A quick report leaves out what the report of 2016 does not have.
fn is_shown(table: &Table<'_>, scheme: &Scheme) -> bool {
    table.size.fine
        || ![TAURUS_DATA.label, TAURUS_COMMAND.label, NONE.label].contains(&scheme.label)
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for times in table.bandwidths(&[1.0, 16.0], &[1.0]) {
        let device = table.device(&FLASH, times);
        for group in GROUPS.into_iter().filter(|group| is_run(table, group, times)) {
            for scheme in SCHEMES.into_iter().filter(|scheme| is_shown(table, scheme)) {
                let command = of(table, group, scheme).by(scheme, &device, FLASH.devices, 1);
                let logged = scheme.label != NONE.label;
                let command = if logged { command.with(FLUSH).recovered() } else { command };
                out.push(command.run(group, scheme.label, times));
            }
        }
    }
    out
}

fn differs(table: &Table<'_>) -> Vec<String> {
    let mut out = vec![
        format!("YCSB has {} rows", table.size.rows),
        format!("TPC-C has {} warehouses, not 32", table.size.warehouses),
        format!("{} cores, not 32 with 64 threads", table.here.cores),
        "buffers of 2 MiB, not 16, flushed after 5 ms or at half, as in the report".to_string(),
        "TPC-C does all inserts and maintains its indexes".to_string(),
        "serial logs of data are replayed by all threads here (the last writer of a row wins), the \
         report's by one"
            .to_string(),
        "each worker has up to 65,536 transactions in flight: latency at full load is the length \
         of that queue, not the report's, and is shown only"
            .to_string(),
    ];
    out.extend(throttled(table, &FLASH));
    out
}

fn curve(group: &'static str, title: &str, metric: Metric) -> Panel {
    Panel { group, title: title.to_string(), metric, shape: Shape::Curve }
}

fn logging(table: &Table<'_>) -> Experiment {
    let rate = Metric::Throughput;
    let claims: [Claims; 2] = [
        (
            "YCSB",
            vec![
                ("Taurus 2016 data", "Serial data", 3.8),
                ("Taurus 2016 command", "Serial command", 2.67),
            ],
        ),
        ("TPC-C", vec![("Taurus 2016 data", "Serial data", 3.76)]),
    ];
    let mut panels = panels(&claims, rate);
    panels.extend([
        curve("YCSB", "(e) YCSB, latency", Metric::LatencyP50),
        curve("TPC-C", "(f) TPC-C, latency", Metric::LatencyP50),
        curve("YCSB", "(g) YCSB, traffic", Metric::DeviceRate),
        curve("TPC-C", "(h) TPC-C, traffic", Metric::DeviceRate),
    ]);
    let mut checks = checks(table, &FLASH, &claims, rate);
    checks.push(shorter_latency());
    Experiment {
        id: "2016-logging",
        paper: Paper::Taurus2016,
        source: "Figures 5 and 6, sections 6.3 and 6.4",
        title: "Throughput, latency, traffic",
        claim: "Taurus is 3.8 (data) and 2.67 times (command) as fast as serial logging. On TPC-C \
                serial data logging has 0.29 M/s, Taurus data logging 1.09 M/s. Latency stays \
                around 5 ms, the flush interval; that of serial logging is longer, because its \
                device is saturated.",
        how: format!(
            "{} Under TicToc; whole rows logged on TPC-C, one column of 100 \
                      bytes on YCSB.",
            table.scaled(&FLASH)
        ),
        differs: differs(table),
        runs: runs(table),
        panels,
        checks,
        not_measured: None,
    }
}

fn shorter_latency() -> Check {
    Check::new(|view| {
        let (of, over) = (("Taurus 2016 data", 1.0), ("Serial data", 1.0));
        let ratio = view.ratio("YCSB", Metric::LatencyP50, of, over)?;
        Some(Finding {
            text: format!(
                "YCSB, median latency with full queues: Taurus 2016 data has {} times that of \
                 serial data",
                with_interval(&ratio)
            ),
            level: of_fall(&ratio),
        })
    })
    .resting_on(Basis::Context)
}

fn recovery(table: &Table<'_>) -> Experiment {
    let rate = Metric::ReplayRate;
    let ratios = vec![
        ("Taurus 2016 data", "Serial data", 4.9),
        ("Taurus 2016 command", "Serial command", 9.8),
    ];
    let claims: [Claims; 2] =
        [("YCSB", ratios), ("TPC-C", vec![("Taurus 2016 command", "Serial command", 9.8)])];
    Experiment {
        id: "2016-recovery",
        paper: Paper::Taurus2016,
        source: "Figure 8, section 6.4, abstract",
        title: "Recovery",
        claim: "Taurus recovers 4.9 (data) and 9.8 times (command) as fast as serial logging.",
        how: format!("The logs of the figure above. {}", table.scaled(&FLASH)),
        differs: differs(table),
        runs: runs(table),
        panels: panels(&claims, rate),
        checks: checks(table, &FLASH, &claims, rate),
        not_measured: None,
    }
}

/// Rows of every series of [`loggers`]: where a scheme logs its population as rows, it is read back
/// through the devices.
const LOGGED_ROWS: u64 = 10_000;

/// The schemes of [`loggers`]; the first four are judged by the report's claim.
const PARALLEL: [Scheme; 8] = [
    TAURUS_2016_DATA,
    TAURUS_2016_COMMAND,
    TAURUS_DATA,
    TAURUS_COMMAND,
    SILO_R,
    PLOVER,
    POPLAR,
    GSN,
];

fn logger_runs(table: &Table<'_>, counts: &[f64], most: f64) -> Vec<Run> {
    let device = table.device(&FLASH, 1.0);
    let base = |scheme: Scheme| {
        let words = "--theta 0 --accesses 2 --read-and-write --values argument";
        let command = table.small_ycsb_with(LOGGED_ROWS, words).with(DEEP);
        // These are not sound under TicToc (crates/hyades/src/opening/pairs.rs).
        let numbered = [PLOVER.label, POPLAR.label, GSN.label].contains(&scheme.label);
        let command = command.under(if numbered { "silo" } else { TICTOC });
        let command = command.small("--buffer 512KiB");
        // Two workers for each device, because a worker waits while its stream's buffer is full.
        command.workers(2 * most as u32)
    };
    let mut out = Vec::new();
    for scheme in PARALLEL {
        for devices in counts {
            let command = base(scheme).by(scheme, &device, *devices as u32, 1);
            out.push(command.run("YCSB", scheme.label, *devices));
        }
    }
    for scheme in [SERIAL_DATA, SERIAL_COMMAND] {
        for devices in [1.0, most] {
            let command = base(scheme).with(scheme.options).on(&device, devices as u32);
            out.push(command.run("YCSB", scheme.label, devices));
        }
    }
    out
}

fn logger_checks(table: &Table<'_>, most: f64) -> Vec<Check> {
    let rate = Metric::Throughput;
    let all = most * FLASH.scaled(&table.here, 1.0);
    let mut out = Vec::new();
    for (at, scheme) in PARALLEL.iter().enumerate() {
        let check = Check::rises("YCSB", rate, scheme.label, 1.0, most);
        out.push(match at {
            0..4 if table.axes.log_dirs.is_empty() => {
                check.unless_bound("YCSB", Metric::DeviceRate, most, vec![(scheme.label, all)])
            }
            0..4 => check,
            _ => check.resting_on(Basis::Context),
        });
    }
    for label in [SERIAL_DATA.label, SERIAL_COMMAND.label] {
        out.push(Check::same_at("YCSB", rate, (label, most), (label, 1.0)));
    }
    for (of, over) in
        [("Taurus 2016 data", "Serial data"), ("Taurus 2016 command", "Serial command")]
    {
        let check = Check::same_at("YCSB", rate, (of, 1.0), (over, 1.0));
        // One device at x = 1, also for a scheme that has four elsewhere.
        let one = FLASH.scaled(&table.here, 1.0);
        out.push(if table.axes.log_dirs.is_empty() {
            check.unless_bound("YCSB", Metric::DeviceRate, 1.0, vec![(of, one), (over, one)])
        } else {
            check
        });
    }
    let follows = Check::follows_bytes("YCSB", most, TAURUS_COMMAND.label, TAURUS_DATA.label);
    out.push(follows.resting_on(Basis::Context));
    out
}

fn loggers(table: &Table<'_>) -> Experiment {
    let counts = table.steps(&[1.0, 2.0, 4.0], &[1.0, 4.0]);
    let most = counts.last().copied().unwrap_or(4.0);
    let rows = table.size.rows.min(LOGGED_ROWS);
    let mut differs = differs(table);
    differs.extend([
        format!("{rows} rows in all series, because some read them back through the devices"),
        "figure 9b, TPC-C, is not repeated".to_string(),
        "Silo-R, Plover, Poplar and GSN are not in the report and are not judged; the last three \
         run under Silo, because they are not sound under TicToc"
            .to_string(),
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
            "{} A log stream for each device, and two workers for each device of the largest \
             number. Transactions read and write two rows, and the values are their arguments, so \
             that commands are as long as data, as in the report.",
            table.scaled(&FLASH)
        ),
        differs,
        runs: logger_runs(table, &counts, most),
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
        checks: logger_checks(table, most),
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
    for scheme in schemes.into_iter().filter(|scheme| is_shown(table, scheme)) {
        for group in GROUPS {
            let command = of(table, group, scheme).by(scheme, "memory", 1, 4).recovered();
            runs.push(command.run(group, scheme.label, 0.0));
        }
    }
    let size = Metric::BytesPerRecord;
    let shown = table.size.fine;
    let mut checks = Vec::new();
    for (group, [data, command]) in GROUPS.map(|group| (group, table_1(group))) {
        checks.extend([
            Check::costs(group, size, "Serial data", data[0]),
            Check::adds(group, size, "Taurus 2016 data", "Serial data", data[1]),
            Check::costs(group, size, "Serial command", command[0]),
            Check::adds(group, size, "Taurus 2016 command", "Serial command", command[1]),
        ]);
        if shown {
            let ours = ["Taurus data", "Taurus command"];
            checks.extend(ours.map(|label| Check::shown(group, size, label, 0.0)));
        }
    }
    Experiment {
        id: "2016-bytes",
        paper: Paper::Taurus2016,
        source: "Table 1, section 6.6",
        title: "Bytes per record",
        claim: "Redo and dependencies take 252 + 20.5 bytes (data) and 244 + 30.6 bytes (command) \
                on YCSB, and 1,899.7 + 68.5 and 196.9 + 77.8 bytes on TPC-C.",
        how: "TicToc, four streams, log in memory, whole rows on TPC-C. Bytes of frames per \
              replayed record, with checksums and headers. The bytes of dependencies are the \
              difference to serial logging of the same records. The lists are judged, not the \
              vectors of 2020."
            .to_string(),
        differs: vec![
            "frames have checksums and headers; the report does not say whether its records do"
                .to_string(),
            format!("{} cores write: fewer dependencies in flight than with 64", table.here.cores),
        ],
        runs,
        panels: vec![parts("YCSB", "(a) YCSB"), parts("TPC-C", "(b) TPC-C")],
        checks,
        not_measured: None,
    }
}

/// Redo and dependencies of data and of command records in table 1.
fn table_1(group: &str) -> [[f64; 2]; 2] {
    match group {
        "YCSB" => [[252.0, 20.5], [244.0, 30.6]],
        _ => [[1_899.7, 68.5], [196.9, 77.8]],
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
    for (record, paper) in ["data", "command"].into_iter().zip(table_1(group)) {
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
