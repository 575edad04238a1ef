//! Taurus 2020, section 5.2: New-Order, and serial logging on RAID-0, on NVMe drives.

use super::curve::{Claims, at_mark, checks, panels};
use super::setup::*;
use super::taurus_2020::{
    Figure, LOCKED, OPTIMISTIC, RAID_COMMAND, RAID_DATA, claims, differs, runs,
};
use crate::checks::with_interval;
use crate::experiment::Paper;
use crate::judge::{Check, Finding, LEAST, of_band, of_limit};
use crate::scale::NVME;

const YCSB: &str = "YCSB, 2PL";
const PAYMENT: &str = "Payment, 2PL";
const LOCKED_ORDERS: &str = "New-Order, 2PL";
const OPTIMISTIC_ORDERS: &str = "New-Order, OCC";

/// Serial logging on RAID-0 beside the schemes of the other two figures, whose runs are the same,
/// and all schemes on New-Order.
fn figures(table: &Table<'_>) -> Vec<Figure> {
    let figure = |group, workload, control, schemes| Figure {
        group,
        workload,
        control,
        schemes,
        raid: control == "no-wait",
        bandwidths: vec![1.0],
        logging: Vec::new(),
        recovery: Vec::new(),
    };
    let locked = |group, workload| figure(group, workload, "no-wait", &LOCKED);
    // Claimed by checks of their own, and so run also where time is short.
    let beside = vec![(RAID_COMMAND, SERIAL_COMMAND.label, 1.0)];
    let mut out = vec![Figure { logging: beside, ..locked(YCSB, "YCSB") }];
    if table.size.fine {
        out.extend([
            locked(PAYMENT, "Payment"),
            Figure {
                recovery: vec![("Taurus command", "Plover", 2.4)],
                ..locked(LOCKED_ORDERS, "New-Order")
            },
            figure(OPTIMISTIC_ORDERS, "New-Order", "silo", &OPTIMISTIC),
        ]);
    }
    out
}

/// The ratio of rates of New-Orders.
fn orders(
    group: &'static str,
    [series, over]: [&'static str; 2],
    (words, place): (&'static str, &'static str),
    judge: fn(&crate::chart::Spread) -> crate::judge::Level,
) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(group, Metric::Throughput, (series, 1.0), (over, 1.0))?;
        let text = format!(
            "{group}: {series} has {} times the throughput of {over} (paper: {words})",
            with_interval(&ratio)
        );
        Some(Finding { text, level: judge(&ratio) })
    })
    .claimed(place)
}

fn all_checks(table: &Table<'_>, figures: &[Figure]) -> Vec<Check> {
    let (rate, replay) = (Metric::Throughput, Metric::ReplayRate);
    let mark = |check, group, metric, series| at_mark(table, &NVME, check, (group, metric), series);
    let raid = [RAID_COMMAND, SERIAL_COMMAND.label];
    let same = |group, metric, both: [&'static str; 2], place| {
        let check = Check::same_at(group, metric, (both[0], 1.0), (both[1], 1.0));
        mark(check.claimed(place), group, metric, both)
    };
    let mut out = vec![
        same(YCSB, rate, raid, "section 5.2, figure 5a"),
        same(YCSB, replay, raid, "section 5.2, figure 7a"),
    ];
    if !table.size.fine {
        return out;
    }
    let [data, command] = [TAURUS_DATA.label, TAURUS_COMMAND.label];
    // The paper's advantage of Taurus begins where a counter limits the serial log.
    let few = ("no more, with few workers", "section 5.2, figure 5c");
    out.push(orders(LOCKED_ORDERS, [command, RAID_COMMAND], few, |ratio| of_limit(ratio, 1.0)));
    let above = orders(
        OPTIMISTIC_ORDERS,
        [command, SILO_R.label],
        ("more in every benchmark", "section 5.2, figure 6"),
        |ratio| of_band(ratio, LEAST, f64::INFINITY),
    );
    out.push(mark(above, OPTIMISTIC_ORDERS, rate, [command, SILO_R.label]));
    let both = [data, SILO_R.label];
    out.push(same(OPTIMISTIC_ORDERS, rate, both, "section 5.2, figure 6"));
    let recovery: Vec<Claims> = claims(figures, |figure| &figure.recovery);
    out.extend(checks(table, &NVME, &recovery, (replay, "section 5.2, figure 7c")));
    for (group, metric) in [(PAYMENT, rate), (LOCKED_ORDERS, rate), (LOCKED_ORDERS, replay)] {
        for (series, over) in [(RAID_DATA, SERIAL_DATA), (RAID_COMMAND, SERIAL_COMMAND)] {
            out.push(Check::beside_at(group, metric, (series, 1.0), (over.label, 1.0)));
        }
    }
    out
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let figures = figures(table);
    // Bars without curves of ratios.
    let bare: Vec<Claims> = figures.iter().map(|figure| (figure.group, Vec::new())).collect();
    let mut all = panels(&bare, Metric::Throughput);
    let recovery = panels(&bare, Metric::ReplayRate).into_iter().zip(('a'..).skip(all.len()));
    all.extend(recovery.map(|(panel, letter)| crate::experiment::Panel {
        title: format!("({letter}) {}, recovery", panel.group),
        ..panel
    }));
    Experiment {
        id: "2020-nvme-orders",
        paper: Paper::Taurus2020,
        source: "Figures 5 to 8, section 5.2",
        title: "New-Order and RAID-0 on fast devices",
        claim: "On eight NVMe drives serial command logging is as fast on RAID-0 as on one drive, \
                because the bottleneck is its counter, in logging and in recovery. On New-Order \
                it scales well, and Taurus has an advantage only with many workers. Taurus \
                command logging outperforms Silo-R in every benchmark; Silo-R and Taurus data \
                logging plateau at a similar level. Taurus recovers New-Order from commands up to \
                2.4 times as fast as Plover.",
        how: format!(
            "{} Two streams on each device, as in the paper; a serial log is on one device, or \
             striped over all (`--device striped`), with a buffer as large as those of all \
             streams. The other schemes of YCSB and Payment are those of 2020-nvme-logging.",
            table.scaled(&NVME)
        ),
        differs: differs(table, &NVME)
            .into_iter()
            .filter(|text| !text.contains("2020-nvme-orders"))
            .collect(),
        runs: runs(table, &NVME, 2, &figures),
        panels: all,
        checks: all_checks(table, &figures),
        not_measured: None,
    }
}
