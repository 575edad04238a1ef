//! Scans of typed tables, over the primary key or an index.

use crate::bytes::Bytes;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::prefix::{OwnedRange, Prefix};
use crate::rows::TableRows;
use crate::view::View;
use hyades::{KeyFields, KeyPrefix, KeyValues, TableRow, Value};
use hyades_deuteronomy::ScanOrder;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

/// The keys to read.
enum ScannedKeys<'k> {
    /// The keys that start with these values.
    Starting(KeyValues<'k>),
    /// The keys between two bounds, each of which stands for all keys that start with it.
    Between(Bound<KeyValues<'k>>, Bound<KeyValues<'k>>),
}

/// A scan to be configured; [`rows`](Self::rows) and [`each`](Self::each) run it.
///
/// Rows are read in chunks, so the range may be larger than memory. In a transaction the scan is
/// serializable up to the end of the last chunk.
#[must_use = "a scan reads nothing before its rows are asked for"]
pub struct TypedScan<'v, 'k, V, R, K> {
    rows: Arc<TableRows>,
    view: &'v mut V,
    /// The position of the index; None for the primary key.
    index: Option<usize>,
    keys: ScannedKeys<'k>,
    order: ScanOrder,
    limit: usize,
    types: PhantomData<fn() -> (R, K)>,
}

impl<'v, 'k, V: View, R: TableRow, K: KeyFields> TypedScan<'v, 'k, V, R, K> {
    pub(crate) fn new(rows: Arc<TableRows>, view: &'v mut V, index: Option<usize>) -> Self {
        let keys = ScannedKeys::Between(Bound::Unbounded, Bound::Unbounded);
        let (order, limit) = (ScanOrder::Ascending, usize::MAX);
        TypedScan { rows, view, index, keys, order, limit, types: PhantomData }
    }

    /// Restricts the scan to rows with exactly this key.
    pub fn equal(mut self, key: K::Key<'k>) -> Self {
        self.keys = ScannedKeys::Starting(K::values(key));
        self
    }

    /// Restricts the scan to rows whose key starts with these fields.
    pub fn prefix(mut self, fields: impl KeyPrefix<'k>) -> Self {
        self.keys = ScannedKeys::Starting(fields.values());
        self
    }

    /// Restricts the scan to rows with a key in the range: `10..20`, `"a"..="b"`, `(1, 5)..`.
    pub fn range(mut self, range: impl RangeBounds<K::Key<'k>>) -> Self
    where
        K::Key<'k>: Clone,
    {
        let bound = |bound: Bound<&K::Key<'k>>| bound.map(|key| K::values(key.clone()));
        self.keys = ScannedKeys::Between(bound(range.start_bound()), bound(range.end_bound()));
        self
    }

    /// Restricts the scan to rows whose first key fields are in the range: `(1, 5)..(1, 9)` of a
    /// key of three fields. An included upper bound takes in all keys that start with the bound.
    pub fn prefix_range<P: KeyPrefix<'k> + Clone>(mut self, range: impl RangeBounds<P>) -> Self {
        let bound = |bound: Bound<&P>| bound.map(|fields| fields.clone().values());
        self.keys = ScannedKeys::Between(bound(range.start_bound()), bound(range.end_bound()));
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

    /// The columns of the scanned key, and the place of its keys.
    fn place(&self) -> (&[u16], &Prefix) {
        match self.index {
            None => (self.rows.codec.key_columns(), self.rows.keyspace.prefix()),
            Some(at) => (&self.rows.indexes[at].columns, &self.rows.indexes[at].prefix),
        }
    }

    /// The scanned range.
    fn bounds(&self) -> Result<OwnedRange, Error> {
        let (columns, prefix) = self.place();
        let encode = |values: &[Value<'_>]| {
            let mut key = Vec::new();
            let pushed = self.rows.codec.push_key(columns, values, &mut key);
            pushed.map(|()| key).map_err(|abort| self.rows.key_misfit(abort))
        };
        let bound = |bound: &Bound<KeyValues<'_>>| {
            Ok::<_, Error>(match bound {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(values) => Bound::Included(encode(values)?),
                Bound::Excluded(values) => Bound::Excluded(encode(values)?),
            })
        };
        Ok(match &self.keys {
            ScannedKeys::Starting(values) => prefix.starting_with(&encode(values)?),
            ScannedKeys::Between(lower, upper) => {
                let (lower, upper) = (bound(lower)?, bound(upper)?);
                let slice = |bound| Bound::as_ref(bound).map(|key: &Vec<u8>| &key[..]);
                prefix.between_starts(slice(&lower), slice(&upper))
            }
        })
    }

