//! Transactions that an executor runs: those that have starved, and those that are too much for an
//! event loop.

use super::{Commands, Ended, Request, context, count, failure, run_all};
use crate::data::keyspace::{Context, WatchedKey};
use crate::resp::reply::Reply;
use crate::shared::{Opened, Shared};
use hyades::Ticket;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

/// A transaction that is run with retries and waiting: one command, or those of EXEC.
pub struct PatientRun {
    /// Its commands.
    pub requests: Vec<Request>,
    /// They are those of EXEC.
    pub is_exec: bool,
    /// What EXEC compares.
    pub watched: Vec<WatchedKey>,
    /// Its reply is dropped.
    pub is_silent: bool,
    /// It has met conflicts, and is no large transaction.
    pub has_starved: bool,
    /// The database of its client.
    pub database: u32,
}

/// Counts the patient runs that are under way.
struct Underway<'a>(&'a Shared);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.patient.fetch_sub(1, Relaxed);
    }
}

impl PatientRun {
    /// Runs it and writes its one reply. The reply may leave once the ticket is acknowledged;
    /// without one it depends on nothing.
    pub fn run(&self, shared: &Shared, reply: &mut Reply<'_>) -> Option<Ticket> {
        debug_assert!(self.is_exec || self.requests.len() == 1, "it has one reply");
        let position = reply.position();
        let counters = &shared.counters;
        let counter = if self.has_starved { &counters.alone } else { &counters.large };
        counter.fetch_add(1, Relaxed);
        shared.patient.fetch_add(1, Relaxed);
        let underway = Underway(shared);
        let (error, ticket) = match self.submit(shared, reply) {
            Ok((result, ticket)) => (result.err().map(|ended| ended.text()), Some(ticket)),
            Err(text) => (Some(text), None),
        };
        drop(underway);
        if let Some(text) = error {
            reply.truncate(position);
            reply.error(&text);
        }
        if self.is_silent {
            reply.truncate(position);
        }
        ticket
    }

    fn submit(
        &self,
        shared: &Shared,
        reply: &mut Reply<'_>,
    ) -> Result<(Result<(), Ended>, Ticket), String> {
        let (effects, mut failed) = (RefCell::default(), Vec::new());
        let context = Context { is_patient: true, ..context(shared, &effects) };
        let position = reply.position();
        let Opened { database, .. } = shared.opened.get().expect("it was tried before");
        let mut session = database.session().map_err(|error| failure(shared, error))?;
        let submitted = session.try_submit(|tx| {
            reply.truncate(position);
            effects.borrow_mut().clear();
            failed.clear();
            // It may have waited for long.
            let context = Context { now_ms: shared.clock.now_ms(), ..context };
            let Self { database, requests, is_exec, watched, .. } = self;
            let (database, is_exec) = (*database, *is_exec);
            let commands = Commands { database, requests, input: &[], is_exec, watched };
            run_all(tx, context, &commands, reply, &mut failed)
        });
        let (result, ticket) = submitted.map_err(|error| failure(shared, error))?;
        if let Ok(done) = result {
            count(shared, &self.requests[..done], &effects.borrow(), &mut failed);
        }
        Ok((result.map(drop), ticket))
    }
}
