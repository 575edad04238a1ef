//! What counts as a paper's claim, and what is judged: no claim that no paper makes, and no
//! property of the set-up or of the input.
#![allow(missing_docs, reason = "tests are named by what they promise")]

use hyades_report::data::{Data, View};
use hyades_report::experiment::Experiment;
use hyades_report::judge::{Basis, Check, Finding, Level};
use hyades_report::metric::Metric;
use hyades_report::scale::{Rates, Setup, Size};
use hyades_report::table;
use std::collections::BTreeSet;

fn experiments() -> Vec<Experiment> {
    table::all(&Setup::typical(Size::FULL))
}

/// The metrics that a check reads, each with the command of the run, without figures.
fn reads(experiment: &Experiment, check: &Check) -> (Finding, Basis, Vec<(String, &'static str)>) {
    let data = Data::trial();
    let view = View { experiment, data: &data };
    // A check that reads the runs themselves has no figures in a trial.
    let none = || Finding { text: String::new(), level: Level::Undecided };
    let finding = check.look(&view).unwrap_or_else(none);
    let read = data.metrics_asked().into_iter().collect();
    let basis = check.basis(&view, Some(&finding));
    (finding, basis, read)
}

/// Every check, with its experiment.
fn all_checks(experiments: &[Experiment]) -> impl Iterator<Item = (&Experiment, &Check)> {
    experiments.iter().flat_map(|one| one.checks.iter().map(move |check| (one, check)))
}

/// Two claims of command logging held that no paper makes. A claim that counts names its place.
#[test]
fn a_claim_that_counts_names_its_place_in_a_paper() {
    let experiments = experiments();
    let mut counted = 0;
    for (experiment, check) in all_checks(&experiments) {
        let (finding, basis, _) = reads(experiment, check);
        let (id, text) = (experiment.id, &finding.text);
        let is_named = check.place().is_some_and(|place| {
            ["section", "figure", "table", "abstract"].iter().any(|word| place.contains(word))
        });
        assert_eq!(check.place().is_some(), is_named, "{id}: {text}");
        if basis == Basis::Tested {
            counted += 1;
            assert!(is_named && text.contains("(paper"), "{id}: {text}");
        }
        assert!(is_named || !text.contains("(paper: "), "{id}: {text}");
    }
    assert!(counted > 50, "{counted}");
}

/// The value of an option of a command.
fn option<'c>(command: &'c str, name: &str) -> Option<&'c str> {
    let mut words = command.split(' ').skip_while(|word| *word != name);
    words.nth(1)
}

/// An open loop acknowledges what is offered, so that equal rates are no result.
#[test]
fn the_rate_of_an_open_loop_is_judged_only_if_it_is_not_the_offered_load() {
    let experiments = experiments();
    let mut open = 0;
    for (experiment, check) in all_checks(&experiments).filter(|(_, check)| check.is_judged()) {
        let (finding, _, read) = reads(experiment, check);
        let is_open = |(command, metric): &(String, &str)| {
            *metric == Metric::Throughput.label() && option(command, "--rate").is_some()
        };
        if read.iter().any(is_open) {
            open += 1;
            assert!(check.excludes_set_up(), "{}: {}", experiment.id, finding.text);
        }
    }
    assert!(open > 0);
}

