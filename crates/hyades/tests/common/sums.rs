//! A table with a sum index, and what may go wrong with sums: each function returns whether a
//! promise was kept.

use super::by_hand::{self, SteppedDb, Txn};
use super::directory;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, ProcedureId, Protocol, RecordKind, Schema,
    Table, Transaction, Type,
};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Behind the tables of `by_hand`.
pub const PARTS: Table = Table::nth(3);
pub const NOTES: Table = Table::nth(4);
pub const ROW: Column<u32> = Column::at(1);
pub const COUNT: Column<u32> = Column::at(2);
pub const VALUE: Column<u64> = Column::at(1);

/// The rows of a part: enough for a node.
pub const ROWS: u32 = 40;

/// Room for the nodes of two parts.
pub const SMALL: usize = 6_000;

pub fn builder(protocol: Protocol, concurrency: Concurrency, streams: usize) -> Builder {
    let mut builder = by_hand::builder(protocol, concurrency, streams);
    let parts = Schema::new("parts")
        .column("part", Type::U64)
        .column("row", Type::U32)
        .column("count", Type::U32)
        .column("text", Type::Bytes);
    builder.table(parts.primary_key(&["part", "row"]).sum("count", 1));
    let notes = Schema::new("notes").column("id", Type::U64).column("value", Type::U64);
    builder.table(notes.primary_key(&["id"]));
    builder
}

pub fn set(tx: &Transaction<'_>, part: u64, row: u32, count: u32) -> Result<(), Abort> {
    tx.upsert(PARTS, &[part.into(), row.into(), count.into(), (&b"text"[..]).into()]).map(drop)
}

pub fn count(tx: &Transaction<'_>, part: u64, row: u32) -> Result<u32, Abort> {
    Ok(tx.get(PARTS, (part, row))?.map_or(0, |row| row.get(COUNT)))
}

pub fn note(tx: &Transaction<'_>, id: u64, value: u64) -> Result<(), Abort> {
    tx.upsert(NOTES, &[id.into(), value.into()]).map(drop)
}

pub fn noted(tx: &Transaction<'_>, id: u64) -> Result<u64, Abort> {
    Ok(tx.get(NOTES, id)?.map_or(0, |row| row.get(VALUE)))
}

/// Writes the rows of a part, each with this count.
pub fn fill(tx: &Transaction<'_>, part: u64, count: u32) -> Result<(), Abort> {
    (0..ROWS).try_for_each(|row| set(tx, part, row, count))
}

/// The sum of a part by a scan.
pub fn scanned(tx: &Transaction<'_>, part: u64) -> Result<u64, Abort> {
    let rows = tx.scan(PARTS).prefix(&[part.into()]).columns(COUNT.only()).rows()?;
    Ok(rows.iter().map(|row| u64::from(row.get(COUNT))).sum())
}

/// A log flushed by hand, and procedures logged as commands.
struct World {
    stepped: SteppedDb,
    note_sum: ProcedureId,
    set_one: ProcedureId,
}

impl World {
    /// Streams 0 and 1, with the parts 1 to 6, all durable.
    fn new(concurrency: Concurrency, commands: bool, bytes: usize) -> World {
        let kind = if commands { RecordKind::Command } else { RecordKind::Data };
        let protocol = Protocol::Taurus;
        let mut builder = builder(protocol, concurrency, 2).record(kind).sum_index_bytes(bytes);
        let note_sum = builder.procedure("note", 1, |tx: &Transaction<'_>, part: u64| {
            note(tx, part, tx.sum(PARTS, part, None)?)
        });
        let set_one =
            builder.procedure("set", 1, |tx: &Transaction<'_>, part: u64| set(tx, part, 7, 100));
        let stepped = SteppedDb::of(builder, (protocol, concurrency), 2);
        // Sessions with long records look for another stream.
        let mut session = stepped.db.session().unwrap();
        for part in 1..7 {
            session.try_submit(|tx| fill(tx, part, 1)).unwrap().0.unwrap();
            stepped.db.log().unwrap().flush().unwrap();
        }
        drop(session);
        World { stepped, note_sum, set_one }
    }

    fn read_sum(&mut self, stream: usize, part: u64) -> Txn {
        let sum = |tx: &Transaction<'_>| tx.sum(PARTS, part, None);
        let (sum, ticket) = self.stepped.sessions[stream].try_submit(sum).unwrap();
        sum.unwrap();
        self.stepped.keep(ticket)
    }

    fn call(&mut self, stream: usize, procedure: ProcedureId, part: u64) -> Txn {
        let (outcome, ticket) = self.stepped.sessions[stream].call(procedure, &part).unwrap();
        let () = outcome.unwrap();
        self.stepped.keep(ticket)
    }

    /// Whether a transaction in stream 1 waits for stream 0.
    fn waits(&mut self, txn: Txn) -> bool {
        let waits = !self.stepped.answered(txn, &[1]);
        assert!(self.stepped.answered(txn, &[0, 1]));
        waits
    }
}

