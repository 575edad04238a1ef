//! Transactions with writes logged in parts: transactions larger than a frame of the log, and all
//! transactions where writes are logged at once.
#![allow(missing_docs)]

use hyades_deuteronomy::{
    DataComponent, Database, Error, LogOptions, MemoryData, Options, ReaderRecords, ResumePoint,
    UpdateLogging,
};
use hyades_platform::device::MemoryDevice;
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BUFFER: usize = 1 << 16;
const BOTH: [UpdateLogging; 2] = [UpdateLogging::AtCommit, UpdateLogging::AtOnce];
/// The most overhead of a key of one byte and its value in a part.
const BESIDE: usize = 30;

fn open(dir: &Path, logging: UpdateLogging, data: &Arc<MemoryData>) -> Database {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = BUFFER;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.update_logging = logging;
    Database::open(options, Arc::clone(data) as Arc<dyn DataComponent>).unwrap()
}

fn content(database: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut session = database.session().unwrap();
    let rows = session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap();
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn a_transaction_larger_than_the_buffer_is_recovered_whole() {
    for logging in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let database = open(dir.path(), logging, &Arc::new(MemoryData::new()));
        let mut session = database.session().unwrap();
        session
            .execute(|tx| {
                for key in 0..400u32 {
                    tx.put(&key.to_be_bytes(), &vec![key as u8; 1000])?;
                }
                // Written again, and deleted: the last counts.
                tx.put(&7u32.to_be_bytes(), b"again")?;
                tx.delete(&9u32.to_be_bytes())
            })
            .unwrap();
        let before = content(&database);
        assert_eq!((before.len(), &before[&7u32.to_be_bytes()[..]][..]), (399, &b"again"[..]));
        drop((session, database));
        let database = open(dir.path(), logging, &Arc::new(MemoryData::new()));
        assert_eq!(database.recovered().transactions, 1, "{logging:?}");
        assert_eq!(content(&database), before, "{logging:?}");
    }
}

#[test]
fn a_write_fits_up_to_a_frame_and_not_beyond() {
    for logging in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let database = open(dir.path(), logging, &Arc::new(MemoryData::new()));
        let (mut session, limit) = (database.session().unwrap(), database.log().max_payload());
        let longest = limit - BESIDE - 1;
        for (len, fits) in [(longest - 1, true), (longest, true), (longest + 1, false)] {
            let written = session.execute(|tx| {
                tx.put(b"a", &vec![1; len])?;
                tx.put(b"b", &vec![2; len])
            });
            match written {
                Ok(()) => assert!(fits, "{len}, {logging:?}"),
                Err(Error::WriteTooLarge(found, most)) => {
                    assert_eq!((fits, found, most), (false, limit + 1, limit), "{logging:?}");
                }
                Err(other) => panic!("{len}, {logging:?}: {other}"),
            }
        }
        let before = content(&database);
        assert_eq!(before[&b"b"[..]].len(), longest);
        drop((session, database));
        let database = open(dir.path(), logging, &Arc::new(MemoryData::new()));
        assert_eq!(content(&database), before, "{logging:?}");
    }
}

/// Whether the largest content of a record, and one byte more, are recovered.
#[test]
fn a_transaction_of_exactly_a_frame_and_of_a_byte_more_is_recovered() {
    for more in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let database = open(dir.path(), UpdateLogging::AtCommit, &Arc::new(MemoryData::new()));
        let (mut session, limit) = (database.session().unwrap(), database.log().max_payload());
        session
            .execute(|tx| {
                tx.put(b"a", &vec![1; limit / 2])?;
                tx.put(b"b", &vec![2; limit / 2 - 40 + more])
            })
            .unwrap();
        let before = content(&database);
        drop((session, database));
        let database = open(dir.path(), UpdateLogging::AtCommit, &Arc::new(MemoryData::new()));
        assert_eq!(content(&database), before, "{more}");
    }
}

