//! The threads for applying operations together.
//!
//! The operations of a batch, by key, are cut into pieces, where the data component takes both
//! sides at the same time. The thread holding the scans offers the pieces to helpers, and applies
//! some itself. Invariants:
//! - No two pieces applied at a time have a key in common: the pieces of a batch have none, and
//!   there is a single batch at a time.
//! - [`ProxyPool::apply`] returns when each piece is applied; or when a piece has failed, and no
//!   thread is at the data component any more. Until then the scans are held. So a resume point,
//!   taken under the scans, passes only operations applied by all threads.
//! - Helpers decide nothing: a batch is applied as well by the offering thread alone.

use super::BATCH;
use super::batch::{Ranked, sorted};
use super::growth::{Growth, ProxyLoad};
use crate::config::Options;
use crate::data_component::{DataComponent, Operation};
use crate::error::Error;
use crate::held_bytes::HeldBytes;
use crate::threads::ends_until;
use crate::transaction_component::version::Version;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::sync::locked;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The fewest operations worth a thread.
const LEAST_PIECE: usize = 256;
/// The time without a piece after which a helper ends.
const IDLE: Duration = Duration::from_secs(1);

/// The result of the data component for a piece, or its panic.
type PieceOutcome = std::thread::Result<Result<(), Error>>;

/// The operations of a batch: by key, and within a key by descending timestamp.
struct KeyedBatch {
    operations: Vec<Ranked>,
    /// The ends of the pieces.
    ends: Vec<usize>,
}

/// A piece taken by a thread: the batch, and the piece's number there.
type TakenPiece = (Arc<KeyedBatch>, usize);

struct PoolState {
    /// The batch under application.
    batch: Option<Arc<KeyedBatch>>,
    /// The first piece not taken by a thread.
    next: usize,
    /// The number of pieces under application.
    under_way: usize,
    /// The first failure.
    failed: Option<PieceOutcome>,
    /// How many helpers there should be, and how many there are.
    wanted: usize,
    running: usize,
    helpers: Vec<JoinHandle<()>>,
    growth: Growth,
    closed: bool,
}

/// The threads for applying operations together: helpers, and the thread holding the scans.
pub(crate) struct ProxyPool {
    state: Mutex<PoolState>,
    /// Pieces are offered, or the pool is closed.
    offered: Condvar,
    /// No piece is under way.
    ended: Condvar,
    /// The fewest threads, and the most, without the thread holding the scans.
    fewest: usize,
    most: usize,
    /// The length of the shortest piece.
    least_piece: usize,
    /// Without helpers: a single thread does all work.
    is_stepped: bool,
    /// The waiting bytes removed from the version table.
    held: HeldBytes,
}

impl KeyedBatch {
    fn piece(&self, nth: usize) -> &[Ranked] {
        let begin = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.operations[begin..self.ends[nth]]
    }
}

impl PoolState {
    /// Takes the next piece, unless a piece has failed.
    fn take(&mut self) -> Option<TakenPiece> {
        let batch = self.batch.as_ref()?;
        if self.next == batch.ends.len() || self.failed.is_some() {
            return None;
        }
        let taken = (Arc::clone(batch), self.next);
        self.next += 1;
        self.under_way += 1;
        Some(taken)
    }
}

/// Returns the ends of pieces: at most `most` of about the same length; only the last may be
/// shorter than `least`.
fn cut(data: &dyn DataComponent, operations: &[Ranked], most: usize, least: usize) -> Vec<usize> {
    let key = |at: usize| operations[at].1.key();
    let may_cut = |at: &usize| {
        let (last, next) = (key(*at - 1), key(*at));
        last != next && data.may_cut(last, next)
    };
    let (mut ends, mut begin, len) = (Vec::with_capacity(most), 0, operations.len());
    while ends.len() + 1 < most {
        let at = begin + ((len - begin) / (most - ends.len())).max(least);
        let behind = (at..len).find(may_cut);
        // A cut farther off than the cut behind is of no use.
        let reach = behind.map_or(len, |behind| behind - at);
        let from = (begin + least).max(at.saturating_sub(reach));
        let before = (from..at.min(len)).rev().find(may_cut);
        let Some(end) = before.or(behind) else { break };
        ends.push(end);
        begin = end;
    }
    ends.push(len);
    ends
}

