//! The byte layout of rows, determined by the schema of their table.

use super::key::{self, KeyBytes, PackedKey};
use super::schema::{MAX_ROW_BYTES, Schema};
use super::value::{Type, Value};
use crate::error::Abort;

/// The byte layout of a table's rows.
///
/// A row is: a null bitmap of 8 bytes if any column is nullable; the 8-byte columns; the 4-byte
/// columns; one `u32` per variable-length column, the end of its bytes within the tail; the `Bool`
/// columns; the `Fixed` columns; the tail. All little-endian. Records store a row as whole 8-byte
/// words, the last word zero-padded.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The table's number as declared in this process, for error values.
    pub table: u32,
    pub name: String,
    pub columns: Vec<LayoutColumn>,
    pub has_nulls: bool,
    /// Bytes before the tail.
    pub fixed_bytes: usize,
    pub variable: Vec<u16>,
    pub key: Vec<u16>,
    /// Whether primary keys are packed, see [`PackedKey`].
    pub packed_key: bool,
    /// The set of primary key columns.
    pub key_set: u64,
    /// The set of variable-length columns.
    pub variable_set: u64,
    /// The set of columns left out of these rows, see [`super::short_rows`].
    pub left_out: u64,
}

/// The offset of a left-out column: beyond every row.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutColumn {
    pub kind: Type,
    pub nullable: bool,
    /// The offset of the value, or of the `u32` end of a variable-length value.
    pub offset: u32,
    /// The position among the variable-length columns.
    pub ordinal: u16,
}

impl Layout {
    pub fn new(schema: &Schema, table: u32) -> Layout {
        Layout::without(schema, table, 0)
    }

    /// The layout of rows without the columns of this set. Other columns keep their numbers.
    pub fn without(schema: &Schema, table: u32, left_out: u64) -> Layout {
        debug_assert!(schema.columns.len() <= 64, "sets of columns have 64 bits");
        let has_nulls = schema.columns.iter().any(|c| c.nullable);
        let mut columns: Vec<LayoutColumn> = schema
            .columns
            .iter()
            .map(|c| {
                let (kind, nullable) = (c.kind, c.nullable);
                LayoutColumn { kind, nullable, offset: NOWHERE, ordinal: 0 }
            })
            .collect();
        let mut at = if has_nulls { 8 } else { 0 };
        let mut variable = Vec::new();
        // `Fixed(n)` comes last: only the tail follows, and the tail needs no alignment.
        let rank = |kind: Type| match kind {
            Type::I64 | Type::U64 | Type::F64 => 0,
            Type::I32 | Type::U32 => 1,
            Type::Text | Type::Bytes => 2,
            Type::Bool => 3,
            Type::Fixed(_) => 4,
        };
        for wanted in 0..5 {
            for (i, column) in columns.iter_mut().enumerate() {
                if rank(column.kind) != wanted || left_out >> i & 1 == 1 {
                    continue;
                }
                column.offset = at as u32;
                if wanted == 2 {
                    column.ordinal = variable.len() as u16;
                    variable.push(i as u16);
                    at += 4;
                } else {
                    at += column.kind.width().expect("a fixed-width type");
                }
            }
        }
        let there = columns.iter().filter(|column| column.offset != NOWHERE);
        let widths = there.map(|column| column.kind.width().unwrap_or(4)).sum::<usize>();
        debug_assert_eq!(
            at,
            widths + if has_nulls { 8 } else { 0 },
            "each column has its own bytes before the tail"
        );
        let set = |list: &[u16]| list.iter().fold(0, |set, &c| set | 1u64 << c);
        Layout {
            table,
            name: schema.name.clone(),
            has_nulls,
            fixed_bytes: at,
            packed_key: PackedKey::fits(
                schema.key.iter().map(|&c| schema.columns[c as usize].kind),
            ),
            key_set: set(&schema.key),
            variable_set: set(&variable),
            left_out,
            key: schema.key.clone(),
            variable,
            columns,
        }
    }

