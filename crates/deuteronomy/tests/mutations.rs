//! Rules of the transaction component, each broken on purpose, are noticed by the torture.
#![allow(missing_docs)]

#[path = "common/between.rs"]
mod between;
#[path = "common/older_stream.rs"]
mod older_stream;

use between::{At, inserts_behind_a_scan, misses_what_moves};
use hyades_deuteronomy::Transaction;
use hyades_deuteronomy::torture::{LifeCounts, MemoryStore, live};
use hyades_platform::mutation::{self, Mutation};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is noticed with this seed.
fn wrong(seed: u64) -> Option<String> {
    let run = || live(seed, &mut MemoryStore::default(), &mut LifeCounts::default());
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

/// What shows a rule broken that lives do not.
fn has_own_test(rule: Mutation) -> Option<fn() -> bool> {
    match rule {
        // No crash loses what was synced: a copy of the log does.
        Mutation::ForgetScanned => Some(without_what_it_has_scanned),
        // In lives nothing happens in the middle of a scan: it has one thread.
        Mutation::NoteAfterScan => Some(|| inserts_behind_a_scan(At::End)),
        Mutation::ScanDataFirst | Mutation::SkipEvictedInScan => {
            Some(|| misses_what_moves(At::End))
        }
        _ => None,
    }
}

#[test]
fn each_broken_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for rule in Mutation::ALL.iter().filter(|rule| rule.is_of_transaction_component()) {
        if let Some(is_wrong) = has_own_test(*rule) {
            mutation::set(Some(*rule));
            let is_noticed = is_wrong();
            mutation::set(None);
            assert!(is_noticed && !is_wrong(), "{}", rule.name());
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
