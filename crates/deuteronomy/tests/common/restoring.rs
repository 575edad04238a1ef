//! Databases with backups, and their states at each timestamp.
#![allow(dead_code)]

use hyades_deuteronomy::{DataComponent, Database, Error, LogOptions, Options, RedbData};
use hyades_deuteronomy::{Restore, Restored, Until};
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn options(dir: &Path, streams: usize) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], streams);
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    let mut options = Options::new(log);
    options.redo_bytes = 1 << 18;
    options
}

pub fn redb(path: &Path) -> Arc<RedbData> {
    Arc::new(RedbData::open(path, 1 << 20).unwrap())
}

pub fn rows(database: &Database) -> Rows {
    let mut session = database.session().unwrap();
    let rows = session.execute(|tx| tx.scan(Unbounded, Unbounded, usize::MAX)).unwrap();
    rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

pub fn is_refused(result: Result<impl Sized, Error>, why: &str) {
    let error = result.err().expect("it is refused").to_string();
    assert!(error.contains(why), "{error}");
}

/// Runs transactions on a few keys; returns the state behind each timestamp.
pub fn history(database: &Database, from: Rows, transactions: usize) -> Vec<(u64, Rows)> {
    let mut rng = fastrand::Rng::with_seed(transactions as u64);
    let (mut session, mut now) = (database.session().unwrap(), from);
    let run = |_| {
        let key = vec![rng.u8(..20)];
        let value = (rng.u8(..3) > 0).then(|| vec![rng.u8(..); rng.usize(..200)]);
        let ts = session.execute(|tx| {
            match &value {
                Some(value) => tx.put(&key, value)?,
                None => tx.delete(&key)?,
            }
            Ok::<_, Error>(tx.timestamp())
        });
        match value {
            Some(value) => now.insert(key, value),
            None => now.remove(&key),
        };
        (ts.unwrap(), now.clone())
    };
    (0..transactions).map(run).collect()
}

/// Restores a log with its data, without a continuation.
pub fn restore(
    log: &[PathBuf],
    data: &dyn DataComponent,
    until: Until,
    dir: impl AsRef<Path>,
    into: &dyn DataComponent,
) -> Result<Restored, Error> {
    Restore::new(log.to_vec(), data).until(until).run(dir, into)
}