    /// Encodes a whole row into `out` (cleared first).
    pub fn encode(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), Abort> {
        if values.len() != self.columns.len() {
            return Err(Abort::WrongType { table: self.table, column: values.len() as u16 });
        }
        out.clear();
        out.resize(self.fixed_bytes, 0);
        let mut nulls = 0u64;
        for (i, (column, value)) in self.columns.iter().zip(values).enumerate() {
            let at = &mut out[column.offset as usize..];
            match (value, column.kind) {
                (Value::I32(v), Type::I32) => at[..4].copy_from_slice(&v.to_le_bytes()),
                (Value::U32(v), Type::U32) => at[..4].copy_from_slice(&v.to_le_bytes()),
                (Value::I64(v), Type::I64) => at[..8].copy_from_slice(&v.to_le_bytes()),
                (Value::U64(v), Type::U64) => at[..8].copy_from_slice(&v.to_le_bytes()),
                (Value::F64(v), Type::F64) => at[..8].copy_from_slice(&v.to_le_bytes()),
                (Value::Bool(v), Type::Bool) => at[0] = u8::from(*v),
                (Value::Bytes(v), Type::Fixed(n)) if v.len() == n as usize => {
                    at[..v.len()].copy_from_slice(v);
                }
                (Value::Text(_), Type::Text) | (Value::Bytes(_), Type::Bytes) => {}
                (Value::Null, _) if column.nullable => nulls |= 1 << i,
                _ => return Err(self.check(i as u16, value).expect_err("it does not fit")),
            }
        }
        for &i in &self.variable {
            value_into_tail(&values[i as usize], out);
            let end = (out.len() - self.fixed_bytes) as u32;
            let at = self.columns[i as usize].offset as usize;
            out[at..at + 4].copy_from_slice(&end.to_le_bytes());
        }
        if self.has_nulls {
            out[..8].copy_from_slice(&nulls.to_le_bytes());
        }
        if out.len() > MAX_ROW_BYTES {
            return Err(Abort::RowTooLarge { table: self.table });
        }
        Ok(())
    }

    /// Checks that column `at` can store `value`.
    #[inline]
    pub fn check(&self, at: u16, value: &Value<'_>) -> Result<(), Abort> {
        let Some(column) = self.columns.get(at as usize) else {
            return Err(Abort::WrongType { table: self.table, column: at });
        };
        match value {
            Value::Null if column.nullable => Ok(()),
            Value::Null => Err(Abort::NullValue { table: self.table, column: at }),
            value if value.fits(column.kind) => Ok(()),
            _ => Err(Abort::WrongType { table: self.table, column: at }),
        }
    }

    /// The offset and length of column `at` in `row`, or `None` for a null.
    #[inline]
    pub fn place(&self, row: &[u8], at: u16) -> Option<(usize, usize)> {
        let column = &self.columns[at as usize];
        if column.nullable && u64::from_le_bytes(row[..8].try_into().unwrap()) >> at & 1 == 1 {
            return None;
        }
        match column.kind.width() {
            Some(width) => Some((column.offset as usize, width)),
            None => Some(self.place_in_tail(row, column)),
        }
    }

    /// The offset and length of a variable-length column in `row`, null or not.
    #[inline]
    pub fn place_in_tail(&self, row: &[u8], column: &LayoutColumn) -> (usize, usize) {
        let end_at = |offset: usize| {
            u32::from_le_bytes(row[offset..offset + 4].try_into().unwrap()) as usize
        };
        let end = end_at(column.offset as usize);
        let start = match column.ordinal {
            0 => 0,
            n => end_at(self.columns[self.variable[n as usize - 1] as usize].offset as usize),
        };
        debug_assert!(start <= end, "values in the tail are in column order");
        (self.fixed_bytes + start, end - start)
    }

    /// Whether a change of these columns moves no other bytes of the row.
    pub fn changes_in_place(&self, columns: u64) -> bool {
        columns & self.variable_set == 0 && !self.has_nulls
    }

