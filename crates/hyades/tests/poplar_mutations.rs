//! Mutation test: a rule of Poplar, broken on purpose, is noticed by what `poplar.rs` tests.
#![allow(missing_docs)]

mod common;
use common::broken::{self, BrokenRule};
use common::by_hand::{BOTH, a_missing_row_depends_on_its_deletion};
use hyades_platform::mutation::Mutation;

#[test]
fn a_tombstone_that_is_removed_early_is_noticed() {
    for concurrency in BOTH {
        let waits = || a_missing_row_depends_on_its_deletion(concurrency);
        assert!(waits());
        let rules: [BrokenRule<'_>; 1] = [(Mutation::RemoveBeforeDurable, &waits)];
        broken::each_is_noticed(&rules);
    }
}
