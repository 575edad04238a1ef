//! A log without threads whose streams are flushed by hand, to test the order of acknowledgements
//! step by step.

use super::directory;
use hyades::{
    Abort, Column, Concurrency, Database, Protocol, Schema, Session, Table, Ticket, Transaction,
    Type,
};
use hyades_platform::device::{Device, PowerCutDevice, PowerCutOptions};
use hyades_schemes::POPLAR;
use std::sync::Arc;
use std::time::Duration;

pub const ROWS: Table = Table::nth(0);
pub const INDEXED: Table = Table::nth(1);
pub const LOOSE: Table = Table::nth(2);
pub const N: Column<i64> = Column::at(1);
pub const BOTH: [Concurrency; 2] = [Concurrency::NoWait, Concurrency::Silo];

/// The rows x and y of figure 1 of the Poplar paper.
pub const X: i64 = 1;
pub const Y: i64 = 2;
/// A row whose writes raise the numbers of a stream.
pub const HIGH: i64 = 3;

pub fn builder(protocol: Protocol, concurrency: Concurrency, streams: usize) -> hyades::Builder {
    let mut builder = Database::builder()
        .protocol(protocol)
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

/// A transaction of a [`SteppedDb`].
#[derive(Clone, Copy)]
pub struct Txn(usize);

/// A database whose streams are flushed by hand, with a session on each.
pub struct SteppedDb {
    dir: tempfile::TempDir,
    device: PowerCutDevice,
    form: (Protocol, Concurrency),
    pub db: Database,
    pub sessions: Vec<Session>,
    /// Dropped with the database, because tickets keep its log open.
    tickets: Vec<Ticket>,
}

pub fn put(tx: &Transaction<'_>, id: i64, n: i64) -> Result<(), Abort> {
    tx.overwrite(ROWS, &[id.into(), n.into()])
}

pub fn read(tx: &Transaction<'_>, id: i64) -> Result<i64, Abort> {
    Ok(tx.get(ROWS, id)?.map_or(0, |row| row.get(N)))
}

impl SteppedDb {
    pub fn new(protocol: Protocol, concurrency: Concurrency, streams: usize) -> SteppedDb {
        SteppedDb::with_epoch(protocol, concurrency, streams, Duration::from_millis(2))
    }

    pub fn with_epoch(
        protocol: Protocol,
        concurrency: Concurrency,
        streams: usize,
        epoch: Duration,
    ) -> SteppedDb {
        let builder =
            builder(protocol, concurrency, streams).log_settings(|log| log.epoch = Some(epoch));
        SteppedDb::of(builder, (protocol, concurrency), streams)
    }

    /// A database of a [`builder`] with further declarations.
    pub fn of(
        builder: hyades::Builder,
        (protocol, concurrency): (Protocol, Concurrency),
        streams: usize,
    ) -> SteppedDb {
        let dir = directory();
        let options = PowerCutOptions { seed: 1, early_sectors: 0.0, lying_sync: false };
        let device = PowerCutDevice::new(options);
        let db = builder
            .log_settings(|log| {
                log.device = Some(Arc::new(device.clone()) as Arc<dyn Device>);
                log.research.stepped = true;
            })
            .open(dir.path())
            .unwrap();
        let mut world = SteppedDb {
            dir,
            device,
            form: (protocol, concurrency),
            db,
            sessions: Vec::new(),
            tickets: Vec::new(),
        };
        // A session takes the stream with the smallest backlog: each new session finds the streams
        // before it busy.
        for stream in 0..streams {
            let mut session = world.db.session().unwrap();
            let (result, _) = session.try_submit(|tx| put(tx, 100 + stream as i64, 0)).unwrap();
            result.unwrap();
            assert!(world.db.log().unwrap().backlog(stream) > 0);
            world.sessions.push(session);
        }
        world.db.log().unwrap().flush().unwrap();
        world
    }

    pub fn run(
        &mut self,
        stream: usize,
        body: impl Fn(&Transaction<'_>) -> Result<(), Abort>,
    ) -> Txn {
        let before = self.db.log().unwrap().next_lsn(stream);
        let (result, ticket) = self.sessions[stream].try_submit(|tx| body(tx)).unwrap();
        result.unwrap();
        let moved = self.db.log().unwrap().next_lsn(stream) > before;
        assert!(moved, "it wrote to another stream");
        self.keep(ticket)
    }

    pub fn keep(&mut self, ticket: Ticket) -> Txn {
        self.tickets.push(ticket);
        Txn(self.tickets.len() - 1)
    }

    pub fn is_answered(&self, txn: Txn) -> bool {
        self.tickets[txn.0].is_acknowledged().unwrap()
    }

    /// T1: W1(x).
    pub fn t1(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, X, 1))
    }

    /// T2: R2(x), W2(y).
    pub fn t2(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| {
            let x = read(tx, X)?;
            put(tx, Y, 20 + x)
        })
    }

    /// T3: W3(y).
    pub fn t3(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, Y, 3))
    }

    /// T4: W4(x).
    pub fn t4(&mut self, stream: usize) -> Txn {
        self.run(stream, |tx| put(tx, X, 4))
    }

    /// Raises the numbers of a stream far above the numbers of the other streams.
    pub fn make_high(&mut self, stream: usize) {
        for n in 0..50 {
            let _ = self.run(stream, |tx| put(tx, HIGH, n));
        }
        self.flush(stream);
    }

    pub fn flush(&self, stream: usize) {
        while self.db.log().unwrap().step(stream) {}
    }

    /// Whether the transaction is acknowledged after a flush of some streams. A first query asks
    /// the streams to state their watermarks.
    pub fn answered(&self, txn: Txn, flushed: &[usize]) -> bool {
        let _ = self.is_answered(txn);
        flushed.iter().for_each(|&stream| self.flush(stream));
        self.is_answered(txn)
    }

    /// Cuts the power.
    pub fn crash(self) -> CrashedDb {
        self.device.cut();
        let SteppedDb { dir, form, db, sessions, tickets, .. } = self;
        let streams = db.streams();
        drop((sessions, tickets));
        drop(db);
        CrashedDb { dir, form, streams }
    }
}

