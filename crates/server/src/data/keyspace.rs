//! The keys of a database, as a transaction sees them at a moment: a key that has expired is
//! absent, and is overwritten or removed by whichever command writes there next.

use super::Tables;
use super::counts::{CountChange, KeyCounts};
use super::databases;
use super::head::{Form, Head, Kind};
use hyades::{Abort, Column, Transaction};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

const HEAD: Column<u64> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// The longest key in bytes.
pub const LONGEST_KEY: usize = 1 << 20;

/// The longest string in bytes; with its key it fits into a row.
pub const LONGEST_STRING: usize = (16 << 20) - LONGEST_KEY - 64;

/// What an access takes beside the bytes of its key and its value, about.
const ACCESS_BYTES: usize = 24;

/// A change in a transaction is copied as often: by itself, merged with those before it, and the
/// row that results.
const COPIES_OF_A_CHANGE: usize = 3;

/// Most bytes that a transaction copies on an event loop: with more it goes to another thread.
pub const MOST_COPIED_ON_LOOP: usize = 1 << 20;

/// Most bytes that any transaction copies: it keeps them until it ends. (Tests do with less.)
pub const MOST_COPIED: usize = if cfg!(test) { 64 << 20 } else { 1 << 30 };

/// The abort of an access beyond [`MOST_COPIED_ON_LOOP`].
pub const TOO_MUCH_FOR_LOOP: Abort = Abort::User(1);

/// The abort of an access beyond [`MOST_COPIED`].
pub const TOO_MUCH: Abort = Abort::User(2);

/// Why a command ends without its reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The engine ended the operation.
    Abort(Abort),
    /// The client gets this error.
    Error(Cow<'static, str>),
}

impl From<Abort> for Stop {
    fn from(abort: Abort) -> Stop {
        Stop::Abort(abort)
    }
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Stop {
        Stop::Error(text.into())
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Error(text.into())
    }
}

/// The error of a command on a value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// What a transaction does beside its rows, applied once it has committed.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Changes of the numbers of keys.
    pub counts: SmallVec<[CountChange; 2]>,
    /// The earliest time at which a key that was written expires.
    pub expiry: Option<i64>,
    /// A database was flushed: there are keys to remove.
    pub flushed: bool,
    /// Keys found and missed by reading commands.
    pub hits: u64,
    /// See [`Effects::hits`].
    pub misses: u64,
    /// Expired keys that were removed or overwritten.
    pub expired: u64,
    /// Bytes that the transaction logs, about.
    pub written: usize,
    /// Bytes that it has copied, about, those for commands included that were taken back.
    pub copied: usize,
    /// Values written, changed or removed.
    pub changes: u64,
    /// What WATCH has seen.
    pub watched: Vec<WatchedKey>,
    /// UNWATCH was run.
    pub unwatched: bool,
}

/// A key that WATCH names, as it was then.
#[derive(Clone, Debug)]
pub struct WatchedKey {
    /// The number of the database.
    pub database: u32,
    /// The key.
    pub key: Vec<u8>,
    /// See [`Keyspace::write_of`].
    pub seen: Option<(u64, u64)>,
}

impl Effects {
    /// Forgets everything: the transaction runs again.
    pub fn clear(&mut self) {
        *self = Effects::default();
    }

    /// A key of this head was removed.
    pub fn removed(&mut self, generation: u64, head: Head) {
        self.count(generation, -1, -i64::from(head.expires().is_some()));
    }

    fn count(&mut self, generation: u64, keys: i64, expiring: i64) {
        match self.counts.iter_mut().find(|change| change.generation == generation) {
            Some(change) => {
                change.keys += keys;
                change.expiring += expiring;
            }
            None => self.counts.push(CountChange { generation, keys, expiring }),
        }
    }
}

/// What was found under a key. Writers show it to [`Keyspace::put`] and [`Keyspace::remove`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'t> {
    /// The head of the row, if there is one, expired or not.
    stored: Option<Head>,
    /// Head and body, unless it is expired. The body is empty if only the head was read.
    live: Option<(Head, &'t [u8])>,
}

