//! Transactions whose streams are flushed by hand, and the committable transactions by definition 1
//! of the report on Taurus (2016).

use super::power_cut;
use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Concurrency, Database, ProcedureId, RecordKind, Replay, Schema,
    Session, Table, Ticket, Transaction, Type,
};
use hyades_platform::device::{Device, PowerCutDevice};
use hyades_schemes::{TAURUS_2016, WAIT_DIE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ROWS: Table = Table::nth(0);
/// The last writer of the row, and the digest of its reads.
const WRITER: Column<i64> = Column::at(1);
const DIGEST: Column<i64> = Column::at(2);
/// The transaction that wrote the whole row last.
const BASE: Column<i64> = Column::at(3);

/// The number of rows, all of which exist.
const ROW_COUNT: i64 = 6;

/// How the database works.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub concurrency: Concurrency,
    pub record: RecordKind,
    pub streams: usize,
    pub compresses: bool,
    /// The bytes from an anchor to the next; 0 for the default.
    pub anchor: u64,
}

/// An operation on a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Op {
    Read(i64),
    /// Replaces the row blindly.
    Put(i64),
    /// Replaces the row, and learns that the row existed.
    Upsert(i64),
    /// Changes two columns of the row.
    Update(i64),
    /// Replaces the row blindly, and takes the change back.
    Undone(i64),
}

impl Op {
    fn writes(self, row: i64) -> bool {
        matches!(self, Op::Put(id) | Op::Upsert(id) | Op::Update(id) if id == row)
    }

    pub fn random(rng: &mut Rng) -> Op {
        let row = rng.i64(0..ROW_COUNT);
        match rng.u32(0..9) {
            0..=2 => Op::Read(row),
            3..=5 => Op::Put(row),
            6 => Op::Upsert(row),
            7 => Op::Update(row),
            _ => Op::Undone(row),
        }
    }
}

/// A transaction: its number, above 0, and its operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    pub number: i64,
    pub ops: Vec<Op>,
}

type Row = (i64, i64, i64);

fn run(tx: &Transaction<'_>, program: &Program) -> Result<(), Abort> {
    let (number, mut digest) = (program.number, program.number);
    let row = |id: i64, digest: i64| [id.into(), number.into(), digest.into(), number.into()];
    for op in &program.ops {
        match *op {
            Op::Read(id) => {
                let row = tx.get(ROWS, id)?.expect("each row exists");
                let row = (row.get(WRITER), row.get(DIGEST), row.get(BASE));
                digest = absorb(digest, row);
            }
            Op::Put(id) => tx.overwrite(ROWS, &row(id, digest))?,
            Op::Upsert(id) => assert!(tx.upsert(ROWS, &row(id, digest))?, "each row exists"),
            Op::Update(id) => {
                let sets = [WRITER.set(number), DIGEST.set(digest)];
                assert!(tx.update(ROWS, id, &sets)?, "each row exists");
            }
            Op::Undone(id) => {
                let savepoint = tx.savepoint();
                tx.overwrite(ROWS, &row(id, digest))?;
                tx.rollback_to(savepoint)?;
            }
        }
    }
    Ok(())
}

fn absorb(digest: i64, (writer, read, base): Row) -> i64 {
    let mixed = [writer, read, base].into_iter().fold(digest, |sum, value| {
        (sum ^ value).wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(17)
    });
    mixed.wrapping_add(1)
}

/// The rows as left by transactions that run one after the other.
#[derive(Clone)]
struct Rows(BTreeMap<i64, Row>);

impl Rows {
    fn new() -> Rows {
        Rows((0..ROW_COUNT).map(|id| (id, (0, 0, 0))).collect())
    }

