//! What all workloads have in common, so that one driver runs them.

use crate::check::{Reader, Violation};
use fastrand::Rng;
use hyades::{Abort, Builder, Database, Error, Session, Ticket, Transaction};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a session's call returns: the procedure's outcome, and what to wait for.
pub type Outcome = Result<(Result<(), Abort>, Ticket), Error>;

/// A workload: what it declares, how it is populated, what it runs, and what must hold after.
pub trait Workload: Send + Sync {
    /// The input of one transaction. It is drawn over and over in place, so that drawing allocates
    /// nothing.
    type Input: Default + Send;

    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Declares tables and procedures, those of the population included, and keeps their handles.
    /// To be called once, before all that follows.
    fn declare(&mut self, builder: &mut Builder);

    /// How many calls populate the database. They may run in any order and at the same time.
    fn parts(&self) -> usize;

    /// Makes the `part`-th call of the population, counted from 0.
    ///
    /// # Errors
    /// The database's.
    fn load(&self, session: &mut Session, part: usize) -> Outcome;

    /// Draws the next input of a worker.
    fn draw(&self, rng: &mut Rng, worker: usize, into: &mut Self::Input);

    /// Runs a transaction.
    ///
    /// # Errors
    /// The database's.
    fn run(&self, session: &mut Session, input: &Self::Input) -> Outcome;

    /// The kinds of transactions, for reports.
    fn kinds(&self) -> &'static [&'static str];

    /// Which of the kinds an input is.
    fn kind(&self, input: &Self::Input) -> usize;

    /// Whether a transaction may end so when all is well: a rollback that the workload asks for,
    /// or one that its rules allow.
    fn expects(&self, abort: Abort) -> bool;

    /// Checks what must hold when nothing is running; `None` if there is nothing to check.
    ///
    /// # Errors
    /// The database's.
    fn check(&self, database: &Database) -> Result<Option<Vec<Violation>>, Error>;
}

impl Reader for Database {
    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, Abort>) -> Result<T, Error> {
        self.transact(body)?.map_err(|abort| {
            Error::Misuse(format!("a consistency check could not read the database: {abort}"))
        })
    }
}

/// So many calls of the population await their acknowledgement at most, per thread.
const IN_FLIGHT: usize = 64;

/// Populates a database with `threads` threads and returns when all is acknowledged. `progress`
/// is told after each call how many have been made.
///
/// # Errors
/// The database's; and [`Error::Misuse`] if a call aborts, as when the rows are there already.
pub fn populate<W: Workload>(
    workload: &W,
    database: &Database,
    threads: usize,
    progress: impl Fn(usize) + Sync,
) -> Result<(), Error> {
    // Threads take the next part from here and learn nothing else by it, hence `Relaxed`.
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                if let Err(error) = load_parts(workload, database, &next, &progress) {
                    // The others run out of parts, and the first failure is told.
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                    failure.lock().expect("no holder panics").get_or_insert(error);
                }
            });
        }
    });
    failure.into_inner().expect("no holder panics").map_or(Ok(()), Err)
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
