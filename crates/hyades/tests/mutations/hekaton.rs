//! Mutation tests: rules of Hekaton, each broken on purpose, are noticed by the tests of
//! `hekaton.rs`.

use crate::common::broken::{self, BrokenRule};
use crate::common::late::a_late_procedure_is_data;
use crate::common::multiversion as versions;
use hyades::{Isolation, Protocol};
use hyades_platform::mutation::Mutation;
use std::time::Duration;

#[test]
fn each_broken_rule_of_hekaton_is_noticed() {
    let _alone = broken::alone();
    let late =
        || a_late_procedure_is_data(|| versions::hekaton(Protocol::Serial, Isolation::Snapshot));
    let straddling =
        || versions::a_late_procedure_is_replayed_on_its_version(versions::late_hekaton, true);
    let late_again =
        || versions::a_late_procedure_is_replayed_on_its_version(versions::late_hekaton, false);
    let unique = || {
        let builder = versions::hekaton(Protocol::None, Isolation::Snapshot);
        versions::a_unique_key_is_of_the_present(builder)
    };
    let sums = || versions::sums_stay_right(versions::serializable(), Duration::from_secs(20));
    let speculative = || {
        let opened = versions::speculative(Protocol::None);
        versions::sums_stay_right(opened, Duration::from_secs(20))
    };
    let beginning = || versions::a_reader_sees_its_beginning(versions::serializable());
    let needed = || versions::what_a_reader_needs_stays(versions::serializable());
    let rules: [BrokenRule<'_>; 14] = [
        (Mutation::LateCommands, &late),
        (Mutation::StraddlingCommands, &straddling),
        (Mutation::ForgetAboveFloor, &late_again),
        (Mutation::OverlookReaders, &beginning),
        (Mutation::LeavePartsBehind, &beginning),
        (Mutation::OverwriteNewer, &versions::the_first_writer_wins),
        (Mutation::UnlinkForReaders, &needed),
        (Mutation::UniqueAsOfSnapshot, &unique),
        (Mutation::ReadBeforeAnnouncing, &sums),
        (Mutation::DrawBeforeSaying, &sums),
        (Mutation::BoundAsTimestamp, &sums),
        (Mutation::OverlookPreparing, &sums),
        (Mutation::ValidateInPlaceOnly, &sums),
        (Mutation::ForgetDependencies, &speculative),
    ];
    broken::each_is_noticed(&rules);
}