    /// Runs a transaction. Returns the writers of the rows read.
    fn run(&mut self, program: &Program, locks: bool) -> Vec<i64> {
        let (number, mut digest, mut read) = (program.number, program.number, Vec::new());
        let mut own = Vec::new();
        for op in &program.ops {
            let (Op::Read(id) | Op::Put(id) | Op::Upsert(id) | Op::Update(id) | Op::Undone(id)) =
                *op;
            let row = self.0.get_mut(&id).expect("each row exists");
            let reads = match op {
                Op::Put(_) => false,
                // A row locked for writing, and then not written, counts as read.
                Op::Undone(_) => locks && !program.ops.iter().any(|op| op.writes(id)),
                _ => true,
            };
            if reads && !own.contains(&id) {
                read.push(row.0);
            }
            match op {
                Op::Read(_) => digest = absorb(digest, *row),
                Op::Put(_) | Op::Upsert(_) => *row = (number, digest, number),
                Op::Update(_) => *row = (number, digest, row.2),
                Op::Undone(_) => continue,
            }
            if !matches!(op, Op::Read(_)) {
                own.push(id);
            }
        }
        read
    }
}

struct Ran {
    program: Program,
    stream: usize,
    /// The transactions whose writes this transaction has read.
    needs: Vec<i64>,
    ticket: Ticket,
    /// Whether the record is durable, if there is a record.
    is_durable: bool,
}

/// A database whose streams are flushed by hand, with a session on each.
pub struct World {
    dir: PathBuf,
    form: Form,
    device: PowerCutDevice,
    db: Database,
    procedure: ProcedureId,
    sessions: Vec<Session>,
    rows: Rows,
    ran: Vec<Ran>,
}

fn builder(form: Form) -> (Builder, ProcedureId) {
    let mut builder = Database::builder()
        .protocol(TAURUS_2016)
        .concurrency(form.concurrency)
        .record(form.record)
        .streams(form.streams)
        .recovery_threads(2)
        .log_settings(|log| {
            log.segment_bytes = 1 << 16;
            log.buffer_bytes = 1 << 14;
            log.epoch = Some(Duration::from_millis(2));
            log.research.compresses_lists = form.compresses;
            if form.anchor > 0 {
                log.research.anchor_interval_bytes = form.anchor;
            }
        });
    builder.table(
        ["id", "writer", "digest", "base"]
            .iter()
            .fold(Schema::new("rows"), |schema, name| schema.column(name, Type::I64))
            .primary_key(&["id"]),
    );
    let procedure = builder.procedure("run", 1, |tx, program: Program| run(tx, &program));
    (builder, procedure)
}

impl World {
    pub fn new(dir: &Path, form: Form) -> World {
        let device = power_cut(1);
        let (builder, procedure) = builder(form);
        let db = builder
            .log_settings(|log| {
                log.device = Some(Arc::new(device.clone()) as Arc<dyn Device>);
                log.research.stepped = true;
            })
            .open(dir)
            .unwrap();
        let mut sessions = Vec::new();
        // A session takes the stream with the smallest backlog: each new session finds the streams
        // before it busy.
        for stream in 0..form.streams {
            let mut session = db.session().unwrap();
            let ids = (0..ROW_COUNT).filter(|id| *id as usize % form.streams == stream);
            let (result, _) = session
                .try_submit(|tx| {
                    for id in ids.clone() {
                        tx.insert(ROWS, &[id.into(), 0i64.into(), 0i64.into(), 0i64.into()])?;
                    }
                    Ok::<_, Abort>(())
                })
                .unwrap();
            result.unwrap();
            assert!(db.log().unwrap().backlog(stream) > 0);
            sessions.push(session);
        }
        db.log().unwrap().flush().unwrap();
        let (rows, dir) = (Rows::new(), dir.to_owned());
        World { dir, form, device, db, procedure, sessions, rows, ran: Vec::new() }
    }

