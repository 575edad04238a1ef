//! Which records to prefer, by the length of transactions, their share of updates, and the share
//! that spans partitions: the paper's figure 11, from measured points.

use super::*;
use crate::experiment::Cells;
use crate::judge::LEAST;

/// A kind of transaction: a place in the paper's figure.
struct Kind {
    /// The group of the runs.
    group: &'static str,
    accesses: u32,
    /// The share of accesses that update.
    updates: f64,
    /// The share of transactions that span partitions.
    spanning: f64,
}

const fn kind(group: &'static str, accesses: u32, updates: f64, spanning: f64) -> Kind {
    Kind { group, accesses, updates, spanning }
}

/// All kinds. The first and the last are those of which the paper is sure; where time is short, the
/// others are left out.
const KINDS: [Kind; 8] = [
    kind("short, all updates, one partition", 4, 1.0, 0.0),
    kind("short, all updates, spanning", 4, 1.0, 1.0),
    kind("short, few updates, one partition", 4, 0.25, 0.0),
    kind("short, few updates, spanning", 4, 0.25, 1.0),
    kind("long, all updates, one partition", 64, 1.0, 0.0),
    kind("long, all updates, spanning", 64, 1.0, 1.0),
    kind("long, few updates, one partition", 64, 0.25, 0.0),
    kind("long, few updates, spanning", 64, 0.25, 1.0),
];

const NONE_LABEL: &str = NONE.label;
const COMMAND: &str = ARRIVAL.label;
const ROWS: &str = PHYSIOLOGICAL.label;

/// Few rows: the population takes less time than the runs.
const MOST_ROWS: u64 = 50_000;

fn kinds(table: &Table<'_>) -> Vec<&'static Kind> {
    let all = KINDS.iter();
    let [first, last] = [&KINDS[0], &KINDS[KINDS.len() - 1]];
    if table.size.fine { all.collect() } else { vec![first, last] }
}

fn runs(table: &Table<'_>, kind: &Kind) -> Vec<Run> {
    let Kind { group, accesses, updates, spanning } = *kind;
    // Rows enough for long transactions within one of 64 partitions.
    let words = format!(
        "--theta 0 --accesses {accesses} --write-share {updates} --remote {spanning} --sites {}",
        table.here.cores
    );
    let run = |scheme: Scheme| {
        let command = table.small_ycsb_with(MOST_ROWS, &words).fixed("--concurrency", CONTROL);
        let command = logged(command.by(scheme, "memory", 1, 1), scheme);
        let command = if scheme.label == NONE_LABEL { command } else { command.recovered() };
        command.run(group, scheme.label, 0.0)
    };
    [NONE, ARRIVAL, PHYSIOLOGICAL].map(run).into()
}

/// How two figures compare, where their interval says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    More,
    Less,
    Same,
    Undecided,
}

/// More or less by a twentieth at least; the same within a fifth.
fn compared(ratio: &Spread) -> Compared {
    match of_band(ratio, 1.0 / TOLERANCE, TOLERANCE) {
        _ if ratio.count < 2 => Compared::Undecided,
        _ if ratio.low >= LEAST => Compared::More,
        _ if ratio.high <= 1.0 / LEAST => Compared::Less,
        Level::Holds => Compared::Same,
        _ => Compared::Undecided,
    }
}

/// The records to prefer, from commands over physiological records: first by throughput, which a
/// database has every day; where that is the same, by replay. None where an interval does not
/// decide.
fn preferred(throughput: &Spread, replay: &Spread) -> Option<&'static str> {
    match (compared(throughput), compared(replay)) {
        (Compared::More, _) => Some(COMMAND),
        (Compared::Less, _) => Some(ROWS),
        (Compared::Same, Compared::Less) => Some(ROWS),
        // No slower to recover, and no larger a log.
        (Compared::Same, Compared::More | Compared::Same) => Some(COMMAND),
        (Compared::Same | Compared::Undecided, _) => None,
    }
}

/// The measured points of a kind.
struct Points {
    /// The share of the throughput without a log that each kind of record costs, in percent.
    overheads: [Spread; 2],
    /// Commands over physiological records.
    throughput: Spread,
    replay: Spread,
    /// Physiological records over commands.
    bytes: Spread,
}

