//! Tables, rows and the indexes over them. Nothing here depends on the transaction layer.

pub(crate) mod address_hasher;
pub(crate) mod conversion;
pub(crate) mod descents;
pub(crate) mod edits;
pub(crate) mod field;
pub(crate) mod gap;
pub(crate) mod gathered;
pub mod hash_index;
pub(crate) mod kept;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod old_versions;
pub(crate) mod origin;
pub(crate) mod partition;
pub(crate) mod range;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod row_access;
pub(crate) mod schema;
pub(crate) mod secondary;
pub(crate) mod short_rows;
pub(crate) mod sums;
pub(crate) mod table;
pub(crate) mod tid;
pub(crate) mod usage;
pub(crate) mod value;
pub(crate) mod wanted;
pub(crate) mod window;

/// The data kept by storage in a row or a gap for logging and concurrency control.
pub trait Stamp: Default + Send + Sync + 'static {}

impl<S: Default + Send + Sync + 'static> Stamp for S {}
