//! One life of a database: sessions on threads run random transactions until the end of the life.

use crate::conduct::Conduct;
use crate::history::ExecutedTransaction;
use crate::program::{self, Program};
use crate::schema::Tables;
use crate::shape::Shape;
use crate::traces::ProcedureTraces;
use crate::wakers::Wakers;
use fastrand::Rng;
use hyades::{
    Abort, CommitQueue, Database, Error, ProcedureId, RecordKind, Session, Snapshot, Ticket,
    Transaction,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Logical clock and program numbers of a history, shared by all sessions. SeqCst: the work of a
/// thread before its draw of a time must precede the work of another thread after a later time.
#[derive(Debug, Default)]
pub struct Counters {
    moment: AtomicU64,
    program: AtomicU64,
}

impl Counters {
    /// Draws the next logical time.
    pub fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    /// Draws the number of the next program.
    pub(crate) fn program(&self) -> u64 {
        self.program.fetch_add(1, Ordering::SeqCst)
    }

    /// Number of programs created so far.
    pub fn programs(&self) -> u64 {
        self.program.load(Ordering::SeqCst)
    }
}

/// Input of the sessions of a life.
pub struct Work<'d> {
    /// The database.
    pub db: &'d Database,
    /// The procedure that runs programs.
    pub procedure: ProcedureId,
    /// The tables.
    pub tables: Tables,
    /// Clock and program numbers.
    pub counters: &'d Counters,
    /// The reads and writes of procedures, if only calls are logged.
    pub traces: &'d ProcedureTraces,
    /// Whether calls are logged before they run, and nothing else: closures only read.
    pub calls_only: bool,
    /// Whether the log holds data records only.
    pub data_only: bool,
    /// Maximum number of transactions of each session.
    pub transactions: usize,
    /// Unusual features of the history.
    pub shape: Shape,
    /// Unusual conduct of the program around the database.
    pub conduct: Conduct,
    /// Wakers that misbehave, if any.
    pub(crate) wakers: Option<Arc<Wakers>>,
    /// Unfinished reader sessions. Writers go on as long as there are any.
    pub readers: AtomicUsize,
    /// For each session, the number of transactions begun plus the number ended: odd while one
    /// runs.
    pub steps: Vec<AtomicU64>,
}

impl Work<'_> {
    /// Maximum number of transactions of each writer beside readers.
    fn beside_readers(&self) -> usize {
        let writers = self.steps.len().saturating_sub(1).max(1);
        (self.shape.programs(&self.tables) / writers).clamp(1, MOST_BESIDE_READERS)
    }
}

/// The result of a session.
#[derive(Debug, Default)]
pub struct SessionResult {
    /// The transactions that ran.
    pub ran: Vec<ExecutedTransaction>,
    /// Set if a transaction starved: the error.
    pub starved: Option<String>,
}

/// The number of times a reader session reads everything.
const READS: usize = 4;

/// Writers go on beside a reader for about this long.
const BESIDE_READERS: Duration = Duration::from_secs(4);

/// Maximum number of transactions of a writer beside a reader. Fewer, with longer pauses, where
/// rows are large.
const MOST_BESIDE_READERS: usize = 4000;

fn starved(error: &Error) -> Option<String> {
    matches!(error, Error::Starved { .. }).then(|| error.to_string())
}

/// A running session.
pub struct Runner<'d> {
    work: &'d Work<'d>,
    rng: Rng,
    session: Session,
    queue: CommitQueue<usize>,
    ran: Vec<ExecutedTransaction>,
    /// Whether the session only reads everything.
    reads: bool,
    /// A snapshot read before and to read again, and the moment before its opening.
    held: Option<(Snapshot, u64)>,
    /// The index among the sessions.
    at: usize,
}

