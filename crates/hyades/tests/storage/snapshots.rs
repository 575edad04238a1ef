//! Promise: a snapshot is the committed state at its opening, whatever is written meanwhile, under
//! every pair of concurrency control and logging protocol. Its readers never fail and writers never
//! wait for its readers.

use crate::common::directory;
use crate::common::grouped::{
    ACCOUNTS, BY_GROUP, COUNT, Content, GROUP, ID, ROWS, TEXT, beside_transfers, content, fill,
    open, pairs, row, sum, text,
};
use hyades::{Abort, Concurrency, Database, Error, Protocol, Snapshot, Transaction};
use hyades_schemes::all_controls;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Everything that a snapshot shows of the keys below `keys`, each in every way there is.
fn shown(snapshot: &Snapshot, keys: i64, is_hash: bool) -> BTreeMap<i64, Content> {
    let read = |tx: &Transaction<'_>| {
        let mut rows = BTreeMap::new();
        for id in 0..keys {
            if let Some(found) = tx.get(ROWS, id)? {
                rows.insert(id, content(&found));
            }
            let count = tx.get_columns(ROWS, id, COUNT.only())?.map(|row| row.get(COUNT));
            assert_eq!(count, rows.get(&id).map(|row| row.2), "row {id} by one column");
            let text = tx.get_columns(ROWS, id, TEXT.only())?;
            let text = text.map(|row| row.get(TEXT).to_string());
            assert_eq!(text.as_ref(), rows.get(&id).map(|row| &row.1), "row {id} by its text");
        }
        if !is_hash {
            let scanned = tx.scan(ROWS).rows()?;
            let scanned = scanned.iter().map(|row| (row.get(ID), content(row)));
            assert_eq!(scanned.collect::<BTreeMap<_, _>>(), rows, "a scan and lookups");
        }
        let mut grouped = BTreeMap::new();
        for found in tx.scan_index(ROWS, BY_GROUP).rows()? {
            let before = grouped.insert(found.get(ID), content(found));
            assert_eq!(before, None, "a row is in an index once");
        }
        assert_eq!(grouped, rows, "the index and lookups");
        let groups: Vec<i64> = rows.values().map(|row| row.0).collect();
        for group in groups {
            let prefix = [group.into()];
            let found =
                tx.scan_index(ROWS, BY_GROUP).prefix(&prefix).columns(COUNT.only()).rows()?;
            let of_group = rows.values().filter(|row| row.0 == group).count();
            assert_eq!(found.len(), of_group, "rows of group {group}");
        }
        Ok(rows)
    };
    snapshot.read(read).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Put(i64, i64, usize),
    Group(i64, i64),
    Text(i64, usize),
    Count(i64),
    Delete(i64),
    Open,
    Close(usize),
    Look(usize),
    Checkpoint,
}

const KEYS: i64 = 8;

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..40usize, 0..400usize, 7000..9000usize, Just(40_000usize)];
    prop_oneof![
        4 => (0..KEYS, 0..3i64, len.clone()).prop_map(|(id, group, len)| Step::Put(id, group, len)),
        3 => (0..KEYS, 0..3i64).prop_map(|(id, group)| Step::Group(id, group)),
        3 => (0..KEYS, len).prop_map(|(id, len)| Step::Text(id, len)),
        4 => (0..KEYS).prop_map(Step::Count),
        3 => (0..KEYS).prop_map(Step::Delete),
        3 => Just(Step::Open),
        2 => any::<usize>().prop_map(Step::Close),
        3 => any::<usize>().prop_map(Step::Look),
        1 => Just(Step::Checkpoint),
    ]
}

/// Runs a write step, on the database and on the model.
fn write(db: &Database, model: &mut BTreeMap<i64, Content>, step: &Step) {
    match *step {
        Step::Put(id, group, len) => {
            let text = text(len);
            db.transact(|tx| Ok(tx.overwrite(ROWS, &row(id, group, &text))?)).unwrap();
            model.insert(id, (group, text, 0));
        }
        Step::Group(id, group) => {
            db.transact(|tx| Ok(tx.update(ROWS, id, &[GROUP.set(group)])?)).unwrap();
            model.entry(id).and_modify(|row| row.0 = group);
        }
        Step::Text(id, len) => {
            let text = text(len);
            db.transact(|tx| Ok(tx.update(ROWS, id, &[TEXT.set(&text[..])])?)).unwrap();
            model.entry(id).and_modify(|row| row.1 = text);
        }
        Step::Count(id) => {
            let count = model.get(&id).map_or(0, |row| row.2) + 1;
            db.transact(|tx| Ok(tx.update(ROWS, id, &[COUNT.set(count)])?)).unwrap();
            model.entry(id).and_modify(|row| row.2 = count);
        }
        Step::Delete(id) => {
            db.transact(|tx| Ok(tx.delete(ROWS, id)?)).unwrap();
            model.remove(&id);
        }
        _ => {}
    }
}

