//! Poplar's orders of answering and of numbers, and what a crash leaves of them: the scenarios (a) to (h) of
//! figure 1 of its paper, step by step, on a log without threads.
#![allow(missing_docs)]

mod common;
use common::directory;
use hyades::{
    Abort, Column, Concurrency, Database, Index, Protocol, Schema, Session, Table, Ticket,
    Transaction, Type,
};
use hyades_platform::device::{Device, PowerCutDevice, PowerCutOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ROWS: Table = Table::nth(0);
const INDEXED: Table = Table::nth(1);
const LOOSE: Table = Table::nth(2);
const N: Column<i64> = Column::at(1);
const BOTH: [Concurrency; 2] = [Concurrency::NoWait, Concurrency::Silo];

/// The rows of the figure.
const X: i64 = 1;
const Y: i64 = 2;
/// A row that makes the numbers of a stream high.
const HIGH: i64 = 3;

fn builder(concurrency: Concurrency, streams: usize) -> hyades::Builder {
    let mut builder = Database::builder()
        .protocol(Protocol::Poplar)
        .concurrency(concurrency)
        .streams(streams)
        .log_settings(|log| {
            log.segment_bytes = 1 << 16;
            log.buffer_bytes = 1 << 14;
            log.epoch = Some(Duration::from_millis(2));
        });
    let two = |name: &str| Schema::new(name).column("id", Type::I64).column("n", Type::I64);
    builder.table(two("rows").primary_key(&["id"]));
    builder.table(two("indexed").primary_key(&["id"]).index("by_n", &["n"]));
    builder.table(two("loose"));
    builder
}

/// A transaction of a [`World`].
#[derive(Clone, Copy)]
struct Txn(usize);

/// A database whose streams are flushed by hand, and a session on each.
struct World {
    dir: tempfile::TempDir,
    device: PowerCutDevice,
    concurrency: Concurrency,
    db: Database,
    sessions: Vec<Session>,
    /// Dropped with the database, whose log they keep open.
    tickets: Vec<Ticket>,
}

fn put(tx: &Transaction<'_>, id: i64, n: i64) -> Result<(), Abort> {
    tx.put(ROWS, &[id.into(), n.into()])
}

fn read(tx: &Transaction<'_>, id: i64) -> Result<i64, Abort> {
    Ok(tx.get(ROWS, id)?.map_or(0, |row| row.get(N)))
}

impl World {
    fn new(concurrency: Concurrency, streams: usize) -> World {
        let dir = directory();
        let options = PowerCutOptions { seed: 1, early_sectors: 0.0, lying_sync: false };
        let device = PowerCutDevice::new(options);
        let db = builder(concurrency, streams)
            .log_settings(|log| {
                log.device = Some(Arc::new(device.clone()) as Arc<dyn Device>);
                log.stepped = true;
            })
            .open(dir.path())
            .unwrap();
        let mut world =
            World { dir, device, concurrency, db, sessions: Vec::new(), tickets: Vec::new() };
        // A session takes the stream with the least to flush: each finds those before it busy.
        for stream in 0..streams {
            let mut session = world.db.session().unwrap();
            let (result, _) = session.submit(|tx| put(tx, 100 + stream as i64, 0)).unwrap();
            result.unwrap();
            assert!(world.db.log().unwrap().backlog(stream) > 0);
            world.sessions.push(session);
        }
        world.db.log().unwrap().flush().unwrap();
        world
    }

    fn run(&mut self, stream: usize, body: impl Fn(&Transaction<'_>) -> Result<(), Abort>) -> Txn {
        let before = self.db.log().unwrap().next_lsn(stream);
        let (result, ticket) = self.sessions[stream].submit(|tx| body(tx)).unwrap();
        result.unwrap();
        let moved = self.db.log().unwrap().next_lsn(stream) > before;
        assert!(moved, "it wrote to another stream");
        self.keep(ticket)
    }

    fn keep(&mut self, ticket: Ticket) -> Txn {
        self.tickets.push(ticket);
        Txn(self.tickets.len() - 1)
    }

    fn is_answered(&self, txn: Txn) -> bool {
        self.tickets[txn.0].is_acknowledged().unwrap()
    }

    /// T1: W1(x).
    fn t1(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, X, 1))
    }

    /// T2: R2(x), W2(y).
    fn t2(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| {
            let x = read(tx, X)?;
            put(tx, Y, 20 + x)
        })
    }

    /// T3: W3(y).
    fn t3(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, Y, 3))
    }

    /// T4: W4(x).
    fn t4(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, X, 4))
    }

    /// Numbers of this stream will be far above those of the others.
    fn make_high(&mut self, stream: usize) {
        for n in 0..50 {
            let _ = self.run(stream, |tx| put(tx, HIGH, n));
        }
        self.flush(stream);
    }

    fn flush(&self, stream: usize) {
        while self.db.log().unwrap().step(stream) {}
    }

    /// What streams are asked to state for the transaction is stated, by these streams.
    fn answered(&self, txn: Txn, flushed: &[usize]) -> bool {
        let _ = self.is_answered(txn);
        flushed.iter().for_each(|&stream| self.flush(stream));
        self.is_answered(txn)
    }

    /// The power fails.
    fn crash(self) -> Crashed {
        self.device.cut();
        let World { dir, concurrency, db, sessions, tickets, .. } = self;
        let streams = db.streams();
        drop((sessions, tickets));
        drop(db);
        Crashed { dir, concurrency, streams }
    }
}

