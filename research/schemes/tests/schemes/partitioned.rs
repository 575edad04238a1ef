//! Promise: under partitioned execution the transactions of a partition run one after the other,
//! whatever partitions the transactions state; other partitions go on; recovery restores the former
//! rows.

use crate::common::beside::beside;
use crate::common::partitions::{self, NOTES, PRICE, PRICES, SHOPS, STAFF, STOCK, Shops};
use crate::common::partitions::{builder, count, open, recovered, set};
use hyades::{
    Abort, Attempt, Column, Concurrency, Error, Index, Partitions, Protocol, RecordKind, Schema,
    Transaction, Type,
};
use hyades_schemes::{PARTITIONED, PHYSIOLOGICAL, POPLAR};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

const PROTOCOLS: [Protocol; 4] =
    [Protocol::None, Protocol::Serial, Protocol::Taurus, PHYSIOLOGICAL];

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

/// Each transaction that changes two partitions is recovered as a whole, or left out as a whole.
#[test]
fn no_piece_is_lost_or_made_wherever_the_power_fails() {
    for undo in [false, true] {
        assert!(partitions::pieces_survive_power_cuts(undo, 20), "with undo: {undo}");
    }
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

/// The transactions per second of this number of sessions, over two partitions.
fn rate(sessions: u64) -> f64 {
    let Shops { db, dir: _dir } = open(builder(Protocol::None, 2));
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let time = Duration::from_secs(1);
    std::thread::scope(|scope| {
        for session in 0..sessions {
            let (db, done, over) = (&db, &done, &over);
            scope.spawn(move || {
                let mut own = db.session().unwrap();
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let shop = ((session + n) % SHOPS as u64) as i64;
                    let sets = |tx: &Transaction<'_>| {
                        Ok((0..20).try_for_each(|_| set(tx, shop, n as i64))?)
                    };
                    let ((), _ticket) = own.submit(sets).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    done.into_inner() as f64 / time.as_secs_f64()
}

/// A turn is not handed to a sleeping thread while other threads run.
#[test]
fn many_sessions_are_about_as_fast_as_few() {
    let measured: Vec<[f64; 2]> = (0..5).map(|_| [rate(2), rate(64)]).collect();
    assert!(measured.iter().any(|[few, many]| many > &(few / 2.0)), "{measured:?}");
}

/// While a transaction is in one partition, transactions of other partitions run.
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
        // A transaction that reads all partitions reads a snapshot.
        let all = db.transact(|tx| Ok(tx.scan(STOCK).rows()?.len())).unwrap();
        assert_eq!(all, SHOPS as usize);
        let prices = db.transact(|tx| Ok(tx.scan(PRICES).rows()?.len()));
        assert_eq!(prices.unwrap(), 1);
        // The session then forgets the partitions: its next transaction needs one partition.
        let mut session = db.session().unwrap();
        let scan = |tx: &Transaction<'_>| Ok::<_, Abort>(tx.scan(STOCK).rows()?.len());
        assert_eq!(session.try_submit(scan).unwrap().0, Ok(SHOPS as usize));
        session.try_submit(|tx| set(tx, 3, 9)).unwrap().0.unwrap();
    });
    assert_eq!((seen, attempts), (7, 1));
}

/// A transaction that goes on to a held partition runs again, and waits for the partition.
#[test]
fn what_is_held_is_waited_for() {
    let Shops { db, dir: _dir } = unlogged();
    let has_met = AtomicBool::new(false);
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
                    let (two, one) = (count(tx, 2)?, count(tx, 1));
                    has_met.fetch_or(one.is_err(), Ordering::Relaxed);
                    let one = one?;
                    set(tx, 2, two + 1)?;
                    set(tx, 1, one * 2)
                };
                db.session().unwrap().try_submit(run).unwrap().0.unwrap();
                attempts
            };
            waiting = Some(scope.spawn(both));
            let began = Instant::now();
            while !has_met.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
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

/// A row without a key is reached by its id, whatever its partition.
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

/// A row without a key may move to another partition. The index entry left behind still leads to
/// the row: a scan of the former partition does not read the row while the new partition changes
/// the row.
#[test]
fn a_row_that_has_moved_is_not_read_in_passing() {
    let mut builder = builder(Protocol::None, 8);
    let tasks = Schema::new("tasks").column("shop", Type::I64).column("text", Type::Text);
    let tasks = builder.table(tasks.index("by_shop", &["shop"]).partition_by("shop"));
    let Shops { db, dir: _dir } = open(builder);
    // Holds back the removal of the index entry left behind.
    let _snapshot = db.open_snapshot();
    let id = db.transact(|tx| Ok(tx.insert(tasks, &[1i64.into(), "a".into()])?)).unwrap();
    let moved = Column::<i64>::at(0).set(2i64);
    assert!(db.transact(|tx| Ok(tx.update(tasks, id, &[moved])?)).unwrap());
    let slow = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        set(tx, 2, 7)?;
        pause();
        Ok(())
    };
    beside(&db, slow, || {
        let mut session = db.session().unwrap();
        let scan = |tx: &Transaction<'_>| {
            let rows = tx.scan_index(tasks, Index(0)).prefix(&[1i64.into()]).rows()?;
            Ok::<_, Abort>(rows.len())
        };
        assert!(matches!(session.attempt(scan).unwrap(), Attempt::Conflict));
    });
    let left =
        db.transact(|tx| Ok(tx.scan_index(tasks, Index(0)).prefix(&[1i64.into()]).rows()?.len()));
    assert_eq!(left.unwrap(), 0);
}

