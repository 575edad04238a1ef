//! Removes keys of flushed databases, and the blocks and chunks of removed collections and strings.
//! Nothing depends on the removal: the keys are absent already. (Expired keys are removed by
//! [`crate::upkeep::expiry`].)
//!
//! With something to remove, the reaper passes over all keys, by a cursor, in turns of a few
//! milliseconds: the reaper walks in a snapshot, removes the found keys, and leaves the core to
//! other threads. So no snapshot stays open for long, and between two turns the reaper does more
//! urgent work. A key present from the begin of a pass to its end is met.

use crate::data::collections::{GarbagePart, remove_part};
use crate::state::reaping::Reaping;
use crate::state::{Opened, Shared};
use crate::upkeep::removal::{self, Generations};
use hyades::{Column, Columns, Error};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const GENERATION_AND_KEY: Columns = Columns::of(&[0, 1]);

/// Keys removed by one transaction.
const BATCH: usize = 128;

/// Keys read at once, and buckets and keys visited for the read.
const STEP_KEYS: usize = 128;
const STEPS: usize = 1_024;

/// A turn ends after this time, or with this many bytes of found keys, including the memory that
/// holds each key: memory may be short.
const TURN: Duration = Duration::from_millis(2);
const MOST_FOUND_BYTES: usize = if cfg!(test) { 4 << 10 } else { 64 << 20 };

/// A turn is followed by a pause this many times as long: a turn without found keys looks for keys
/// of a database that is all but removed, or was empty. Memory of flushed keys should be free soon,
/// so a turn with found keys leaves the core to other threads half of the time.
const PAUSE: u32 = 19;
const PAUSE_OF_FLUSH: u32 = 1;

/// The longest wait before another check for the end of CLIENT PAUSE.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// A generation and a key.
type DeadKey = (u64, Vec<u8>);

/// A pass over all keys.
#[derive(Default)]
struct Pass {
    /// Where the next turn begins.
    cursor: u64,
    /// The last turn has found keys to remove.
    has_found: bool,
}

/// Keys found by a turn.
struct DeadKeys {
    generations: Generations,
    /// Keys to remove.
    dead: Vec<DeadKey>,
    /// The bytes of the keys.
    bytes: usize,
}

impl DeadKeys {
    fn add(&mut self, generation: u64, key: &[u8]) {
        self.bytes += size_of::<DeadKey>() + key.len();
        self.dead.push((generation, key.to_vec()));
    }
}

/// Runs until the server stops.
pub fn run(shared: &Shared) {
    let mut pass = Pass::default();
    while let Some(what) = shared.reaping.wait(&shared.clock, &shared.stop_signal) {
        let opened = shared.store.opened.get().filter(|_| !shared.membership.only_reads());
        let Some(opened) = opened else {
            // The reaper is told to walk again once there is something to walk over.
            pass = Pass::default();
            shared.reaping.end_pass();
            continue;
        };
        let began = Instant::now();
        let reaped = match what {
            Reaping::Garbage => collect(shared, &opened),
            Reaping::Keys if let Some((_, end)) = shared.limits.pause.running() => {
                // The visible effects of the reaper's writes wait, too. An end by command is found
                // soon.
                let left = end.saturating_duration_since(began).min(LONGEST_DELAY);
                shared.reaping.no_earlier_than(shared.clock.now_ms() + left.as_millis() as i64 + 1);
                Ok(())
            }
            Reaping::Keys => turn(shared, &opened, &mut pass).map(|()| {
                let times = if pass.has_found { PAUSE_OF_FLUSH } else { PAUSE };
                let pause = (began.elapsed() * times).as_millis() as i64;
                shared.reaping.no_earlier_than(shared.clock.now_ms() + pause.max(1));
                if pass.cursor == 0 {
                    pass = Pass::default();
                    shared.reaping.end_pass();
                }
            }),
        };
        match reaped {
            Ok(()) => {}
            Err(error) if shared.stops_with_log(&error) => {
                if !shared.membership.is_on() {
                    return;
                }
            }
            // Out of memory for the snapshot, say: the keys are removed later. Keys found by the
            // turn may be behind the cursor.
            Err(_) => {
                pass = Pass::default();
                shared.reaping.no_earlier_than(shared.clock.now_ms() + 1_000);
                if what == Reaping::Garbage {
                    shared.stop_signal.wait_at_most(Duration::from_secs(1));
                    shared.reaping.remove_garbage();
                }
            }
        }
    }
}

