//! Promise: under timestamp order a transaction reads and commits as of its beginning, and fails
//! where a later transaction has already read the state before the write. Each test runs one
//! interleaving.

use crate::common::late::a_late_procedure_is_data;
use crate::common::ordering as order;
use crate::common::ordering::{A, B, Opened, beside, copy, get, open_filled, ordered, set};
use hyades::{Error, Protocol};
use hyades_schemes::POPLAR;
use std::time::Duration;

const PROTOCOLS: [Protocol; 3] = [Protocol::None, Protocol::Serial, Protocol::Taurus];

fn open() -> Opened {
    open_filled(ordered(Protocol::None))
}

#[test]
fn a_reader_sees_what_was_there_when_it_began() {
    assert!(order::a_reader_sees_its_beginning(open()));
}

#[test]
fn deleted_rows_and_stale_entries_stay_for_earlier_readers() {
    assert!(order::what_a_reader_needs_stays(open()));
}

#[test]
fn unique_keys_are_unique() {
    assert!(order::a_unique_key_is_of_the_present(ordered(Protocol::None)));
}

#[test]
fn sums_and_rules_hold_beside_writers() {
    assert!(order::sums_stay_right(open(), Duration::from_secs(3)));
}

/// A row read by a transaction is overwritten before the transaction commits: the transaction
/// commits all the same, before the overwriting transaction.
#[test]
fn it_commits_although_what_it_read_was_overwritten() {
    for protocol in PROTOCOLS {
        let Opened { db, dir: _dir } = open_filled(ordered(protocol));
        let (seen, attempts) = beside(&db, copy, || set(&db, A, 7));
        assert_eq!((seen, attempts), (0, 1), "{protocol:?}");
        assert_eq!((get(&db, A), get(&db, B)), (7, 100));
    }
}

/// The row to write was written later.
#[test]
fn it_does_not_overwrite_a_later_version() {
    let Opened { db, dir: _dir } = open();
    let (_, attempts) = beside(&db, copy, || set(&db, B, 7));
    assert_eq!((get(&db, B), attempts), (100, 2));
}

#[test]
fn it_does_not_overtake_what_has_read_later() {
    assert!(order::a_later_reader_is_not_overtaken(open()));
    assert!(order::a_row_marked_later_is_not_overtaken(open()));
    for (is_hash, is_scan) in [(false, false), (false, true), (true, false)] {
        assert!(order::a_later_miss_is_not_overtaken(open(), is_hash, is_scan), "{is_hash}");
    }
    assert!(order::a_later_look_into_an_index_is_not_overtaken(open()));
}

#[test]
fn it_does_not_commit_in_an_epoch_that_is_closed() {
    assert!(order::a_snapshot_does_not_change(open()));
    assert!(order::a_checkpoint_loses_nothing());
}

#[test]
fn what_was_ended_does_not_commit() {
    assert!(order::what_was_ended_runs_again());
}

/// C5: replayed as a command on one version the procedure would read the later write.
#[test]
fn a_late_procedure_is_logged_as_data_in_a_serial_log() {
    assert!(a_late_procedure_is_data(|| ordered(Protocol::Serial)));
}

/// With vectors the command is replayed on the versions that the procedure has read.
#[test]
fn a_late_procedure_is_replayed_on_the_versions_that_it_has_read() {
    let declare = || ordered(Protocol::Taurus).streams(2);
    assert!(order::a_late_procedure_is_replayed_on_its_version(declare, false));
}

#[test]
fn it_offers_no_snapshot_isolation_and_not_all_protocols() {
    let builder = ordered(Protocol::None).isolation(hyades::Isolation::Snapshot);
    let refused = builder.open("").err().unwrap();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
    let refused = ordered(POPLAR).open("never made").err().unwrap().to_string();
    assert!(refused.contains("timestamp-order") && refused.contains("taurus"), "{refused}");
}