impl<'d> Runner<'d> {
    /// A session whose transactions follow from the seed.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn new(work: &'d Work<'d>, seed: u64, at: usize) -> Result<Self, Error> {
        Ok(Runner {
            work,
            rng: Rng::with_seed(seed),
            session: work.db.session()?,
            queue: work.db.commit_queue(),
            ran: Vec::new(),
            reads: work.shape.reader && at == 0,
            held: None,
            at,
        })
    }

    /// Runs transactions until the limit is reached or the database fails, then waits for the
    /// outstanding acknowledgements.
    pub fn run(mut self) -> SessionResult {
        let starved = if self.reads { self.read() } else { self.write() };
        while !self.queue.is_empty() {
            let failed = self.queue.wait_for_one().is_err();
            if self.drain().is_err() || failed {
                break;
            }
        }
        SessionResult { ran: self.ran, starved }
    }

    /// Runs random transactions. Returns the error if a transaction starved.
    fn write(&mut self) -> Option<String> {
        let beside = self.work.beside_readers();
        for n in 0.. {
            if n >= self.work.transactions {
                // Goes on while a reader has to finish beside writers.
                if self.work.readers.load(Ordering::Relaxed) == 0 || n >= beside {
                    break;
                }
                std::thread::sleep(BESIDE_READERS / beside as u32);
            }
            let pauses = self.work.conduct.long_bodies && self.rng.u32(0..8) == 0;
            let pause = Duration::from_micros(if pauses { self.rng.u64(1..2000) } else { 0 });
            let mut between = || {
                if pauses {
                    std::thread::sleep(pause);
                }
            };
            if let Err(error) = self.step(true, &mut between) {
                return starved(&error);
            }
        }
        None
    }

    /// Reads everything a few times, slowly enough that writers always interleave.
    fn read(&mut self) -> Option<String> {
        let mut failed = None;
        for _ in 0..self.work.transactions.min(READS) {
            let mut pause = || std::thread::sleep(Duration::from_millis(2));
            if let Err(error) = self.step(true, &mut pause) {
                failed = starved(&error);
                break;
            }
        }
        self.work.readers.fetch_sub(1, Ordering::Relaxed);
        failed
    }

    /// Collects the arrived acknowledgements.
    ///
    /// # Errors
    /// The log has failed. Acknowledgements from before the failure are collected.
    pub fn drain(&mut self) -> Result<(), Error> {
        let (ran, durable) = (&mut self.ran, !self.work.conduct.asynchronous);
        self.queue.drain(|at| ran[at].acknowledged = durable).map(drop)
    }

    /// The transactions that have run.
    pub fn into_ran(self) -> Vec<ExecutedTransaction> {
        self.ran
    }

    /// Runs one transaction, and may wait for acknowledgements if `may_wait`. `between` is called
    /// between the steps of a closure and may run transactions of other sessions.
    ///
    /// # Errors
    /// The database has failed.
    pub fn step(&mut self, may_wait: bool, between: &mut dyn FnMut()) -> Result<(), Error> {
        let id = self.work.counters.program();
        let (tables, shape) = (self.work.tables, self.work.shape);
        let program = match self.reads {
            true => program::reads_everything(tables, id),
            false => program::random(&mut self.rng, tables, shape, id),
        };
        if shape.session_each {
            self.session = self.work.db.session()?;
        }
        let mut began = self.work.counters.moment();
        self.work.steps[self.at].fetch_add(1, Ordering::Relaxed);
        let reads = program.only_reads();
        let (how, mut ticket) = match (reads && self.rng.bool(), self.work.calls_only && !reads) {
            (true, _) => self.read_snapshot(&program, &mut began, between)?,
            (_, true) if self.rng.bool() => self.post(&program, may_wait)?,
            _ => self.submit(&program, between)?,
        };
        self.work.steps[self.at].fetch_add(1, Ordering::Relaxed);
        let returned = self.work.counters.moment();
        let trace = self.work.traces.take(id).unwrap_or_else(program::take_trace);
        self.ran.push(ExecutedTransaction { id, began, returned, trace, acknowledged: false, how });
        if let Some(wakers) = self.work.wakers.as_ref().filter(|_| self.rng.bool()) {
            wakers.poll(&mut self.rng, self.work.db, &mut ticket);
        }
        match self.rng.u32(0..16) {
            // The ticket is dropped, so the transaction counts as not acknowledged.
            0 => drop(ticket),
            1 if may_wait => {
                if ticket.wait().is_ok() {
                    let last = self.ran.last_mut().expect("just pushed");
                    last.acknowledged = !self.work.conduct.asynchronous;
                }
            }
            _ => self.queue.push(ticket, self.ran.len() - 1),
        }
        self.drain()?;
        while may_wait && shape.in_flight.is_some_and(|most| self.queue.len() >= most) {
            self.queue.wait_for_one()?;
            self.drain()?;
        }
        Ok(())
    }

    /// Runs a program that only reads as of a snapshot: the held snapshot, or a new one. Either may
    /// be held afterwards. `began` becomes the moment before its opening.
    fn read_snapshot(
        &mut self,
        program: &Program,
        began: &mut u64,
        between: &mut dyn FnMut(),
    ) -> Result<(String, Ticket), Error> {
        let (snapshot, opened) =
            self.held.take().unwrap_or_else(|| (self.work.db.open_snapshot(), *began));
        *began = opened;
        let tables = self.work.tables;
        let run = |tx: &Transaction<'_>| program::run_with(tx, tables, program, between);
        let (result, ticket) = self.session.read(&snapshot, run)?;
        let how = format!("snapshot opened after {opened}");
        if self.rng.u32(0..4) != 0 {
            self.held = Some((snapshot, opened));
        }
        Ok((self.describe(how, result, program), ticket))
    }

    fn submit(
        &mut self,
        program: &Program,
        between: &mut dyn FnMut(),
    ) -> Result<(String, Ticket), Error> {
        let tables = self.work.tables;
        let kinds = [RecordKind::Data, RecordKind::Command, RecordKind::Adaptive];
        // Only closures can be interrupted between their steps.
        let kind = if self.reads { 0 } else { self.rng.u32(0..8) };
        let kind = if self.work.calls_only && !program.only_reads() { 7 } else { kind };
        let (how, result, ticket) = match kind {
            0 | 1 => {
                let (result, ticket) = self
                    .session
                    .try_submit(|tx| program::run_with(tx, tables, program, between))?;
                ("closure".to_string(), result, ticket)
            }
            2 if !self.work.data_only && !self.work.calls_only => {
                let kind = kinds[self.rng.usize(0..3)];
                let (result, ticket) =
                    self.session.call_recorded(self.work.procedure, program, kind)?;
                (format!("procedure as {kind:?}"), result, ticket)
            }
            _ => {
                let (result, ticket) = self.session.call(self.work.procedure, program)?;
                ("procedure".to_string(), result, ticket)
            }
        };
        Ok((self.describe(how, result, program), ticket))
    }

    /// Posts a program, and waits until the program has run; runs posted calls on this thread
    /// unless `may_wait`.
    fn post(&mut self, program: &Program, may_wait: bool) -> Result<(String, Ticket), Error> {
        let posted = self.work.db.post::<_, ()>(self.work.procedure, program)?;
        while !may_wait && self.work.db.run_posted()? {}
        let (result, ticket) = posted.outcome()?;
        Ok((self.describe("posted".to_string(), result, program), ticket))
    }

    fn describe(&self, how: String, result: Result<(), Abort>, program: &Program) -> String {
        let end = match result {
            Ok(()) => "committed".to_string(),
            Err(abort) => format!("aborted, {abort}"),
        };
        format!("{how}, {end}: {:?}", program.steps)
    }
}
