//! Transactions that an executor runs: those that have starved, and those that are too much for an
//! event loop.

use super::wrote::{Origin, Wrote};
use super::{Commands, Ended, Exec, QueuedCommands, Request, context, failure, run_all};
use crate::access::Login;
use crate::clients::ClientEntry;
use crate::commands::JobEnd;
use crate::conversation::refuse_queued;
use crate::data::keyspace::{Context, Effects, Stop, Wait};
use crate::resp::reply::Reply;
use crate::shared::{Opened, Shared};
use hyades::{SessionOrder, Ticket, Transaction};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A transaction that is run with retries and waiting: one command, or those of EXEC.
pub struct PatientRun {
    /// Its commands.
    pub requests: Vec<Request>,
    /// What those refer to that do not have their arguments.
    pub input: Vec<u8>,
    /// They are those of EXEC.
    pub exec: Option<Exec>,
    /// Its commands are these, too many for a loop, if the client's user may run them.
    pub long_exec: Option<(QueuedCommands, Login)>,
    /// Its reply is dropped.
    pub is_silent: bool,
    /// It has met conflicts, and is no large transaction.
    pub has_starved: bool,
    /// Its client.
    pub client: Arc<ClientEntry>,
    /// The order of its client's transactions.
    pub order: SessionOrder,
    /// The database of its client.
    pub database: u32,
}

/// Counts the patient runs that are under way.
struct Underway<'a>(&'a Shared);

impl Underway<'_> {
    fn begin(shared: &Shared) -> Underway<'_> {
        shared.patient.fetch_add(1, Relaxed);
        Underway(shared)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.patient.fetch_sub(1, Relaxed);
    }
}

impl PatientRun {
    /// Runs it and writes its one reply. The reply may leave once the ticket is acknowledged;
    /// without one it depends on nothing.
    pub fn run(mut self, shared: &Shared, reply: &mut Reply<'_>) -> JobEnd {
        debug_assert!(self.exec.is_some() || self.requests.len() == 1, "it has one reply");
        if let Some((queued, mut login)) = self.long_exec.take() {
            (self.requests, self.input) = queued.into_one();
            let all = self.requests.iter_mut();
            refuse_queued(shared, &mut login, &self.client, all, &self.input);
        }
        let position = reply.position();
        let counters = &shared.counters;
        let counter = if self.has_starved { &counters.alone } else { &counters.large };
        counter.fetch_add(1, Relaxed);
        let underway = Underway::begin(shared);
        let mut wrote = Wrote::default();
        let (error, ticket, wait) = match self.submit(shared, reply, &mut wrote) {
            Ok((Ok(wait), ticket)) => (None, Some(ticket), wait),
            Ok((Err(ended), ticket)) => (Some(ended.text()), Some(ticket), None),
            Err(text) => (Some(text), None, None),
        };
        drop(underway);
        if let Some(text) = error {
            reply.truncate(position);
            reply.error(&text);
            wrote.ends.clear();
            wrote.events.clear();
        }
        if self.is_silent {
            reply.truncate(position);
        }
        let Wrote { ends: exec_ends, mut events, lines, .. } = wrote;
        if !shared.channels.is_heard() {
            events.clear();
        }
        JobEnd { ticket, exec_ends, wait, events, lines, order: Some(self.order) }
    }

    fn submit(
        &mut self,
        shared: &Shared,
        reply: &mut Reply<'_>,
        wrote: &mut Wrote,
    ) -> Result<(Result<Option<Wait>, Ended>, Ticket), String> {
        let effects = RefCell::default();
        let context = Context { is_patient: true, ..context(shared, &effects) };
        let position = reply.position();
        let Opened { database, .. } = shared.opened.get().expect("it was tried before");
        let mut session = database.session().map_err(|error| failure(shared, error))?;
        let Self { database, requests, input, exec, order, .. } = self;
        let (database, exec) = (*database, exec.as_ref());
        let (requests, input) = (&requests[..], &input[..]);
        let submitted = session.in_order(order).try_submit(|tx| {
            reply.truncate(position);
            effects.borrow_mut().clear();
            wrote.clear();
            // It may have waited for long.
            let context = Context { now_ms: shared.clock.now_ms(), ..context };
            let commands = Commands { database, requests, input, exec };
            run_all(tx, context, &commands, reply, wrote)
        });
        let (result, ticket) = submitted.map_err(|error| failure(shared, error))?;
        let effects = effects.into_inner();
        if let Ok(done) = result {
            let origin =
                Origin { client: &self.client, database: self.database, input: &self.input };
            wrote.count(shared, &origin, &self.requests[..done], &effects);
        }
        let wait = effects.wait.map(|wait| Wait { is_silent: self.is_silent, ..wait });
        Ok((result.map(|_| wait), ticket))
    }
}

/// Runs a transaction of a command that is no run, with retries and waiting, in the order of its
/// client, and applies what it does beside its rows. Returns what has come of it, its effects, and
/// its ticket: the result counts once that is acknowledged.
///
/// # Errors
/// What the client is told: an error of the body, once all that it was based on is on disk, or one
/// of the engine.
pub fn patiently<T>(
    shared: &Shared,
    order: &mut SessionOrder,
    body: impl Fn(&Transaction<'_>, Context<'_>) -> Result<T, Stop>,
) -> Result<(T, Effects, Ticket), String> {
    let _underway = Underway::begin(shared);
    let effects = RefCell::default();
    let context = Context { is_patient: true, ..context(shared, &effects) };
    let Opened { database, .. } = shared.opened.get().expect("there was a session");
    let failed = |error| failure(shared, error);
    let mut session = database.session().map_err(failed)?;
    let submitted = session.in_order(order).try_submit(|tx| {
        effects.borrow_mut().clear();
        // It may have waited for long.
        body(tx, Context { now_ms: shared.clock.now_ms(), ..context })
    });
    let (result, ticket) = submitted.map_err(failed)?;
    let effects = effects.into_inner();
    match result {
        Ok(value) => {
            shared.apply(&effects);
            Ok((value, effects, ticket))
        }
        Err(stop) => {
            ticket.wait().map_err(failed)?;
            Err(match stop {
                Stop::Error(text) => text.into_owned(),
                Stop::Abort(abort) => Ended::Abort(abort).text(),
            })
        }
    }
}