/// Wakes the event loops when dropped: the loops free data removed by a session that ended then.
struct WakeLoops<'s>(&'s Shared);

impl Drop for WakeLoops<'_> {
    fn drop(&mut self) {
        self.0.wiring.wake_all();
    }
}

/// Removes garbage blocks and chunks, until there are none. The thread leaves the core to other
/// threads half of the time: memory should be free again soon.
fn collect(shared: &Shared, opened: &Opened) -> Result<(), Error> {
    let _wake = WakeLoops(shared);
    let mut session = opened.database.session()?;
    loop {
        let began = Instant::now();
        if shared.stopping().is_some() || shared.membership.only_reads() {
            return Ok(());
        }
        let part = remove_part(&mut session, opened.tables)?;
        shared.stats.counters.freed.fetch_add(u64::from(part == GarbagePart::Last), Relaxed);
        if part == GarbagePart::None {
            return Ok(());
        }
        shared.stop_signal.wait_at_most(began.elapsed());
    }
}

/// A whole pass without pauses, for tests and torture; all expired keys are removed as well.
#[cfg(any(test, feature = "torture"))]
pub(crate) fn reap(shared: &Shared, opened: &Opened) -> Result<(), Error> {
    crate::upkeep::expiry::remove_expired(shared, opened)?;
    let mut pass = Pass::default();
    loop {
        turn(shared, opened, &mut pass)?;
        if pass.cursor == 0 || shared.stopping().is_some() {
            return Ok(());
        }
    }
}

/// Continues a pass for a while. The pass has ended if the cursor is 0 then.
fn turn(shared: &Shared, opened: &Opened, pass: &mut Pass) -> Result<(), Error> {
    let found = find(opened, pass)?;
    pass.has_found = !found.dead.is_empty();
    let _wake = (!found.dead.is_empty()).then(|| WakeLoops(shared));
    let mut session = opened.database.session()?;
    for batch in found.dead.chunks(BATCH) {
        if shared.stopping().is_some() || shared.membership.only_reads() {
            return Ok(());
        }
        let keys = batch.iter().map(|(generation, key)| (*generation, &key[..]));
        removal::remove(shared, opened, &mut session, keys, &found.generations)?;
    }
    if pass.cursor == 0 {
        shared.store.counts.forget(|generation| found.generations.is_dead(generation));
    }
    Ok(())
}

