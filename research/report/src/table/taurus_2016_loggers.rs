//! The Taurus report of 2016, section 6.5: more loggers, each with a device of its own.

use super::setup::*;
use super::taurus_2016::{TICTOC, differs};
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check};
use crate::scale::FLASH;

/// Rows of every series of YCSB: a population logged as rows is read back through the devices.
const LOGGED_ROWS: u64 = 10_000;

/// The schemes of the report's figure, and ours of 2020 beside them, under TicToc.
const PARALLEL: [Scheme; 4] = [TAURUS_2016_DATA, TAURUS_2016_COMMAND, TAURUS_DATA, TAURUS_COMMAND];
/// The schemes of Poplar's figures, with Taurus. Three schemes are not sound under TicToc
/// (crates/hyades/src/opening/pairs.rs), so the whole group runs under Silo.
const NUMBERED: [Scheme; 6] = [SILO_R, POPLAR, TAURUS_2016_DATA, TAURUS_DATA, PLOVER, GSN];
/// The same figure for TPC-C.
const MIXED: [Scheme; 2] = [TAURUS_2016_DATA, TAURUS_2016_COMMAND];
/// Poplar's figure for TPC-C.
const MIXED_NUMBERED: [Scheme; 3] = [SILO_R, POPLAR, GSN];

const YCSB: &str = "YCSB";
const UNDER_SILO: &str = "YCSB under Silo";
const TPCC: &str = "TPC-C";
const TPCC_UNDER_SILO: &str = "TPC-C under Silo";

