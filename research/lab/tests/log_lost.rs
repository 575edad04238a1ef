//! Promise: about transactions lost in a crash, `hyades-lab log stat`, `log dump` and `verify`
//! report the result of recovery, also if a transaction has several records, if calls are logged
//! before they run, and if rows are logged ahead of the record.
#![allow(missing_docs)]

mod common;
use common::{code, lab, stderr, stdout};
use hyades::{
    Abort, Database, Partitions, RecordKind, Schema, Session, Table, Transaction, Type, Value,
};
use hyades_platform::device::{PowerCutDevice, PowerCutOptions};
use hyades_schemes::{ARRIVAL, PARTITIONED, PHYSIOLOGICAL, PLOVER};
use std::path::Path;
use std::sync::Arc;

const ROWS: Table = Table::nth(0);

fn power_cut() -> PowerCutDevice {
    PowerCutDevice::new(PowerCutOptions { seed: 1, early_sectors: 0.0, lying_sync: false })
}

fn schema() -> Schema {
    let schema = Schema::new("rows").column("id", Type::I64).column("bytes", Type::Bytes);
    schema.primary_key(&["id"])
}

/// Makes all of a stream durable, and states the stream's mark.
fn flush(db: &Database, stream: usize) {
    let log = db.log().unwrap();
    while log.frontier().durable(stream) < log.next_lsn(stream) {
        log.step(stream);
    }
}

