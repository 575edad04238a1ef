//! Where the workers' time goes, by sampled phases: figure 15 of Taurus 2020, figure 7 of Taurus
//! 2016, figure 8 of Poplar.

use super::setup::*;
use crate::chart::{Spread, Stack};
use crate::checks::with_interval;
use crate::experiment::{Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, Level, of_band, of_factor};
use crate::metric::TimePart;

/// The group of the runs by accesses.
const LENGTHS: &str = "By accesses";
/// The group of the contended runs.
const CONTENDED: &str = "YCSB, theta 1.2";
const PHASES: &str = "--phases --in-flight 8192";

/// All time but idle time, which depends on other threads and processes.
const BUSY: &[TimePart] = TimePart::ALL.split_at(10).0;
const TRACKING: &[TimePart] = &[TimePart::Tracking];
const STAMPS: &[TimePart] = &[TimePart::Tracking, TimePart::Stamp];
/// Poplar's "log contention": a number and a place. An upper bound, since the encoding of what the
/// protocol adds to the record is in the same part as the number.
const NUMBERS: &[TimePart] = &[TimePart::Stamp, TimePart::Place];
/// Poplar's "log work": the record, the buffer, and waiting for the buffer.
const WORK: &[TimePart] = &[TimePart::Record, TimePart::Buffer, TimePart::Wait];
/// Poplar's "other".
const OTHER: &[TimePart] = &[TimePart::Logic, TimePart::Index, TimePart::Control, TimePart::Driver];

fn runs(table: &Table<'_>) -> Vec<Run> {
    let all = [
        NONE,
        SERIAL_DATA,
        TAURUS_DATA,
        TAURUS_COMMAND,
        SILO_R,
        POPLAR,
        GSN,
        PLOVER,
        SERIAL_COMMAND,
        TAURUS_2016_DATA,
        TAURUS_2016_COMMAND,
    ];
    let schemes = if table.size.fine { &all[..] } else { &all[..7] };
    let mut out = Vec::new();
    let mut run = |command: Command, group, scheme: Scheme| {
        let command = command.under("no-wait").with(PHASES).by(scheme, "memory", 1, 4);
        out.push(command.run(group, scheme.label, 0.0));
    };
    for scheme in schemes {
        let ycsb =
            |theta: &str| table.ycsb_with(&format!("--theta {theta} --accesses 2 --write-share 1"));
        run(ycsb("0.6"), "YCSB", *scheme);
        run(ycsb("1.2"), CONTENDED, *scheme);
        run(table.mixed(), "TPC-C", *scheme);
    }
    for accesses in table.steps(&[2.0, 20.0, 200.0, 2_000.0], &[2.0, 200.0]) {
        // Fewer transactions in flight if transactions are long, so the engine's tables fit.
        let in_flight = (16_384.0 / accesses).max(64.0) as u64;
        let options = format!("--theta 0.6 --accesses {accesses} --phases --in-flight {in_flight}");
        let command = table.ycsb_with(&options).under("no-wait").by(TAURUS_DATA, "memory", 1, 4);
        out.push(command.run(LENGTHS, TAURUS_DATA.label, accesses));
    }
    out
}

fn panel(group: &'static str, title: &str, stacks: crate::experiment::Parts) -> Panel {
    const NAMES: [&str; TimePart::ALL.len()] = {
        let mut names = [""; TimePart::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = TimePart::ALL[at].name();
            at += 1;
        }
        names
    };
    let y = "share of the workers' time (%)";
    let shape = Shape::Parts { stacks, names: &NAMES, y };
    Panel { group, title: title.to_string(), metric: Metric::TimePart(TimePart::Logic), shape }
}

/// The shares of the parts; none where the run has no phases.
fn stack(view: &View<'_>, group: &str, (series, x): (&str, f64), label: String) -> Option<Stack> {
    let part = |part| view.median(group, series, x, Metric::TimePart(part));
    let us: Vec<f64> = TimePart::ALL.into_iter().map(part).collect::<Option<_>>()?;
    let all: f64 = us.iter().sum();
    Some(Stack { label, parts: us.iter().map(|us| 100.0 * us / all).collect() })
}

fn by_scheme(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let stack = |run: &Run| stack(view, group, (&run.series, run.x), run.series.clone());
    view.runs(group).filter_map(stack).collect()
}

fn by_accesses(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let stack = |run: &Run| stack(view, group, (&run.series, run.x), format!("{} accesses", run.x));
    view.runs(group).filter_map(stack).collect()
}

/// Tracking takes more of the time of a long transaction.
fn tracking_grows(long: f64) -> Check {
    let metric = Metric::TimeRatio(TRACKING, BUSY);
    // From 10.7 to 72.8 %.
    let paper = 6.8;
    Check::new(move |view| {
        let at = |x| (TAURUS_DATA.label, x);
        let growth = view.ratio(LENGTHS, metric, at(long), at(2.0))?;
        Some(Finding {
            text: format!(
                "From 2 to {long} accesses the share of the stamps of rows grows {} times (paper: \
                 {paper:.1} times, tracking from 10.7 to 72.8 %)",
                with_interval(&growth)
            ),
            level: of_factor(&growth, paper),
        })
    })
    .claimed("section 5.6")
}

