//! Removes keys that have expired, keys of databases that were flushed, and the blocks and chunks
//! of collections and strings that are no value any more. Nothing depends on it: such keys are
//! absent already.
//!
//! When there is something to remove it passes over all keys, by a cursor, in turns of a few
//! milliseconds: it walks in a snapshot, removes what it has found, and pauses much longer. So it
//! takes a small share of one core however many keys there are, no snapshot stays open for long,
//! and between two turns it does what is more urgent. A key that is there from a pass's begin to
//! its end is met. One that comes behind the cursor, or expires there, asks for the next pass.

use crate::config::MOST_DATABASES;
use crate::data::collections::{GarbagePart, discard, remove_part};
use crate::data::databases;
use crate::data::head::Head;
use crate::data::keyspace::Effects;
use crate::shared::{Opened, Reaping, Shared};
use hyades::{Abort, Column, Columns, Error, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const HEAD: Column<u64> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);
const WITHOUT_BODY: Columns = Columns::of(&[0, 1, 2]);

/// Keys removed by one transaction.
const BATCH: usize = 128;

/// Keys that are read at once, and buckets and keys that are looked at for that.
const STEP_KEYS: usize = 128;
const STEPS: usize = 1_024;

/// A turn ends after this time, or once it has found this many bytes of keys, what holds each of
/// them included: memory may be short.
const TURN: Duration = Duration::from_millis(2);
const MOST_FOUND_BYTES: usize = if cfg!(test) { 4 << 10 } else { 64 << 20 };

/// A turn is followed by a pause this many times as long. One that has found keys of a database
/// that was flushed leaves the core to others half of the time: that memory should be free soon. A
/// pass is followed by a pause of at least this many milliseconds.
const PAUSE: u32 = 19;
const PAUSE_OF_FLUSH: u32 = 1;
const SHORTEST_PAUSE_MS: i64 = 100;

/// The longest that it waits until it looks again for the end of CLIENT PAUSE.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// A generation and a key.
type DeadKey = (u64, Vec<u8>);

/// A pass over all keys.
#[derive(Default)]
struct Pass {
    /// Where the next turn begins.
    cursor: u64,
    /// When the first of the keys expires that were not removed.
    first: Option<i64>,
    /// The last turn has found keys of a database that was flushed.
    has_flushed: bool,
}

/// What a turn has found.
struct ExpiredKeys {
    generations: Generations,
    /// Keys to remove.
    dead: Vec<DeadKey>,
    /// Their bytes.
    bytes: usize,
}

impl ExpiredKeys {
    fn add(&mut self, generation: u64, key: &[u8]) {
        self.bytes += size_of::<DeadKey>() + key.len();
        self.dead.push((generation, key.to_vec()));
    }
}

/// Generations of keys.
struct Generations {
    /// Those of the databases, by number.
    live: Vec<u64>,
    /// The first that no database may have yet.
    next: u64,
}

impl Generations {
    /// Whether a database had it that was flushed since.
    fn is_dead(&self, generation: u64) -> bool {
        let is_given = (databases::FIRST_GIVEN..self.next).contains(&generation);
        let may_be_live = is_given || generation < u64::from(MOST_DATABASES);
        may_be_live && !self.live.contains(&generation)
    }

    /// The number of the database that has it.
    fn database_of(&self, generation: u64) -> Option<u32> {
        self.live.iter().position(|live| *live == generation).map(|at| at as u32)
    }
}

/// Runs until the server stops.
pub fn run(shared: &Shared) {
    let mut pass = Pass::default();
    while let Some(what) = shared.wait_to_reap() {
        let Some(opened) = shared.opened.get() else {
            // It is told to walk again once there is something to walk over.
            shared.end_reaping_pass();
            continue;
        };
        let began = Instant::now();
        let reaped = match what {
            Reaping::Garbage => collect(shared, opened),
            Reaping::Keys if let Some((_, end)) = shared.pause.running() => {
                // What others see of its writes waits, too. An end by command is found soon.
                let left = end.saturating_duration_since(began).min(LONGEST_DELAY);
                shared.reap_no_earlier_than(shared.clock.now_ms() + left.as_millis() as i64 + 1);
                Ok(())
            }
            Reaping::Keys => turn(shared, opened, &mut pass).map(|()| {
                let times = if pass.has_flushed { PAUSE_OF_FLUSH } else { PAUSE };
                let pause = (began.elapsed() * times).as_millis() as i64;
                let ended = (pass.cursor == 0).then(|| std::mem::take(&mut pass));
                let shortest = if ended.is_some() { SHORTEST_PAUSE_MS } else { 1 };
                shared.reap_no_earlier_than(shared.clock.now_ms() + pause.max(shortest));
                if let Some(Pass { first, .. }) = ended {
                    shared.end_reaping_pass();
                    shared.reap_no_later_than(first.unwrap_or(i64::MAX));
                }
            }),
        };
        match reaped {
            Ok(()) => {}
            Err(Error::Poisoned(cause)) => {
                return shared.stop_for_log(&cause);
            }
            // Out of memory for the snapshot, say: what is not removed now is removed later. What
            // the turn has found may be behind the cursor.
            Err(_) => {
                pass = Pass::default();
                shared.reap_no_earlier_than(shared.clock.now_ms() + 1_000);
                if what == Reaping::Garbage {
                    shared.wait_for_stop_at_most(Duration::from_secs(1));
                    shared.reap_garbage();
                }
            }
        }
    }
}

