//! Limits of commands: memory, pauses.

use super::memory::MemoryUse;
use super::oom_score::OomScore;
use super::pause::Pause;
use super::standstill::Standstill;
use std::sync::Arc;

/// Limits of commands.
#[derive(Default)]
pub struct CommandLimits {
    /// Memory of the process.
    pub memory: MemoryUse,
    /// How soon the system kills the process when memory runs out.
    pub oom_score: OomScore,
    /// CLIENT PAUSE.
    pub pause: Arc<Pause>,
    /// DEBUG SLEEP.
    pub standstill: Standstill,
}
