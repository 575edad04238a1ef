//! What tables are read through: a transaction, a snapshot or a long snapshot.

use crate::bytes::Bytes;
use crate::error::Error;
use hyades_deuteronomy::{LongSnapshot, ScanOrder, Snapshot, Transaction};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A key and a value as they stand in the database.
pub type RawRow = (Arc<[u8]>, Bytes);

mod sealed {
    use super::*;

    /// The reads of a view.
    pub trait Reads {
        fn read_value(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error>;
        /// The first `limit` rows in `order`.
        fn read_rows(
            &mut self,
            range: (Bound<&[u8]>, Bound<&[u8]>),
            order: ScanOrder,
            limit: usize,
        ) -> Result<Vec<RawRow>, Error>;
        /// Announces keys that are read next.
        fn announce_keys(&mut self, _keys: &[Vec<u8>]) {}
    }
}

/// A view of the database that tables are read through: a
/// [`Transaction`](hyades_deuteronomy::Transaction), a
/// [`Snapshot`](hyades_deuteronomy::Snapshot) or a
/// [`LongSnapshot`](hyades_deuteronomy::LongSnapshot). A long snapshot may be cloned for further
/// threads.
pub trait View: sealed::Reads {}

impl<T: sealed::Reads> View for T {}

pub(crate) use sealed::Reads;

fn raw((key, value): hyades_deuteronomy::Row) -> RawRow {
    (key, Bytes::shared(value))
}

impl Reads for Transaction<'_> {
    fn read_value(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.get(key)?.map(Bytes::shared))
    }

    fn read_rows(
        &mut self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        order: ScanOrder,
        limit: usize,
    ) -> Result<Vec<RawRow>, Error> {
        let rows = match order {
            ScanOrder::Ascending => self.scan(from, to, limit)?,
            ScanOrder::Descending => self.scan_back(from, to, limit)?,
        };
        Ok(rows.into_iter().map(raw).collect())
    }

    fn announce_keys(&mut self, keys: &[Vec<u8>]) {
        self.prefetch(keys);
    }
}

impl Reads for Snapshot<'_> {
    fn read_value(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.get(key)?.map(Bytes::shared))
    }

    fn read_rows(
        &mut self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        order: ScanOrder,
        limit: usize,
    ) -> Result<Vec<RawRow>, Error> {
        Ok(self.scan(from, to, order, limit)?.into_iter().map(raw).collect())
    }
}

impl Reads for LongSnapshot {
    fn read_value(&mut self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(self.get(key)?.map(Bytes::owned))
    }

    fn read_rows(
        &mut self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        order: ScanOrder,
        limit: usize,
    ) -> Result<Vec<RawRow>, Error> {
        let mut rows = Vec::new();
        self.scan(from, to, order, |key, value| {
            rows.push((Arc::from(key), Bytes::owned(value.to_vec())));
            match rows.len() < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(rows)
    }
}