/// The writes of a failed transaction are gone, and its partitions are free.
#[test]
fn what_fails_is_undone() {
    let Shops { db, dir: _dir } = unlogged();
    // Opened before, so that the failing session is a different session: a session may enter again
    // a partition that the session has not left.
    let mut other = db.session().unwrap();
    let mut is_undone = || {
        let counts = |tx: &Transaction<'_>| {
            (0..SHOPS).map(|shop| count(tx, shop)).collect::<Result<Vec<_>, _>>()
        };
        match other.attempt(counts).unwrap() {
            Attempt::Committed(counts, _) => assert_eq!(counts, [100; SHOPS as usize]),
            end => panic!("partitions are still held: {end:?}"),
        }
        // A writer locks rows of a table with an index.
        let write = other.attempt(|tx| set(tx, 1, 100)).unwrap();
        assert!(matches!(write, Attempt::Committed(..)), "{write:?}");
    };
    let failed = db.transact(|tx| {
        tx.hold(Partitions::ALL)?;
        set(tx, 1, 0)?;
        tx.delete(STOCK, (2i64, 1i64))?;
        Err::<(), _>(Error::user("no"))
    });
    assert!(failed.is_err());
    is_undone();
    let fails = |tx: &Transaction<'_>| -> Result<(), Error> {
        set(tx, 1, 0)?;
        panic!("told to");
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| db.transact(fails)));
    assert!(panicked.is_err());
    is_undone();
}

/// An attempt waits for no turn, and leaves nothing behind for the session's next transaction.
#[test]
fn attempts_do_not_wait() {
    let Shops { db, dir: _dir } = unlogged();
    let mut session = db.session().unwrap();
    let all = |tx: &Transaction<'_>| Ok::<_, Abort>(tx.scan(STOCK).rows()?.len());
    let holding = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        set(tx, 1, 7)?;
        pause();
        Ok(())
    };
    beside(&db, holding, || {
        assert!(matches!(session.attempt(|tx| set(tx, 1, 8)).unwrap(), Attempt::Conflict));
        let both = session.attempt(|tx| set(tx, 2, 8).and_then(|()| set(tx, 1, 8)));
        assert!(matches!(both.unwrap(), Attempt::Conflict));
        assert!(matches!(session.attempt(all).unwrap(), Attempt::Conflict));
        let free = session.attempt(|tx| set(tx, 3, 8)).unwrap();
        assert!(matches!(free, Attempt::Committed(..)), "{free:?}");
    });
    // Attempts read no snapshots: attempts enter all partitions, where the partitions are free.
    assert!(matches!(session.attempt(all).unwrap(), Attempt::Committed(n, _) if n == 8));
}

/// A transaction that states all partitions, and then only reads, reads a snapshot.
#[test]
fn a_reader_that_states_all_partitions_waits_for_none() {
    let Shops { db, dir: _dir } = unlogged();
    let slow = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        set(tx, 1, 7)?;
        pause();
        Ok(())
    };
    beside(&db, slow, || {
        let counted = db.transact(|tx| {
            tx.hold(Partitions::ALL)?;
            Ok(tx.scan(STOCK).rows()?.len())
        });
        assert_eq!(counted.unwrap(), SHOPS as usize);
    });
}

