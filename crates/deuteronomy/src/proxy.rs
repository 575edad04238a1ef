//! The proxy: hands the operations of committed, durable transactions to the data component.
//!
//! Each stream has a scan in the order of its positions. A scan passes a record only if all records
//! before it have been handed over and are applied, so what is applied of a stream is a prefix of
//! it. The end of that prefix is where redo would have to begin. Invariants:
//! - Nothing is applied that a crash may still take back: each record is admitted by the frontier.
//! - Nothing is applied that is younger than an active transaction, which may need the version
//!   before it (D4), unless too much waits: then such a transaction is aborted if it does.
//! - Of a transaction with parts the resume point is not behind its first one before it is applied:
//!   redo finds all of them, or none.
//! - Every record handed over is in the inbox, or waits, or is applied. A failure in between ends
//!   the scans for good, and stops the log before another thread sees them: no resume point is
//!   taken behind a record that was lost on its way.
//! - Several threads may apply a batch (see [`pool`]). A record counts as applied when all of them
//!   have applied what they have taken of it, and not before: so a resume point passes only what
//!   all threads have applied.

mod applied;
mod batch;
mod growth;
pub(crate) mod pool;
mod waiting;

use crate::config::Options;
use crate::data_component::{DataComponent, ResumePoint};
use crate::error::Error;
use crate::key::Key;
use crate::transaction_component::timestamp::Timestamps;
use crate::transaction_component::version::Version;
use applied::AppliedBehind;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::locked;
use hyades_wal::{Log, Lsn, Needs, admits};
use pool::ProxyPool;
use smallvec::SmallVec;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use waiting::Waiting;

/// The most operations that a thread applies at once.
const BATCH: usize = 4096;
/// How often the proxy looks whether what waits may be applied.
const PAUSE: Duration = Duration::from_millis(1);

/// The record of a committed transaction, as its session hands it over.
pub(crate) struct Handed {
    pub ts: u64,
    pub stream: usize,
    /// Where its frame begins and ends.
    pub place: (Lsn, Lsn),
    /// Where its first part begins; or its frame, if it has none.
    pub first: Lsn,
    /// What the transaction depends on, without its own record.
    pub needs: Needs,
    /// By key. A few lie in place.
    pub operations: SmallVec<[(Key, Version); 2]>,
    /// The bytes of the record.
    pub bytes: usize,
}

#[derive(Default)]
struct Inbox {
    records: Vec<Handed>,
    /// The thread of the proxy sleeps until it is woken.
    asleep: bool,
    /// A checkpoint may be due though no record has come.
    checkpoint_due: bool,
    /// No more will come, and the thread of the proxy is to end.
    closed: bool,
}

/// The scans.
struct Scans {
    /// By stream, the records handed over and not yet applied, by position.
    waiting: Vec<Waiting>,
    /// Empty: room for what the inbox gets until the next look.
    received: Vec<Handed>,
    /// By stream, the end of the longest prefix known to have been handed over.
    handed_over: Vec<Lsn>,
    /// By stream, a position. Each transaction that has its first part below has handed its record
    /// over.
    held: Vec<Lsn>,
    /// By stream, the records that are applied where the resume point may be below them: redo
    /// applies these again.
    applied: Vec<AppliedBehind>,
    /// By stream, how many of the records that wait have parts.
    parted: Vec<usize>,
    /// The bytes of the records that wait.
    bytes: usize,
    /// An act under the lock has failed. Set after the log was stopped.
    failed: bool,
}

/// The proxy of a database.
pub(crate) struct Proxy {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Held while operations are applied and while a checkpoint is taken.
    scans: Mutex<Scans>,
    /// The threads that apply.
    pool: Arc<ProxyPool>,
}

/// Stops the log when its thread panics: what the panic has left undone is unknown.
pub(crate) struct StopOnPanic<'l>(pub &'l Log);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop("the data component or the proxy panicked");
        }
    }
}

impl Proxy {
    pub fn new(log: &Log, options: &Options) -> Self {
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        let waiting = starts.iter().map(|_| Waiting::default()).collect();
        let (held, parted) = (starts.clone(), vec![0; starts.len()]);
        let applied = starts.iter().map(|_| AppliedBehind::default()).collect();
        let (received, bytes, failed, handed_over) = (Vec::new(), 0, false, starts);
        let scans = Scans { waiting, received, handed_over, held, applied, parted, bytes, failed };
        let (inbox, arrived, pool) = (Mutex::default(), Condvar::new(), ProxyPool::new(options));
        Self { inbox, arrived, scans: Mutex::new(scans), pool: Arc::new(pool) }
    }

