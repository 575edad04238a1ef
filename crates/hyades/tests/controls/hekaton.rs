//! Promise: under Hekaton a transaction reads as of its beginning, the first of two writers of a
//! row wins, and readers never conflict. Each test runs one interleaving.

use crate::common::late::a_late_procedure_is_data;
use crate::common::multiversion::{
    self as versions, A, B, Opened, beside, copy, get, hekaton, open, set,
};
use hyades::{Concurrency, Database, Error, Isolation, Protocol, Schema, Type};
use hyades_schemes::TICTOC;
use std::time::Duration;

/// Under Silo-R answers wait for the end of an epoch, which does not come here.
const PROTOCOLS: [Protocol; 3] = [Protocol::None, Protocol::Serial, Protocol::Taurus];

#[test]
fn a_reader_sees_what_was_there_when_it_began() {
    assert!(versions::a_reader_sees_its_beginning(versions::serializable()));
}

#[test]
fn of_two_writers_the_first_one_wins() {
    assert!(versions::the_first_writer_wins());
}

#[test]
fn deleted_rows_and_stale_entries_stay_for_earlier_readers() {
    assert!(versions::what_a_reader_needs_stays(versions::serializable()));
}

#[test]
fn unique_keys_are_unique() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let builder = hekaton(Protocol::None, isolation);
        assert!(versions::a_unique_key_is_of_the_present(builder), "{isolation:?}");
    }
}

#[test]
fn sums_and_rules_hold_beside_writers() {
    assert!(versions::sums_stay_right(versions::serializable(), Duration::from_secs(3)));
}

/// C6: what others are about to commit is read, and depended on.
#[test]
fn sums_and_rules_hold_with_speculative_reads() {
    for protocol in PROTOCOLS {
        let opened = versions::speculative(protocol);
        assert!(versions::sums_stay_right(opened, Duration::from_secs(2)), "{protocol:?}");
    }
}

/// A row read by a transaction is overwritten before the commit: the transaction runs again, unless
/// it need not be serializable.
#[test]
fn what_was_read_and_overwritten_is_a_conflict_of_serializable_transactions() {
    for protocol in PROTOCOLS {
        for (isolation, expected) in [(Isolation::Serializable, 7), (Isolation::Snapshot, 0)] {
            let Opened { db, dir: _dir } = open(protocol, isolation);
            let (seen, attempts) = beside(&db, copy, || set(&db, A, 7));
            assert_eq!(seen, expected, "{protocol:?} {isolation:?}");
            assert_eq!(attempts, if expected == 7 { 2 } else { 1 });
            assert_eq!((get(&db, A), get(&db, B)), (7, 100 + expected));
        }
    }
}

/// C5: replayed as a command on one version the procedure would read the later write.
#[test]
fn a_late_procedure_is_logged_as_data_in_a_serial_log() {
    assert!(a_late_procedure_is_data(|| hekaton(Protocol::Serial, Isolation::Snapshot)));
}

/// C3, C4: with vectors the procedure is a command, unless it begins and commits in different
/// epochs.
#[test]
fn a_late_procedure_is_replayed_on_the_versions_that_it_has_read() {
    for has_checkpoint in [false, true] {
        let declare = versions::late_hekaton;
        assert!(versions::a_late_procedure_is_replayed_on_its_version(declare, has_checkpoint));
    }
}

fn with_large_rows(memory: u64) -> Opened {
    let mut builder = hekaton(Protocol::None, Isolation::Serializable);
    builder = builder.snapshots(|snapshots| snapshots.memory = memory);
    let large = Schema::new("large").column("id", Type::I64).column("bytes", Type::Bytes);
    builder.table(large.primary_key(&["id"]));
    versions::open_filled(builder)
}

/// For an ended transaction nothing is kept: the transaction must not take a row removed since for
/// a missing row.
#[test]
fn a_transaction_that_was_ended_misses_no_row() {
    let Opened { db, dir: _dir } = with_large_rows(32 << 20);
    assert_eq!(versions::attempts_of_one_that_misses_a_row(&db), 2);
    assert_eq!(db.stats().snapshots_ended, 1);
}

#[test]
fn a_transaction_that_needs_too_much_memory_runs_again() {
    for memory in [32 << 20, 1 << 30] {
        let Opened { db, dir: _dir } = with_large_rows(memory);
        let attempts = versions::attempts_of_one_that_needs_too_much(&db);
        assert_eq!(attempts, if memory == 1 << 30 { 1 } else { 2 });
        // All transactions are done, and nothing is kept for them.
        let mut session = db.session().unwrap();
        for _ in 0..200 {
            session.try_submit(|tx| tx.get(versions::ITEMS, A).map(drop)).unwrap().0.unwrap();
        }
        let kept = db.stats().snapshot_bytes;
        assert!(kept <= 1 << 20, "{kept} bytes are kept");
    }
}

#[test]
fn other_concurrency_controls_offer_no_snapshot_isolation() {
    for concurrency in [Concurrency::NoWait, Concurrency::Silo, TICTOC] {
        let builder = Database::builder().concurrency(concurrency).isolation(Isolation::Snapshot);
        let refused = builder.protocol(Protocol::None).open("").err().unwrap();
        assert!(matches!(refused, Error::Misuse(_)), "{refused}");
        assert!(refused.to_string().contains("hekaton"), "{refused}");
    }
}
