//! Sessions that keep to a stream, sessions that flush their own records, and group commit by
//! count. Promise: each does as stated, under every protocol, and acknowledged writes are
//! recovered.
#![allow(missing_docs)]

use hyades::{Abort, Concurrency, Database, Error, Protocol, Schema, Session, Table, Ticket, Type};
use hyades_platform::device::{PowerCutDevice, PowerCutOptions};
use hyades_schemes::{GSN, all_protocols};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ROWS: Table = Table::nth(0);

fn builder(protocol: Protocol, streams: usize) -> hyades::Builder {
    let mut builder = Database::builder().protocol(protocol).streams(streams);
    if protocol == Protocol::None {
        builder = builder.concurrency(Concurrency::Silo);
    }
    let schema = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(schema.primary_key(&["id"]));
    builder
}

/// Protocols that log writes of closures, with their number of streams here.
fn protocols() -> impl Iterator<Item = (Protocol, usize)> {
    let logs = |p: &Protocol| p.takes_data() && *p != Protocol::None;
    let one = |p: Protocol| p.has_one_stream();
    all_protocols().filter(logs).map(move |p| (p, if one(p) { 1 } else { 2 }))
}

fn put(session: &mut Session, id: i64, n: i64) -> Ticket {
    let (result, ticket) = session
        .try_submit(|tx| {
            let before = tx.get(ROWS, id)?.map_or(0, |row| row.get(hyades::Column::<i64>::at(1)));
            tx.overwrite(ROWS, &[id.into(), (before / 2 + n).into()])?;
            Ok::<_, Abort>(())
        })
        .unwrap();
    result.unwrap();
    ticket
}

fn open(dir: &Path, p: (Protocol, usize), device: Option<&PowerCutDevice>) -> Database {
    let builder = builder(p.0, p.1).log_settings(|log| {
        log.research.flushed_by_sessions = true;
        log.research.block_bytes = 64;
        log.epoch = Some(Duration::from_millis(1));
        log.device = device.map(|device| Arc::new(device.clone()) as Arc<_>);
    });
    builder.open(dir).unwrap()
}

#[test]
fn a_session_flushes_its_own_records() {
    for p in protocols() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), p, None);
        let log = db.log().unwrap();
        let mut session = db.session().unwrap();
        for n in 0..20 {
            let ticket = put(&mut session, n % 3, n);
            let id = ticket.transaction_id().expect("it has a record");
            let durable = (0..p.1).find(|s| log.stream_id(*s).0 == id.stream);
            let durable = log.frontier().durable(durable.unwrap());
            assert!(durable >= id.lsn, "{p:?}: durable to {durable}, {id}");
            if n % 7 == 0 {
                ticket.wait().unwrap();
            }
        }
        drop(session);
        db.close().unwrap();
    }
}

#[test]
fn what_sessions_have_flushed_survives_a_power_cut() {
    for (seed, p) in protocols().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let options = PowerCutOptions { seed: seed as u64, early_sectors: 0.3, lying_sync: false };
        let device = PowerCutDevice::new(options);
        let db = open(dir.path(), p, Some(&device));
        let acknowledged: Vec<i64> = std::thread::scope(|scope| {
            let threads = [0i64, 1, 2].map(|thread| {
                let mut session = db.session().unwrap();
                scope.spawn(move || {
                    for n in 1..=60 {
                        // Its own row, and a row that all threads write.
                        put(&mut session, thread, n * 1000).wait().unwrap();
                        drop(put(&mut session, 9, n));
                    }
                    60i64
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(acknowledged, [60; 3]);
        db.log().unwrap().flush().unwrap();
        let before = db.digest();
        device.cut();
        drop(db);
        let db = open(dir.path(), p, None);
        assert_eq!(db.digest(), before, "{p:?}");
        db.close().unwrap();
    }
}

#[test]
fn sessions_that_keep_to_a_stream_do() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(Protocol::Taurus, 3)
        .log_settings(|log| {
            log.research.fixed_streams = true;
            // Small, so sessions would move on soon.
            log.buffer_bytes = 1 << 13;
        })
        .open(dir.path())
        .unwrap();
    let mut sessions: Vec<Session> = (0..6).map(|_| db.session().unwrap()).collect();
    let mut streams = vec![Vec::new(); 6];
    for n in 0..300i64 {
        for (at, session) in sessions.iter_mut().enumerate() {
            let ticket = put(session, at as i64, n);
            streams[at].push(ticket.transaction_id().unwrap().stream);
        }
    }
    let mut of_stream = [0; 3];
    for own in &streams {
        assert!(own.iter().all(|stream| *stream == own[0]), "{own:?}");
        let at = (0..3).find(|s| db.log().unwrap().stream_id(*s).0 == own[0]).unwrap();
        of_stream[at] += 1;
    }
    assert_eq!(of_stream, [2; 3], "sessions are spread evenly");
}

#[test]
fn a_number_of_records_ends_a_flush_interval() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(Protocol::Taurus, 1)
        .log_settings(|log| {
            log.flush_interval = Some(Duration::from_secs(3600));
            log.research.flush_fill_count = Some(4);
        })
        .open(dir.path())
        .unwrap();
    let mut session = db.session().unwrap();
    let tickets: Vec<Ticket> = (0..4).map(|n| put(&mut session, n, n)).collect();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    // A closed log waits for nothing.
    drop(put(&mut session, 9, 9));
    drop(session);
    db.close().unwrap();
}

#[test]
fn settings_outside_their_ranges_are_refused() {
    let refused = |change: fn(&mut hyades::LogSettings), says: &str| {
        let dir = tempfile::tempdir().unwrap();
        let opened = builder(GSN, 2).log_settings(change).open(dir.path());
        let Err(Error::Misuse(text)) = opened else { panic!("{says}: not refused") };
        assert!(text.contains(says), "{text}");
    };
    refused(|log| log.research.block_bytes = 32, "64 bytes to 65536 bytes");
    refused(|log| log.research.block_bytes = 100, "a power of two");
    refused(|log| log.research.block_bytes = 1 << 17, "64 bytes to 65536 bytes");
    refused(|log| log.research.flush_fill_count = Some(0), "choose 1 to");
    refused(
        |log| {
            log.research.flushed_by_sessions = true;
            log.flush_interval = Some(Duration::from_millis(1));
        },
        "set no flush interval",
    );
    let fits = |log: &mut hyades::LogSettings| {
        log.research.block_bytes = 65536;
        log.segment_bytes = 1 << 19;
    };
    refused(fits, "a segment");
}
