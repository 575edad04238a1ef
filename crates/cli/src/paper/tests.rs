use super::*;
use crate::Arguments;
use clap::Parser;
use std::collections::BTreeSet;

/// Commands that a report may hold although this build refuses them, because what they ask for is
/// still to come.
fn awaited(words: &[String]) -> bool {
    let protocols = ["taurus-2016", "poplar", "silo-r", "plover", "gsn", "physiological"];
    let options =
        ["--devices", "--flush-interval", "--anchor-interval", "--read-and-write", "--scan-length"];
    words.iter().any(|word| {
        protocols.contains(&word.as_str())
            || options.contains(&word.as_str())
            || word.starts_with("throttled:")
    })
}

fn tables() -> Vec<Experiment> {
    let mut all = table::all(&Size::FULL, &Rates::TYPICAL);
    all.extend(table::all(&Size::QUICK, &Rates::TYPICAL));
    all
}

#[test]
fn commands_are_what_the_program_takes() {
    let mut seen = 0;
    for experiment in tables() {
        for run in &experiment.runs {
            let words = std::iter::once("hyades".to_string()).chain(run.words.clone());
            if let Err(error) = Arguments::try_parse_from(words.chain(["--json".to_string()])) {
                assert!(awaited(&run.words), "{}: {error}", experiment.id);
            } else {
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "commands were looked at");
}

#[test]
fn the_plans_fit_their_time() {
    for (size, budget) in BUDGET {
        let steps = plan::plan(&table::all(&size, &Rates::TYPICAL), 1);
        let cost = plan::cost(&steps);
        assert!(cost < budget.as_secs_f64(), "{} runs take {cost} s", steps.len());
    }
}

#[test]
fn an_unknown_experiment_is_refused_with_those_there_are() {
    let error = choose(tables(), &["figure-7".to_string()]).err();
    let Some(Failure::Usage(text)) = error else { panic!("wrong usage is told") };
    assert!(text.contains("2020-hdd-logging"), "{text}");
}

#[test]
fn ids_are_distinct() {
    let all = table::all(&Size::QUICK, &Rates::TYPICAL);
    let ids: BTreeSet<&str> = all.iter().map(|experiment| experiment.id).collect();
    assert_eq!(ids.len(), all.len());
}
