//! Data components. They know no transactions.

mod memory;
mod partitioned;
#[cfg(feature = "redb")]
mod redb;

pub use self::memory::MemoryData;
pub use self::partitioned::PartitionedData;
#[cfg(feature = "redb")]
pub use self::redb::RedbData;
