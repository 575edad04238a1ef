//! A service that speaks the protocol of S3, named by `HYADES_SLATEDB_URL`, as `s3://bucket`, and
//! the variables of `SlateData::open_url`. Run by `scripts/slatedb-tests.sh`.
#![allow(missing_docs)]
#![cfg(feature = "aws")]

mod common;

use common::{assert_answers_as_memory, everything, point, small_tables};
use hyades_deuteronomy::{DataComponent, Database, LogOptions, Operation, Options};
use hyades_deuteronomy_slatedb::{SlateData, SlateOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A path without a database, in the service's bucket.
fn new_path(test: &str) -> (String, String) {
    let url = std::env::var("HYADES_SLATEDB_URL").expect("HYADES_SLATEDB_URL names a bucket");
    (url, format!("{test}-{:x}", fastrand::Rng::new().u64(..)))
}

#[test]
fn it_answers_as_the_data_component_in_memory_does() {
    let (url, path) = new_path("answers");
    // Requests that reach a network are fewer.
    let mut options = small_tables().compaction_poll(Duration::from_millis(200));
    options.settings.manifest_poll_interval = Duration::from_millis(200);
    let data = SlateData::open_url(&url, &path, options).unwrap();
    assert_answers_as_memory(&data, 300);
}

#[test]
fn a_process_whose_database_was_opened_elsewhere_makes_nothing_stable_any_more() {
    let (url, path) = new_path("fenced");
    let open = || SlateData::open_url(&url, &path, SlateOptions::default()).unwrap();
    let put = |data: &SlateData, key: &[u8], ts| {
        data.apply(&[Operation { key, ts, value: Some(b"value") }])
    };
    let first = open();
    put(&first, b"a", 1).unwrap();
    first.checkpoint(&point(1)).unwrap();
    let second = open();
    let _ = put(&first, b"a", 9);
    let error = first.checkpoint(&point(9)).unwrap_err().to_string();
    assert!(error.contains("another process has opened the database"), "{error}");
    put(&second, b"b", 2).unwrap();
    second.checkpoint(&point(2)).unwrap();
    drop((first, second));
    let third = open();
    assert_eq!(third.resume_point().unwrap(), Some(point(2)));
    assert_eq!((third.highest_ts().unwrap(), everything(&third).len()), (2, 2));
}

#[test]
fn a_database_is_there_again_without_a_close() {
    let (dir, (url, path)) = (tempfile::tempdir().unwrap(), new_path("reopened"));
    let open = |dir: &Path| {
        let data = SlateData::open_url(&url, &path, SlateOptions::default()).unwrap();
        let mut options = Options::new(LogOptions::new(vec![dir.to_owned()], 2));
        (options.memory_bytes, options.redo_bytes) = (256 << 10, 64 << 10);
        Database::open(options, Arc::new(data)).unwrap()
    };
    for round in 1..4u32 {
        let database = open(dir.path());
        let mut session = database.session().unwrap();
        for key in 0..1000u32 {
            let value = session.execute(|tx| {
                let value = tx.get(&key.to_be_bytes())?.map(|value| value.to_vec());
                tx.put(&key.to_be_bytes(), &[round as u8; 400])?;
                Ok::<_, hyades_deuteronomy::Error>(value)
            });
            let expected = (round > 1).then(|| vec![round as u8 - 1; 400]);
            assert_eq!(value.unwrap(), expected, "key {key} in round {round}");
        }
        drop((session, database));
    }
    open(dir.path()).close().unwrap();
}

#[test]
fn a_wrong_bucket_is_an_error_that_says_what_to_look_at() {
    let (url, path) = new_path("nowhere");
    let options = SlateOptions::default().read_patience(Duration::from_secs(5));
    let error = SlateData::open_url(&format!("{url}-that-is-not-there"), &path, options);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("while opening"), "{error}");
}