/// Wakes the event loops when it is dropped: they free what a session has removed that ended then.
struct WakeLoops<'s>(&'s Shared);

impl Drop for WakeLoops<'_> {
    fn drop(&mut self) {
        self.0.wake_all();
    }
}

/// Removes blocks and chunks that are garbage, until there are none. It leaves the core to others
/// half of the time: memory should be free again soon.
fn collect(shared: &Shared, opened: &Opened) -> Result<(), Error> {
    let _wake = WakeLoops(shared);
    let mut session = opened.database.session()?;
    loop {
        let began = Instant::now();
        if shared.stopping().is_some() {
            return Ok(());
        }
        let part = remove_part(&mut session, opened.tables)?;
        shared.counters.freed.fetch_add(u64::from(part == GarbagePart::Last), Relaxed);
        if part == GarbagePart::None {
            return Ok(());
        }
        shared.wait_for_stop_at_most(began.elapsed());
    }
}

/// A whole pass without pauses, for tests and torture. Returns when there is more to remove.
#[cfg(any(test, feature = "torture"))]
pub(crate) fn reap(shared: &Shared, opened: &Opened) -> Result<Option<i64>, Error> {
    let mut pass = Pass::default();
    loop {
        turn(shared, opened, &mut pass)?;
        if pass.cursor == 0 || shared.stopping().is_some() {
            return Ok(pass.first);
        }
    }
}

/// Goes on with a pass for a while. It has ended if its cursor is 0 then.
fn turn(shared: &Shared, opened: &Opened, pass: &mut Pass) -> Result<(), Error> {
    let found = find(shared, opened, pass)?;
    let is_flushed = |(generation, _): &DeadKey| found.generations.is_dead(*generation);
    pass.has_flushed = found.dead.iter().any(is_flushed);
    let _wake = (!found.dead.is_empty()).then(|| WakeLoops(shared));
    let mut session = opened.database.session()?;
    for batch in found.dead.chunks(BATCH) {
        if shared.stopping().is_some() {
            return Ok(());
        }
        remove(shared, opened, &mut session, batch, &found.generations)?;
    }
    if pass.cursor == 0 {
        shared.counts.forget(|generation| found.generations.is_dead(generation));
    }
    Ok(())
}

