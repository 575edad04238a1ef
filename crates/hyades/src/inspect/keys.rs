//! Primary keys as text.

use crate::storage::key::{ColumnBytes, take_column};
use crate::storage::layout::Layout;
use crate::storage::value::{Type, Value, text};

/// Formats an encoded primary key; [`crate::storage::key`] defines the encoding.
pub(super) fn key_text(layout: &Layout, mut bytes: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    for &column in &layout.key {
        let kind = layout.columns[column as usize].kind;
        let mut value = ColumnBytes::new();
        take_column(&mut bytes, kind, &mut value)?;
        if kind == Type::Text {
            std::str::from_utf8(&value).ok()?;
        }
        parts.push(text(Value::from_bytes(kind, &value)));
    }
    bytes.is_empty().then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::KnownTable;
    use super::*;
    use crate::storage::key;
    use crate::storage::schema::Schema;

    #[test]
    fn keys_read_back_as_they_were() {
        let schema = Schema::new("t")
            .column("a", Type::I32)
            .column("b", Type::Text)
            .column("c", Type::F64)
            .column("d", Type::Bytes)
            .column("e", Type::I64)
            .primary_key(&["a", "b", "c", "d", "e"]);
        let known = KnownTable::new(schema);
        let values: [Value<'_>; 5] = [
            (-7i32).into(),
            "a\0b".into(),
            (-1.5f64).into(),
            Value::Bytes(&[0, 255, 1]),
            i64::MIN.into(),
        ];
        let mut bytes = key::KeyBytes::new();
        for (value, column) in values.iter().zip(&known.layout.columns) {
            assert!(key::push(&mut bytes, column.kind, false, value));
        }
        let expected = format!("-7, \"a\\0b\", -1.5, x00ff01, {}", i64::MIN);
        assert_eq!(key_text(&known.layout, &bytes), Some(expected));
        for cut in 0..bytes.len() {
            assert_eq!(key_text(&known.layout, &bytes[..cut]), None);
        }
    }
}
