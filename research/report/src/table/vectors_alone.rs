//! The time of LSN vectors alone, by the number of streams: the axis of figure 16 of Taurus 2020.

use super::setup::*;
use crate::chart::Stack;
use crate::checks::with_interval;
use crate::experiment::{Panel, Shape};
use crate::judge::{Basis, Check, Finding, TOLERANCE, of_band};

/// The group of the runs.
const ALONE: &str = "Vectors alone";
const WITH: &str = "with vector instructions";
const WITHOUT: &str = "without vector instructions";
/// Up to this number of streams both series run the same code.
const ALIKE: f64 = 8.0;
/// The time of vectors saved by vector instructions in the paper, in percent.
const SAVED: f64 = 89.5;

/// Runs of both series. The runs are short, because a run measures a loop on one thread.
pub(super) fn runs(table: &Table<'_>, steps: &[f64]) -> Vec<Run> {
    let seconds = (table.size.seconds / 2.0).min(0.3);
    let mut out = Vec::new();
    for (series, simd) in [(WITH, "on"), (WITHOUT, "off")] {
        for streams in steps {
            let text =
                format!("bench vectors --streams {streams} --simd {simd} --seconds {seconds}");
            let words = text.split(' ').map(str::to_string).collect();
            out.push(Run {
                group: ALONE,
                series: series.to_string(),
                x: *streams,
                words,
                cost: 0.1 + seconds,
            });
        }
    }
    out
}

/// The time by streams, and the parts of the time at the most streams.
pub(super) fn panels() -> [Panel; 2] {
    let x = "log streams: components of a vector";
    [
        Panel {
            group: ALONE,
            title: "(a) Vectors of a transaction, alone".to_string(),
            metric: Metric::VectorTime,
            shape: Shape::Lines { x, log_x: true, log_y: false },
        },
        Panel {
            group: ALONE,
            title: "(b) The same by operation, at the most streams".to_string(),
            metric: Metric::VectorTime,
            shape: Shape::Parts {
                stacks: operations,
                names: &["fold (five times)", "compare", "encode"],
                y: "time / transaction (ns)",
            },
        },
    ]
}

fn operations(view: &View<'_>, group: &'static str) -> Vec<Stack> {
    let most = view.runs(group).map(|run| run.x).fold(0.0, f64::max);
    let stack = |series: &'static str| {
        let figure = |metric| view.median(group, series, most, metric);
        let (fold, compare) = (figure(Metric::FoldTime)?, figure(Metric::CompareTime)?);
        let all = figure(Metric::VectorTime)?;
        let encode = figure(Metric::EncodeTime)?;
        let parts = vec![all - compare - encode, compare, encode];
        let label = format!("{series}: {fold:.1} ns a fold");
        Some(Stack { label, parts })
    };
    [WITH, WITHOUT].into_iter().filter_map(stack).collect()
}

/// The time of vectors saved by vector instructions, with `last` streams.
fn saves(last: f64) -> Check {
    Check::new(move |view| {
        let both = [(WITH, last), (WITHOUT, last)];
        let saved = view.by_rounds(ALONE, Metric::VectorTime, both, |[with, without]| {
            100.0 * (1.0 - with / without)
        })?;
        Some(Finding {
            text: format!(
                "With {last} streams vector instructions save {} % of the time of vectors alone \
                 (paper: up to {SAVED} %)",
                with_interval(&saved)
            ),
            level: of_band(&saved, SAVED / TOLERANCE, 100.0),
        })
    })
    .claimed("section 5.6, figure 16")
    .not_by(move |view| by_encoding(view, last))
}

/// Why the whole saves less than folds do: vectors are encoded component by component in any case.
fn by_encoding(view: &View<'_>, last: f64) -> Option<String> {
    let both = [(WITH, last), (WITHOUT, last)];
    let saved = |metric| view.by_rounds(ALONE, metric, both, |[a, b]| 100.0 * (1.0 - a / b));
    let (fold, encode) = (saved(Metric::FoldTime)?, saved(Metric::EncodeTime)?);
    (fold.median > encode.median).then(|| {
        format!(
            "of a fold they save {} %, of the encoding of a record's vector, which goes component \
             by component in both, {} %",
            with_interval(&fold),
            with_interval(&encode)
        )
    })
}

/// The checks, for the fewest wide vectors and the most.
pub(super) fn checks(steps: &[f64]) -> Vec<Check> {
    let last = steps.last().copied().unwrap_or(ALIKE);
    let few = steps.iter().copied().find(|streams| *streams > 1.0).unwrap_or(1.0);
    let time = Metric::VectorTime;
    // A loop over more components takes longer.
    let rises = Check::rises(ALONE, time, WITHOUT, few, last).claimed("section 5.6, figure 16");
    vec![saves(last), rises.resting_on(Basis::Construction)]
}

/// A description of the runs, for the text of the experiment.
pub(super) const HOW: &str = "Panels (a) and (b) time vectors alone (`hyades-lab bench vectors`): \
                              a loop on one thread that folds five vectors, compares one and \
                              encodes one, as a transaction that reads a row and writes another \
                              does.";
/// The differences from the paper.
pub(super) const DIFFERS: [&str; 2] = [
    "vectors alone are in the first-level cache, without the misses of a row's vectors; one \
     component in eight is above the anchor, and encoded",
    "without vector instructions means the compiler's code for any x86-64 processor; up to eight \
     components both are that",
];