/// Walks over keys, in a snapshot that is closed before anything is removed.
fn find(shared: &Shared, opened: &Opened, pass: &mut Pass) -> Result<ExpiredKeys, Error> {
    let (tables, now, began) = (opened.tables, shared.clock.now_ms(), Instant::now());
    let snapshot = opened.database.open_snapshot();
    // Databases beyond the number of this run keep what they have, flushed ever before or not.
    let read = |tx: &hyades::Transaction<'_>| Ok(databases::live(tx, tables, MOST_DATABASES)?);
    let (live, next) = snapshot.read(read)?;
    let mut found =
        ExpiredKeys { generations: Generations { live, next }, dead: Vec::new(), bytes: 0 };
    loop {
        pass.cursor = snapshot.read(|tx| {
            let step = tx.walk(tables.keys, pass.cursor).limit(STEP_KEYS).steps(STEPS);
            let step = step.columns(WITHOUT_BODY).rows()?;
            for row in step.rows {
                let (generation, head) = (row.get(GENERATION), Head::from_word(row.get(HEAD)));
                let expires = head.and_then(Head::expires);
                let is_dead = found.generations.is_dead(generation);
                if is_dead || expires.is_some_and(|at| at <= now) {
                    found.add(generation, row.get(KEY));
                } else if let Some(at) = expires {
                    pass.first = Some(pass.first.map_or(at, |first| first.min(at)));
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

/// Removes some keys, if they are still to be removed.
fn remove(
    shared: &Shared,
    opened: &Opened,
    session: &mut Session,
    batch: &[DeadKey],
    generations: &Generations,
) -> Result<(), Error> {
    let (tables, now) = (opened.tables, shared.clock.now_ms());
    let (mut effects, mut events) = (Effects::default(), Vec::new());
    let classes = shared.settings.events();
    let (_, ticket) = session.submit(|tx| {
        effects.clear();
        events.clear();
        for (generation, key) in batch {
            let place = (*generation, &key[..]);
            let row = tx.get_columns(tables.keys, place, HEAD.only())?;
            let Some(head) = row.and_then(|row| Head::from_word(row.get(HEAD))) else { continue };
            let is_dead = generations.is_dead(*generation);
            if is_dead || head.is_expired(now) {
                if head.form().is_numbered() {
                    let row = tx.get_columns(tables.keys, place, BODY.only())?;
                    discard(tx, tables, row.ok_or(Abort::Conflict)?.get(BODY))?;
                    effects.discarded = true;
                }
                tx.delete(tables.keys, place)?;
                effects.removed(*generation, head);
                effects.expired += u64::from(!is_dead);
                if !is_dead && let Some(database) = generations.database_of(*generation) {
                    classes.publish_expired(database, key, &mut events);
                }
            }
        }
        Ok(())
    })?;
    // The removal tells no client anything, but for its events: it may become durable when it
    // likes.
    if !events.is_empty() && shared.channels.is_heard() {
        ticket.wait()?;
        events.into_iter().for_each(|event| shared.channels.deliver(&Arc::new(event)));
    }
    effects.counts.iter().for_each(|change| shared.counts.apply(*change));
    if effects.discarded {
        shared.reap_garbage();
    }
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
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
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

    /// However many there are to remove: no more than some are held in memory at once.
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
                    tx.put(tables.keys, &row)?;
                }
                databases::flush(tx, tables, std::iter::once(9))?;
                let now = databases::generation(tx, tables, 9)?;
                let row = [now.into(), b"live"[..].into(), 0u64.into(), b"1"[..].into()];
                Ok(tx.put(tables.keys, &row)?)
            })
            .unwrap();
        let shared = served(&database, tables, "16");
        let opened = shared.opened.get().unwrap();
        let mut pass = Pass::default();
        let found = find(&shared, opened, &mut pass).unwrap();
        assert!(pass.cursor > 0 && found.bytes < MOST_FOUND_BYTES + 64 * STEP_KEYS);
        assert!(found.dead.len() < KEYS / 2, "{}", found.dead.len());
        // Nothing was removed yet: a pass that begins anew finds it again.
        assert_eq!(reap(&shared, opened).unwrap(), None);
        let mut left = Vec::new();
        let snapshot = database.open_snapshot();
        let keep = |row: &hyades::Row<'_>| left.push(row.get(KEY).to_vec());
        snapshot.for_each(tables.keys, WITHOUT_BODY, keep).unwrap();
        assert_eq!(left, [b"live"]);
    }

    /// New keys that expire soon do not have it walk without a pause.
    #[test]
    fn it_pauses_whatever_there_is_to_remove() {
        let shared = Shared::new(Settings::default());
        shared.reap_no_later_than(0);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys));
        let earliest = shared.clock.now_ms() + 50;
        shared.reap_no_earlier_than(earliest);
        shared.reap_no_later_than(0);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys));
        assert!(shared.clock.now_ms() >= earliest);
    }

    /// What comes behind the cursor of a pass is not forgotten at its end; what is more urgent is
    /// done between two turns.
    #[test]
    fn a_pass_is_followed_by_another_if_something_has_come_meanwhile() {
        let shared = Shared::new(Settings::default());
        shared.reap_no_later_than(0);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys));
        // A database is flushed while the pass is under way.
        shared.reap_no_later_than(0);
        shared.reap_no_earlier_than(i64::MAX);
        shared.reap_garbage();
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Garbage));
        shared.reap_no_earlier_than(0);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys), "the pass goes on");
        shared.end_reaping_pass();
        shared.reap_no_later_than(i64::MAX);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys), "and another one follows");
        shared.end_reaping_pass();
        let began = Instant::now();
        shared.reap_no_later_than(shared.clock.now_ms() + 50);
        assert_eq!(shared.wait_to_reap(), Some(Reaping::Keys));
        assert!(began.elapsed() >= Duration::from_millis(40), "and then nothing is left");
    }
}