fn walk(db: &Database, has_log: bool, steps: &[Step], is_hash: bool) {
    let mut model = BTreeMap::<i64, Content>::new();
    let mut open: Vec<(Snapshot, BTreeMap<i64, Content>)> = Vec::new();
    for step in steps {
        match step {
            Step::Open => open.push((db.open_snapshot(), model.clone())),
            Step::Close(at) if !open.is_empty() => drop(open.remove(at % open.len())),
            Step::Look(at) if !open.is_empty() => {
                let (snapshot, was) = &open[at % open.len()];
                assert_eq!(&shown(snapshot, KEYS, is_hash), was);
            }
            Step::Checkpoint if has_log => drop(db.checkpoint().unwrap()),
            step => write(db, &mut model, step),
        }
    }
    for (snapshot, was) in &open {
        assert_eq!(&shown(snapshot, KEYS, is_hash), was, "at the end");
    }
    drop(open);
    assert_eq!(shown(&db.open_snapshot(), KEYS, is_hash), model, "the present");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Random writes of one thread, and snapshots opened and closed at any time.
    #[test]
    fn each_snapshot_stays_as_the_model_was(
        steps in prop::collection::vec(step(), 1..80),
        pair in 0..18usize,
        is_hash: bool,
    ) {
        let (dir, pair) = (directory(), pairs().nth(pair).unwrap());
        let db = open(dir.path(), pair, is_hash);
        walk(&db, pair.0 != Protocol::None, &steps, is_hash);
    }
}

#[test]
fn scans_beside_writers_find_one_state_and_never_fail() {
    for pair in pairs() {
        let dir = directory();
        let db = open(dir.path(), pair, false);
        fill(&db);
        let scans = beside_transfers(&db, |commits| {
            // On a busy machine the first commit during a scan may take a while.
            let began = Instant::now();
            let (usual, longest) = (Duration::from_millis(400), Duration::from_secs(60));
            let mut scans = 0;
            while began.elapsed() < usual || scans == 0 && began.elapsed() < longest {
                let snapshot = db.open_snapshot();
                let both = |tx: &Transaction<'_>| {
                    let all = tx.scan(ROWS).columns(COUNT.only()).rows()?;
                    assert_eq!(sum(all), ACCOUNTS * 10, "{pair:?}: money appeared or vanished");
                    let by_group = tx.scan_index(ROWS, BY_GROUP).rows()?;
                    assert_eq!(sum(by_group), ACCOUNTS * 10, "{pair:?}: by the index");
                    Ok((all.len(), by_group.len()))
                };
                let (all, by_group) = snapshot.read(both).unwrap();
                assert_eq!(all, by_group, "{pair:?}");
                let before = commits.load(Ordering::Relaxed);
                let again = snapshot.read(both).unwrap();
                assert_eq!(again, (all, by_group), "{pair:?}: another state");
                scans += usize::from(commits.load(Ordering::Relaxed) > before);
            }
            scans
        });
        assert!(scans > 0, "{pair:?}: nothing was committed during a scan");
        assert_eq!(db.stats().snapshots_ended, 0);
    }
}

/// A snapshot has all commits before its request, although threads share snapshots.
#[test]
fn a_snapshot_holds_what_its_thread_has_committed() {
    for concurrency in all_controls() {
        let dir = directory();
        let db = open(dir.path(), (Protocol::Taurus, concurrency), true);
        std::thread::scope(|scope| {
            for id in 0..3i64 {
                let db = &db;
                scope.spawn(move || {
                    let mut session = db.session().unwrap();
                    for n in 0..3000i64 {
                        let put = |tx: &Transaction<'_>| {
                            tx.overwrite(ROWS, &[id.into(), 0i64.into(), "".into(), n.into()])
                        };
                        session.try_submit(put).unwrap().0.unwrap();
                        let get = |tx: &Transaction<'_>| {
                            let row = tx.get_columns(ROWS, id, COUNT.only())?;
                            Ok(row.map(|row| row.get(COUNT)))
                        };
                        let (found, _) = session.snapshot(get).unwrap();
                        assert_eq!(found, Some(n));
                    }
                });
            }
        });
    }
}

/// Snapshots without a write between them are one snapshot, even after a close: no epoch ends.
#[test]
fn snapshots_of_the_same_state_are_shared() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    let opened = || format!("{:?}", db.open_snapshot());
    let mut session = db.session().unwrap();
    let (mut began, mut before) = (Instant::now(), opened());
    for n in 0..100i64 {
        for _ in 0..100 {
            let now = opened();
            // A snapshot is shared for ten milliseconds.
            if began.elapsed() > Duration::from_millis(8) {
                break;
            }
            assert_eq!(now, before, "nothing was written");
        }
        session.try_submit(|tx| tx.overwrite(ROWS, &row(n, 0, ""))).unwrap().0.unwrap();
        began = Instant::now();
        assert_ne!(opened(), before, "something was written");
        before = opened();
        let count = |tx: &Transaction<'_>| Ok(tx.scan_index(ROWS, BY_GROUP).rows()?.len() as i64);
        assert_eq!(db.snapshot(count).unwrap(), n + 1);
        assert_eq!(db.stats().snapshots, 0);
    }
}

