//! Rules of the transaction component, each broken on purpose, are noticed by the torture.
#![allow(missing_docs)]

mod common;
#[path = "common/torture.rs"]
mod lives;
#[path = "common/older_stream.rs"]
mod older_stream;

use hyades_deuteronomy::Transaction;
use hyades_platform::mutation::{self, Mutation};
use lives::{Memory, Met, torture};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is noticed with this seed.
fn wrong(seed: u64) -> Option<String> {
    let run = || torture(seed, &mut Memory::new(), &mut Met::default());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(judged) => judged.err(),
        Err(_) => Some("a rule that is asserted is broken".to_string()),
    }
}

/// Whether a transaction is recovered, and what it has found by a scan is not.
fn without_what_it_has_scanned() -> bool {
    let scan = |tx: &mut Transaction<'_>| {
        assert_eq!(tx.scan(Bound::Unbounded, Bound::Unbounded, 9).unwrap().len(), 1);
    };
    older_stream::recovered_from_older(scan) == (false, true)
}

#[test]
fn each_broken_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for rule in Mutation::ALL.iter().filter(|rule| rule.is_of_transaction_component()) {
        if *rule == Mutation::ForgetScanned {
            // No crash loses what was synced, so lives cannot notice: a copy of the log does.
            mutation::set(Some(*rule));
            let recovered = without_what_it_has_scanned();
            mutation::set(None);
            assert!(recovered && !without_what_it_has_scanned(), "{}", rule.name());
            continue;
        }
        mutation::set(Some(*rule));
        let found = (0..3000).find_map(|seed| Some((seed, wrong(seed)?)));
        mutation::set(None);
        match found {
            Some((seed, noticed)) => {
                println!("{}: seed {seed}: {noticed}", rule.name());
                // It is the broken rule that was noticed.
                assert_eq!(wrong(seed), None, "seed {seed}, with all rules kept");
            }
            None => unnoticed.push(rule.name()),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
