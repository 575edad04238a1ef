//! Backups and point-in-time recovery. Promise: a copy holds whole transactions and all expected
//! transactions, and the original is unchanged.

use crate::common::checkpointing::{ballast, fast, run_with_checkpoints, slow};
use crate::common::watched::watched;
use crate::common::{
    Combination, How, Opened, Transfer, builder, check, combinations, directory, fingerprint,
    populate, power_cut, refused, run, try_open,
};
use crate::some_combinations_of_closures;
use hyades::{Concurrency, Protocol, RecordKind, Restore, TransactionId, Until, backup};
use hyades_platform::clock;
use hyades_platform::device::Device;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn open(dir: &Path, c: Combination, how: How) -> Opened {
    let watched = watched(&format!("{c:?}"));
    let (builder, [transfer, churn]) = builder(c, how);
    // The same epoch for all protocols, because the tests wait for epochs to pass.
    let builder = builder.log_settings(|log| log.epoch = Some(Duration::from_millis(10)));
    let db = builder.open(dir).unwrap_or_else(|error| panic!("{c:?}: {error}"));
    Opened { db, watched, transfer, churn, inserting: None }
}

fn few() -> Vec<Combination> {
    combinations().into_iter().filter(|c| c.streams < 16).collect()
}

#[test]
fn a_backup_of_a_running_database_has_all_that_was_acknowledged_before() {
    for (seed, c) in some_combinations_of_closures(1) {
        let seed = seed as u64;
        let (dir, to, second) = (directory(), directory(), directory());
        let copy = to.path().join("copy");
        let how = How {
            checkpoints: slow(),
            more_dirs: vec![second.path().to_owned()],
            ..How::default()
        };
        let opened = open(dir.path(), c, how);
        populate(&opened);
        ballast(&opened, 2000);
        let before = run(&opened, seed, 200);
        let during = std::thread::scope(|scope| {
            let opened = &opened;
            let running = scope.spawn(move || run_with_checkpoints(opened, seed + 1, 1500).0);
            std::thread::sleep(Duration::from_millis(seed % 7));
            let report = opened.db.backup(&copy).unwrap();
            assert!(report.files > 0 && report.bytes > 0, "{report:?}");
            running.join().unwrap()
        });
        check(&opened, &[&before[..], &during[..]].concat(), &format!("{c:?}, the original"));
        // The copy must not depend on the original, which is removed here.
        drop(opened);
        drop((dir, second));
        for _ in 0..2 {
            let again = open(&copy, c, How::default());
            check(&again, &before, &format!("{c:?}, the copy"));
            run(&again, seed + 9, 50);
            again.db.close().unwrap();
        }
    }
}

