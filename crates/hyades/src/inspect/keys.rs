//! Primary keys as text.

use crate::storage::layout::Layout;
use crate::storage::row::take;
use crate::storage::value::{Type, Value, text};

/// Formats an encoded primary key; [`crate::storage::key`] defines the encoding.
pub(super) fn key_text(layout: &Layout, mut bytes: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    for &column in &layout.key {
        let kind = layout.columns[column as usize].kind;
        let whole;
        let value = match kind {
            Type::Text | Type::Bytes => {
                whole = unescape(&mut bytes)?;
                if kind == Type::Text {
                    Value::Text(std::str::from_utf8(&whole).ok()?)
                } else {
                    Value::Bytes(&whole)
                }
            }
            _ => fixed(kind, take(&mut bytes, kind.width()?)?)?,
        };
        parts.push(text(value));
    }
    bytes.is_empty().then(|| parts.join(", "))
}

fn fixed(kind: Type, bytes: &[u8]) -> Option<Value<'_>> {
    let word = || Some(u64::from_be_bytes(bytes.try_into().ok()?));
    let half = || Some(u32::from_be_bytes(bytes.try_into().ok()?));
    Some(match kind {
        Type::Bool => Value::Bool(bytes[0] != 0),
        Type::I32 => Value::I32((half()? ^ 1 << 31) as i32),
        Type::U32 => Value::U32(half()?),
        Type::I64 => Value::I64((word()? ^ 1 << 63) as i64),
        Type::U64 => Value::U64(word()?),
        Type::F64 => {
            let bits = word()?;
            Value::F64(f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits }))
        }
        Type::Fixed(_) => Value::Bytes(bytes),
        Type::Text | Type::Bytes => return None,
    })
}

/// Decodes and removes an escaped column at the front of a key.
fn unescape(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        match take(bytes, 1)?[0] {
            0 if take(bytes, 1)?[0] == 0 => return Some(out),
            byte => out.push(byte),
        }
    }
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
