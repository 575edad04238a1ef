//! Interleavings under wait-die: each function returns whether a rule holds. A transaction is older
//! than another if it has begun before the other.

pub use super::beside::*;
use hyades::{Abort, Builder, Database, Protocol, Table, Transaction};
use hyades_schemes::WAIT_DIE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The builder of a database under wait-die.
pub fn waiting(protocol: Protocol) -> Builder {
    builder(protocol, WAIT_DIE)
}

/// The time in which other threads take an expected step.
const LONG: Duration = Duration::from_secs(10);
/// The time in which other threads would mostly take a step that breaks a rule.
const SHORT: Duration = Duration::from_millis(300);

/// Waits until something is so; false if that takes longer than `limit`.
pub fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// How far a transaction of another thread is.
#[derive(Default)]
pub struct Seen {
    attempts: AtomicU64,
    is_over: AtomicBool,
}

impl Seen {
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::SeqCst)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Runs a transaction, and notes its attempts and its end.
    pub fn run(&self, db: &Database, body: impl Fn(&Transaction<'_>) -> Result<(), Abort>) {
        let mut session = db.session().unwrap();
        let counted = |tx: &Transaction<'_>| {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            body(tx)
        };
        session.try_submit(counted).unwrap().0.unwrap();
        self.is_over.store(true, Ordering::SeqCst);
    }
}

type Body<'b> = &'b (dyn Fn(&Transaction<'_>) -> Result<(), Abort> + Sync);

/// Runs `holds` in an older transaction, and `wants` in a younger one while the older is in
/// progress. Whether the younger runs again and again.
fn dies_for(db: &Database, holds: Body<'_>, wants: Body<'_>) -> bool {
    let (older, younger, held) = (Seen::default(), Seen::default(), AtomicBool::new(false));
    let died = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            older.run(db, |tx| {
                holds(tx)?;
                held.store(true, Ordering::SeqCst);
                until(LONG / 10, || younger.attempts() > 2 || younger.is_over());
                died.store(younger.attempts() > 2, Ordering::SeqCst);
                Ok(())
            });
        });
        scope.spawn(|| {
            assert!(until(LONG, || held.load(Ordering::SeqCst)));
            younger.run(db, wants);
        });
    });
    died.into_inner() && older.attempts() == 1
}

/// Runs `holds` in a younger transaction, and `wants` in an older one. Whether the older waits for
/// the younger to end, and neither runs again.
fn waits_for(db: &Database, holds: Body<'_>, wants: Body<'_>) -> bool {
    let (older, younger, held) = (Seen::default(), Seen::default(), AtomicBool::new(false));
    let ended_first = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            older.run(db, |tx| {
                assert!(until(LONG, || held.load(Ordering::SeqCst)));
                wants(tx)?;
                Ok(())
            });
        });
        scope.spawn(|| {
            assert!(until(LONG, || older.attempts() == 1));
            younger.run(db, |tx| {
                holds(tx)?;
                held.store(true, Ordering::SeqCst);
                // Neither ends nor dies.
                let ends = until(SHORT / 3, || older.attempts() > 1 || older.is_over());
                ended_first.store(ends, Ordering::SeqCst);
                Ok(())
            });
        });
    });
    !ended_first.into_inner() && (older.attempts(), younger.attempts()) == (1, 1)
}

fn write(id: i64) -> impl Fn(&Transaction<'_>) -> Result<(), Abort> + Sync {
    move |tx| tx.update(ITEMS, id, &[COUNT.set(count(tx, id)? + 1)]).map(drop)
}

fn read(tx: &Transaction<'_>) -> Result<(), Abort> {
    count(tx, A).map(drop)
}

pub fn the_younger_dies_for_the_older(db: &Database) -> bool {
    dies_for(db, &write(A), &write(A))
        && dies_for(db, &write(A), &read)
        && dies_for(db, &read, &write(A))
}

pub fn the_older_waits_for_the_younger(db: &Database) -> bool {
    waits_for(db, &write(A), &write(A))
        && waits_for(db, &write(A), &read)
        && waits_for(db, &read, &write(A))
}

