//! Curves over bandwidth: the panels, and checks at the mark of the paper's hardware.

use super::setup::*;
use crate::experiment::{Panel, Shape};
use crate::judge::Check;
use crate::scale::Machine;

/// A paper's ratio: (of, over, ratio).
pub(super) type Ratio = (&'static str, &'static str, f64);
/// A group of runs, and the paper's ratios in the group.
pub(super) type Claims = (&'static str, Vec<Ratio>);

/// A curve for each group, and a curve of the ratios stated by the paper, if any.
pub(super) fn panels(claims: &[Claims], metric: Metric) -> Vec<Panel> {
    let mut letters = 'a'..;
    let mut panel = |group, what: &str, shape| {
        let letter = letters.next().expect("letters do not run out");
        Panel { group, title: format!("({letter}) {group}{what}"), metric, shape }
    };
    let mut out = Vec::new();
    for (group, pairs) in claims {
        out.push(panel(*group, "", Shape::Curve));
        if !pairs.is_empty() {
            out.push(panel(*group, ", ratios", Shape::Ratios { pairs: pairs.clone() }));
        }
    }
    out
}

/// The MB/s of all devices of a series at the mark. A serial log has a single device.
fn all_devices(table: &Table<'_>, machine: &Machine, series: &str) -> f64 {
    let single = [SERIAL_DATA.label, SERIAL_COMMAND.label].contains(&series);
    let devices = if single { 1 } else { machine.devices };
    f64::from(devices) * machine.scaled(&table.here, 1.0)
}

/// A check at the mark of a curve. Where throttled devices limit both series, the ratio is
/// arithmetic.
pub(super) fn at_mark(
    table: &Table<'_>,
    machine: &Machine,
    check: Check,
    (group, rate): (&'static str, Metric),
    series: [&'static str; 2],
) -> Check {
    if !table.axes.log_dirs.is_empty() {
        return check;
    }
    let moved = match rate {
        Metric::ReplayRate => Metric::ReplayBandwidth,
        Metric::ImageRate => Metric::ImageBandwidth,
        Metric::WholeBandwidth => Metric::WholeBandwidth,
        _ => Metric::DeviceRate,
    };
    let series = series.map(|series| (series, 1.0, all_devices(table, machine, series)));
    check.unless_bound(group, moved, series.into())
}

/// Whether claims name a series. Only named series have a curve; the rest have a point at the mark,
/// and none in a quick report. TPC-C has points only: the population takes longer than the runs.
pub(super) fn is_needed(table: &Table<'_>, claims: &[Ratio], times: f64, series: &str) -> bool {
    let named = |(claimed, over, _): &Ratio| *claimed == series || *over == series;
    table.size.fine && times == 1.0 || claims.iter().any(named)
}

/// A check of each ratio, at the mark. `place` is where the paper states the ratios.
pub(super) fn checks(
    table: &Table<'_>,
    machine: &Machine,
    claims: &[Claims],
    (metric, place): (Metric, &'static str),
) -> Vec<Check> {
    let each = |(group, ratios): &Claims| -> Vec<Check> {
        let check = |(series, over, ratio): &Ratio| {
            let check = Check::times_at(group, metric, (series, 1.0), (over, 1.0), *ratio);
            let check = check.claimed(place).above_by_bytes(group, 1.0, series, over);
            let check = match metric {
                Metric::ReplayRate => {
                    check.not_by_threads(group, [(series, 1.0), (over, 1.0)], *ratio)
                }
                Metric::Throughput => {
                    check.not_by_headroom(group, ((over, 1.0), (NONE.label, 1.0)), *ratio)
                }
                _ => check,
            };
            at_mark(table, machine, check, (group, metric), [series, over])
        };
        ratios.iter().map(check).collect()
    };
    claims.iter().flat_map(each).collect()
}

/// The differences of throttled devices; none where logs are in given directories.
pub(super) fn throttled(table: &Table<'_>, machine: &Machine) -> Option<String> {
    table.axes.log_dirs.is_empty().then(|| {
        format!(
            "{} throttled devices in memory: a token bucket and a fixed latency, without a queue",
            machine.devices
        )
    })
}
