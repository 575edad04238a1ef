//! Two transactions, dependent or not, in two streams: whether the second may be acknowledged, and
//! survive, before the first, and whether its record is ordered behind the first's. Drives a
//! protocol into each case; `levels.rs` states the cases of all protocols as one table.

use crate::common::{directory, power_cut};
use hyades::inspect::Inspector;
use hyades::{
    Abort, Column, Concurrency, Database, Protocol, Schema, Session, Table, Ticket, TransactionId,
    Type,
};
use hyades_platform::device::{Device, PowerCutDevice};
use hyades_schemes::{GSN, PLOVER, POPLAR, SILO_R, TAURUS_2016};
use hyades_wal::LogOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const NUMBERS: Table = Table::nth(0);
const N: Column<i64> = Column::at(1);

const PARALLEL: [Protocol; 6] = [Protocol::Taurus, TAURUS_2016, SILO_R, GSN, PLOVER, POPLAR];

/// The second of two transactions. The first wrote x; or, for `WriteAfterRead`, read x and wrote y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Second {
    /// Reads x, writes z.
    ReadAfterWrite,
    /// Writes x blindly.
    WriteAfterWrite,
    /// Writes x blindly.
    WriteAfterRead,
    /// Writes z blindly.
    Writes,
    /// Reads and writes z.
    Reads,
}
use Second::{ReadAfterWrite, Reads, WriteAfterRead, WriteAfterWrite, Writes};

pub const ALL: [Second; 5] = [ReadAfterWrite, WriteAfterWrite, WriteAfterRead, Writes, Reads];

/// A logging protocol, a concurrency control and the length of an epoch.
pub type Form = (Protocol, Concurrency, Duration);

fn open(
    dir: &Path,
    (protocol, concurrency, epoch): Form,
    device: Option<Arc<dyn Device>>,
) -> Database {
    let one_stream = protocol.has_one_stream();
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(concurrency)
        .streams(if one_stream { 1 } else { 2 })
        .recovery_threads(2)
        .log_settings(|log| {
            log.research.stepped = true;
            log.device = device;
            log.epoch = Some(epoch);
        });
    builder.table(
        Schema::new("numbers").column("id", Type::I64).column("n", Type::I64).primary_key(&["id"]),
    );
    builder.open(dir).unwrap()
}

/// Reads some rows, then writes the number `n` to others, without reading these.
fn run(session: &mut Session, reads: &[i64], writes: &[i64], n: i64) -> Ticket {
    let (result, ticket) = session
        .try_submit(|tx| {
            for id in reads {
                tx.get(NUMBERS, *id)?;
            }
            for id in writes {
                tx.overwrite(NUMBERS, &[(*id).into(), n.into()])?;
            }
            Ok::<_, Abort>(())
        })
        .unwrap();
    result.unwrap();
    ticket
}

fn read(db: &Database, id: i64) -> Option<i64> {
    let mut session = db.session().unwrap();
    let (row, _) = session
        .try_submit(|tx| Ok::<_, Abort>(tx.get(NUMBERS, id)?.map(|row| row.get(N))))
        .unwrap();
    row.unwrap()
}

/// Two sessions that append to stream 0 and to the last stream.
fn sessions(db: &Database) -> (Session, Session) {
    let mut first = db.session().unwrap();
    drop(run(&mut first, &[], &[-1], 0));
    // The other session takes the stream with the smaller backlog.
    (first, db.session().unwrap())
}

/// Keys whose changes go to stream 0 and to the last stream, where the stream depends on the key.
fn keys(db: &Database, protocol: Protocol, session: &mut Session) -> ([i64; 3], [i64; 2]) {
    if protocol != PLOVER {
        return ([1, 2, 4], [3, 5]);
    }
    let log = db.log().unwrap();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for id in 10..40 {
        let before = log.next_lsn(0);
        drop(run(session, &[], &[id], 0));
        if log.next_lsn(0) > before { here.push(id) } else { there.push(id) }
    }
    ([here[0], here[1], here[2]], [there[0], there[1]])
}

/// A database on a device whose power can be cut, with sessions and keys whose records go to stream
/// 0 and to the last stream.
struct Stage {
    dir: TempDir,
    device: PowerCutDevice,
    db: Database,
    one: Session,
    two: Session,
    keys: ([i64; 3], [i64; 2]),
}

fn set_up(form: Form) -> Stage {
    let (dir, device) = (directory(), power_cut(1));
    let db = open(dir.path(), form, Some(Arc::new(device.clone())));
    let (mut one, two) = sessions(&db);
    let keys = keys(&db, form.0, &mut one);
    Stage { dir, device, db, one, two, keys }
}

/// The transaction, of two, whose stream has the higher numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Higher {
    First,
    Second,
}

impl Stage {
    /// Runs the first transaction and the second, after others that raise the numbers of a stream.
    /// The streams have stated their numbers by then.
    fn run(&mut self, second: Second, higher: Higher) -> (Ticket, Ticket) {
        let ([x, y, own], [z, others]) = self.keys;
        let (one, two) = (&mut self.one, &mut self.two);
        for n in 0..10 {
            drop(run(one, &[x, y], &[x, y], n));
        }
        for n in 0..100 {
            drop(match higher {
                Higher::First => run(one, &[own], &[own], n),
                Higher::Second => run(two, &[others], &[others], n),
            });
        }
        let log = self.db.log().unwrap();
        (0..self.db.streams()).for_each(|stream| assert!(log.step(stream) || stream > 0));
        let first = match second {
            WriteAfterRead => run(one, &[x], &[y], 1000),
            _ => run(one, &[], &[x], 1000),
        };
        let second = match second {
            ReadAfterWrite => run(two, &[x], &[z], 2000),
            WriteAfterWrite | WriteAfterRead => run(two, &[], &[x], 2000),
            Writes => run(two, &[], &[z], 2000),
            Reads => run(two, &[z], &[z], 2000),
        };
        (first, second)
    }
}

