//! Work without waiting clients: opening the database, removing expired and flushed keys,
//! checkpoints in the background.

pub mod expiry;
pub mod lapsing;
pub mod opening;
pub mod reaper;
pub mod removal;
pub mod saving;
