//! Promise: a standby shows the primary's state as of one epoch after the other, over kills of the
//! standby, whatever the log service loses, repeats or delays.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Database, ProcedureId, RecordKind, Schema, Table, Transaction, Type,
};
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{
    FirstAppender, LogService, MarkSender, Standby, StandbyError, StandbySettings, standby,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const STREAMS: usize = 3;
const ACCOUNTS: i64 = 50;
const BALANCE: i64 = 1_000;
const ACCOUNT: Table = Table::nth(0);
const JOURNAL: Table = Table::nth(1);
const AMOUNT: Column<i64> = Column::at(1);
const SOME: Faults = Faults {
    lost_requests: 0.05,
    lost_replies: 0.05,
    late_copies: 0.1,
    old_looks: 0.2,
    delays: 0.2,
};

/// Moves money, writes a row into the journal, and removes an earlier one now and then.
fn transfer(tx: &Transaction<'_>, input: (i64, i64, i64, i64)) -> Result<(), Abort> {
    let (number, from, to, amount) = input;
    for (id, change) in [(from, -amount), (to, amount)] {
        let balance = tx.get(ACCOUNT, id)?.map_or(BALANCE, |row| row.get(AMOUNT));
        tx.upsert(ACCOUNT, &[id.into(), (balance + change).into()])?;
    }
    if number % 7 == 0 {
        tx.delete(JOURNAL, number / 2)?;
    }
    tx.insert(JOURNAL, &[number.into(), amount.into()])?;
    Ok(())
}

fn declared(record: RecordKind) -> (Builder, ProcedureId) {
    let mut builder = Database::builder().streams(STREAMS).record(record);
    let table = |name: &str| {
        Schema::new(name).column("id", Type::I64).column("n", Type::I64).primary_key(&["id"])
    };
    builder.table(table("account"));
    builder.table(table("journal"));
    let transfer = builder.procedure("transfer", 1, transfer);
    (builder, transfer)
}

/// The balances, and the numbers in the journal.
fn content(database: &Database) -> (Vec<(i64, i64)>, Vec<i64>) {
    database
        .transact(|tx| {
            let pair = |row: &hyades::Row<'_>| (row.get(Column::<i64>::at(0)), row.get(AMOUNT));
            let accounts = tx.scan(ACCOUNT).rows()?.iter().map(pair).collect();
            let journal = tx.scan(JOURNAL).rows()?.iter().map(|row| pair(row).0).collect();
            Ok((accounts, journal))
        })
        .unwrap()
}

fn join(
    service: &Arc<dyn LogService>,
    dir: &Path,
    record: RecordKind,
) -> Result<Standby, StandbyError> {
    let settings = StandbySettings {
        node: "two".into(),
        dirs: vec![dir.to_owned()],
        patience: Duration::from_secs(5),
    };
    Standby::join(service.clone(), &settings, declared(record).0)
}

/// Checks what the standby shows: whole transactions, and no fewer than before.
fn check(standby: &Standby, last: &mut i64) {
    let (accounts, journal) = content(standby.database());
    let sum: i64 = accounts.iter().map(|(_, balance)| balance - BALANCE).sum();
    assert_eq!(sum, 0, "money was made or lost");
    let newest = journal.last().copied().unwrap_or(-1);
    assert!(newest >= *last, "number {newest} after {last}");
    *last = newest;
}

fn history(service: Arc<dyn LogService>, seed: u64, record: RecordKind) {
    let (primary_dir, standby_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let appender = FirstAppender::new(service.clone(), "one");
    let (builder, call) = declared(record);
    let primary = builder.remote(Arc::new(appender)).open(primary_dir.path()).unwrap();
    let marks = MarkSender::start(&primary, service.clone(), Duration::from_millis(2)).unwrap();
    assert_eq!(standby::lanes(&*service, Duration::from_secs(5)).unwrap(), STREAMS);
    let (stop, number, mut rng) = (AtomicBool::new(false), AtomicI64::new(0), Rng::with_seed(seed));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (primary, stop, number) = (&primary, &stop, &number);
            scope.spawn(move || {
                let (mut rng, mut session) =
                    (Rng::with_seed(seed * 10 + worker), primary.session().unwrap());
                while !stop.load(Relaxed) {
                    let [from, to] = [(); 2].map(|()| rng.i64(0..ACCOUNTS));
                    let input = (number.fetch_add(1, Relaxed), from, to, rng.i64(1..9));
                    let (outcome, _) = session.call(call, &input).unwrap();
                    outcome.unwrap();
                    if rng.u8(..) < 20 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
            });
        }
        let (mut standby, mut last) = (join(&service, standby_dir.path(), record).unwrap(), -1);
        let until = Instant::now() + Duration::from_millis(700);
        while Instant::now() < until {
            if standby.step(Duration::from_millis(5)).unwrap().is_some() {
                check(&standby, &mut last);
            }
            if rng.u8(..) < 3 {
                // Killed, with or without what it has not synced.
                drop(standby);
                standby = join(&service, standby_dir.path(), record).unwrap();
            }
        }
        stop.store(true, Relaxed);
        drop(standby);
    });
    let mut standby = join(&service, standby_dir.path(), record).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while standby.served().is_none() || content(standby.database()) != content(&primary) {
        standby.step(Duration::from_millis(20)).unwrap();
        assert!(Instant::now() < until, "seed {seed}: the standby does not become equal");
    }
    let refused = standby.database().transact(|tx| Ok(tx.delete(JOURNAL, 0i64)?));
    assert!(refused.is_err(), "a standby is only read");
    drop(marks);
    primary.close().unwrap();
}

