//! Work that no client waits for: opening the database, removing what has expired or was flushed,
//! checkpoints in the background.

pub mod expiry;
pub mod lapsing;
pub mod opening;
pub mod reaper;
pub mod removal;
pub mod saving;