/// The reader of a sum is acknowledged with the writer of a count.
pub fn a_reader_waits_for_writers(concurrency: Concurrency) -> bool {
    let mut world = World::new(concurrency, false, 1 << 20);
    let _ = world.read_sum(1, 1);
    assert!(world.stepped.db.stats().sum_index_bytes > 0);
    let _ = world.stepped.run(0, |tx| set(tx, 1, 3, 5));
    let reader = world.read_sum(1, 1);
    world.waits(reader)
}

/// So is a reader of counts that were built after the writer.
pub fn a_reader_waits_for_writers_before_the_node(concurrency: Concurrency) -> bool {
    [false, true].iter().all(|deletes| {
        let mut world = World::new(concurrency, false, 1 << 20);
        let _ = world.stepped.run(0, |tx| match deletes {
            true => tx.delete(PARTS, (1u64, 3u32)).map(drop),
            false => set(tx, 1, 3, 5),
        });
        let _ = world.read_sum(1, 1);
        let reader = world.read_sum(1, 1);
        world.waits(reader)
    })
}

/// A transaction that wrote what follows from a sum is lost with the writer of a count.
pub fn what_follows_is_lost_with_its_writer(concurrency: Concurrency) -> bool {
    let mut world = World::new(concurrency, false, 1 << 20);
    let _ = world.read_sum(1, 1);
    let _ = world.stepped.run(0, |tx| set(tx, 1, 3, 5));
    let _ = world.stepped.run(1, |tx| note(tx, 9, tx.sum(PARTS, 1u64, None)?));
    world.stepped.flush(1);
    let crashed = world.stepped.crash();
    let db = builder(Protocol::Taurus, concurrency, 2).open(crashed.dir.path()).unwrap();
    let found = db.try_transact(|tx| Ok::<_, Abort>((noted(tx, 9)?, scanned(tx, 1)?)));
    found.unwrap().unwrap() == (0, u64::from(ROWS))
}

/// A writer of a count is replayed after the command that has read the sum, also if the node was
/// dropped meanwhile: as a command the writer waits for the reader.
pub fn a_writer_follows_commands(concurrency: Concurrency, drops: bool) -> bool {
    let mut world = World::new(concurrency, true, if drops { SMALL } else { 1 << 20 });
    let _ = world.read_sum(1, 1);
    let _ = world.call(0, world.note_sum, 1);
    if drops {
        let others = (2..7).chain(2..7);
        others.for_each(|part| _ = world.read_sum(1, part));
    }
    let writer = world.call(1, world.set_one, 1);
    world.waits(writer)
}

/// Opens a database in memory.
fn open(dir: &std::path::Path, concurrency: Concurrency, bytes: usize) -> Database {
    let builder = builder(Protocol::Taurus, concurrency, 2).sum_index_bytes(bytes);
    builder.open(dir).unwrap()
}

/// A sum that was read changes before the reader's commit, whose node was perhaps dropped. Returns
/// whether the reader runs again.
pub fn a_changed_sum_is_a_conflict(concurrency: Concurrency, drops: bool) -> bool {
    let dir = directory();
    let db = open(dir.path(), concurrency, if drops { SMALL } else { 1 << 20 });
    db.transact(|tx| Ok((1..7).try_for_each(|part| fill(tx, part, 1))?)).unwrap();
    let sum = |tx: &Transaction<'_>, part: u64| tx.sum(PARTS, part, None);
    db.transact(|tx| Ok(sum(tx, 1)?)).unwrap();
    let runs = AtomicU32::new(0);
    let other = || {
        for part in (2..7).chain(2..7).filter(|_| drops) {
            db.transact(|tx| Ok(sum(tx, part)?)).unwrap();
        }
        db.transact(|tx| Ok(set(tx, 1, 5, 9)?)).unwrap();
    };
    let body = |tx: &Transaction<'_>| {
        let sum = sum(tx, 1)?;
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        }
        Ok(note(tx, 1, sum)?)
    };
    db.transact(body).unwrap();
    let right = db.transact(|tx| Ok(noted(tx, 1)? == scanned(tx, 1)?)).unwrap();
    right && runs.into_inner() == 2
}

