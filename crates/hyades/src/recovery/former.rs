//! A table in its form in the log before a change of the schema, and the conversion of rows and
//! deltas.

use crate::error::Error;
use crate::logging::record::{Change, TableShape};
use crate::logging::write::Pending;
use crate::storage::conversion::Conversion;
use crate::storage::key;
use crate::storage::layout::Layout;
use crate::storage::schema::Schema;

/// A table in its form in the log's records, if the table is dropped or has another layout of rows
/// now.
pub(crate) struct FormerTable {
    pub layout: Layout,
    keyless: bool,
    key_bytes: Option<usize>,
    /// `None` if the table is dropped.
    now: Option<DeclaredTable>,
}

/// The declared table.
struct DeclaredTable {
    /// The position among the declarations.
    position: usize,
    to_declared: Conversion,
    from_declared: Conversion,
}

impl FormerTable {
    /// `declared` is the table's position among the declarations, and its schema; `None` if the
    /// table is dropped.
    pub fn new(stored: &Schema, declared: Option<(usize, &Schema)>) -> FormerTable {
        let widths = stored.key.iter().map(|&c| key::width(stored.columns[c as usize].kind, false));
        let keyless = stored.key.is_empty();
        let declared_table = |(position, declared): (usize, &Schema)| DeclaredTable {
            position,
            to_declared: Conversion::new(stored, declared),
            from_declared: Conversion::new(declared, stored),
        };
        FormerTable {
            layout: Layout::new(stored, 0),
            keyless,
            key_bytes: if keyless { Some(8) } else { widths.sum() },
            now: declared.map(declared_table),
        }
    }

    /// Returns the table's position among the declarations; `None` if dropped.
    pub fn position(&self) -> Option<usize> {
        self.now.as_ref().map(|now| now.position)
    }

    /// Returns the shape needed to decode changes of the table.
    pub fn shape(&self) -> TableShape<'_> {
        let FormerTable { layout, keyless, key_bytes, .. } = self;
        TableShape { layout, keyless: *keyless, key_bytes: *key_bytes }
    }

    /// Converts a change to the declared layout `to`; the needed bytes are written to `out`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if a row becomes too long.
    pub fn convert<'c>(
        &self,
        to: &Layout,
        change: Change<'_>,
        out: &'c mut Vec<u8>,
    ) -> Result<Change<'c>, Error> {
        let Some(now) = &self.now else {
            debug_assert!(false, "changes of a dropped table are left out");
            return Ok(Change::Delete);
        };
        match change {
            Change::Put(row) if now.to_declared.row(&self.layout, to, row, out) => {
                Ok(Change::Put(out))
            }
            Change::Put(_) => Err(Error::Mismatch(format!(
                "a row of table {:?} is longer than 16 MiB with its new columns: declare the table \
                 as it was",
                to.name
            ))),
            Change::Delta { base, delta } => {
                now.to_declared.delta(&self.layout, delta, out);
                Ok(Change::Delta { base, delta: out })
            }
            Change::Edits { base, edits } => {
                now.to_declared.edits(&self.layout, edits, out);
                Ok(Change::Edits { base, edits: out })
            }
            Change::Delete => Ok(Change::Delete),
        }
    }

    /// Converts a write of a command back from the declared layout `from`. `None` if the write
    /// changed nothing of the former table.
    pub fn convert_back<'c>(
        &self,
        from: &Layout,
        write: Pending<'_>,
        out: &'c mut Vec<u8>,
    ) -> Option<Pending<'c>> {
        let now = self.now.as_ref()?;
        match write {
            Pending::Put(row) => {
                now.from_declared.row(from, &self.layout, row, out);
                Some(Pending::Put(out))
            }
            Pending::Delta(columns, delta) => {
                let left = now.from_declared.delta(from, delta, out);
                (left > 0).then_some(Pending::Delta(columns, out))
            }
            Pending::Delete => Some(Pending::Delete),
        }
    }
}
