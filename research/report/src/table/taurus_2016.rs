//! The Taurus report of 2016: lists of predecessors.

use super::curve::{Claims, checks, panels, throttled};
use super::setup::*;
use super::taurus_2016_loggers::loggers;
use super::taurus_2016_threads;
use crate::axis::short;
use crate::chart::Stack;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, TOLERANCE, of_fall};
use crate::scale::FLASH;

/// A reason, where the figures show it.
type Shown = fn(&View<'_>) -> Option<String>;

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
    let by_threads = taurus_2016_threads::experiment(slow);
    vec![logging(slow), by_threads, recovery(table, slow), loggers(slow), bytes(table)]
}

/// Flushes as in the report: after 5 ms, or when half of the buffer is full. The report's 16 MB are
/// scaled like the devices.
pub(super) const FLUSH: &str = "--flush-interval 5ms --flush-fill 1MiB --buffer 2MiB";

/// The report runs on TicToc, and so do the report's figures here.
pub(super) const TICTOC: &str = "tictoc";

/// The report's half of TPC-C.
fn tpcc(table: &Table<'_>) -> Command {
    table.mixed().under(TICTOC).with(DEEP)
}

/// YCSB as in the report: uniform, two rows read and written, values passed as arguments.
fn ycsb(table: &Table<'_>) -> Command {
    table.ycsb_with(YCSB).under(TICTOC).with(DEEP)
}

const YCSB: &str = "--theta 0 --accesses 2 --read-and-write --values argument";

/// A workload under a scheme. A transaction of YCSB touches one field of a row, of 100 bytes. Data
/// records of TPC-C, by their length in table 1, hold whole rows.
pub(super) fn of(table: &Table<'_>, group: &str, scheme: Scheme) -> Command {
    let command = if group == "YCSB" { ycsb(table) } else { tpcc(table) };
    let whole = group == "TPC-C" && scheme.options.ends_with("data");
    if whole { command.with("--whole-rows") } else { command }
}

const GROUPS: [&str; 2] = ["YCSB", "TPC-C"];

/// TPC-C has one bandwidth: the population takes longer than the runs.
fn is_run(group: &str, times: f64) -> bool {
    group == "YCSB" || times == 1.0
}

/// A quick report leaves out schemes not in the report of 2016, and so does a curve except at the
/// mark.
fn is_shown(table: &Table<'_>, times: f64, scheme: &Scheme) -> bool {
    table.size.fine && times == 1.0
        || ![TAURUS_DATA.label, TAURUS_COMMAND.label, NONE.label].contains(&scheme.label)
}

fn runs(table: &Table<'_>) -> Vec<Run> {
    let mut out = Vec::new();
    for times in table.bandwidths(&[1.0, 16.0], &[1.0]) {
        let device = table.device(&FLASH, times);
        for group in GROUPS.into_iter().filter(|group| is_run(group, times)) {
            // Of the vectors of 2020, TPC-C has the vectors of commands, to compare replay.
            let has = |scheme: &Scheme| {
                let is_left_out = group == "TPC-C" && scheme.label == TAURUS_DATA.label;
                is_shown(table, times, scheme) && !is_left_out
            };
            for scheme in SCHEMES.into_iter().filter(has) {
                let command = of(table, group, scheme).by(scheme, &device, FLASH.devices, 1);
                let logged = scheme.label != NONE.label;
                let command = if logged { command.with(FLUSH).recovered() } else { command };
                out.push(command.run(group, scheme.label, times));
            }
        }
    }
    out
}

