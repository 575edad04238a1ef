//! YCSB on other stores of keys and values by themselves, to compare a transaction component with:
//! the same keys, values and accesses, each transaction serializable, and acknowledged when it is
//! durable.
//!
//! A store is to show what it can do, so it is driven in the way that serves it best:
//!
//! - A commit that is durable costs a sync, whatever it holds. So the transactions that are in
//!   flight, `--in-flight` of each worker, share commits (`groups.rs`). One commit for each
//!   transaction, the usual way, would be slower by orders of magnitude.
//! - redb and LMDB have one writer at a time, which fjall and RocksDB need, too, if their
//!   transactions are to be serializable. So a worker that gets to write runs the transactions of
//!   all that wait, one after the other, with one commit at the end: there are no conflicts, and
//!   nothing is checked.
//! - Transactions that only read run in parallel, a group of them in one snapshot, which is durable
//!   already. They are handed references into the store's memory and copy nothing.
//! - redb commits in one phase, its default. fjall and RocksDB write a group as one batch, which
//!   has each key once; fjall syncs data, not metadata. LMDB has its default flags: it syncs each
//!   commit.
//!
//! How many transactions in flight and how many workers serve a store best is for the caller to
//! find: `scripts/beside-stores.py` tries several.

#[cfg(feature = "fjall")]
mod fjall;
mod groups;
mod hash_map;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(any(feature = "redb", feature = "fjall", feature = "lmdb", feature = "rocksdb"))]
mod snapshot;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
mod written;

use super::choices::{Concurrency, Engine};
use super::deuteronomy::{KeyAccesses, KeysAndValues, fill};
use super::outcome::{Ran, report_of};
use super::report::Load;
use super::settings::Settings;
use super::ycsb::Ycsb;
use hyades_cli::failure::Failure;
use hyades_cli::progress::Bar;
use hyades_cli::units;
use std::path::Path;
use std::time::Instant;

/// Keys that the load writes with one commit.
const LOADED_AT_ONCE: u64 = 16 << 10;

/// Keys and values of a store, within a transaction of it.
type StoreView<'v> = dyn KeysAndValues<Error = Failure> + 'v;

/// What runs transactions on a view of a store.
type StoreBody<'b> = dyn FnMut(&mut StoreView<'_>) -> Result<(), Failure> + 'b;

/// A store that is driven by itself.
trait GroupedStore: Send + Sync {
    /// Runs transactions that only read, on one state of the store. All of that is durable, and it
    /// has all that was written before the call.
    fn read_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure>;

