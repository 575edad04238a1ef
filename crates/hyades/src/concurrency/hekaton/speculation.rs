//! Speculative reads: a transaction reads what others are about to commit, and depends on these
//! commits ([`crate::Builder::speculative_reads`]; docs/protocols/hekaton.md, C6).

use super::Hekaton;
use crate::concurrency::locks;
use crate::concurrency::state::{ReadRow, TxnState};
use crate::engine::Engine;
use crate::engine::active::Preparing;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::logging::write::final_writes;
use crate::storage::old_versions::OldVersion;
use crate::storage::record::{Record, WRITER, word};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use std::sync::atomic::Ordering;

/// The number of times that a transaction yields for the outcome of a commit it depends on, before
/// the transaction fails: far more than a commit takes, unless its thread has panicked.
const YIELDS: u32 = 1 << 16;

impl Hekaton {
    /// Reads a row that another transaction is about to install at timestamp `at`, into arena
    /// memory. `None` if the other transaction shows nothing yet, or has ended.
    ///
    /// The read depends on the other commit: until it is settled, the version word in the read set
    /// has the mark [`word::LOCKED`], which the word of no version read otherwise has.
    #[cold]
    pub(super) fn speculate<'s, P: LoggingProtocol>(
        &self,
        state: &mut TxnState<'s, Hekaton, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        at: Tid,
    ) -> Option<OldVersion<'s>> {
        let writer = record.lock.load(Ordering::SeqCst);
        if writer == 0 || writer >= WRITER {
            return None;
        }
        let (arena, address) = (state.arena, std::ptr::from_ref(record).addr());
        let copy = |row: Option<&[u8]>| match row {
            Some(row) => OldVersion::Row(arena.alloc_slice_copy(row)),
            None => OldVersion::Absent,
        };
        let version = self.active.pending(writer, at, address, copy)?;
        let seen = word::of(at) | word::LOCKED;
        state.reads.push(ReadRow { record, table, seen, overwritten: false });
        state.control.speculated = true;
        Some(version)
    }

    /// Waits for the outcomes of the commits that the transaction depends on, and takes over the
    /// stamps of the versions, which these commits have given them. A transaction that depends on
    /// a failed commit conflicts.
    ///
    /// Called before the transaction draws its timestamp and takes its place in the log, so that a
    /// record lies behind the records it depends on in a serial log, and a stamp of the
    /// transaction is complete before it is logged (Taurus 2020, section 4.4). The other commits
    /// have lower timestamps and wait for still lower ones only: no circle.
    #[cold]
    pub(super) fn settle<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &mut TxnState<'_, Hekaton, P>,
    ) -> Result<(), Abort> {
        state.control.speculated = false;
        for at in 0..state.reads.len() {
            let ReadRow { record, seen, .. } = state.reads[at];
            if seen & word::LOCKED == 0 {
                continue;
            }
            let seen = match broken!(ForgetDependencies) {
                true => seen & !word::LOCKED,
                false => self.outcome(engine, state, record, word::tid(seen))?,
            };
            state.reads[at].seen = seen;
            // The stamp of this version, or of a later version, which is not lower.
            engine.protocol.observe_read(&record.stamp, state.stamp);
        }
        Ok(())
    }

    /// Waits until version `tid` of a row is installed. Returns its version word.
    fn outcome<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &TxnState<'_, Hekaton, P>,
        record: &Record<P::RowStamp>,
        tid: Tid,
    ) -> Result<u64, Abort> {
        for _ in 0..YIELDS {
            // First the writer, then the version, as in `check`.
            let is_under_way = locks::writer_of(self, state, record) == Preparing::At(tid);
            let now = record.word.load(Ordering::SeqCst);
            match word::tid(now).cmp(&tid) {
                std::cmp::Ordering::Equal if now & word::DEAD == 0 => {
                    return Ok(now & !word::LOCKED);
                }
                // Overwritten since. The version is kept, since this transaction reads as of it.
                std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => {
                    let versions = engine.snapshots.versions();
                    let kept = versions.read(record, tid, state.arena, state.guard);
                    let kept = kept.map(|(seen, _)| seen).filter(|seen| word::tid(*seen) == tid);
                    return kept.ok_or(Abort::Conflict);
                }
                std::cmp::Ordering::Less if is_under_way => std::thread::yield_now(),
                std::cmp::Ordering::Less => return Err(Abort::Conflict),
            }
        }
        Err(Abort::Conflict)
    }

    /// Shows what the transaction is about to install, to readers that may depend on its commit.
    #[cold]
    pub(super) fn show<P: LoggingProtocol>(
        &self,
        engine: &Engine<P>,
        state: &TxnState<'_, Hekaton, P>,
        tid: Tid,
    ) {
        let rows = final_writes(&state.writes).map(|write| {
            let table = &engine.tables[write.table as usize];
            (std::ptr::from_ref(write.record).addr(), write.image(table))
        });
        self.active.show(state.control.slot, tid, rows);
    }
}