pub(super) fn differs(table: &Table<'_>) -> Vec<String> {
    let mut out = vec![
        format!("YCSB has {} rows", table.rows()),
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
    // TPC-C: 1.09 M over 0.29 M transactions per second.
    let place = "abstract; section 6.3, figures 5 and 6";
    let mut checks = checks(table, &FLASH, &claims, (rate, place));
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
        let (point, over) = (("Taurus 2016 data", 1.0), ("Serial data", 1.0));
        let ratio = view.ratio("YCSB", Metric::LatencyP50, point, over)?;
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

/// The group of runs with different ways of recovery.
const WAYS: &str = "YCSB in memory, ways to recover";

/// The first two also in a quick report.
const RECOVERED: [(&str, Scheme, &str); 4] = [
    ("Taurus 2016 command, on all threads", TAURUS_2016_COMMAND, "parallel"),
    ("Taurus 2016 command, in three phases", TAURUS_2016_COMMAND, "phases"),
    ("Taurus 2016 data, on all threads", TAURUS_2016_DATA, "parallel"),
    ("Taurus 2016 data, in three phases", TAURUS_2016_DATA, "phases"),
];

/// In memory, because from slow devices every way takes as long as reading.
fn ways(table: &Table<'_>) -> Vec<Run> {
    let run = |(label, scheme, way): (&'static str, Scheme, &str)| {
        let command = of(table, "YCSB", scheme).by(scheme, "memory", 1, 4);
        command.recovered().with(&format!("--recovery {way}")).run(WAYS, label, 0.0)
    };
    let some = if table.size.fine { &RECOVERED[..] } else { &RECOVERED[..2] };
    some.iter().copied().map(run).collect()
}

/// Why commands of YCSB are not replayed as much faster: the device limits the serial log, and the
/// processors limit the parallel log, as more bandwidth shows.
fn by_bandwidth(view: &View<'_>) -> Option<String> {
    const TIMES: f64 = 16.0;
    let grows = |series| {
        let ends = [(series, TIMES), (series, 1.0)];
        view.ratio("YCSB", Metric::ReplayRate, ends[0], ends[1])
    };
    let (lists, serial) = (grows("Taurus 2016 command")?, grows("Serial command")?);
    (serial.low >= 0.75 * TIMES).then(|| {
        format!(
            "with {TIMES} times the bandwidth Serial command is {} times as fast, so that its \
             device limits it here, and {} devices allow as many times more; Taurus 2016 command \
             is then {} times as fast",
            with_interval(&serial),
            FLASH.devices,
            with_interval(&lists)
        )
    })
}

/// Why commands of TPC-C are replayed so slowly: by the lists. With vectors the same transactions
/// are faster.
fn by_lists(view: &View<'_>) -> Option<String> {
    let points = [("Taurus command", 1.0), ("Taurus 2016 command", 1.0)];
    let faster = view.ratio("TPC-C", Metric::ReplayRate, points[0], points[1])?;
    (faster.low > TOLERANCE).then(|| {
        format!(
            "with vectors in place of lists (Taurus command) the same threads replay the same \
             transactions {} times as fast",
            with_interval(&faster)
        )
    })
}

fn recovery(table: &Table<'_>, slow: &Table<'_>) -> Experiment {
    let rate = Metric::ReplayRate;
    let ratios = vec![
        ("Taurus 2016 data", "Serial data", 4.9),
        ("Taurus 2016 command", "Serial command", 9.8),
    ];
    let claims: [Claims; 2] =
        [("YCSB", ratios), ("TPC-C", vec![("Taurus 2016 command", "Serial command", 9.8)])];
    let mut panels = panels(&claims, rate);
    panels.push(Panel {
        group: WAYS,
        title: format!("(e) {WAYS}"),
        metric: rate,
        shape: Shape::Bars { log: false, paper: Vec::new() },
    });
    // The abstract names no workload.
    let place = "abstract; section 6.4, figure 8";
    let all = checks(slow, &FLASH, &claims, (rate, place)).into_iter();
    let mut checks: Vec<Check> = all
        .zip([None, Some(by_bandwidth as Shown), Some(by_lists)])
        .map(|(check, why)| match why {
            Some(why) => check.not_by(why),
            None => check,
        })
        .collect();
    checks.push(Check::beside(WAYS, rate, RECOVERED[1].0, RECOVERED[0].0));
    if table.size.fine {
        checks.push(Check::beside(WAYS, rate, RECOVERED[3].0, RECOVERED[2].0));
    }
    Experiment {
        id: "2016-recovery",
        paper: Paper::Taurus2016,
        source: "Figure 8, section 6.4, abstract",
        title: "Recovery",
        claim: "Taurus recovers 4.9 (data) and 9.8 times (command) as fast as serial logging.",
        how: format!(
            "The logs of the figure above. {} Beside them, from memory, recovery on all threads \
             and in the three phases of the report (`--recovery phases`).",
            slow.scaled(&FLASH)
        ),
        differs: differs(slow)
            .into_iter()
            .chain([
                "on all threads data records are replayed by row version, in no order; in three \
                     phases each follows the records that it has overwritten, as in the report"
                    .to_string(),
            ])
            .collect(),
        runs: runs(slow).into_iter().chain(ways(table)).collect(),
        panels,
        checks,
        not_measured: None,
    }
}

/// Vectors in place of the lists of read predecessors, by record.
const COMPRESSED: [(&str, Scheme); 2] = [
    ("Taurus 2016 data, --compress-lists", TAURUS_2016_DATA),
    ("Taurus 2016 command, --compress-lists", TAURUS_2016_COMMAND),
];

fn is_compressed(table: &Table<'_>, group: &str) -> bool {
    table.size.fine && group == "YCSB"
}

/// The least bytes of the rows that a transaction of TPC-C's half and half changes, by the
/// standard's columns: ten of 300 for the stock, ten order lines of 54, an order and a district in
/// a New-Order; a customer of 650, a district, a warehouse and a history row in a Payment.
const STANDARD_ROWS: f64 = 2_200.0;

/// Why whole rows of TPC-C are longer than the report's, whose lengths are not known: the rows of
/// the standard alone are.
fn by_rows(view: &View<'_>, group: &str, claimed: f64) -> Option<String> {
    let ours = view.median(group, "Serial data", 0.0, Metric::BytesPerRecord)?;
    let is_shown = group == "TPC-C" && ours >= STANDARD_ROWS && STANDARD_ROWS > claimed;
    is_shown.then(|| {
        format!(
            "of the {} bytes about {} are the rows that a transaction changes, by the standard's \
             columns; a record of the report has {}, so its rows are shorter than the standard's",
            short(ours),
            short(STANDARD_ROWS),
            short(claimed)
        )
    })
}

/// Why commands are shorter than the report's, whose format is not known: our changes are not.
fn by_short_commands(view: &View<'_>, group: &str, claimed: [f64; 2]) -> Option<String> {
    let bytes = |series| view.median(group, series, 0.0, Metric::BytesPerRecord);
    let (data, command) = (bytes("Serial data")?, bytes("Serial command")?);
    (data * TOLERANCE >= claimed[0] && command * TOLERANCE < claimed[1]).then(|| {
        format!(
            "the changes of the same transactions take {} bytes, no fewer than the report's {}, \
             but a command {}: in our format a procedure takes a byte or two, and a number as many \
             bytes as its value needs; the report does not give its own",
            short(data),
            short(claimed[0]),
            short(command)
        )
    })
}

/// The series with longer lists, if lists are short because few rows were written recently.
const HOT: &str = "Taurus 2016 data, 1,000 rows";

fn hot_rows(table: &Table<'_>, group: &'static str) -> Run {
    let command = table.small_ycsb_with(1_000, YCSB).under(TICTOC).with(DEEP);
    command.by(TAURUS_2016_DATA, "memory", 1, 4).recovered().run(group, HOT, 0.0)
}

/// Why lists are shorter than the report's: most rows have no predecessor for a list to name. With
/// fewer rows, more rows have a predecessor.
fn by_cold_rows(view: &View<'_>, group: &str) -> Option<String> {
    let bytes = |series| view.median(group, series, 0.0, Metric::BytesPerRecord);
    let (none, cold) = (bytes("Serial data")?, bytes("Taurus 2016 data")?);
    let [cold, hot] = [cold, bytes(HOT)?].map(|all| all - none);
    (hot > cold * TOLERANCE).then(|| {
        format!(
            "few rows were written since the last anchor, so that lists name few writers: with \
             1,000 rows in place of these, lists add {} bytes in place of {}",
            short(hot),
            short(cold)
        )
    })
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
    for group in GROUPS {
        let base = |scheme| of(table, group, scheme).by(scheme, "memory", 1, 4).recovered();
        for scheme in schemes.into_iter().filter(|scheme| is_shown(table, 1.0, scheme)) {
            runs.push(base(scheme).run(group, scheme.label, 0.0));
        }
        runs.extend(is_compressed(table, group).then(|| hot_rows(table, group)));
        for (label, scheme) in COMPRESSED.into_iter().filter(|_| is_compressed(table, group)) {
            runs.push(base(scheme).with("--compress-lists").run(group, label, 0.0));
        }
    }
    let size = Metric::BytesPerRecord;
    let shown = table.size.fine;
    let mut checks = Vec::new();
    for (group, [data, command]) in GROUPS.map(|group| (group, table_1(group))) {
        checks.extend(
            [
                Check::costs(group, size, "Serial data", data[0])
                    .not_by(move |view| by_rows(view, group, data[0])),
                Check::adds(group, size, "Taurus 2016 data", "Serial data", data[1])
                    .above_by(move |view| by_cold_rows(view, group))
                    .measured_apart(),
                Check::costs(group, size, "Serial command", command[0])
                    .above_by(move |view| by_short_commands(view, group, [data[0], command[0]])),
                Check::adds(group, size, "Taurus 2016 command", "Serial command", command[1])
                    .measured_apart(),
            ]
            .map(|check| check.claimed("table 1")),
        );
        if shown {
            let ours = ["Taurus data", "Taurus command"];
            checks.extend(ours.map(|label| Check::shown(group, size, label, 0.0)));
        }
        if is_compressed(table, group) {
            checks.extend(COMPRESSED.map(|(label, _)| Check::shown(group, size, label, 0.0)));
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
              vectors of 2020, nor the vectors that a record can have in place of its list \
              (`--compress-lists`)."
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

/// Bytes of serial logging and the additional bytes of a scheme, beside the paper's bytes.
fn split(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let bytes = |series: &str| view.median(group, series, 0.0, Metric::BytesPerRecord);
    let mut out = Vec::new();
    for (record, paper) in ["data", "command"].into_iter().zip(table_1(group)) {
        out.push(Stack { label: format!("2016 report, {record}"), parts: paper.to_vec() });
        let Some(redo) = bytes(&format!("Serial {record}")) else { continue };
        out.push(Stack { label: format!("Serial {record}"), parts: vec![redo, 0.0] });
        let compressed = format!("Taurus 2016 {record}, --compress-lists");
        for label in [format!("Taurus {record}"), format!("Taurus 2016 {record}"), compressed] {
            if let Some(all) = bytes(&label) {
                out.push(Stack { label, parts: vec![redo, (all - redo).max(0.0)] });
            }
        }
    }
    out
}
