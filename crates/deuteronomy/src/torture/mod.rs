//! Lives of a database on failing disks, log and data component alike; with the feature `torture`,
//! for tests and for `hyades-lab torture`.
//!
//! A single thread interleaves transactions with scans, flushes, the proxy and checkpoints, and the
//! process dies, in an order given by a seed. After each death the recovered state and all reads
//! are checked: the history is strictly serializable by timestamp.

mod clock;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
mod copies;
mod drawn;
#[cfg(feature = "fjall")]
mod fjall;
mod history;
mod judging;
mod keys;
mod lives;
mod reading;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod run;
mod stores;
mod work;
mod wrong;

pub use self::clock::{ClockWatch, watch_clock};
#[cfg(feature = "fjall")]
pub use self::fjall::FjallStore;
pub use self::history::{
    EMPTY, ExecutedInLife, KeyByte, KeyState, LifeHistory, ScannedKeys, WriteNumber, bytes, number,
};
pub use self::lives::{LifeCounts, live, live_beside_lies};
#[cfg(feature = "redb")]
pub use self::redb::RedbStore;
#[cfg(feature = "rocksdb")]
pub use self::rocksdb::RocksDbStore;
pub use self::run::{DataStore, LifeOptions, LifeReport, torture};
pub use self::stores::{LivingStore, MemoryStore};
pub use self::wrong::{WrongCounts, WrongLife};
