//! Deuteronomy (CIDR 2015): the figures of a transaction component over a data component.

use super::setup::*;
use crate::axis::short;
use crate::chart::{Line, Spread};
use crate::checks::with_interval;
use crate::experiment::{Derived, Panel, Paper, Shape};
use crate::judge::{Basis, Check, Finding, TOLERANCE, of_band, of_factor};
use crate::reasons::{percent, worker_us};
use serde_json::Value;

pub(super) fn experiments(table: &Table<'_>) -> Vec<Experiment> {
    vec![touched(table), scaling(table), latencies(table), collection(table)]
}

/// Bytes in memory of a key with a value and a version, about.
const RECORD_BYTES: u64 = 300;
pub(super) const MEMORY: &str = "--dc memory";

/// The paper's workload over a data component, with the log in shared memory.
pub(super) fn component(table: &Table<'_>, most_rows: u64, options: &str) -> Command {
    let command = table.small_ycsb_with(most_rows, "--engine deuteronomy");
    command.without_control().with("--device memory").with(options)
}

/// The memory for `percent` percent of all keys.
fn budget(table: &Table<'_>, percent: u64) -> String {
    let bytes = table.size.rows * RECORD_BYTES * percent / 100;
    format!("--budget {}KiB", (bytes / 1024).max(1024))
}

pub(super) fn differs(table: &Table<'_>, more: &[&str]) -> Vec<String> {
    let mut all = vec![
        format!(
            "{} cores and {} keys, not 32 cores and 50 million",
            table.here.cores,
            table.rows()
        ),
        "the log is in shared memory, on 4 streams, not on one SSD".to_string(),
    ];
    all.extend(more.iter().map(|text| text.to_string()));
    all
}

pub(super) fn bars(group: &'static str, title: &str, metric: Metric) -> Panel {
    let shape = Shape::Bars { log: false, paper: Vec::new() };
    Panel { group, title: title.to_string(), metric, shape }
}

/// A run's lines over time, a line for each series: the last round's.
fn over_time(view: &View<'_>, group: &str, x: &str, y: &str, times: f64) -> Vec<Line> {
    let number = |moment: &Value, key: &str| moment.get(key).and_then(Value::as_f64);
    let line = |run: &Run| {
        let printed = view.data.of(&run.words).iter().rev().find_map(|outcome| outcome.value())?;
        let moments = printed.pointer("/observed/over_time")?.as_array()?;
        let point =
            |moment: &Value| Some((number(moment, x)?, Spread::one(number(moment, y)? * times)));
        let points = moments.iter().filter_map(point).collect();
        Some(Line { label: run.series.clone(), points })
    };
    view.runs(group).filter_map(line).collect()
}

fn derived(
    group: &'static str,
    title: &str,
    lines: Derived,
    (x, log_x): (&'static str, bool),
    y: &'static str,
) -> Panel {
    let shape = Shape::Derived { lines, x, log_x, y };
    Panel { group, title: title.to_string(), metric: Metric::Throughput, shape }
}

/// A metric of a series over another metric of the same series, by the medians.
fn over_own(
    view: &View<'_>,
    (group, series): (&str, &str),
    metric: Metric,
    over: Metric,
) -> Option<Spread> {
    let (figure, over) =
        (view.at(group, series, 0.0, metric)?, view.median(group, series, 0.0, over)?);
    Some(figure.map(|figure| figure / over))
}

/// The ratio of two series lies in a band: our aim where the paper has no number.
pub(super) fn within(
    (group, metric): (&'static str, Metric),
    series: &'static str,
    over: &'static str,
    (low, high): (f64, f64),
    expected: &'static str,
) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(group, metric, (series, 0.0), (over, 0.0))?;
        let text = format!(
            "{group}, {}: {series} is {} times {over} ({expected})",
            metric.label(),
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, low, high) })
    })
}

const TOUCHED: &str = "Keys that were accessed";

/// The share of accessed keys after `accesses` accesses for each key, by rounds.
fn touched_at(view: &View<'_>, accesses: f64) -> Option<Spread> {
    let run = view.runs(TOUCHED).next()?;
    let share = |printed: &Value| {
        let moments = printed.pointer("/observed/over_time")?.as_array()?;
        let number = |moment: &Value, key: &str| moment.get(key).and_then(Value::as_f64);
        let at =
            |moment: &&Value| number(moment, "accesses_per_key").is_some_and(|n| n >= accesses);
        number(moments.iter().find(at)?, "touched_share")
    };
    let outcomes = view.data.of(&run.words).iter();
    Spread::of(outcomes.filter_map(|outcome| share(outcome.value()?)).collect())
}

