//! Mutation tests: rules of sum indexes, each broken on purpose, are noticed.

use crate::common::broken::{self, BrokenRule};
use crate::common::by_hand::BOTH;
use crate::common::sums;
use hyades_platform::mutation::Mutation;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(700);

#[test]
fn each_broken_rule_of_sums_is_noticed() {
    let _alone = broken::alone();
    for concurrency in BOTH {
        let rules: [BrokenRule<'_>; 10] = [
            (Mutation::SkipSums, &|| sums::a_changed_sum_is_a_conflict(concurrency, false)),
            (Mutation::ReadDroppedSum, &|| sums::a_changed_sum_is_a_conflict(concurrency, true)),
            (Mutation::IgnoreSumWriters, &|| sums::sums_are_no_write_skew(concurrency, SHORT)),
            (Mutation::ProposeSumLate, &|| {
                sums::sums_are_consistent(concurrency, sums::SMALL, SHORT)
            }),
            (Mutation::ReadUnprovenSum, &|| {
                sums::sums_are_consistent(concurrency, sums::SMALL, SHORT)
            }),
            (Mutation::SumWithoutStamp, &|| sums::a_reader_waits_for_writers(concurrency)),
            (Mutation::SumWithoutStamp, &|| {
                sums::what_follows_is_lost_with_its_writer(concurrency)
            }),
            (Mutation::UnstampedSum, &|| {
                sums::a_reader_waits_for_writers_before_the_node(concurrency)
            }),
            (Mutation::SkipSumReaders, &|| sums::a_writer_follows_commands(concurrency, false)),
            (Mutation::ForgetSumReaders, &|| sums::a_writer_follows_commands(concurrency, true)),
        ];
        for (rule, holds) in &rules {
            assert!(holds(), "{} holds under {concurrency:?}", rule.name());
        }
        broken::each_is_noticed(&rules);
    }
}
