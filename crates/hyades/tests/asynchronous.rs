//! Promise: a database that acknowledges before the write waits for no device; a crash takes the
//! last transactions, and leaves whole transactions, none without its predecessors. Closing loses
//! none.
#![allow(missing_docs)]

mod common;

use common::partitions::{self, COUNT, STOCK, count, set};
use common::{directory, evolving, held::HeldDevice};
use hyades::{
    Abort, Builder, Concurrency, Database, Partitions, ProcedureId, Protocol, RecordKind,
    Transaction,
};
use hyades_platform::device::{Device, FileDevice};
use hyades_schemes::{ARRIVAL, PARTITIONED};
use std::sync::Arc;
use std::time::Duration;

const ITEM: i64 = 1;

fn builder(protocol: Protocol, control: Concurrency) -> (Builder, ProcedureId) {
    let mut builder =
        partitions::builder(protocol, 4).concurrency(control).record(RecordKind::Command);
    // The counts of two shops are always equal.
    let both = builder.procedure("both", 1, |tx: &Transaction<'_>, (a, b): (i64, i64)| {
        if tx.get(STOCK, (a, ITEM))?.is_none() {
            tx.insert(STOCK, &[a.into(), ITEM.into(), 0i64.into()])?;
            tx.insert(STOCK, &[b.into(), ITEM.into(), 0i64.into()])?;
        }
        let n = count(tx, a)? + 1;
        set(tx, a, n)?;
        set(tx, b, n)?;
        Ok(n)
    });
    builder.on(both, |(a, b): (i64, i64)| Partitions::of(a).with(b));
    (builder, both)
}

fn counts(db: &Database) -> Vec<i64> {
    let read = |tx: &Transaction<'_>| {
        let rows = tx.scan(STOCK).rows()?;
        Ok::<_, Abort>(rows.iter().map(|row| row.get(COUNT)).collect())
    };
    db.try_transact(read).unwrap().unwrap()
}

const PAIRS: [(Protocol, Concurrency); 3] = [
    (ARRIVAL, PARTITIONED),
    (Protocol::Taurus, Concurrency::Silo),
    (Protocol::Serial, PARTITIONED),
];

#[test]
fn it_waits_for_no_device_and_loses_only_the_end() {
    for (protocol, control) in PAIRS {
        let dir = directory();
        let held = HeldDevice::new(FileDevice::shared());
        let (builder, both) = builder(protocol, control);
        let own: Arc<dyn Device> = Arc::new(held.clone());
        let builder = builder.asynchronous(true).log_settings(|log| {
            log.device = Some(own);
            log.flush_interval = Some(Duration::from_millis(1));
        });
        let db = builder.open(dir.path()).unwrap();
        for n in 1..=50i64 {
            assert_eq!(db.call::<_, i64>("both", &(1i64, 2i64)).unwrap(), n);
        }
        db.log().unwrap().flush().unwrap();
        let copy = directory();
        {
            let _held = [held.hold("stream-0000"), held.hold("stream-0001")];
            // Each would wait for ever.
            assert_eq!(db.call::<_, i64>("both", &(1i64, 2i64)).unwrap(), 51);
            let posted = db.post::<_, i64>(both, &(1i64, 2i64)).unwrap();
            assert_eq!(posted.wait().unwrap(), 52);
            let (_, ticket) = db.session().unwrap().call(both, &(3i64, 4i64)).unwrap();
            assert!(ticket.is_acknowledged().unwrap() && ticket.transaction_id().is_some());
            evolving::copy(dir.path(), copy.path());
        }
        db.close().unwrap();
        let open = |at: &std::path::Path| self::builder(protocol, control).0.open(at).unwrap();
        let recovered = counts(&open(copy.path()));
        assert!(recovered.chunks(2).all(|both| both[0] == both[1]), "{recovered:?}");
        assert!((50..=52).contains(&recovered[0]), "{protocol:?} {recovered:?}");
        assert_eq!(counts(&open(dir.path())), [52, 52, 1, 1]);
    }
}