pub struct CrashedDb {
    pub dir: tempfile::TempDir,
    form: (Protocol, Concurrency),
    streams: usize,
}

impl CrashedDb {
    /// Opens the database twice and requires the same result: row x, row y, number of dead records.
    pub fn recovered(&self) -> (i64, i64, u64) {
        let [first, second] = [(); 2].map(|()| {
            let db = builder(self.form.0, self.form.1, self.streams).open(self.dir.path()).unwrap();
            let both = |tx: &Transaction<'_>| Ok::<_, Abort>((read(tx, X)?, read(tx, Y)?));
            let (x, y) = db.try_transact(both).unwrap().unwrap();
            let dead = db.recovery().dead;
            db.close().unwrap();
            (x, y, dead)
        });
        assert_eq!(first, second, "who was dead stays dead");
        first
    }
}

/// Deletes a row in stream 0, which is not flushed, while sessions collect their garbage. Returns
/// whether a reader of the missing row waits for the deletion, and a new version of the row does
/// not but wins.
pub fn a_missing_row_depends_on_its_deletion(concurrency: Concurrency) -> bool {
    let mut world = SteppedDb::new(POPLAR, concurrency, 2);
    let _ = world.t1(1);
    world.db.log().unwrap().flush().unwrap();
    world.make_high(0);
    let deleted = world.run(0, |tx| tx.delete(ROWS, X).map(drop));
    // Sessions collect their garbage from time to time.
    for n in 0..300 {
        let _ = world.run(1, |tx| put(tx, 101, n));
        world.flush(1);
        // Few: the stream must not fill up.
        if n % 16 == 0 {
            let _ = world.run(0, |tx| put(tx, 100, n));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    let (result, reader) =
        world.sessions[1].try_submit(|tx| Ok::<_, Abort>(tx.get(ROWS, X)?.is_some())).unwrap();
    assert!(!result.unwrap());
    let reader = world.keep(reader);
    let waits = !world.answered(reader, &[1]);
    let again = world.run(1, |tx| put(tx, X, 7));
    assert!(world.answered(again, &[1]) && !world.is_answered(deleted));
    assert!(world.answered(reader, &[0, 1]));
    assert_eq!(world.crash().recovered(), (7, 0, 0));
    waits
}