    /// The threads that apply.
    pub fn pool(&self) -> &ProxyPool {
        &self.pool
    }

    /// Takes over the record of a committed transaction. Its session has announced that it reserves
    /// in the stream, and withdraws that afterwards.
    pub fn hand_over(&self, record: Handed) {
        let is_asleep = {
            let mut inbox = locked(&self.inbox);
            inbox.records.push(record);
            std::mem::take(&mut inbox.asleep)
        };
        // While records wait, the proxy looks for others by itself: to wake it for each would cost
        // more than all else that a transaction does.
        if is_asleep {
            self.arrived.notify_one();
        }
    }

    /// A checkpoint is due, and what held it back has ended without a record. Only records wake the
    /// proxy otherwise, and the log would grow with parts of transactions that abort.
    pub fn checkpoint_is_due(&self) {
        locked(&self.inbox).checkpoint_due = true;
        self.arrived.notify_one();
    }

    /// Ends the thread of the proxy.
    pub fn close(&self) {
        locked(&self.inbox).closed = true;
        self.arrived.notify_all();
    }

    /// The scans, unless an act on them has failed or panicked.
    fn scans(&self, log: &Log) -> Result<MutexGuard<'_, Scans>, Error> {
        match self.scans.lock() {
            Ok(scans) if !scans.failed => Ok(scans),
            _ => {
                let poisoned =
                    log.poisoned().expect("the log is stopped before the scans are left");
                Err(hyades_wal::Error::from(poisoned).into())
            }
        }
    }

    /// Acts on the scans under their lock. An error or a panic ends them, and stops the log while
    /// they are still held.
    fn with_scans<R>(
        &self,
        log: &Log,
        act: impl FnOnce(&mut Scans) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut scans = self.scans(log)?;
        // Dropped before the lock is.
        let _guard = StopOnPanic(log);
        let result = act(&mut scans);
        if let Err(error) = &result {
            log.stop(&error.to_string());
            scans.failed = true;
        }
        result
    }

    /// Waits until there may be something to apply, or a checkpoint is due; false if the proxy is
    /// closed, or has failed. A proxy for which nothing waits sleeps until then.
    pub fn wait(&self, log: &Log) -> bool {
        let Ok(scans) = self.scans(log) else { return false };
        let is_empty = scans.waiting.iter().all(Waiting::is_empty);
        // Before the scans are left. A record gets there by the inbox only, so one that gets there
        // from now on wakes the proxy.
        let mut inbox = locked(&self.inbox);
        drop(scans);
        // After a wake the scans have to be looked at again: another thread may have taken the
        // record in. So there is no loop here, but in the caller.
        if std::mem::take(&mut inbox.checkpoint_due) {
        } else if !is_empty && !inbox.closed {
            let waited = self.arrived.wait_timeout(inbox, PAUSE);
            inbox = waited.unwrap_or_else(|e| e.into_inner()).0;
        } else if inbox.records.is_empty() && !inbox.closed {
            inbox.asleep = true;
            inbox = self.arrived.wait(inbox).unwrap_or_else(|e| e.into_inner());
            inbox.asleep = false;
        }
        !inbox.closed
    }

    /// Applies what may be applied; returns whether anything was. If the data component fails, the
    /// log is stopped: it would grow without end.
    pub fn run(
        &self,
        log: &Log,
        timestamps: &Timestamps,
        data: &Arc<dyn DataComponent>,
        lag_limit: usize,
    ) -> Result<bool, Error> {
        self.with_scans(log, |scans| {
            let horizon = timestamps.oldest_active();
            self.receive(scans, log, timestamps);
            self.pool.look(scans.bytes, lag_limit);
            let mut ran = false;
            loop {
                let horizon = if scans.bytes > lag_limit { u64::MAX } else { horizon };
                let most = BATCH * self.pool.threads();
                let mut ready = scans.take_ready(log, horizon, most);
                if ready.is_empty() {
                    return Ok(ran);
                }
                ran = true;
                let operations = ready.iter_mut().flat_map(|r| std::mem::take(&mut r.operations));
                // All threads have ended when this returns.
                self.pool.apply(data, operations)?;
                scans.note_applied(&ready);
            }
        })
    }

    /// Takes the records handed over, and finds up to where these are complete.
    fn receive(&self, scans: &mut Scans, log: &Log, timestamps: &Timestamps) {
        // The durable positions, then the announcements, then the inbox: a record below both of the
        // first two is in the third.
        let mut complete = vec![0; scans.handed_over.len()];
        log.frontier().load_into(&mut complete);
        timestamps.lower_to_handed_over(&mut complete);
        let mut held = complete.clone();
        timestamps.lower_to_held(&mut held);
        let mut received = std::mem::take(&mut scans.received);
        std::mem::swap(&mut received, &mut locked(&self.inbox).records);
        for record in received.drain(..) {
            scans.bytes += record.bytes;
            debug_assert!(
                record.place.0 >= scans.handed_over[record.stream],
                "a record at {:?} comes after all up to {} were complete",
                record.place,
                scans.handed_over[record.stream]
            );
            scans.parted[record.stream] += usize::from(record.has_parts());
            scans.waiting[record.stream].insert(record);
        }
        received.shrink_to(BATCH);
        scans.received = received;
        // An announcement may be older than the last look, and its reservation is not.
        for (known, complete) in scans.handed_over.iter_mut().zip(complete) {
            *known = complete.max(*known);
        }
        for (known, held) in scans.held.iter_mut().zip(held) {
            *known = held.max(*known);
        }
    }

    /// X7: the point from which redo has to begin, with a timestamp below which the data component
    /// sees no operation any more. `with` takes a checkpoint there; nothing is applied meanwhile.
    ///
    /// # Errors
    /// That of `with`, or an earlier one. Then the log is stopped.
    pub fn at_resume_point<R>(
        &self,
        log: &Log,
        timestamps: &Timestamps,
        with: impl FnOnce(ResumePoint, u64) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_scans(log, |scans| {
            // First: a transaction that ends before this has handed its record over before
            // `receive`.
            let oldest_active = timestamps.oldest_active();
            self.receive(scans, log, timestamps);
            let point = ResumePoint {
                uuid: log.manifest().uuid(),
                incarnation: log.incarnation(),
                highest_ts: timestamps.next() - 1,
                positions: scans.resume_at(),
            };
            scans.forget_applied(&point.positions);
            let waiting = scans.waiting.iter().flat_map(Waiting::iter);
            // What redo would apply: what waits, and what is applied behind the resume point.
            let applied = scans.applied.iter().filter_map(AppliedBehind::lowest);
            let lowest = waiting.map(|record| record.ts).chain(applied).min().unwrap_or(u64::MAX);
            let lowest = match mutation::is(Mutation::ForgetAboveResumePoint) {
                true => u64::MAX,
                false => lowest,
            };
            with(point, lowest.min(oldest_active))
        })
    }
}