/// The same, if the older transaction has read the row as well.
pub fn an_upgrade_waits_for_younger_readers(db: &Database) -> bool {
    let (older, younger) = (Seen::default(), Seen::default());
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            older.run(db, |tx| {
                let seen = count(tx, A)?;
                both.wait();
                tx.update(ITEMS, A, &[COUNT.set(seen + 1)]).map(drop)
            });
        });
        scope.spawn(|| {
            assert!(until(LONG, || older.attempts() == 1));
            younger.run(db, |tx| {
                read(tx)?;
                both.wait();
                until(SHORT / 3, || older.is_over());
                Ok(())
            });
        });
    });
    (older.attempts(), younger.attempts()) == (1, 1)
}

/// A transaction that has died is older than transactions that began before its next attempt.
pub fn a_transaction_keeps_its_age(db: &Database) -> bool {
    let [oldest, middle, youngest] = [(); 3].map(|()| Seen::default());
    let (first_held, second_held) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            oldest.run(db, |tx| {
                write(A)(tx)?;
                first_held.store(true, Ordering::SeqCst);
                until(LONG, || second_held.load(Ordering::SeqCst));
                Ok(())
            });
        });
        scope.spawn(|| {
            assert!(until(LONG, || first_held.load(Ordering::SeqCst)));
            middle.run(db, |tx| {
                if middle.attempts() == 1 {
                    let died = write(A)(tx);
                    assert!(until(LONG, || second_held.load(Ordering::SeqCst)));
                    return died;
                }
                write(B)(tx)
            });
        });
        scope.spawn(|| {
            assert!(until(LONG, || middle.attempts() == 1));
            youngest.run(db, |tx| {
                write(B)(tx)?;
                second_held.store(true, Ordering::SeqCst);
                until(LONG, || middle.attempts() >= 2);
                until(SHORT / 3, || middle.attempts() > 2);
                Ok(())
            });
        });
    });
    (middle.attempts(), youngest.attempts()) == (2, 1)
}

/// A key of no row.
const MISSED: i64 = 1000;
const GROUP_OF_NONE: i64 = 500;

fn insert(table: Table, id: i64) -> impl Fn(&Transaction<'_>) -> Result<(), Abort> + Sync {
    move |tx| tx.insert(table, &[id.into(), 0i64.into(), 0i64.into()]).map(drop)
}

fn miss(table: Table) -> impl Fn(&Transaction<'_>) -> Result<(), Abort> + Sync {
    move |tx| {
        assert!(tx.get(table, MISSED)?.is_none());
        Ok(())
    }
}

fn miss_in_range(tx: &Transaction<'_>) -> Result<(), Abort> {
    assert!(tx.scan(ITEMS).from(&[(MISSED - 10).into()]).rows()?.is_empty());
    Ok(())
}

fn miss_in_index(tx: &Transaction<'_>) -> Result<(), Abort> {
    let found = tx.scan_index(ITEMS, BY_GROUP).prefix(&[GROUP_OF_NONE.into()]).rows()?;
    assert!(found.is_empty());
    Ok(())
}

fn join_group(tx: &Transaction<'_>) -> Result<(), Abort> {
    tx.update(ITEMS, A, &[GROUP.set(GROUP_OF_NONE)]).map(drop)
}

/// A key that a transaction has missed is not inserted before the transaction ends.
pub fn a_missed_key_stays_missed(db: &Database) -> bool {
    dies_for(db, &miss(ITEMS), &insert(ITEMS, MISSED))
}

pub fn a_missed_key_of_a_hash_table_stays_missed(db: &Database) -> bool {
    dies_for(db, &miss(HASHED), &insert(HASHED, MISSED))
}

pub fn a_scanned_range_stays_as_it_is(db: &Database) -> bool {
    dies_for(db, &miss_in_range, &insert(ITEMS, MISSED))
}

pub fn a_scanned_part_of_an_index_stays_as_it_is(db: &Database) -> bool {
    dies_for(db, &miss_in_index, &join_group)
}

/// An older insertion waits for a younger transaction that has seen the gap.
pub fn an_insertion_waits_for_younger_readers(db: &Database) -> bool {
    waits_for(db, &miss(HASHED), &insert(HASHED, MISSED))
        && waits_for(db, &miss_in_range, &insert(ITEMS, MISSED))
}

