//! Where the budget of memory is exhausted, the youngest transaction is aborted, and older
//! transactions go on.
#![allow(missing_docs)]

use hyades_deuteronomy::{Abort, Database, Error, LogOptions, MemoryData, Options, Session};
use hyades_platform::device::MemoryDevice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const BUDGET: usize = 64 << 10;
/// Longer than any working operation.
const LONG: Duration = Duration::from_secs(60);

fn open(dir: &Path, patience: Duration) -> Database {
    open_with(dir, |options| options.room_patience = patience)
}

fn open_with(dir: &Path, change: impl FnOnce(&mut Options)) -> Database {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = 1 << 18;
    log.segment_bytes = 1 << 20;
    let mut options = Options::new(log);
    options.memory_bytes = BUDGET;
    change(&mut options);
    Database::open(options, Arc::new(MemoryData::new())).unwrap()
}

fn is_shed<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Aborted(Abort::Shed)))
}

/// Runs a transaction of a quarter of the budget, and some time.
fn run_young(session: &mut Session, thread: u8, seed: u64) -> Result<(), Error> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tx = session.begin()?;
    for key in 0..8u8 {
        tx.put(&[1 + thread, key, rng.u8(0..16)], &[7; BUDGET / 32])?;
        std::thread::sleep(Duration::from_micros(rng.u64(0..300)));
    }
    drop(tx.commit()?);
    Ok(())
}

