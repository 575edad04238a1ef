//! Mutation tests: rules of snapshots, each broken on purpose, are noticed.

use crate::common::broken;
use crate::common::directory;
use crate::common::grouped::{
    ACCOUNTS, BY_GROUP, COUNT, GROUP, ROWS, beside_transfers, fill, open, row, sum,
};
use hyades::{Concurrency, Protocol};
use hyades_platform::mutation::{self, Mutation};
use std::time::{Duration, Instant};

const PAIR: (Protocol, Concurrency) = (Protocol::Taurus, Concurrency::Silo);

/// Whether a snapshot opened beside transfers holds a part of a transfer.
fn a_snapshot_holds_half_a_transfer(within: Duration) -> bool {
    let dir = directory();
    let db = open(dir.path(), PAIR, false);
    fill(&db);
    beside_transfers(&db, |_| {
        let until = Instant::now() + within;
        while Instant::now() < until {
            let total = db.snapshot(|tx| Ok(sum(tx.scan(ROWS).columns(COUNT.only()).rows()?)));
            if total.unwrap() != ACCOUNTS * 10 {
                return true;
            }
        }
        false
    })
}

/// Whether a snapshot shows a change made after its opening.
fn a_snapshot_shows_a_later_change() -> bool {
    let dir = directory();
    let db = open(dir.path(), PAIR, true);
    fill(&db);
    let snapshot = db.open_snapshot();
    db.transact(|tx| Ok(tx.update(ROWS, 1i64, &[COUNT.set(77)])?)).unwrap();
    let count = snapshot.read(|tx| Ok(tx.get(ROWS, 1i64)?.map(|row| row.get(COUNT))));
    count.unwrap() != Some(10)
}

/// Whether a snapshot misses rows in an index that have left their group since.
fn a_snapshot_misses_rows_of_a_group() -> bool {
    const COUNT_OF_ROWS: i64 = 500;
    let dir = directory();
    let db = open(dir.path(), PAIR, true);
    let mut session = db.session().unwrap();
    for id in 0..COUNT_OF_ROWS {
        session.submit(|tx| Ok(tx.overwrite(ROWS, &row(id, 3, ""))?)).unwrap().1.wait().unwrap();
    }
    let snapshot = db.open_snapshot();
    for round in 0..3i64 {
        for id in 0..COUNT_OF_ROWS {
            let change = |tx: &hyades::Transaction<'_>| {
                tx.update(ROWS, id, &[GROUP.set(if round == 1 { 3 } else { 4 })])
            };
            session.try_submit(change).unwrap().0.unwrap();
        }
    }
    let of_group = snapshot
        .read(|tx| Ok(tx.scan_index(ROWS, BY_GROUP).prefix(&[3i64.into()]).rows()?.len() as i64));
    of_group.unwrap() != COUNT_OF_ROWS
}

/// Whether a snapshot misses rows deleted during or before a read.
fn a_snapshot_misses_deleted_rows(within: Duration) -> bool {
    const COUNT_OF_ROWS: i64 = 500;
    let dir = directory();
    let db = open(dir.path(), PAIR, false);
    let (mut session, until) = (db.session().unwrap(), Instant::now() + within);
    while Instant::now() < until {
        for id in 0..COUNT_OF_ROWS {
            session.try_submit(|tx| tx.overwrite(ROWS, &row(id, 3, ""))).unwrap().0.unwrap();
        }
        let (snapshot, session) = (db.open_snapshot(), &mut session);
        let misses = std::thread::scope(|scope| {
            let deleting = scope.spawn(move || {
                for id in 0..COUNT_OF_ROWS {
                    session.try_submit(|tx| tx.delete(ROWS, id)).unwrap().0.unwrap();
                }
                std::thread::sleep(Duration::from_millis(3));
                session.free_unused();
            });
            loop {
                let was_over = deleting.is_finished();
                let rows = snapshot.for_each(ROWS, GROUP.only(), |_| ()).unwrap();
                if rows != COUNT_OF_ROWS as u64 || was_over {
                    break rows != COUNT_OF_ROWS as u64;
                }
            }
        });
        if misses {
            return true;
        }
    }
    false
}

#[test]
fn each_broken_rule_of_snapshots_is_noticed() {
    let _alone = broken::alone();
    let long = Duration::from_secs(60);
    let rules: [(Mutation, &dyn Fn(Duration) -> bool); 5] = [
        (Mutation::SnapshotWithoutWait, &a_snapshot_holds_half_a_transfer),
        (Mutation::ForgetOverwritten, &|_| a_snapshot_shows_a_later_change()),
        (Mutation::UnlinkNeededEntries, &|_| a_snapshot_misses_rows_of_a_group()),
        (Mutation::LeaveBeforeKept, &a_snapshot_misses_deleted_rows),
        (Mutation::OverlookKept, &a_snapshot_misses_deleted_rows),
    ];
    for (rule, is_noticed) in rules {
        assert!(!is_noticed(Duration::from_millis(500)), "{rule:?} is not broken yet");
        mutation::set(Some(rule));
        let began = Instant::now();
        let noticed = is_noticed(long);
        mutation::set(None);
        assert!(noticed, "{rule:?} goes unnoticed");
        println!("{}: noticed after {:.2} s", rule.name(), began.elapsed().as_secs_f64());
    }
}
