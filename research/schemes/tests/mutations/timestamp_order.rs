//! Mutation tests: rules of timestamp order, each broken on purpose, are noticed by what
//! `timestamp_order.rs` tests.

use crate::common::broken::{self, BrokenRule};
use crate::common::late::a_late_procedure_is_data;
use crate::common::ordering as order;
use crate::common::ordering::{Opened, open_filled, ordered};
use hyades::Protocol;
use hyades_platform::mutation::Mutation;
use std::time::Duration;

fn open() -> Opened {
    open_filled(ordered(Protocol::None))
}

#[test]
fn each_broken_rule_of_timestamp_order_is_noticed() {
    let _alone = broken::alone();
    let sums = || order::sums_stay_right(open(), Duration::from_secs(20));
    let rules: [BrokenRule<'_>; 10] = [
        (Mutation::LateCommands, &|| a_late_procedure_is_data(|| ordered(Protocol::Serial))),
        (Mutation::OverlookReaders, &|| order::a_reader_sees_its_beginning(open())),
        (Mutation::UnlinkForReaders, &|| order::what_a_reader_needs_stays(open())),
        (Mutation::OverwriteReadLater, &|| order::a_later_reader_is_not_overtaken(open())),
        (Mutation::MarkedWithoutReader, &|| order::a_row_marked_later_is_not_overtaken(open())),
        (Mutation::GapsWithoutTimestamps, &|| {
            order::a_later_miss_is_not_overtaken(open(), false, true)
        }),
        (Mutation::CommitInClosedEpoch, &|| order::a_snapshot_does_not_change(open())),
        (Mutation::CommitInClosedEpoch, &order::a_checkpoint_loses_nothing),
        (Mutation::CommitAfterEnded, &order::what_was_ended_runs_again),
        (Mutation::LookBeforeReadMark, &sums),
    ];
    broken::each_is_noticed(&rules);
}