impl Handed {
    fn has_parts(&self) -> bool {
        self.first != self.place.0
    }
}

impl Scans {
    /// Notes the records that the resume point may be below although they are applied: those with a
    /// part before them of a transaction that is not applied. Of other streams, what is applied is
    /// a prefix.
    fn note_applied(&mut self, ready: &[Handed]) {
        for Handed { stream, place, ts, .. } in ready {
            if self.held[*stream] < place.1 || self.parted[*stream] > 0 {
                self.applied[*stream].note(place.1, *ts);
            }
        }
        for record in ready.iter().filter(|record| record.has_parts()) {
            self.parted[record.stream] -= 1;
        }
        for stream in 0..self.applied.len() {
            if self.parted[stream] == 0 {
                self.applied[stream].forget_up_to(self.held[stream]);
            }
        }
    }

    /// Redo will not apply what is at or below these positions.
    fn forget_applied(&mut self, positions: &[Lsn]) {
        for (applied, position) in self.applied.iter_mut().zip(positions) {
            applied.forget_up_to(*position);
        }
    }

    /// By stream, the end of the last frame up to which all records are applied, and all parts are
    /// of those that are.
    fn resume_at(&self) -> Vec<Lsn> {
        let first = |waiting: &Waiting| {
            let begin = |record: &Handed| match mutation::is(Mutation::ResumeBetweenParts) {
                true => record.place.0,
                false => record.first,
            };
            let first = waiting.iter().map(begin).min();
            first.filter(|_| !mutation::is(Mutation::ResumeBehindWaiting))
        };
        // `held` is at or below `handed_over`.
        let ends = match mutation::is(Mutation::ResumeBetweenParts) {
            true => self.handed_over.iter(),
            false => self.held.iter(),
        };
        let ends = ends.zip(&self.waiting);
        ends.map(|(end, w)| first(w).map_or(*end, |start| start.min(*end))).collect()
    }

