//! Mutation tests: rules of TicToc, each broken on purpose, are noticed by the tests of
//! `tictoc.rs`.

use crate::common::broken;
use crate::common::late;
use hyades::Protocol;
use hyades_platform::mutation::{self, Mutation};
use hyades_schemes::TAURUS_2016;

#[test]
fn each_broken_rule_of_tictoc_is_noticed() {
    let _alone = broken::alone();
    let is_prefix = || late::a_snapshot_is_a_prefix();
    let rules: [(Mutation, &dyn Fn() -> bool); 8] = [
        (Mutation::LateCommands, &|| {
            late::a_late_procedure_is_data(|| late::tictoc(Protocol::Taurus))
        }),
        (Mutation::LateCommands, &|| late::a_late_procedure_is_data(|| late::tictoc(TAURUS_2016))),
        (Mutation::LateCommands, &|| {
            late::a_late_procedure_is_data(|| late::tictoc(Protocol::Serial))
        }),
        (Mutation::LateAcrossEpochs, &is_prefix),
        (Mutation::LateAcrossEpochs, &late::what_is_gone_is_gone_after_the_snapshot),
        (Mutation::LateAcrossEpochs, &late::what_can_be_inserted_was_deleted_after_the_snapshot),
        (Mutation::GapsWithoutTimestamps, &|| late::an_insertion_is_behind_its_gap(false)),
        (Mutation::GapsWithoutTimestamps, &|| late::an_insertion_is_behind_its_gap(true)),
    ];
    for (rule, holds) in rules {
        assert!(holds(), "{} holds", rule.name());
        mutation::set(Some(rule));
        let held = holds();
        mutation::set(None);
        assert!(!held, "{} goes unnoticed", rule.name());
    }
}
