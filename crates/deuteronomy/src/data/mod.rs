//! Data components. Stores without transactions.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(any(feature = "redb", feature = "fjall"))]
mod item;
mod key_table;
mod layer;
mod memory;
mod partitioned;
#[cfg(feature = "redb")]
mod redb;

#[cfg(feature = "fjall")]
pub use self::fjall::FjallData;
pub use self::layer::DataLayer;
pub use self::memory::MemoryData;
pub use self::partitioned::PartitionedData;
#[cfg(feature = "redb")]
pub use self::redb::RedbData;
