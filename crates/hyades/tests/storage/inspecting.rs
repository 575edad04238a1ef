//! Promise: the inspection tools agree with recovery on dead records, transaction counts and record
//! numbers.

use crate::common::by_hand::*;
use hyades::inspect::Inspector;
use hyades::{Concurrency, Error, Protocol, Restore, TransactionId, Until};
use hyades_schemes::{GSN, PLOVER, POPLAR, SILO_R, TAURUS_2016};
use hyades_wal::{LogOptions, ReaderEnd};
use std::path::Path;

/// The report of a tool about the log.
#[derive(Debug, Default)]
struct Seen {
    live: u64,
    dead: Vec<TransactionId>,
    /// Record numbers with the has-read flag.
    numbers: Vec<(Option<u64>, Option<bool>)>,
}

fn look(dir: &Path) -> Seen {
    let recovering = hyades_wal::open_read(LogOptions::new(vec![dir.to_owned()], 1)).unwrap();
    let mut ends: Vec<ReaderEnd> = Vec::new();
    for mut reader in recovering.readers() {
        while reader.next_chunk().unwrap().is_some() {}
        ends.push(reader.end());
    }
    let inspector = Inspector::new(recovering.manifest()).unwrap();
    let liveness = inspector.liveness(&recovering, &ends).unwrap();
    let mut seen = Seen::default();
    for mut reader in recovering.readers() {
        let incarnations = &recovering.manifest().incarnations;
        let incarnation = incarnations.iter().find(|i| i.number == reader.incarnation).unwrap();
        let mut inspect = inspector.stream(incarnation, reader.stream.0);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            inspect.enter(&chunk);
            for frame in chunk.frames() {
                let Some(record) = inspect.read(&frame).unwrap() else { continue };
                let id = TransactionId {
                    epoch: record.tid().0,
                    stream: reader.stream.0,
                    lsn: frame.end,
                };
                seen.numbers.push((record.number(), record.has_read()));
                match record.is_live(&liveness) {
                    true => seen.live += u64::from(record.counts()),
                    false if record.counts() => seen.dead.push(id),
                    false => {}
                }
            }
        }
    }
    seen
}

/// Protocols under which a session chooses the stream.
const SEVERAL_STREAMS: [Protocol; 5] = [Protocol::Taurus, TAURUS_2016, SILO_R, GSN, POPLAR];

/// T1 writes x and is lost. T2 has read x, and its record is durable.
fn reader_without_its_writer(protocol: Protocol, concurrency: Concurrency) -> CrashedDb {
    let mut world = SteppedDb::new(protocol, concurrency, 2);
    let (_, t2) = (world.t1(0), world.t2(1));
    assert!(!world.answered(t2, &[1]));
    world.crash()
}

#[test]
fn a_dead_record_is_seen_as_such_under_every_protocol() {
    for protocol in SEVERAL_STREAMS {
        for concurrency in BOTH {
            let crashed = reader_without_its_writer(protocol, concurrency);
            let seen = look(crashed.dir.path());
            assert_eq!(seen.dead.len(), 1, "{protocol:?}: {seen:?}");
            let numbered = ![Protocol::Taurus, TAURUS_2016].contains(&protocol);
            assert!(seen.numbers.iter().all(|(n, _)| n.is_some() == numbered), "{seen:?}");
            if protocol == POPLAR {
                assert!(seen.numbers.contains(&(seen.numbers.last().unwrap().0, Some(true))));
                assert!(seen.numbers.iter().any(|(_, read)| *read == Some(false)));
            }
            // A restore to or before a dead transaction must fail.
            let to = crashed.dir.path().with_extension("restored");
            for until in [Until::Transaction(seen.dead[0]), Until::Before(seen.dead[0])] {
                let from = vec![crashed.dir.path().to_owned()];
                let how = Restore::new(from, &to).until(until);
                let error = builder(protocol, concurrency, 2).restore(&how).unwrap_err();
                assert!(matches!(&error, Error::Misuse(_)), "{protocol:?}: {error}");
                assert!(error.to_string().contains("lost in a crash"), "{protocol:?}: {error}");
                assert!(!to.exists(), "{protocol:?}");
            }
            let db = builder(protocol, concurrency, 2).open(crashed.dir.path()).unwrap();
            let recovered = db.recovery();
            assert_eq!((recovered.records, recovered.dead), (seen.live, 1), "{protocol:?}");
        }
    }
}

/// The rows of one transaction go to several streams, with a record in each. The transaction counts
/// as one.
#[test]
fn a_transaction_of_several_records_is_counted_once() {
    let dir = crate::common::directory();
    let open = || builder(PLOVER, Concurrency::Silo, 4).open(dir.path()).unwrap();
    let db = open();
    for round in 0..20i64 {
        db.try_transact(|tx| (0..16).try_for_each(|id| put(tx, id, round))).unwrap().unwrap();
    }
    db.close().unwrap();
    let seen = look(dir.path());
    assert!(seen.numbers.len() > 40, "{}", seen.numbers.len());
    assert_eq!((seen.live, seen.dead.len()), (20, 0));
    assert_eq!(open().recovery().records, 20);
}
