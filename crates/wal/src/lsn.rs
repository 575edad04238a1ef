//! Positions in streams.

/// A byte position in a stream. A position counts bytes of frames only, is always the end of a
/// frame (or the start of the stream), and is never reset.
pub type Lsn = u64;