impl<'t> Entry<'t> {
    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.live.is_some()
    }

    /// The head, if the key exists.
    pub fn head(&self) -> Option<Head> {
        self.live.map(|(head, _)| head)
    }

    /// Head and body, if the key exists.
    pub fn value(&self) -> Option<(Head, &'t [u8])> {
        self.live
    }

    /// The body of a value that has to be of this type; `None` if the key does not exist.
    pub fn body_of(&self, kind: Kind) -> Result<Option<&'t [u8]>, Stop> {
        match self.live {
            Some((head, _)) if head.kind() != kind => Err(WRONG_TYPE.into()),
            live => Ok(live.map(|(_, body)| body)),
        }
    }

    /// The string, `None` if the key does not exist.
    pub fn string(&self) -> Result<Option<&'t [u8]>, Stop> {
        self.body_of(Kind::String)
    }
}

/// What a transaction of commands is given.
#[derive(Clone, Copy)]
pub struct Context<'t> {
    /// The tables.
    pub tables: Tables,
    /// The time of the transaction, in milliseconds since 1970.
    pub now_ms: i64,
    /// The number of databases.
    pub databases: u32,
    /// Longest string that a client may build, in bytes.
    pub longest: usize,
    /// Numbers of keys.
    pub counts: &'t KeyCounts,
    /// Gathers what is applied after the commit.
    pub effects: &'t RefCell<Effects>,
    /// The transaction is that of MULTI and EXEC.
    pub is_exec: bool,
    /// The transaction may take its time: it holds up no event loop.
    pub is_patient: bool,
}

/// The keys of one database, for one command.
pub struct Keyspace<'t> {
    tx: Transaction<'t>,
    context: Context<'t>,
    database: u32,
    generation: Cell<u64>,
}

impl<'t> Keyspace<'t> {
    /// Opens a database.
    pub fn open(tx: Transaction<'t>, context: Context<'t>, database: u32) -> Result<Self, Abort> {
        let generation = databases::generation(&tx, context.tables, database)?;
        Ok(Keyspace { tx, context, database, generation: Cell::new(generation) })
    }

