//! Promise: a recovery reports its progress, by log stream. The progress does not go back, and is
//! exact in the end.
#![allow(missing_docs)]

mod common;

use common::{ACCOUNTS, BALANCE, Combination, How, builder, combinations, populate, run, try_open};
use hyades::{Concurrency, Database, Progress, Protocol, RecordKind, RecoveryReport, Replay};
use hyades_platform::device::{Device, FileDevice, Throttle, ThrottledDevice};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Opens a closed database. Returns the database, and the progress reported meanwhile.
fn open(dir: &Path, c: Combination, how: How) -> (Database, Vec<Progress>) {
    let told = Arc::<Mutex<Vec<Progress>>>::default();
    let telling = told.clone();
    let (builder, _) = builder(c, how);
    let builder =
        builder.on_progress(move |progress| telling.lock().unwrap().push(progress.clone()));
    let db = builder.open(dir).unwrap_or_else(|error| panic!("{c:?}: {error}"));
    let told = std::mem::take(&mut *told.lock().unwrap());
    (db, told)
}

/// Where a phase of a stream is among all.
fn place(phase: &str) -> usize {
    ["waiting", "reading", "read"].iter().position(|name| *name == phase).expect("a phase")
}

fn check(told: &[Progress], report: &RecoveryReport, what: &str) {
    let last = told.last().unwrap_or_else(|| panic!("{what}: nothing was told"));
    for pair in told.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert!(after.bytes_done >= before.bytes_done, "{what}: {pair:?}");
        assert!(after.bytes_total <= before.bytes_total, "{what}: {pair:?}");
        assert!(after.image_bytes_done >= before.image_bytes_done, "{what}: {pair:?}");
        assert_eq!(after.image_bytes_total, before.image_bytes_total, "{what}");
        assert!(after.records_done >= before.records_done, "{what}: {pair:?}");
        assert_eq!(after.by_stream.len(), before.by_stream.len(), "{what}");
        for (before, after) in before.by_stream.iter().zip(&after.by_stream) {
            assert_eq!(after.stream, before.stream, "{what}");
            assert!(after.bytes_read >= before.bytes_read, "{what}: {pair:?}");
            assert!(after.bytes_total <= before.bytes_total, "{what}: {pair:?}");
            assert!(after.records >= before.records, "{what}: {pair:?}");
            assert!(place(after.phase) >= place(before.phase), "{what}: {pair:?}");
        }
    }
    assert!(last.by_stream.iter().all(|stream| stream.phase == "read"), "{what}: {last:?}");
    for progress in told {
        assert!((0.0..=1.0).contains(&progress.share()), "{what}: {progress:?}");
        let read_too_much =
            progress.by_stream.iter().any(|stream| stream.bytes_read > stream.bytes_total);
        assert!(!read_too_much, "{what}: {progress:?}");
        assert_eq!(
            progress.bytes_total,
            progress.by_stream.iter().map(|stream| stream.bytes_total).sum::<u64>()
        );
    }
    assert!(last.by_stream.is_sorted_by_key(|stream| stream.stream), "{what}: {last:?}");
    let read: u64 = last.by_stream.iter().map(|stream| stream.bytes_read).sum();
    let records: u64 = last.by_stream.iter().map(|stream| stream.records).sum();
    assert_eq!((read, last.bytes_done), (last.bytes_total, last.bytes_total), "{what}: {last:?}");
    assert_eq!((last.bytes_total, records), (report.bytes, report.records), "{what}: {last:?}");
    assert_eq!(last.records_done, report.records, "{what}");
    let image = (last.image_bytes_done, last.image_bytes_total);
    assert_eq!(image, (report.image_bytes, report.image_bytes), "{what}");
    assert_eq!((last.estimate_seconds, last.share()), (Some(0.0), 1.0), "{what}: {last:?}");
    assert_eq!(last.phase, "checking the tables", "{what}");
}

