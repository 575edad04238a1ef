//! Partitions against shared rows, where no transaction spans partitions.

use super::*;

const TPCC: &str = "TPC-C at home";
const VOTER: &str = "Voter";

/// What our transactions by turns are expected to reach, over the best scheme of shared rows.
const EXPECTED: [(&str, f64); 2] = [(TPCC, 1.15), (VOTER, 1.1)];

type Series = (&'static str, &'static str, Scheme);

const ALL: [Series; 4] = [
    ("Partitioned, serial command", CONTROL, SERIAL_COMMAND),
    ("Silo, serial command", "silo", SERIAL_COMMAND),
    ("Silo, Taurus command", "silo", TAURUS_COMMAND),
    ("No-wait, serial command", "no-wait", SERIAL_COMMAND),
];

/// The partitioned scheme is at least `least` times the best of the others.
fn exceeds(group: &'static str, all: &[Series], least: f64) -> Check {
    let shared: Vec<&'static str> = all[1..].iter().map(|(series, ..)| *series).collect();
    let partitioned = all[0].0;
    Check::new(move |view| {
        let rate = |series| view.median(group, series, 0.0, Metric::Throughput);
        let rates = shared.iter().filter_map(|series| Some((*series, rate(series)?)));
        let (over, _) = rates.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let ratio = view.ratio(group, Metric::Throughput, (partitioned, 0.0), (over, 0.0))?;
        let text = format!(
            "{group}: {partitioned} is {} times the best without partitions, {over} (expected: \
             at least {least})",
            with_interval(&ratio)
        );
        Some(Finding { text, level: of_band(&ratio, least, f64::INFINITY) })
    })
    .not_by(move |view| without_conflicts(view, group, &ALL))
    .measured_apart()
}

/// Why turns gain nothing: without partitions there are hardly any conflicts to be spared.
fn without_conflicts(view: &View<'_>, group: &str, all: &[Series]) -> Option<String> {
    let at = |series, metric| view.median(group, series, 0.0, metric);
    let rates = all[1..]
        .iter()
        .filter_map(|(series, ..)| Some((*series, at(*series, Metric::Throughput)?)));
    let (over, _) = rates.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let conflicts = at(over, Metric::Conflicts)?;
    let [turns, shared] = [all[0].0, over].map(|series| worker_us(view, group, (series, 0.0)));
    (conflicts < 0.05).then_some(())?;
    let busy = |series| {
        Some(1e6 * at(series, Metric::WorkerProcessors)? / at(series, Metric::Throughput)?)
    };
    let processors = match (busy(all[0].0), busy(over)) {
        (Some(partitioned), Some(without)) => {
            format!(", {} and {} of it processor time", short(partitioned), short(without))
        }
        _ => String::new(),
    };
    Some(format!(
        "without partitions there are {} conflicts for each transaction ({over}), so that turns \
         save hardly any retries; a transaction takes a worker {} \u{b5}s with turns, waiting \
         for them included, and {} without{processors}",
        short(conflicts),
        short(turns?),
        short(shared?)
    ))
}

pub(super) fn experiment(table: &Table<'_>) -> Experiment {
    // Where time is short, what has the shortest population.
    let fine = table.size.fine;
    let all = if fine { &ALL[..] } else { &ALL[..2] };
    let expected = if fine { &EXPECTED[..] } else { &EXPECTED[1..] };
    let mut runs = Vec::new();
    for &(group, _) in expected {
        for (series, control, scheme) in all {
            let command = match group {
                TPCC => table.full_mix().with("--home worker --remote 0"),
                _ => table.voter(),
            };
            let command = command.fixed("--concurrency", control).with(DEEP).with(FLUSH);
            runs.push(command.by(*scheme, "memory", 1, 4).run(group, *series, 0.0));
        }
    }
    let panel = |letter: char, group| Panel {
        group,
        title: format!("({letter}) {group}"),
        metric: Metric::Throughput,
        shape: Shape::Bars { log: false, paper: Vec::new() },
    };
    Experiment {
        id: "command-at-home",
        paper: Paper::CommandLogging,
        source: "section II, on execution by partitions",
        title: "Partitions against shared rows",
        claim: "A transaction that has its partition to itself needs no locks and no validation, \
                so where none spans partitions its scheme is the fastest. The paper has no figure \
                of this.",
        how: "All five transactions of TPC-C at home warehouses, without remote items and \
              payments, and Voter; commands, with one stream or, under Taurus, four in shared \
              memory. Expected, by our aim: 1.15 times the best scheme of shared rows on TPC-C, \
              1.1 times on Voter."
            .to_string(),
        differs: vec![
            "what is expected is ours, not the paper's".to_string(),
            NO_SITES.to_string(),
            format!("{} workers on {} warehouses", table.here.cores, table.size.warehouses),
        ],
        runs,
        panels: expected
            .iter()
            .zip('a'..)
            .map(|((group, _), letter)| panel(letter, group))
            .collect(),
        checks: expected.iter().map(|(group, least)| exceeds(group, all, *least)).collect(),
        not_measured: None,
    }
}
