//! Replays command records: the procedure runs again, on the same code as a running transaction.

use super::apply::defer_garbage;
use super::former_changes;
use super::replay::ReplayContext;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::earlier::EarlierVersions;
use crate::concurrency::replaying::{self, Replaying};
use crate::concurrency::state::{RowIds, TxnState, Workspace};
use crate::error::{Abort, Error};
use crate::garbage::{Garbage, TransactionEnd};
use crate::logging::LoggingProtocol;
use crate::logging::determinism::Determinism;
use crate::logging::outcomes::{CallPlace, ComparedOutcomes};
use crate::logging::predecessors::Id;
use crate::logging::record::RecordHead;
use crate::logging::unstamped::Unstamped;
use crate::logging::write::outcome;
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;
use crate::storage::record::Record;
use crate::storage::row::take_varint;
use crate::storage::usage::UsageCells;
use crate::transaction::access::Transaction;
use crate::transaction::procedure::Procedure;
use crate::transaction::running::Running;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lsn, StreamId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// State of one thread for running commands.
pub(crate) struct CommandRunner {
    pub(super) arena: Bump,
    pub(super) workspace: Workspace,
    pub(super) result: Vec<u8>,
    pub(super) garbage: Garbage,
    /// Whether the rows of the next command were prefetched, see [`super::prefetching`].
    pub prefetched: bool,
    /// Outcomes of calls that were logged before they ran.
    pub(super) outcomes: ComparedOutcomes,
}

impl CommandRunner {
    /// Creates a runner for a database with `tables` tables.
    pub fn new(tables: usize) -> Self {
        CommandRunner {
            arena: Bump::with_capacity(1 << 14),
            workspace: Workspace::new(Arc::new(UsageCells::new(tables))),
            result: Vec::new(),
            garbage: Garbage::default(),
            prefetched: false,
            outcomes: ComparedOutcomes::default(),
        }
    }

    /// Ends the thread's work.
    pub fn finish<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        replay.engine.snapshots.versions().end_writer(&mut self.workspace.old_versions);
        replay.add_usage(self.workspace.usage.take());
        let outcomes = std::mem::take(&mut self.outcomes);
        replay.outcomes.lock().unpoisoned().merge(outcomes);
        // Rows and entries held by readers of the state before the replay.
        if !self.garbage.is_empty() {
            replay.left.lock().unpoisoned().append(&mut self.garbage);
        }
    }

    /// Runs the command of a record after the replay of all its dependencies. `place` is the
    /// record's stream and start.
    pub fn run<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        body: &[u8],
        (stream, lsn): (StreamId, Lsn),
        (writer, versions): (Id, Option<EarlierVersions<'_>>),
        guard: &Guard,
    ) -> Result<(), Error> {
        let replayed = match head.slots {
            None => self.replay_command(replay, head, body, (writer, versions), guard),
            Some(slots) => {
                let place = CallPlace::new(stream, lsn);
                self.replay_call(replay, (head, slots, place), body, guard)
            }
        };
        replayed.map_err(|why| {
            let advice = replay.catalogue.advice();
            Error::Recovery(format!(
                "replay stopped at Lsn {lsn} of log stream {stream}: {why}; nothing was changed on \
                 disk{advice}"
            ))
        })
    }

    /// Runs the procedure, commits its writes, and disposes of the garbage.
    ///
    /// # Errors
    /// A message that says why the command cannot be replayed.
    fn replay_command<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        mut body: &[u8],
        (writer, versions): (Id, Option<EarlierVersions<'_>>),
        guard: &Guard,
    ) -> Result<(), String> {
        let (_, procedure) = called(replay, &mut body)?;
        let named = |what: String| {
            format!("procedure {:?} version {} {what}", procedure.name, procedure.version)
        };
        let stamp = &mut ();
        let state = TxnState::<Replaying, Unstamped<S>>::new(
            &self.arena,
            guard,
            stamp,
            versions,
            &mut self.workspace,
            RowIds::Recorded(head.row_ids.iter()),
            Determinism::recorded(head),
        );
        let mut running =
            Running::<Replaying, Unstamped<S>>::new(&replay.engine, &Replaying, state);
        running.set_prefetched(self.prefetched);
        call(procedure, &running, body, &mut self.result).map_err(named)?;
        let state = running.state();
        check_outcome(replay, head, state).map_err(named)?;
        let installed = replaying::install(&replay.engine, state, head.tid);
        installed.map_err(|what| named(what.into()))?;
        keep_rolled_back(replay, state, &self.arena);
        // The rest of the garbage is removed at once: the next transaction on these rows may follow
        // as soon as the command counts as replayed.
        let ended = match versions {
            Some(EarlierVersions::AsOf(..)) => TransactionEnd::Version(head.tid),
            _ => TransactionEnd::Replayed,
        };
        self.garbage.collect_from(&ended, state, true);
        drop(running);
        if versions.is_some() {
            // Commands may still read the versions overwritten by this command.
            defer_garbage(replay, (writer, head.tid), &mut self.garbage);
        }
        self.sweep(replay);
        self.arena.reset();
        Ok(())
    }

    /// Removes garbage, except rows in use elsewhere: these rows remain until the end.
    pub(super) fn sweep<S: Stamp>(&mut self, replay: &ReplayContext<S>) {
        if !self.garbage.is_empty() {
            let keep = |table, key| {
                replay.absent.lock().unpoisoned().push((table, key));
            };
            self.garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, &mut (), keep);
        }
    }
}

