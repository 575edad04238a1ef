//! The Taurus report of 2016 by threads: serial logging (section 2.2), and Taurus beside it
//! (sections 6.3 and 6.4).

use super::setup::*;
use super::taurus_2016::{FLUSH, differs, of};
use super::taurus_2020_memory::counts;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, TOLERANCE, of_band};
use crate::reasons::percent;
use crate::scale::FLASH;

const TPCC: &str = "TPC-C";
const SERIAL: [Scheme; 2] = [SERIAL_DATA, SERIAL_COMMAND];
const PARALLEL: [Scheme; 2] = [TAURUS_2016_DATA, TAURUS_2016_COMMAND];

/// Threads: up to the cores, and where time allows twice as many, because a worker waits while the
/// buffer is full.
fn threads(table: &Table<'_>) -> Vec<f64> {
    let mut out = counts(table);
    let most = out.last().copied().unwrap_or(2.0);
    out.extend(table.size.fine.then_some(2.0 * most));
    out
}

/// As many threads log, and recover. With one for each core, the default, the run is that of the
/// figure on throughput.
fn run(table: &Table<'_>, scheme: Scheme, count: f64) -> Run {
    let device = table.device(&FLASH, 1.0);
    let command = of(table, TPCC, scheme);
    let is_default = table.axes.workers.is_none() && count == f64::from(table.here.cores);
    let command = if is_default { command } else { command.fixed("--workers", &count.to_string()) };
    let command = command.by(scheme, &device, FLASH.devices, 1).with(FLUSH).recovered();
    let threads = format!("--recovery-threads {count}");
    let command = if is_default { command } else { command.with(&threads) };
    command.run(TPCC, scheme.label, count)
}

/// How much of the device a series uses, from the fewest threads to the most.
fn fills(series: &'static str, [few, most]: [f64; 2], allowed: f64) -> Check {
    Check::new(move |view| {
        let share = |count| Some(view.median(TPCC, series, count, Metric::DeviceRate)? / allowed);
        let grows = view.ratio(TPCC, Metric::Throughput, (series, most), (series, few))?;
        let text = format!(
            "{series} moves {} of the bytes that its devices allow with {few} thread, and {} with \
             {most}, with {} times the throughput",
            percent(share(few)?),
            percent(share(most)?),
            with_interval(&grows)
        );
        Some(Finding { text, level: Level::Undecided })
    })
    .resting_on(Basis::Context)
}

/// Commands have the higher throughput with the most threads.
fn commands_are_faster(most: f64, place: &'static str) -> Check {
    let [data, command] = SERIAL.map(|scheme| scheme.label);
    let check = Check::new(move |view| {
        let ratio = view.ratio(TPCC, Metric::Throughput, (command, most), (data, most))?;
        let text = format!(
            "{TPCC} with {most} threads: {command} has {} times the throughput of {data} (paper: \
             significantly more)",
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, TOLERANCE, f64::INFINITY) })
    });
    check.claimed(place).not_by_bytes(TPCC, [(command, most), (data, most)])
}

/// The schemes with the bytes per second that their devices allow.
fn allowed(table: &Table<'_>) -> Vec<(&'static str, f64)> {
    let one = FLASH.scaled(&table.here, 1.0);
    let serial = SERIAL.map(|scheme| (scheme.label, one));
    let parallel = PARALLEL.map(|scheme| (scheme.label, f64::from(FLASH.devices) * one));
    serial.into_iter().chain(parallel).collect()
}

fn checks(table: &Table<'_>, few: f64, most: f64) -> Vec<Check> {
    let (rate, replay) = (Metric::Throughput, Metric::ReplayRate);
    let [data, command] = SERIAL.map(|scheme| scheme.label);
    let commands = commands_are_faster(most, "section 2.2, figure 2");
    let one = FLASH.scaled(&table.here, 1.0);
    let mut checks = vec![match table.axes.log_dirs.is_empty() {
        true => {
            let series = vec![(command, most, one), (data, most, one)];
            commands.unless_bound(TPCC, Metric::DeviceRate, series)
        }
        false => commands,
    }];
    for label in PARALLEL.map(|scheme| scheme.label) {
        // More threads do more, whatever the scheme.
        let rises = |metric, place| {
            let rises = Check::rises(TPCC, metric, label, few, most).claimed(place);
            rises.resting_on(Basis::Construction)
        };
        checks.push(rises(rate, "section 6.3, figure 6"));
        checks.push(rises(replay, "section 6.4, figure 8"));
    }
    if table.axes.log_dirs.is_empty() {
        let all = allowed(table).into_iter();
        checks.extend(all.map(|(label, bytes)| fills(label, [few, most], bytes)));
    }
    let grows = |label| Check::beside_at(TPCC, replay, (label, most), (label, few));
    checks.extend([data, command].map(grows));
    checks.push(Check::beside_at(TPCC, replay, (data, most), (command, most)));
    for (over, scheme) in [data, command].into_iter().zip(PARALLEL) {
        checks.push(Check::beside_at(TPCC, rate, (scheme.label, few), (over, few)));
    }
    checks
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let counts = threads(table);
    let (few, most) = (counts[0], counts[counts.len() - 1]);
    let lines = |title: &str, metric, x| Panel {
        group: TPCC,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x, log_x: true, log_y: false },
    };
    Experiment {
        id: "2016-threads",
        paper: Paper::Taurus2016,
        source: "Figures 2, 6 and 8, sections 2.2, 6.3 and 6.4",
        title: "TPC-C by threads",
        claim: "The throughput of serial data logging saturates at a very low number of threads, \
                because of the device. Command logging significantly improves it, and saturates \
                at a high number. Taurus scales with the threads, in logging and in recovery: it \
                has more devices.",
        how: format!(
            "{} One stream for each device, of which serial logging has one; half Payment, half \
             New-Order, under TicToc; data records hold whole rows. Recovery by as many threads \
             as workers. The report gives no numbers for its figures.",
            table.scaled(&FLASH)
        ),
        differs: differs(table)
            .into_iter()
            .chain([format!("up to {most} threads, not 32 or 64")])
            .collect(),
        runs: SERIAL
            .into_iter()
            .chain(PARALLEL)
            .flat_map(|scheme| counts.iter().map(move |count| (scheme, *count)))
            .map(|(scheme, count)| run(table, scheme, count))
            .collect(),
        panels: vec![
            lines("(a) Logging", Metric::Throughput, "workers"),
            lines("(b) Recovery", Metric::ReplayRate, "threads of recovery"),
            lines("(c) Traffic", Metric::DeviceRate, "workers"),
        ],
        checks: checks(table, few, most),
        not_measured: None,
    }
}
