//! A database for tests, which run transactions over its keys and blocks.

use super::Tables;
use super::blocks::BlockTable;
use super::collections::remove_garbage;
use super::counts::KeyCounts;
use super::keyspace::{Context, Effects, Keyspace, Stop};
use crate::config::PackedLimits;
use hyades::{Column, Columns, Database};
use std::cell::RefCell;

/// A database, removed at the end.
pub(super) struct Stored {
    _dir: tempfile::TempDir,
    pub database: Database,
    pub tables: Tables,
    counts: KeyCounts,
}

impl Stored {
    pub fn new() -> Stored {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        Stored { _dir: dir, database, tables, counts: KeyCounts::default() }
    }

    /// Runs a transaction over the blocks.
    pub fn run<T>(&self, mut body: impl FnMut(BlockTable<'_>) -> Result<T, Stop>) -> T {
        self.run_keys(100, |space| body(space.blocks()))
    }

    /// Runs a transaction over the keys of a database, with at most this many entries in a node of
    /// a stream.
    pub fn run_keys<T>(
        &self,
        node_entries: usize,
        mut body: impl FnMut(&Keyspace<'_>) -> Result<T, Stop>,
    ) -> T {
        let packed = PackedLimits {
            hash: 128,
            set: 128,
            sorted_set: 128,
            list: 128,
            sparse_sketch: 3_000,
            node_entries,
            node_bytes: 4096,
        };
        let done = self.database.transact(|tx| {
            let effects = RefCell::new(Effects::default());
            let context = Context {
                names_filled: false,
                has_waited: false,
                events: Default::default(),
                tracks: false,
                tables: self.tables,
                now_ms: 1,
                databases: 16,
                longest: 1 << 29,
                packed,
                counts: &self.counts,
                effects: &effects,
                is_exec: false,
                is_script: false,
                is_patient: true,
                only_reads: false,
                is_import: false,
            };
            match body(&Keyspace::open(*tx, context, 0)?) {
                Ok(value) => Ok(value),
                Err(Stop::Abort(abort)) => Err(abort.into()),
                Err(Stop::Error(text) | Stop::ErrorKept(text)) => panic!("{text}"),
            }
        });
        done.unwrap()
    }

    /// Removes all garbage.
    pub fn collect_garbage(&self) {
        let mut session = self.database.session().unwrap();
        while remove_garbage(&mut session, self.tables).unwrap() {}
    }

    /// Counts and lengths of the bodies of all blocks.
    pub fn blocks(&self) -> Vec<(u32, usize)> {
        let (count, body) = (Column::<u32>::at(2), Column::<[u8]>::at(3));
        let mut found = Vec::new();
        let snapshot = self.database.open_snapshot();
        snapshot
            .for_each(self.tables.blocks, Columns::ALL, |row| {
                found.push((row.get(count), row.get(body).len()));
            })
            .unwrap();
        found
    }
}