#[test]
fn a_backup_of_a_crashed_database_is_what_would_have_been_recovered() {
    for (seed, c) in few().into_iter().enumerate() {
        let (dir, to) = (directory(), directory());
        let copy = to.path().join("copy");
        let device = power_cut(seed as u64);
        let device_: Arc<dyn Device> = Arc::new(device.clone());
        let opened = open(dir.path(), c, How { device: Some(device_), ..How::default() });
        populate(&opened);
        let mut acknowledged = run(&opened, seed as u64, 200);
        std::thread::scope(|scope| {
            let opened = &opened;
            let running = scope.spawn(move || run(opened, seed as u64 + 1, 100_000));
            std::thread::sleep(Duration::from_millis(10));
            device.cut();
            acknowledged.extend(running.join().unwrap());
        });
        drop(opened);
        let source = fingerprint(dir.path());
        backup(&[dir.path().to_owned()], &copy).unwrap();
        assert_eq!(fingerprint(dir.path()), source, "{c:?}: the original was changed");
        let digest = open(dir.path(), c, How::default()).db.digest();
        let again = open(&copy, c, How::default());
        check(&again, &acknowledged, &format!("{c:?}, the copy"));
        assert_eq!(again.db.digest(), digest, "{c:?}: another state");
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_backup_leaves_no_half_copy() {
    for (seed, c) in few().into_iter().enumerate().step_by(3) {
        let (mut step, mut refusals) = (0, 0);
        loop {
            let (dir, to) = (directory(), directory());
            let copy = to.path().join("copy");
            let device = power_cut(seed as u64 * 1000 + step);
            let device_: Arc<dyn Device> = Arc::new(device.clone());
            let opened = open(dir.path(), c, How { device: Some(device_), ..How::default() });
            populate(&opened);
            ballast(&opened, 100);
            opened.db.checkpoint().unwrap();
            let acknowledged = run(&opened, seed as u64, 20);
            opened.db.log().unwrap().flush().unwrap();
            let digest = opened.db.digest();
            device.cut_after(step);
            let backup = opened.db.backup(&copy);
            let through = backup.is_ok();
            device.cut();
            drop(opened);
            let again = open(dir.path(), c, How::default());
            assert_eq!(again.db.digest(), digest, "{c:?} step {step}: the original has changed");
            check(&again, &acknowledged, "the original");
            // Names removed by the power cut are hidden files on the medium.
            let is_name = |name: &std::ffi::OsStr| !name.to_string_lossy().starts_with('.');
            let names = std::fs::read_dir(&copy).into_iter().flatten();
            let is_empty = !names.into_iter().any(|name| is_name(&name.unwrap().file_name()));
            match try_open(&copy, c, How::default()) {
                _ if is_empty => assert!(!through),
                Ok(copied) => {
                    assert_eq!(copied.db.digest(), digest, "{c:?} step {step}: half a copy")
                }
                Err(error) => {
                    assert!(!through, "{c:?} step {step}: {error}");
                    assert!(error.to_string().contains("was not finished"), "{error}");
                    refusals += 1;
                }
            }
            if through {
                break;
            }
            step += 1;
            assert!(step < 500, "a backup has no more steps than that: {backup:?}");
        }
        assert!(refusals > 5, "only {refusals} copies were cut off");
    }
}

#[test]
fn a_backup_does_not_go_where_something_is() {
    let (dir, to) = (directory(), directory());
    let opened = open(dir.path(), few()[0], How::default());
    std::fs::write(to.path().join("precious"), "x").unwrap();
    let error = refused(opened.db.backup(to.path()), "a backup over something");
    assert!(error.to_string().contains("is not empty"), "{error}");
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 1);
}

/// The digest of a database at the end of an epoch, and the last transaction before that end.
struct Moment {
    id: TransactionId,
    /// A time between the transaction and the next.
    at_us: u64,
    digest: u64,
}

/// Runs transactions one after the other, with pauses long enough for epochs to pass.
fn moments(opened: &Opened, seed: u64, count: u64) -> Vec<Moment> {
    let mut session = opened.db.session().unwrap();
    let mut all = Vec::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    while all.len() < count as usize {
        let mut last = None;
        for _ in 0..rng.u64(1..4) {
            let churn = crate::common::Churn { seed: rng.u64(..) };
            let (_, ticket) = session.call(opened.churn, &churn).unwrap();
            last = ticket.transaction_id().or(last);
            ticket.wait().unwrap();
        }
        // An epoch is 10 ms, so the next transaction is in another.
        std::thread::sleep(Duration::from_millis(12));
        let Some(id) = last else { continue };
        all.push(Moment { id, at_us: clock::wall_us(), digest: opened.db.digest() });
        std::thread::sleep(Duration::from_millis(12));
    }
    all
}

fn restored(from: &Path, c: Combination, until: Until) -> Result<u64, hyades::Error> {
    let to = directory();
    let new = to.path().join("new");
    let how = Restore::new(vec![from.to_owned()], &new).until(until);
    builder(c, How::default()).0.restore(&how)?;
    assert!(new.join("RECOVERED.txt").exists() && !new.join("UNFINISHED").exists());
    let again = open(&new, c, How::default());
    let digest = again.db.digest();
    // The restored database works like any database.
    let more = run(&again, 77, 20);
    again.db.close().unwrap();
    let again = open(&new, c, How::default());
    for transfer in more {
        let found = again
            .db
            .try_transact(|tx| tx.get(crate::common::TRANSFERS, transfer.id).map(|r| r.is_some()));
        assert!(found.unwrap().unwrap());
    }
    Ok(digest)
}

#[test]
fn any_moment_since_the_checkpoint_comes_back_as_it_was() {
    for (seed, c) in some_combinations_of_closures(0).into_iter().filter(|(_, c)| c.streams < 16) {
        let dir = directory();
        let opened = open(dir.path(), c, How::default());
        populate(&opened);
        let lost = moments(&opened, seed as u64, 2);
        opened.db.checkpoint().unwrap();
        let mut kept = moments(&opened, seed as u64 + 50, 3);
        opened.db.close().unwrap();
        // Also across the boundary of an incarnation, and in an incarnation without a close.
        let opened = open(dir.path(), c, How::default());
        kept.extend(moments(&opened, seed as u64 + 100, 3));
        opened.db.log().unwrap().flush().unwrap();
        drop(opened);
        let before = fingerprint(dir.path());
        for (at, moment) in kept.iter().enumerate() {
            let by_id = restored(dir.path(), c, Until::Transaction(moment.id)).unwrap();
            assert_eq!(by_id, moment.digest, "{c:?}: with transaction {}", moment.id);
            let by_time = restored(dir.path(), c, Until::Time(moment.at_us)).unwrap();
            assert_eq!(by_time, moment.digest, "{c:?}: at {}", moment.at_us);
            if let Some(earlier) = at.checked_sub(1).map(|at| &kept[at])
                && earlier.id.epoch + 1 == moment.id.epoch
            {
                let before = restored(dir.path(), c, Until::Before(moment.id)).unwrap();
                assert_eq!(before, earlier.digest, "{c:?}: before transaction {}", moment.id);
            }
        }
        let newest = restored(dir.path(), c, Until::Newest).unwrap();
        assert_eq!(newest, kept.last().unwrap().digest);
        for moment in lost {
            for until in [Until::Transaction(moment.id), Until::Time(moment.at_us)] {
                let error =
                    refused(restored(dir.path(), c, until), "a moment before the checkpoint");
                assert!(
                    error.to_string().contains("history begins with its checkpoint"),
                    "{error}"
                );
            }
        }
        // In an epoch that the log holds completely. The checkpoint's epoch may still have been
        // open at the first moment.
        let absent = TransactionId { lsn: u64::MAX, ..kept.last().unwrap().id };
        let error = refused(restored(dir.path(), c, Until::Transaction(absent)), "an absent one");
        assert!(error.to_string().contains("has no transaction"), "{error}");
        assert_eq!(fingerprint(dir.path()), before, "{c:?}: the original was changed");
    }
}

#[test]
fn a_moment_in_the_middle_of_work_holds_whole_transactions() {
    for (seed, c) in some_combinations_of_closures(2) {
        let dir = directory();
        let opened = open(dir.path(), c, How::default());
        populate(&opened);
        let mut transfers: Vec<Transfer> = Vec::new();
        let mut moments = Vec::new();
        for part in 0..3 {
            transfers.extend(run(&opened, seed as u64 * 10 + part, 300));
            moments.push(clock::wall_us());
            // Longer than an epoch.
            std::thread::sleep(Duration::from_millis(12));
        }
        // Two times within the work, and one after its end.
        let at = |part: usize| (moments[part] + moments[part + 1]) / 2;
        let moments = [at(0), at(1), moments[2] + 1000];
        opened.db.close().unwrap();
        let mut rows = Vec::new();
        for (part, at) in moments.into_iter().enumerate() {
            let to = directory();
            let until = Until::Time(at);
            let how = Restore::new(vec![dir.path().to_owned()], to.path()).until(until);
            rows.push(builder(c, How::default()).0.restore(&how).unwrap().rows);
            let all = if part == 2 { &transfers[..] } else { &[] };
            check(&open(to.path(), c, How::default()), all, &format!("{c:?}, moment {part}"));
        }
        assert!(rows[0] < rows[2], "{c:?}: {rows:?}");
    }
}

#[test]
fn an_archived_backup_reaches_back_before_the_checkpoint() {
    let (protocol, concurrency) = (Protocol::Taurus, Concurrency::Silo);
    let c = Combination { protocol, concurrency, record: RecordKind::Adaptive, streams: 3 };
    let (dir, to) = (directory(), directory());
    let copy = to.path().join("copy");
    let opened = open(dir.path(), c, How { checkpoints: fast(), ..How::default() });
    populate(&opened);
    let moment = moments(&opened, 5, 1).remove(0);
    moments(&opened, 6, 1);
    opened.db.backup(&copy).unwrap();
    opened.db.checkpoint().unwrap();
    opened.db.close().unwrap();
    refused(restored(dir.path(), c, Until::Time(moment.at_us)), "a moment before the checkpoint");
    assert_eq!(restored(&copy, c, Until::Time(moment.at_us)).unwrap(), moment.digest);
}