struct Crashed {
    dir: tempfile::TempDir,
    concurrency: Concurrency,
    streams: usize,
}

impl Crashed {
    fn numbers(&self) -> Vec<(u64, bool)> {
        numbers(self.dir.path())
    }

    /// The rows x and y, and how many records were dead, from a second opening as from the first.
    fn recovered(&self) -> (i64, i64, u64) {
        let [first, second] = [(); 2].map(|()| {
            let db = builder(self.concurrency, self.streams).open(self.dir.path()).unwrap();
            let both = |tx: &Transaction<'_>| Ok::<_, Abort>((read(tx, X)?, read(tx, Y)?));
            let (x, y) = db.transact(both).unwrap().unwrap();
            let dead = db.recovery().dead;
            db.close().unwrap();
            (x, y, dead)
        });
        assert_eq!(first, second, "who was dead stays dead");
        first
    }
}

/// Numbers of the last records in the streams, in the order of streams and places, and whether the records
/// have read: docs/format.md, "Numbers".
fn numbers(dir: &Path) -> Vec<(u64, bool)> {
    let mut numbers = Vec::new();
    let options = hyades_wal::LogOptions::new(vec![dir.to_owned()], 4);
    for mut reader in hyades_wal::open(options).unwrap().readers() {
        while let Some(chunk) = reader.next_chunk().unwrap() {
            for frame in chunk.frames().filter(|f| f.kind == hyades_wal::FrameKind::Record) {
                // Flags, none of them set here; two varints; the stamp.
                let mut rest = frame.payload;
                let varint = |rest: &mut &[u8]| {
                    let len = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
                    *rest = &rest[len..];
                };
                assert_eq!(rest[0], 0);
                rest = &rest[1..];
                varint(&mut rest);
                varint(&mut rest);
                let stamp = u64::from_le_bytes(rest[..8].try_into().unwrap());
                numbers.push((stamp >> 1, stamp & 1 == 1));
            }
        }
    }
    numbers
}

/// The numbers of the last records of the first two streams.
fn last_two(crashed: &Crashed, lens: [usize; 2]) -> [u64; 2] {
    let all = crashed.numbers();
    assert_eq!(all.len(), lens[0] + lens[1]);
    [all[lens[0] - 1].0, all[all.len() - 1].0]
}

/// RAW, C1 before C2, L1 below L2: each is answered once it may be.
#[test]
fn scenario_a_the_reader_follows_its_writer() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = World::new(concurrency, 2);
            let (t1, t2) = (world.t1(0), world.t2(1));
            world.flush(0);
            assert!(world.is_answered(t1) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[1, 0]));
            }
            let crashed = world.crash();
            if both {
                let [l1, l2] = last_two(&crashed, [2, 2]);
                assert!(l1 < l2);
            }
            assert_eq!(crashed.recovered(), if both { (1, 21, 0) } else { (1, 0, 0) });
        }
    }
}

