//! Sums over the rows of a prefix. Promises: they are the sums of a scan in the same transaction,
//! under every concurrency control; transactions that read and change sums are serializable; what
//! follows from a sum is not recovered without the writers of the counts; memory is bounded.
#![allow(missing_docs)]

mod common;
use common::by_hand::BOTH;
use common::sums::{
    self, COUNT, ELEMENTS, NOTES, PARTS, ROW, ROWS, SMALL, builder, count, fill, note, scanned, set,
};
use common::{Combination, directory, power_cut};
use hyades::{
    Abort, Concurrency, Database, Protocol, RecordKind, Schema, Table, Transaction, Type,
};
use hyades_schemes::{TAURUS_2016, all_controls};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(400);

/// All rows: part, row, count.
type Model = BTreeMap<(u64, u32), u32>;

/// Changes some rows, in the transaction and in the model.
fn change(tx: &Transaction<'_>, rng: &mut fastrand::Rng, model: &mut Model) -> Result<(), Abort> {
    for _ in 0..rng.u32(0..6) {
        let (key, n) = ((rng.u64(0..2), rng.u32(0..90)), rng.u32(0..4));
        match rng.u32(0..5) {
            0 => {
                tx.delete(PARTS, key)?;
                model.remove(&key);
            }
            1 => {
                if tx.update(PARTS, key, &[COUNT.set(n)])? {
                    model.insert(key, n);
                }
            }
            2 => {
                // The count stays.
                let text = hyades::Column::<[u8]>::at(3).set(&b"a longer text"[..]);
                tx.update(PARTS, key, &[text])?;
            }
            3 => {
                tx.overwrite(PARTS, &[key.0.into(), key.1.into(), n.into(), (&b""[..]).into()])?;
                model.insert(key, n);
            }
            _ => {
                set(tx, key.0, key.1, n)?;
                model.insert(key, n);
            }
        }
    }
    Ok(())
}

/// Compares sums, and rows of elements, with the model.
fn compare(tx: &Transaction<'_>, rng: &mut fastrand::Rng, model: &Model) -> Result<(), Abort> {
    for part in 0..3u64 {
        let rows: Vec<_> =
            model.range((part, 0)..(part + 1, 0)).map(|(key, n)| (key.1, *n)).collect();
        let total: u64 = rows.iter().map(|(_, n)| u64::from(*n)).sum();
        assert_eq!(tx.sum(PARTS, part, None)?, total);
        let row = rng.u32(0..95);
        let below = rows.iter().filter(|(at, _)| *at < row);
        let before: u64 = below.map(|(_, n)| u64::from(*n)).sum();
        assert_eq!(tx.sum(PARTS, part, Some(&[part.into(), row.into()]))?, before);
        // Keys of other parts are before all, or behind all.
        assert_eq!(tx.sum(PARTS, part, Some(&[(part + 1).into()]))?, total);
        assert_eq!(tx.sum(PARTS, part, Some(&[part.into()]))?, 0);
        let n = rng.u64(0..total + 2);
        let mut begin = 0;
        let expected = rows.iter().find_map(|(row, count)| {
            let (here, end) = (begin, begin + u64::from(*count));
            begin = end;
            (n < end).then_some((*row, here))
        });
        let found = tx.select(PARTS, part, n)?;
        assert_eq!(found.map(|(row, before)| (row.get(ROW), before)), expected);
    }
    Ok(())
}

