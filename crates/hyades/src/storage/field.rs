//! Rust types of a struct's fields, and the columns of the fields.

use crate::storage::value::{ColumnType, Type, Value};
use std::ops::Deref;

/// A type of a field of a [`TableRow`](crate::TableRow): `bool`, `i32`, `u32`, `i64`, `u64`, `f64`,
/// `String` and `&str` (text), `Vec<u8>` and `&[u8]` (bytes), `[u8; N]` and `&[u8; N]` (exactly `N`
/// bytes), and an `Option` of any of these types (a nullable column).
pub trait Field {
    /// The type for reading the column, see [`Column`](crate::Column).
    type Column: ColumnType + ?Sized;
    /// The type for reading a nullable column.
    type Nullable: ColumnType + ?Sized;
    /// The field of a row read by a transaction.
    type Read<'t>;
    /// The field as part of a search key.
    type Key<'k>: Into<Value<'k>>;
    /// The column's type.
    const KIND: Type;
    /// Whether the column may be null.
    const NULLABLE: bool = false;

    /// Reads the field from the column's bytes; `None` is a null.
    fn read(bytes: Option<&[u8]>) -> Self::Read<'_>;
    /// The field as a value of its column.
    fn value(&self) -> Value<'_>;
}

macro_rules! scalar_field {
    ($($rust:ty => $kind:ident),*) => {$(
        impl Field for $rust {
            type Column = $rust;
            type Nullable = Option<$rust>;
            type Read<'t> = $rust;
            type Key<'k> = $rust;
            const KIND: Type = Type::$kind;

            #[inline]
            fn read(bytes: Option<&[u8]>) -> $rust {
                <$rust as ColumnType>::read(bytes)
            }

            #[inline]
            fn value(&self) -> Value<'_> {
                Value::$kind(*self)
            }
        }
    )*};
}
scalar_field!(bool => Bool, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f64 => F64);

impl Field for String {
    type Column = str;
    type Nullable = Option<&'static str>;
    type Read<'t> = String;
    type Key<'k> = &'k str;
    const KIND: Type = Type::Text;

