//! The state of a session's transaction.

use super::claims::Claims;
use super::record::Parts;
use super::version::Version;
use super::writes::Writes;
use crate::error::{Abort, Error};

/// A session whose sweeps are in vain sweeps twice as rarely each time, up to so often.
const MOST_IN_VAIN: u32 = 6;

/// The state of a session's transaction.
#[derive(Debug)]
pub(crate) struct Work {
    /// The session's place among the announcements.
    pub(super) at: usize,
    /// The timestamp; 0 if no transaction is active.
    pub(super) ts: u64,
    /// V: by stream, up to where the transaction depends on it.
    pub(super) vector: Vec<u64>,
    /// Whether it depends on what is durable at a position that is not known any more. A record
    /// states that, see [`join_durable`](super::TransactionComponent::join_durable).
    pub(super) depends_on_durable: bool,
    /// A timestamp that was the oldest active one a while ago, and the writes until the session
    /// looks for it again.
    pub(super) oldest_active: u64,
    pub(super) writes_until_look: u32,
    /// By key.
    pub(super) writes: Writes,
    pub claims: Claims,
    /// The bytes of the keys and values in `writes`.
    pub(super) write_bytes: usize,
    /// Why it has to abort, if it has.
    pub(super) failed: Option<Abort>,
    /// The parts that it has logged, and their stream.
    pub(super) parts: Option<(usize, Parts)>,
    /// The record or a part, while it is put together.
    pub(super) record: Vec<u8>,
    /// Whether it is a snapshot: it reads what is at or below `ts`, which is not its own.
    pub(super) is_snapshot: bool,
    /// The timestamp of the last transaction of the session that has written and committed.
    pub(super) last_written: u64,
    /// How often the session has asked for room in a nearly full table since it has swept that.
    asked_for_room: u32,
    /// How many of these sweeps were in vain, one after the other.
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

    /// What the transaction has written to the key last; None if it has not written it.
    pub fn written(&self, key: &[u8]) -> Option<&Version> {
        self.writes.get(key).map(|write| &write.version)
    }

    /// The stream of its frames, if it has logged parts.
    pub fn stream(&self) -> Option<usize> {
        self.parts.map(|(stream, _)| stream)
    }

    /// The bytes of the record, or the part, that was put together last.
    pub fn last_logged(&self) -> usize {
        self.record.len()
    }

    /// Counts, and returns how often the session has asked since it had room.
    pub(super) fn ask_for_room(&mut self) -> u32 {
        self.asked_for_room = self.asked_for_room.saturating_add(1);
        self.asked_for_room
    }

    /// The session has swept a part of the table, perhaps in vain.
    pub(super) fn has_swept(&mut self, in_vain: bool) {
        self.asked_for_room = 0;
        self.swept_in_vain = if in_vain { MOST_IN_VAIN.min(self.swept_in_vain + 1) } else { 0 };
    }

    /// How many of its last sweeps were in vain, one after the other; at most [`MOST_IN_VAIN`].
    pub(super) fn sweeps_in_vain(&self) -> u32 {
        self.swept_in_vain
    }

    pub fn failed(&self) -> Option<Abort> {
        self.failed
    }

    pub fn fail(&mut self, abort: Abort) -> Error {
        self.failed = Some(abort);
        abort.into()
    }

    /// The transaction has to abort if an earlier act of it failed.
    pub(super) fn check(&self) -> Result<(), Error> {
        debug_assert!(self.is_active(), "no transaction is active");
        self.failed.map_or(Ok(()), |abort| Err(abort.into()))
    }
}