#[test]
fn sums_are_those_of_a_model() {
    for concurrency in all_controls() {
        let dir = directory();
        let db = builder(Protocol::None, concurrency, 1).open(dir.path()).unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        let mut model = Model::new();
        for round in 0..300u32 {
            let before = model.clone();
            let rolls_back = rng.u32(0..4) == 0;
            let mut now = before.clone();
            let body = |tx: &Transaction<'_>| {
                now = before.clone();
                if rng.bool() {
                    compare(tx, &mut rng, &now)?;
                }
                change(tx, &mut rng, &mut now)?;
                compare(tx, &mut rng, &now)?;
                if rolls_back {
                    let (savepoint, kept) = (tx.savepoint(), now.clone());
                    change(tx, &mut rng, &mut now)?;
                    compare(tx, &mut rng, &now)?;
                    tx.rollback_to(savepoint)?;
                    now = kept;
                    compare(tx, &mut rng, &now)?;
                }
                if round % 10 == 3 { Err(Abort::User(1)) } else { Ok(()) }
            };
            match db.try_transact(body).unwrap() {
                Ok(()) => model = now,
                Err(abort) => assert_eq!(abort, Abort::User(1), "{concurrency:?}"),
            }
        }
        db.transact(|tx| Ok(compare(tx, &mut rng, &model)?)).unwrap();
        // A snapshot, after later changes.
        let snapshot = db.open_snapshot();
        db.transact(|tx| {
            Ok((0..90u32).try_for_each(|row| tx.delete(PARTS, (0u64, row)).map(drop))?)
        })
        .unwrap();
        snapshot.read(|tx| Ok(compare(tx, &mut rng, &model)?)).unwrap();
        model.retain(|(part, _), _| *part != 0);
        db.transact(|tx| Ok(compare(tx, &mut rng, &model)?)).unwrap();
    }
}

#[test]
fn threads_agree_about_sums() {
    for concurrency in BOTH {
        for bytes in [1 << 20, SMALL] {
            assert!(sums::sums_are_consistent(concurrency, bytes, SHORT), "{concurrency:?}");
        }
        assert!(sums::sums_are_no_write_skew(concurrency, SHORT), "{concurrency:?}");
        for drops in [false, true] {
            let is_conflict = sums::a_changed_sum_is_a_conflict(concurrency, drops);
            assert!(is_conflict, "{concurrency:?}, {drops}");
        }
    }
}

#[test]
fn stamps_of_sums_are_those_of_rows() {
    for concurrency in BOTH {
        assert!(sums::a_reader_waits_for_writers(concurrency));
        assert!(sums::a_reader_waits_for_writers_before_the_node(concurrency));
        assert!(sums::what_follows_is_lost_with_its_writer(concurrency));
        assert!(sums::a_writer_follows_commands(concurrency, false));
        assert!(sums::a_writer_follows_commands(concurrency, true));
    }
}

/// Each thread adds to a row of its own, and notes the sum now and then; then power fails.
fn add_and_note(db: &Database, device: &hyades_platform::device::PowerCutDevice) {
    let add = |thread: u32| {
        let Ok(mut session) = db.session() else { return };
        for n in 0.. {
            let body = |tx: &Transaction<'_>| match n % 4 {
                0 => note(tx, u64::from(thread), tx.sum(PARTS, 1u64, None)?),
                _ => set(tx, 1, thread, count(tx, 1, thread)? + 1),
            };
            if session.try_submit(body).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|thread| _ = scope.spawn(move || add(thread)));
        std::thread::sleep(Duration::from_millis(60));
        device.cut();
    });
}

#[test]
fn what_follows_from_a_sum_is_recovered_with_its_writers() {
    let pairs = [(Protocol::Taurus, 3), (Protocol::Serial, 1)];
    for (seed, (concurrency, (protocol, streams))) in
        BOTH.into_iter().flat_map(|control| pairs.map(|pair| (control, pair))).enumerate()
    {
        let (dir, device) = (directory(), power_cut(seed as u64));
        let cut = device.clone();
        let opening = builder(protocol, concurrency, streams);
        let opening = opening.log_settings(|log| log.device = Some(Arc::new(cut)));
        let db = opening.open(dir.path()).unwrap();
        db.transact(|tx| Ok(fill(tx, 1, 1)?)).unwrap();
        add_and_note(&db, &device);
        drop(db);
        let db = builder(protocol, concurrency, streams).open(dir.path()).unwrap();
        let (sum, notes) = db
            .transact(|tx| {
                assert_eq!(tx.sum(PARTS, 1u64, None)?, scanned(tx, 1)?);
                let notes = tx.scan(NOTES).rows()?.iter().map(|row| row.get(sums::VALUE)).max();
                Ok((tx.sum(PARTS, 1u64, None)?, notes.unwrap_or(0)))
            })
            .unwrap();
        assert!(sum >= u64::from(ROWS), "acknowledged rows are there");
        assert!(notes <= sum, "{protocol:?}, {concurrency:?}: {notes} of {sum}");
        assert!(notes > 0, "sums were noted");
    }
}

