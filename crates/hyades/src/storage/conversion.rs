//! Conversion of rows and deltas from one layout of a table to another. Columns are matched by
//! name.

use super::edits::Edits;
use super::layout::Layout;
use super::row::{Assignments, push_varint};
use super::schema::{MAX_ROW_BYTES, Schema};

/// The source of a column's value.
#[derive(Debug)]
enum Source {
    /// A column of the other layout.
    Column(u16),
    Null,
    /// The column's default, as in a row.
    Default(Box<[u8]>),
}

/// Converts rows of the schema `from` to rows of the schema `to`; see the module.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// By column of `to`.
    sources: Vec<Source>,
    /// By column of `from`: its position in `to`, if present.
    places: Vec<Option<u16>>,
}

impl Conversion {
    /// A column of `to` that is not in `from` gets its default or, if nullable, a null.
    pub fn new(from: &Schema, to: &Schema) -> Conversion {
        let source = |column: &super::schema::ColumnSpec| match from.position(&column.name) {
            Some(at) => Source::Column(at),
            None => match &column.default {
                Some(bytes) => Source::Default(bytes.as_slice().into()),
                None => {
                    debug_assert!(
                        column.nullable,
                        "a new column has a value for the rows there are"
                    );
                    Source::Null
                }
            },
        };
        Conversion {
            sources: to.columns.iter().map(source).collect(),
            places: from.columns.iter().map(|column| to.position(&column.name)).collect(),
        }
    }

    /// Converts a row into `out` (cleared first). Returns false if the row becomes too long.
    pub fn row(&self, from: &Layout, to: &Layout, row: &[u8], out: &mut Vec<u8>) -> bool {
        debug_assert_eq!(self.sources.len(), to.columns.len(), "each column has a source");
        out.clear();
        out.resize(to.fixed_bytes, 0);
        let value = |at: usize| match &self.sources[at] {
            Source::Column(column) => from.bytes(row, *column),
            Source::Null => None,
            Source::Default(bytes) => Some(&**bytes),
        };
        let mut nulls = 0u64;
        for (at, column) in to.columns.iter().enumerate() {
            let Some(bytes) = value(at) else {
                nulls |= 1 << at;
                continue;
            };
            if let Some(width) = column.kind.width() {
                out[column.offset as usize..][..width].copy_from_slice(bytes);
            }
        }
        for &at in &to.variable {
            out.extend_from_slice(value(at.into()).unwrap_or_default());
            let end = (out.len() - to.fixed_bytes) as u32;
            let place = to.columns[at as usize].offset as usize;
            out[place..place + 4].copy_from_slice(&end.to_le_bytes());
        }
        if to.has_nulls {
            out[..8].copy_from_slice(&nulls.to_le_bytes());
        }
        out.len() <= MAX_ROW_BYTES
    }

    /// Converts a delta into `out` (cleared first), without the columns missing in `to`. Returns
    /// the number of remaining columns.
    pub fn delta(&self, from: &Layout, delta: &[u8], out: &mut Vec<u8>) -> usize {
        let kept = self.kept(Assignments::new(from, delta));
        out.clear();
        push_varint(out, kept.len() as u64);
        for (place, column, bytes) in &kept {
            push_varint(out, u64::from(*place) << 1 | u64::from(bytes.is_none()));
            if let Some(bytes) = bytes {
                if from.columns[usize::from(*column)].kind.width().is_none() {
                    push_varint(out, bytes.len() as u64);
                }
                out.extend_from_slice(bytes);
            }
        }
        kept.len()
    }

    /// Converts edits into `out` (cleared first), without the columns missing in `to`.
    pub fn edits(&self, from: &Layout, edits: &[u8], out: &mut Vec<u8>) {
        let kept = self.kept(Edits::new(from, edits));
        out.clear();
        push_varint(out, kept.len() as u64);
        for (place, _, value) in kept {
            value.push_after(place, out);
        }
    }

