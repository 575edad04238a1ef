//! Interleavings of two transactions, one of which commits late, or would.

pub use super::beside::*;
use super::directory;
use hyades::{Abort, Builder, Database, Protocol, RecordKind, Transaction};
use hyades_schemes::TICTOC;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A database with rows, under TicToc.
pub fn open(protocol: Protocol) -> Opened {
    open_filled(tictoc(protocol))
}

/// The builder of a database under TicToc.
pub fn tictoc(protocol: Protocol) -> Builder {
    builder(protocol, TICTOC)
}

/// Has the row read together with one of a high timestamp: its version is known to be valid then.
pub fn keep_valid(db: &Database, id: i64) {
    let mut session = db.session().unwrap();
    let both = |tx: &Transaction<'_>| {
        tx.get(ITEMS, id)?;
        tx.get(ITEMS, Item::HIGH).map(drop)
    };
    session.try_submit(both).unwrap().0.unwrap();
}

/// C7: replayed as a command, a late procedure would read what was written meanwhile. Returns
/// whether it is recovered without being run.
pub fn a_late_procedure_is_data(declare: impl Fn() -> Builder) -> bool {
    let dir = directory();
    let (pause, calls) = (Pause::new(), Arc::new(AtomicU64::new(0)));
    let build = || {
        let (pause, calls) = (pause.clone(), calls.clone());
        let procedure = move |tx: &Transaction<'_>, ()| {
            calls.fetch_add(1, Ordering::Relaxed);
            copy(tx, &|| pause.pause()).map(drop)
        };
        let mut builder = declare().record(RecordKind::Command);
        builder.procedure("copy", 1, procedure);
        builder
    };
    let db = build().open(dir.path()).unwrap();
    fill(&db);
    keep_valid(&db, A);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| db.call::<_, ()>("copy", &()).unwrap());
        pause.meanwhile(|| set(&db, A, 7));
        late.join().unwrap();
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it committed at once");
    let digest = db.digest();
    db.close().unwrap();
    let again = build().open(dir.path());
    calls.load(Ordering::Relaxed) == 1 && again.is_ok_and(|db| db.digest() == digest)
}

/// C11, by the absence of an index entry: R reads a; W overwrites a; a snapshot holds W, and a row
/// in its group; D takes the row out of the group; R scans the group. Returns whether R is behind
/// W.
pub fn what_is_gone_is_gone_after_the_snapshot() -> bool {
    let Opened { db, dir: _dir } = open(Protocol::None);
    keep_valid(&db, A);
    let members = |tx: &Transaction<'_>| -> Result<usize, Abort> {
        Ok(tx.scan_index(ITEMS, BY_GROUP).prefix(&[C.into()]).rows()?.len())
    };
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        let seen = count(tx, A)?;
        pause();
        Ok((seen, members(tx)?))
    };
    let ((seen, found), _) = beside(&db, look, || {
        set(&db, A, 7);
        assert_eq!(db.snapshot(|tx| Ok((count(tx, A)?, members(tx)?))).unwrap(), (7, 1));
        let mut session = db.session().unwrap();
        let leave = |tx: &Transaction<'_>| tx.update(ITEMS, C, &[GROUP.set(50)]);
        session.try_submit(leave).unwrap().0.unwrap();
        // The stale entry is removed meanwhile.
        for _ in 0..1000 {
            session.try_submit(|tx| count(tx, B)).unwrap().0.unwrap();
        }
        assert_eq!(db.stats().garbage, 0);
    });
    assert_eq!(found, 0);
    seen == 7
}

/// C11, by a key that R tries to insert: R reads a; W overwrites a; a snapshot holds W, and c; D
/// deletes c, and the tombstone is removed; R inserts c and takes that back. Returns whether R is
/// behind W.
pub fn what_can_be_inserted_was_deleted_after_the_snapshot() -> bool {
    let Opened { db, dir: _dir } = open(Protocol::None);
    keep_valid(&db, A);
    let try_out = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        let seen = count(tx, A)?;
        pause();
        let savepoint = tx.savepoint();
        tx.insert(ITEMS, &[C.into(), C.into(), 0i64.into()])?;
        tx.rollback_to(savepoint)?;
        Ok(seen)
    };
    let (seen, _) = beside(&db, try_out, || {
        set(&db, A, 7);
        assert_eq!(db.snapshot(|tx| Ok((count(tx, A)?, count(tx, C)?))).unwrap(), (7, 0));
        let mut session = db.session().unwrap();
        assert!(session.try_submit(|tx| tx.delete(ITEMS, C)).unwrap().0.unwrap());
        // Ends the epoch of the deletion; the write closes the snapshot.
        db.snapshot(|_| Ok(())).unwrap();
        session.try_submit(|tx| tx.update(ITEMS, 0i64, &[COUNT.set(1)])).unwrap().0.unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while db.stats().garbage > 0 {
            assert!(Instant::now() < until, "the tombstone stays");
            session.try_submit(|tx| count(tx, B)).unwrap().0.unwrap();
        }
    });
    seen == 7
}

/// C11: R reads a; W overwrites a; a snapshot holds W; R writes b. Returns whether R is behind W.
pub fn a_snapshot_is_a_prefix() -> bool {
    let Opened { db, dir: _dir } = open(Protocol::None);
    keep_valid(&db, A);
    let (seen, _) = beside(&db, copy, || {
        set(&db, A, 7);
        let state = db.snapshot(|tx| Ok((count(tx, A)?, count(tx, B)?)));
        assert_eq!(state.unwrap(), (7, 0));
    });
    seen == 7
}

/// C20: Y reads c; V overwrites c; R reads c and misses k; W inserts k and writes b; Y reads b.
/// Returns whether Y sees V's c: V precedes R, R precedes W, and W precedes Y.
pub fn an_insertion_is_behind_its_gap(is_hash: bool) -> bool {
    const MISSED: i64 = 1000;
    let table = if is_hash { HASHED } else { ITEMS };
    let Opened { db, dir: _dir } = open(Protocol::None);
    keep_valid(&db, C);
    let look = |tx: &Transaction<'_>, pause: &dyn Fn()| {
        let first = count(tx, C)?;
        pause();
        Ok((first, count(tx, B)?))
    };
    let (seen, _) = beside(&db, look, || {
        set(&db, C, 7);
        let (mut reader, mut writer) = (db.session().unwrap(), db.session().unwrap());
        let miss = |tx: &Transaction<'_>| {
            assert_eq!(count(tx, C)?, 7);
            assert!(tx.get(table, MISSED)?.is_none());
            Ok::<_, Abort>(())
        };
        reader.try_submit(miss).unwrap().0.unwrap();
        let insert = |tx: &Transaction<'_>| {
            tx.insert(table, &[MISSED.into(), 0i64.into(), 0i64.into()])?;
            tx.update(ITEMS, B, &[COUNT.set(7)])
        };
        writer.try_submit(insert).unwrap().0.unwrap();
    });
    assert_eq!(seen.1, 7);
    seen.0 == 7
}
