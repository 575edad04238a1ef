//! Copies of a log and of a data component, taken at different times, or of different databases,
//! opened together.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades_deuteronomy::{DataComponent, Database, Error, LogOptions, MemoryData, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The keys written in each half of a history.
pub const KEYS: u8 = 100;

/// The copy of a log, or of a data component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Newer,
    Older,
    Missing,
    /// Of another database.
    Foreign,
}

/// How the copies came about.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The older copies are of the same opening as the newer copies; otherwise of the opening
    /// before.
    pub within_one: bool,
    /// The data component's copy has all applied operations; otherwise only the stable operations.
    pub keeps_applied: bool,
    /// The log was truncated, by a checkpoint, before each copy.
    pub truncates: bool,
}

/// A copy of a database: the log, and the data component.
struct DatabaseCopy {
    log: PathBuf,
    data: MemoryData,
}

/// The copies of a history.
pub struct Copies {
    dir: TempDir,
    older: DatabaseCopy,
    newer: DatabaseCopy,
    foreign: DatabaseCopy,
}

fn options(dir: &Path) -> Options {
    let mut log = LogOptions::new(vec![dir.to_owned()], 2);
    log.buffer_bytes = 1 << 16;
    log.segment_bytes = 1 << 18;
    log.stepped = true;
    Options::new(log)
}

pub fn open(log: &Path, data: &Arc<MemoryData>) -> Result<Database, Error> {
    Database::open(options(log), Arc::clone(data) as Arc<dyn DataComponent>)
}

fn copy(from: &Path, to: PathBuf) -> PathBuf {
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => drop(copy(&entry.path(), target)),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
    to
}

/// Writes a value to all keys, acknowledged; and hands the writes to the data component.
pub fn write_all(database: &Database, value: u8) {
    let mut session = database.session().unwrap();
    for key in 0..KEYS {
        let (_, ticket) = session.submit(|tx| tx.put(&[key], &[value])).unwrap();
        (0..2).for_each(|stream| while database.log().step(stream) {});
        ticket.wait().unwrap();
    }
    assert!(database.step_proxy().unwrap());
}

/// The value of all keys; None if there is none.
pub fn value_of_all(database: &Database) -> Option<u8> {
    let mut session = database.session().unwrap();
    let read = |key| session.execute(|tx| tx.get(&[key])).unwrap().map(|value| value[0]);
    let values: Vec<Option<u8>> = (0..KEYS).map(read).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    values[0]
}

impl History {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self {
            within_one: bits & 1 == 0,
            keeps_applied: bits & 2 == 0,
            truncates: bits & 4 != 0,
        })
    }

    fn copy(&self, log: &Path, data: &MemoryData, to: PathBuf) -> DatabaseCopy {
        DatabaseCopy { log: copy(log, to), data: data.after_crash(|| self.keeps_applied) }
    }

    /// All keys have 1 in the older copies, 2 in the newer copies, and 3 in the other database.
    pub fn run(&self) -> Copies {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let checkpoint = |database: &Database| {
            if self.truncates {
                database.checkpoint().unwrap();
            }
        };
        let mut data = Arc::new(MemoryData::outliving());
        let mut database = open(&at("log"), &data).unwrap();
        write_all(&database, 1);
        checkpoint(&database);
        let older = self.copy(&at("log"), &data, at("older"));
        if !self.within_one {
            drop(database);
            data = Arc::new(data.after_crash(|| self.keeps_applied));
            database = open(&at("log"), &data).unwrap();
        }
        write_all(&database, 2);
        checkpoint(&database);
        let newer = self.copy(&at("log"), &data, at("newer"));
        let other = Arc::new(MemoryData::outliving());
        let database = open(&at("other"), &other).unwrap();
        write_all(&database, 3);
        checkpoint(&database);
        let foreign = self.copy(&at("other"), &other, at("foreign"));
        Copies { dir, older, newer, foreign }
    }
}

impl Copies {
    fn of(&self, part: Part) -> Option<&DatabaseCopy> {
        match part {
            Part::Newer => Some(&self.newer),
            Part::Older => Some(&self.older),
            Part::Missing => None,
            Part::Foreign => Some(&self.foreign),
        }
    }

    /// Copies of a log and of a data component, to be opened together.
    pub fn mix(&self, log: Part, data: Part) -> (TempDir, Arc<MemoryData>) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(source) = self.of(log) {
            copy(&source.log, dir.path().to_owned());
        }
        let data = self
            .of(data)
            .map_or_else(MemoryData::outliving, |source| source.data.after_crash(|| true));
        (dir, Arc::new(data))
    }
}

/// Whether a log from before the last opening of its data component is accepted, if nothing of the
/// last opening has reached the data component.
pub fn accepts_a_log_of_an_earlier_opening() -> bool {
    let history = History { within_one: false, keeps_applied: false, truncates: false };
    let (log, data) = history.run().mix(Part::Older, Part::Newer);
    open(log.path(), &data).is_ok()
}

/// Whether a log older than its data component's content is accepted.
pub fn accepts_a_log_that_is_older() -> bool {
    let history = History { within_one: true, keeps_applied: true, truncates: false };
    let (log, data) = history.run().mix(Part::Older, Part::Newer);
    open(log.path(), &data).is_ok()
}
