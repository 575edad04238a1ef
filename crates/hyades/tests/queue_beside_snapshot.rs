//! Promise: a table used as a queue keeps its rate beside an open snapshot, and the snapshot holds
//! each row popped since.
#![allow(missing_docs)]

mod common;
use common::directory;
use common::grouped::{BY_GROUP, ID, ROWS, row, schema};
use hyades::{Abort, Database, Protocol, Session, Transaction};
use hyades_platform::clock::process_cpu_ns;
use std::time::{Duration, Instant};

/// Processor time in which pops are counted. On a busy machine a second has less processor time.
const SPAN: Duration = Duration::from_millis(500);

/// Takes the first row of the queue, and puts a row behind the last.
fn pop_and_push(session: &mut Session, next: i64) -> i64 {
    let body = |tx: &Transaction<'_>| {
        let first = tx.scan(ROWS).limit(1).columns(ID.only()).rows()?[0].get(ID);
        tx.delete(ROWS, first)?;
        tx.insert(ROWS, &row(next, next % 7, ""))?;
        Ok::<_, Abort>(first)
    };
    session.try_submit(body).unwrap().0.unwrap()
}

/// How many pops a thread makes in each span, beside a snapshot of a queue of `rows` rows.
fn pops_beside_a_snapshot(rows: i64, spans: u64) -> Vec<u64> {
    let dir = directory();
    let mut builder = Database::builder().protocol(Protocol::None);
    builder.table(schema(false));
    let db = builder.open(dir.path()).unwrap();
    let mut session = db.session().unwrap();
    for from in (0..rows).step_by(1000) {
        let fill = |tx: &Transaction<'_>| {
            (from..from + 1000).try_for_each(|id| tx.overwrite(ROWS, &row(id, id % 7, "")))
        };
        session.try_submit(fill).unwrap().0.unwrap();
    }
    let snapshot = db.open_snapshot();
    let (began, mut popped, mut counts) = (process_cpu_ns(), 0, Vec::new());
    for span in 1..=spans {
        let before = popped;
        while process_cpu_ns() - began < span * SPAN.as_nanos() as u64 {
            for _ in 0..10 {
                let first = pop_and_push(&mut session, rows + popped);
                assert_eq!(first, popped, "the queue is in order");
                popped += 1;
            }
        }
        counts.push((popped - before) as u64);
    }
    let held: Vec<i64> = (0..rows).collect();
    let mut walked = Vec::new();
    snapshot.for_each(ROWS, ID.only(), |row| walked.push(row.get(ID))).unwrap();
    assert!(walked == held, "{} of {rows} rows in a walk", walked.len());
    let read = |tx: &Transaction<'_>| {
        let scanned = tx.scan(ROWS).columns(ID.only()).rows()?;
        let by_group = tx.scan_index(ROWS, BY_GROUP).columns(ID.only()).rows()?;
        let ids = scanned.iter().map(|row| row.get(ID)).collect::<Vec<_>>();
        let (first, later) = (tx.get(ROWS, 0i64)?, tx.get(ROWS, rows)?);
        Ok((ids, by_group.len() as i64, first.is_some(), later.is_some()))
    };
    let (scanned, by_group, has_first, has_later) = snapshot.read(read).unwrap();
    assert!(scanned == held, "{} of {rows} rows in a scan", scanned.len());
    assert_eq!((by_group, has_first, has_later), (rows, true, false));
    drop(snapshot);
    let until = Instant::now() + Duration::from_secs(60);
    while db.stats().garbage > 0 {
        assert!(Instant::now() < until, "{} items are left", db.stats().garbage);
        session.free_unused();
        std::thread::sleep(Duration::from_millis(1));
    }
    counts
}

/// Each pop passes the rows popped before only until the end of its epoch.
#[test]
fn a_queue_beside_a_snapshot_keeps_its_rate() {
    // More rows than pops, so that the snapshot holds each popped row; and few rows, so that the
    // snapshot holds none of the rows popped after a moment.
    for rows in [400_000, 2_000] {
        // Neighbours on the machine delay some of the pops.
        let is_steady = (0..3).any(|_| {
            let counts = pops_beside_a_snapshot(rows, 6);
            println!("pops of {rows} rows in each span of {SPAN:?}: {counts:?}");
            counts[4] + counts[5] >= (counts[0] + counts[1]) / 2
        });
        assert!(is_steady, "pops become slow beside a snapshot of {rows} rows");
    }
}
