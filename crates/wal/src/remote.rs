//! A second place for the bytes of all streams beside the files: a replicated log.
//!
//! **The invariant.** With a remote the frontier of a stream is raised only once both places have
//! the bytes: each position of the frontier is a position stored by the remote, so the acknowledged
//! transactions, and the positions stated in anchors, survive the loss of the files.

use crate::Lsn;
use crate::lease::AnswerLease;
use crate::stream_id::StreamId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The incarnation of a log whose streams a remote stores.
#[derive(Clone, Copy, Debug)]
pub struct RemoteIncarnation<'a> {
    /// The log's uuid.
    pub log: [u8; 16],
    /// The number of the incarnation.
    pub number: u32,
    /// The streams, each with the position at which the incarnation begins.
    pub streams: &'a [(StreamId, Lsn)],
    /// Whether the incarnation has no command records.
    pub data_only: bool,
    /// The logging protocol's name.
    pub protocol: &'a str,
    /// The engine's settings.
    pub settings: &'a BTreeMap<String, String>,
    /// The engine's catalogue.
    pub catalogue: &'a [u8],
    /// All epochs up to here count as used.
    pub epoch_floor: u64,
}

/// A second place for the bytes of all streams. One batch of a stream is under way at a time: after
/// [`send`](Remote::send) the flusher asks [`stored`](Remote::stored) until the answer is given.
pub trait Remote: fmt::Debug + Send + Sync {
    /// The most bytes of frames in a batch.
    fn max_batch_bytes(&self) -> usize;

    /// An incarnation begins: all that follows is stored for the incarnation. Called once, before
    /// the first batch and before the log's own files know of the incarnation. May block.
    ///
    /// # Errors
    /// Nothing can be stored for the incarnation.
    fn begin(&self, _incarnation: &RemoteIncarnation<'_>) -> Result<(), RemoteEnded> {
        Ok(())
    }

    /// Begins to store the frames of a stream from `start` on. Copies the frames; neither blocks
    /// nor fails: [`stored`](Remote::stored) tells the outcome.
    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]);

    /// Whether the batch under way is stored. `wait`: the call returns once there is an answer, or
    /// after [`end`](Remote::end). `None`: there is no answer yet.
    ///
    /// # Errors
    /// The batch will never be known as stored.
    fn stored(&self, stream: usize, wait: bool) -> Option<Result<(), RemoteEnded>>;

    /// The lease by which transactions that only read are acknowledged; `None` where no other
    /// process can become the primary. Called once, when the log is started.
    fn lease(&self) -> Option<Arc<AnswerLease>> {
        None
    }

    /// The log has stopped: calls that wait return. Called at least once, possibly by a thread of
    /// the log.
    fn end(&self);
}

/// Why a remote stores no more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteEnded {
    /// Another process has taken the log over.
    Fenced {
        /// The incarnation of the other process.
        by: u32,
    },
    /// The remote holds something else than was stored there.
    Different(String),
    /// [`Remote::end`] was called.
    Stopped,
    /// The remote does not answer, and is not waited for any longer.
    Silent,
}

impl fmt::Display for RemoteEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteEnded::Fenced { by } => write!(
                f,
                "another process has taken the database over, as incarnation {by} of the \
                 replicated log: open the database again to follow that process"
            ),
            RemoteEnded::Different(what) => {
                write!(f, "the replicated log is not the log that was written: {what}")
            }
            RemoteEnded::Stopped => f.write_str("the log was stopped"),
            RemoteEnded::Silent => f.write_str("the replicated log does not answer"),
        }
    }
}

impl std::error::Error for RemoteEnded {}
