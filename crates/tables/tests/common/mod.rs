//! Databases that crash, and a row type, for the tests.
#![allow(dead_code, reason = "each test file uses a part of this")]

use hyades::Table;
use hyades_deuteronomy::{DataComponent, Database, LogOptions, MemoryData, Options};
use hyades_platform::device::{Device, MemoryDevice};
use std::sync::Arc;

/// The log and the data component of a database, over its crashes.
pub struct World {
    dir: tempfile::TempDir,
    data: Arc<MemoryData>,
    /// The device of the log.
    pub device: Arc<dyn Device>,
    pub memory_bytes: usize,
}

impl World {
    pub fn new() -> Self {
        let data = Arc::new(MemoryData::outliving());
        let (dir, device) = (tempfile::tempdir().unwrap(), MemoryDevice::shared());
        Self { dir, data, device, memory_bytes: 16 << 20 }
    }

    /// The options of an opening.
    pub fn options(&self) -> Options {
        let mut log = LogOptions::new(vec![self.dir.path().to_owned()], 2);
        log.device = Arc::clone(&self.device);
        log.buffer_bytes = 1 << 20;
        log.segment_bytes = 4 << 20;
        let mut options = Options::new(log);
        options.memory_bytes = self.memory_bytes;
        options
    }

    pub fn open(&self) -> Database {
        self.open_over(Arc::clone(&self.data) as Arc<dyn DataComponent>)
    }

    pub fn open_over(&self, data: Arc<dyn DataComponent>) -> Database {
        Database::open(self.options(), data).unwrap()
    }

    pub fn data(&self) -> Arc<MemoryData> {
        Arc::clone(&self.data)
    }

    /// Crashes: the database ends without being closed, and the data component keeps its last
    /// checkpoint and a part of the later operations.
    pub fn crash(&mut self, database: Database, rng: &mut fastrand::Rng) {
        drop(database);
        let kept = rng.f64();
        self.data = Arc::new(self.data.after_crash(|| rng.f64() < kept));
    }
}

/// A row with an index of each kind: plain, unique and nullable, of several columns.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(index(by_group_and_score(group, score)))]
pub struct Player {
    #[key]
    pub id: u32,
    pub group: String,
    pub score: i64,
    #[unique]
    pub mail: Option<String>,
    pub picture: Vec<u8>,
}

/// Two columns of the same table without indexes.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "player")]
pub struct PlainPlayer {
    #[key]
    pub id: u32,
    pub group: String,
    pub score: i64,
    pub mail: Option<String>,
    pub picture: Vec<u8>,
}

impl Player {
    /// The row of a key, otherwise at random: of few groups, scores and mails.
    pub fn random(id: u32, rng: &mut fastrand::Rng) -> Self {
        let len = match rng.u8(0..10) {
            0 => rng.usize(0..100_000),
            _ => rng.usize(0..20),
        };
        Self {
            id,
            group: ["", "a", "a\0b", "b"][rng.usize(0..4)].into(),
            score: rng.i64(-3..3),
            mail: rng.bool().then(|| format!("{}@example.org", rng.u8(0..40))),
            picture: vec![rng.u8(..); len],
        }
    }

    pub fn plain(&self) -> PlainPlayer {
        let Self { id, group, score, mail, picture } = self.clone();
        PlainPlayer { id, group, score, mail, picture }
    }
}