fn touched_share(accesses: f64, least: f64, paper: &'static str) -> Check {
    Check::new(move |view| {
        let share = touched_at(view, accesses)?;
        let text = format!(
            "After {accesses} accesses for each key {} of the keys were accessed (paper: {paper})",
            with_interval(&share)
        );
        Some(Finding { text, level: of_band(&share, least, 1.0) })
    })
    // Keys are drawn alike whatever the engine does with them.
    .claimed("section 6.1, figure 5")
    .resting_on(Basis::Construction)
}

fn touched(table: &Table<'_>) -> Experiment {
    let run = component(table, 10_000, &format!("{MEMORY} --observe"));
    Experiment {
        id: "deuteronomy-accessed",
        paper: Paper::Deuteronomy,
        source: "Figure 5, section 6.1",
        title: "A large and fine-grained working set",
        claim: "The workload has a large and fine-grained working set. At 1.5 million transactions \
                of four accesses per second more than half of 50 million records are accessed \
                within 20 seconds, nearly all within two minutes.",
        how:
            "The paper's times are 2.4 and 14.4 accesses for each record. A bit for each key says \
              whether it was accessed. Expected: half of the keys, a sixth more or less, and 90 %."
                .to_string(),
        differs: vec![
            "at most 10,000 keys, not 50 million".to_string(),
            "the share follows from the distribution of the keys, and is not judged".to_string(),
            "over accesses for each key, not over seconds".to_string(),
        ],
        runs: vec![run.run(TOUCHED, "Zipf, theta 0.9", 0.0)],
        panels: vec![derived(
            TOUCHED,
            "Share of the keys",
            |view, group| over_time(view, group, "accesses_per_key", "touched_share", 1.0),
            ("accesses for each key", false),
            "share of keys that were accessed",
        )],
        checks: vec![
            touched_share(2.4, 0.5 / TOLERANCE, "more than half"),
            touched_share(14.4, 0.9, "nearly all"),
        ],
        not_measured: None,
    }
}

fn scaling(table: &Table<'_>) -> Experiment {
    const GROUP: &str = "Threads";
    const SERIES: &str = "Transaction component";
    let run = |workers: f64| {
        let command = component(table, u64::MAX, MEMORY).fixed("--workers", &workers.to_string());
        command.run(GROUP, SERIES, workers)
    };
    Experiment {
        id: "deuteronomy-threads",
        paper: Paper::Deuteronomy,
        source: "Figure 6, section 6.2",
        title: "Threads that run transactions",
        claim: "Throughput scales well within a socket: 1.5 million transactions per second with \
                32 threads on two sockets, with an insignificant rate of aborts.",
        how: "The data component is in memory. The proxy and the log have threads of their own, \
              which need a part of the cores. Expected of two threads: at least 1.6 times one, and \
              less than 0.02 attempts in vain for each transaction."
            .to_string(),
        differs: differs(table, &["no cores for the proxy beside those of the transactions"]),
        runs: vec![run(1.0), run(2.0)],
        panels: vec![Panel {
            group: GROUP,
            title: "Throughput".to_string(),
            metric: Metric::Throughput,
            shape: Shape::Lines { x: "threads", log_x: false, log_y: false },
        }],
        checks: vec![
            Check::new(|view| {
                let (two, one) = ((SERIES, 2.0), (SERIES, 1.0));
                let ratio = view.ratio(GROUP, Metric::Throughput, two, one)?;
                let text = format!(
                    "Two threads run {} times the transactions of one (expected: at least 1.6)",
                    with_interval(&ratio)
                );
                Some(Finding { text, level: of_band(&ratio, 1.6, f64::INFINITY) })
            }),
            Check::new(|view| {
                let aborts = view.at(GROUP, SERIES, 2.0, Metric::Conflicts)?;
                let text = format!(
                    "Two threads: {} attempts in vain for each transaction (paper: insignificant)",
                    with_interval(&aborts)
                );
                Some(Finding { text, level: of_band(&aborts, 0.0, 0.02) })
            })
            .claimed("section 6.2"),
        ],
        not_measured: None,
    }
}

/// No read of a flash device is shorter, in microseconds.
const FASTEST_DEVICE_US: f64 = 10.0;

const LATENCIES: &str = "Operations";
const HITS: &str = "Transaction component over redb";