/// The newest incarnation of `log stat`, and the output of `log dump` and `verify`.
fn told(dir: &Path) -> (serde_json::Value, String, String) {
    let dir = dir.to_str().unwrap();
    let [stat, dump, verified] = ["log stat --json", "log dump", "verify"].map(|words| {
        let output = lab(words, &[dir]);
        assert_eq!(code(&output), 0, "{words}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    });
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    (stat["incarnations"].as_array().unwrap().last().unwrap().clone(), dump, verified)
}

fn put(tx: &Transaction<'_>, id: i64) -> Result<(), Abort> {
    tx.overwrite(ROWS, &[id.into(), Value::Bytes(&[7])])?;
    Ok(())
}

/// Runs a transaction, and does not wait for its acknowledgement.
fn run(session: &mut Session, body: impl Fn(&Transaction<'_>) -> Result<(), Abort>) {
    session.try_submit(|tx| body(tx)).unwrap().0.unwrap();
}

/// Keys with changes in the first stream and in the second.
fn keys_of_both_streams(db: &Database, session: &mut Session) -> [i64; 2] {
    let log = db.log().unwrap();
    let mut keys = [None; 2];
    for id in 0..64 {
        let before = log.next_lsn(0);
        run(session, |tx| put(tx, id));
        keys[usize::from(log.next_lsn(0) == before)] = Some(id);
    }
    keys.map(Option::unwrap)
}

#[test]
fn a_transaction_of_two_records_is_dead_once_if_one_of_them_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let device = power_cut();
    let mut builder = Database::builder().protocol(PLOVER).streams(2);
    builder = builder.log_settings(|log| {
        log.device = Some(Arc::new(device.clone()));
        log.research.stepped = true;
    });
    builder.table(schema());
    let db = builder.open(root.path()).unwrap();
    let mut session = db.session().unwrap();
    let [one, two] = keys_of_both_streams(&db, &mut session);
    let write_both = |session: &mut Session| run(session, |tx| put(tx, one).and(put(tx, two)));
    // Both streams state the transaction's number, and so all are live up to the number.
    write_both(&mut session);
    (0..2).for_each(|stream| flush(&db, stream));
    write_both(&mut session);
    run(&mut session, |tx| {
        assert!(tx.get(ROWS, two)?.is_some());
        put(tx, two)
    });
    flush(&db, 1);
    device.cut();
    drop(session);
    drop(db);

    let (stat, dump, verified) = told(root.path());
    assert_eq!((&stat["records"], &stat["dead"]), (&65.into(), &1.into()), "{stat}");
    let dead: Vec<&str> = dump.lines().filter(|line| line.contains(" DEAD")).collect();
    assert_eq!(dead.len(), 2, "{dump}");
    assert!(dead[0].contains(" not the first of the records in components 0 1;"), "{dead:?}");
    assert!(dead.iter().all(|line| line.contains(" number ")), "{dead:?}");
    assert!(verified.contains("1 of the transactions depend"), "{verified}");
}

#[test]
fn a_call_that_follows_a_lost_one_is_dead() {
    let root = tempfile::tempdir().unwrap();
    let device = power_cut();
    let mut builder = Database::builder()
        .protocol(ARRIVAL)
        .concurrency(PARTITIONED)
        .record(RecordKind::Command)
        .partitions(4)
        .streams(2);
    builder = builder.log_settings(|log| {
        log.device = Some(Arc::new(device.clone()));
        log.research.stepped = true;
        log.research.fixed_streams = true;
    });
    builder.table(schema().partition_by("id"));
    let write = builder.procedure("write", 3, |tx: &Transaction<'_>, id: i64| put(tx, id));
    builder.on(write, |(id,): (i64,)| Partitions::of(id));
    let db = builder.open(root.path()).unwrap();
    let mut sessions = [(); 2].map(|()| db.session().unwrap());
    let streams: Vec<u32> = sessions
        .iter_mut()
        .zip(0..)
        .map(|(session, id)| {
            let (outcome, ticket) = session.call(write, &id).unwrap();
            outcome.unwrap();
            ticket.transaction_id().unwrap().stream
        })
        .collect();
    assert_ne!(streams[0], streams[1]);
    if streams[0] == 1 {
        sessions.reverse();
    }
    (0..2).for_each(|stream| flush(&db, stream));
    for session in &mut sessions {
        session.call(write, &2).unwrap().0.unwrap();
    }
    // The earlier call is lost.
    flush(&db, 1);
    device.cut();
    drop(sessions);
    drop(db);

    let (stat, dump, verified) = told(root.path());
    assert_eq!((&stat["records"], &stat["dead"]), (&2.into(), &1.into()), "{stat}");
    assert_eq!(stat["contents"]["procedures"][0]["calls"], 3, "{stat}");
    let dead: Vec<&str> = dump.lines().filter(|line| line.contains(" DEAD")).collect();
    assert!(dead.len() == 1 && dead[0].contains(" write version 3,"), "{dump}");
    assert!(verified.contains("1 of the transactions depend"), "{verified}");
}

/// Makes the last frame of the stream invalid, as a torn write does.
fn tear(dir: &Path) {
    let files = std::fs::read_dir(dir.join("stream-0000")).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let written = paths.into_iter().rev().find_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0)?;
        Some((path, bytes, last))
    });
    let (path, mut bytes, last) = written.expect("something was written");
    bytes[last] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn rows_whose_record_is_lost_are_told_as_such() {
    let root = tempfile::tempdir().unwrap();
    let device = power_cut();
    let mut builder = Database::builder().protocol(PHYSIOLOGICAL).streams(1);
    builder = builder.log_settings(|log| log.device = Some(Arc::new(device.clone())));
    builder.table(schema());
    let db = builder.open(root.path()).unwrap();
    for ids in [0..2i64, 2..5] {
        db.try_transact(|tx| ids.clone().try_for_each(|id| put(tx, id))).unwrap().unwrap();
    }
    // A crash, because a clean shutdown would record where the log ends.
    device.cut();
    drop(db);
    tear(root.path());

    let (stat, dump, verified) = told(root.path());
    assert_eq!((&stat["records"], &stat["dead"]), (&1.into(), &0.into()), "{stat}");
    assert_eq!(stat["contents"]["unfinished"], 1, "{stat}");
    assert!(dump.contains("  1 transactions have parts here, and no record"), "{dump}");
    assert!(verified.contains("1 transactions, parts of 1 without a record"), "{verified}");
    assert!(verified.contains("whole: "), "{verified}");
}
