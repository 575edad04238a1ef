//! The keys of a database, as a transaction sees them at a moment: an expired key is absent, and
//! the next command that writes there overwrites or removes the row.

mod effects;
mod entry;
mod fields;
mod notices;
mod waiting;
mod walking;
mod watched;

pub use effects::Effects;
pub use entry::Entry;
pub use notices::{Events, Notices, WrittenKey};
pub use waiting::{Fills, Wait};
pub use watched::WatchedKey;

use super::Tables;
use super::blocks::BlockTable;
use super::counts::KeyCounts;
use super::databases;
use super::field_times;
use super::head::{Head, Kind};
use crate::config::{EventClasses, PackedLimits};
use hyades::{Abort, Column, Columns, Transaction};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

const HEAD: Column<u64> = Column::at(2);
const BODY: Column<[u8]> = Column::at(3);

/// A value without the key.
const VALUE: Columns = HEAD.only().and(BODY.only());

/// The longest key in bytes.
pub const LONGEST_KEY: usize = 1 << 20;

/// The longest body of a row in bytes; with the longest key the body fits into the row.
pub const LONGEST_BODY: usize = (16 << 20) - LONGEST_KEY - 64;

/// Bytes of an access beside the bytes of key and value, about.
const ACCESS_BYTES: usize = 24;

/// Copies of a change in a transaction: the change, the change merged with earlier changes, and the
/// resulting row.
pub const COPIES_OF_A_CHANGE: usize = 3;

/// Most bytes copied by a transaction on an event loop: beyond, the transaction goes to another
/// thread.
pub const MOST_COPIED_ON_LOOP: usize = 1 << 20;

/// Most bytes copied by any transaction: the copies stay until the transaction ends. The limit
/// suffices to copy a string of 512 MiB. (Tests do with less.)
pub const MOST_COPIED: usize = if cfg!(test) { 64 << 20 } else { (1 << 30) + (1 << 20) };

/// The abort of an access beyond [`MOST_COPIED_ON_LOOP`].
pub const TOO_MUCH_FOR_LOOP: Abort = Abort::User(1);

/// The abort of an access beyond [`MOST_COPIED`].
pub const TOO_MUCH: Abort = Abort::User(2);