    pub fn run(&mut self, stream: usize, program: Program) {
        let log = self.db.log().unwrap();
        let before = log.next_lsn(stream);
        let session = &mut self.sessions[stream];
        let ticket = match self.form.record {
            RecordKind::Data => {
                let (result, ticket) = session.try_submit(|tx| run(tx, &program)).unwrap();
                result.unwrap();
                ticket
            }
            _ => {
                let (result, ticket) = session.call(self.procedure, &program).unwrap();
                result.unwrap();
                ticket
            }
        };
        let writes = log.next_lsn(stream) > before;
        // Optimistic control locks nothing before the commit.
        let locks = [Concurrency::NoWait, WAIT_DIE].contains(&self.form.concurrency);
        let needs = self.rows.run(&program, locks);
        self.ran.push(Ran { program, stream, needs, ticket, is_durable: !writes });
    }

    pub fn flush(&mut self, stream: usize) {
        while self.db.log().unwrap().step(stream) {}
        let of_stream = self.ran.iter_mut().filter(|ran| ran.stream == stream);
        of_stream.for_each(|ran| ran.is_durable = true);
    }

    /// Whether each of the transactions is committable, in their order.
    pub fn committable(&self) -> Vec<bool> {
        let mut by_number = BTreeMap::from([(0, true)]);
        for ran in &self.ran {
            let is = ran.is_durable && ran.needs.iter().all(|before| by_number[before]);
            by_number.insert(ran.program.number, is);
        }
        self.ran.iter().map(|ran| by_number[&ran.program.number]).collect()
    }

    /// Cuts the power, opens the database twice, and compares the rows with the expected rows.
    pub fn crash_and_check(self, what: &str) {
        let acknowledged: Vec<bool> =
            self.ran.iter().map(|ran| ran.ticket.is_acknowledged().unwrap()).collect();
        assert_eq!(acknowledged, self.committable(), "{what}: what is acknowledged");
        self.crash().check(what);
    }

    /// Like `crash_and_check`, after a bit of the last batch of stream 0 has rotted, a batch of one
    /// transaction: the damage cannot be told from a batch torn by the crash.
    pub fn crash_with_rot_and_check(mut self, what: &str) {
        let last = self.ran.iter_mut().rfind(|ran| ran.stream == 0).expect("there is one");
        last.is_durable = false;
        let crashed = self.crash();
        let path = crashed.dir.join("stream-0000/segment-00000000000000000001");
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.windows(4).rposition(|four| four == b"HYB1").unwrap();
        bytes[last + 40 + 9] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        crashed.check(what);
    }

    fn crash(self) -> Crashed {
        let committable = self.committable();
        self.device.cut();
        let World { dir, form, ran, db, sessions, .. } = self;
        let mut rows = Rows::new();
        for (ran, _) in ran.iter().zip(&committable).filter(|(_, is)| **is) {
            rows.run(&ran.program, false);
        }
        // Tickets keep the log open, and hence the lock of its directory.
        drop((ran, sessions));
        drop(db);
        Crashed { dir, form, rows }
    }
}

/// The state after a power cut.
struct Crashed {
    dir: PathBuf,
    form: Form,
    /// The expected rows.
    rows: Rows,
}

impl Crashed {
    fn check(&self, what: &str) {
        for (time, replay) in [("first", Replay::Phases), ("second", Replay::Wavefront)] {
            let opened = builder(self.form).0.replay(replay).open(&self.dir);
            let db = opened.unwrap_or_else(|error| panic!("{what}, {time}: {error}"));
            let all = |tx: &Transaction<'_>| {
                let row = |id: i64| {
                    let row = tx.get(ROWS, id)?.expect("each row exists");
                    Ok((id, (row.get(WRITER), row.get(DIGEST), row.get(BASE))))
                };
                (0..ROW_COUNT).map(row).collect::<Result<BTreeMap<_, _>, Abort>>()
            };
            let found = db.try_transact(all).unwrap().unwrap();
            assert_eq!(found, self.rows.0, "{what}, opened for the {time} time");
            db.close().unwrap();
        }
    }
}
