//! Keyspaces: named maps from bytes to bytes.

use crate::bytes::Bytes;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::large::{self, Sizes};
use crate::prefix::{OwnedRange, Prefix};
use crate::value_reader::ValueReader;
use crate::view::{RawRow, View};
use crate::writes::Writes;
use hyades_deuteronomy::{ScanOrder, Transaction};
use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

/// A named map from keys to values, any bytes each, both possibly empty. No operation on a keyspace
/// meets a key of another one.
///
/// A key may be as long as the data component takes, less 1 to 5 bytes. A value may be as long as
/// the writes of a transaction ([`memory_bytes`](hyades_deuteronomy::Options::memory_bytes)): one
/// above the [size of a piece](crate::Builder::piece_bytes) is spread over pieces. Such a keyspace
/// reads a key before each write; a [keyspace of small values](crate::Builder::small_keyspace)
/// takes no longer values, and writes without a read.
///
/// ```
/// # use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
/// # let dir = tempfile::tempdir()?;
/// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
/// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
/// # let mut session = database.session()?;
/// use hyades_tables::{Error, Tables};
///
/// let tables = Tables::builder().keyspace("users").keyspace("files").open(&database)?;
/// let (users, files) = (tables.keyspace("users")?, tables.keyspace("files")?);
/// session.execute(|tx| {
///     users.put(tx, b"user/1", b"Ada")?;
///     users.put(tx, b"user/2", b"Max")?;
///     files.put(tx, b"user/1", &vec![7; 3 << 20])
/// })?;
/// let names = session.execute(|tx| {
///     let rows = users.scan(tx).prefix(b"user/").descending().rows();
///     rows.map(|row| Ok(row?.1.into_vec())).collect::<Result<Vec<_>, Error>>()
/// })?;
/// assert_eq!(names, [b"Max", b"Ada"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keyspace {
    name: Arc<str>,
    prefix: Prefix,
    /// Whether values of any size are taken.
    is_any_size: bool,
    sizes: Sizes,
}

impl Keyspace {
    pub(crate) fn new(name: &str, number: u32, is_any_size: bool, sizes: Sizes) -> Self {
        Self { name: name.into(), prefix: Prefix::new(number), is_any_size, sizes }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// What stands under a key.
    pub(crate) fn stored<V: View>(&self, view: &mut V, key: &[u8]) -> Result<Option<Bytes>, Error> {
        view.read_value(&self.prefix.key(key))
    }

    /// The value of a key; None if there is none.
    ///
    /// # Errors
    /// [`Error::Database`]; [`Error::Corrupt`].
    pub fn get<V: View>(&self, view: &mut V, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self.stored(view, key)? {
            Some(stored) => large::load(view, stored).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a key has a value. Reads no pieces.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains<V: View>(&self, view: &mut V, key: &[u8]) -> Result<bool, Error> {
        Ok(self.stored(view, key)?.is_some())
    }

    /// The value of a key, to be read a piece at a time; None if there is none.
    ///
    /// ```
    /// # use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
    /// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
    /// # let mut session = database.session()?;
    /// # let tables = hyades_tables::Tables::builder().keyspace("films").open(&database)?;
    /// # let films = tables.keyspace("films")?;
    /// session.execute(|tx| films.put(tx, b"1895", &vec![1; 5 << 20]))?;
    /// let mut snapshot = database.long_snapshot()?;
    /// let mut film = films.open_value(&mut snapshot, b"1895")?.expect("it was written");
    /// assert_eq!(film.len(), 5 << 20);
    /// let copied = std::io::copy(&mut film, &mut std::io::sink())?;
    /// assert_eq!(copied, 5 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn open_value<'v, V: View>(
        &self,
        view: &'v mut V,
        key: &[u8],
    ) -> Result<Option<ValueReader<'v, V>>, Error> {
        match self.stored(view, key)? {
            Some(stored) => ValueReader::new(view, stored).map(Some),
            None => Ok(None),
        }
    }

    /// Gives a key a value, whether or not the key has one.
    ///
    /// # Errors
    /// [`Error::Database`]; [`Error::ValueTooLarge`]; [`Error::Corrupt`].
    pub fn put(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if !self.is_any_size {
            return self.put_small(tx, key, value);
        }
        let before = self.stored(tx, key)?;
        self.replace(tx, key, value, before)
    }

    /// Writes without a read: no value of the keyspace has pieces.
    fn put_small(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = self.prefix.key(key);
        if !self.sizes.is_small(value.len()) {
            return Err(Error::ValueTooLarge { bytes: value.len(), source: None });
        }
        Ok(tx.put(&key, &large::inline(value))?)
    }

    /// Writes over what stood under the key.
    fn replace(
        &self,
        tx: &mut Transaction<'_>,
        key: &[u8],
        value: &[u8],
        before: Option<Bytes>,
    ) -> Result<(), Error> {
        let key = self.prefix.key(key);
        Writes::run(tx, |writes| self.write(writes, &key, value, before))
    }

    /// Writes as a part of an operation. `key` has the prefix.
    pub(crate) fn write(
        &self,
        writes: &mut Writes<'_, '_>,
        key: &[u8],
        value: &[u8],
        before: Option<Bytes>,
    ) -> Result<(), Error> {
        large::store(writes, self.sizes, key, value, before)
    }

    /// Gives a value to a key without a value.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Exists`].
    pub fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self.stored(tx, key)? {
            Some(_) => Err(Error::Exists(self.name.to_string())),
            None if self.is_any_size => self.replace(tx, key, value, None),
            None => self.put_small(tx, key, value),
        }
    }