    /// The bytes of column `at` in `row`, or `None` for a null.
    #[inline]
    pub fn bytes<'a>(&self, row: &'a [u8], at: u16) -> Option<&'a [u8]> {
        self.place(row, at).map(|(offset, len)| &row[offset..offset + len])
    }

    /// The value of column `at` in `row`.
    pub fn value<'a>(&self, row: &'a [u8], at: u16) -> Value<'a> {
        match self.bytes(row, at) {
            Some(bytes) => Value::from_bytes(self.columns[at as usize].kind, bytes),
            None => Value::Null,
        }
    }

    /// Whether `row`, read from disk, is a possible row of this table: every offset inside the row,
    /// every text UTF-8. A row that passes never makes a reader panic.
    pub fn is_valid(&self, row: &[u8]) -> bool {
        if row.len() < self.fixed_bytes || row.len() > MAX_ROW_BYTES {
            return false;
        }
        let mut last = 0;
        for &i in &self.variable {
            let at = self.columns[i as usize].offset as usize;
            let end = u32::from_le_bytes(row[at..at + 4].try_into().unwrap()) as usize;
            if end < last || end > row.len() - self.fixed_bytes {
                return false;
            }
            let bytes = &row[self.fixed_bytes + last..self.fixed_bytes + end];
            if self.columns[i as usize].kind == Type::Text && std::str::from_utf8(bytes).is_err() {
                return false;
            }
            last = end;
        }
        last == row.len() - self.fixed_bytes
    }

    /// Packs a primary key. `value` returns the value of a key column, given its position in the
    /// key and in the table. `None` if a value does not fit its column, or keys are not packed.
    #[inline(always)]
    pub fn pack_key<'v>(&self, value: impl Fn(usize, u16) -> &'v Value<'v>) -> Option<PackedKey> {
        if !self.packed_key {
            return None;
        }
        let mut key = PackedKey::EMPTY;
        for (n, &at) in self.key.iter().enumerate() {
            key = key.with(value(n, at), self.columns[at as usize].kind)?;
        }
        Some(key)
    }

    /// The primary key of a row given as its values, all fitting their columns.
    #[inline]
    pub fn primary_key(&self, row: &[Value<'_>], out: &mut KeyBytes) {
        if let Some(packed) = self.pack_key(|_, at| &row[at as usize]) {
            return out.set_packed(packed);
        }
        for &at in &self.key {
            key::push(out, self.columns[at as usize].kind, false, &row[at as usize]);
        }
    }

    /// The primary key of a row given as its bytes.
    pub fn primary_key_of(&self, row: &[u8], out: &mut KeyBytes) {
        for &at in &self.key {
            key::push(out, self.columns[at as usize].kind, false, &self.value(row, at));
        }
    }
}

fn value_into_tail(value: &Value<'_>, out: &mut Vec<u8>) {
    value.with_bytes(|bytes| out.extend_from_slice(bytes));
}

/// The layout of a small table, shared by unit tests of rows.
#[cfg(test)]
pub(crate) fn layout_of_tests() -> Layout {
    let schema = Schema::new("t")
        .column("k", Type::I64)
        .nullable("a", Type::Text)
        .nullable("b", Type::I32)
        .column("c", Type::Bytes)
        .primary_key(&["k"]);
    Layout::new(&schema, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let schema = Schema::new("t")
            .nullable("a", Type::Text)
            .column("b", Type::I32)
            .column("c", Type::Fixed(3))
            .nullable("d", Type::Bytes)
            .column("e", Type::I64)
            .column("f", Type::Bool)
            .primary_key(&["e", "b"]);
        assert!(schema.fault.is_none());
        Layout::new(&schema, 0)
    }

    #[test]
    fn a_row_reads_back() {
        let layout = layout();
        let mut row = Vec::new();
        for a in [Value::Null, Value::Text(""), Value::Text("hyades")] {
            let values = [
                a,
                7.into(),
                (&[1u8, 2, 3]).into(),
                Value::Bytes(&[9; 20]),
                (-5i64).into(),
                true.into(),
            ];
            layout.encode(&values, &mut row).unwrap();
            assert!(layout.is_valid(&row));
            for (i, value) in values.iter().enumerate() {
                assert_eq!(layout.value(&row, i as u16), *value);
            }
        }
    }

    #[test]
    fn a_wrong_value_is_refused() {
        let layout = layout();
        let mut row = Vec::new();
        let good =
            [Value::Null, 7.into(), (&[1u8, 2, 3]).into(), Value::Null, 5i64.into(), true.into()];
        let mut wrong = good;
        wrong[1] = 7i64.into();
        assert_eq!(layout.encode(&wrong, &mut row), Err(Abort::WrongType { table: 0, column: 1 }));
        let mut null = good;
        null[4] = Value::Null;
        assert_eq!(layout.encode(&null, &mut row), Err(Abort::NullValue { table: 0, column: 4 }));
        assert!(layout.encode(&good[..3], &mut row).is_err());
    }
}