    /// The same transaction's view of another database.
    pub fn of_database(&self, database: u32) -> Result<Keyspace<'t>, Abort> {
        Keyspace::open(self.tx, self.context, database)
    }

    /// What it was given.
    pub fn context(&self) -> &Context<'t> {
        &self.context
    }

    /// The time of the transaction in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.context.now_ms
    }

    /// The number of the database.
    pub fn database(&self) -> u32 {
        self.database
    }

    /// The number of keys, those included that have expired and were not removed yet.
    pub fn count_keys(&self) -> i64 {
        let generation = self.generation.get();
        let effects = self.context.effects.borrow();
        let own = effects.counts.iter().find(|change| change.generation == generation);
        self.context.counts.of(generation).0 + own.map_or(0, |change| change.keys)
    }

    /// Announces that a key will be looked up.
    pub fn prefetch(&self, key: &[u8]) {
        self.tx.prefetch(
            self.context.tables.keys,
            (self.generation.get(), key),
            hyades::Columns::ALL,
        );
    }

    fn head_of(&self, word: u64) -> Result<Head, Abort> {
        // Written by this program: another word is a torn view, which is not validated.
        Head::from_word(word).ok_or(Abort::Conflict)
    }

    /// An error if the transaction has copied more than it may. Each command looks its keys up
    /// before it writes, so it is enough to check there.
    fn check_copied(&self) -> Result<(), Abort> {
        match self.context.effects.borrow().copied {
            copied if copied > MOST_COPIED => Err(TOO_MUCH),
            copied if copied > MOST_COPIED_ON_LOOP && !self.context.is_patient => {
                Err(TOO_MUCH_FOR_LOOP)
            }
            _ => Ok(()),
        }
    }

    /// Counts steps that a command takes beside its accesses, as if each copied a few bytes: what
    /// arguments multiply is bounded as well.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn charge(&self, steps: usize) -> Result<(), Abort> {
        self.context.effects.borrow_mut().copied += steps * ACCESS_BYTES;
        self.check_copied()
    }

    fn count_read_bytes(&self, key: &[u8], body: usize) {
        self.context.effects.borrow_mut().copied += key.len() + ACCESS_BYTES + body;
    }

    fn count_written_bytes(&self, key: &[u8], body: usize, copies: usize) {
        let bytes = key.len() + ACCESS_BYTES + body;
        let mut effects = self.context.effects.borrow_mut();
        effects.written += bytes;
        effects.copied += copies * bytes;
    }

    /// Looks a key up.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much.
    pub fn find(&self, key: &[u8]) -> Result<Entry<'t>, Abort> {
        self.check_copied()?;
        let row = self.tx.get(self.context.tables.keys, (self.generation.get(), key))?;
        self.count_read_bytes(key, row.map_or(0, |row| row.get(BODY).len()));
        let Some(row) = row else { return Ok(Entry { stored: None, live: None }) };
        let head = self.head_of(row.get(HEAD))?;
        let is_live = !head.is_expired(self.context.now_ms);
        Ok(Entry { stored: Some(head), live: is_live.then(|| (head, row.get(BODY))) })
    }

    /// Looks a key up without its body.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn find_head(&self, key: &[u8]) -> Result<Entry<'t>, Abort> {
        self.check_copied()?;
        self.count_read_bytes(key, 0);
        let key = (self.generation.get(), key);
        let row = self.tx.get_columns(self.context.tables.keys, key, HEAD.only())?;
        let Some(row) = row else { return Ok(Entry { stored: None, live: None }) };
        let head = self.head_of(row.get(HEAD))?;
        let is_live = !head.is_expired(self.context.now_ms);
        Ok(Entry { stored: Some(head), live: is_live.then_some((head, &[][..])) })
    }

    /// The last write of a key that exists: its generation, and the version of its row. Two calls
    /// return the same iff the key was not written in between, flushed, swapped away, or expired.
    /// One that does not exist, or has expired, has no last write.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn write_of(&self, key: &[u8]) -> Result<Option<(u64, u64)>, Abort> {
        if !self.find_head(key)?.exists() {
            return Ok(None);
        }
        let generation = self.generation.get();
        let version = self.tx.version(self.context.tables.keys, (generation, key))?;
        Ok(version.map(|version| (generation, version)))
    }

    /// Keeps what WATCH sees of a key.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn watch(&self, key: &[u8]) -> Result<(), Abort> {
        let seen = self.write_of(key)?;
        let watched = WatchedKey { database: self.database, key: key.to_vec(), seen };
        self.context.effects.borrow_mut().watched.push(watched);
        Ok(())
    }

    /// Has the client watch nothing any more.
    pub fn unwatch(&self) {
        self.context.effects.borrow_mut().unwatched = true;
    }

    /// Whether a key is as WATCH has seen it.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn is_as_watched(&self, watched: &WatchedKey) -> Result<bool, Abort> {
        let space = self.of_database(watched.database)?;
        Ok(space.write_of(&watched.key)? == watched.seen)
    }

    /// Looks a key up for a command that reads, and counts whether it exists.
    pub fn read(&self, key: &[u8]) -> Result<Entry<'t>, Abort> {
        let entry = self.find(key)?;
        self.count_read(&entry);
        Ok(entry)
    }

    /// As [`Keyspace::read`], without the body.
    pub fn read_head(&self, key: &[u8]) -> Result<Entry<'t>, Abort> {
        let entry = self.find_head(key)?;
        self.count_read(&entry);
        Ok(entry)
    }

    fn count_read(&self, entry: &Entry<'_>) {
        let mut effects = self.context.effects.borrow_mut();
        match entry.exists() {
            true => effects.hits += 1,
            false => effects.misses += 1,
        }
    }

    /// Counts the change from what was stored to what is stored now.
    fn count(&self, entry: &Entry<'_>, now: Option<Head>) {
        let number = |head: Option<Head>| {
            let expires = head.is_some_and(|head| head.expires().is_some());
            (i64::from(head.is_some()), i64::from(expires))
        };
        let ((keys, expiring), (keys_now, expiring_now)) = (number(entry.stored), number(now));
        let mut effects = self.context.effects.borrow_mut();
        if (keys, expiring) != (keys_now, expiring_now) {
            effects.count(self.generation.get(), keys_now - keys, expiring_now - expiring);
        }
        effects.expired += u64::from(entry.stored.is_some() && entry.live.is_none());
        effects.changes += 1;
        if let Some(at) = now.and_then(Head::expires) {
            effects.expiry = Some(effects.expiry.map_or(at, |known| known.min(at)));
        }
    }

    /// Stores a value. One that expires at once is removed instead.
    ///
    /// # Errors
    /// The key or the value is too long.
    pub fn put(&self, key: &[u8], entry: &Entry<'_>, head: Head, body: &[u8]) -> Result<(), Stop> {
        if head.is_expired(self.context.now_ms) {
            self.remove(key, entry)?;
            return Ok(());
        }
        check_lengths(key, body)?;
        self.count(entry, Some(head));
        self.count_written_bytes(key, body.len(), 1);
        let row = [self.generation.get().into(), key.into(), head.word().into(), body.into()];
        Ok(self.tx.put(self.context.tables.keys, &row)?)
    }

    /// Stores a string that does not expire.
    pub fn put_string(&self, key: &[u8], entry: &Entry<'_>, value: &[u8]) -> Result<(), Stop> {
        self.put(key, entry, Head::new(Kind::String, Form::Plain), value)
    }

    /// Replaces head and body of a key that exists: each column that is given.
    pub fn change(
        &self,
        key: &[u8],
        entry: &Entry<'_>,
        head: Head,
        body: Option<&[u8]>,
    ) -> Result<(), Stop> {
        if head.is_expired(self.context.now_ms) {
            self.remove(key, entry)?;
            return Ok(());
        }
        self.count(entry, Some(head));
        let key_values = (self.generation.get(), key);
        let is_same_head = entry.stored == Some(head);
        match body {
            Some(body) => {
                check_lengths(key, body)?;
                self.count_written_bytes(key, body.len(), COPIES_OF_A_CHANGE);
                match is_same_head {
                    true => {
                        self.tx.update(self.context.tables.keys, key_values, &[BODY.set(body)])?
                    }
                    false => {
                        let sets = [HEAD.set(head.word()), BODY.set(body)];
                        self.tx.update(self.context.tables.keys, key_values, &sets)?
                    }
                };
            }
            None if is_same_head => {}
            None => {
                self.count_written_bytes(key, 0, COPIES_OF_A_CHANGE);
                self.tx.update(self.context.tables.keys, key_values, &[HEAD.set(head.word())])?;
            }
        }
        Ok(())
    }

    /// Removes a key; whether it existed.
    pub fn remove(&self, key: &[u8], entry: &Entry<'_>) -> Result<bool, Abort> {
        if entry.stored.is_some() {
            self.count(entry, None);
            self.count_written_bytes(key, 0, 1);
            self.tx.delete(self.context.tables.keys, (self.generation.get(), key))?;
        }
        Ok(entry.exists())
    }

    /// Removes all keys of these databases.
    pub fn flush(&self, numbers: impl Iterator<Item = u32>) -> Result<(), Abort> {
        databases::flush(&self.tx, self.context.tables, numbers)?;
        self.context.effects.borrow_mut().flushed = true;
        self.reopen()
    }

    /// Swaps two databases.
    pub fn swap(&self, a: u32, b: u32) -> Result<(), Abort> {
        databases::swap(&self.tx, self.context.tables, a, b)?;
        self.reopen()
    }

    /// Commands that follow in the same transaction see the new generation.
    fn reopen(&self) -> Result<(), Abort> {
        let now = databases::generation(&self.tx, self.context.tables, self.database)?;
        self.generation.set(now);
        Ok(())
    }
}

fn check_lengths(key: &[u8], body: &[u8]) -> Result<(), Stop> {
    if key.len() > LONGEST_KEY {
        return Err("ERR the key is longer than 1 MiB".into());
    }
    if body.len() > LONGEST_STRING {
        return Err(format!("ERR the value is longer than {LONGEST_STRING} bytes").into());
    }
    Ok(())
}