#[test]
fn what_is_told_in_the_end_is_what_was_recovered() {
    // The concurrency control does not matter here, but versions of rows do.
    let controls = [Concurrency::Silo, Concurrency::Hekaton];
    let mut all = combinations();
    all.retain(|c| controls.contains(&c.concurrency) && c.streams != 16);
    for (seed, c) in all.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let opened = try_open(dir.path(), c, How::default()).unwrap();
        populate(&opened);
        run(&opened, seed as u64, 60);
        opened.db.close().unwrap();
        for (threads, replay) in [(2, Replay::Automatic), (3, Replay::Pools), (2, Replay::Phases)] {
            let what = format!("{c:?} recovered by {threads} threads, {replay:?}");
            let (db, told) = open(dir.path(), c, How { threads, replay, ..How::default() });
            check(&told, db.recovery(), &what);
            // The next opening has an incarnation more, and another stretch of the same streams.
            db.try_transact(|tx| tx.update(ACCOUNTS, 1i64, &[BALANCE.set(threads as i64)]))
                .unwrap()
                .unwrap();
            db.close().unwrap();
        }
        let (db, _) = open(dir.path(), c, How::default());
        db.checkpoint().unwrap();
        db.try_transact(|tx| tx.update(ACCOUNTS, 1i64, &[BALANCE.set(9)])).unwrap().unwrap();
        db.close().unwrap();
        let (db, told) = open(dir.path(), c, How::default());
        assert!(db.recovery().image_bytes > 0 && db.recovery().records > 0, "{c:?}");
        check(&told, db.recovery(), &format!("{c:?} with a checkpoint"));
    }
}

#[test]
fn records_count_in_the_stream_that_holds_them() {
    for record in [RecordKind::Data, RecordKind::Command] {
        let (protocol, concurrency) = (Protocol::Taurus, Concurrency::Silo);
        let c = Combination { protocol, concurrency, record, streams: 3 };
        let dir = tempfile::tempdir().unwrap();
        let (described, [_, churn]) = builder(c, How::default());
        let keeps = |log: &mut hyades::LogSettings| log.research.fixed_streams = true;
        let db = described.log_settings(keeps).open(dir.path()).unwrap();
        let mut logged = BTreeMap::<u32, u64>::new();
        // Each session has a stream of its own.
        let mut sessions = [(); 3].map(|()| db.session().unwrap());
        for (session, transactions) in sessions.iter_mut().zip([5, 0, 300]) {
            for seed in 0..transactions {
                let (result, ticket) = session.call(churn, &common::Churn { seed }).unwrap();
                let Some(id) = ticket.transaction_id().filter(|_| result.is_ok()) else { continue };
                *logged.entry(id.stream).or_default() += 1;
            }
        }
        drop(sessions);
        db.close().unwrap();
        let (_, told) = open(dir.path(), c, How::default());
        let records = told.last().unwrap().by_stream.iter().filter(|stream| stream.records > 0);
        let records: BTreeMap<u32, u64> =
            records.map(|stream| (stream.stream, stream.records)).collect();
        assert_eq!(records, logged, "{record:?}");
        assert_eq!(records.len(), 2, "{record:?}");
    }
}

const DATA: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Data,
    streams: 2,
};

#[test]
fn a_slow_recovery_is_told_as_it_goes() {
    let c = DATA;
    let dir = tempfile::tempdir().unwrap();
    let opened = try_open(dir.path(), c, How::default()).unwrap();
    // A stream is read in chunks of half a megabyte, and its first chunk is replayed after the read
    // of the third.
    for first in (0..240_000).step_by(1000) {
        opened.db.try_transact(|tx| common::ballast_rows(tx, first)).unwrap().unwrap();
    }
    opened.db.close().unwrap();
    let throttle = Throttle { bytes_per_s: Some(2e6), latency_ns: 0, depth: 1 };
    let slow: Arc<dyn Device> = Arc::new(ThrottledDevice::new(FileDevice::shared(), throttle));
    let (db, told) = open(dir.path(), c, How { device: Some(slow), ..How::default() });
    check(&told, db.recovery(), "slow");
    let under_way = |progress: &&Progress| {
        let is_partly_read = progress
            .by_stream
            .iter()
            .any(|stream| (1..stream.bytes_total).contains(&stream.bytes_read));
        let reads = progress.by_stream.iter().any(|stream| stream.phase == "reading");
        // The first chunks read are replayed later.
        let is_partly_replayed = progress.bytes_done > 0 && progress.estimate_seconds.is_some();
        let is_under_way = is_partly_read && reads && is_partly_replayed;
        progress.phase == "replaying the log" && progress.streams == 2 && is_under_way
    };
    let partly = told.iter().find(under_way).unwrap_or_else(|| panic!("{told:?}"));
    assert!(partly.share() > 0.0 && partly.share() < 1.0, "{partly:?}");
    assert!(partly.estimate_seconds.is_some_and(|left| left > 0.0), "{partly:?}");
    db.close().unwrap();
}

#[test]
fn a_new_database_has_nothing_to_tell() {
    let c = DATA;
    let dir = tempfile::tempdir().unwrap();
    let (db, told) = open(dir.path(), c, How::default());
    assert!(told.is_empty(), "{told:?}");
    db.close().unwrap();
}
