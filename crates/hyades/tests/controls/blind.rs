//! Blind writes (`put`) among reads, updates and deletions, under power cuts and checkpoints.
//! Promise: transactions are atomic, no acknowledged transaction is lost, and no surviving
//! transaction has read from a lost transaction.

use crate::common::{DATA_ONLY, directory, power_cut};
use hyades::{
    Abort, Column, Concurrency, Database, Protocol, Schema, Session, Table, Transaction, Type,
};
use hyades_platform::device::Device;
use hyades_schemes::{POPLAR, TAURUS_2016, all_controls};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ROWS: Table = Table::nth(0);
/// The row's last writer: its transaction number.
const N: Column<i64> = Column::at(1);
/// The pair read before the write, and the number found there; -1 for none.
const SOURCE: Column<i64> = Column::at(2);
const COPIED: Column<i64> = Column::at(3);

const THREADS: i64 = 2;
const PAIRS: i64 = 4;
/// A pair that all threads write.
const SHARED: i64 = THREADS * PAIRS;

/// The effect of a transaction on a pair: whether the pair was deleted, and whether the transaction
/// was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    deleted: bool,
    answered: bool,
}

/// For each pair, the effects of transactions on the pair, by transaction number.
type Done = BTreeMap<i64, BTreeMap<i64, Did>>;

fn builder(
    (protocol, streams): (Protocol, usize),
    concurrency: Concurrency,
    hash: bool,
    device: Option<Arc<dyn Device>>,
) -> hyades::Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .streams(streams)
        .recovery_threads(2)
        .log_settings(|log| {
            log.device = device;
            log.segment_bytes = 1 << 16;
            log.buffer_bytes = 1 << 14;
            log.epoch = Some(Duration::from_millis(2));
        });
    let schema = ["id", "n", "source", "copied"]
        .iter()
        .fold(Schema::new("rows"), |schema, name| schema.column(name, Type::I64))
        .primary_key(&["id"]);
    builder.table(if hash { schema.hash() } else { schema });
    builder
}

fn put(tx: &Transaction<'_>, pair: i64, n: i64, from: (i64, i64)) -> Result<(), Abort> {
    for id in [2 * pair, 2 * pair + 1] {
        tx.overwrite(ROWS, &[id.into(), n.into(), from.0.into(), from.1.into()])?;
    }
    Ok(())
}

/// Reads number, source and copy of a pair. Returns a marker value if the two rows differ.
fn look(tx: &Transaction<'_>, pair: i64) -> Result<Option<(i64, i64, i64)>, Abort> {
    let row = |id| {
        let row = tx.get(ROWS, id)?;
        Ok::<_, Abort>(row.map(|row| (row.get(N), row.get(SOURCE), row.get(COPIED))))
    };
    let (one, other) = (row(2 * pair)?, row(2 * pair + 1)?);
    Ok(if one == other { one } else { Some((-2, -2, -2)) })
}

/// Runs one thread's transactions until the power cut. Returns (pair, number, effect).
fn work(db: &Database, thread: i64, seed: u64, mut n: i64) -> Vec<(i64, i64, Did)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut session: Session = db.session().unwrap();
    let mut queue = db.commit_queue();
    let (mut done, mut answered) = (Vec::new(), Vec::new());
    loop {
        n += 1;
        let pair = thread * PAIRS + rng.i64(0..PAIRS);
        let other = rng.i64(0..THREADS * PAIRS);
        let kind = rng.u32(0..10);
        let result = session.try_submit(|tx| match kind {
            0..=4 => put(tx, pair, n, (-1, -1)),
            5 => {
                put(tx, pair, n, (-1, -1)).and_then(|()| put(tx, SHARED, n << 8 | thread, (-1, -1)))
            }
            6 | 7 => {
                let copied = look(tx, other)?.map_or(-1, |seen| seen.0);
                put(tx, pair, n, if copied < 0 { (-1, -1) } else { (other, copied) })
            }
            8 => {
                let set = [N.set(n)];
                for id in [2 * pair, 2 * pair + 1] {
                    if !tx.update(ROWS, id, &set)? {
                        tx.overwrite(ROWS, &[id.into(), n.into(), (-1i64).into(), (-1i64).into()])?;
                    }
                }
                Ok(())
            }
            _ => tx.delete(ROWS, 2 * pair).and(tx.delete(ROWS, 2 * pair + 1)).map(drop),
        });
        let Ok((result, ticket)) = result else { break };
        result.unwrap();
        done.push((pair, n, Did { deleted: kind == 9, answered: false }));
        queue.push(ticket, done.len() - 1);
        if queue.drain(|at| answered.push(at)).is_err() {
            break;
        }
    }
    let _ = queue.drain(|at| answered.push(at));
    answered.into_iter().for_each(|at| done[at].2.answered = true);
    done
}

