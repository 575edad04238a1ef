//! Where the log learns what it may say about the numbers of frames.

use std::time::Duration;

/// What numbers the frames of each stream have, or may still get. The log knows nothing of numbers but
/// that a stream can state, durably, that those up to some *mark* lie behind it.
pub trait Marks: std::fmt::Debug + Send + Sync {
    /// A number such that no frame that the stream gets after this has returned has that number, or a
    /// lower one. `wanted` is what somebody waits for, 0 if nobody does: numbers that nobody has may be
    /// passed over to reach it. With `now`, this is not to wait for better times. Called by the
    /// stream's flusher, which flushes nothing meanwhile: it must not wait for writers, nor append.
    fn mark(&self, stream: usize, wanted: u64, now: bool) -> u64;

    /// No frame reserved so far has a higher number.
    fn highest(&self) -> u64;

    /// How long it may take until [`Marks::mark`] says more than it just did.
    fn pause(&self) -> Duration;
}
