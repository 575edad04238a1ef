//! The interface of all workloads, for a common driver.

use crate::check::{Reader, Violation};
use fastrand::Rng;
use hyades::{
    Abort, Builder, Database, Error, PostedCall, ProcedureId, Session, Table, Ticket, Transaction,
};
use hyades_platform::sync::Unpoisoned;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The result of a session's call: the procedure's outcome, and the ticket to wait for.
pub type Outcome = Result<(Result<(), Abort>, Ticket), Error>;

/// The target of the calls of a workload's transactions.
pub trait Calls {
    /// The immediate result of a call.
    type Called;

    /// Calls a procedure.
    ///
    /// # Errors
    /// The database's.
    fn call<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<Self::Called, Error>;
}

/// Runs the call.
impl Calls for Session {
    type Called = (Result<(), Abort>, Ticket);

    #[inline]
    fn call<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<Self::Called, Error> {
        Session::call(self, procedure, arguments)
    }
}

/// Posts the call.
impl Calls for &Database {
    type Called = PostedCall<()>;

    #[inline]
    fn call<A: Serialize + ?Sized>(
        &mut self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<Self::Called, Error> {
        self.post(procedure, arguments)
    }
}

/// A workload: its tables and procedures, population, transactions, and consistency check.
pub trait Workload: Send + Sync {
    /// The input of one transaction. Inputs are reused, so that drawing allocates nothing.
    type Input: Default + Send;

    /// The workload's name on the command line.
    fn name(&self) -> &'static str;

    /// Declares tables and procedures, including the procedures of the population, and keeps their
    /// handles. To be called once, before all other methods.
    fn declare(&mut self, builder: &mut Builder);

    /// The table with the most bytes, read by scans beside the workload.
    fn largest_table(&self) -> Table;

    /// The number of calls that populate the database. The calls may run in any order and
    /// concurrently.
    fn parts(&self) -> usize;

    /// Runs the `part`-th call of the population, counted from 0.
    ///
    /// # Errors
    /// The database's.
    fn load(&self, session: &mut Session, part: usize) -> Outcome;

    /// Draws the next input of a worker.
    fn draw(&self, rng: &mut Rng, worker: usize, into: &mut Self::Input);

    /// Runs or posts a transaction.
    ///
    /// # Errors
    /// The database's.
    fn run<C: Calls>(&self, calls: &mut C, input: &Self::Input) -> Result<C::Called, Error>;

    /// The kinds of transactions, for reports.
    fn kinds(&self) -> &'static [&'static str];

    /// The index of an input in [`kinds`](Self::kinds).
    fn kind(&self, input: &Self::Input) -> usize;

    /// Whether a transaction may abort like this when all is well: a rollback that the workload
    /// requires, or a rollback that the workload's rules allow.
    fn expects(&self, abort: Abort) -> bool;

    /// Checks the conditions that must hold while no transaction runs; `None` if there are none.
    ///
    /// # Errors
    /// The database's.
    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error>;
}

impl Reader for Database {
    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, Abort>) -> Result<T, Error> {
        self.try_transact(body)?.map_err(|abort| {
            Error::Misuse(format!("a consistency check could not read the database: {abort}"))
        })
    }
}

/// Population calls that may await acknowledgement, per thread.
const IN_FLIGHT: usize = 64;

/// Populates a database with `threads` threads and returns when all calls are acknowledged. After
/// each call `progress` gets the call's part number, counted from 1.
///
/// # Errors
/// The database's; and [`Error::Misuse`] if a call aborts, for example because the rows exist.
pub fn populate<W: Workload>(
    workload: &W,
    database: &Database,
    threads: usize,
    progress: impl Fn(usize) + Sync,
) -> Result<(), Error> {
    // Relaxed: threads need only distinct part numbers.
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                if let Err(error) = load_parts(workload, database, &next, &progress) {
                    // The remaining threads find no more parts; the first failure is returned.
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                    failure.lock().unpoisoned().get_or_insert(error);
                }
            });
        }
    });
    failure.into_inner().unpoisoned().map_or(Ok(()), Err)
}

fn load_parts<W: Workload>(
    workload: &W,
    database: &Database,
    next: &AtomicUsize,
    progress: &(impl Fn(usize) + Sync),
) -> Result<(), Error> {
    let mut session = database.session()?;
    let mut waiting = VecDeque::with_capacity(IN_FLIGHT);
    loop {
        let part = next.fetch_add(1, Ordering::Relaxed);
        if part >= workload.parts() {
            break;
        }
        let (outcome, ticket) = workload.load(&mut session, part)?;
        outcome.map_err(|abort| {
            let name = workload.name();
            Error::Misuse(format!("part {part} of the population of {name} failed: {abort}"))
        })?;
        if waiting.len() == IN_FLIGHT {
            waiting.pop_front().map_or(Ok(()), Ticket::wait)?;
        }
        waiting.push_back(ticket);
        progress(part + 1);
    }
    waiting.into_iter().try_for_each(Ticket::wait)
}
