//! Removes keys that have expired, and keys of databases that were flushed. Nothing depends on it:
//! such keys are absent already. It walks over all keys, in a snapshot, when there is something to
//! remove, and takes a small share of one core.

use crate::config::MOST_DATABASES;
use crate::data::databases;
use crate::data::head::Head;
use crate::data::keyspace::Effects;
use crate::shared::{Opened, Shared};
use hyades::{Column, Columns, Error, Session};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const HEAD: Column<u64> = Column::at(2);
const WITHOUT_BODY: Columns = Columns::of(&[0, 1, 2]);

/// Keys removed by one transaction.
const BATCH: usize = 128;

/// A walk is followed by a pause this many times as long, and at least this long in milliseconds.
const PAUSE: u32 = 19;
const SHORTEST_PAUSE_MS: i64 = 100;

type Found = Vec<(u64, Vec<u8>)>;

/// Runs until the server stops.
pub fn run(shared: &Shared) {
    while shared.wait_to_reap() {
        let Some(opened) = shared.opened.get() else { continue };
        let began = Instant::now();
        match reap(shared, opened) {
            Ok(next) => {
                let pause = (began.elapsed() * PAUSE).as_millis() as i64;
                shared.reap_no_earlier_than(shared.clock.now_ms() + pause.max(SHORTEST_PAUSE_MS));
                shared.reap_no_later_than(next.unwrap_or(i64::MAX));
            }
            Err(Error::Poisoned(cause)) => {
                return shared.stop_for_log(&cause);
            }
            // Out of memory for the snapshot, say: what is not removed now is removed later.
            Err(_) => {
                shared.reap_no_earlier_than(shared.clock.now_ms() + 1_000);
                shared.reap_no_later_than(0);
            }
        }
    }
}

/// Removes what there is to remove. Returns when there is more.
fn reap(shared: &Shared, opened: &Opened) -> Result<Option<i64>, Error> {
    let tables = opened.tables;
    let now = shared.clock.now_ms();
    let snapshot = opened.database.open_snapshot();
    // Databases beyond the number of this run keep what they have, flushed ever before or not.
    let number = MOST_DATABASES;
    let (live, next) = snapshot.read(|tx| Ok(databases::live(tx, tables, number)?))?;
    let is_dead = |generation: u64| {
        let is_given = (databases::FIRST_GIVEN..next).contains(&generation);
        (is_given || generation < u64::from(number)) && !live.contains(&generation)
    };
    let (mut found, mut first): (Found, Option<i64>) = (Vec::new(), None);
    snapshot.for_each(tables.keys, WITHOUT_BODY, |row| {
        let (generation, head) = (row.get(GENERATION), Head::from_word(row.get(HEAD)));
        let expires = head.and_then(Head::expires);
        if is_dead(generation) || expires.is_some_and(|at| at <= now) {
            found.push((generation, row.get(KEY).to_vec()));
        } else if let Some(at) = expires {
            first = Some(first.map_or(at, |first| first.min(at)));
        }
    })?;
    drop(snapshot);
    let mut session = opened.database.session()?;
    for batch in found.chunks(BATCH) {
        if shared.stopping().is_some() {
            return Ok(None);
        }
        remove(shared, opened, &mut session, batch, &is_dead)?;
    }
    shared.counts.forget(is_dead);
    Ok(first)
}

/// Removes some keys, if they are still to be removed.
fn remove(
    shared: &Shared,
    opened: &Opened,
    session: &mut Session,
    batch: &[(u64, Vec<u8>)],
    is_dead: &dyn Fn(u64) -> bool,
) -> Result<(), Error> {
    let (tables, now) = (opened.tables, shared.clock.now_ms());
    let mut effects = Effects::default();
    let (_, ticket) = session.submit(|tx| {
        effects.clear();
        for (generation, key) in batch {
            let place = (*generation, &key[..]);
            let row = tx.get_columns(tables.keys, place, HEAD.only())?;
            let Some(head) = row.and_then(|row| Head::from_word(row.get(HEAD))) else { continue };
            let is_dead = is_dead(*generation);
            if is_dead || head.is_expired(now) {
                tx.delete(tables.keys, place)?;
                effects.removed(*generation, head);
                effects.expired += u64::from(!is_dead);
            }
        }
        Ok(())
    })?;
    // The removal tells no client anything: it may become durable when it likes.
    drop(ticket);
    effects.counts.iter().for_each(|change| shared.counts.apply(*change));
    shared.counters.expired.fetch_add(effects.expired, Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::data::Tables;
    use std::sync::Arc;

    fn served(database: &hyades::Database, tables: Tables, databases: &str) -> Arc<Shared> {
        let settings = Settings::from_arguments(&["--databases", databases]).unwrap();
        let shared = Shared::new(settings);
        assert!(shared.opened.set(Opened { database: database.clone(), tables }).is_ok());
        shared
    }

    /// The keys of a database beyond `databases` are there again when that is raised again.
    #[test]
    fn hidden_databases_keep_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let put = |tx: &hyades::Transaction<'_>, generation: u64, key: &str| {
            let row = [generation.into(), key.as_bytes().into(), 0u64.into(), b"1"[..].into()];
            tx.put(tables.keys, &row)
        };
        database
            .transact(|tx| {
                put(tx, 9, "flushed")?;
                put(tx, 8, "kept")?;
                databases::flush(tx, tables, std::iter::once(9))?;
                let now = databases::generation(tx, tables, 9)?;
                Ok(put(tx, now, "kept as well")?)
            })
            .unwrap();
        let shared = served(&database, tables, "2");
        reap(&shared, shared.opened.get().unwrap()).unwrap();
        let mut left = Vec::new();
        let snapshot = database.open_snapshot();
        snapshot
            .for_each(tables.keys, WITHOUT_BODY, |row| left.push(row.get(KEY).to_vec()))
            .unwrap();
        left.sort();
        assert_eq!(left, [&b"kept"[..], b"kept as well"]);
    }

    /// New keys that expire soon do not have it walk without a pause.
    #[test]
    fn it_pauses_whatever_there_is_to_remove() {
        let shared = Shared::new(Settings::default());
        shared.reap_no_later_than(0);
        assert!(shared.wait_to_reap());
        let earliest = shared.clock.now_ms() + 50;
        shared.reap_no_earlier_than(earliest);
        shared.reap_no_later_than(0);
        assert!(shared.wait_to_reap());
        assert!(shared.clock.now_ms() >= earliest);
    }
}