/// Replicated rows are read in any partition. A transaction that then waits for another partition
/// does not keep the partition of that read.
#[test]
fn replicated_rows_cost_no_second_partition() {
    let shops = open(builder(Protocol::None, SHOPS as usize));
    let db = &shops.db;
    let slow = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        set(tx, 1, 7)?;
        pause();
        Ok(())
    };
    std::thread::scope(|scope| {
        let mut waiting = None;
        beside(db, slow, || {
            let read = move || {
                db.transact(|tx| {
                    tx.get(PRICES, 1i64)?;
                    Ok(count(tx, 1)?)
                })
            };
            waiting = Some(scope.spawn(read));
            std::thread::sleep(Duration::from_millis(50));
            let mut session = db.session().unwrap();
            for shop in (0..SHOPS).filter(|shop| *shop != 1) {
                let end = session.attempt(|tx| set(tx, shop, 9)).unwrap();
                assert!(matches!(end, Attempt::Committed(..)), "{shop}: {end:?}");
            }
        });
        assert_eq!(waiting.unwrap().join().unwrap().unwrap(), 7);
    });
}

/// Two databases whose transactions are nested both ways: neither waits for the other for ever.
#[test]
fn databases_nested_both_ways_do_not_stop() {
    let limited = || {
        let deadline = Some(Duration::from_millis(200));
        open(builder(Protocol::None, 8).retries(|retries| retries.deadline = deadline))
    };
    let (one, other) = (limited(), limited());
    let both_begun = Barrier::new(2);
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for (outer, inner) in [(&one.db, &other.db), (&other.db, &one.db)] {
            let (done, both_begun) = (done.clone(), &both_begun);
            scope.spawn(move || {
                let inside = |tx: &Transaction<'_>| {
                    set(tx, 1, 3)?;
                    both_begun.wait();
                    Ok(inner.transact(|tx| Ok(set(tx, 1, 4)?)))
                };
                done.send(outer.transact(inside).unwrap()).unwrap();
            });
        }
        for _ in 0..2 {
            let ended = results.recv_timeout(Duration::from_secs(60));
            // A thread that waits for ever would keep this scope open.
            let Ok(ended) = ended else { std::process::abort() };
            assert!(matches!(ended, Ok(()) | Err(Error::Starved { .. })), "{ended:?}");
        }
    });
}

/// Sessions ask for the partitions of a procedure where transactions take turns. Replay does not.
#[test]
fn stated_partitions_are_asked_for_only_where_they_matter() {
    let dir = crate::common::directory();
    let asked = Arc::new(AtomicU64::new(0));
    let open = |concurrency| {
        let mut builder = builder(Protocol::Taurus, 8).record(RecordKind::Command);
        let fill = builder.procedure("fill", 1, |tx: &Transaction<'_>, (shop, n): (i64, i64)| {
            tx.upsert(STOCK, &[shop.into(), 1i64.into(), n.into()]).map(drop)
        });
        let asked = asked.clone();
        builder.on(fill, move |(shop,): (i64,)| {
            asked.fetch_add(1, Ordering::Relaxed);
            Partitions::of(shop)
        });
        (builder.concurrency(concurrency).open(dir.path()).unwrap(), fill)
    };
    for (concurrency, times) in [(PARTITIONED, 5), (Concurrency::Silo, 5)] {
        let (db, fill) = open(concurrency);
        let mut session = db.session().unwrap();
        for shop in 0..5i64 {
            session.call(fill, &(shop, 7i64)).unwrap().0.unwrap();
        }
        drop(session);
        db.close().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), times, "{concurrency:?}");
    }
    drop(open(PARTITIONED));
    assert_eq!(asked.load(Ordering::Relaxed), 5);
}

#[test]
fn wrong_declarations_and_protocols_are_refused() {
    let refused = |builder: hyades::Builder| builder.open("never made").err().unwrap().to_string();
    let partitions = refused(builder(Protocol::None, 6));
    assert!(partitions.contains("power of two"), "{partitions}");
    assert!(refused(builder(Protocol::None, 128)).contains("partitions"));
    let protocol = refused(builder(POPLAR, 8));
    assert!(protocol.contains("partitioned") && protocol.contains("taurus"), "{protocol}");
    let mut wrong = builder(Protocol::None, 8);
    wrong.table(Schema::new("wrong").column("n", Type::I64).partition_by("m"));
    assert!(refused(wrong).contains("no column"));
    let mut wrong = builder(Protocol::None, 8);
    let moves = Schema::new("moves").column("n", Type::I64).column("shop", Type::I64);
    wrong.table(moves.partition_by("shop").primary_key(&["n"]));
    assert!(refused(wrong).contains("primary key"));
}