#[test]
fn a_snapshot_is_only_read_and_transactions_run_inside_it() {
    for pair in [(Protocol::Taurus, Concurrency::Silo), (Protocol::Serial, Concurrency::NoWait)] {
        let dir = directory();
        let db = open(dir.path(), pair, false);
        db.transact(|tx| Ok(tx.insert(ROWS, &row(1, 1, "one"))?)).unwrap();
        db.snapshot(|tx| {
            assert_eq!(tx.insert(ROWS, &row(2, 1, "two")), Err(Abort::ReadOnly));
            assert_eq!(tx.overwrite(ROWS, &row(3, 1, "three")), Err(Abort::ReadOnly));
            assert_eq!(tx.upsert(ROWS, &row(3, 1, "three")), Err(Abort::ReadOnly));
            assert_eq!(tx.update(ROWS, 1i64, &[COUNT.set(9)]), Err(Abort::ReadOnly));
            assert_eq!(tx.delete(ROWS, 1i64), Err(Abort::ReadOnly));
            // Many more reads: nothing checks a read set.
            for _ in 0..5000 {
                assert_eq!(tx.get(ROWS, 1i64)?.unwrap().get(TEXT), "one");
            }
            db.transact(|inner| Ok(inner.delete(ROWS, 1i64)?))?;
            assert!(tx.get(ROWS, 1i64)?.is_some());
            assert_eq!(tx.scan(ROWS).rows()?.len(), 1);
            Ok(())
        })
        .unwrap();
        assert_eq!(db.snapshot(|tx| Ok(tx.scan(ROWS).rows()?.len())).unwrap(), 0);
        assert_eq!(db.rows(), 0);
        let error = db.snapshot(|tx| Ok(tx.delete(ROWS, 1i64)?)).unwrap_err();
        assert!(matches!(error, Error::Aborted(Abort::ReadOnly)), "{error}");
        let refused = db.try_snapshot(|_| Err::<(), Abort>(Abort::User(7))).unwrap();
        assert_eq!(refused, Err(Abort::User(7)));
        assert_eq!(db.stats().snapshots, 0, "each was closed");
    }
}

/// A transaction that only reads, and fails to validate, does not try for ever.
#[test]
fn a_reader_that_conflicts_runs_again_on_a_snapshot() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), false);
    fill(&db);
    beside_transfers(&db, |commits| {
        for _ in 0..20 {
            let mut attempts = 0;
            let total = db.transact(|tx| {
                attempts += 1;
                let first = sum(tx.scan(ROWS).rows()?);
                let before = commits.load(Ordering::Relaxed);
                let until = Instant::now() + Duration::from_secs(5);
                while commits.load(Ordering::Relaxed) < before + 200 && Instant::now() < until {
                    std::thread::yield_now();
                }
                Ok((first, sum(tx.scan(ROWS).rows()?)))
            });
            assert_eq!(total.unwrap(), (ACCOUNTS * 10, ACCOUNTS * 10));
            assert!((2..=9).contains(&attempts), "{attempts} attempts");
        }
    });
}

/// A body that writes only after a read of something else runs as a transaction in the end.
#[test]
fn a_reader_that_turns_out_to_write_is_no_reader() {
    let dir = directory();
    let db = open(dir.path(), (Protocol::Taurus, Concurrency::Silo), true);
    db.transact(|tx| Ok(tx.overwrite(ROWS, &row(1, 0, ""))?)).unwrap();
    let mut attempts = 0;
    let result = db.transact(|tx| {
        attempts += 1;
        let count = tx.get(ROWS, 1i64)?.unwrap().get(COUNT);
        if attempts == 1 {
            std::thread::scope(|scope| {
                let touch = || db.transact(|tx| Ok(tx.update(ROWS, 1i64, &[COUNT.set(7)])?));
                scope.spawn(touch).join().unwrap().unwrap();
            });
            return Ok(count);
        }
        // The body swallows the refusal.
        let _ = tx.update(ROWS, 1i64, &[COUNT.set(count + 1)]);
        Ok(count)
    });
    assert_eq!((result.unwrap(), attempts), (7, 3));
    assert_eq!(db.snapshot(|tx| Ok(tx.get(ROWS, 1i64)?.unwrap().get(COUNT))).unwrap(), 8);
}

#[test]
fn a_checkpoint_beside_a_snapshot_recovers_the_present() {
    for pair in [(Protocol::Taurus, Concurrency::Silo), (Protocol::Taurus, Concurrency::NoWait)] {
        let dir = directory();
        let db = open(dir.path(), pair, false);
        fill(&db);
        let snapshot = db.open_snapshot();
        let total = |tx: &Transaction<'_>| Ok(sum(tx.scan(ROWS).rows()?));
        beside_transfers(&db, |_| {
            for _ in 0..3 {
                db.checkpoint().unwrap();
                assert_eq!(snapshot.read(total).unwrap(), ACCOUNTS * 10);
            }
        });
        let digest = db.digest();
        drop(snapshot);
        db.close().unwrap();
        let db = open(dir.path(), pair, false);
        assert_eq!(db.digest(), digest, "{pair:?}");
        assert_eq!(db.snapshot(total).unwrap(), ACCOUNTS * 10);
    }
}