/// Cumulative distributions of the last round.
fn distributions(view: &View<'_>, group: &'static str) -> Vec<Line> {
    let kinds = [
        ("reads", "reads of the transaction component"),
        ("writes", "writes of the transaction component"),
        ("dc_gets", "reads of the data component"),
        ("dc_applies", "operations applied to the data component"),
    ];
    let Some(run) = view.runs(group).next() else { return Vec::new() };
    let printed = view.data.of(&run.words).iter().rev().find_map(|outcome| outcome.value());
    let line = |(key, label): (&str, &str)| {
        let points = printed?.pointer(&format!("/observed/{key}/points"))?.as_array()?;
        let point = |point: &Value| {
            let at = |index: usize| point.get(index).and_then(Value::as_f64);
            // The axis is logarithmic.
            Some((at(0)?.max(0.01), Spread::one(100.0 * at(1)?)))
        };
        let points = points.iter().filter_map(point).collect();
        Some(Line { label: label.to_string(), points })
    };
    kinds.into_iter().filter_map(line).collect()
}

fn latency_checks() -> Vec<Check> {
    let at_least = |metric: Metric, low: f64, words: &'static str| {
        Check::new(move |view| {
            let share = view.at(LATENCIES, HITS, 0.0, metric)?;
            let text = format!("{} {words}", with_interval(&share));
            Some(Finding { text, level: of_band(&share, low, 1.0) })
        })
    };
    vec![
        Check::new(|view| {
            let hits = (LATENCIES, HITS);
            let knee = over_own(view, hits, Metric::FastReads, Metric::HitRate)?;
            let text = format!(
                "The share of fast reads is {} times that of reads that find a version \
                 (expected: 0.95 to 1.05)",
                with_interval(&knee)
            );
            Some(Finding { text, level: of_band(&knee, 0.95, 1.05) })
        }),
        Check::new(|view| {
            let hits = (LATENCIES, HITS);
            let times = over_own(view, hits, Metric::DataGetTime, Metric::ReadTime)?;
            let text = format!(
                "A read of the data component takes {} times one of the transaction component \
                 (paper: 4)",
                with_interval(&times)
            );
            Some(Finding { text, level: of_factor(&times, 4.0) })
        })
        .claimed("section 6.4")
        .not_by(|view| {
            let at = |metric| view.median(LATENCIES, HITS, 0.0, metric);
            let (data, own) = (at(Metric::DataGetTime)?, at(Metric::ReadTime)?);
            // The fastest reads of a flash device are slower.
            (data < FASTEST_DEVICE_US).then(|| {
                format!(
                    "a read of redb takes {data:.2} \u{b5}s, less than a device, so that it finds \
                     its pages in memory; one of the component takes {own:.2}"
                )
            })
        }),
        at_least(
            Metric::FastWrites,
            0.95,
            "of the writes are faster than the median of an operation that is applied (expected: \
             at least 0.95)",
        ),
        at_least(
            Metric::HitRate,
            0.0,
            "of the reads found a version in memory (paper: 0.92 with its sizes)",
        )
        .claimed("section 6.4")
        .resting_on(Basis::Context),
    ]
}

fn latencies(table: &Table<'_>) -> Experiment {
    let options = format!("--dc redb {} --observe", budget(table, 120));
    let run = component(table, u64::MAX, &options).run(LATENCIES, HITS, 0.0);
    Experiment {
        id: "deuteronomy-latencies",
        paper: Paper::Deuteronomy,
        source: "Figure 8, section 6.4",
        title: "Latencies of operations",
        claim: "Reads of the transaction component find a version in memory 92 % of the time, \
                which is a knee in the distribution of their latencies; the others take as long as \
                a read of the data component. The mean read is 4 times faster than one of the data \
                component. Updates of the data component are in no operation's path.",
        how: "Over redb, with memory for versions and for the cache of redb that together holds \
              about all keys. One in 16 transactions is timed, and all that the data component \
              does. The knee is where it should be if the share of reads that are faster than \
              nearly all of the data component's is the share that found a version."
            .to_string(),
        differs: differs(
            table,
            &[
                "the data component is redb, not a Bw-tree",
                "an applied operation counts as its share of its batch",
            ],
        ),
        runs: vec![run],
        panels: vec![derived(
            LATENCIES,
            "Cumulative distribution",
            distributions,
            ("microseconds", true),
            "operations that take no longer (%)",
        )],
        checks: latency_checks(),
        not_measured: None,
    }
}

const COLLECTION: &str = "Memory for versions";
const AMPLE: &str = "Never full";
const LIMIT: &str = "Two thirds of the keys";
const SMALL: &str = "A sixth of the keys";

/// Collection takes at most `most` percent of the time.
fn costs(series: &'static str, most: f64, expected: &'static str) -> Check {
    Check::new(move |view| {
        let share = view.at(COLLECTION, series, 0.0, Metric::CollectingShare)?;
        let text = format!(
            "{series}: collection takes {} % of the workers' time ({expected})",
            with_interval(&share)
        );
        Some(Finding { text, level: of_band(&share, 0.0, most) })
    })
}

