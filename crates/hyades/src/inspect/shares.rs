//! The use of a log's bytes: by procedure and table.

use super::Inspected;
use crate::error::Error;
use crate::storage::row::{push_varint, take_varint};
use std::collections::BTreeMap;

/// The subject of some bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ShareOf<'i> {
    /// A call of this procedure, by name and version: the procedure's number, the arguments, and
    /// the numbers of inserted rows without a key.
    Procedure(&'i str, u32),
    /// Changes of rows of this table, with their keys.
    Table(&'i str),
    /// Before-images of changed rows.
    BeforeImages,
}

/// A part of a record's bytes. The bytes of a record's frames outside all shares are overhead of
/// logging: heads, checksums and the protocol's stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<'i> {
    /// The subject of the bytes.
    pub subject: ShareOf<'i>,
    /// Calls, or changed rows; 0 for before-images, since their changes are counted.
    pub count: u64,
    /// The bytes.
    pub bytes: u64,
}

impl<'a> Inspected<'a> {
    /// Splits the record's content by subject. Frames ahead of the record are included.
    ///
    /// # Errors
    /// [`Error::Recovery`] if the content does not fit the log's own catalogue.
    pub fn shares(&self) -> Result<Vec<Share<'a>>, Error> {
        let shares = if self.head.command { self.share_of_call() } else { self.shares_of_rows() };
        shares.ok_or_else(|| self.misfit())
    }

    fn share_of_call(&self) -> Option<Vec<Share<'a>>> {
        let id = take_varint(&mut &self.body[..])?;
        let (name, version) = self.inspector.procedures.get(&id)?;
        let subject = ShareOf::Procedure(name, *version);
        Some(vec![Share { subject, count: 1, bytes: self.body.len() as u64 + self.row_id_bytes() }])
    }

    /// Returns the bytes of the numbers of rows in the record's head.
    fn row_id_bytes(&self) -> u64 {
        let mut encoded = Vec::new();
        if let ids @ [_, ..] = &self.head.row_ids[..] {
            push_varint(&mut encoded, ids.len() as u64);
            ids.iter().for_each(|id| push_varint(&mut encoded, *id));
        }
        encoded.len() as u64
    }

    fn shares_of_rows(&self) -> Option<Vec<Share<'a>>> {
        let mut shares: BTreeMap<ShareOf<'a>, (u64, u64)> = BTreeMap::new();
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let before = rest.len();
            let (known, ..) = self.inspector.take_change(&mut rest)?;
            let share = shares.entry(ShareOf::Table(&known.schema.name)).or_default();
            *share = (share.0 + 1, share.1 + (before - rest.len()) as u64);
        }
        if self.before_bytes > 0 {
            shares.insert(ShareOf::BeforeImages, (0, self.before_bytes));
        }
        let share = |(subject, (count, bytes))| Share { subject, count, bytes };
        Some(shares.into_iter().map(share).collect())
    }
}
