//! Transactions run by an executor: starved transactions, and transactions too large for an event
//! loop.

use super::wrote::{Origin, Wrote};
use super::{Commands, Ended, Exec, run_all};
use crate::access::Login;
use crate::client::QueuedCommands;
use crate::client::{Remembered, RunEnd};
use crate::clients::ClientEntry;
use crate::commands::{Caller, is_script};
use crate::data::keyspace::{Context, Wait};
use crate::request::Request;
use crate::resp::reply::Reply;
use crate::session::refusing::refuse_queued;
use crate::state::Shared;
use crate::transact::{Underway, context, failure};
use hyades::{SessionOrder, Ticket};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A transaction run with retries and waiting: one command, or the commands of EXEC.
pub struct PatientRun {
    /// The commands.
    pub requests: Vec<Request>,
    /// The arguments, except arguments that requests own themselves.
    pub input: Vec<u8>,
    /// The EXEC of the commands.
    pub exec: Option<Exec>,
    /// The commands, if they are too many for a loop, with the login for refusing commands.
    pub long_exec: Option<(QueuedCommands, Login)>,
    /// The reply is dropped.
    pub is_silent: bool,
    /// The transaction has met conflicts, and is not large.
    pub has_starved: bool,
    /// The client.
    pub client: Arc<ClientEntry>,
    /// The order of the client's transactions.
    pub order: SessionOrder,
    /// The client's database.
    pub database: u32,
    /// The client's user.
    pub login: Login,
    /// Whether an error undoes the whole transaction.
    pub rolls_back: bool,
    /// The commands whose keys are remembered.
    pub remembered: Remembered,
}

impl PatientRun {
    /// Whether a command is a script, which may take any time.
    pub fn has_script(&self) -> bool {
        let own = self.requests.iter().filter_map(Request::place).any(is_script);
        own || self.long_exec.as_ref().is_some_and(|(queued, _)| queued.any(is_script))
    }

    /// Runs the transaction and writes its one reply. The reply may leave once the ticket is
    /// acknowledged; without a ticket the reply depends on nothing.
    pub fn run(mut self, shared: &Arc<Shared>, reply: &mut Reply<'_>) -> RunEnd {
        debug_assert!(self.exec.is_some() || self.requests.len() == 1, "it has one reply");
        if let Some((queued, mut login)) = self.long_exec.take() {
            (self.requests, self.input) = queued.into_one();
            let all = self.requests.iter_mut();
            refuse_queued(shared, &mut login, &self.client, all, &self.input);
        }
        #[cfg(feature = "replication")]
        if let Some(end) = self.count_keys(shared, reply) {
            return end;
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
            wrote.notices.clear();
        }
        if self.is_silent {
            reply.truncate(position);
        }
        let Wrote { ends: exec_ends, notices, changed, read_elsewhere, lines, .. } = wrote;
        let mut events = notices.events;
        if !shared.wiring.channels.is_heard() {
            events.clear();
        }
        let order = Some(self.order);
        RunEnd {
            ticket,
            exec_ends,
            wait,
            events,
            changed,
            read_elsewhere,
            lines,
            order,
            ..RunEnd::default()
        }
    }

    fn submit(
        &mut self,
        shared: &Arc<Shared>,
        reply: &mut Reply<'_>,
        wrote: &mut Wrote,
    ) -> Result<(Result<Option<Wait>, Ended>, Ticket), String> {
        let effects = RefCell::default();
        let context = Context { is_patient: true, ..context(shared, &effects) };
        let position = reply.position();
        let opened = shared.opened()?;
        let mut session = opened.database.session().map_err(|error| failure(shared, error))?;
        let Self { database, requests, input, exec, order, client, login, rolls_back, .. } = self;
        let mut caller = Caller::new(shared, client, login, *rolls_back);
        caller.read_elsewhere = Some(RefCell::default());
        let (remembered, caller) = (self.remembered, &caller);
        let (database, exec) = (*database, exec.as_ref());
        let (requests, input) = (&requests[..], &input[..]);
        let submitted = session.in_order(order).try_submit(|tx| {
            reply.truncate(position);
            effects.borrow_mut().clear();
            wrote.clear();
            // The transaction may have waited for long.
            let context = Context { now_ms: shared.clock.now_ms(), ..context };
            let commands = Commands { database, requests, input, exec, caller, remembered };
            run_all(tx, context, &commands, reply, wrote)
        });
        let read = caller.read_elsewhere.as_ref().map(RefCell::take);
        wrote.read_elsewhere = read.unwrap_or_default().into_iter().collect();
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