#[test]
fn what_has_not_committed_is_not_recovered_though_its_parts_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), UpdateLogging::AtOnce, &Arc::new(MemoryData::new()));
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let mut open_one = one.begin().unwrap();
    open_one.put(b"a", b"1").unwrap();
    let mut aborted = two.begin().unwrap();
    aborted.put(b"b", b"1").unwrap();
    aborted.abort().wait().unwrap();
    two.execute(|tx| tx.put(b"c", b"1")).unwrap();
    database.log().flush().unwrap();
    drop(open_one);
    drop((one, two, database));
    let database = open(dir.path(), UpdateLogging::AtOnce, &Arc::new(MemoryData::new()));
    assert_eq!(content(&database).into_keys().collect::<Vec<_>>(), [b"c"]);
}

/// A checkpoint while a transaction has logged a part but no record.
#[test]
fn a_resume_point_is_never_between_the_parts_of_what_is_not_applied() {
    let dir = tempfile::tempdir().unwrap();
    let data = Arc::new(MemoryData::outliving());
    let database = open(dir.path(), UpdateLogging::AtOnce, &data);
    let (mut one, mut two) = (database.session().unwrap(), database.session().unwrap());
    let mut long = one.begin().unwrap();
    long.put(b"early", b"1").unwrap();
    for turn in 0..200u32 {
        two.execute(|tx| tx.put(&turn.to_be_bytes(), &[7; 500])).unwrap();
    }
    database.checkpoint().unwrap();
    long.put(b"late", b"1").unwrap();
    let ticket = long.commit().unwrap();
    ticket.wait().unwrap();
    // The data component keeps only the operations made stable by the checkpoint.
    drop((one, two, database));
    let data = Arc::new(data.after_crash(|| false));
    let database = open(dir.path(), UpdateLogging::AtOnce, &data);
    let content = content(&database);
    assert!(content.contains_key(&b"early"[..]) && content.contains_key(&b"late"[..]));
    assert_eq!(content.len(), 202);
}

/// A log written in one way is opened in the other.
#[test]
fn both_ways_recover_to_the_same_state() {
    let mut found = Vec::new();
    for ways in [[BOTH[0], BOTH[1]], [BOTH[1], BOTH[0]]] {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        for way in ways {
            let database = open(dir.path(), way, &Arc::new(MemoryData::new()));
            let mut session = database.session().unwrap();
            for _ in 0..300 {
                session
                    .execute(|tx| {
                        for _ in 0..rng.usize(1..6) {
                            let key = [rng.u8(..40)];
                            match rng.u8(..8) {
                                0 => tx.delete(&key)?,
                                _ => tx.put(&key, &vec![rng.u8(..); rng.usize(..200)])?,
                            }
                        }
                        Ok::<_, Error>(())
                    })
                    .unwrap();
            }
        }
        let database = open(dir.path(), ways[0], &Arc::new(MemoryData::new()));
        found.push(content(&database));
    }
    assert_eq!(found[0], found[1]);
    assert!(found[0].len() > 20);
}

#[test]
fn readers_log_as_the_options_say_and_nothing_else_differs() {
    for (records, expected) in
        [(ReaderRecords::Never, 0), (ReaderRecords::IfNeeded, 0), (ReaderRecords::Always, 5)]
    {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
        log.device = MemoryDevice::shared();
        let mut options = Options::new(log);
        options.reader_records = records;
        let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
        let mut session = database.session().unwrap();
        session.execute(|tx| tx.put(b"a", b"1")).unwrap();
        let before = database.log().stats(0).frame_bytes;
        for _ in 0..5 {
            // The version read is durable.
            let read = session.execute(|tx| tx.get(b"a")).unwrap();
            assert_eq!(read.as_deref(), Some(&b"1"[..]));
        }
        database.log().flush().unwrap();
        let logged = database.log().stats(0).frame_bytes - before;
        // The proxy may have logged a time mark meanwhile, of 18 bytes.
        let (least, most) = (5 * expected, if expected == 0 { 18 } else { u64::MAX });
        assert!((least..=most).contains(&logged), "{records:?}: {logged} bytes");
    }
}

