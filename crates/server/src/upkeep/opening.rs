//! Opens the database while the server already answers.

use crate::base::clock::Clock;
use crate::config::{MOST_DATABASES, PrimaryAddress};
use crate::data::Tables;
use crate::data::counts::{CountChange, KeyCounts};
use crate::data::databases;
use crate::data::expiries::{Expiries, Expiry};
use crate::data::head::Head;
use crate::data::primary::{ImportStage, PrimaryPosition};
use crate::data::scripts::ScriptCounts;
use crate::state::timers::Timers;
use crate::state::{Opened, Opening, Shared};
use hyades::{Builder, Column, Columns, Database, Error, Snapshot};
use hyades_platform::sync::Unpoisoned;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const HEAD: Column<u64> = Column::at(2);

/// Keys with an expiry are handed over in runs of this length.
const TIMERS_AT_ONCE: usize = 1_024;

/// How often `key-load-delay` is looked at while loading is delayed.
const DELAY_STEP: Duration = Duration::from_millis(20);

/// Most log streams without a setting.
const MOST_PROBED: usize = 8;

/// The buffer of a log stream, in bytes. A record of up to 1 MiB fits into a quarter of the buffer.
/// Buffers of twice the size made no command faster, and all buffers are soon in memory, however
/// small the data are.
const LOG_BUFFER: usize = 4 << 20;

/// The settings of the database by the settings of the server, with its tables.
pub(crate) fn builder(shared: &Arc<Shared>) -> (Builder, Tables) {
    let settings = &shared.settings;
    let telling = Arc::downgrade(shared);
    let mut builder = Database::builder()
        .log_settings(|log| {
            log.buffer_bytes = LOG_BUFFER;
            log.archive = settings.log_archive();
            log.streams = settings.streams().unwrap_or(MOST_PROBED);
            // The loops that log to a stream share the tail of the stream.
            let least = (settings.loops() / 4).clamp(1, MOST_PROBED);
            log.probe_streams = settings.streams().is_none().then_some(least);
        })
        .max_recovery(Duration::from_secs(settings.max_recovery_seconds()))
        .on_progress(move |progress| {
            if let Some(shared) = telling.upgrade() {
                *shared.store.progress.lock().unpoisoned() = Some(progress.clone());
            }
        });
    let tables = Tables::declare(&mut builder);
    (builder, tables)
}

/// Opens the database of the settings and counts its keys.
pub fn open(shared: &Arc<Shared>) -> Result<(), Error> {
    let began = Instant::now();
    shared.note_memory_at_start();
    let (builder, tables) = builder(shared);
    let database = builder.open(shared.settings.dir())?;
    if let Some(progress) = &mut *shared.store.progress.lock().unpoisoned() {
        progress.phase = "counting the keys";
    }
    let recovered = began.elapsed();
    let Counted { expired, timed_hashes } = count_keys(shared, &database, tables)?;
    let time = began.elapsed();
    let keys = (shared.store.counts.all() as u64).saturating_sub(expired);
    shared.store.note_opening(Opening {
        time,
        counting: time - recovered,
        keys,
        expired,
        timed_hashes,
    });
    // Allocations of the first read of a missing key count as memory of the empty server.
    let missing: (u64, &[u8]) = (u64::MAX, b"");
    database.transact(|tx| Ok(tx.get_columns(tables.keys, missing, HEAD.only())?.is_some()))?;
    delay(shared);
    let primary = resume_import(shared, &database, tables)?;
    // A command that ends the import finds the import begun.
    let _changing = shared.live_import.lock();
    let opened = Opened { database, tables };
    assert!(shared.store.opened.set(opened).is_ok(), "a server opens its database once");
    // Keys expired meanwhile, and keys flushed before, are removed at once: not before the reaper
    // finds the database, or the reaper would forget the request.
    shared.store.timers.wake();
    shared.reaping.no_later_than(0);
    shared.reaping.remove_garbage();
    shared.wiring.wake_all();
    primary.into_iter().for_each(|primary| shared.live_import.follow(primary));
    Ok(())
}

/// The source of the server's import: an import found in the database continues, or the import of
/// `replicaof` begins. Clients are not served yet.
///
/// # Errors
/// The database has keys of no import.
fn resume_import(
    shared: &Shared,
    database: &Database,
    tables: Tables,
) -> Result<Option<PrimaryAddress>, Error> {
    let stored = database.transact(|tx| Ok(PrimaryPosition::stored(tx, tables)?))?;
    let position = match (stored, shared.settings.primary()) {
        (Some(stored), asked) if stored.stage != ImportStage::Over => {
            if let Some(asked) = asked.filter(|asked| *asked != stored.address) {
                eprintln!("replicaof: the import from {} goes on, not {asked}", stored.address);
            }
            stored
        }
        (_, None) => return Ok(None),
        (Some(stored), Some(asked)) if stored.address == asked => {
            eprintln!("replicaof: the import from {asked} is over: take the setting away");
            shared.settings.set_primary(None);
            return Ok(None);
        }
        (_, Some(asked)) => {
            let live =
                database.transact(|tx| Ok(databases::live(tx, tables, MOST_DATABASES)?.0))?;
            let keys = shared.store.counts.of_all(&live);
            let (libraries, _) = shared.scripts.count_libraries();
            if keys > 0 || libraries > 0 {
                return Err(Error::Mismatch(format!(
                    "replicaof asks for an import from {asked}, which begins with an empty \
                     database, and this one has {keys} keys and {libraries} libraries of \
                     functions: choose another dir, or take the setting away"
                )));
            }
            PrimaryPosition::new(asked)
        }
    };
    database.transact(|tx| Ok(position.keep(tx, tables)?))?;
    shared.settings.set_primary(Some(&position.address));
    shared.live_import.resume(&position);
    Ok(Some(position.address))
}

