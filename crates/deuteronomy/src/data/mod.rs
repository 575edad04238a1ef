//! Data components. Stores without transactions.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(any(feature = "redb", feature = "fjall", feature = "rocksdb"))]
mod item;
mod key_table;
mod layer;
mod memory;
mod memory_snapshot;
mod partitioned;
#[cfg(feature = "fjall")]
mod recent;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

#[cfg(feature = "fjall")]
pub use self::fjall::FjallData;
pub use self::layer::DataLayer;
pub use self::memory::MemoryData;
pub use self::partitioned::PartitionedData;
#[cfg(feature = "redb")]
pub use self::redb::RedbData;
#[cfg(feature = "rocksdb")]
pub use self::rocksdb::RocksDbData;
