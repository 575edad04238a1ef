//! Breaks rules of archives of the log on purpose. The tests that guard the rules must fail.

use crate::common::archiving::{PLAIN, a_gap_is_found, any_moment_comes_back, cut_truncations};
use crate::common::broken;
use hyades_platform::mutation::{self, Mutation};
use std::panic::catch_unwind;

/// A test that panics at a violation, and the rules guarded by the test.
type Guard = (fn(), &'static [Mutation]);

const GUARDS: [Guard; 3] = [
    (
        || assert!(cut_truncations(PLAIN) > 5),
        &[Mutation::TruncateUnarchived, Mutation::ArchiveUnsynced, Mutation::ListAfterTruncation],
    ),
    (|| any_moment_comes_back(PLAIN, 0), &[Mutation::OpenUnnoted]),
    (|| a_gap_is_found(PLAIN), &[Mutation::KeepBehindGap, Mutation::JoinOverGap]),
];

#[test]
fn each_broken_rule_of_archives_is_noticed() {
    let _alone = broken::alone();
    let guarded = GUARDS.iter().flat_map(|(_, rules)| rules.iter().copied());
    let all = Mutation::ALL.iter().copied().filter(|rule| rule.is_of_archives());
    assert!(all.eq(guarded), "each rule has a test");
    let mut unnoticed = Vec::new();
    for (guard, rules) in GUARDS {
        // Not broken, the rules hold.
        guard();
        for rule in rules {
            mutation::set(Some(*rule));
            let held = catch_unwind(guard).is_ok();
            mutation::set(None);
            unnoticed.extend(held.then_some(rule.name()));
        }
    }
    assert!(unnoticed.is_empty(), "these go unnoticed: {unnoticed:?}");
}
