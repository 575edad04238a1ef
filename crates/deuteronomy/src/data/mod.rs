//! Data components. They know no transactions.

mod memory;
#[cfg(feature = "redb")]
mod redb;

pub use self::memory::MemoryData;
#[cfg(feature = "redb")]
pub use self::redb::RedbData;
