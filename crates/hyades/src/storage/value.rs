//! Values and types of columns.

use std::fmt::Write;

/// A column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Type {
    /// One byte, 0 or 1.
    Bool,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// 64-bit IEEE 754 number.
    F64,
    /// Exactly this many bytes (1 to 65,535).
    Fixed(u16),
    /// UTF-8 text of any length up to the row limit.
    Text,
    /// Bytes of any length up to the row limit.
    Bytes,
}

impl Type {
    /// The width in bytes of a value in a row, or `None` for variable-length types.
    pub const fn width(self) -> Option<usize> {
        match self {
            Type::Bool => Some(1),
            Type::I32 | Type::U32 => Some(4),
            Type::I64 | Type::U64 | Type::F64 => Some(8),
            Type::Fixed(n) => Some(n as usize),
            Type::Text | Type::Bytes => None,
        }
    }
}

/// A value of any column type, borrowed where it is long.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value; only for nullable columns.
    Null,
    /// For [`Type::Bool`].
    Bool(bool),
    /// For [`Type::I32`].
    I32(i32),
    /// For [`Type::U32`].
    U32(u32),
    /// For [`Type::I64`].
    I64(i64),
    /// For [`Type::U64`].
    U64(u64),
    /// For [`Type::F64`].
    F64(f64),
    /// For [`Type::Text`].
    Text(&'a str),
    /// For [`Type::Bytes`] and [`Type::Fixed`].
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Whether a column of type `kind` can store this value (nulls aside).
    pub fn fits(&self, kind: Type) -> bool {
        match (self, kind) {
            (Value::Bool(_), Type::Bool)
            | (Value::I32(_), Type::I32)
            | (Value::U32(_), Type::U32)
            | (Value::I64(_), Type::I64)
            | (Value::U64(_), Type::U64)
            | (Value::F64(_), Type::F64)
            | (Value::Text(_), Type::Text)
            | (Value::Bytes(_), Type::Bytes) => true,
            (Value::Bytes(bytes), Type::Fixed(n)) => bytes.len() == n as usize,
            _ => false,
        }
    }

    /// Calls `with` on the value's little-endian bytes, as stored in a row.
    #[inline]
    pub(crate) fn with_bytes<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match *self {
            Value::Null => with(&[]),
            Value::Bool(v) => with(&[v as u8]),
            Value::I32(v) => with(&v.to_le_bytes()),
            Value::U32(v) => with(&v.to_le_bytes()),
            Value::I64(v) => with(&v.to_le_bytes()),
            Value::U64(v) => with(&v.to_le_bytes()),
            Value::F64(v) => with(&v.to_le_bytes()),
            Value::Text(v) => with(v.as_bytes()),
            Value::Bytes(v) => with(v),
        }
    }

    /// Reads a value of type `kind` from its bytes in a row.
    #[inline]
    pub(crate) fn from_bytes(kind: Type, bytes: &[u8]) -> Value<'_> {
        let word = || u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let half = || u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        match kind {
            Type::Bool => Value::Bool(bytes[0] != 0),
            Type::I32 => Value::I32(half() as i32),
            Type::U32 => Value::U32(half()),
            Type::I64 => Value::I64(word() as i64),
            Type::U64 => Value::U64(word()),
            Type::F64 => Value::F64(f64::from_bits(word())),
            Type::Text => Value::Text(std::str::from_utf8(bytes).expect("text is kept as UTF-8")),
            Type::Bytes | Type::Fixed(_) => Value::Bytes(bytes),
        }
    }
}

/// Longer texts, and byte strings of more than half this length, are shortened.
const LONGEST: usize = 32;

/// Formats a value for people.
pub(crate) fn text(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".to_string(),
        Value::Bool(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::Text(v) => {
            let short: String = v.chars().take(LONGEST).collect();
            let dots = if short.len() < v.len() { ".." } else { "" };
            format!("{short:?}{dots}")
        }
        Value::Bytes(v) => {
            let mut out = "x".to_string();
            for byte in v.iter().take(LONGEST / 2) {
                let _ = write!(out, "{byte:02x}");
            }
            if v.len() > LONGEST / 2 {
                let _ = write!(out, ".. ({} bytes)", v.len());
            }
            out
        }
    }
}

macro_rules! value_from {
    ($($rust:ty => $variant:ident),*) => {$(
        impl From<$rust> for Value<'_> {
            #[inline]
            fn from(value: $rust) -> Self {
                Value::$variant(value)
            }
        }
    )*};
}
value_from!(bool => Bool, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f64 => F64);

