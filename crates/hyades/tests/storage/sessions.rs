//! More threads than the log has writer slots. Promise: threads that run single transactions wait
//! for one another.

use crate::common::{ACCOUNTS, BALANCE, Combination, How, Opened, directory, populate, try_open};
use hyades::{Abort, Concurrency, Error, Protocol, RecordKind};
use std::path::Path;
use std::time::Duration;

fn bank(dir: &Path, protocol: Protocol, concurrency: Concurrency) -> Opened {
    let combination = Combination { protocol, concurrency, record: RecordKind::Data, streams: 2 };
    let opened = try_open(dir, combination, How::default()).unwrap();
    populate(&opened);
    opened
}

#[test]
fn as_many_threads_as_there_are_run_transactions() {
    for protocol in [Protocol::Taurus, Protocol::None] {
        let dir = directory();
        let opened = bank(dir.path(), protocol, Concurrency::Silo);
        std::thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| {
                    let read = opened.db.try_transact(|tx| {
                        // All threads are in a transaction at the same time.
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
    let dir = directory();
    let opened = bank(dir.path(), Protocol::Taurus, Concurrency::NoWait);
    let mut held = Vec::new();
    let refused = loop {
        match opened.db.session() {
            Ok(session) => held.push(session),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Log(hyades_wal::Error::Writers(256))), "{refused}");
    let read = || opened.db.try_transact(|tx| Ok::<_, Abort>(tx.get(ACCOUNTS, 1i64)?.is_some()));
    // `populate` has borrowed one slot, which is reused here.
    assert!(read().unwrap().unwrap());
    assert!(held.len() < 256, "{}", held.len());
}

/// Checked by the compiler: the types that threads may share, and the types that may move to
/// another thread.
#[test]
fn databases_are_shared_and_sessions_move() {
    fn is_shared<T: Send + Sync + 'static>() {}
    fn moves<T: Send + 'static>() {}
    is_shared::<hyades::Database>();
    is_shared::<hyades::Builder>();
    is_shared::<Error>();
    is_shared::<Abort>();
    moves::<hyades::Session>();
    moves::<hyades::Ticket>();
    moves::<hyades::CommitQueue<u64>>();
}