/// The parts of a transaction without a record stay in the log, with the timestamp.
#[test]
fn no_timestamp_of_a_part_is_given_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path(), UpdateLogging::AtOnce, &Arc::new(MemoryData::new()));
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    let mut unfinished = session.begin().unwrap();
    unfinished.put(b"b", b"1").unwrap();
    let ts = unfinished.timestamp();
    database.log().flush().unwrap();
    drop(unfinished);
    drop((session, database));
    let database = open(dir.path(), UpdateLogging::AtOnce, &Arc::new(MemoryData::new()));
    let next = database.session().unwrap().begin().unwrap().timestamp();
    assert!(next > ts, "{next} after {ts}");
}

/// A record of a read-only transaction does not count as applied again.
#[test]
fn readers_do_not_count_as_redone() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogOptions::new(vec![dir.path().to_owned()], 1);
    log.device = MemoryDevice::shared();
    let mut options = Options::new(log);
    options.reader_records = ReaderRecords::Always;
    let database = Database::open(options.clone(), Arc::new(MemoryData::new())).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"a", b"1")).unwrap();
    (0..5).for_each(|_| drop(session.execute(|tx| tx.get(b"a")).unwrap()));
    drop((session, database));
    let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
    let recovered = database.recovered();
    assert_eq!((recovered.transactions, recovered.keys), (1, 1), "{recovered:?}");
}

/// Waits until the data component has a resume point of a checkpoint, behind the opening's, with
/// nothing else going on.
fn gets_a_checkpoint(data: &MemoryData, opened: &ResumePoint) {
    let until = Instant::now() + Duration::from_secs(60);
    while data.resume_point().unwrap().unwrap() == *opened {
        assert!(Instant::now() < until, "no checkpoint is taken");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Commits are applied at once, with or without an older active transaction.
fn open_with_little_redo(dir: &Path, streams: usize, data: &Arc<MemoryData>) -> Database {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.device = MemoryDevice::shared();
    log.buffer_bytes = BUFFER;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.update_logging = UpdateLogging::AtOnce;
    options.redo_bytes = 4000;
    options.lag_bytes = 0;
    Database::open(options, Arc::clone(data) as Arc<dyn DataComponent>).unwrap()
}

#[test]
fn the_log_of_transactions_that_abort_is_truncated() {
    let (dir, data) = (tempfile::tempdir().unwrap(), Arc::new(MemoryData::outliving()));
    let database = open_with_little_redo(dir.path(), 2, &data);
    let opened = data.resume_point().unwrap().unwrap();
    let mut session = database.session().unwrap();
    for _ in 0..1000 {
        let mut tx = session.begin().unwrap();
        tx.put(b"a", &[1; 500]).unwrap();
        drop(tx.abort());
    }
    gets_a_checkpoint(&data, &opened);
    let covered = database.log().manifest().checkpoint.expect("the log is truncated").streams;
    assert!(covered.iter().any(|stream| stream.from > 0), "{covered:?}");
}

#[test]
fn a_checkpoint_that_a_transaction_has_held_back_is_taken_when_that_aborts() {
    let (dir, data) = (tempfile::tempdir().unwrap(), Arc::new(MemoryData::outliving()));
    let database = open_with_little_redo(dir.path(), 1, &data);
    let opened = data.resume_point().unwrap().unwrap();
    let mut sessions = [database.session().unwrap(), database.session().unwrap()];
    let [one, two] = &mut sessions;
    let mut long = one.begin().unwrap();
    long.put(b"long", b"1").unwrap();
    for key in 0..100u32 {
        two.execute(|tx| tx.put(&key.to_be_bytes(), &[1; 500])).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    while data.items() < 100 {
        assert!(Instant::now() < until, "it is not applied");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The proxy has nothing to do any more.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(data.resume_point().unwrap().unwrap(), opened, "redo would miss a part");
    drop(long.abort());
    gets_a_checkpoint(&data, &opened);
}
