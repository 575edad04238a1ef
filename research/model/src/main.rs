//! Prints the result of the checker for each item of docs/protocols: the trace that breaks a
//! promise under the printed rules and under each mistake, and the number of states under ours.

use hyades_model::deuteronomy::whole;
use hyades_model::{case::Case, cases};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let selected: Vec<Case> = cases()
        .into_iter()
        .filter(|case| wanted.is_empty() || wanted.iter().any(|item| item == case.item))
        .collect();
    let wants_whole = wanted.is_empty() || wanted.iter().any(|item| item == whole::ITEM);
    if selected.is_empty() && !wants_whole {
        let mut items: Vec<&str> = cases().iter().map(|case| case.item).collect();
        items.dedup();
        items.push(whole::ITEM);
        eprintln!("No item has that name. There are: {}.", items.join(", "));
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let mut wrong = 0;
    for case in &selected {
        match case.verify() {
            Ok(outcome) => println!("{}", case.report(&outcome)),
            Err(fault) => {
                println!("UNEXPECTED: {fault}");
                wrong += 1;
            }
        }
    }
    if wants_whole {
        match whole::report(whole::TRIALS) {
            Ok(report) => println!("{report}"),
            Err(fault) => {
                println!("UNEXPECTED: {fault}");
                wrong += 1;
            }
        }
    }
    println!(
        "{} cases in {:.1} s, {wrong} with unexpected results.",
        selected.len(),
        start.elapsed().as_secs_f64()
    );
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