/// Walks over keys, in a snapshot closed before any removal.
fn find(opened: &Opened, pass: &mut Pass) -> Result<DeadKeys, Error> {
    let (tables, began) = (opened.tables, Instant::now());
    let snapshot = opened.database.open_snapshot();
    let generations = snapshot.read(|tx| Ok(Generations::read(tx, tables)?))?;
    let mut found = DeadKeys { generations, dead: Vec::new(), bytes: 0 };
    loop {
        pass.cursor = snapshot.read(|tx| {
            let step = tx.walk(tables.keys, pass.cursor).limit(STEP_KEYS).steps(STEPS);
            let step = step.columns(GENERATION_AND_KEY).rows()?;
            for row in step.rows {
                let generation = row.get(GENERATION);
                if found.generations.is_dead(generation) {
                    found.add(generation, row.get(KEY));
                }
            }
            Ok(step.next)
        })?;
        let is_full = found.bytes >= MOST_FOUND_BYTES || began.elapsed() >= TURN;
        if pass.cursor == 0 || is_full {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::data::{Tables, databases};
    use std::sync::Arc;

    fn served(database: &hyades::Database, tables: Tables, databases: &str) -> Arc<Shared> {
        let settings = Settings::from_arguments(&["--databases", databases]).unwrap();
        let shared = Shared::new(settings);
        assert!(shared.store.opened.set(Opened { database: database.clone(), tables }).is_ok());
        shared
    }

    /// The keys of a database beyond `databases` are present again when the setting is raised.
    #[test]
    fn hidden_databases_keep_their_keys() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let put = |tx: &hyades::Transaction<'_>, generation: u64, key: &str| {
            let row = [generation.into(), key.as_bytes().into(), 0u64.into(), b"1"[..].into()];
            tx.overwrite(tables.keys, &row)
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
        reap(&shared, &shared.store.opened.cloned()).unwrap();
        let mut left = Vec::new();
        let snapshot = database.open_snapshot();
        snapshot
            .for_each(tables.keys, GENERATION_AND_KEY, |row| left.push(row.get(KEY).to_vec()))
            .unwrap();
        left.sort();
        assert_eq!(left, [&b"kept"[..], b"kept as well"]);
    }

    /// Whatever the number of keys to remove, only some are held in memory at once.
    #[test]
    fn a_turn_finds_some_keys_and_others_follow_until_none_is_left() {
        const KEYS: usize = 500;
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = hyades::Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        database
            .transact(|tx| {
                for key in 0..KEYS {
                    let key = format!("key:{key}");
                    let row = [9u64.into(), key.as_bytes().into(), 0u64.into(), b"1"[..].into()];
                    tx.overwrite(tables.keys, &row)?;
                }
                databases::flush(tx, tables, std::iter::once(9))?;
                let now = databases::generation(tx, tables, 9)?;
                let row = [now.into(), b"live"[..].into(), 0u64.into(), b"1"[..].into()];
                Ok(tx.overwrite(tables.keys, &row)?)
            })
            .unwrap();
        let shared = served(&database, tables, "16");
        let opened = shared.store.opened.cloned();
        let mut pass = Pass::default();
        let found = find(&opened, &mut pass).unwrap();
        assert!(pass.cursor > 0 && found.bytes < MOST_FOUND_BYTES + 64 * STEP_KEYS);
        assert!(found.dead.len() < KEYS / 2, "{}", found.dead.len());
        // Nothing was removed yet: a new pass finds the keys again.
        reap(&shared, &opened).unwrap();
        let mut left = Vec::new();
        let snapshot = database.open_snapshot();
        let keep = |row: &hyades::Row<'_>| left.push(row.get(KEY).to_vec());
        snapshot.for_each(tables.keys, GENERATION_AND_KEY, keep).unwrap();
        assert_eq!(left, [b"live"]);
    }

    /// New keys with a near expiry do not make the reaper walk without a pause.
    #[test]
    fn it_pauses_whatever_there_is_to_remove() {
        let shared = Shared::new(Settings::default());
        shared.reaping.no_later_than(0);
        assert_eq!(shared.reaping.wait(&shared.clock, &shared.stop_signal), Some(Reaping::Keys));
        let earliest = shared.clock.now_ms() + 50;
        shared.reaping.no_earlier_than(earliest);
        shared.reaping.no_later_than(0);
        assert_eq!(shared.reaping.wait(&shared.clock, &shared.stop_signal), Some(Reaping::Keys));
        assert!(shared.clock.now_ms() >= earliest);
    }

    /// Work behind the cursor of a pass is not forgotten at the end of the pass; more urgent work
    /// is done between two turns.
    #[test]
    fn a_pass_is_followed_by_another_if_something_has_come_meanwhile() {
        let shared = Shared::new(Settings::default());
        shared.reaping.no_later_than(0);
        assert_eq!(shared.reaping.wait(&shared.clock, &shared.stop_signal), Some(Reaping::Keys));
        // A database is flushed while the pass is under way.
        shared.reaping.no_later_than(0);
        shared.reaping.no_earlier_than(i64::MAX);
        shared.reaping.remove_garbage();
        assert_eq!(shared.reaping.wait(&shared.clock, &shared.stop_signal), Some(Reaping::Garbage));
        shared.reaping.no_earlier_than(0);
        assert_eq!(
            shared.reaping.wait(&shared.clock, &shared.stop_signal),
            Some(Reaping::Keys),
            "the pass goes on"
        );
        shared.reaping.end_pass();
        shared.reaping.no_later_than(i64::MAX);
        assert_eq!(
            shared.reaping.wait(&shared.clock, &shared.stop_signal),
            Some(Reaping::Keys),
            "and another one follows"
        );
        shared.reaping.end_pass();
        let began = Instant::now();
        shared.reaping.no_later_than(shared.clock.now_ms() + 50);
        assert_eq!(shared.reaping.wait(&shared.clock, &shared.stop_signal), Some(Reaping::Keys));
        assert!(began.elapsed() >= Duration::from_millis(40), "and then nothing is left");
    }
}