    /// The new values of columns present in `to`: the position in `to`, the position in `from`, the
    /// value; in the order of `to`.
    fn kept<V>(&self, values: impl Iterator<Item = (u16, V)>) -> Vec<(u16, u16, V)> {
        let place = |column: u16| self.places.get(usize::from(column)).copied().flatten();
        let kept = values.filter_map(|(column, value)| Some((place(column)?, column, value)));
        let mut kept: Vec<_> = kept.collect();
        kept.sort_unstable_by_key(|(place, ..)| *place);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::row::{apply_delta, check_delta, encode_delta};
    use crate::storage::schema::Set;
    use crate::storage::value::{Type, Value};
    use proptest::prelude::*;

    fn before() -> Schema {
        Schema::new("t")
            .column("k", Type::I64)
            .column("a", Type::Text)
            .column("b", Type::I32)
            .primary_key(&["k"])
    }

    /// Columns in front, between and behind, the first nullable column among them, and two moved.
    fn after() -> Schema {
        Schema::new("t")
            .column_with_default("first", Type::Text, "new")
            .column("b", Type::I32)
            .nullable("note", Type::Bytes)
            .column("k", Type::I64)
            .column_with_default("flag", Type::Bool, true)
            .column("a", Type::Text)
            .column_with_default("last", Type::Fixed(2), &[7u8, 8])
            .primary_key(&["k"])
    }

    fn values<'v>(k: i64, a: &'v str, b: i32) -> [Value<'v>; 7] {
        let last = Value::Bytes(&[7, 8]);
        ["new".into(), b.into(), Value::Null, k.into(), true.into(), a.into(), last]
    }

    proptest! {
        #[test]
        fn rows_and_deltas_are_matched_by_name(
            k: i64, a: String, b: i32, na: Option<String>, nb: Option<i32>,
        ) {
            let (before, after) = (before(), after());
            prop_assert_eq!((&before.fault, &after.fault), (&None, &None));
            let (from, to) = (Layout::new(&before, 0), Layout::new(&after, 0));
            let up = Conversion::new(&before, &after);
            let down = Conversion::new(&after, &before);
            let (mut row, mut new, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
            from.encode(&[k.into(), a[..].into(), b.into()], &mut row).unwrap();
            to.encode(&values(k, &a, b), &mut wanted).unwrap();
            prop_assert!(up.row(&from, &to, &row, &mut new));
            prop_assert!(to.is_valid(&new));
            prop_assert_eq!(&new, &wanted);
            let mut back = Vec::new();
            prop_assert!(down.row(&to, &from, &new, &mut back));
            prop_assert_eq!(&back, &row);

            let mut sets = Vec::new();
            if let Some(a) = &na { sets.push(Set { column: 1, value: a[..].into() }); }
            if let Some(b) = nb { sets.push(Set { column: 2, value: b.into() }); }
            let (mut delta, mut converted) = (Vec::new(), Vec::new());
            encode_delta(&from, &sets, &mut delta).unwrap();
            let changed = sets.len();
            prop_assert_eq!(up.delta(&from, &delta, &mut converted), changed);
            prop_assert_eq!(check_delta(&to, &converted), Some(&[][..]));
            apply_delta(&to, &mut new, &converted).unwrap();
            let (a, b) = (na.unwrap_or(a), nb.unwrap_or(b));
            to.encode(&values(k, &a, b), &mut wanted).unwrap();
            prop_assert_eq!(new, wanted);
            let mut back = Vec::new();
            prop_assert_eq!(down.delta(&to, &converted, &mut back), changed);
            prop_assert_eq!(back, delta);
        }
    }

    #[test]
    fn a_delta_of_new_columns_alone_becomes_empty() {
        let (before, after) = (before(), after());
        let to = Layout::new(&after, 0);
        let (mut delta, mut out) = (Vec::new(), Vec::new());
        let sets = [Set { column: 2, value: Value::Null }, Set { column: 4, value: false.into() }];
        encode_delta(&to, &sets, &mut delta).unwrap();
        assert_eq!(Conversion::new(&after, &before).delta(&to, &delta, &mut out), 0);
        assert_eq!(out, [0]);
    }
}
