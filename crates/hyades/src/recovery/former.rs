//! Records of a former schema: rows and deltas of tables whose columns have changed are converted
//! when they are decoded, and those of dropped tables are left out. All of this happens at most
//! once, at the opening that changes the schema.

use super::catalogue::Catalogue;
use super::replay::ReplayContext;
use crate::error::Error;
use crate::logging::record::{Change, TableShape, take_change};
use crate::logging::row_frame::Before;
use crate::logging::write::{Pending, Write, add_to_outcome};
use crate::storage::Stamp;
use crate::storage::conversion::Conversion;
use crate::storage::key::{self, KeyBytes};
use crate::storage::layout::Layout;
use crate::storage::schema::Schema;

/// A table as the log's records know it, if it is dropped or its rows have another layout now.
pub(crate) struct FormerTable {
    pub layout: Layout,
    keyless: bool,
    key_bytes: Option<usize>,
    /// `None` if the table is dropped.
    now: Option<DeclaredTable>,
}

/// The declared table.
struct DeclaredTable {
    /// Its position among the declarations.
    at: usize,
    to_declared: Conversion,
    from_declared: Conversion,
}

/// A change as it was decoded: of which table, the key, and the change in the table's former
/// layout.
pub(crate) type FormerChange<'r, 'a> = (&'r FormerTable, KeyBytes, Change<'a>);

impl FormerTable {
    /// `declared` is the table's position among the declarations, and its schema; `None` if it is
    /// dropped.
    pub fn new(stored: &Schema, declared: Option<(usize, &Schema)>) -> FormerTable {
        let widths = stored.key.iter().map(|&c| key::width(stored.columns[c as usize].kind, false));
        let keyless = stored.key.is_empty();
        let declared_table = |(at, declared): (usize, &Schema)| DeclaredTable {
            at,
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

    /// The table's position among the declarations; `None` if it is dropped.
    pub fn position(&self) -> Option<usize> {
        self.now.as_ref().map(|now| now.at)
    }

    fn shape(&self) -> TableShape<'_> {
        let FormerTable { layout, keyless, key_bytes, .. } = self;
        TableShape { layout, keyless: *keyless, key_bytes: *key_bytes }
    }

    /// Converts a change; what it needs is written to `out`. `None` if the table is dropped, or the
    /// row becomes too long, which fails the replay.
    fn convert<'c, S: Stamp>(
        &self,
        replay: &ReplayContext<S>,
        change: Change<'_>,
        out: &'c mut Vec<u8>,
    ) -> Option<Change<'c>> {
        let now = self.now.as_ref()?;
        let to = &replay.engine.tables[now.at].layout;
        match change {
            Change::Put(row) => {
                if !now.to_declared.row(&self.layout, to, row, out) {
                    replay.fail(Error::Mismatch(format!(
                        "a row of table {:?} is longer than 16 MiB with its new columns: declare \
                         the table as it was",
                        to.name
                    )));
                    return None;
                }
                Some(Change::Put(out))
            }
            Change::Delta { base, delta } => {
                now.to_declared.delta(&self.layout, delta, out);
                Some(Change::Delta { base, delta: out })
            }
            Change::Delete => Some(Change::Delete),
        }
    }

    /// Converts a before-image, as [`FormerTable::convert`].
    pub fn convert_before<'c, S: Stamp>(
        &self,
        replay: &ReplayContext<S>,
        before: Before<'_>,
        out: &'c mut Vec<u8>,
    ) -> Option<Before<'c>> {
        let image = self.convert(replay, before.image, out)?;
        Some(Before { base: before.base, image })
    }
}

/// Decodes the next change in `rest` if its table is a former one.
pub(crate) fn take_former<'r, 'a, S: Stamp>(
    replay: &'r ReplayContext<S>,
    rest: &mut &'a [u8],
) -> Option<FormerChange<'r, 'a>> {
    let shape = |id| Some(replay.catalogue.former(id)?.shape());
    let (id, key, change) = take_change(rest, shape)?;
    let former = replay.catalogue.former(id)?;
    let key = match (key, change) {
        (Some(key), _) => KeyBytes::from_slice(key),
        (None, Change::Put(row)) => {
            let mut key = KeyBytes::new();
            former.layout.primary_key_of(row, &mut key);
            key
        }
        (None, _) => return None,
    };
    Some((former, key, change))
}

/// Decodes the next change in `rest`, and converts it into `out`. `None` if it fits no table; the
/// inner `None` if its table is dropped.
pub(crate) fn next_change<'c, S: Stamp>(
    replay: &ReplayContext<S>,
    rest: &mut &[u8],
    out: &'c mut Vec<u8>,
) -> Option<Option<(usize, KeyBytes, Change<'c>)>> {
    let (former, key, change) = take_former(replay, rest)?;
    let Some(at) = former.position() else { return Some(None) };
    Some(Some((at, key, former.convert(replay, change, out)?)))
}

/// The outcome of a command, as [`crate::logging::write::outcome`], in terms of the former schema,
/// under which the command ran.
pub(crate) fn outcome<'w, 's: 'w, S: Stamp>(
    replay: &ReplayContext<S>,
    writes: impl Iterator<Item = &'w Write<'s, S>>,
) -> u32 {
    let catalogue: &Catalogue = &replay.catalogue;
    let mut converted = Vec::new();
    writes.fold(0, |sum, write| {
        let table = &replay.engine.tables[write.table as usize];
        let key = write.record.key();
        let former = catalogue.former(table.log_id.into());
        let Some((former, now)) = former.and_then(|f| Some((f, f.now.as_ref()?))) else {
            return add_to_outcome(sum, table.log_id, key, write.pending);
        };
        let pending = match write.pending {
            Pending::Put(row) => {
                now.from_declared.row(&table.layout, &former.layout, row, &mut converted);
                Pending::Put(&converted)
            }
            Pending::Delta(columns, delta) => {
                let left = now.from_declared.delta(&table.layout, delta, &mut converted);
                if left == 0 {
                    // Nothing that the former schema knows has changed.
                    return sum;
                }
                Pending::Delta(columns, &converted)
            }
            Pending::Delete => Pending::Delete,
        };
        add_to_outcome(sum, table.log_id, key, pending)
    })
}