/// Two threads add to rows of their own while the sums of both parts are below a limit. Returns
/// whether the limit was never passed.
pub fn sums_are_no_write_skew(concurrency: Concurrency, time: Duration) -> bool {
    let dir = directory();
    let db = open(dir.path(), concurrency, 1 << 20);
    let until = Instant::now() + time;
    let (turn, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Two threads meet at each turn.
    let meet = |n: usize| {
        turn.fetch_add(1, Ordering::SeqCst);
        while turn.load(Ordering::SeqCst) < 2 * n && !stop.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
    };
    db.transact(|tx| Ok((0..2).try_for_each(|part| fill(tx, part, 1))?)).unwrap();
    let total = |tx: &Transaction<'_>| {
        Ok::<_, Abort>(tx.sum(PARTS, 0u64, None)? + tx.sum(PARTS, 1u64, None)?)
    };
    let limit = db.transact(|tx| Ok(total(tx)?)).unwrap() + 1;
    let run = |part: u64| {
        let mut session = db.session().unwrap();
        let mut round = 0;
        let mut kept = true;
        while kept && !stop.load(Ordering::SeqCst) {
            meet(3 * round + 1);
            let add = |tx: &Transaction<'_>| match total(tx)? < limit {
                true => set(tx, part, 0, count(tx, part, 0)? + 1),
                false => Ok(()),
            };
            session.try_submit(add).unwrap().0.unwrap();
            meet(3 * round + 2);
            kept = session.try_submit(|tx| Ok::<_, Abort>(total(tx)? == limit)).unwrap().0.unwrap();
            meet(3 * round + 3);
            session.try_submit(|tx| set(tx, part, 0, 1)).unwrap().0.unwrap();
            round += 1;
            if !kept || Instant::now() > until {
                stop.store(true, Ordering::SeqCst);
            }
        }
        kept
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let kept = run(0);
        other.join().unwrap() && kept
    })
}

/// The elements moved among the parts of [`elements_are_moved`].
pub const ELEMENTS: u64 = 2 * ROWS as u64 * 4;

/// Moves an element between rows, which begin and end with their elements.
fn move_one(tx: &Transaction<'_>, rng: &mut fastrand::Rng) -> Result<(), Abort> {
    let from = (rng.u64(0..4), rng.u32(0..2 * ROWS));
    let to = (rng.u64(0..4), rng.u32(0..2 * ROWS));
    let there = count(tx, from.0, from.1)?;
    if there == 0 || from == to {
        return Ok(());
    }
    match there {
        1 => _ = tx.delete(PARTS, from)?,
        _ => _ = tx.update(PARTS, from, &[COUNT.set(there - 1)])?,
    }
    set(tx, to.0, to.1, count(tx, to.0, to.1)? + 1)
}

/// Whether the sums of all parts are those of scans, and the row of an element is the right row.
fn agree(tx: &Transaction<'_>, rng: &mut fastrand::Rng) -> Result<bool, Abort> {
    let part = rng.u64(0..4);
    let sum = tx.sum(PARTS, part, None)?;
    let n = rng.u64(0..sum.max(1));
    let found = tx.select(PARTS, part, n)?;
    let is_right = match found {
        None => sum == 0,
        Some((row, before)) => {
            let key = [part.into(), row.get(ROW).into()];
            let is_there = (before..before + u64::from(row.get(COUNT))).contains(&n);
            is_there && tx.sum(PARTS, part, Some(&key))? == before
        }
    };
    Ok(is_right && scanned(tx, part)? == sum)
}

/// Threads move elements between rows and parts, beside readers of sums. Returns whether each
/// committed reader has found all elements, and sums equal to those of scans.
pub fn elements_are_moved(db: &Database, seed: u64, time: Duration) -> bool {
    let per_row = (ELEMENTS / 4 / u64::from(ROWS)) as u32;
    db.transact(|tx| Ok((0..4).try_for_each(|part| fill(tx, part, per_row))?)).unwrap();
    let until = Instant::now() + time;
    let failed = AtomicBool::new(false);
    let run = |thread: u64| {
        let mut rng = fastrand::Rng::with_seed(seed << 8 | thread);
        // After a power cut there are no sessions.
        let Ok(mut session) = db.session() else { return };
        while Instant::now() < until && !failed.load(Ordering::Relaxed) {
            let way = rng.u32(0..8);
            let body = |tx: &Transaction<'_>| match way {
                0..4 => move_one(tx, &mut rng).map(|()| true),
                // Own changes count.
                4 => move_one(tx, &mut rng).and_then(|()| agree(tx, &mut rng)),
                5 => agree(tx, &mut rng),
                _ => {
                    let sums = (0..4u64).map(|part| tx.sum(PARTS, part, None));
                    Ok(sums.sum::<Result<u64, Abort>>()? == ELEMENTS)
                }
            };
            match session.try_submit(body) {
                Ok((Ok(true), _)) => {}
                Ok((Ok(false), _)) => failed.store(true, Ordering::Relaxed),
                Ok((Err(abort), _)) => panic!("{abort}"),
                Err(_) => return,
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || run(thread))));
    !failed.into_inner()
}

/// [`elements_are_moved`] with much or little memory for nodes.
pub fn sums_are_consistent(concurrency: Concurrency, bytes: usize, time: Duration) -> bool {
    let dir = directory();
    let db = open(dir.path(), concurrency, bytes);
    elements_are_moved(&db, 1, time)
}
