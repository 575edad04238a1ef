//! The interface through which the log learns the numbers of frames.

use std::time::Duration;

/// The numbers that the frames of each stream have or may still get. The log uses them only to
/// state durably that all frames with numbers up to some *mark* are before the statement.
pub trait Marks: std::fmt::Debug + Send + Sync {
    /// Returns a number such that no frame that the stream gets after this has that number or a
    /// lower one. `wanted` is the highest number for which a thread waits, or 0; unused numbers may
    /// be skipped to reach it. With `now`, do not delay. The stream's flusher calls this and
    /// flushes nothing meanwhile: it must not wait for writers, nor append.
    fn mark(&self, stream: usize, wanted: u64, now: bool) -> u64;

    /// An upper bound on the numbers of all frames reserved so far.
    fn highest(&self) -> u64;

    /// How long to wait before [`Marks::mark`] may return more than it just did.
    fn pause(&self) -> Duration;
}