    /// Runs transactions one after the other. What they have written is durable when this returns,
    /// and after a crash there as a whole or not at all. One call at a time.
    fn write_all(&self, body: &mut StoreBody<'_>) -> Result<(), Failure>;
}

/// Opens the store in this directory.
fn open(engine: Engine, dir: &Path, cache: u64) -> Result<Box<dyn GroupedStore>, Failure> {
    let what = format!("cannot make {}", dir.display());
    if engine.has_files() {
        std::fs::create_dir_all(dir).map_err(Failure::doing(what))?;
    }
    match engine {
        #[cfg(feature = "redb")]
        Engine::Redb => Ok(Box::new(redb::RedbStore::open(dir, cache)?)),
        #[cfg(feature = "fjall")]
        Engine::Fjall => Ok(Box::new(fjall::FjallStore::open(dir, cache)?)),
        #[cfg(feature = "lmdb")]
        Engine::Lmdb => Ok(Box::new(lmdb::LmdbStore::open(dir)?)),
        #[cfg(feature = "rocksdb")]
        Engine::RocksDb => Ok(Box::new(rocksdb::RocksDbStore::open(dir, cache)?)),
        Engine::HashMap => Ok(Box::new(hash_map::MapStore::new())),
        other => unreachable!("{} with a cache of {cache}: the options were checked", other.word()),
    }
}

/// Writes all keys once.
fn load(
    settings: &Settings,
    accesses: &KeyAccesses,
    store: &dyn GroupedStore,
) -> Result<Load, Failure> {
    let (bar, began) = (Bar::new("loading", accesses.rows), Instant::now());
    let mut value = vec![0; accesses.value_bytes];
    for from in (0..accesses.rows).step_by(LOADED_AT_ONCE as usize) {
        store.write_all(&mut |view| {
            for row in from..(from + LOADED_AT_ONCE).min(accesses.rows) {
                fill(&mut value, row ^ settings.seed << 40);
                view.write(&accesses.key(row), &value)?;
            }
            Ok(())
        })?;
        bar.set(from);
    }
    let took = units::time(began.elapsed().as_secs_f64());
    bar.finish(&format!("loaded {} keys in {took}", units::exact(accesses.rows)));
    Ok(Load { records: accesses.rows, bytes: 0 })
}

/// Loads and runs the workload.
///
/// # Errors
/// The errors of the store.
pub fn run(settings: &Settings, own: &Ycsb) -> Result<Ran, Failure> {
    let (engine, accesses) = (own.engine.engine(), own.accesses_to_keys());
    let none = std::path::PathBuf::new();
    let dir = settings.dirs.first().unwrap_or(&none);
    let store = open(engine, dir, own.engine.budget())?;
    let loaded = load(settings, &accesses, &*store)?;
    let measured = groups::drive(&accesses, &*store, settings)?;
    let mut report = report_of(settings, &measured, loaded);
    report.engine = engine;
    // Its own.
    report.concurrency = Concurrency::Auto;
    report.budget_bytes = Some(own.engine.budget());
    Ok(Ran { report, digest: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines() -> Vec<Engine> {
        vec![
            Engine::HashMap,
            #[cfg(feature = "redb")]
            Engine::Redb,
            #[cfg(feature = "fjall")]
            Engine::Fjall,
            #[cfg(feature = "lmdb")]
            Engine::Lmdb,
            #[cfg(feature = "rocksdb")]
            Engine::RocksDb,
        ]
    }

    fn count(store: &dyn GroupedStore, from: &[u8], to: Option<&[u8]>, limit: usize) -> usize {
        let mut found = 0;
        store
            .read_all(&mut |view| {
                found = view.scan(from, to, limit)?;
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn a_group_sees_its_own_writes_and_others_see_them_afterwards() {
        for engine in engines() {
            let dir = tempfile::tempdir().unwrap();
            let store = open(engine, dir.path(), 8 << 20).unwrap();
            store
                .write_all(&mut |view| {
                    assert!(!view.read(b"a")?, "{engine:?}");
                    view.insert(b"a", b"1")?;
                    assert!(view.read(b"a")?, "{engine:?}");
                    view.write(b"b", b"2")?;
                    view.modify(b"b", b"3")
                })
                .unwrap();
            store
                .read_all(&mut |view| {
                    assert!(view.read(b"a")? && view.read(b"b")? && !view.read(b"c")?);
                    Ok(())
                })
                .unwrap();
        }
    }

    #[test]
    fn a_scan_counts_keys_up_to_its_end_and_its_limit() {
        for engine in engines() {
            if engine == Engine::HashMap {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let store = open(engine, dir.path(), 8 << 20).unwrap();
            let keys = || (b'a'..=b'j').map(|byte| [byte]);
            store.write_all(&mut |view| keys().try_for_each(|key| view.write(&key, b"1"))).unwrap();
            assert_eq!(count(&*store, b"a", None, 100), 10, "{engine:?}");
            assert_eq!(count(&*store, b"c", Some(&b"f"[..]), 100), 3, "{engine:?}");
            assert_eq!(count(&*store, b"c", None, 2), 2, "{engine:?}");
            assert_eq!(count(&*store, b"x", None, 2), 0, "{engine:?}");
        }
    }

    #[cfg(any(feature = "redb", feature = "fjall", feature = "lmdb", feature = "rocksdb"))]
    #[test]
    fn what_was_written_is_there_when_it_is_opened_again() {
        for engine in engines().into_iter().filter(|engine| engine.has_files()) {
            let dir = tempfile::tempdir().unwrap();
            let store = open(engine, dir.path(), 8 << 20).unwrap();
            store.write_all(&mut |view| view.write(b"a", b"1")).unwrap();
            drop(store);
            let store = open(engine, dir.path(), 8 << 20).unwrap();
            assert_eq!(count(&*store, b"a", None, 10), 1, "{engine:?}");
        }
    }
}