#[test]
fn elements_are_kept_by_recovery() {
    for (seed, concurrency) in BOTH.into_iter().enumerate() {
        let (dir, device) = (directory(), power_cut(seed as u64 + 10));
        let cut = device.clone();
        let opening = builder(Protocol::Taurus, concurrency, 3).sum_index_bytes(SMALL);
        let opening = opening.log_settings(|log| log.device = Some(Arc::new(cut)));
        let db = opening.open(dir.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                device.cut();
            });
            assert!(sums::elements_are_moved(&db, 3, SHORT));
        });
        drop(db);
        let db = builder(Protocol::Taurus, concurrency, 3).open(dir.path()).unwrap();
        let all = |tx: &Transaction<'_>| (0..4u64).map(|part| tx.sum(PARTS, part, None)).sum();
        assert_eq!(db.try_transact::<u64, Abort>(all).unwrap().unwrap(), ELEMENTS);
    }
}

#[test]
fn commands_that_read_sums_are_replayed_in_order() {
    let pairs = [(Protocol::Taurus, 3), (Protocol::Serial, 1), (TAURUS_2016, 3)];
    let each = BOTH.into_iter().flat_map(|c| [(c, 1 << 20), (c, SMALL)]);
    for ((concurrency, bytes), (protocol, streams)) in each.flat_map(|c| pairs.map(|p| (c, p))) {
        let dir = directory();
        let opening = || {
            let mut builder = builder(protocol, concurrency, streams)
                .record(RecordKind::Command)
                .recovery_threads(3)
                .sum_index_bytes(bytes);
            let work = builder.procedure("work", 1, |tx: &Transaction<'_>, seed: u64| {
                let mut rng = fastrand::Rng::with_seed(seed);
                let part = rng.u64(0..4);
                if rng.bool() {
                    return note(tx, rng.u64(0..8), tx.sum(PARTS, part, None)?);
                }
                let row = rng.u32(0..ROWS);
                set(tx, part, row, count(tx, part, row)?.wrapping_mul(31) % 1000 + 1)
            });
            (builder.open(dir.path()).unwrap(), work)
        };
        let (db, work) = opening();
        db.transact(|tx| Ok((0..4).try_for_each(|part| fill(tx, part, 1))?)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let db = &db;
                scope.spawn(move || {
                    let mut session = db.session().unwrap();
                    for n in 0..1500 {
                        let (outcome, _) = session.call(work, &(n << 8 | thread)).unwrap();
                        let () = outcome.unwrap();
                    }
                });
            }
        });
        let digest = db.digest();
        db.close().unwrap();
        for _ in 0..3 {
            let (db, _) = opening();
            assert_eq!(db.digest(), digest, "{protocol:?}, {concurrency:?}, {bytes}");
        }
    }
}

