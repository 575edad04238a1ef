//! Histories made by hand, each with a single fault.

use super::*;
use crate::{Database, LogOptions, MemoryData, Options};
use hyades_platform::device::MemoryDevice;
use std::sync::Arc;

const KEYS: [KeyByte; 3] = [1, 2, 3];

/// A database with a single, non-durable key: a reader of the key is not acknowledged.
fn undurable() -> (tempfile::TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    log.stepped = true;
    let database = Database::open(Options::new(log), Arc::new(MemoryData::new())).unwrap();
    drop(database.session().unwrap().submit(|tx| tx.put(b"a", b"1")).unwrap());
    (dir, database)
}

/// The reads and writes of a transaction, and whether the transaction is acknowledged.
type MadeByHand<'a> = (&'a [(KeyByte, WriteNumber)], &'a [(KeyByte, WriteNumber)], bool);

/// A history with initial states: key 1 was 5, key 2 was 6, and key 3 had no value. The timestamps
/// of the transactions ascend.
fn history(database: &Database, transactions: &[MadeByHand<'_>]) -> LifeHistory {
    let executed =
        transactions.iter().enumerate().map(|(ts, (reads, writes, acknowledged))| ExecutedInLife {
            ts: ts as u64,
            reads: reads.to_vec(),
            writes: writes.iter().copied().collect(),
            ticket: Some(database.session().unwrap().submit(|tx| tx.get(b"a")).unwrap().1),
            acknowledged: *acknowledged,
        });
    let base = [(1, Some(5)), (2, Some(6))].into_iter().collect();
    LifeHistory { base, executed: executed.collect() }
}

fn state(found: [WriteNumber; 3]) -> KeyState {
    KEYS.into_iter().zip(found).collect()
}

#[test]
fn what_is_wrong_is_told_by_its_kind() {
    let (_dir, database) = undurable();
    let write = |key, number| (key, Some(number));
    // A writer of two keys, a reader of the first, and a deleter of the second.
    let (first, second) = ([write(1, 10), write(2, 11)], [write(3, 12)]);
    let (read, deletion) = ([write(1, 10)], [(2, None)]);
    let three = |acknowledged: [bool; 3]| {
        history(
            &database,
            &[
                (&[], &first, acknowledged[0]),
                (&read, &second, acknowledged[1]),
                (&[], &deletion, acknowledged[2]),
            ],
        )
    };
    let counts =
        |acknowledged, found| match three(acknowledged).check_recovered(&KEYS, &state(found)) {
            Ok(()) => WrongCounts::default(),
            Err(wrong) => wrong.counts,
        };
    let none = WrongCounts::default();
    let (nothing, all) = ([Some(5), Some(6), None], [Some(10), None, Some(12)]);
    for right in [nothing, all, [Some(10), Some(11), None], [Some(5), None, None]] {
        assert_eq!(counts([false; 3], right), none, "{right:?}");
    }
    let lost = |lost| WrongCounts { lost, ..none };
    assert_eq!(counts([true, false, false], nothing), lost(1));
    assert_eq!(counts([true, true, false], nothing), lost(2));
    assert_eq!(counts([false, true, false], nothing), lost(2), "what it has read, too");
    assert_eq!(counts([false; 3], [None, Some(6), None]), lost(1), "what was there before");
    let partial = WrongCounts { partial: 1, ..none };
    assert_eq!(counts([false; 3], [Some(10), Some(6), None]), partial);
    assert_eq!(counts([true, false, false], [Some(10), Some(6), None]), partial);
    let resurrected = WrongCounts { resurrected: 1, ..none };
    assert_eq!(counts([true, true, true], [Some(10), Some(11), Some(12)]), resurrected, "deleted");
    assert_eq!(counts([false; 3], [Some(9), Some(6), None]), resurrected, "aborted, or gone");
    let diverged = WrongCounts { diverged: 1, ..none };
    assert_eq!(counts([false; 3], [Some(5), Some(6), Some(12)]), diverged, "it has read 10");
    assert_eq!(counts([false; 3], [Some(5), Some(12), None]), diverged, "of another key");
}

#[test]
fn a_data_component_that_lacks_something_is_told_by_its_kind() {
    let (_dir, database) = undurable();
    let one = history(&database, &[(&[], &[(1, Some(10)), (2, None)], true)]);
    let wrong = |found| one.check_content(&KEYS, &state(found)).err().map(|wrong| wrong.counts);
    assert_eq!(wrong([Some(10), None, None]), None);
    let lost = WrongCounts { lost: 1, resurrected: 1, ..Default::default() };
    assert_eq!(wrong([Some(5), Some(6), None]), Some(lost));
    let partial = WrongCounts { partial: 1, resurrected: 1, ..Default::default() };
    assert_eq!(wrong([Some(10), Some(6), None]), Some(partial));
    let resurrected = WrongCounts { resurrected: 1, ..Default::default() };
    assert_eq!(wrong([Some(10), None, Some(4)]), Some(resurrected));
}

#[test]
fn a_wrong_read_diverges_and_a_missing_answer_is_late() {
    let (_dir, database) = undurable();
    let mut read = history(&database, &[(&[(1, Some(6))], &[], true)]);
    let diverged = WrongCounts { diverged: 1, ..Default::default() };
    assert_eq!(read.check_reads().unwrap_err().counts, diverged);
    let mut open = history(&database, &[(&[], &[(1, Some(10))], false)]);
    open.executed.iter_mut().for_each(ExecutedInLife::look);
    let late = WrongCounts { late: 1, ..Default::default() };
    assert_eq!(open.check_acknowledged().unwrap_err().counts, late);
    database.log().flush().unwrap();
    open.executed.iter_mut().for_each(ExecutedInLife::look);
    assert_eq!(open.check_acknowledged(), Ok(()));
}

#[test]
fn values_of_no_bytes_do_not_say_by_which_transaction_they_are() {
    let (_dir, database) = undurable();
    let empty = Some(EMPTY);
    let two = history(&database, &[(&[], &[(1, empty)], false), (&[], &[(2, empty)], true)]);
    for found in [[empty, empty, None], [Some(5), empty, None]] {
        assert_eq!(two.check_recovered(&KEYS, &state(found)), Ok(()), "{found:?}");
    }
    let lost = WrongCounts { lost: 1, ..Default::default() };
    let wrong = two.check_recovered(&KEYS, &state([empty, Some(6), None])).unwrap_err();
    assert_eq!(wrong.counts, lost);
}
