//! Replays command records: the procedure runs again, on the same code as a running transaction.

use super::apply::defer_garbage;
use super::replay::ReplayContext;
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::replaying::Replaying;
use crate::concurrency::state::{Determinism, RowIds, TxnState, Workspace};
use crate::concurrency::steps::Appender;
use crate::error::{Abort, Error};
use crate::garbage::Garbage;
use crate::logging::Needs;
use crate::logging::record::RecordHead;
use crate::logging::record::RecordKind;
use crate::logging::unstamped::Unstamped;
use crate::logging::versions::View;
use crate::storage::key::KeyBytes;
use crate::storage::row::take_varint;
use crate::transaction::access::Transaction;
use crate::transaction::running::Running;
use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use crossbeam_epoch::Guard;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::Lsn;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// State of one thread for running commands.
pub(crate) struct CommandRunner {
    arena: Bump,
    workspace: Workspace,
    payload: Vec<u8>,
    result: Vec<u8>,
    garbage: Garbage,
    /// Whether the next command was announced, see [`super::prefetching`].
    pub prefetched: bool,
}

impl CommandRunner {
    pub fn new() -> Self {
        CommandRunner {
            arena: Bump::with_capacity(1 << 14),
            workspace: Workspace::new(),
            payload: Vec::new(),
            result: Vec::new(),
            garbage: Garbage::default(),
            prefetched: false,
        }
    }

    /// Runs the command of a record after everything that it depends on was replayed.
    pub fn run<S: Default + Send + Sync + 'static>(
        &mut self,
        replay: &ReplayContext<S>,
        head: &RecordHead,
        mut body: &[u8],
        (stream, lsn): (u32, Lsn),
        view: &mut View,
        guard: &Guard,
    ) -> Result<(), Error> {
        let at = || format!("replay stopped at Lsn {lsn} of log stream {stream}: ");
        let stop =
            |why: String| Err(Error::Recovery(at() + &why + "; nothing was changed on disk"));
        let Some(id) = take_varint(&mut body) else {
            return stop("the command record has no procedure".to_string());
        };
        let procedure = match replay.catalogue.procedure(id) {
            Ok(procedure) => procedure,
            Err(why) => return stop(why),
        };
        let name = || format!("procedure {:?} version {}", procedure.name, procedure.version);
        let state = TxnState::<Unstamped<S>>::new(
            &self.arena,
            guard,
            view,
            &mut self.workspace,
            RowIds::Recorded(head.row_ids.iter()),
            Determinism::recorded(head),
        );
        let mut running = Running::<Replaying, Unstamped<S>>::new(&replay.engine, state);
        running.set_prefetched(self.prefetched);
        self.result.clear();
        let run = || (procedure.body)(&Transaction::new(&running), body, &mut self.result);
        match catch_unwind(AssertUnwindSafe(run)) {
            Err(_) => return stop(name() + " panicked"),
            Ok(Err(Abort::BadArguments)) => {
                return stop(name() + " does not understand its recorded arguments");
            }
            Ok(Err(abort)) => {
                return stop(format!("{} committed when it ran, but now: {abort}", name()));
            }
            Ok(Ok(())) => {}
        }
        let state = running.state();
        if state.row_ids_used.len() != head.row_ids.len() {
            return stop(name() + " inserted another number of rows than when it ran");
        }
        let outcome = |state: &TxnState<'_, Unstamped<S>>| state.outcome(&replay.engine.tables);
        if head.outcome.is_some_and(|recorded| recorded != outcome(state))
            && !mutation::is(Mutation::ForgetOutcomes)
        {
            return stop(
                name()
                    + " wrote something else than when it ran: it is not deterministic, or it was \
                          changed and kept its version",
            );
        }
        let mut appender = Appender {
            writer: None,
            stream: 0,
            kind: RecordKind::Command,
            call: None,
            needs: &mut Needs::default(),
            payload: &mut self.payload,
            appended: 0,
            stated_epoch: 0,
            position: &mut None,
            replayed_tid: head.tid,
        };
        if Replaying::commit(&replay.engine, state, &mut appender).is_err() {
            return stop(name() + " had a conflict, which cannot occur at replay");
        }
        // A row object that it placed and rolled back was only read. Another command that does the
        // same may be running now, so the row object stays until the end.
        if state.rolled_back {
            let mut absent = replay.absent.lock().expect("no holder panics");
            for (table, record) in
                std::mem::replace(&mut state.inserted, ArenaVec::new_in(&self.arena))
            {
                if state.own_write(record).is_none() {
                    absent.push((table, KeyBytes::from_slice(record.key())));
                }
            }
        }
        // The rest of its garbage is removed at once: the next transaction on these rows may follow
        // as soon as this one counts as replayed.
        self.garbage.collect_from(None, state, true);
        drop(running);
        if view.own != 0 {
            // Commands may still read the versions that this one has overwritten.
            defer_garbage(replay, view.own, &mut self.garbage);
        }
        if !self.garbage.is_empty() {
            let keep = |table, key| {
                replay.absent.lock().expect("no holder panics").push((table, key));
            };
            self.garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, view, keep);
        }
        self.arena.reset();
        Ok(())
    }
}
