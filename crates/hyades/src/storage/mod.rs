//! Tables, rows and the indexes over them.

pub mod for_tests;
pub(crate) mod key;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod value;
