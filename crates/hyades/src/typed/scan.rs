//! Scans of typed tables.

use super::TableRow;
use crate::error::Abort;
use crate::storage::field::{KeyFields, KeyPrefix, KeyValues};
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::transaction::access::{Index, Table, Transaction};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// The keys to read in a scan.
enum ScannedKeys<'k> {
    /// All keys that begin with these values.
    Prefix(KeyValues<'k>),
    /// The keys in a range.
    Between(Bound<KeyValues<'k>>, Bound<KeyValues<'k>>),
}

/// A scan to be configured; [`TypedScan::rows`] runs it.
pub struct TypedScan<'t, 'k, R, K> {
    tx: Transaction<'t>,
    table: Table,
    index: Option<Index>,
    keys: ScannedKeys<'k>,
    descending: bool,
    limit: usize,
    types: PhantomData<fn() -> (R, K)>,
}

impl<'t, 'k, R: TableRow, K: KeyFields> TypedScan<'t, 'k, R, K> {
    #[inline]
    pub(super) fn new(tx: Transaction<'t>, table: Table, index: Option<Index>) -> Self {
        TypedScan {
            tx,
            table,
            index,
            keys: ScannedKeys::Between(Bound::Unbounded, Bound::Unbounded),
            descending: false,
            limit: usize::MAX,
            types: PhantomData,
        }
    }

    /// Restricts the scan to rows with exactly this key.
    #[inline]
    pub fn equal(mut self, key: K::Key<'k>) -> Self {
        self.keys = ScannedKeys::Prefix(K::values(key));
        self
    }

    /// Restricts the scan to rows whose key starts with these fields.
    #[inline]
    pub fn prefix(mut self, fields: impl KeyPrefix<'k>) -> Self {
        self.keys = ScannedKeys::Prefix(fields.values());
        self
    }

    /// Restricts the scan to rows with a key in the range: `10..20`, `"a"..="b"`, `(1, 5)..`.
    #[inline]
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
    #[inline]
    pub fn prefix_range<P: KeyPrefix<'k> + Clone>(mut self, range: impl RangeBounds<P>) -> Self {
        let bound = |bound: Bound<&P>| bound.map(|fields| fields.clone().values());
        self.keys = ScannedKeys::Between(bound(range.start_bound()), bound(range.end_bound()));
        self
    }

    /// In descending order of keys.
    #[inline]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    /// At most `n` rows.
    #[inline]
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }

    /// Runs the scan and returns its rows in order. The range is protected against phantoms until
    /// the transaction commits.
    pub fn rows(self) -> Result<Rows<'t, R>, Abort> {
        let rows = self.get_columns(Columns::ALL)?;
        Ok(Rows { rows: rows.iter(), row_type: PhantomData })
    }

    /// Runs the scan like [`rows`](Self::rows), but reads only some columns of each row; see
    /// [`TypedTable::get_columns`](super::TypedTable::get_columns).
    #[inline]
    pub fn get_columns(self, columns: Columns) -> Result<&'t [Row<'t>], Abort> {
        self.tx.0.scan(self.table, self.index, &self.range_of_values(), columns)
    }

    /// Announces that the scan will run soon, or that rows will be inserted where the scan would
    /// begin; see [`Scan::prefetch`](crate::Scan::prefetch).
    #[inline]
    pub fn prefetch(self) {
        self.tx.0.prefetch_range(self.table, self.index, &self.range_of_values());
    }

    #[inline]
    fn range_of_values(&self) -> Range<'_> {
        let (lower, upper) = match &self.keys {
            ScannedKeys::Prefix(key) => (Bound::Included(&key[..]), Bound::Included(&key[..])),
            ScannedKeys::Between(lower, upper) => {
                (lower.as_ref().map(|key| &key[..]), upper.as_ref().map(|key| &key[..]))
            }
        };
        Range { lower, upper, descending: self.descending, limit: self.limit }
    }
}

/// The rows of a scan, as values of `R`.
pub struct Rows<'t, R> {
    rows: std::slice::Iter<'t, Row<'t>>,
    row_type: PhantomData<fn() -> R>,
}

impl<'t, R: TableRow> Iterator for Rows<'t, R> {
    type Item = R::Read<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rows.next().map(R::read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl<R: TableRow> DoubleEndedIterator for Rows<'_, R> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rows.next_back().map(R::read)
    }
}

impl<R: TableRow> ExactSizeIterator for Rows<'_, R> {}
