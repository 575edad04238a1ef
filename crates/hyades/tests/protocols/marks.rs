//! Protocols with numbered records: what streams state about the numbers (watermarks), and when.

use crate::common::{DATA_ONLY, directory, power_cut};
use hyades::{
    Abort, Column, Concurrency, Database, Error, Protocol, RecordKind, Schema, Session, Table,
    Transaction, Type,
};
use hyades_platform::device::Device;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NUMBERS: Table = Table::nth(0);
const N: Column<i64> = Column::at(1);

fn builder(protocol: Protocol, streams: usize, device: Option<Arc<dyn Device>>) -> hyades::Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(Concurrency::Silo)
        .streams(streams)
        .recovery_threads(2)
        .log_settings(|log| {
            log.device = device;
            log.segment_bytes = 1 << 16;
            log.buffer_bytes = 1 << 14;
            log.epoch = Some(Duration::from_millis(2));
        });
    builder.table(
        Schema::new("numbers")
            .column("id", Type::I64)
            .column("n", Type::I64)
            .column("text", Type::Text)
            .primary_key(&["id"]),
    );
    builder
}

fn put(tx: &Transaction<'_>, id: i64, n: i64, text: &str) -> Result<(), Abort> {
    tx.upsert(NUMBERS, &[id.into(), n.into(), text.into()]).map(drop)
}

fn write(session: &mut Session, id: i64, n: i64, text: &str) {
    let (result, ticket) = session.try_submit(|tx| put(tx, id, n, text)).unwrap();
    result.unwrap();
    ticket.wait().unwrap();
}

fn read(db: &Database, id: i64) -> Option<i64> {
    let get = |tx: &Transaction<'_>| Ok::<_, Abort>(tx.get(NUMBERS, id)?.map(|row| row.get(N)));
    db.try_transact(get).unwrap().unwrap()
}

fn stated(db: &Database) -> u64 {
    (0..db.streams()).map(|stream| db.log().unwrap().stats(stream).frame_bytes).sum()
}

/// Promise: a writer to one stream is acknowledged although the others are idle, and so is a
/// reader. A reader of durable rows causes no further log writes.
#[test]
fn idle_streams_hold_nobody_up_and_readers_of_durable_rows_cost_nothing() {
    for protocol in DATA_ONLY {
        let dir = directory();
        let db = builder(protocol, 8, None).open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        for n in 0..20 {
            write(&mut session, n, n, "short");
        }
        assert_eq!(read(&db, 7), Some(7));
        let before = stated(&db);
        for _ in 0..50 {
            assert_eq!(read(&db, 7), Some(7));
            assert_eq!(read(&db, 1000), None);
        }
        assert_eq!(stated(&db), before, "{protocol:?}: something was written for readers");
    }
}

/// Promise: polling suffices for an acknowledgement, by ticket or by queue; no thread has to block.
#[test]
fn who_polls_is_answered() {
    for protocol in DATA_ONLY {
        let dir = directory();
        let db = builder(protocol, 4, None).open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        let mut queue = db.commit_queue();
        for n in 0..10i64 {
            let (_, ticket) = session.try_submit(|tx| put(tx, n, n, "polled")).unwrap();
            queue.push(ticket, n);
        }
        let (_, ticket) = session.try_submit(|tx| put(tx, 100, 100, "polled")).unwrap();
        while !ticket.is_acknowledged().unwrap() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut answered = 0;
        while answered < 10 {
            answered += queue.drain(|_| ()).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn what_is_answered_after_a_checkpoint_is_recovered() {
    for protocol in DATA_ONLY {
        for clean in [false, true] {
            let dir = directory();
            let device = power_cut(5);
            let open = |device| builder(protocol, 2, device).open(dir.path()).unwrap();
            let db = open(Some(Arc::new(device.clone()) as Arc<dyn Device>));
            let filler = "x".repeat(2000);
            // Two sessions, so that both streams are written and begin new segments repeatedly.
            let mut sessions = [db.session().unwrap(), db.session().unwrap()];
            for n in 0..400 {
                write(&mut sessions[n as usize % 2], n % 10, n, &filler);
            }
            assert!(db.checkpoint().unwrap().truncated_bytes > 0);
            for n in 0..5 {
                write(&mut sessions[0], 100 + n, n, "after");
            }
            drop(sessions);
            if clean {
                db.close().unwrap();
            } else {
                device.cut();
                drop(db);
            }
            // A second opening must yield the same result.
            for _ in 0..2 {
                let again = open(None);
                for n in 0..5 {
                    assert_eq!(read(&again, 100 + n), Some(n), "{protocol:?}, closed: {clean}");
                }
                again.close().unwrap();
            }
        }
    }
}

#[test]
fn commands_are_refused_with_what_would_be_right() {
    let refuses = |open: &dyn Fn(&Path) -> Result<Database, Error>| {
        let dir = directory();
        let path = dir.path().join("new");
        let Err(error) = open(&path) else { panic!("it was accepted") };
        assert!(matches!(error, Error::Misuse(_)), "{error:?}");
        assert!(error.to_string().contains("record to data"), "{error}");
        assert!(!path.exists(), "nothing is made");
    };
    for protocol in DATA_ONLY {
        for record in [RecordKind::Command, RecordKind::Adaptive] {
            refuses(&|path| builder(protocol, 2, None).record(record).open(path));
            refuses(&|path| {
                let mut builder = builder(protocol, 2, None);
                builder.procedure_recorded("p", 1, record, |_: &Transaction<'_>, (): ()| Ok(()));
                builder.open(path)
            });
        }
    }
}
