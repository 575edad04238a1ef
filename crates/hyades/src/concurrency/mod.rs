//! Concurrency control: how transactions are kept serializable, and when they take their place in
//! the log.
//!
//! Three invariants bind every file here, because the logging protocols are proved from them:
//!
//! - **Observe under protection.** A row's stamp is read while the row is locked, or within the
//!   window that validation covers.
//! - **Append before publish.** The transaction's frame is reserved, so its LSN known, before any row
//!   takes its stamp. A command is reserved before it validates: from then on every later writer of
//!   what it read either sees the raised read stamp or makes it fail (docs/protocols.md, E4).
//! - **Publish before release.** Rows take the stamp before their protection ends.
//!
//! The order of a commit: lock the write set, fold its stamps and those of what was read, look at its
//! tables, read the epoch; [command: reserve, raise read stamps]; validate; [otherwise reserve]; fill;
//! install; publish; release.

mod known;
pub(crate) mod no_wait;
mod partitioned;
pub(crate) mod replaying;
mod row_frames;
pub(crate) mod silo;
pub(crate) mod state;
pub(crate) mod steps;

use crate::engine::Engine;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::record::Record;
use state::TxnState;
use steps::Appender;

/// How a transaction takes part in concurrency control.
pub(crate) trait ConcurrencyControl: Send + Sync + 'static {
    /// Version and lock words of a record that a transaction puts under a new key.
    const PLACED_WORD: u64;
    const PLACED_LOCK: u32;
    /// Whether keys that are too large are refused; those of an older log are replayed.
    const LIMITS_KEYS: bool = true;

    /// Reads a row: `copy` takes what is wanted of it, perhaps more than once. `None` if the row is
    /// absent.
    fn read<'s, P: LoggingProtocol, T>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
        copy: impl FnMut() -> T,
    ) -> Result<Option<T>, Abort>;

    /// Intends to write a row; true if the row is there.
    fn intend<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<bool, Abort>;

    /// Intends to write a row whatever is there: nothing is learnt of it.
    fn intend_blindly<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    ) -> Result<(), Abort> {
        Self::intend(engine, state, table, record).map(drop)
    }

    /// A record that this transaction placed has inherited its gap's stamp.
    fn placed<'s, P: LoggingProtocol>(
        state: &mut TxnState<'s, P>,
        table: u32,
        record: &'s Record<P::RowStamp>,
    );

    /// Whether what the transaction has seen so far was there at one time, as far as that can be told now.
    fn is_current<P: LoggingProtocol>(_: &TxnState<'_, P>) -> bool {
        true
    }

    /// Commits, and says in the appender's `needs` what the frontier has to reach before the caller is
    /// answered.
    fn commit<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, P>,
        appender: &mut Appender<'_>,
    ) -> Result<(), Abort>;

    /// Ends a transaction whose abort the caller will see: it is validated as a read-only one.
    fn abandon<'s, P: LoggingProtocol>(
        engine: &Engine<P>,
        state: &mut TxnState<'s, P>,
        appender: &mut Appender<'_>,
    ) -> Result<(), Abort>;

    /// Lets go of everything without a trace.
    fn abort<P: LoggingProtocol>(state: &mut TxnState<'_, P>);

    /// Locks one record outside any transaction, if nobody holds it. Returns its version word.
    fn try_lock_alone<S>(record: &Record<S>) -> Option<u64>;

    /// Ends [`ConcurrencyControl::try_lock_alone`]; the record is dead from now on if `dead`.
    fn unlock_alone<S>(record: &Record<S>, version: u64, dead: bool);

    /// Takes back that the record is dead. The caller is the one who said so.
    fn revive_alone<S>(record: &Record<S>, version: u64);
}