#[test]
fn an_old_large_transaction_among_many_young_ones_always_commits() {
    const YOUNG: usize = 8;
    const ROUNDS: u64 = 30;
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), LONG);
    let (begun, ended, is_over) =
        (Barrier::new(YOUNG + 1), Barrier::new(YOUNG + 1), AtomicBool::new(false));
    // All threads go on to the last barrier, whatever fails.
    let failed = Mutex::new(Vec::new());
    let mut old = database.session().unwrap();
    let value = |round: u64, key: u8| vec![round as u8 ^ key; BUDGET / 11];
    std::thread::scope(|scope| {
        for thread in 0..YOUNG {
            let (database, begun, ended, is_over) = (&database, &begun, &ended, &is_over);
            let failed = &failed;
            scope.spawn(move || {
                let mut session = database.session().unwrap();
                for round in 0..ROUNDS {
                    begun.wait();
                    for seed in 0.. {
                        // Aborts are not of interest here.
                        let seed = (round << 32) + (seed << 8) + thread as u64;
                        match run_young(&mut session, thread as u8, seed) {
                            Ok(()) | Err(Error::Aborted(_)) => {}
                            Err(error) => failed.lock().unwrap().push(error),
                        }
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    ended.wait();
                }
            });
        }
        for round in 0..ROUNDS {
            is_over.store(false, Ordering::Relaxed);
            let committed = {
                let mut tx = old.begin().unwrap();
                // The transaction writes each of its keys early: no version of a younger
                // transaction was evicted by then, with a floor above the transaction.
                let early = (0..8u8).try_for_each(|key| tx.put(&[0, round as u8, key], b""));
                begun.wait();
                let written = early.and_then(|()| {
                    (0..8u8).try_for_each(|key| {
                        std::thread::sleep(Duration::from_micros(500));
                        tx.put(&[0, round as u8, key], &value(round, key))
                    })
                });
                written.and_then(|()| tx.commit())
            };
            is_over.store(true, Ordering::Relaxed);
            ended.wait();
            if let Err(error) = committed.and_then(|ticket| ticket.wait()) {
                failed.lock().unwrap().push(error);
            }
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let shed = database.stats().shed;
    println!("{shed} were aborted");
    assert!(shed > 0, "the budget was not exhausted");
    let read = old.execute(|tx| {
        let read = (0..8u8).map(|key| tx.get(&[0, ROUNDS as u8 - 1, key]));
        read.collect::<Result<Vec<_>, Error>>()
    });
    for (key, read) in (0..).zip(read.unwrap()) {
        assert_eq!(read.as_deref(), Some(&value(ROUNDS - 1, key)[..]));
    }
}

/// An old transaction and two younger transactions, each with a third of the budget. The old
/// transaction needs more: the youngest has to abort, and the middle transaction goes on.
#[test]
fn the_youngest_is_aborted_at_its_next_write_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), LONG);
    let mut sessions = [(); 3].map(|()| database.session().unwrap());
    let [old, middle, young] = &mut sessions;
    let [mut old, mut middle, mut young] = [old, middle, young].map(|s| s.begin().unwrap());
    let value = [7; BUDGET / 32 - 130];
    for key in 0..10u8 {
        old.put(&[0, key], &value).unwrap();
        middle.put(&[1, key], &value).unwrap();
        young.put(&[2, key], &value).unwrap();
    }
    let (has_room, room) = channel();
    std::thread::scope(|scope| {
        let writes = scope.spawn(move || {
            let put = (10..16u8).try_for_each(|key| old.put(&[0, key], &value));
            has_room.send(put.is_ok()).unwrap();
            put.and_then(|()| old.commit()?.wait())
        });
        let wait = Duration::from_millis(100);
        assert!(room.recv_timeout(wait).is_err(), "there is room although none has left");
        let until = Instant::now() + LONG;
        let shed = loop {
            // A key written before: the write needs no room.
            let put = young.put(&[2, 0], b"");
            if put.is_err() || Instant::now() > until {
                break put;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(is_shed(&shed), "{shed:?}");
        drop(young);
        assert_eq!(room.recv_timeout(LONG), Ok(true));
        writes.join().unwrap().unwrap();
    });
    assert_eq!(database.stats().shed, 1);
    middle.put(&[1, 0], b"").unwrap();
    middle.commit().unwrap().wait().unwrap();
}

#[test]
fn the_wait_for_a_transaction_that_does_nothing_is_bounded() {
    for patience in [Duration::ZERO, Duration::from_millis(50)] {
        let dir = tempfile::tempdir().unwrap();
        let database = open(dir.path(), patience);
        let mut sessions = [(); 2].map(|()| database.session().unwrap());
        let [old, young] = &mut sessions;
        let [mut old, mut young] = [old, young].map(|session| session.begin().unwrap());
        old.put(&[0], b"").unwrap();
        for key in 0..14u8 {
            young.put(&[1, key], &[7; BUDGET / 16]).unwrap();
        }
        let began = Instant::now();
        let put = (1..9u8).try_for_each(|key| old.put(&[0, key], &[7; BUDGET / 16]));
        assert!(is_shed(&put), "{put:?}");
        let waited = began.elapsed();
        assert!((patience..LONG).contains(&waited), "{waited:?}");
        // The younger transaction was told, and commits all the same if without further writes.
        young.commit().unwrap().wait().unwrap();
    }
}

/// Two transactions exhaust the budget. A transaction begun beside the two is on the same thread,
/// as in tasks: the beginning must not wait for a transaction ended only by the same thread.
#[test]
fn begin_answers_at_once_and_what_is_run_by_attempts_after_these() {
    // Enough attempts to take more than LONG if all were in vain.
    for (attempts, begins_one) in [(100_000, true), (3, false)] {
        let dir = tempfile::tempdir().unwrap();
        let database = open_with(dir.path(), |options| options.attempts = attempts);
        let mut sessions = [(); 3].map(|()| database.session().unwrap());
        let [one, two, three] = &mut sessions;
        let [mut one, mut two] = [one, two].map(|session| session.begin().unwrap());
        for key in 0..8u8 {
            one.put(&[0, key], &[7; BUDGET / 16]).unwrap();
        }
        for key in 0.. {
            if database.stats().version_bytes > BUDGET {
                break;
            }
            two.put(&[1, key], &[7; BUDGET / 16]).unwrap();
        }
        let began = Instant::now();
        if begins_one {
            assert!(is_shed(&three.begin().map(drop)));
        } else {
            assert!(is_shed(&three.snapshot().map(drop)));
            assert!(is_shed(&three.execute(|tx| tx.get(b"a"))));
        }
        assert!(began.elapsed() < LONG, "it was tried again");
        assert_eq!(database.stats().shed, 0, "none has begun");
        one.commit().unwrap().wait().unwrap();
        three.begin().unwrap().get(&[0, 7]).unwrap().unwrap();
        two.commit().unwrap().wait().unwrap();
        let snapshot = three.snapshot().unwrap().get(&[0, 0]).unwrap();
        assert_eq!(snapshot.as_deref(), Some(&[7; BUDGET / 16][..]));
    }
}