    /// X2: of each stream the next records that are complete up to there, admitted by the frontier,
    /// and below the horizon; until there are as many operations.
    fn take_ready(&mut self, log: &Log, horizon: u64, most: usize) -> Vec<Handed> {
        let (frontier, mut ready, mut operations) = (log.frontier(), Vec::new(), 0);
        for (waiting, complete) in self.waiting.iter_mut().zip(&self.handed_over) {
            while operations < most
                && let Some(record) = waiting.first()
            {
                let is_durable = record.place.1 <= *complete
                    && admits(|lane| frontier.at(lane), record.needs.iter());
                let is_durable = is_durable || mutation::is(Mutation::ApplyUndurable);
                let may_pass = is_durable && record.ts < horizon;
                if !may_pass {
                    break;
                }
                let Some(record) = waiting.take_first() else { break };
                operations += record.operations.len();
                self.bytes -= record.bytes;
                ready.push(record);
            }
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::MemoryData;
    use crate::recovery::restart;
    use hyades_platform::device::MemoryDevice;
    use hyades_wal::LogOptions;
    use std::sync::mpsc::channel;

    fn handed(start: Lsn) -> Handed {
        let (needs, operations) = (Needs::default(), SmallVec::new());
        let place = (start, start + 8);
        Handed { ts: 1, stream: 0, place, first: start, needs, operations, bytes: 8 }
    }

    /// A stepped log, at which nothing happens by itself, and its proxy.
    fn stepped() -> (tempfile::TempDir, Log, Proxy) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = LogOptions::new(vec![dir.path().to_owned()], 1);
        options.device = MemoryDevice::shared();
        options.stepped = true;
        let (log, ..) = restart(options.clone(), &MemoryData::new(), 1 << 20).unwrap();
        let proxy = Proxy::new(&log, &Options::new(options));
        (dir, log, proxy)
    }

    #[test]
    fn a_record_wakes_a_proxy_that_sleeps_and_one_for_which_others_wait_looks_by_itself() {
        let (_dir, log, proxy) = stepped();
        let (done, is_done) = channel();
        let limit = Duration::from_secs(10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                done.send(proxy.wait(&log)).unwrap();
                proxy.receive(&mut locked(&proxy.scans), &log, &Timestamps::new(1, 1));
                // It does not sleep: the record waits.
                done.send(proxy.wait(&log)).unwrap();
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(is_done.try_recv().is_err(), "there is nothing to do");
            proxy.hand_over(handed(log.frontier().durable(0)));
            assert_eq!(is_done.recv_timeout(limit), Ok(true));
            assert_eq!(is_done.recv_timeout(limit), Ok(true));
            assert!(!locked(&proxy.inbox).asleep, "none is woken that does not sleep");
        });
    }

    #[test]
    fn a_proxy_does_not_sleep_while_another_has_taken_its_record_in() {
        let (_dir, log, proxy) = stepped();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_open = proxy.wait(&log);
                done.send(is_open).unwrap();
            });
            // It sleeps, or it has not begun to: both are right.
            std::thread::sleep(Duration::from_millis(50));
            // As a session does that makes room, or a checkpoint, before the proxy is awake.
            let mut scans = locked(&proxy.scans);
            let mut inbox = locked(&proxy.inbox);
            inbox.records.push(handed(0));
            proxy.arrived.notify_one();
            std::thread::sleep(Duration::from_millis(50));
            let record = inbox.records.pop().unwrap();
            scans.waiting[0].insert(record);
            drop((scans, inbox));
            let woken = is_done.recv_timeout(Duration::from_secs(10));
            proxy.close();
            assert_eq!(woken, Ok(true), "it sleeps, and a record waits");
        });
    }
}
