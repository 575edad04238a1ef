//! Transactions whose record head alone does not fit a frame.

use crate::common::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Protocol, RecordKind, Schema, Table,
    Transaction, Type,
};
use hyades_schemes::{TAURUS_2016, all_controls};

const NUMBERS: Table = Table::nth(0);
const LINES: Table = Table::nth(1);
const VALUE: Column<i64> = Column::at(1);

fn builder(protocol: Protocol, concurrency: Concurrency, record: RecordKind) -> Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .record(record)
        .streams(if protocol == Protocol::Serial { 1 } else { 3 })
        .log_settings(|log| {
            log.buffer_bytes = 1 << 14;
            log.segment_bytes = 1 << 16;
            // Without anchors no component is left out of a vector.
            log.research.anchor_interval_bytes = 1 << 40;
        });
    let numbers = Schema::new("numbers").column("n", Type::I64).column("value", Type::I64);
    builder.table(numbers.primary_key(&["n"]));
    builder.table(Schema::new("lines").column("line", Type::I64));
    builder.procedure("fill", 1, |tx: &Transaction<'_>, lines: i64| {
        for line in 0..lines {
            tx.insert(LINES, &[line.into()])?;
        }
        Ok(())
    });
    builder
}

/// The digest after recovery of a closed database.
fn digest_again(builder: Builder, dir: &std::path::Path, threads: usize) -> u64 {
    let db = builder.recovery_threads(threads).open(dir).unwrap();
    let digest = db.digest();
    db.close().unwrap();
    digest
}

#[test]
fn a_command_that_was_given_many_row_ids_is_logged_as_data() {
    for protocol in [Protocol::Taurus, TAURUS_2016, Protocol::Serial] {
        let takes = |control: &Concurrency| control.takes_commands_under(protocol);
        for concurrency in all_controls().filter(takes) {
            let again = || builder(protocol, concurrency, RecordKind::Command);
            let dir = directory();
            let db = again().open(dir.path()).unwrap();
            for lines in [10i64, 3000] {
                db.call::<_, ()>("fill", &lines).unwrap();
            }
            assert_eq!(db.rows(), 3010);
            let digest = db.digest();
            db.close().unwrap();
            for threads in [1, 2] {
                assert_eq!(digest_again(again(), dir.path(), threads), digest, "{protocol:?}");
            }
        }
    }
}

#[test]
fn a_record_that_follows_many_others_names_them_all_in_a_frame() {
    for (record, concurrency) in [
        (RecordKind::Data, Concurrency::Silo),
        (RecordKind::Data, Concurrency::NoWait),
        (RecordKind::Adaptive, Concurrency::Silo),
        (RecordKind::Adaptive, Concurrency::NoWait),
    ] {
        let again = || builder(TAURUS_2016, concurrency, record);
        let dir = directory();
        let db = again().open(dir.path()).unwrap();
        let mut session = db.session().unwrap();
        for round in 0..3i64 {
            for n in 0..3000i64 {
                let put = |tx: &Transaction<'_>| tx.upsert(NUMBERS, &[n.into(), round.into()]);
                session.try_submit(put).unwrap().0.unwrap();
            }
            let sum = |tx: &Transaction<'_>| {
                let sum: i64 = tx.scan(NUMBERS).rows()?.iter().map(|row| row.get(VALUE)).sum();
                tx.upsert(NUMBERS, &[(-1i64).into(), sum.into()])?;
                Ok::<_, Abort>(sum)
            };
            let (sum, ticket) = session.try_submit(sum).unwrap();
            assert!(sum.unwrap() >= 3000 * round);
            ticket.wait().unwrap();
        }
        let digest = db.digest();
        drop(session);
        db.close().unwrap();
        for threads in [1, 2] {
            let found = digest_again(again(), dir.path(), threads);
            assert_eq!(found, digest, "{record:?} {concurrency:?}");
        }
    }
}