#[test]
fn a_sum_is_no_change_of_the_schema() {
    let dir = directory();
    let schema = || {
        let schema = Schema::new("parts").column("part", Type::U64).column("count", Type::U32);
        schema.primary_key(&["part"])
    };
    for round in 0..4 {
        let mut builder = Database::builder();
        let has_sum = round % 2 == 1;
        let parts = builder.table(if has_sum { schema().sum("count", 0) } else { schema() });
        let db = builder.open(dir.path()).unwrap();
        assert!(round == 0 || db.recovery().schema_changes.is_empty());
        assert_eq!(db.checkpoints().taken, 0);
        db.transact(|tx| {
            tx.upsert(parts, &[round.into(), 10u32.into()])?;
            let none: &[hyades::Value<'_>] = &[];
            let sum = tx.sum(parts, none, None);
            assert_eq!(sum, if has_sum { Ok(10 * (round + 1)) } else { Err(Abort::UnknownHandle) });
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn wrong_sums_are_refused() {
    let schema = || {
        let schema = Schema::new("t").column("a", Type::U64).column("b", Type::Bytes);
        schema.column("n", Type::U32).column("signed", Type::I64).nullable("null", Type::U32)
    };
    let wrong = [
        schema().primary_key(&["a", "b"]).sum("signed", 1),
        schema().primary_key(&["a", "b"]).sum("null", 1),
        schema().primary_key(&["a", "b"]).sum("a", 1),
        schema().primary_key(&["a", "b"]).sum("none", 1),
        schema().primary_key(&["a", "b"]).sum("n", 2),
        schema().primary_key(&["a"]).sum("n", 2),
        schema().primary_key(&["a", "b"]).hash().sum("n", 1),
        schema().sum("n", 0),
    ];
    for schema in wrong {
        let mut builder = Database::builder().protocol(Protocol::None);
        builder.table(schema);
        let dir = directory();
        common::refused(builder.open(dir.path()), "a wrong sum");
    }
    let mut builder = Database::builder().protocol(Protocol::None);
    let right: Table = builder.table(schema().primary_key(&["a", "b"]).sum("n", 1));
    let dir = directory();
    let db = builder.open(dir.path()).unwrap();
    let short: &[hyades::Value<'_>] = &[];
    let refused = db.try_transact(|tx| tx.sum(right, short, None)).unwrap();
    assert!(matches!(refused, Err(Abort::WrongType { .. })), "{refused:?}");
}

#[test]
fn memory_of_sums_is_bounded_and_freed() {
    let form = (Protocol::None, Concurrency::Silo);
    let dir = directory();
    let limit = 30_000;
    let db = builder(form.0, form.1, 1).sum_index_bytes(limit).open(dir.path()).unwrap();
    let bytes = || db.stats().sum_index_bytes as usize;
    for part in 0..50u64 {
        db.transact(|tx| Ok(fill(tx, part, 1)?)).unwrap();
        for _ in 0..2 {
            let sum = db.transact(|tx| Ok(tx.sum(PARTS, part, None)?)).unwrap();
            assert_eq!(sum, u64::from(ROWS));
        }
        // A candidate is above the limit for a moment.
        assert!(bytes() < limit + 4_000, "{}", bytes());
    }
    assert!(bytes() > limit / 2, "{}", bytes());
    // A part that grows.
    for row in 0..5_000u32 {
        db.transact(|tx| {
            set(tx, 49, row, 1)?;
            Ok(tx.sum(PARTS, 49u64, None).map(drop)?)
        })
        .unwrap();
        assert!(bytes() < 2 * limit, "{}", bytes());
    }
    for part in 0..50u64 {
        let delete = |tx: &Transaction<'_>| {
            let rows = tx.scan(PARTS).prefix(&[part.into()]).columns(sums::ROW.only()).rows()?;
            rows.iter().try_for_each(|row| tx.delete(PARTS, (part, row.get(ROW))).map(drop))
        };
        db.transact(|tx| Ok(delete(tx)?)).unwrap();
    }
    assert_eq!(bytes(), 0);
}

/// [`Combination`] names what all tests share.
#[test]
fn every_protocol_keeps_sums() {
    for Combination { protocol, concurrency, streams, .. } in common::combinations() {
        if !BOTH.contains(&concurrency) || streams > 3 {
            continue;
        }
        let dir = directory();
        let db = builder(protocol, concurrency, streams).open(dir.path()).unwrap();
        assert!(sums::elements_are_moved(&db, 2, SHORT / 20), "{protocol:?}, {concurrency:?}");
    }
}