/// RAW, C1 before C2, L2 below L1: harmless, says the paper. It does not come about: the reader's number is
/// above its writer's even where its stream's numbers are low.
#[test]
fn scenario_b_the_reader_is_numbered_above_a_high_writer() {
    for concurrency in BOTH {
        let mut world = World::new(concurrency, 2);
        world.make_high(0);
        let (t1, t2) = (world.t1(0), world.t2(1));
        assert!(world.answered(t1, &[0]) && !world.is_answered(t2));
        assert!(world.answered(t2, &[1, 0]));
        let crashed = world.crash();
        let [l1, l2] = last_two(&crashed, [52, 2]);
        assert!(l1 > 50 && l2 > l1);
        assert_eq!(crashed.recovered(), (1, 21, 0));
    }
}

/// RAW, C2 before C1: forbidden. The reader is durable and its writer is not: it is not answered, nor recovered.
#[test]
fn scenario_c_a_reader_without_its_writer_is_dead() {
    for concurrency in BOTH {
        let mut world = World::new(concurrency, 2);
        let (t1, t2) = (world.t1(0), world.t2(1));
        assert!(!world.answered(t2, &[1]));
        assert!(!world.is_answered(t1));
        assert_eq!(world.crash().recovered(), (0, 0, 1));
    }
}

/// WAW, C2 before C3, L2 below L3.
#[test]
fn scenario_d_the_later_writer_wins() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = World::new(concurrency, 2);
            let t2 = world.t2(0);
            assert!(world.answered(t2, &[0, 1]));
            let t3 = world.t3(1);
            assert!(!world.is_answered(t3));
            if both {
                assert!(world.answered(t3, &[1]));
            }
            assert_eq!(world.crash().recovered(), if both { (0, 3, 0) } else { (0, 20, 0) });
        }
    }
}

/// WAW, L3 below L2: forbidden, and does not come about, however high the first writer's stream has counted.
#[test]
fn scenario_e_the_later_writer_is_numbered_above_a_high_first() {
    for concurrency in BOTH {
        let mut world = World::new(concurrency, 2);
        world.make_high(0);
        let (t2, t3) = (world.t2(0), world.t3(1));
        assert!(world.answered(t2, &[0, 1]) && world.answered(t3, &[1]));
        let crashed = world.crash();
        let [l2, l3] = last_two(&crashed, [52, 2]);
        assert!(l2 > 50 && l3 > l2);
        assert_eq!(crashed.recovered(), (0, 3, 0));
    }
}

/// WAW, C3 before C2, L2 below L3: who only puts does not wait for the one whose row it replaces.
#[test]
fn scenario_f_a_blind_writer_is_answered_before_the_one_it_overwrites() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = World::new(concurrency, 2);
            let (t2, t3) = (world.t2(0), world.t3(1));
            assert!(world.answered(t3, &[1]) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[0, 1]));
            }
            assert_eq!(world.crash().recovered(), (0, 3, 0));
        }
    }
}

/// WAR, C2 before C4, L2 below L4.
#[test]
fn scenario_g_the_overwriter_follows_the_reader() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = World::new(concurrency, 2);
            let t2 = world.t2(0);
            assert!(world.answered(t2, &[0, 1]));
            let t4 = world.t4(1);
            assert!(!world.is_answered(t4));
            if both {
                assert!(world.answered(t4, &[1]));
            }
            assert_eq!(world.crash().recovered(), if both { (4, 20, 0) } else { (0, 20, 0) });
        }
    }
}

/// WAR, C4 before C2, L4 below L2: allowed, and it happens. This is why numbers do not order commands.
#[test]
fn scenario_h_the_overwriter_is_numbered_and_answered_before_the_reader() {
    for concurrency in BOTH {
        for both in [false, true] {
            let mut world = World::new(concurrency, 2);
            world.make_high(0);
            let (t2, t4) = (world.t2(0), world.t4(1));
            assert!(world.answered(t4, &[1]) && !world.is_answered(t2));
            if both {
                assert!(world.answered(t2, &[0, 1]));
            }
            let crashed = world.crash();
            if both {
                let [l2, l4] = last_two(&crashed, [52, 2]);
                assert!(l4 < l2);
            }
            assert_eq!(crashed.recovered(), if both { (4, 20, 0) } else { (4, 0, 0) });
        }
    }
}

