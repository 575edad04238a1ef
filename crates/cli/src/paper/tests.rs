use super::*;
use crate::{Arguments, Command};
use clap::Parser;
use std::collections::BTreeSet;

fn tables() -> Vec<Experiment> {
    let mut all = table::all(&Size::FULL, &Rates::TYPICAL);
    all.extend(table::all(&Size::QUICK, &Rates::TYPICAL));
    all
}

#[test]
fn commands_are_what_the_program_takes() {
    for experiment in tables() {
        for run in &experiment.runs {
            let words = std::iter::once("hyades".to_string()).chain(run.words.clone());
            let parsed = Arguments::try_parse_from(words.chain(["--json".to_string()]));
            let text = run.words.join(" ");
            match parsed.map(|arguments| arguments.command) {
                Ok(Command::Bench(bench)) => {
                    if let Err(Failure::Usage(why) | Failure::Failed(why)) = bench.settings() {
                        panic!("{}: {text}: {why}", experiment.id);
                    }
                }
                Ok(Command::Simulate(_)) => assert!(text.starts_with("simulate"), "{text}"),
                Ok(_) => panic!("{}: {text} is neither", experiment.id),
                Err(error) => panic!("{}: {text}: {error}", experiment.id),
            }
        }
    }
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
    let Some(Failure::Usage(text)) = error else { panic!("expected wrong usage") };
    assert!(text.contains("2020-hdd-logging"), "{text}");
}

#[test]
fn ids_are_distinct() {
    let all = table::all(&Size::QUICK, &Rates::TYPICAL);
    let ids: BTreeSet<&str> = all.iter().map(|experiment| experiment.id).collect();
    assert_eq!(ids.len(), all.len());
}
