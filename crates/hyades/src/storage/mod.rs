//! Tables, rows and the indexes over them.

pub mod for_tests;
pub(crate) mod gap;
pub mod hash_index;
pub(crate) mod key;
pub(crate) mod layout;
pub mod ordered_index;
pub(crate) mod prefetch;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod secondary;
pub(crate) mod table;
pub(crate) mod value;