impl Points {
    fn of(view: &View<'_>, group: &str) -> Option<Points> {
        let rate = Metric::Throughput;
        let ratio = |metric, a, b| view.ratio(group, metric, (a, 0.0), (b, 0.0));
        let cost = |series| {
            let points = [(series, 0.0), (NONE_LABEL, 0.0)];
            view.by_rounds(group, rate, points, |[logged, none]| 100.0 * (1.0 - logged / none))
        };
        Some(Points {
            overheads: [cost(COMMAND)?, cost(ROWS)?],
            throughput: ratio(rate, COMMAND, ROWS)?,
            replay: ratio(Metric::ReplayRate, COMMAND, ROWS)?,
            bytes: ratio(Metric::BytesPerTransaction, ROWS, COMMAND)?,
        })
    }

    fn verdict(&self) -> &'static str {
        preferred(&self.throughput, &self.replay).unwrap_or("undecided")
    }
}

/// A range without its number of rounds: `2 (1.8 to 2.2)`.
fn range(spread: &Spread) -> String {
    let [low, median, high] = [spread.low, spread.median, spread.high].map(short);
    if spread.count < 2 { median } else { format!("{median} ({low} to {high})") }
}

/// The figure as a table: a row for each kind.
fn cells(view: &View<'_>, _: &'static str) -> Cells {
    let row = |kind: &Kind| {
        let points = Points::of(view, kind.group)?;
        let rate = |series| {
            let at = |metric| view.at(kind.group, series, 0.0, metric);
            Some([at(Metric::ReplayRate)?, at(Metric::BytesPerTransaction)?].map(|s| range(&s)))
        };
        let ([command_replay, command_bytes], [rows_replay, rows_bytes]) =
            (rate(COMMAND)?, rate(ROWS)?);
        let [command, rows] = points.overheads.each_ref().map(range);
        Some(vec![
            kind.group.to_string(),
            command,
            rows,
            range(&points.throughput),
            command_replay,
            rows_replay,
            command_bytes,
            rows_bytes,
            points.verdict().to_string(),
        ])
    };
    Cells {
        heads: vec![
            "transactions",
            "commands cost (%)",
            "rows cost (%)",
            "throughput, commands over rows",
            "commands replayed / s",
            "rows replayed / s",
            "bytes of a command",
            "bytes of rows",
            "preferred",
        ],
        rows: KINDS.iter().filter_map(row).collect(),
    }
}

/// The figures of a kind, and what they say; the paper has a word for the place, no figure.
fn shown(group: &'static str) -> Check {
    Check::new(move |view| {
        let points = Points::of(view, group)?;
        let [command, rows] = points.overheads.each_ref().map(with_interval);
        Some(Finding {
            text: format!(
                "{group}: logging commands costs {command} % of the throughput, physiological \
                 records {rows} %; commands have {} times the throughput, are replayed {} times \
                 as fast, and rows take {} times their bytes. Preferred: {}",
                with_interval(&points.throughput),
                with_interval(&points.replay),
                with_interval(&points.bytes),
                points.verdict()
            ),
            level: Level::Undecided,
        })
    })
    .resting_on(Basis::Context)
}

const PLACE: &str = "section V-D, figure 11";

/// Commands have more throughput where transactions are short and update much.
fn more(group: &'static str) -> Check {
    Check::new(move |view| {
        let ratio = view.ratio(group, Metric::Throughput, (COMMAND, 0.0), (ROWS, 0.0))?;
        let text = format!(
            "{group}: commands have {} times the throughput of physiological records (paper: more)",
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, LEAST, f64::INFINITY) })
    })
    .claimed(PLACE)
    .not_by(move |view| {
        let points = [(ROWS, 0.0), (NONE_LABEL, 0.0)];
        let kept = view.ratio(group, Metric::Throughput, points[0], points[1])?;
        (kept.median * LEAST > 1.0).then(|| {
            format!(
                "physiological records keep {} times the throughput without a log, so that there \
                 is less than a twentieth to gain",
                with_interval(&kept)
            )
        })
    })
}

