//! Promise: under partitioned execution the transactions of a partition run one after the other,
//! whatever they say beforehand; others go on; what is recovered is what was there.
#![allow(missing_docs)]

mod common;
use common::beside::beside;
use common::partitions::{self, COUNT, NOTES, PRICE, PRICES, SHOPS, STAFF, STOCK, Shops};
use common::partitions::{builder, count, open, recovered, set};
use hyades::{Abort, Error, Partitions, Protocol, RecordKind, Schema, Transaction, Type};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const PROTOCOLS: [Protocol; 4] =
    [Protocol::None, Protocol::Serial, Protocol::Taurus, Protocol::Physiological];

fn unlogged() -> Shops {
    open(builder(Protocol::None, 64))
}

#[test]
fn no_piece_is_lost_or_made() {
    for partitions in [1, 2, 64] {
        let shops = open(builder(Protocol::None, partitions));
        assert!(partitions::pieces_stay(&shops, Duration::from_millis(700)), "{partitions}");
    }
    let shops = open(builder(Protocol::Taurus, 8));
    assert!(partitions::pieces_stay(&shops, Duration::from_millis(700)));
}

#[test]
fn commands_are_replayed_in_the_order_of_their_partitions() {
    assert!(partitions::commands_replay_in_their_order());
}

#[test]
fn the_state_is_recovered_with_any_number_of_partitions() {
    for protocol in PROTOCOLS.into_iter().filter(|protocol| *protocol != Protocol::None) {
        for record in [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive] {
            if record != RecordKind::Data && !protocol.takes_commands() {
                continue;
            }
            for numbers in [[64, 64], [4, 1], [1, 16]] {
                let [before, after] = recovered(protocol, record, numbers);
                assert_eq!(before, after, "{protocol:?} {record:?} {numbers:?}");
            }
        }
    }
}

#[test]
fn all_get_their_turns() {
    assert!(partitions::all_get_their_turns(Duration::from_secs(60)));
}

/// While a transaction is in one partition, others run in others.
#[test]
fn other_partitions_go_on() {
    let Shops { db, dir: _dir } = unlogged();
    let slow = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        set(tx, 1, 7)?;
        pause();
        count(tx, 1)
    };
    let (seen, attempts) = beside(&db, slow, || {
        db.transact(|tx| Ok(set(tx, 2, 9)?)).unwrap();
        // One that reads all partitions reads a snapshot.
        let all = db.transact(|tx| Ok(tx.scan(STOCK).rows()?.len())).unwrap();
        assert_eq!(all, SHOPS as usize);
        let prices = db.transact(|tx| Ok(tx.scan(PRICES).rows()?.len()));
        assert_eq!(prices.unwrap(), 1);
        // What it has found out is forgotten then: the session's next one needs one partition.
        let mut session = db.session().unwrap();
        let scan = |tx: &Transaction<'_>| Ok::<_, Abort>(tx.scan(STOCK).rows()?.len());
        assert_eq!(session.try_submit(scan).unwrap().0, Ok(SHOPS as usize));
        session.try_submit(|tx| set(tx, 3, 9)).unwrap().0.unwrap();
    });
    assert_eq!((seen, attempts), (7, 1));
}

/// A transaction that goes on to a partition that another one holds runs again, and waits for it.
#[test]
fn what_is_held_is_waited_for() {
    let Shops { db, dir: _dir } = unlogged();
    let slow = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        let n = count(tx, 1)?;
        pause();
        set(tx, 1, n + 1)
    };
    std::thread::scope(|scope| {
        let mut waiting = None;
        beside(&db, slow, || {
            let both = || {
                let mut attempts = 0;
                let run = |tx: &Transaction<'_>| {
                    attempts += 1;
                    let (two, one) = (count(tx, 2)?, count(tx, 1)?);
                    set(tx, 2, two + 1)?;
                    set(tx, 1, one * 2)
                };
                db.session().unwrap().try_submit(run).unwrap().0.unwrap();
                attempts
            };
            waiting = Some(scope.spawn(both));
            std::thread::sleep(Duration::from_millis(20));
        });
        assert_eq!(waiting.unwrap().join().unwrap(), 2);
    });
    assert_eq!(db.transact(|tx| Ok(count(tx, 1)?)).unwrap(), 202);
}

