//! Parallel log streams, and LSN vectors over them.
//!
//! A [`Log`] is a set of streams of frames, each with a ring buffer, a flusher thread and files of
//! its own; there is no global sequence number. A [`Writer`] [reserves](Writer::reserve) a position
//! in a stream, which fixes the frame's [`Lsn`], and then fills it. The [`Frontier`] holds the
//! durable LSN of each stream. After a crash, [`open`] finds the log, [`StreamReader`]s read each
//! stream's valid prefix in parallel, and [`Recovering::verdict`] distinguishes a torn tail from
//! damage.
//!
//! This crate knows no rows, transactions or protocols. The bytes are specified in
//! `docs/format.md`; the scheme follows Taurus (Xia et al., VLDB 2020) where a comment says so.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use hyades_wal::{FrameKind, IncarnationSettings, Lane, LogOptions, open};
//! let options = LogOptions::new(vec![dir.path().to_owned()], 2);
//!
//! let recovering = open(options.clone())?;
//! let verdict = recovering.verdict(&[])?; // a fresh log has nothing to read
//! let log = recovering.start(IncarnationSettings::default(), &verdict, 1)?;
//! let mut writer = log.writer()?;
//! let reservation = writer.reserve(0, 5);
//! let lsn = reservation.end();
//! reservation.fill(FrameKind::Record, b"hello");
//! log.frontier().wait(Lane::position(0), lsn)?;
//! log.close()?;
//!
//! let recovering = open(options)?;
//! let mut ends = Vec::new();
//! for mut reader in recovering.readers() {
//!     while let Some(chunk) = reader.next_chunk()? {
//!         for frame in chunk.frames() {
//!             assert_eq!((frame.end, frame.payload), (lsn, &b"hello"[..]));
//!         }
//!     }
//!     ends.push(reader.end());
//! }
//! let verdict = recovering.verdict(&ends)?;
//! assert_eq!(verdict.ends()[0].ends[0], lsn);
//! # Ok(()) }
//! ```

mod archive;
mod awaited;
mod backup;
mod base_files;
mod base_writer;
mod checksum;
mod chunk;
mod commit_queue;
pub mod compress;
mod continuation;
mod copy_plan;
mod ending;
mod error;
mod file_copy;
mod flusher;
mod flushing;
mod format;
mod frame;
mod frontier;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod handle;
mod lane;
mod lease;
mod log;
mod lsn;
pub mod lsn_vector;
mod manifest;
mod marks;
mod mirror;
mod needs;
mod open;
mod options;
mod order;
mod pace;
mod parked_waker;
mod poison;
mod preparer;
mod probe;
mod reader;
mod remote;
mod ring;
mod segment;
mod spare;
mod start;
mod statement;
mod stream;
mod stream_id;
mod supply;
mod truncation;
mod unfinished;
pub mod varint;
mod verdict;
mod wait_any;
mod wakers;
mod writer;

pub use archive::{Pruned, prune_archive};
pub use awaited::Awaited;
pub use backup::Copied;
pub use base_files::BaseFiles;
pub use base_writer::BaseWriter;
pub use chunk::{Chunk, Frames};
pub use commit_queue::CommitQueue;
pub use continuation::{Continuation, open_continued};
pub use error::{Error, Poisoned, StopKind};
pub use frame::{Frame, FrameKind, MAX_PAYLOAD, Payload, read_anchor, read_heartbeat};
pub use frontier::Frontier;
pub use lane::{Lane, LaneKind};
pub use lease::AnswerLease;
pub use log::Log;
pub use lsn::Lsn;
pub use lsn_vector::{LsnVector, MAX_LANES};
pub use manifest::{
    BY_TIMESTAMP, CALLS, Checkpoint, CheckpointPart, Covered, Dimension, EDITS, FROM_LANES,
    Incarnation, IncarnationSettings, MARKS, MIRRORED, Manifest, Member, NUMBERS_ARE_VERSIONS,
    ROW_HEADS, SEPARATE_NUMBERS, SHORT_HEADS, Seen, StreamEntry, VERSIONS, WITH_SPLICES, WholeTo,
};
pub use marks::Marks;
pub use mirror::{Mirror, MirrorReader};
pub use needs::{Needs, admits, first_unmet, is_met};
pub use open::{Recovering, open, open_damaged, open_read};
pub use options::LogOptions;
pub use pace::Choice;
pub use reader::{ReaderEnd, StreamEnd, StreamReader};
pub use remote::{Remote, RemoteEnded, RemoteIncarnation};
pub use start::{BeginAt, StreamStart};
pub use statement::Statement;
pub use stream::StreamStats;
pub use stream_id::StreamId;
pub use unfinished::Unfinished;
pub use verdict::{Damage, IncarnationEnd, Verdict};
pub use writer::{Reservation, Writer};