/// Physiological records cost as little, and are replayed faster, where transactions are long, span
/// partitions, and update few rows.
fn alike(group: &'static str) -> [Check; 2] {
    let replay = Metric::ReplayRate;
    let faster = Check::new(move |view| {
        let ratio = view.ratio(group, replay, (ROWS, 0.0), (COMMAND, 0.0))?;
        let text = format!(
            "{group}: physiological records are replayed {} times as fast as commands (paper: \
             faster)",
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, LEAST, f64::INFINITY) })
    });
    [Check::same(group, Metric::Throughput, COMMAND, ROWS).claimed(PLACE), faster.claimed(PLACE)]
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    let kinds = kinds(table);
    let [first, last] = [kinds[0].group, kinds[kinds.len() - 1].group];
    let mut checks = vec![more(first)];
    checks.extend(alike(last));
    checks.extend(kinds.iter().map(|kind| shown(kind.group)));
    Experiment {
        id: "command-choice",
        paper: Paper::CommandLogging,
        source: "Figure 11, section V-D",
        title: "Which records to prefer",
        claim: "Where transactions are short, and update much, commands have the higher \
                throughput, at the price of a slower recovery; they are the choice for most. \
                Where transactions are long, or mostly span partitions, and update few rows, \
                logging costs little either way, and physiological records are replayed faster: \
                they are probably the better choice.",
        how: format!(
            "The paper's figure has words for the places; here each has measured points. YCSB by \
             partitions: transactions of {} or {} accesses, of which all or a quarter update, to \
             one partition or, in turn, to two of different sites; {} sites, to which the workers \
             post their calls; group commit every 5 ms to memory, and recovery on all threads. \
             A kind of record is preferred if it has more throughput, by a twentieth at least; \
             where throughput is the same, within a fifth, the one that is replayed faster, and \
             if none is, commands. Where the interval does not decide, nothing is preferred.",
            KINDS[0].accesses,
            KINDS[KINDS.len() - 1].accesses,
            table.here.cores
        ),
        differs: vec![
            "the paper summarizes Voter and TPC-C; here one workload has all places, and its \
             procedures compute little beside their updates"
                .to_string(),
            format!(
                "{} sites, and no messages between nodes: what spans partitions stops two of them",
                table.here.cores
            ),
            "the workers, which draw and post the calls, share the processors with the sites"
                .to_string(),
            "what recovery may take is not weighed against throughput: figures are shown of both"
                .to_string(),
        ],
        runs: kinds.iter().flat_map(|kind| runs(table, kind)).collect(),
        panels: vec![Panel {
            group: first,
            title: "Commands or physiological records, by kind of transaction".to_string(),
            metric: Metric::Throughput,
            shape: Shape::Table(cells),
        }],
        checks,
        not_measured: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, Outcome};
    use crate::scale::Setup;
    use serde_json::json;

    fn spread(low: f64, high: f64) -> Spread {
        Spread { low, high, median: (low + high) / 2.0, ..Spread::range(vec![1.0; 5]).unwrap() }
    }

    /// No preference rests on an interval that has both.
    #[test]
    fn what_the_interval_does_not_decide_is_undecided() {
        let [more, less, same] = [spread(1.1, 1.6), spread(0.5, 0.9), spread(0.95, 1.04)];
        let open = spread(0.9, 1.4);
        for (throughput, replay, expected) in [
            (more, less, Some(COMMAND)),
            (more, open, Some(COMMAND)),
            (less, more, Some(ROWS)),
            (less, open, Some(ROWS)),
            (same, less, Some(ROWS)),
            (same, more, Some(COMMAND)),
            (same, same, Some(COMMAND)),
            (same, open, None),
            (open, more, None),
            (open, less, None),
            (Spread::one(3.0), less, None),
        ] {
            assert_eq!(preferred(&throughput, &replay), expected, "{throughput:?}, {replay:?}");
        }
    }

    #[test]
    fn a_place_has_its_figures_and_a_verdict() {
        let setup = Setup::typical(Size::FULL);
        let experiment = experiment(&Table::of(&setup));
        let mut data = Data::default();
        let group = KINDS[0].group;
        for run in experiment.runs.iter().filter(|run| run.group == group) {
            let (rate, replay, bytes) = match run.series.as_str() {
                COMMAND => (900.0, 800.0, 20.0),
                ROWS => (600.0, 1600.0, 200.0),
                _ => (1000.0, 0.0, 0.0),
            };
            for _ in 0..5 {
                let recovery = json!({ "records_per_s": replay });
                let outcome = json!({"acknowledged_per_s": rate, "recovery": recovery,
                    "log_bytes_per_transaction": bytes});
                data.add(&run.words, Outcome::Done(outcome));
            }
        }
        let view = View { experiment: &experiment, data: &data };
        let Cells { heads, rows } = cells(&view, group);
        assert_eq!(rows.len(), 1, "a kind without figures has no row");
        assert_eq!(rows[0].len(), heads.len());
        assert_eq!(rows[0][0], group);
        assert_eq!(rows[0][1..4], ["10 (10 to 10)", "40 (40 to 40)", "1.5 (1.5 to 1.5)"]);
        assert_eq!(rows[0][8], COMMAND);
        let texts: Vec<String> =
            experiment.checks.iter().filter_map(|check| Some(check.look(&view)?.text)).collect();
        assert!(texts.iter().any(|text| text.ends_with("Preferred: On arrival")), "{texts:?}");
    }
}
