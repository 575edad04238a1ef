//! Wakers that misbehave. The thread that wakes a task works for the database: a transaction begun
//! there by a waker is refused, and a panic ends with the waker.

use crate::history::ExecutedTransaction;
use crate::life::Counters;
use crate::program::{self, Program};
use crate::schema::Tables;
use fastrand::Rng;
use hyades::{Database, Ticket};
use hyades_platform::sync::locked;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

/// Transactions that wakers have run. `None` once the life is over: wakers then do nothing.
type Ran = Mutex<Option<Vec<ExecutedTransaction>>>;

/// The shared state of the wakers of a life.
#[derive(Debug)]
pub(crate) struct Wakers {
    counters: Arc<Counters>,
    tables: Tables,
    /// Held while a waker runs a transaction, so that none outlives [`Wakers::end`].
    ran: Ran,
}

impl Wakers {
    pub fn new(counters: &Arc<Counters>, tables: Tables) -> Arc<Self> {
        let ran = Mutex::new(Some(Vec::new()));
        Arc::new(Wakers { counters: Arc::clone(counters), tables, ran })
    }

    /// Ends the work of wakers, and returns the transactions run by wakers.
    pub fn end(&self) -> Vec<ExecutedTransaction> {
        locked(&self.ran).take().unwrap_or_default()
    }

    /// Polls a ticket once, with a waker that panics, begins a transaction, or does nothing.
    pub fn poll(self: &Arc<Self>, rng: &mut Rng, db: &Database, ticket: &mut Ticket) {
        let transacts = || Transacts { db: db.clone(), wakers: Arc::clone(self) };
        let waker = match rng.u32(0..3) {
            0 => Waker::from(Arc::new(Panics)),
            1 => Waker::from(Arc::new(transacts())),
            _ => Waker::noop().clone(),
        };
        // The result is found by the later wait for the ticket.
        let _ = Pin::new(ticket).poll(&mut Context::from_waker(&waker));
    }

    fn transact(&self, db: &Database) {
        // A waker must not block its flusher: the holder of the lock may wait for a turn behind a
        // transaction that waits for room in this flusher's stream.
        let Ok(mut ran) = self.ran.try_lock() else { return };
        let Some(ran) = ran.as_mut() else { return };
        let id = self.counters.program();
        let program = Program { id, steps: Vec::new(), mark: true, give_up: false, strict: false };
        let began = self.counters.moment();
        let submitted = db
            .session()
            .and_then(|mut own| own.try_submit(|tx| program::run(tx, self.tables, &program)));
        // Refused, or the log has failed.
        let Ok((result, _ticket)) = submitted else { return };
        ran.push(ExecutedTransaction {
            id,
            began,
            returned: self.counters.moment(),
            trace: program::take_trace(),
            acknowledged: false,
            how: format!("in a waker: {result:?}"),
        });
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        // Without a printed message for each.
        std::panic::resume_unwind(Box::new("a waker that panics"));
    }
}

struct Transacts {
    db: Database,
    wakers: Arc<Wakers>,
}

impl Wake for Transacts {
    fn wake(self: Arc<Self>) {
        self.wakers.transact(&self.db);
    }
}
