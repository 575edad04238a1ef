//! More threads than the log has places for: those that run a transaction each wait for one another.
#![allow(missing_docs)]

mod common;
use common::{ACCOUNTS, BALANCE, Combination, How, directory, populate, try_open};
use hyades::{Abort, Concurrency, Error, Protocol, Record};
use std::time::Duration;

#[test]
fn as_many_threads_as_there_are_run_transactions() {
    for protocol in [Protocol::Taurus, Protocol::None] {
        let c = Combination {
            protocol,
            concurrency: Concurrency::Silo,
            record: Record::Data,
            streams: 2,
        };
        let dir = directory();
        let opened = try_open(dir.path(), c, How::default()).unwrap();
        populate(&opened);
        std::thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| {
                    let read = opened.db.transact(|tx| {
                        // All of them are inside at once.
                        std::thread::sleep(Duration::from_millis(50));
                        Ok::<_, Abort>(tx.get(ACCOUNTS, 1i64)?.unwrap().get(BALANCE))
                    });
                    read.unwrap().unwrap();
                });
            }
        });
    }
}

#[test]
fn a_program_that_holds_all_places_is_told_so() {
    let c = Combination {
        protocol: Protocol::Taurus,
        concurrency: Concurrency::NoWait,
        record: Record::Data,
        streams: 2,
    };
    let dir = directory();
    let opened = try_open(dir.path(), c, How::default()).unwrap();
    populate(&opened);
    let mut held = Vec::new();
    let refused = loop {
        match opened.db.session() {
            Ok(session) => held.push(session),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Log(hyades_wal::Error::Writers(256))), "{refused}");
    let read = || opened.db.transact(|tx| Ok::<_, Abort>(tx.get(ACCOUNTS, 1i64)?.is_some()));
    // One place is lent already, by `populate`: it comes back.
    assert!(read().unwrap().unwrap());
    assert!(held.len() < 256, "{}", held.len());
}