/// Runs both transactions, and makes only the stream of the second durable. Returns whether the
/// second is then acknowledged. If so, the second must survive a power cut, without the first.
pub fn second_before_first(form: Form, second: Second, higher: Higher) -> bool {
    let mut stage = set_up(form);
    let (one, two) = stage.run(second, higher);
    let Stage { device, db, keys: ([x, y, _], [z, _]), .. } = &stage;
    let (log, last) = (db.log().unwrap(), db.streams() - 1);
    // The first query may request a watermark from the stream, which is stated with a later flush.
    let is_acknowledged = |_| {
        let _ = last > 0 && log.step(last);
        std::thread::sleep(form.2);
        two.is_acknowledged().unwrap()
    };
    let answered = (0..5).any(is_acknowledged);
    assert!(!one.is_acknowledged().unwrap(), "its stream is not flushed");
    device.cut();
    let (written, lost) = match second {
        WriteAfterWrite => (*x, *x),
        WriteAfterRead => (*x, *y),
        ReadAfterWrite | Writes | Reads => (*z, *x),
    };
    let z = *z;
    let dir = end(stage, (one, two));
    let db = open(dir.path(), form, None);
    let what = format!("{form:?} {second:?}");
    if answered {
        assert_eq!(read(&db, written), Some(2000), "{what}: acknowledged");
    }
    assert_ne!(read(&db, lost), Some(1000), "{what}: its record is lost");
    if second == ReadAfterWrite {
        assert_ne!(read(&db, z), Some(2000), "{what}: it has read what is not there");
    }
    answered
}

/// Ends a database. Tickets keep the log open, and hence the lock of its directory.
fn end(stage: Stage, tickets: (Ticket, Ticket)) -> TempDir {
    let Stage { dir, db, one, two, .. } = stage;
    drop((tickets, one, two));
    drop(db);
    dir
}

/// The order of replay of a log: by the numbers of records and their versions, or by positions in
/// the only stream.
type Order = (u64, (u64, u64));

/// Runs both transactions, makes all durable and cuts the power. Returns whether the record of the
/// second has its place in the order of replay behind the first's, and the number of threads that
/// replay the log.
pub fn second_behind_first(form: Form, second: Second) -> (bool, usize) {
    loop {
        let mut stage = set_up(form);
        let tickets = stage.run(second, Higher::First);
        stage.db.log().unwrap().flush().unwrap();
        let [one, two] = [&tickets.0, &tickets.1].map(|ticket| ticket.transaction_id().unwrap());
        stage.device.cut();
        let dir = end(stage, tickets);
        let db = open(dir.path(), form, None);
        let threads = db.recovery().incarnations[0].threads;
        db.close().unwrap();
        // In a later epoch every record is behind the earlier ones.
        if one.epoch == two.epoch {
            let is_one = form.0.has_one_stream();
            let [one, two] = [one, two].map(|id| match is_one {
                true => (id.lsn, (0, 0)),
                false => place_of(dir.path(), id),
            });
            return (one < two, threads);
        }
    }
}

/// Finds a transaction's record in the log.
fn place_of(dir: &Path, id: TransactionId) -> Order {
    let options = LogOptions::new(vec![dir.to_owned()], 1);
    let recovering = hyades_wal::open_read(options).unwrap();
    let inspector = Inspector::new(recovering.manifest()).unwrap();
    let incarnation = &recovering.manifest().incarnations[0];
    for mut reader in recovering.readers().into_iter().filter(|r| r.stream.0 == id.stream) {
        let mut inspect = inspector.stream(incarnation, id.stream);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                if let Some(record) = inspect.read(&frame).unwrap()
                    && frame.end == id.lsn
                {
                    return (record.number().unwrap_or(0), record.tid());
                }
            }
        }
    }
    panic!("{id} has no record");
}

/// The last record of a stream is durable and acknowledged, and so is a reader of the record in
/// another stream. Then a bit of the first record rots, which recovery takes for a torn tail.
/// Promise: the reader is dropped too. Its record may leave out a durable dependency only if the
/// log states that the dependency is durable.
#[test]
fn rot_at_the_end_of_a_stream_takes_along_what_read_it() {
    for protocol in PARALLEL {
        let form = (protocol, Concurrency::Silo, Duration::from_millis(40));
        let Stage { device, db, mut one, mut two, keys: ([x, ..], [z, _]), dir } = set_up(form);
        let log = db.log().unwrap();
        log.step(0);
        let batches = |bytes: &[u8]| bytes.windows(4).filter(|four| four == b"HYB1").count();
        let path = dir.path().join("stream-0000/segment-00000000000000000001");
        let before = batches(&std::fs::read(&path).unwrap());
        let first = run(&mut one, &[], &[x], 1000);
        log.step(0);
        let _ = first.is_acknowledged().unwrap();
        let second = run(&mut two, &[x], &[z], 2000);
        log.step(1);
        device.cut();
        drop((first, second, one, two));
        drop(db);
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(batches(&bytes), before + 1, "{protocol:?}: one batch holds what was last");
        let last = bytes.windows(4).rposition(|four| four == b"HYB1").unwrap();
        bytes[last + 40 + 9] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        // The damage cannot be told from a batch torn by a crash.
        let db = open(dir.path(), form, None);
        assert_ne!(read(&db, x), Some(1000), "{protocol:?}: a damaged record was replayed");
        assert_ne!(read(&db, z), Some(2000), "{protocol:?}: it has read what is not there");
    }
}