/// Loads are shares of a rate that was measured on the same workload.
#[test]
fn loads_are_shares_of_the_rate_of_the_same_workload() {
    let at = |rates: Rates| {
        let all = table::all(&Setup { rates, ..Setup::typical(Size::FULL) });
        let latency = all.into_iter().find(|one| one.id == "command-latency").unwrap();
        let mut loads: Vec<(&str, f64)> =
            latency.runs.iter().map(|run| (run.group, run.x)).collect();
        loads.dedup();
        loads
    };
    let typical = at(Rates::TYPICAL);
    for (other, moves) in [
        (Rates { ycsb: 3e6, payment: 1e6, new_order: 1e6, ..Rates::TYPICAL }, [false, false]),
        (Rates { voter_commands: 3e6, ..Rates::TYPICAL }, [true, false]),
        (Rates { tpcc_commands: 3e6, ..Rates::TYPICAL }, [false, true]),
    ] {
        let other = at(other);
        for (group, moves) in ["Voter", "TPC-C"].into_iter().zip(moves) {
            let loads = |all: &[(&str, f64)]| -> Vec<f64> {
                all.iter().filter(|(own, _)| *own == group).map(|(_, x)| *x).collect()
            };
            assert_eq!(loads(&typical) != loads(&other), moves, "{group}");
        }
    }
    let runs = table::calibration(&Setup::typical(Size::FULL)).map(|run| run.words.join(" "));
    for (workload, control) in [("voter", "partitioned"), ("tpcc", "partitioned")] {
        let is_it =
            |run: &&String| run.contains(workload) && option(run, "--concurrency") == Some(control);
        assert_eq!(runs.iter().filter(is_it).count(), 1, "{workload}: {runs:#?}");
    }
}

/// What the input or the set-up gives, any scheme shows: more skew makes longer chains, two threads
/// do more than one, a loop over more components takes longer, keys are drawn alike.
#[test]
fn no_property_of_the_input_is_judged() {
    let experiments = experiments();
    let without = |command: &str, names: &[&str]| -> Vec<String> {
        let words: Vec<&str> = command.split(' ').collect();
        let is_left = |at: &usize| {
            let is = |at: usize| names.contains(&words[at]);
            !(is(*at) || *at > 0 && is(*at - 1))
        };
        (0..words.len()).filter(is_left).map(|at| words[at].to_string()).collect()
    };
    for (experiment, check) in all_checks(&experiments) {
        let (finding, basis, read) = reads(experiment, check);
        if basis != Basis::Tested {
            continue;
        }
        let (id, text) = (experiment.id, &finding.text);
        let commands: BTreeSet<&String> = read.iter().map(|(command, _)| command).collect();
        let same = |names: &[&str]| {
            let all: BTreeSet<Vec<String>> =
                commands.iter().map(|command| without(command, names)).collect();
            commands.len() > 1 && all.len() == 1
        };
        assert!(!same(&["--workers", "--recovery-threads"]), "{id}, more threads: {text}");
        assert!(!same(&["--remote"]), "{id}, more that span partitions: {text}");
        let chains = read.iter().filter(|(_, metric)| *metric == Metric::Parallelism.label());
        let skews: BTreeSet<_> = chains.map(|(command, _)| option(command, "--theta")).collect();
        assert!(skews.len() < 2, "{id}, chains by skew: {text}");
        let alone = commands.iter().filter(|command| command.starts_with("bench vectors"));
        let codes: BTreeSet<_> = alone.map(|command| option(command, "--simd")).collect();
        assert!(codes.len() != 1, "{id}, more components: {text}");
    }
    for id in ["2020-parallelism", "deuteronomy-accessed"] {
        let experiment = experiments.iter().find(|one| one.id == id).unwrap();
        assert!(experiment.checks.iter().all(|check| !check.is_judged()), "{id}");
    }
}

/// With full queues latency is the time to drain them.
#[test]
fn no_latency_of_full_queues_is_judged() {
    let experiments = experiments();
    let mut seen = 0;
    for (experiment, check) in all_checks(&experiments).filter(|(_, check)| check.is_judged()) {
        let (finding, _, read) = reads(experiment, check);
        let medians = read.iter().filter(|(_, metric)| *metric == Metric::LatencyP50.label());
        for (command, _) in medians {
            seen += 1;
            let is_open = option(command, "--rate").is_some();
            assert!(is_open, "{}: {}: {command}", experiment.id, finding.text);
        }
    }
    assert!(seen > 10, "{seen}");
}
