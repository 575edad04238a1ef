//! Promise: under wait-die a transaction waits for younger transactions, runs again for an older
//! one, and holds rows and gaps until its end. Each test runs a few interleavings.

use crate::common::waiting::{self, Opened, open_filled};
use hyades::Protocol;
use hyades_schemes::TAURUS_2016;

fn open() -> Opened {
    open_filled(waiting::waiting(Protocol::None))
}

#[test]
fn the_younger_dies_and_the_older_waits() {
    for protocol in [Protocol::None, Protocol::Serial, Protocol::Taurus, TAURUS_2016] {
        let Opened { db, dir: _dir } = open_filled(waiting::waiting(protocol));
        assert!(waiting::the_younger_dies_for_the_older(&db), "{protocol:?}");
        assert!(waiting::the_older_waits_for_the_younger(&db), "{protocol:?}");
    }
}

#[test]
fn an_upgrade_waits_for_younger_readers() {
    let Opened { db, dir: _dir } = open();
    assert!(waiting::an_upgrade_waits_for_younger_readers(&db));
}

#[test]
fn a_transaction_keeps_its_age() {
    let Opened { db, dir: _dir } = open();
    assert!(waiting::a_transaction_keeps_its_age(&db));
}

#[test]
fn what_was_missed_stays_missed() {
    let Opened { db, dir: _dir } = open();
    assert!(waiting::a_missed_key_stays_missed(&db));
    assert!(waiting::a_missed_key_of_a_hash_table_stays_missed(&db));
    assert!(waiting::a_scanned_part_of_an_index_stays_as_it_is(&db));
    let Opened { db, dir: _dir } = open();
    assert!(waiting::a_scanned_range_stays_as_it_is(&db));
}

#[test]
fn an_insertion_waits_for_younger_readers_of_its_gap() {
    let Opened { db, dir: _dir } = open();
    assert!(waiting::an_insertion_waits_for_younger_readers(&db));
}

#[test]
fn an_inserted_row_is_locked() {
    let Opened { db, dir: _dir } = open();
    assert!(waiting::an_inserted_row_is_locked(&db));
}

#[test]
fn gaps_stay_locked_when_leaves_are_split_and_emptied() {
    assert!(waiting::what_was_split_off_stays_locked());
    assert!(waiting::a_locked_gap_is_not_merged());
}

#[test]
fn all_come_to_their_end() {
    let Opened { db, dir: _dir } = open();
    waiting::transfers_end(&db, 4, 2_000);
    let attempts = waiting::attempts_beside_short_writers(&db);
    assert!(attempts < 50, "it has starved for {attempts} attempts");
}
