//! Two transactions without a common row, the second behind the first in an order of a session,
//! and a power cut when only the stream of the second was written.

use super::{directory, power_cut};
use hyades::{
    Abort, Builder, Column, Concurrency, Database, Partitions, ProcedureId, Protocol, RecordKind,
    Schema, Session, SessionOrder, Table, Ticket, Transaction, Type,
};
use hyades_platform::device::Device;
use std::sync::Arc;

const NUMBERS: Table = Table::nth(0);
const N: Column<i64> = Column::at(1);

/// The reason why the second transaction follows the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing: the two are independent.
    None,
    /// An order that two sessions take in turn.
    Client,
    /// An order that two sessions take in turn, in which only the second transaction writes: it
    /// begins with a read of the first.
    Read,
    /// The order of the session that runs both transactions, and keeps an order.
    Session,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub protocol: Protocol,
    pub concurrency: Concurrency,
    pub record: RecordKind,
    pub order: Order,
    /// Tickets tell nothing.
    pub asynchronous: bool,
}

/// The recovered transactions of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survived {
    pub first: bool,
    pub second: bool,
}

impl Survived {
    /// Whether the recovered transactions are a prefix.
    pub fn is_prefix(self) -> bool {
        self.first || !self.second
    }
}

struct Stage {
    db: Database,
    put: ProcedureId,
    record: RecordKind,
}

fn builder(case: Case) -> (Builder, ProcedureId) {
    let mut builder = Database::builder()
        .protocol(case.protocol)
        .concurrency(case.concurrency)
        .record(case.record)
        .streams(2)
        .recovery_threads(1)
        .asynchronous(case.asynchronous)
        .session_order(case.order == Order::Session);
    let numbers = Schema::new("numbers").column("id", Type::I64).column("n", Type::I64);
    builder.table(numbers.primary_key(&["id"]).partition_by("id"));
    // A blind write, which under some protocols waits for its own stream alone.
    let put = builder.procedure("put", 1, |tx: &Transaction<'_>, (id, n): (i64, i64)| {
        tx.overwrite(NUMBERS, &[id.into(), n.into()])
    });
    builder.on(put, |(id, _): (i64, i64)| Partitions::of(id));
    (builder, put)
}

fn read(session: &mut Session, id: i64) -> Option<i64> {
    let found = session.try_submit(|tx| Ok::<_, Abort>(tx.get(NUMBERS, id)?.map(|row| row.get(N))));
    found.unwrap().0.unwrap()
}

impl Stage {
    /// Writes a number. Returns the stream with its record.
    fn put(&self, session: &mut Session, id: i64, n: i64) -> (usize, Ticket) {
        let log = self.db.log().unwrap();
        let ends = || (0..2).map(|stream| log.next_lsn(stream)).collect::<Vec<_>>();
        let before = ends();
        let (outcome, ticket) = session.call_recorded(self.put, &(id, n), self.record).unwrap();
        outcome.unwrap();
        let stream = ends().iter().zip(&before).position(|(now, before)| now > before);
        (stream.expect("it has a record"), ticket)
    }

    fn write_all(&self) {
        let log = self.db.log().unwrap();
        for _ in 0..3 {
            while (0..2).any(|stream| log.step(stream)) {}
        }
    }

    /// A session and a key whose record goes to a stream.
    fn place(&self, sessions: &mut [Session], stream: usize, not: i64) -> (usize, i64) {
        for id in (10..60).filter(|id| *id != not) {
            for (at, session) in sessions.iter_mut().enumerate() {
                session.turn();
                if self.put(session, id, 0).0 == stream {
                    return (at, id);
                }
            }
        }
        panic!("no record goes to stream {stream}");
    }
}

/// Runs both transactions. `None` if both records went to one stream.
fn try_once(case: Case) -> Option<Survived> {
    let (dir, device) = (directory(), power_cut(1));
    let (builder, put) = builder(case);
    let own: Arc<dyn Device> = Arc::new(device.clone());
    let builder = builder.log_settings(|log| {
        log.research.stepped = true;
        // Two sessions write to different streams; one session goes to the idle stream.
        log.research.fixed_streams = case.order != Order::Session;
        log.device = Some(own);
    });
    let stage = Stage { db: builder.open(dir.path()).unwrap(), put, record: case.record };
    let count = if case.order == Order::Session { 1 } else { 2 };
    let mut sessions: Vec<Session> = (0..count).map(|_| stage.db.session().unwrap()).collect();
    let (one, x) = stage.place(&mut sessions, 0, 0);
    stage.write_all();
    let (two, z) = stage.place(&mut sessions, 1, x);
    stage.write_all();
    // The numbers of the first stream are far ahead, and the stream has stated its numbers.
    for n in 0..100 {
        drop(stage.put(&mut sessions[one], x, n));
    }
    stage.write_all();

    let mut order = SessionOrder::default();
    let (from, first) = match case.order {
        Order::Client => stage.put(&mut sessions[one].in_order(&mut order), x, 1_000),
        _ => stage.put(&mut sessions[one], x, 1_000),
    };
    if case.order == Order::Read {
        assert_eq!(read(&mut sessions[two].in_order(&mut order), x), Some(1_000));
    }
    sessions[two].turn();
    let (to, second) = match case.order {
        Order::Client | Order::Read => stage.put(&mut sessions[two].in_order(&mut order), z, 2_000),
        _ => stage.put(&mut sessions[two], z, 2_000),
    };
    let log = stage.db.log().unwrap();
    for _ in 0..2 {
        log.step(to);
        // The first query may request a watermark from the stream.
        let _ = second.is_acknowledged().unwrap();
    }
    let is_told = !case.asynchronous && second.is_acknowledged().unwrap();
    device.cut();
    drop((first, second, sessions));
    drop(stage);
    let (builder, _) = self::builder(case);
    let db = builder.open(dir.path()).unwrap();
    let mut session = db.session().unwrap();
    let survived = Survived {
        first: read(&mut session, x) == Some(1_000),
        second: read(&mut session, z) == Some(2_000),
    };
    assert!(survived.second || !is_told, "{case:?}: it was acknowledged and is lost");
    (from != to).then_some(survived)
}

/// The surviving transactions of two whose records are in two streams, if the stream of the second
/// was written.
pub fn survived(case: Case) -> Survived {
    let mut all = (0..20).filter_map(|_| try_once(case));
    all.next().unwrap_or_else(|| panic!("{case:?}: both records go to one stream"))
}
