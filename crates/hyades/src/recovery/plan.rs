//! How to recover.

use super::report::Progress;

/// How replay orders the records of a log that needs ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Replay {
    /// Prefix watermarks, and a window of records that wait in each stream.
    #[default]
    Wavefront,
    /// The pools of the Taurus paper (section 3.3, algorithms 3 and 4), corrected; for comparison.
    Pools,
    /// One thread, in an order that the vectors allow.
    Serial,
}

impl Replay {
    /// Whether no other thread is to take part.
    pub(crate) fn is_on_one_thread(self) -> bool {
        self == Replay::Serial
    }
}

/// What one recovery is told.
pub(crate) struct Plan<'p> {
    pub threads: usize,
    pub kind: Replay,
    pub progress: Option<&'p (dyn Fn(&Progress) + Send + Sync)>,
    pub started_ns: u64,
    /// What comes after this epoch is left out.
    pub until: u64,
    /// Goes as far as a damaged log allows.
    pub salvage: bool,
}