/// Why a command ends without a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The engine ended the operation.
    Abort(Abort),
    /// The client gets this error.
    Error(Cow<'static, str>),
    /// The client gets this error, and earlier changes of the command stay.
    ErrorKept(Cow<'static, str>),
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

/// The context of a transaction of commands.
#[derive(Clone, Copy)]
pub struct Context<'t> {
    /// The tables.
    pub tables: Tables,
    /// The time of the transaction, in milliseconds since 1970.
    pub now_ms: i64,
    /// The number of databases.
    pub databases: u32,
    /// The longest string a client may build, in bytes.
    pub longest: usize,
    /// The limits of values packed in the rows of keys.
    pub packed: PackedLimits,
    /// Numbers of keys.
    pub counts: &'t KeyCounts,
    /// Gathers the effects to apply after the commit.
    pub effects: &'t RefCell<Effects>,
    /// Clients wait: keys that may be waited for are noted.
    pub names_filled: bool,
    /// The wanted classes of keyspace events.
    pub events: EventClasses,
    /// Clients track: written keys are noted.
    pub tracks: bool,
    /// The command has waited for an element, and runs again.
    pub has_waited: bool,
    /// The transaction is one of MULTI and EXEC.
    pub is_exec: bool,
    /// The command is run by a script.
    pub is_script: bool,
    /// The transaction may take long: no event loop runs it.
    pub is_patient: bool,
    /// The transaction reads the state of a standby.
    pub only_reads: bool,
    /// The commands repeat those of another server, which decides about expiry: here nothing
    /// expires.
    pub is_import: bool,
}

impl Context<'_> {
    /// An error if the transaction has copied more than allowed. Each command looks keys up before
    /// a write, so a check at the lookup is enough.
    pub fn check_copied(&self) -> Result<(), Abort> {
        self.check_room(0)
    }

    /// As `check_copied`, with `bytes` more to copy: a long operation is not begun in
    /// vain.
    pub fn check_room(&self, bytes: usize) -> Result<(), Abort> {
        match self.effects.borrow().copied.saturating_add(bytes) {
            copied if copied > MOST_COPIED_ON_LOOP && !self.is_patient => Err(TOO_MUCH_FOR_LOOP),
            copied if copied > MOST_COPIED => Err(TOO_MUCH),
            _ => Ok(()),
        }
    }

    /// An error if an operation that may copy `bytes` is too long for a loop. A patient transaction
    /// goes on until it has copied too much.
    pub fn check_loop(&self, bytes: usize) -> Result<(), Abort> {
        if self.is_patient { Ok(()) } else { self.check_room(bytes) }
    }

    /// Values with this or an earlier time of expiry have expired: none has in a live import, where
    /// the primary decides about removals.
    pub fn expired_until_ms(&self) -> i64 {
        if self.is_import { 0 } else { self.now_ms }
    }

    /// Whether a value with this time of expiry is absent.
    pub fn has_passed(&self, at_ms: i64) -> bool {
        at_ms <= self.expired_until_ms()
    }

    /// Whether a value has expired.
    pub fn has_expired(&self, head: Head) -> bool {
        head.is_expired(self.expired_until_ms())
    }

    /// Counts an access that reads.
    pub fn count_read_bytes(&self, key: usize, body: usize) {
        self.effects.borrow_mut().copied += key + ACCESS_BYTES + body;
    }

    /// Counts an access that writes.
    pub fn count_written_bytes(&self, key: usize, body: usize, copies: usize) {
        let bytes = key + ACCESS_BYTES + body;
        let mut effects = self.effects.borrow_mut();
        effects.written += bytes;
        effects.copied += copies * bytes;
    }
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

    /// The same database for the commands of a script.
    pub fn for_script(&self) -> Keyspace<'t> {
        let context = Context { is_script: true, ..self.context };
        Keyspace {
            tx: self.tx,
            context,
            database: self.database,
            generation: self.generation.clone(),
        }
    }

    /// The blocks that the transaction reaches.
    pub fn blocks(&self) -> BlockTable<'t> {
        BlockTable::new(self.tx, self.context)
    }

    /// The transaction.
    pub fn transaction(&self) -> Transaction<'t> {
        self.tx
    }

    /// The context of the transaction.
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

    /// The generation of the keys.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// The number of keys, including expired keys not removed yet.
    pub fn count_keys(&self) -> i64 {
        let generation = self.generation.get();
        let effects = self.context.effects.borrow();
        let own = effects.counts.iter().find(|change| change.generation == generation);
        // A key removed here may come from another thread's commit, not counted there yet.
        (self.context.counts.of(generation).0 + own.map_or(0, |change| change.keys)).max(0)
    }

    /// Announces a lookup of a key.
    pub fn prefetch(&self, key: &[u8]) {
        self.tx.prefetch(self.context.tables.keys, (self.generation.get(), key), VALUE);
    }

    fn head_of(&self, word: u64) -> Result<Head, Abort> {
        // Heads are written by this program: another word is a torn view, which is not validated.
        Head::from_word(word).ok_or(Abort::Conflict)
    }

    /// Counts steps of a command beside its accesses, as if each copied a few bytes: work
    /// multiplied by arguments is bounded as well.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn charge(&self, steps: usize) -> Result<(), Abort> {
        self.context.effects.borrow_mut().copied += steps * ACCESS_BYTES;
        self.context.check_copied()
    }

    /// Looks a key up.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much.
    pub fn find<'s>(&'s self, key: &'s [u8]) -> Result<Entry<'t, 's>, Abort> {
        self.context.check_copied()?;
        let place = (self.generation.get(), key);
        let row = self.tx.get_columns(self.context.tables.keys, place, VALUE)?;
        self.context.count_read_bytes(key.len(), row.map_or(0, |row| row.get(BODY).len()));
        let Some(row) = row else { return Ok(Entry::new(self, key, None, &[])) };
        let (head, body) = (self.head_of(row.get(HEAD))?, row.get(BODY));
        let entry = Entry::new(self, key, Some(head), body);
        if head.form().is_timed() && self.is_over(head, body)? {
            return Ok(entry.over());
        }
        Ok(entry)
    }

    /// Whether all fields of a hash with expiring fields have expired.
    #[cold]
    fn is_over(&self, head: Head, body: &[u8]) -> Result<bool, Abort> {
        field_times::is_over(head, body, self.blocks(), self.context.expired_until_ms())
    }

    /// Whether a key with this head is absent: the key, or each field of its hash, has expired.
    fn is_absent(&self, key: &[u8], head: Head) -> Result<bool, Abort> {
        if !head.form().is_timed() {
            return Ok(self.context.has_expired(head));
        }
        Ok(!self.find(key)?.exists())
    }

    /// Looks a key up without the body.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub fn find_head<'s>(&'s self, key: &'s [u8]) -> Result<Entry<'t, 's>, Abort> {
        self.context.check_copied()?;
        self.context.count_read_bytes(key.len(), 0);
        let place = (self.generation.get(), key);
        let row = self.tx.get_columns(self.context.tables.keys, place, HEAD.only())?;
        let head = row.map_or(Ok(None), |row| self.head_of(row.get(HEAD)).map(Some))?;
        if head.is_some_and(|head| head.form().is_timed()) {
            // Whether the hash exists depends on its fields.
            return self.find(key);
        }
        Ok(Entry::new(self, key, head, &[]))
    }

    /// The numbers of keys of all databases, about.
    pub fn counts(&self) -> &KeyCounts {
        self.context.counts
    }

    /// Looks a key up for a reading command, and counts whether the key exists.
    pub fn read<'s>(&'s self, key: &'s [u8]) -> Result<Entry<'t, 's>, Abort> {
        let entry = self.find(key)?;
        self.count_read(&entry);
        Ok(entry)
    }

    /// As [`Keyspace::read`], without the body.
    pub fn read_head<'s>(&'s self, key: &'s [u8]) -> Result<Entry<'t, 's>, Abort> {
        let entry = self.find_head(key)?;
        self.count_read(&entry);
        Ok(entry)
    }

    fn count_read(&self, entry: &Entry<'_, '_>) {
        match entry.exists() {
            true => self.context.effects.borrow_mut().hits += 1,
            false => {
                self.context.effects.borrow_mut().misses += 1;
                self.note_miss(entry.key());
            }
        }
    }

    /// A number for a collection or a string, never used before.
    pub fn number_collection(&self, kind: Kind) -> Result<u64, Abort> {
        self.context.count_written_bytes(size_of::<u64>(), size_of::<u32>(), 1);
        self.tx.insert(self.context.tables.collections, &[(kind as u32).into()])
    }

    /// Removes all keys of these databases.
    pub fn flush(&self, numbers: impl Iterator<Item = u32>) -> Result<(), Abort> {
        self.context.check_copied()?;
        let counted = numbers.inspect(|number| {
            self.context.count_written_bytes(4, 8, 1);
            // Clients wait for the end of streams as well.
            self.context.effects.borrow_mut().fills.add_database(*number);
        });
        databases::flush(&self.tx, self.context.tables, counted)?;
        self.context.effects.borrow_mut().flushed = true;
        self.reopen()
    }

    /// Swaps two databases.
    pub fn swap(&self, a: u32, b: u32) -> Result<(), Abort> {
        self.context.check_copied()?;
        self.context.count_written_bytes(8, 16, 1);
        databases::swap(&self.tx, self.context.tables, a, b)?;
        self.context.effects.borrow_mut().note_swap(a, b);
        self.reopen()
    }

    /// Makes later commands of the transaction see the current generation: databases were flushed
    /// or swapped, perhaps by a script in another view, or a flush or swap was taken back.
    ///
    /// # Errors
    /// A conflict.
    pub fn reopen(&self) -> Result<(), Abort> {
        let now = databases::generation(&self.tx, self.context.tables, self.database)?;
        self.generation.set(now);
        Ok(())
    }
}
