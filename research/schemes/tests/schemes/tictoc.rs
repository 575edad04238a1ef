//! Promise: under TicToc a transaction whose reads were overwritten commits late where a late
//! commit is serializable, and fails where not. Each test runs one interleaving.

use crate::common::late::{self, A, B, COUNT, ITEMS, Item, Opened, beside, count, open};
use hyades::{Protocol, Transaction};
use hyades_schemes::TAURUS_2016;

#[test]
fn a_transaction_commits_although_what_it_read_was_overwritten() {
    for protocol in [Protocol::None, Protocol::Serial, Protocol::Taurus, TAURUS_2016] {
        let Opened { db, dir: _dir } = open(protocol);
        late::keep_valid(&db, A);
        let (seen, attempts) = beside(&db, late::copy, || {
            late::set(&db, A, 7);
        });
        assert_eq!((seen, attempts), (0, 1), "{protocol:?}");
        assert_eq!(late::get(&db, B), 100);
        assert_eq!(late::get(&db, A), 7);
    }
}

/// The same with a version not known to be valid later: the transaction runs again.
#[test]
fn without_a_common_time_it_runs_again() {
    let Opened { db, dir: _dir } = open(Protocol::None);
    let (seen, attempts) = beside(&db, late::copy, || late::set(&db, A, 7));
    assert_eq!((seen, attempts), (7, 2));
}

/// C7: replayed as a command the procedure would read the later write. A log of one stream is in
/// the order of commits, not of timestamps; lists name writers and not readers, so replay takes all
/// records covered by an anchor for older than all later records.
#[test]
fn a_late_procedure_is_logged_as_data() {
    for protocol in [Protocol::Serial, Protocol::Taurus, TAURUS_2016] {
        assert!(late::a_late_procedure_is_data(|| late::tictoc(protocol)), "{protocol:?}");
    }
}

#[test]
fn it_does_not_precede_what_a_snapshot_holds() {
    assert!(late::a_snapshot_is_a_prefix());
}

/// The same, if the absence of an index entry makes the transaction a later one.
#[test]
fn neither_if_it_has_only_seen_that_something_is_gone() {
    assert!(late::what_is_gone_is_gone_after_the_snapshot());
    assert!(late::what_can_be_inserted_was_deleted_after_the_snapshot());
}

#[test]
fn an_insertion_follows_those_that_missed_its_key() {
    for is_hash in [false, true] {
        assert!(late::an_insertion_is_behind_its_gap(is_hash), "hash: {is_hash}");
    }
}

/// T1 and T2 of one session are seen in their order.
#[test]
fn the_order_of_a_session_is_kept() {
    for one_session in [true, false] {
        let Opened { db, dir: _dir } = open(Protocol::None);
        late::keep_valid(&db, A);
        let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
            let first = count(tx, A)?;
            pause();
            Ok((first, count(tx, B)?))
        };
        let (seen, attempts) = beside(&db, look, || {
            let mut sessions = [db.session().unwrap(), db.session().unwrap()];
            let change = |id| move |tx: &Transaction<'_>| tx.update(ITEMS, id, &[COUNT.set(7)]);
            sessions[0].try_submit(change(A)).unwrap().0.unwrap();
            let second = usize::from(!one_session);
            sessions[second].try_submit(change(B)).unwrap().0.unwrap();
        });
        if one_session {
            assert_eq!((seen, attempts), ((7, 7), 2));
        } else {
            // Within an epoch the order of two sessions is not the order of real time.
            assert_eq!((seen, attempts), ((0, 7), 1));
        }
    }
}

/// The other rows are there: the tests above set up the stated rows.
#[test]
fn rows_are_filled() {
    let Opened { db, dir: _dir } = open(Protocol::None);
    let all = db.transact(|tx| Ok(tx.scan(ITEMS).rows()?.len())).unwrap();
    assert_eq!(all, Item::ALL);
}