/// X5, X6: applies the newest operation on each key, and then notes the operations as held by the
/// data component, so that versions may leave the table. In this order, or a version is nowhere
/// (D6).
fn apply_piece(
    data: &dyn DataComponent,
    operations: &[Ranked],
    held: &HeldBytes,
) -> Result<(), Error> {
    let mut batch: Vec<Operation<'_>> = Vec::with_capacity(operations.len());
    for (_, version) in operations {
        let key = version.key();
        if batch.last().is_none_or(|last| last.key != key) {
            batch.push(Operation { key, ts: version.ts(), value: version.bytes() });
        }
    }
    let set_applied =
        || held.subtract(operations.iter().map(|(_, version)| version.set_applied()).sum());
    if broken!(CountBeforeApplied) {
        set_applied();
    }
    data.apply(&batch)?;
    set_applied();
    Ok(())
}

impl ProxyPool {
    pub fn new(options: &Options, held: HeldBytes) -> Self {
        let (fewest, most) = options.proxy_threads.clone().into_inner();
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let is_stepped = options.log.stepped;
        let state = PoolState {
            batch: None,
            next: 0,
            under_way: 0,
            failed: None,
            wanted: fewest - 1,
            running: 0,
            helpers: Vec::new(),
            growth: Growth::new(processors),
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            offered: Condvar::new(),
            ended: Condvar::new(),
            fewest: fewest - 1,
            most: most - 1,
            least_piece: if is_stepped { 1 } else { LEAST_PIECE },
            is_stepped,
            held,
        }
    }

    /// The number of pieces of a batch, if it can be cut.
    pub fn threads(&self) -> usize {
        1 + locked(&self.state).wanted
    }

    /// The number of applying threads, including the thread holding the scans.
    pub fn running(&self) -> usize {
        1 + locked(&self.state).running
    }

    /// Looks whether there should be a further thread. `lag` bytes wait.
    pub fn look(&self, lag: usize, lag_limit: usize) {
        if self.is_stepped {
            return;
        }
        let (at_ns, cpu_ns) = (clock::monotonic_ns(), clock::process_cpu_ns());
        let state = &mut *locked(&self.state);
        let grows = state.growth.look(ProxyLoad { at_ns, cpu_ns, lag, lag_limit });
        if grows && state.wanted < self.most {
            state.wanted += 1;
        }
    }

    /// Applies operations. The caller holds the scans.
    ///
    /// # Errors
    /// The data component's error. Some of the operations may be applied then.
    pub fn apply(
        self: &Arc<Self>,
        data: &Arc<dyn DataComponent>,
        operations: impl Iterator<Item = Version>,
    ) -> Result<(), Error> {
        let operations = sorted(operations);
        // Read-only transactions have none.
        if operations.is_empty() {
            return Ok(());
        }
        let threads = self.threads();
        if !self.is_stepped && operations.len() >= BATCH * threads && threads <= self.most {
            let more = cut(&**data, &operations, threads + 1, self.least_piece);
            if more.len() > threads {
                locked(&self.state).growth.note_could_cut_more();
            }
        }
        let ends = cut(&**data, &operations, threads, self.least_piece);
        match ends.len() {
            1 => apply_piece(&**data, &operations, &self.held),
            _ => self.apply_together(data, KeyedBatch { operations, ends }),
        }
    }