/// Stream 2 states nothing, so what has read is dead; the blind writer behind it lives, and its row stands
/// as a whole. Who changed a column of that is dead again.
#[test]
fn a_blind_row_outlives_the_dead_writer_before_and_after_it() {
    for concurrency in BOTH {
        let mut world = World::new(concurrency, 3);
        let t1 = world.t1(0);
        assert!(world.answered(t1, &[0]));
        let change = |n: i64| move |tx: &Transaction<'_>| tx.update(ROWS, X, &[N.set(n)]).map(drop);
        let middle = world.run(0, change(2));
        let blind = world.run(1, |tx| put(tx, X, 3));
        let after = world.run(0, change(5));
        assert!(!world.answered(middle, &[0, 1]) && !world.answered(after, &[0, 1]));
        assert!(world.is_answered(blind));
        assert_eq!(world.crash().recovered(), (3, 0, 2));
    }
}

/// Reading that a row is gone waits for the one who deleted it, and so does putting it anew take a higher
/// number; also once the deleted row has left its index.
#[test]
fn a_deleted_row_keeps_its_number() {
    for concurrency in BOTH {
        let mut world = World::new(concurrency, 2);
        let _ = world.t1(1);
        world.db.log().unwrap().flush().unwrap();
        world.make_high(0);
        let deleted = world.run(0, |tx| tx.delete(ROWS, X).map(drop));
        // Sessions clear away behind themselves now and then.
        for n in 0..300 {
            let _ = world.run(1, |tx| put(tx, 101, n));
            world.flush(1);
            std::thread::sleep(Duration::from_micros(50));
        }
        let (result, reader) =
            world.sessions[1].submit(|tx| Ok::<_, Abort>(tx.get(ROWS, X)?.is_some())).unwrap();
        assert!(!result.unwrap());
        let reader = world.keep(reader);
        assert!(!world.answered(reader, &[1]), "nobody else knows yet that the row is gone");
        let again = world.run(1, |tx| put(tx, X, 7));
        assert!(world.answered(again, &[1]) && !world.is_answered(deleted));
        assert!(world.answered(reader, &[0, 1]));
        assert_eq!(world.crash().recovered(), (7, 0, 0));
    }
}

/// Only puts into tables without secondary indexes are blind; whatever else a transaction does makes it wait for
/// the common mark, and its record says so.
#[test]
fn everything_but_a_blind_put_counts_as_having_read() {
    type Body = fn(&Transaction<'_>) -> Result<(), Abort>;
    let blind: [Body; 4] = [
        |tx| put(tx, X, 1),
        |tx| put(tx, 50, 1),
        |tx| tx.put(LOOSE, &[1i64.into(), 1i64.into()]),
        |tx| {
            let savepoint = tx.savepoint();
            put(tx, X, 1)?;
            tx.rollback_to(savepoint)?;
            put(tx, Y, tx.now_us())
        },
    ];
    let reads: [Body; 9] = [
        |tx| tx.upsert(ROWS, &[X.into(), 1i64.into()]).map(drop),
        |tx| tx.insert(ROWS, &[60i64.into(), 1i64.into()]).map(drop),
        |tx| tx.update(ROWS, Y, &[N.set(5i64)]).map(drop),
        |tx| tx.delete(ROWS, Y).map(drop),
        |tx| tx.put(INDEXED, &[X.into(), 1i64.into()]),
        |tx| read(tx, X).and_then(|_| put(tx, X, 1)),
        |tx| read(tx, 999).and_then(|_| put(tx, X, 1)),
        |tx| tx.scan(ROWS).limit(1).rows().and_then(|_| put(tx, X, 1)),
        |tx| tx.scan_index(INDEXED, Index(0)).rows().and_then(|_| put(tx, X, 1)),
    ];
    for concurrency in BOTH {
        for (bodies, expected) in [(&blind[..], false), (&reads[..], true)] {
            for (at, body) in bodies.iter().enumerate() {
                let mut world = World::new(concurrency, 2);
                let prepared = world.run(0, |tx| put(tx, X, 1).and_then(|()| put(tx, Y, 1)));
                world.db.log().unwrap().flush().unwrap();
                assert!(world.is_answered(prepared));
                let ticket = world.run(0, body);
                assert_eq!(!world.answered(ticket, &[0]), expected, "{expected} {at}");
                let crashed = world.crash();
                assert_eq!(crashed.numbers()[2].1, expected, "{expected} {at}");
                assert_eq!(crashed.recovered().2, u64::from(expected), "{expected} {at}");
            }
        }
    }
}
