//! Levels of recoverability (Zhou et al., "Poplar", section 3.1): which of two transactions may be
//! acknowledged, and survive, before the other. Drives each protocol into each case.

use crate::common::{directory, power_cut};
use hyades::{
    Abort, Column, Concurrency, Database, Protocol, Schema, Session, Table, Ticket, Type,
};
use hyades_platform::device::{Device, PowerCutDevice};
use hyades_schemes::{GSN, PHYSIOLOGICAL, PLOVER, POPLAR, SILO_R, TAURUS_2016};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const NUMBERS: Table = Table::nth(0);
const N: Column<i64> = Column::at(1);

const PARALLEL: [Protocol; 6] = [Protocol::Taurus, TAURUS_2016, SILO_R, GSN, PLOVER, POPLAR];

/// How the second transaction depends on the first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dependency {
    /// The second reads a row that the first wrote.
    ReadAfterWrite,
    /// The second overwrites a row that the first wrote.
    WriteAfterWrite,
    /// The second overwrites a row that the first read.
    WriteAfterRead,
    /// No dependency.
    None,
}
use Dependency::{None as Independent, ReadAfterWrite, WriteAfterRead, WriteAfterWrite};

fn open(dir: &Path, protocol: Protocol, device: Option<Arc<dyn Device>>) -> Database {
    let one_stream = protocol.has_one_stream();
    let mut builder = Database::builder()
        .protocol(protocol)
        .concurrency(Concurrency::Silo)
        .streams(if one_stream { 1 } else { 2 })
        .recovery_threads(1)
        .log_settings(|log| {
            log.research.stepped = true;
            log.device = device;
        });
    builder.table(
        Schema::new("numbers").column("id", Type::I64).column("n", Type::I64).primary_key(&["id"]),
    );
    builder.open(dir).unwrap()
}

/// Reads some rows, then writes the number `n` to others.
fn run(session: &mut Session, reads: &[i64], writes: &[i64], n: i64) -> Ticket {
    let (result, ticket) = session
        .try_submit(|tx| {
            for id in reads {
                tx.get(NUMBERS, *id)?;
            }
            for id in writes {
                tx.upsert(NUMBERS, &[(*id).into(), n.into()])?;
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
fn keys(db: &Database, protocol: Protocol, session: &mut Session) -> ([i64; 2], i64) {
    if protocol != PLOVER {
        return ([1, 2], 3);
    }
    let log = db.log().unwrap();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for id in 10..40 {
        let before = log.next_lsn(0);
        drop(run(session, &[], &[id], 0));
        if log.next_lsn(0) > before { here.push(id) } else { there.push(id) }
    }
    ([here[0], here[1]], there[0])
}

/// A database on a device whose power can be cut, with sessions and keys whose records go to stream
/// 0 and to the last stream.
struct Stage {
    dir: TempDir,
    device: PowerCutDevice,
    db: Database,
    one: Session,
    two: Session,
    keys: ([i64; 2], i64),
}

fn set_up(protocol: Protocol) -> Stage {
    let (dir, device) = (directory(), power_cut(1));
    let db = open(dir.path(), protocol, Some(Arc::new(device.clone())));
    let (mut one, two) = sessions(&db);
    let keys = keys(&db, protocol, &mut one);
    Stage { dir, device, db, one, two, keys }
}

/// Runs two transactions, the second dependent on the first as given, and makes only the stream of
/// the second durable. Returns whether the second is then acknowledged. If so, the second must
/// survive a power cut, without the first.
fn second_before_first(protocol: Protocol, dependency: Dependency) -> bool {
    let Stage { dir, device, db, mut one, mut two, keys: ([x, y], z) } = set_up(protocol);
    let log = db.log().unwrap();
    // The numbers of stream 0 are far ahead, and the stream has stated its numbers.
    for n in 0..100 {
        drop(run(&mut one, &[x, y], &[x, y], n));
    }
    (0..db.streams()).for_each(|stream| assert!(log.step(stream) || stream > 0));

    let first = match dependency {
        WriteAfterRead => run(&mut one, &[x], &[y], 1000),
        _ => run(&mut one, &[], &[x], 1000),
    };
    let second = match dependency {
        ReadAfterWrite => run(&mut two, &[x], &[z], 2000),
        WriteAfterWrite | WriteAfterRead => run(&mut two, &[], &[x], 2000),
        Independent => run(&mut two, &[], &[z], 2000),
    };
    let last = db.streams() - 1;
    if last > 0 {
        log.step(last);
        // The first query may request a watermark from the stream.
        let _ = second.is_acknowledged().unwrap();
        log.step(last);
    }
    assert!(!first.is_acknowledged().unwrap(), "its stream is not flushed");
    let answered = second.is_acknowledged().unwrap();
    device.cut();
    // Tickets keep the log open, and hence the lock of its directory.
    drop((first, second, one, two));
    drop(db);
    let db = open(dir.path(), protocol, None);
    let written = if matches!(dependency, ReadAfterWrite | Independent) { z } else { x };
    let lost = if dependency == WriteAfterRead { y } else { x };
    if answered {
        assert_eq!(read(&db, written), Some(2000), "{protocol:?} {dependency:?}: answered");
    }
    assert_ne!(read(&db, lost), Some(1000), "{protocol:?} {dependency:?}: its record is lost");
    if dependency == ReadAfterWrite {
        assert_ne!(read(&db, z), Some(2000), "{protocol:?}: it has read what is not there");
    }
    answered
}

fn allowed(protocol: Protocol) -> Vec<Dependency> {
    let all = [ReadAfterWrite, WriteAfterWrite, WriteAfterRead, Independent];
    all.into_iter().filter(|dependency| second_before_first(protocol, *dependency)).collect()
}

/// Level 1: a transaction is not acknowledged before the transactions that it read from. A
/// transaction that overwrites a row read by another need not wait.
#[test]
fn recoverable_protocols_answer_a_writer_before_earlier_readers() {
    assert_eq!(allowed(Protocol::Taurus), [WriteAfterRead, Independent]);
    assert_eq!(allowed(TAURUS_2016), [WriteAfterRead, Independent]);
}

/// Level 2: acknowledgements follow every dependency. Independent transactions may be acknowledged
/// in any order.
#[test]
fn rigorous_protocols_answer_along_every_dependency() {
    assert_eq!(allowed(GSN), [Independent]);
    assert_eq!(allowed(PLOVER), [Independent]);
}

/// Level 3: one order for all transactions, though the transactions of an epoch are acknowledged
/// together.
#[test]
fn sequential_protocols_answer_in_one_order() {
    assert!(allowed(Protocol::Serial).is_empty());
    assert!(allowed(PHYSIOLOGICAL).is_empty());
    assert!(allowed(SILO_R).is_empty());
}

/// The last record of a stream is durable and acknowledged, and so is a reader of the record in
/// another stream. Then a bit of the first record rots, which recovery takes for a torn tail.
/// Promise: the reader is dropped too. Its record may leave out a durable dependency only if the
/// log states that the dependency is durable.
#[test]
fn rot_at_the_end_of_a_stream_takes_along_what_read_it() {
    for protocol in PARALLEL {
        let Stage { dir, device, db, mut one, mut two, keys: ([x, _], z) } = set_up(protocol);
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
        let db = open(dir.path(), protocol, None);
        assert_ne!(read(&db, x), Some(1000), "{protocol:?}: a damaged record was replayed");
        assert_ne!(read(&db, z), Some(2000), "{protocol:?}: it has read what is not there");
    }
}
