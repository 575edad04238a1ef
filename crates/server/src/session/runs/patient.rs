//! Transactions that an executor runs: those that have starved, and those that are too much for an
//! event loop.

use super::wrote::{Origin, Wrote};
use super::{Commands, Ended, Exec, run_all};
use crate::access::Login;
use crate::client::QueuedCommands;
use crate::client::RunEnd;
use crate::clients::ClientEntry;
use crate::data::keyspace::{Context, Wait};
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::session::refusing::refuse_queued;
use crate::state::{Opened, Shared};
use crate::transact::{Underway, context, failure};
use hyades::{SessionOrder, Ticket};
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

impl PatientRun {
    /// Runs it and writes its one reply. The reply may leave once the ticket is acknowledged;
    /// without one it depends on nothing.
    pub fn run(mut self, shared: &Shared, reply: &mut Reply<'_>) -> RunEnd {
        debug_assert!(self.exec.is_some() || self.requests.len() == 1, "it has one reply");
        if let Some((queued, mut login)) = self.long_exec.take() {
            (self.requests, self.input) = queued.into_one();
            let all = self.requests.iter_mut();
            refuse_queued(shared, &mut login, &self.client, all, &self.input);
        }
        let position = reply.position();
        let counters = &shared.stats.counters;
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
        if !shared.wiring.channels.is_heard() {
            events.clear();
        }
        let order = Some(self.order);
        RunEnd { ticket, exec_ends, wait, events, lines, order, ..RunEnd::default() }
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
        let Opened { database, .. } = shared.store.opened.get().expect("it was tried before");
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
