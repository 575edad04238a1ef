//! Timestamps near the end.

use super::{content, options_of_small_buffers, refusal};
use hyades_deuteronomy::{DataComponent, Database, Error, MemoryData, ResumePoint};
use std::path::Path;
use std::sync::Arc;

/// The highest timestamp allowed in a record.
const HIGHEST: u64 = 1 << 61;
/// Sessions with a higher timestamp seen begin no transaction.
const LAST: u64 = HIGHEST - (1 << 16);

/// A data component with the timestamp `highest_ts` in its resume point, and the keys of its log.
fn at(dir: &Path, highest_ts: u64) -> Arc<MemoryData> {
    let data = Arc::new(MemoryData::outliving());
    let database = open(dir, &data).unwrap();
    database.session().unwrap().execute(|tx| tx.put(b"old", b"1")).unwrap();
    database.close().unwrap();
    let point = data.resume_point().unwrap().unwrap();
    data.checkpoint(&ResumePoint { highest_ts, ..point }).unwrap();
    data
}

fn open(dir: &Path, data: &Arc<MemoryData>) -> Result<Database, Error> {
    let mut options = options_of_small_buffers(dir, 2);
    options.sessions = 8;
    Database::open(options, Arc::clone(data) as Arc<dyn DataComponent>)
}

#[test]
fn a_database_at_the_last_timestamp_is_not_opened_and_one_before_it_is() {
    for (highest_ts, opens) in [
        (LAST - 2, true),
        (LAST - 1, true),
        (LAST, false),
        (LAST + 1, false),
        (HIGHEST - 1, false),
        (HIGHEST, false),
        (HIGHEST + 1, false),
        (u64::MAX, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let data = at(dir.path(), highest_ts);
        match open(dir.path(), &data) {
            Ok(database) => {
                assert!(opens, "{highest_ts}");
                let mut session = database.session().unwrap();
                let tx = session.begin().unwrap();
                assert_eq!(tx.timestamp(), highest_ts + 1);
            }
            Err(error) => {
                let wrong = error.to_string();
                assert!(!opens && wrong.contains("damaged"), "{highest_ts}: {wrong}");
            }
        }
        assert_eq!(data.content().len(), 1, "it was left as it is");
    }
}

#[test]
fn no_transaction_begins_behind_the_last_timestamp_and_all_before_it_can_be_read_again() {
    for sessions in [1, 2, 8] {
        let dir = tempfile::tempdir().unwrap();
        let data = at(dir.path(), LAST - 4);
        let database = open(dir.path(), &data).unwrap();
        let mut sessions: Vec<_> = (0..sessions).map(|_| database.session().unwrap()).collect();
        let (mut highest, mut committed) = (0, 0);
        for turn in 0..20 {
            for session in &mut sessions {
                let begun = session.submit(|tx| {
                    highest = highest.max(tx.timestamp());
                    tx.put(&tx.timestamp().to_be_bytes(), b"1")
                });
                match begun {
                    Ok(_) => committed += 1,
                    Err(Error::Timestamps) => assert!(highest >= LAST, "{highest} in {turn}"),
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!((LAST..LAST + sessions.len() as u64).contains(&highest), "{highest}");
        assert_eq!(committed, highest - (LAST - 4));
        // A new session begins none, either; but all can be read.
        let mut late = match sessions.len() {
            8 => sessions.pop().unwrap(),
            _ => database.session().unwrap(),
        };
        assert!(matches!(late.begin().map(drop), Err(Error::Timestamps)));
        let mut snapshot = late.snapshot().unwrap();
        assert_eq!(snapshot.get(b"old").unwrap().as_deref(), Some(&b"1"[..]));
        let written = snapshot.get(&highest.to_be_bytes()).unwrap();
        assert_eq!(written.as_deref(), Some(&b"1"[..]));
        snapshot.end().wait().unwrap();
        drop((late, sessions));
        match committed % 2 {
            0 => drop(database),
            _ => database.close().unwrap(),
        }
        // The records and the resume point are sound: only the lack of a timestamp is wrong.
        let wrong = refusal(open(dir.path(), &Arc::new(data.after_crash(|| true))));
        assert!(wrong.contains(&format!("states the timestamp {highest}")), "{wrong}");
    }
}

/// A refusal leaves nothing behind to prevent the database from going on.
#[test]
fn a_right_resume_point_opens_the_database_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = at(dir.path(), 7);
    let right = data.resume_point().unwrap().unwrap();
    data.checkpoint(&ResumePoint { highest_ts: LAST, ..right.clone() }).unwrap();
    drop(refusal(open(dir.path(), &data)));
    data.checkpoint(&right).unwrap();
    let database = open(dir.path(), &data).unwrap();
    let mut session = database.session().unwrap();
    session.execute(|tx| tx.put(b"new", b"1")).unwrap();
    assert_eq!(content(&mut session).len(), 2);
}