impl<'a> From<&'a str> for Value<'a> {
    #[inline]
    fn from(value: &'a str) -> Self {
        Value::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    #[inline]
    fn from(value: &'a [u8]) -> Self {
        Value::Bytes(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    #[inline]
    fn from(value: &'a [u8; N]) -> Self {
        Value::Bytes(value)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    #[inline]
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A value that a column read as `T` can be set to. A [`Value`] is accepted for every column;
/// whether it fits is checked when it is written.
pub trait Assignable<'a, T: ?Sized>: Into<Value<'a>> {}

impl<'a, T: ?Sized> Assignable<'a, T> for Value<'a> {}

macro_rules! assignable {
    ($($rust:ty),*) => {$(
        impl Assignable<'_, $rust> for $rust {}
        impl Assignable<'_, Option<$rust>> for $rust {}
        impl Assignable<'_, Option<$rust>> for Option<$rust> {}
    )*};
}
assignable!(bool, i32, u32, i64, u64, f64);

impl<'a> Assignable<'a, str> for &'a str {}
impl<'a> Assignable<'a, [u8]> for &'a [u8] {}
impl<'a, const N: usize> Assignable<'a, [u8]> for &'a [u8; N] {}
impl<'a> Assignable<'a, Option<&str>> for &'a str {}
impl<'a> Assignable<'a, Option<&str>> for Option<&'a str> {}
impl<'a> Assignable<'a, Option<&[u8]>> for &'a [u8] {}
impl<'a, const N: usize> Assignable<'a, Option<&[u8]>> for &'a [u8; N] {}
impl<'a> Assignable<'a, Option<&[u8]>> for Option<&'a [u8]> {}

/// A Rust type that a column can be read as: `str` and `[u8]` for text and bytes, `Option<T>` for
/// nullable columns.
pub trait ColumnType {
    /// What reading the column yields.
    type Output<'a>;
    /// Whether a column of type `kind` can be read as this type.
    fn reads(kind: Type) -> bool;
    /// Reads the value; `None` is a null.
    fn read(bytes: Option<&[u8]>) -> Self::Output<'_>;
}

macro_rules! column_type {
    ($($rust:ty => $kind:ident),*) => {$(
        impl ColumnType for $rust {
            type Output<'a> = $rust;
            fn reads(kind: Type) -> bool {
                kind == Type::$kind
            }
            #[inline]
            fn read(bytes: Option<&[u8]>) -> $rust {
                let bytes = bytes
                    .expect("a null read as a plain value; read the column as Option<_>");
                <$rust>::from_le_bytes(bytes.try_into().expect("the column's width"))
            }
        }
    )*};
}
column_type!(i32 => I32, u32 => U32, i64 => I64, u64 => U64, f64 => F64);

impl ColumnType for bool {
    type Output<'a> = bool;
    fn reads(kind: Type) -> bool {
        kind == Type::Bool
    }
    fn read(bytes: Option<&[u8]>) -> bool {
        bytes.expect("a null read as a plain value; read the column as Option<_>")[0] != 0
    }
}

impl ColumnType for str {
    type Output<'a> = &'a str;
    fn reads(kind: Type) -> bool {
        kind == Type::Text
    }
    fn read(bytes: Option<&[u8]>) -> &str {
        let bytes = bytes.expect("a null read as a plain value; read the column as Option<_>");
        std::str::from_utf8(bytes).expect("text is kept as UTF-8")
    }
}

impl ColumnType for [u8] {
    type Output<'a> = &'a [u8];
    fn reads(kind: Type) -> bool {
        matches!(kind, Type::Bytes | Type::Fixed(_) | Type::Text)
    }
    fn read(bytes: Option<&[u8]>) -> &[u8] {
        bytes.expect("a null read as a plain value; read the column as Option<_>")
    }
}

impl<T: ColumnType + ?Sized> ColumnType for Option<&T> {
    type Output<'a> = Option<T::Output<'a>>;
    fn reads(kind: Type) -> bool {
        T::reads(kind)
    }
    fn read(bytes: Option<&[u8]>) -> Self::Output<'_> {
        bytes.map(|bytes| T::read(Some(bytes)))
    }
}

macro_rules! nullable_column_type {
    ($($rust:ty),*) => {$(
        impl ColumnType for Option<$rust> {
            type Output<'a> = Option<$rust>;
            fn reads(kind: Type) -> bool {
                <$rust>::reads(kind)
            }
            fn read(bytes: Option<&[u8]>) -> Self::Output<'_> {
                bytes.map(|bytes| <$rust>::read(Some(bytes)))
            }
        }
    )*};
}
nullable_column_type!(bool, i32, u32, i64, u64, f64);