/// All that Taurus does for stamps, vectors included.
fn stamps(accesses: f64) -> Check {
    let metric = Metric::TimeRatio(STAMPS, BUSY);
    Check::new(move |view| {
        let share = view.at(LENGTHS, TAURUS_DATA.label, accesses, metric)?.map(|x| 100.0 * x);
        Some(Finding {
            text: format!(
                "With {accesses} accesses stamps of rows and vectors take {} % of the time (paper, \
                 vectors without the table of rows: 0.6 to 2.1 %)",
                with_interval(&share)
            ),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Context)
}

/// Taking a number takes less time than any other part, as Poplar divides the time.
fn numbers_are_cheap(group: &'static str) -> Check {
    Check::new(move |view| {
        let ratio = |(series, over)| -> Option<(&str, Spread)> {
            Some((series, view.at(group, series, 0.0, Metric::TimeRatio(NUMBERS, over))?))
        };
        let series = [SERIAL_DATA, GSN, SILO_R, POPLAR].map(|scheme| scheme.label);
        let ratios = series.into_iter().flat_map(|series| [(series, WORK), (series, OTHER)]);
        let ratios: Vec<_> = ratios.map(ratio).collect::<Option<_>>()?;
        let (series, highest) =
            ratios.into_iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
        Some(Finding {
            text: format!(
                "{group}: a number and a place take at most {} times as long as the work on the \
                 log, or as all else, with {series} (paper: less than 1 for all schemes)",
                with_interval(&highest)
            ),
            level: of_band(&highest, f64::NEG_INFINITY, 1.0),
        })
    })
    .claimed("Poplar, figure 8")
}

/// Where a transaction's time goes.
pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let long = 200.0;
    Experiment {
        id: "2020-breakdown",
        paper: Paper::Taurus2020,
        source: "Figure 15, section 5.6; Taurus 2016, figure 7; Poplar, figure 8",
        title: "Where the time goes",
        claim: "Tuple tracking takes most of the time of long transactions, and vectors take 0.6 \
                to 2.1 %. Taking a number is the smallest part under every scheme.",
        how: "The engine reads the processor's counter where a transaction enters and leaves a \
              phase, in one of 61 attempts (`--phases`), on all workers; attempts during which \
              the thread lost its processor are left out, and the time of the reads is taken off; \
              a run with more attempts left out than measured does not count. \
              Stamps of rows: reading and raising what the logging protocol keeps about rows, with \
              the table of rows. Vector, list or number: computing and encoding what the protocol \
              adds to the record, and the latch of a number. Shares that are judged leave idle \
              time out. Driver: drawing inputs, taking acknowledgements. Idle: without a processor \
              outside of attempts. Attempts that met a conflict count for the transaction. Two \
              writes each; TPC-C is Payment and New-Order."
            .to_string(),
        differs: vec![
            format!("{} workers, not 56, 64 or 20", table.workers()),
            "the log in memory: no time for persistence, so 2016's comparison of the logging time \
             on its disks is not judged"
                .to_string(),
            "the fold of a row's vector counts as stamps of rows: the counter's reads would take \
             longer than the fold"
                .to_string(),
        ],
        runs: runs(table),
        panels: vec![
            panel("YCSB", "(a) Two writes, theta 0.6", by_scheme),
            panel(CONTENDED, "(b) Two writes, theta 1.2", by_scheme),
            panel("TPC-C", "(c) Payment and New-Order", by_scheme),
            panel(LENGTHS, "(d) Taurus data logging, by accesses", by_accesses),
        ],
        checks: vec![
            tracking_grows(long),
            stamps(2.0),
            stamps(long),
            numbers_are_cheap("YCSB"),
            numbers_are_cheap("TPC-C"),
        ],
        not_measured: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Outcome};
    use crate::scale::Setup;
    use serde_json::json;

    #[test]
    fn parts_are_shares_of_all_time() {
        let setup = Setup::typical(Size::FULL);
        let experiment = experiment(&Table::of(&setup));
        let mut data = Data::default();
        for run in &experiment.runs {
            let us = json!({"logic": 1.0, "index": 1.0, "control": 1.0, "tracking": run.x,
                "stamp": 0.0, "record": 1.0, "place": 1.0, "buffer": 1.0, "wait": 0.0});
            let phases = json!({"us": us, "driver_us": 1.0, "idle_us": 1.0,
                "attempts": 50, "interrupted": 1});
            for _ in 0..5 {
                data.add(&run.words, Outcome::Done(json!({ "phases": phases })));
            }
        }
        let view = View { data: &data, experiment: &experiment };
        let stacks = by_accesses(&view, LENGTHS);
        assert_eq!(stacks[0].label, "2 accesses");
        assert_eq!(stacks[0].parts[3], 20.0);
        assert_eq!(by_scheme(&view, "TPC-C").len(), 11);
        let found = experiment.checks[3].look(&view).unwrap();
        // A place takes as long as the record, and half as long as record and buffer.
        assert!(found.text.contains("0.5"), "{}", found.text);
        assert_eq!(found.level, Level::Holds);
    }
}
