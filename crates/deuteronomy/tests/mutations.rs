//! Rules of the transaction component, each broken on purpose, are noticed by the torture.
#![allow(missing_docs)]

mod common;
#[path = "common/torture.rs"]
mod lives;

use hyades_platform::mutation::{self, Mutation};
use lives::{Memory, Met, torture};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The first seed that notices, with what it says.
fn noticed(seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let run = || torture(seed, &mut Memory::new(), &mut Met::default());
        let wrong = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(judged) => judged.err()?,
            Err(_) => "a rule that is asserted is broken".to_string(),
        };
        Some((seed, wrong))
    })
}

#[test]
fn each_broken_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for rule in Mutation::ALL.iter().filter(|rule| rule.is_of_transaction_component()) {
        mutation::set(Some(*rule));
        let found = noticed(3000);
        mutation::set(None);
        match found {
            Some((seed, wrong)) => println!("{}: seed {seed}: {wrong}", rule.name()),
            None => unnoticed.push(rule.name()),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
    assert_eq!(noticed(20), None);
}