    fn apply_together(
        self: &Arc<Self>,
        data: &Arc<dyn DataComponent>,
        batch: KeyedBatch,
    ) -> Result<(), Error> {
        let batch = Arc::new(batch);
        self.start_helpers(data);
        let counts_first = broken!(CountFirstPiece);
        if counts_first {
            // The rest of the batch before.
            self.apply_pieces(&**data, usize::MAX);
        }
        {
            let state = &mut *locked(&self.state);
            debug_assert!(state.under_way == 0, "there is one batch at a time");
            (state.batch, state.next) = (Some(Arc::clone(&batch)), 0);
        }
        self.offered.notify_all();
        self.apply_pieces(&**data, if counts_first { 1 } else { usize::MAX });
        if counts_first {
            return Ok(());
        }
        match self.end() {
            None => {
                let mut versions = batch.operations.iter().map(|(_, version)| version);
                debug_assert!(versions.all(|v| v.is_applied()), "a piece was not applied");
                Ok(())
            }
            Some(Ok(failed)) => failed,
            Some(Err(panic)) => resume_unwind(panic),
        }
    }

    /// Applies pieces not taken by other threads, at most `most`.
    fn apply_pieces(&self, data: &dyn DataComponent, most: usize) {
        for _ in 0..most {
            let taken = locked(&self.state).take();
            let Some(taken) = taken else { break };
            self.apply_taken(data, taken);
        }
    }

    fn apply_taken(&self, data: &dyn DataComponent, (batch, nth): TakenPiece) {
        // A panic is for the thread holding the scans. The work left undone counts for nothing.
        let apply = || apply_piece(data, batch.piece(nth), &self.held);
        let outcome = catch_unwind(AssertUnwindSafe(apply));
        let state = &mut *locked(&self.state);
        state.under_way -= 1;
        if !matches!(outcome, Ok(Ok(()))) {
            state.failed.get_or_insert(outcome);
        }
        if state.under_way == 0 {
            self.ended.notify_all();
        }
    }

    /// Waits until no piece is under way, after all were taken or a piece has failed. Returns the
    /// failure, if any.
    fn end(&self) -> Option<PieceOutcome> {
        let mut state = locked(&self.state);
        while state.under_way > 0 {
            state = self.ended.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.batch = None;
        state.failed.take()
    }

    /// Starts the wanted helpers not yet there.
    fn start_helpers(self: &Arc<Self>, data: &Arc<dyn DataComponent>) {
        if self.is_stepped {
            return;
        }
        let state = &mut *locked(&self.state);
        state.helpers.retain(|helper| !helper.is_finished());
        while state.running < state.wanted && !state.closed {
            let (pool, data) = (Arc::clone(self), Arc::clone(data));
            let helper = Builder::new().name("hyades-applier".into());
            // With fewer, a batch is applied as well.
            let Ok(helper) = helper.spawn(move || pool.help(&*data)) else { return };
            state.helpers.push(helper);
            state.running += 1;
        }
    }

    /// The work of a helper.
    fn help(&self, data: &dyn DataComponent) {
        let (mut state, mut is_idle) = (locked(&self.state), false);
        loop {
            if let Some(taken) = state.take() {
                drop(state);
                self.apply_taken(data, taken);
                (state, is_idle) = (locked(&self.state), false);
                continue;
            }
            if state.closed || is_idle && state.running > self.fewest {
                break;
            }
            let waited = self.offered.wait_timeout(state, IDLE);
            let (again, timeout) = waited.unwrap_or_else(|e| e.into_inner());
            (state, is_idle) = (again, timeout.timed_out());
        }
        state.running -= 1;
        state.wanted = state.running.max(self.fewest);
    }

    /// Ends the helpers, but waits for helpers only until `until`: a helper may be at a hanging
    /// data component. Untaken pieces are left to the offering thread.
    pub fn close(&self, until: Instant) {
        let helpers = {
            let mut state = locked(&self.state);
            state.closed = true;
            std::mem::take(&mut state.helpers)
        };
        self.offered.notify_all();
        for helper in helpers {
            // A helper catches the panics of the data component, and has none of its own.
            ends_until(helper, until);
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