/// Waits as long as `key-load-delay` prolongs loading, by the current setting, as clients may
/// change it meanwhile. A stop of the server ends the wait.
fn delay(shared: &Shared) {
    let keys = u64::try_from(shared.store.counts.all()).unwrap_or(0);
    let since = Instant::now();
    loop {
        let left = shared.settings.load_delay(keys).saturating_sub(since.elapsed());
        if left.is_zero() || shared.stopping().is_some() {
            return;
        }
        shared.stop_signal.wait_at_most(left.min(DELAY_STEP));
    }
}

/// Counted keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Expired keys.
    pub expired: u64,
    /// Hashes with fields that may expire.
    pub timed_hashes: u64,
}

/// Counts the keys and the scripts, and hands over the keys with an expiry.
///
/// # Errors
/// A value has a head unknown to this version: later the head would pass for a torn view.
pub(crate) fn count_keys(
    shared: &Shared,
    database: &Database,
    tables: Tables,
) -> Result<Counted, Error> {
    let into = CountedInto { counts: &shared.store.counts, timers: Some(&shared.store.timers) };
    let (counted, stored) = count_snapshot(&shared.clock, &database.open_snapshot(), tables, into)?;
    shared.scripts.count_stored(stored);
    Ok(counted)
}

/// What a count is added to.
pub(crate) struct CountedInto<'s> {
    /// Gets the numbers of keys.
    pub counts: &'s KeyCounts,
    /// Gets the keys with an expiry, if they are to be removed here.
    pub timers: Option<&'s Timers>,
}

/// Counts the keys and the scripts of a snapshot.
///
/// # Errors
/// As of [`count_keys`].
pub(crate) fn count_snapshot(
    clock: &Clock,
    snapshot: &Snapshot,
    tables: Tables,
    into: CountedInto<'_>,
) -> Result<(Counted, ScriptCounts), Error> {
    let CountedInto { counts, timers } = into;
    let (now_ms, mut counted, mut unknown) = (clock.now_ms(), Counted::default(), None);
    let mut expiries = Expiries::default();
    snapshot.for_each(tables.keys, Columns::of(&[0, 1, 2]), |row| {
        let Some(head) = Head::from_word(row.get(HEAD)) else {
            unknown = Some(row.get(HEAD));
            return;
        };
        let (generation, expiring) = (row.get(GENERATION), i64::from(head.expires().is_some()));
        counts.apply(CountChange { generation, keys: 1, expiring });
        // The thread that removes fields looks at the fields, and finds their first time.
        let first = if head.form().is_timed() { Some(now_ms) } else { head.expires() };
        if let Some(at_ms) = first {
            counted.expired += u64::from(head.is_expired(now_ms));
            counted.timed_hashes += u64::from(head.form().is_timed());
            let Some(timers) = timers else { return };
            expiries.push(Expiry { at_ms, generation, key: row.get(KEY) });
            if expiries.len() >= TIMERS_AT_ONCE {
                timers.add(&expiries);
                expiries.clear();
            }
        }
    })?;
    timers.iter().for_each(|timers| timers.add(&expiries));
    let mut stored = ScriptCounts::default();
    snapshot.for_each(tables.scripts, Columns::of(&[0, 1]), |row| stored.add_row(row))?;
    match unknown {
        None => Ok((counted, stored)),
        Some(word) => Err(Error::Mismatch(format!(
            "the database has a value whose head is {word:#x}, which this version does not know: \
             open it with the version that wrote it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn what_recovery_tells_is_kept_until_the_keys_are_counted() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let arguments = ["--dir", dir.path().to_str().unwrap(), "--streams", "2"];
        let start = || {
            let shared = Shared::new(Settings::from_arguments(&arguments).unwrap());
            open(&shared).unwrap();
            shared
        };
        let shared = start();
        // There was nothing to recover.
        assert_eq!(shared.store.loading(), "the database is being opened");
        let opened = shared.store.opened.cloned();
        let (database, tables) = (opened.database.clone(), opened.tables);
        let row = [0u64.into(), b"a"[..].into(), 0u64.into(), b"1"[..].into()];
        database.transact(|tx| Ok(tx.overwrite(tables.keys, &row)?)).unwrap();
        drop(opened);
        database.close().unwrap();
        drop(shared);
        let shared = start();
        let progress = shared.store.progress.lock().unwrap().clone().unwrap();
        assert_eq!((progress.phase, progress.records_done), ("counting the keys", 1));
        assert_eq!(progress.by_stream.iter().map(|stream| stream.records).sum::<u64>(), 1);
        assert_eq!(shared.store.loading(), "100 %, about 0 s left");
        assert_eq!(shared.store.counts.all(), 1);
    }

    #[test]
    fn a_head_of_a_later_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let put = |head: u64| {
            let row = [0u64.into(), b"a"[..].into(), head.into(), b"1"[..].into()];
            database.transact(|tx| Ok(tx.overwrite(tables.keys, &row)?)).unwrap();
        };
        let shared = Shared::new(Settings::default());
        put(0);
        count_keys(&shared, &database, tables).unwrap();
        put(1 << 9);
        let error = count_keys(&shared, &database, tables).unwrap_err().to_string();
        assert!(error.contains("0x200") && error.contains("version"), "{error}");
    }
}
