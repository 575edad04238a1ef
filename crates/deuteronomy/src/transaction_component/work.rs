//! The state of a session's transaction.

use super::claims::Claims;
use super::counts::{Counted, SessionCounts};
use super::record::Parts;
use super::version::Version;
use super::writes::Writes;
use crate::error::{Abort, Error};

/// The most doublings of the time between sweeps of a session whose sweeps are in vain.
const MOST_IN_VAIN: u32 = 6;

/// The state of a session's transaction.
#[derive(Debug)]
pub(crate) struct Work {
    /// The session's place among the announcements.
    pub(super) at: usize,
    /// The timestamp; 0 if no transaction is active.
    pub(super) ts: u64,
    /// V: by stream, the position up to which the transaction depends on the stream.
    pub(super) vector: Vec<u64>,
    /// Whether the transaction depends on a durable record at a position not known any more. A
    /// record states the dependency, see
    /// [`join_durable`](super::TransactionComponent::join_durable).
    pub(super) depends_on_durable: bool,
    /// A timestamp that was the oldest active a while ago, and the writes until the session's next
    /// look.
    pub(super) oldest_active: u64,
    pub(super) writes_until_look: u32,
    /// By key.
    pub(super) writes: Writes,
    pub claims: Claims,
    /// The bytes of the keys and values in `writes`.
    pub(super) write_bytes: usize,
    /// The cause of an abort, if due.
    pub(super) failed: Option<Abort>,
    pub(super) counts: SessionCounts,
    /// The parts logged so far, and their stream.
    pub(super) parts: Option<(usize, Parts)>,
    /// The record or a part, under construction.
    pub(super) record: Vec<u8>,
    /// Whether the transaction is a snapshot: a snapshot reads versions at or below `ts`; `ts` is
    /// not its own timestamp.
    pub(super) is_snapshot: bool,
    /// The timestamp of the last transaction of the session that has written and committed.
    pub(super) last_written: u64,
    /// The session's requests for room in a nearly full table since its last sweep.
    asked_for_room: u32,
    /// The number of sweeps in vain in a row.
    swept_in_vain: u32,
}

impl Work {
    pub fn new(at: usize, streams: usize) -> Self {
        let (writes, record) = (Writes::default(), Vec::new());
        let (depends_on_durable, oldest_active, writes_until_look) = (false, 0, 0);
        let (vector, failed, parts) = (vec![0; streams], None, None);
        let (ts, write_bytes, asked_for_room) = (0, 0, 0);
        let (is_snapshot, last_written) = (false, 0);
        Self {
            at,
            ts,
            vector,
            depends_on_durable,
            oldest_active,
            writes_until_look,
            writes,
            claims: Claims::default(),
            write_bytes,
            failed,
            counts: SessionCounts::default(),
            parts,
            record,
            is_snapshot,
            last_written,
            asked_for_room,
            swept_in_vain: 0,
        }
    }

    pub fn is_active(&self) -> bool {
        self.ts != 0 || self.is_snapshot
    }

    pub fn ts(&self) -> u64 {
        self.ts
    }

    /// Whether the transaction has written the key.
    pub fn has_written(&self, key: &[u8]) -> bool {
        self.writes.get(key).is_some()
    }

    /// Returns the transaction's last write to the key; None without a write.
    pub fn written(&self, key: &[u8]) -> Option<&Version> {
        self.writes.get(key).map(|write| &write.version)
    }

    /// Returns the stream of the transaction's frames, if parts were logged.
    pub fn stream(&self) -> Option<usize> {
        self.parts.map(|(stream, _)| stream)
    }

    /// Returns the bytes of the last record or part put together.
    pub fn last_logged(&self) -> usize {
        self.record.len()
    }

    /// Counts a request, and returns the number of requests since the session last swept.
    pub(super) fn ask_for_room(&mut self) -> u32 {
        self.asked_for_room = self.asked_for_room.saturating_add(1);
        self.asked_for_room
    }

    /// The session has swept a part of the table, perhaps in vain.
    pub(super) fn has_swept(&mut self, in_vain: bool) {
        self.asked_for_room = 0;
        self.swept_in_vain = if in_vain { MOST_IN_VAIN.min(self.swept_in_vain + 1) } else { 0 };
    }

    /// Returns the number of the last sweeps in vain in a row; at most [`MOST_IN_VAIN`].
    pub(super) fn sweeps_in_vain(&self) -> u32 {
        self.swept_in_vain
    }

    pub fn failed(&self) -> Option<Abort> {
        self.failed
    }

    pub fn fail(&mut self, abort: Abort) -> Error {
        if self.failed.replace(abort).is_none() {
            self.counts.count(Counted::Aborted(abort));
        }
        abort.into()
    }

    /// Fails if an earlier act of the transaction failed: then the transaction has to abort.
    pub(super) fn check(&self) -> Result<(), Error> {
        debug_assert!(self.is_active(), "no transaction is active");
        self.failed.map_or(Ok(()), |abort| Err(abort.into()))
    }
}