    fn read(bytes: Option<&[u8]>) -> String {
        <str as ColumnType>::read(bytes).to_owned()
    }

    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Field for &str {
    type Column = str;
    type Nullable = Option<&'static str>;
    type Read<'t> = &'t str;
    type Key<'k> = &'k str;
    const KIND: Type = Type::Text;

    #[inline]
    fn read(bytes: Option<&[u8]>) -> &str {
        <str as ColumnType>::read(bytes)
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Field for Vec<u8> {
    type Column = [u8];
    type Nullable = Option<&'static [u8]>;
    type Read<'t> = Vec<u8>;
    type Key<'k> = &'k [u8];
    const KIND: Type = Type::Bytes;

    fn read(bytes: Option<&[u8]>) -> Vec<u8> {
        <[u8] as ColumnType>::read(bytes).to_owned()
    }

    fn value(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

impl Field for &[u8] {
    type Column = [u8];
    type Nullable = Option<&'static [u8]>;
    type Read<'t> = &'t [u8];
    type Key<'k> = &'k [u8];
    const KIND: Type = Type::Bytes;

    #[inline]
    fn read(bytes: Option<&[u8]>) -> &[u8] {
        <[u8] as ColumnType>::read(bytes)
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

impl<const N: usize> Field for [u8; N] {
    type Column = [u8];
    type Nullable = Option<&'static [u8]>;
    type Read<'t> = [u8; N];
    type Key<'k> = &'k [u8; N];
    const KIND: Type = fixed(N);

    #[inline]
    fn read(bytes: Option<&[u8]>) -> [u8; N] {
        <[u8] as ColumnType>::read(bytes).try_into().expect("the column's width")
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Bytes(self)
    }
}

impl<const N: usize> Field for &[u8; N] {
    type Column = [u8];
    type Nullable = Option<&'static [u8]>;
    type Read<'t> = &'t [u8; N];
    type Key<'k> = &'k [u8; N];
    const KIND: Type = fixed(N);

    #[inline]
    fn read(bytes: Option<&[u8]>) -> &[u8; N] {
        <[u8] as ColumnType>::read(bytes).try_into().expect("the column's width")
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Bytes(*self)
    }
}

/// The type of a column of `n` bytes.
const fn fixed(n: usize) -> Type {
    assert!(n > 0 && n <= u16::MAX as usize, "a column of fixed width has 1 to 65,535 bytes");
    Type::Fixed(n as u16)
}

impl<F: Field> Field for Option<F> {
    type Column = F::Nullable;
    type Nullable = F::Nullable;
    type Read<'t> = Option<F::Read<'t>>;
    type Key<'k> = Option<F::Key<'k>>;
    const KIND: Type = F::KIND;
    const NULLABLE: bool = {
        assert!(!F::NULLABLE, "an Option of an Option is not a column");
        true
    };

    #[inline]
    fn read(bytes: Option<&[u8]>) -> Option<F::Read<'_>> {
        bytes.map(|bytes| F::read(Some(bytes)))
    }

    #[inline]
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, F::value)
    }
}

/// At most this many fields in a key or an index of a typed table.
const MAX_FIELDS: usize = 6;

/// The values of a key, kept by a scan until it runs.
#[derive(Clone, Copy, Debug)]
pub struct KeyValues<'k> {
    values: [Value<'k>; MAX_FIELDS],
    count: usize,
}

impl<'k> KeyValues<'k> {
    #[inline]
    fn new<const N: usize>(key: [Value<'k>; N]) -> Self {
        let mut values = [Value::Null; MAX_FIELDS];
        values[..N].copy_from_slice(&key);
        KeyValues { values, count: N }
    }
}

impl<'k> Deref for KeyValues<'k> {
    type Target = [Value<'k>];

    #[inline]
    fn deref(&self) -> &[Value<'k>] {
        &self.values[..self.count]
    }
}

/// The fields of a primary key or an index, as a tuple.
pub trait KeyFields {
    /// A whole key: the value of a single field, or a tuple.
    type Key<'k>;

    /// Calls `with` on the key's values.
    fn with<T>(key: Self::Key<'_>, with: impl FnOnce(&[Value<'_>]) -> T) -> T;
    /// The key's values, to be kept.
    fn values(key: Self::Key<'_>) -> KeyValues<'_>;
}

/// A table without a primary key: its rows have hidden ids.
impl KeyFields for () {
    type Key<'k> = u64;

    #[inline]
    fn with<T>(key: u64, with: impl FnOnce(&[Value<'_>]) -> T) -> T {
        with(&[Value::U64(key)])
    }

    #[inline]
    fn values(key: Self::Key<'_>) -> KeyValues<'_> {
        KeyValues::new([Value::U64(key)])
    }
}

impl<A: Field> KeyFields for (A,) {
    type Key<'k> = A::Key<'k>;

    #[inline]
    fn with<T>(key: Self::Key<'_>, with: impl FnOnce(&[Value<'_>]) -> T) -> T {
        with(&[key.into()])
    }

    #[inline]
    fn values(key: Self::Key<'_>) -> KeyValues<'_> {
        KeyValues::new([key.into()])
    }
}

macro_rules! key_fields {
    ($($name:ident $at:tt),*) => {
        impl<$($name: Field),*> KeyFields for ($($name,)*) {
            type Key<'k> = ($($name::Key<'k>,)*);

            #[inline]
            fn with<T>(key: Self::Key<'_>, with: impl FnOnce(&[Value<'_>]) -> T) -> T {
                with(&[$(key.$at.into()),*])
            }

            #[inline]
            fn values(key: Self::Key<'_>) -> KeyValues<'_> {
                KeyValues::new([$(key.$at.into()),*])
            }
        }
    };
}
key_fields!(A 0, B 1);
key_fields!(A 0, B 1, C 2);
key_fields!(A 0, B 1, C 2, D 3);
key_fields!(A 0, B 1, C 2, D 3, E 4);
key_fields!(A 0, B 1, C 2, D 3, E 4, F 5);

/// The first fields of a key, as a value or a tuple: the argument of a scan by prefix.
pub trait KeyPrefix<'k> {
    /// The prefix's values.
    fn values(self) -> KeyValues<'k>;
}

macro_rules! scalar_prefix {
    ($($rust:ty),*) => {$(
        impl<'k> KeyPrefix<'k> for $rust {
            #[inline]
            fn values(self) -> KeyValues<'k> {
                KeyValues::new([self.into()])
            }
        }
    )*};
}
scalar_prefix!(bool, i32, u32, i64, u64, f64, &'k str, &'k [u8]);

macro_rules! tuple_prefix {
    ($($name:ident $at:tt),*) => {
        impl<'k, $($name: Into<Value<'k>>),*> KeyPrefix<'k> for ($($name,)*) {
            #[inline]
            fn values(self) -> KeyValues<'k> {
                KeyValues::new([$(self.$at.into()),*])
            }
        }
    };
}
tuple_prefix!(A 0);
tuple_prefix!(A 0, B 1);
tuple_prefix!(A 0, B 1, C 2);
tuple_prefix!(A 0, B 1, C 2, D 3);
tuple_prefix!(A 0, B 1, C 2, D 3, E 4);
