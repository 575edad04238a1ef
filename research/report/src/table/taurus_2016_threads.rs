//! The Taurus report of 2016, section 2.2: serial logging of data and of commands, by threads.

use super::setup::*;
use super::taurus_2016::{FLUSH, differs, of};
use super::taurus_2020_memory::counts;
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, TOLERANCE, of_band};
use crate::reasons::percent;
use crate::scale::FLASH;

const TPCC: &str = "TPC-C";
const SCHEMES: [Scheme; 2] = [SERIAL_DATA, SERIAL_COMMAND];

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
fn fills(series: &'static str, [few, most]: [f64; 2], one: f64) -> Check {
    Check::new(move |view| {
        let share = |count| Some(view.median(TPCC, series, count, Metric::DeviceRate)? / one);
        let grows = view.ratio(TPCC, Metric::Throughput, (series, most), (series, few))?;
        let text = format!(
            "{series} moves {} of the bytes that its device allows with {few} thread, and {} with \
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
    let [data, command] = SCHEMES.map(|scheme| scheme.label);
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

pub(super) fn serial(table: &Table<'_>) -> Experiment {
    let counts = threads(table);
    let (few, most) = (counts[0], counts[counts.len() - 1]);
    let place = "section 2.2, figure 2";
    let one = FLASH.scaled(&table.here, 1.0);
    let [data, command] = SCHEMES.map(|scheme| scheme.label);
    let commands = commands_are_faster(most, place);
    let mut checks = vec![match table.axes.log_dirs.is_empty() {
        true => {
            let series = vec![(command, most, one), (data, most, one)];
            commands.unless_bound(TPCC, Metric::DeviceRate, series)
        }
        false => commands,
    }];
    if table.axes.log_dirs.is_empty() {
        checks.extend([data, command].map(|series| fills(series, [few, most], one)));
    }
    let replay = Metric::ReplayRate;
    checks.extend(
        [data, command].map(|label| Check::beside_at(TPCC, replay, (label, most), (label, few))),
    );
    checks.push(Check::beside_at(TPCC, replay, (data, most), (command, most)));
    let lines = |title: &str, metric, x| Panel {
        group: TPCC,
        title: title.to_string(),
        metric,
        shape: Shape::Lines { x, log_x: true, log_y: false },
    };
    Experiment {
        id: "2016-serial",
        paper: Paper::Taurus2016,
        source: "Figure 2, section 2.2",
        title: "Serial logging by threads",
        claim: "The throughput of serial data logging saturates at a very low number of threads, \
                because of the device. Command logging significantly improves it, and saturates \
                at a high number.",
        how: format!(
            "{} One stream on one device; half Payment, half New-Order, under TicToc; data \
             records hold whole rows. Recovery by as many threads as workers. The report gives no \
             numbers for its figure.",
            table.scaled(&FLASH)
        ),
        differs: differs(table)
            .into_iter()
            .chain([format!("up to {most} threads, not 32")])
            .collect(),
        runs: SCHEMES
            .into_iter()
            .flat_map(|scheme| counts.iter().map(move |count| (scheme, *count)))
            .map(|(scheme, count)| run(table, scheme, count))
            .collect(),
        panels: vec![
            lines("(a) Logging", Metric::Throughput, "workers"),
            lines("(b) Recovery", replay, "threads of recovery"),
            lines("(c) Traffic", Metric::DeviceRate, "workers"),
        ],
        checks,
        not_measured: None,
    }
}
