//! The entries of secondary indexes.
//!
//! An entry's key is the index's number, the row's values in the indexed columns in the engine's
//! order-preserving form, and the row's primary key. In a unique index the primary key is left out,
//! unless a column is null: so two rows with the same values would have the same entry. The
//! entry's value says where the primary key is: a varint, which is the length of the primary key at
//! the end of the key, or 0, followed by the primary key.

use crate::prefix::Prefix;
use hyades::row_codec::{RowCodec, push_varint, take_varint};

/// An index of a table.
pub(crate) struct Index {
    pub name: String,
    pub number: u32,
    pub prefix: Prefix,
    pub unique: bool,
    pub columns: Vec<u16>,
    /// Whether the index was filled when the opening began.
    pub is_filled: bool,
}

/// An entry of an index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Whether no other row may have the key.
    pub excludes: bool,
}

impl Index {
    /// The entry of a valid row.
    pub fn entry(&self, codec: &RowCodec, row: &[u8], primary: &[u8]) -> Entry {
        let mut key = self.prefix.key(&[]);
        let has_null = codec.push_index_key(&self.columns, row, &mut key);
        let (mut value, excludes) = (Vec::new(), self.unique && !has_null);
        if excludes {
            push_varint(&mut value, 0);
            value.extend_from_slice(primary);
        } else {
            key.extend_from_slice(primary);
            push_varint(&mut value, primary.len() as u64);
        }
        Entry { key, value, excludes }
    }
}

/// The primary key of an entry's row; None if the bytes are no entry.
pub(crate) fn primary_of<'e>(key: &'e [u8], value: &'e [u8]) -> Option<&'e [u8]> {
    let mut rest = value;
    match take_varint(&mut rest)? {
        0 => (!rest.is_empty()).then_some(rest),
        len if rest.is_empty() => {
            let start = key.len().checked_sub(usize::try_from(len).ok()?)?;
            Some(&key[start..])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyades::{Schema, Type, Value};

    fn codec() -> RowCodec {
        let schema = Schema::new("t")
            .column("id", Type::I64)
            .column("name", Type::Text)
            .nullable("mail", Type::Text)
            .primary_key(&["id"]);
        RowCodec::new(schema).unwrap()
    }

    fn entry(unique: bool, columns: &[u16], values: &[Value<'_>]) -> Entry {
        let codec = codec();
        let mut row = Vec::new();
        codec.encode(values, &mut row).unwrap();
        let index = Index {
            name: "i".into(),
            number: 5,
            prefix: Prefix::new(5),
            unique,
            columns: columns.to_vec(),
            is_filled: true,
        };
        let entry = index.entry(&codec, &row, &codec.primary_key(&row));
        assert_eq!(primary_of(&entry.key, &entry.value), Some(&codec.primary_key(&row)[..]));
        entry
    }

    #[test]
    fn rows_share_an_entry_only_in_a_unique_index_and_without_nulls() {
        let rows =
            |mail: Option<&'static str>| [1i64, 2].map(|id| [id.into(), "Ada".into(), mail.into()]);
        for (unique, columns, mail, shared) in [
            (false, &[1u16][..], Some("a@b"), false),
            (true, &[1], Some("a@b"), true),
            (true, &[1, 2], Some("a@b"), true),
            (true, &[1, 2], None, false),
        ] {
            let [one, other] = rows(mail).map(|row: [Value<'_>; 3]| entry(unique, columns, &row));
            assert_eq!(one.key == other.key, shared, "{unique} {columns:?} {mail:?}");
            assert_eq!(one.excludes, shared);
        }
    }

    #[test]
    fn noise_is_no_entry() {
        assert_eq!(primary_of(b"key", &[]), None);
        assert_eq!(primary_of(b"key", &[0]), None);
        assert_eq!(primary_of(b"key", &[4]), None);
        assert_eq!(primary_of(b"key", &[1, 1]), None);
        assert_eq!(primary_of(b"key", &[2]), Some(&b"ey"[..]));
    }
}