    /// Deletes a key, with or without a value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<(), Error> {
        if !self.is_any_size {
            return Ok(tx.delete(&self.prefix.key(key))?);
        }
        let Some(before) = self.stored(tx, key)? else { return Ok(()) };
        let key = self.prefix.key(key);
        Writes::run(tx, |writes| large::remove(writes, &key, before))
    }

    /// A scan, at first over all keys.
    pub fn scan<'v, V: View>(&self, view: &'v mut V) -> KeyspaceScan<'v, V> {
        KeyspaceScan {
            prefix: self.prefix.clone(),
            view,
            range: self.prefix.all(),
            order: ScanOrder::Ascending,
            limit: usize::MAX,
        }
    }
}

/// A scan to be configured; [`rows`](Self::rows) and [`each`](Self::each) run it.
///
/// The rows are read in chunks of up to 1,024 and about 512 KiB, so the range may be larger than
/// memory. In a transaction the scan is serializable up to the end of the last chunk.
#[must_use = "a scan reads nothing before its rows are asked for"]
pub struct KeyspaceScan<'v, V> {
    prefix: Prefix,
    view: &'v mut V,
    range: OwnedRange,
    order: ScanOrder,
    limit: usize,
}

impl<'v, V: View> KeyspaceScan<'v, V> {
    /// Restricts the scan to keys that start with `prefix`. Replaces an earlier range.
    pub fn prefix(mut self, prefix: &[u8]) -> Self {
        self.range = self.prefix.starting_with(prefix);
        self
    }

    /// Restricts the scan to the keys in a range: `&b"a"[..]..&b"b"[..]`. Replaces an earlier
    /// range.
    pub fn range<'k>(mut self, range: impl RangeBounds<&'k [u8]>) -> Self {
        let (lower, upper) = (range.start_bound(), range.end_bound());
        self.range = self.prefix.between(lower.cloned(), upper.cloned());
        self
    }

    /// In descending order of keys.
    pub fn descending(mut self) -> Self {
        self.order = ScanOrder::Descending;
        self
    }

    /// At most `n` rows.
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }

    /// Runs the scan, as an iterator over keys and values. After an error the iterator has ended.
    pub fn rows(self) -> KeyspaceRows<'v, V> {
        let cursor = Cursor::new(self.range, self.order, self.limit);
        KeyspaceRows { prefix: self.prefix, view: self.view, cursor }
    }

    /// Runs the scan, and hands keys and values to a closure until the closure breaks off.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`hyades_deuteronomy::Error::NoRanges`].
    pub fn each(self, mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        let mut rows = self.rows();
        while let Some((key, value)) = rows.next_row()? {
            if each(rows.prefix.rest(&key), &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The rows of a [`KeyspaceScan`].
pub struct KeyspaceRows<'v, V> {
    prefix: Prefix,
    view: &'v mut V,
    cursor: Cursor,
}

impl<V: View> KeyspaceRows<'_, V> {
    /// The next row, with its key as stored and its value whole.
    fn next_row(&mut self) -> Result<Option<RawRow>, Error> {
        let Some((key, stored)) = self.cursor.next(self.view)? else { return Ok(None) };
        match large::load(self.view, stored) {
            Ok(value) => Ok(Some((key, value))),
            Err(error) => {
                self.cursor.end();
                Err(error)
            }
        }
    }
}

impl<V: View> Iterator for KeyspaceRows<'_, V> {
    type Item = Result<(Vec<u8>, Bytes), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next_row().transpose()?;
        Some(row.map(|(key, value)| (self.prefix.rest(&key).to_vec(), value)))
    }
}