/// A quick report has only the schemes with a claim.
fn numbered(table: &Table<'_>) -> &'static [Scheme] {
    if table.size.fine { &NUMBERED } else { &NUMBERED[..2] }
}

fn runs(table: &Table<'_>, counts: &[f64], most: f64) -> Vec<Run> {
    let device = table.device(&FLASH, 1.0);
    // Two workers for each device, because a worker waits while the stream's buffer is full.
    let shared = |command: Command| command.small("--buffer 512KiB").workers(2 * most as u32);
    let ycsb = |control| {
        let words = "--theta 0 --accesses 2 --read-and-write --values argument";
        shared(table.small_ycsb_with(LOGGED_ROWS, words).with(DEEP).under(control))
    };
    let mixed = |control, scheme: Scheme| {
        let command = table.mixed().with(DEEP).under(control);
        let whole = scheme.options.ends_with("data");
        shared(if whole { command.with("--whole-rows") } else { command })
    };
    let run = |group, command: Command, scheme: Scheme, devices: f64| {
        command.by(scheme, &device, devices as u32, 1).run(group, scheme.label, devices)
    };
    let mut out = Vec::new();
    for devices in counts.iter().copied() {
        out.extend(PARALLEL.map(|scheme| run(YCSB, ycsb(TICTOC), scheme, devices)));
        let numbered = numbered(table).iter();
        // Between the fewest and the most devices, only the schemes with a claim.
        let some = if [1.0, most].contains(&devices) { NUMBERED.len() } else { 2 };
        let numbered = numbered.take(some);
        out.extend(numbered.map(|scheme| run(UNDER_SILO, ycsb("silo"), *scheme, devices)));
    }
    if table.size.fine {
        for devices in [1.0, most] {
            out.extend(MIXED.map(|scheme| run(TPCC, mixed(TICTOC, scheme), scheme, devices)));
            let under_silo = |scheme| run(TPCC_UNDER_SILO, mixed("silo", scheme), scheme, devices);
            out.extend(MIXED_NUMBERED.map(under_silo));
        }
    }
    for scheme in [SERIAL_DATA, SERIAL_COMMAND] {
        if table.size.fine {
            out.push(run(TPCC, mixed(TICTOC, scheme), scheme, 1.0));
        }
        for devices in [1.0, most] {
            // `by` would give the run the single device of a serial log.
            let command = ycsb(TICTOC).with(scheme.options).on(&device, devices as u32);
            out.push(command.run(YCSB, scheme.label, devices));
        }
    }
    out
}

fn checks(table: &Table<'_>, most: f64) -> Vec<Check> {
    let rate = Metric::Throughput;
    let one = FLASH.scaled(&table.here, 1.0);
    let throttled = |check: Check, group, series| match table.axes.log_dirs.is_empty() {
        true => check.unless_bound(group, Metric::DeviceRate, series),
        false => check,
    };
    let rises = |group, label| Check::rises(group, rate, label, 1.0, most);
    let grows = |group, scheme: &Scheme, place| {
        let label = scheme.label;
        let check = rises(group, label).claimed(place);
        throttled(check, group, vec![(label, 1.0, one), (label, most, most * one)])
    };
    // The report claims the rise of its own schemes, Poplar's paper that of Poplar and of Silo.
    let mut out: Vec<Check> = Vec::new();
    out.extend(PARALLEL.iter().map(|scheme| match MIXED.iter().any(|s| s.label == scheme.label) {
        true => grows(YCSB, scheme, "section 6.5, figure 9a"),
        false => rises(YCSB, scheme.label).resting_on(Basis::Context),
    }));
    let poplars = |group, scheme: &Scheme| match [SILO_R.label, POPLAR.label] {
        claimed if claimed.contains(&scheme.label) => {
            grows(group, scheme, "Poplar, section 6.3, figure 9")
        }
        _ => rises(group, scheme.label).resting_on(Basis::Context),
    };
    out.extend(numbered(table).iter().map(|scheme| poplars(UNDER_SILO, scheme)));
    if table.size.fine {
        out.extend(MIXED_NUMBERED.iter().map(|scheme| poplars(TPCC_UNDER_SILO, scheme)));
        let gsn = [(GSN.label, most), (POPLAR.label, most)];
        out.push(Check::beside_at(TPCC_UNDER_SILO, rate, gsn[0], gsn[1]));
    }
    for label in [SERIAL_DATA.label, SERIAL_COMMAND.label] {
        // The single stream is on a single device, whatever the number of devices.
        let same = Check::same_at(YCSB, rate, (label, most), (label, 1.0));
        out.push(same.claimed("section 6.5, figure 9").resting_on(Basis::Construction));
    }
    let groups: &[&'static str] = if table.size.fine { &[YCSB, TPCC] } else { &[YCSB] };
    for group in groups.iter().copied() {
        for (series, over) in
            [("Taurus 2016 data", "Serial data"), ("Taurus 2016 command", "Serial command")]
        {
            let check = Check::same_at(group, rate, (series, 1.0), (over, 1.0));
            let check = check.claimed("section 6.5, figure 9");
            out.push(throttled(check, group, vec![(series, 1.0, one), (over, 1.0, one)]));
        }
        if group == TPCC {
            let place = "section 6.5, figure 9b";
            out.extend(MIXED.iter().map(|scheme| grows(TPCC, scheme, place)));
        }
    }
    let follows = Check::follows_bytes(YCSB, most, TAURUS_COMMAND.label, TAURUS_DATA.label);
    out.push(follows.resting_on(Basis::Context));
    out
}

fn panels(table: &Table<'_>) -> Vec<Panel> {
    let groups: &[&'static str] = if table.size.fine {
        &[YCSB, UNDER_SILO, TPCC, TPCC_UNDER_SILO]
    } else {
        &[YCSB, UNDER_SILO]
    };
    let mut letters = 'a'..;
    let mut panel = |group: &'static str, what: &str, metric, log| {
        let letter = letters.next().expect("letters do not run out");
        let shape = Shape::Lines { x: "devices", log_x: log, log_y: log };
        Panel { group, title: format!("({letter}) {group}{what}"), metric, shape }
    };
    let mut out = Vec::new();
    for group in groups {
        out.push(panel(group, "", Metric::Throughput, true));
        out.push(panel(group, ", traffic", Metric::DeviceRate, false));
    }
    out
}

pub(super) fn loggers(table: &Table<'_>) -> Experiment {
    let counts = table.steps(&[1.0, 2.0, 4.0], &[1.0, 4.0]);
    let most = counts.last().copied().unwrap_or(4.0);
    let rows = table.size.rows.min(LOGGED_ROWS);
    let mut differs = differs(table);
    differs.extend([
        format!(
            "{rows} rows in all series of YCSB, because some read them back through the devices"
        ),
        "Plover, Poplar and GSN are not sound under TicToc: they are compared under Silo, with \
         Taurus and Silo-R"
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
             number. Transactions of YCSB read and write two rows, and the values are their \
             arguments, so that commands are as long as data, as in the report. All series of a \
             panel have the same concurrency control.",
            table.scaled(&FLASH)
        ),
        differs,
        runs: runs(table, &counts, most),
        panels: panels(table),
        checks: checks(table, most),
        not_measured: None,
    }
}
