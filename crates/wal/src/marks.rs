//! The log's interface to the numbers of frames.

use std::time::Duration;

/// The numbers that the frames of each stream have or may still get. The log uses the numbers only
/// to state durably that all frames with numbers up to some *mark* are before the statement.
pub trait Marks: std::fmt::Debug + Send + Sync {
    /// Returns a number below the numbers of all later frames of the stream. `wanted` is the
    /// highest awaited number, or 0; unused numbers may be skipped to reach `wanted`. With `now`,
    /// do not delay. The stream's flusher calls `mark` and flushes nothing meanwhile: the call must
    /// not wait for writers, nor append.
    fn mark(&self, stream: usize, wanted: u64, now: bool) -> u64;

    /// An upper bound on the numbers of all frames reserved so far.
    fn highest(&self) -> u64;

    /// The time to wait before [`Marks::mark`] may return a higher number.
    fn pause(&self) -> Duration;
}