    /// The key of the only possible entry: all columns of a unique index are given, none is null.
    fn only_key(&self, range: &OwnedRange) -> Option<Vec<u8>> {
        let index = &self.rows.indexes[self.index?];
        let ScannedKeys::Starting(values) = &self.keys else { return None };
        let is_whole = values.len() == index.columns.len();
        let has_null = values.iter().any(|value| matches!(value, Value::Null));
        match &range.0 {
            Bound::Included(key) if index.unique && is_whole && !has_null => Some(key.clone()),
            _ => None,
        }
    }

    /// Begins the scan.
    fn found(self) -> Result<FoundRows<'v, V>, Error> {
        if self.index.is_some() {
            self.rows.check_generation(self.view)?;
        }
        let range = self.bounds()?;
        let only = self.only_key(&range).filter(|_| self.limit > 0);
        let (limit, is_index) = (if only.is_some() { 0 } else { self.limit }, self.index.is_some());
        let cursor = Cursor::new(range, self.order, limit);
        Ok(FoundRows { rows: self.rows, view: self.view, is_index, only, cursor })
    }

    /// Runs the scan, as an iterator. After an error the iterator has ended.
    ///
    /// # Errors
    /// [`Error::Row`]: a key does not fit its columns; [`Error::Changed`]. In the iterator: as
    /// [`TypedTable::read`](crate::TypedTable::read), and
    /// [`hyades_deuteronomy::Error::NoRanges`].
    pub fn rows(self) -> Result<TypedRows<'v, V, R>, Error>
    where
        R: for<'t> TableRow<Read<'t> = R>,
    {
        Ok(TypedRows { found: self.found()?, row: PhantomData })
    }

    /// Runs the scan, and hands the rows to a closure until the closure breaks off.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn each(self, mut each: impl FnMut(R::Read<'_>) -> ControlFlow<()>) -> Result<(), Error> {
        let mut found = self.found()?;
        while let Some(row) = found.next()? {
            let row = found.rows.codec.row(&row).expect("a row found is valid");
            if each(R::read(&row)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The rows of a scan, as bytes.
struct FoundRows<'v, V> {
    rows: Arc<TableRows>,
    view: &'v mut V,
    is_index: bool,
    /// The key of the only possible entry.
    only: Option<Vec<u8>>,
    cursor: Cursor,
}

impl<V: View> FoundRows<'_, V> {
    fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let next = self.next_row();
        if next.is_err() {
            self.cursor.end();
        }
        next
    }

    fn next_row(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(key) = self.only.take() {
            let entry = self.view.read_value(&key)?;
            let entry = entry.map(|value| self.rows.row_of_entry(self.view, &key, &value));
            return entry.transpose();
        }
        let is_new_chunk = self.cursor.pending().is_empty();
        let Some((key, value)) = self.cursor.next(self.view)? else { return Ok(None) };
        if !self.is_index {
            return self.rows.decode(self.view, value).map(Some);
        }
        if is_new_chunk {
            self.announce();
        }
        self.rows.row_of_entry(self.view, &key, &value).map(Some)
    }

    /// Announces the rows of the chunk's entries.
    fn announce(&mut self) {
        let pending = self.cursor.pending().iter();
        let keys: Vec<_> =
            pending.filter_map(|(key, value)| self.rows.row_key(key, value)).collect();
        self.view.announce_keys(&keys);
    }
}

/// The rows of a [`TypedScan`].
pub struct TypedRows<'v, V, R> {
    found: FoundRows<'v, V>,
    row: PhantomData<fn() -> R>,
}

impl<V: View, R: for<'t> TableRow<Read<'t> = R>> Iterator for TypedRows<'_, V, R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.found.next().transpose()?;
        Some(
            row.map(|row| R::read(&self.found.rows.codec.row(&row).expect("a row found is valid"))),
        )
    }
}
