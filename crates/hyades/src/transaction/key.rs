//! Keys as programs write them: a value, a tuple, a slice.

use crate::storage::value::Value;

/// A key: a single value, a tuple of up to five, or a slice of [`Value`]s.
pub trait Key {
    /// Calls `with` on the key's values.
    fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R;
}

macro_rules! key_scalar {
    ($($rust:ty),*) => {$(
        impl Key for $rust {
            #[inline]
            fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R { with(&[self.into()]) }
        }
    )*};
}
key_scalar!(bool, i32, u32, i64, u64, f64, &str, &[u8]);

impl Key for &[Value<'_>] {
    #[inline]
    fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
        with(self)
    }
}

macro_rules! key_tuple {
    ($($name:ident $at:tt),*) => {
        impl<'v, $($name: Into<Value<'v>>),*> Key for ($($name,)*) {
            #[inline]
            fn with<R>(self, with: impl FnOnce(&[Value<'_>]) -> R) -> R {
                with(&[$(self.$at.into()),*])
            }
        }
    };
}
key_tuple!(A 0);
key_tuple!(A 0, B 1);
key_tuple!(A 0, B 1, C 2);
key_tuple!(A 0, B 1, C 2, D 3);
key_tuple!(A 0, B 1, C 2, D 3, E 4);
