//! An engine and its sessions as the public face uses them, whatever the concurrency control and
//! the logging protocol.

use crate::checkpoint::keeper::Checkpointed;
use crate::concurrency::steps::Call;
use crate::error::Error;
use crate::logging::Needs;
use crate::logging::record::RecordKind;
use crate::tally::SessionCounts;
use crate::transaction::access::Transaction;
use hyades_wal::Lsn;

/// An engine of some sound pair.
pub(crate) trait AnyEngine: Checkpointed {
    fn session(&self) -> Result<Box<dyn AnySession>, Error>;
    fn digest(&self) -> u64;
    fn rows(&self) -> u64;
    /// What all its sessions have counted.
    fn counts(&self) -> SessionCounts;
}

/// What a transaction's body wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Commit,
    /// Undo, but the caller sees the outcome.
    Abandon,
}

/// What a transaction that has run leaves to its session's owner.
#[derive(Default)]
pub(crate) struct Answer {
    /// What it has to wait for.
    pub needs: Needs,
    /// Its epoch, and the stream and the end of its record, if it left one.
    pub placed: Option<(u64, usize, Lsn)>,
}

/// A session of some engine.
pub(crate) trait AnySession: Send {
    /// Runs `body` until it ends without a conflict.
    fn run(
        &mut self,
        call: Option<(Call<'_>, RecordKind)>,
        body: &mut dyn FnMut(&Transaction<'_>) -> Verdict,
        answer: &mut Answer,
    ) -> Result<(), Error>;
    /// It may be long until the next transaction: others see to what this session has to clear
    /// away.
    fn rest(&mut self);
    /// How many attempts ended in a conflict.
    fn conflicts(&self) -> u64;
}