/// A name is unique among all shops, though staff is partitioned by shop.
#[test]
fn unique_keys_are_unique_among_partitions() {
    let Shops { db, dir: _dir } = unlogged();
    let hire = |tx: &Transaction<'_>, shop: i64, pause: &dyn Fn()| {
        let hired = tx.insert(STAFF, &[shop.into(), "Ada".into()]);
        pause();
        match hired {
            Err(Abort::DuplicateKey { .. }) => Ok(false),
            hired => hired.map(|_| true),
        }
    };
    std::thread::scope(|scope| {
        let mut second = None;
        let (first, _) = beside(
            &db,
            |tx, pause| hire(tx, 1, pause),
            || {
                let other = || db.try_transact(|tx| hire(tx, 2, &|| ())).unwrap();
                second = Some(scope.spawn(other));
                std::thread::sleep(Duration::from_millis(20));
            },
        );
        assert_ne!(first, second.unwrap().join().unwrap().unwrap());
    });
    assert_eq!(db.transact(|tx| Ok(tx.scan(STAFF).rows()?.len())).unwrap(), 1);
}

/// Replicated rows change only while no transaction reads them.
#[test]
fn replicated_rows_change_everywhere_at_once() {
    let Shops { db, dir: _dir } = unlogged();
    let price = |tx: &Transaction<'_>| Ok(tx.get(PRICES, 1i64)?.map_or(0, |row| row.get(PRICE)));
    let twice = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        count(tx, 3)?;
        let first = price(tx)?;
        pause();
        Ok((first, price(tx)?))
    };
    std::thread::scope(|scope| {
        let mut writer = None;
        let (seen, _) = beside(&db, twice, || {
            let change = |tx: &Transaction<'_>| Ok(tx.update(PRICES, 1i64, &[PRICE.set(6)])?);
            let db = &db;
            writer = Some(scope.spawn(move || db.transact(change).unwrap()));
            std::thread::sleep(Duration::from_millis(20));
        });
        assert_eq!(seen, (5, 5));
        assert!(writer.unwrap().join().unwrap());
    });
    assert_eq!(db.transact(|tx| Ok(price(tx)?)).unwrap(), 6);
}

/// A row without a key is reached by its id, whatever partition it is in.
#[test]
fn rows_without_a_key_are_found_by_id() {
    let Shops { db, dir: _dir } = unlogged();
    let id = db.transact(|tx| Ok(tx.insert(NOTES, &[3i64.into(), "here".into()])?)).unwrap();
    let found = db.transact(|tx| {
        set(tx, 5, 1)?;
        Ok(tx.get(NOTES, id)?.is_some())
    });
    assert!(found.unwrap());
    assert!(db.transact(|tx| Ok(tx.delete(NOTES, id)?)).unwrap());
}

/// What a transaction that fails has written is gone, and its partitions are free.
#[test]
fn what_fails_is_undone() {
    let Shops { db, dir: _dir } = unlogged();
    let failed = db.transact(|tx| {
        tx.hold(Partitions::ALL)?;
        set(tx, 1, 0)?;
        tx.delete(STOCK, (2i64, 1i64))?;
        Err::<(), _>(Error::user("no"))
    });
    assert!(failed.is_err());
    let fails = |tx: &Transaction<'_>| -> Result<(), Error> {
        set(tx, 1, 0)?;
        panic!("told to");
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| db.transact(fails)));
    assert!(panicked.is_err());
    let counts = db.transact(|tx| {
        let rows = tx.scan(STOCK).rows()?;
        Ok(rows.iter().map(|row| row.get(COUNT)).collect::<Vec<_>>())
    });
    assert_eq!(counts.unwrap(), [100; SHOPS as usize]);
}

#[test]
fn wrong_declarations_and_protocols_are_refused() {
    let refused = |builder: hyades::Builder| builder.open("never made").err().unwrap().to_string();
    let partitions = refused(builder(Protocol::None, 6));
    assert!(partitions.contains("power of two"), "{partitions}");
    assert!(refused(builder(Protocol::None, 128)).contains("partitions"));
    let protocol = refused(builder(Protocol::Poplar, 8));
    assert!(protocol.contains("partitioned") && protocol.contains("taurus"), "{protocol}");
    let mut wrong = builder(Protocol::None, 8);
    wrong.table(Schema::new("wrong").column("n", Type::I64).partition_by("m"));
    assert!(refused(wrong).contains("no column"));
}