/// Why collection takes a larger share: of a shorter transaction.
fn of_short_transactions(view: &View<'_>) -> Option<String> {
    // 32 threads with 1.3 million transactions per second; collection takes 4 % of the time.
    const PAPER_US: f64 = 32.0 / 1.3;
    const PAPER_SHARE: f64 = 0.04;
    let share = view.median(COLLECTION, LIMIT, 0.0, Metric::CollectingShare)? / 100.0;
    let time = worker_us(view, COLLECTION, (LIMIT, 0.0))?;
    let (own, paper) = (share * time, PAPER_SHARE * PAPER_US);
    (own <= paper).then(|| {
        format!(
            "of a transaction's {} \u{b5}s it takes {}, in the paper of {} \u{b5}s (32 threads at \
             1.3 million per second) {}: the same work is a larger share of a shorter transaction",
            short(time),
            short(own),
            short(PAPER_US),
            short(paper)
        )
    })
}

/// Where a transaction's additional time goes if memory is full: to collection, and to reads of
/// keys not in memory.
fn by_collection(view: &View<'_>) -> Option<String> {
    let at = |series, metric| view.median(COLLECTION, series, 0.0, metric);
    let time = |series| worker_us(view, COLLECTION, (series, 0.0));
    let (ample, limit) = (time(AMPLE)?, time(LIMIT)?);
    let collection = limit * at(LIMIT, Metric::CollectingShare)? / 100.0;
    let found = [AMPLE, LIMIT].map(|series| at(series, Metric::HitRate));
    let [Some(found), Some(found_in_limit)] = found else { return None };
    (limit > ample && found_in_limit < found).then(|| {
        format!(
            "a transaction takes {} \u{b5}s instead of {}, of which collection is {}; {} of the \
             reads find a version instead of {}, and what the others fetch is put into memory, in \
             the rest of that time",
            short(limit),
            short(ample),
            short(collection),
            percent(found_in_limit),
            percent(found)
        )
    })
}

fn collection(table: &Table<'_>) -> Experiment {
    let run = |percent, series: &str| {
        let options = format!("{MEMORY} {} --observe", budget(table, percent));
        component(table, u64::MAX, &options).run(COLLECTION, series, 0.0)
    };
    let panel =
        |title: &str, lines: Derived, y| derived(COLLECTION, title, lines, ("seconds", false), y);
    Experiment {
        id: "deuteronomy-collection",
        paper: Paper::Deuteronomy,
        source: "Figure 9, section 6.5",
        title: "Collection of versions",
        claim: "When the memory for versions is full, threads that run transactions are co-opted \
                to drop versions. Throughput falls by about 20 %, from 1.6 to 1.3 million per \
                second, while collection takes 4 % of the time. With a small limit it falls to 1.0 \
                million, and collection takes half of the time: far more than in proportion.",
        how: "The data component is in memory, so that a key whose versions were dropped costs no \
              device. The limits are for the keys' own number; panels over time begin with the \
              warm-up, with nothing in memory."
            .to_string(),
        differs: differs(table, &["a run is far shorter than five minutes"]),
        runs: vec![run(2_000, AMPLE), run(67, LIMIT), run(17, SMALL)],
        panels: vec![
            bars(COLLECTION, "(a) Throughput", Metric::Throughput),
            panel(
                "(b) Throughput over time",
                |view, group| over_time(view, group, "seconds", "acknowledged_per_s", 1.0),
                "acknowledged transactions / s",
            ),
            panel(
                "(c) Memory over time",
                |view, group| over_time(view, group, "seconds", "version_bytes", 1e-6),
                "versions (MB)",
            ),
            panel(
                "(d) Collection over time",
                |view, group| over_time(view, group, "seconds", "collecting_share", 100.0),
                "share of the workers' time (%)",
            ),
        ],
        checks: vec![
            within(
                (COLLECTION, Metric::Throughput),
                LIMIT,
                AMPLE,
                (0.8, f64::INFINITY),
                "paper: 0.8",
            )
            .claimed("section 6.5")
            .not_by(by_collection),
            within(
                (COLLECTION, Metric::Throughput),
                SMALL,
                LIMIT,
                (0.0, 1.0),
                "paper: 0.8, at most 1",
            )
            .claimed("section 6.5"),
            costs(LIMIT, 4.0, "paper: 4").claimed("section 6.5").not_by(of_short_transactions),
            costs(AMPLE, 0.1, "expected: nothing"),
        ],
        not_measured: None,
    }
}