fn check(db: &Database, done: &Done, what: &str) {
    let all = |tx: &Transaction<'_>| {
        (0..=SHARED).map(|pair| look(tx, pair)).collect::<Result<Vec<_>, Abort>>()
    };
    let pairs = db.try_transact(all).unwrap().unwrap();
    let reaches = |pair: i64, from: i64| {
        // Whether the pair's current state may have been left by this transaction or a later one.
        match pairs[pair as usize] {
            Some((n, ..)) => n >= from,
            None => done.get(&pair).is_some_and(|did| did.range(from..).any(|(_, d)| d.deleted)),
        }
    };
    for (pair, seen) in (0..).zip(&pairs) {
        assert!(*seen != Some((-2, -2, -2)), "{what}: a transaction is there in part");
        let answered = done.get(&pair).and_then(|did| did.iter().rfind(|(_, did)| did.answered));
        if let Some((&n, _)) = answered {
            assert!(reaches(pair, n), "{what}: pair {pair} is {seen:?}, {n} was answered");
        }
        if let Some((n, source, copied)) = *seen
            && source >= 0
        {
            assert!(reaches(source, copied), "{what}: {n} of {pair} read {copied} of {source}");
        }
    }
}

fn lives(dir: &Path, form: (Protocol, usize), concurrency: Concurrency, seed: u64) -> usize {
    let mut done = Done::new();
    let mut answered = 0;
    for life in 0..4 {
        let device = power_cut(seed * 10 + life);
        let db = builder(form, concurrency, seed.is_multiple_of(2), Some(Arc::new(device.clone())))
            .open(dir)
            .unwrap();
        check(&db, &done, &format!("{form:?} {concurrency:?} seed {seed} life {life}"));
        std::thread::scope(|scope| {
            let db = &db;
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let seed = seed * 1000 + life * 10 + thread as u64;
                    scope.spawn(move || work(db, thread, seed, life as i64 * 1_000_000))
                })
                .collect();
            if life % 2 == 0 {
                scope.spawn(|| while db.checkpoint().is_ok() {});
            }
            std::thread::sleep(Duration::from_millis(20 + seed * 7 % 30));
            device.cut();
            for thread in threads {
                for (pair, n, did) in thread.join().unwrap() {
                    done.entry(pair).or_default().insert(n, did);
                    answered += usize::from(did.answered);
                }
            }
        });
    }
    let db = builder(form, concurrency, seed.is_multiple_of(2), None).open(dir).unwrap();
    check(&db, &done, &format!("{form:?} {concurrency:?} seed {seed} at the end"));
    let digest = db.digest();
    db.close().unwrap();
    let again = builder(form, concurrency, seed.is_multiple_of(2), None).open(dir).unwrap();
    assert_eq!(again.digest(), digest, "the dead stay dead");
    answered
}

/// With one stream and with several, so that blind records are found beyond the common mark.
#[test]
fn what_was_put_blindly_is_there_as_a_whole_wherever_the_power_fails() {
    let forms = [(Protocol::Serial, 1), (Protocol::Taurus, 3), (TAURUS_2016, 1), (TAURUS_2016, 3)];
    let numbered = DATA_ONLY.map(|protocol| (protocol, 3));
    let more = [(POPLAR, 1), (POPLAR, 2), (POPLAR, 8)];
    let mut answered = 0;
    for (seed, form) in (0..).zip(forms.into_iter().chain(numbered).chain(more)) {
        for concurrency in all_controls().filter(|control| control.runs_under(form.0)) {
            let dir = directory();
            answered += lives(dir.path(), form, concurrency, seed);
        }
    }
    assert!(answered > 100, "the power was cut before any acknowledgement");
}
