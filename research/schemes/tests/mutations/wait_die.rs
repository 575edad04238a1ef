//! Mutation tests: rules of wait-die, each broken on purpose, are noticed by what `wait_die.rs`
//! tests.

use crate::common::broken::{self, BrokenRule};
use crate::common::waiting::{self, Opened, open_filled};
use hyades::{Database, Protocol};
use hyades_platform::mutation::Mutation;

fn opened(holds: impl Fn(&Database) -> bool) -> bool {
    let Opened { db, dir: _dir } = open_filled(waiting::waiting(Protocol::None));
    holds(&db)
}

#[test]
fn each_broken_rule_of_wait_die_is_noticed() {
    let _alone = broken::alone();
    let rules: [BrokenRule<'_>; 8] = [
        (Mutation::YoungerWaits, &|| opened(waiting::the_younger_dies_for_the_older)),
        (Mutation::DrawTimestampAnew, &|| opened(waiting::a_transaction_keeps_its_age)),
        (Mutation::MissWithoutLock, &|| opened(waiting::a_missed_key_stays_missed)),
        (Mutation::MissWithoutLock, &|| opened(waiting::a_missed_key_of_a_hash_table_stays_missed)),
        (Mutation::MissWithoutLock, &|| opened(waiting::a_scanned_range_stays_as_it_is)),
        (Mutation::MissWithoutLock, &|| opened(waiting::a_scanned_part_of_an_index_stays_as_it_is)),
        (Mutation::MergeLockedGaps, &waiting::a_locked_gap_is_not_merged),
        (Mutation::ForgetSplitOff, &waiting::what_was_split_off_stays_locked),
    ];
    broken::each_is_noticed(&rules);
}