#[test]
fn a_standby_shows_one_state_of_the_primary_after_the_other() {
    for (seed, record) in [
        (1, RecordKind::Data),
        (2, RecordKind::Command),
        (3, RecordKind::Adaptive),
        (fastrand::u64(..1 << 32), RecordKind::Data),
        (fastrand::u64(..1 << 32), RecordKind::Command),
    ] {
        eprintln!("seed {seed}");
        history(Arc::new(SimulatedLog::new(STREAMS, seed, SOME)), seed, record);
    }
}

#[test]
fn who_does_not_fit_is_refused() {
    let service = Arc::new(SimulatedLog::new(STREAMS, 1, Faults::default()));
    let dir = tempfile::tempdir().unwrap();
    let settings = |patience| StandbySettings {
        node: "two".into(),
        dirs: vec![dir.path().to_owned()],
        patience,
    };
    let none = settings(Duration::from_millis(1));
    let refused = Standby::join(service.clone(), &none, declared(RecordKind::Data).0).unwrap_err();
    assert!(matches!(refused, StandbyError::NoPrimary), "{refused}");
    let primary_dir = tempfile::tempdir().unwrap();
    let appender = FirstAppender::new(service.clone(), "one");
    let remote = Arc::new(appender);
    let _primary = declared(RecordKind::Data).0.remote(remote).open(primary_dir.path()).unwrap();
    let mut other = Database::builder();
    other.table(Schema::new("other").column("id", Type::I64).primary_key(&["id"]));
    let some = settings(Duration::from_secs(5));
    let refused = Standby::join(service.clone(), &some, other).unwrap_err();
    assert!(matches!(refused, StandbyError::Replay(_)), "{refused}");
    // A second primary on the same lanes.
    let second_dir = tempfile::tempdir().unwrap();
    let appender = FirstAppender::new(service.clone(), "three");
    let refused = declared(RecordKind::Data).0.remote(Arc::new(appender)).open(second_dir.path());
    let error = refused.err().expect("the number is drawn").to_string();
    assert!(error.contains("has become primary"), "{error}");
}

/// As above, over the NATS servers that HYADES_NATS names, see `nats.rs`.
#[cfg(feature = "nats")]
#[test]
#[ignore = "needs NATS servers"]
fn a_standby_follows_over_nats() {
    use hyades_replication::nats::{NatsLog, NatsSettings};
    let servers = std::env::var("HYADES_NATS").expect("HYADES_NATS names the servers");
    for (seed, record) in [(1, RecordKind::Data), (2, RecordKind::Command)] {
        let name = format!("test-{:x}", fastrand::u64(..));
        let settings = NatsSettings::new(format!("nats://{servers}/{name}").parse().unwrap());
        history(Arc::new(NatsLog::connect(settings.clone(), STREAMS).unwrap()), seed, record);
        NatsLog::remove_lanes(&settings, STREAMS).unwrap();
    }
}