/// The other way round the row that was inserted is what the reader waits for, or dies for.
pub fn an_inserted_row_is_locked(db: &Database) -> bool {
    let look = |tx: &Transaction<'_>| tx.get(ITEMS, MISSED + 1).map(drop);
    let scan = |tx: &Transaction<'_>| tx.scan(ITEMS).from(&[MISSED.into()]).rows().map(drop);
    dies_for(db, &insert(ITEMS, MISSED + 1), &look)
        && waits_for(db, &insert(ITEMS, MISSED + 2), &scan)
}

/// A transaction that inserts into a range that it has scanned holds all parts of the range.
pub fn what_was_split_off_stays_locked() -> bool {
    // From the ends to the middle: leaves are split in the middle, too.
    let scan_and_insert = |tx: &Transaction<'_>| {
        miss_in_range(tx)?;
        let savepoint = tx.savepoint();
        for at in 0..50 {
            insert(ITEMS, MISSED + 2 * at)(tx)?;
            insert(ITEMS, MISSED + 198 - 2 * at)(tx)?;
        }
        tx.rollback_to(savepoint)
    };
    let keys = [MISSED - 1, MISSED + 51, MISSED + 99, MISSED + 151, MISSED + 201];
    keys.into_iter().all(|key| {
        let Opened { db, dir: _dir } = open_filled(waiting(Protocol::None));
        dies_for(&db, &scan_and_insert, &insert(ITEMS, key))
    })
}

/// A gap stays locked although all rows around it leave the index meanwhile.
pub fn a_locked_gap_is_not_merged() -> bool {
    let epoch = Duration::from_millis(1);
    let builder = waiting(Protocol::Taurus).log_settings(|log| log.epoch = Some(epoch));
    let Opened { db, dir: _dir } = open_filled(builder);
    let rows =
        |tx: &Transaction<'_>| (2000..3000).step_by(2).try_for_each(|id| insert(ITEMS, id)(tx));
    db.transact(|tx| Ok(rows(tx)?)).unwrap();
    let miss_and_clear = |tx: &Transaction<'_>| {
        assert!(tx.get(ITEMS, 2501i64)?.is_none());
        let clear = || {
            let mut session = db.session().unwrap();
            let delete = |tx: &Transaction<'_>| {
                (2400..2600i64).try_for_each(|id| tx.delete(ITEMS, id).map(drop))
            };
            session.try_submit(delete).unwrap().0.unwrap();
            until(LONG, || {
                session.try_submit(read).unwrap().0.unwrap();
                db.stats().garbage == 0
            })
        };
        assert!(std::thread::scope(|scope| scope.spawn(clear).join().unwrap()), "all is swept");
        Ok(())
    };
    dies_for(&db, &miss_and_clear, &insert(ITEMS, 2501))
}

/// All threads end that move counts between a few rows, in any order.
pub fn transfers_end(db: &Database, threads: u64, each: u64) {
    std::thread::scope(|scope| {
        for seed in 0..threads {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut session = db.session().unwrap();
                for _ in 0..each {
                    let rows = [(); 3].map(|()| rng.i64(0..4));
                    let transfer = |tx: &Transaction<'_>| {
                        for (at, id) in rows.into_iter().enumerate() {
                            let by = [2, -1, -1][at];
                            tx.update(ITEMS, id, &[COUNT.set(count(tx, id)? + by)])?;
                        }
                        Ok::<_, Abort>(())
                    };
                    session.try_submit(transfer).unwrap().0.unwrap();
                }
            });
        }
    });
    let sum =
        db.transact(|tx| Ok((0..4).map(|id| count(tx, id)).sum::<Result<i64, _>>()?)).unwrap();
    assert_eq!(sum, 0, "no update is lost");
}

/// The attempts at a transaction that writes all rows beside threads that write one row each, all
/// the time.
pub fn attempts_beside_short_writers(db: &Database) -> u64 {
    let (long, over) = (Seen::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for id in 0..3 {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    Seen::default().run(db, write(id));
                }
            });
        }
        long.run(db, |tx| {
            for id in 0..Item::ALL as i64 {
                write(id)(tx)?;
                std::thread::yield_now();
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
    });
    long.attempts()
}