/// Notes row objects placed and rolled back by a command: the rows were only read. Another command
/// with the same reads may be running now, so the row objects stay until the end.
pub(super) fn keep_rolled_back<'s, C: ConcurrencyControl<Unstamped<S>>, S: Stamp>(
    replay: &ReplayContext<S>,
    state: &mut TxnState<'s, C, Unstamped<S>>,
    arena: &'s Bump,
) {
    if state.rolled_back {
        let inserted = take_inserted(state, arena);
        let unwritten = inserted.into_iter().filter(|&(_, row)| state.own_write(row).is_none());
        let keys = unwritten.map(|(table, row)| (table, KeyBytes::from_slice(row.key())));
        replay.absent.lock().unpoisoned().extend(keys);
    }
}

/// Reads which procedure a command calls: the number, taken from `body`, and the procedure.
pub(super) fn called<'r, S: Stamp>(
    replay: &'r ReplayContext<S>,
    body: &mut &[u8],
) -> Result<(u64, &'r Procedure), String> {
    let id = take_varint(body).ok_or("the command record has no procedure")?;
    Ok((id, replay.catalogue.procedure(id)?))
}

/// Takes the rows that a command has inserted.
fn take_inserted<'s, C: ConcurrencyControl<P>, P: LoggingProtocol>(
    state: &mut TxnState<'s, C, P>,
    arena: &'s Bump,
) -> ArenaVec<'s, (u32, &'s Record<C::Row>)> {
    std::mem::replace(&mut state.index_changes.inserted, ArenaVec::new_in(arena))
}

/// Calls the procedure with its recorded arguments.
fn call<S: Stamp>(
    procedure: &Procedure,
    running: &Running<'_, Replaying, Unstamped<S>>,
    arguments: &[u8],
    result: &mut Vec<u8>,
) -> Result<(), String> {
    result.clear();
    let run = || (procedure.body)(&Transaction(running), arguments, result);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Abort::BadArguments)) => Err("does not understand its recorded arguments".into()),
        Ok(Err(abort)) => Err(format!("committed when it ran, but now: {abort}")),
        Err(_) => Err("panicked".into()),
    }
}

/// Returns a checksum of the writes of a command.
pub(super) fn written<C: ConcurrencyControl<Unstamped<S>, Row = S>, S: Stamp>(
    replay: &ReplayContext<S>,
    state: &TxnState<'_, C, Unstamped<S>>,
) -> u32 {
    match replay.catalogue.has_formers() {
        false => outcome(&replay.engine.tables, state.final_writes()),
        true => former_changes::outcome(replay, state.final_writes()),
    }
}

/// Compares the effects of the command with the original effects stated in its record.
fn check_outcome<S: Stamp>(
    replay: &ReplayContext<S>,
    head: &RecordHead,
    state: &TxnState<'_, Replaying, Unstamped<S>>,
) -> Result<(), String> {
    if state.draws.row_ids_used.len() != head.row_ids.len() {
        return Err("inserted another number of rows than when it ran".into());
    }
    let differs = head.outcome.is_some_and(|then| then != written(replay, state));
    if differs && !broken!(ForgetOutcomes) {
        return Err("wrote something else than when it ran: it is not deterministic, or it was \
                    changed and kept its version"
            .into());
    }
    Ok(())
}
