//! The proxy: hands the operations of committed, durable transactions to the data component.
//!
//! Each stream has a scan in the order of positions. A scan passes a record only if all earlier
//! records have been handed over and are applied, so the applied records of a stream are a prefix
//! of the stream. Redo would have to begin at the end of the prefix. Invariants:
//! - No record is applied while a crash may still take it back: each record is admitted by the
//!   frontier.
//! - No record younger than an active transaction is applied, for the transaction may need the
//!   version before (D4), unless too much waits: then a transaction in need is aborted.
//! - The resume point is not behind the first part of an unapplied transaction: redo finds all
//!   parts, or none.
//! - Every record handed over is in the inbox, or waits, or is applied. A failure in between ends
//!   the scans for good, and stops the log before another thread sees the scans: no resume point is
//!   taken behind a record lost on its way.
//! - Several threads may apply a batch (see [`pool`]). A record counts as applied when all threads
//!   have applied their pieces, and not before: so a resume point passes only records applied by
//!   all threads.

mod applied;
mod asking;
mod batch;
pub(crate) mod cut;
mod growth;
mod inbox;
pub(crate) mod lag;
pub(crate) mod pool;
mod scans;
mod waiting;

use crate::config::Options;
use crate::data_component::{DataComponent, MOST_SESSIONS, ResumePoint};
use crate::error::Error;
use crate::held_bytes::HeldBytes;
use crate::times::{DueMark, TimeMarks};
use crate::transaction_component::timestamp::Timestamps;
use crate::transaction_component::version::Version;
use applied::AppliedBehind;
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::sync::locked;
use hyades_wal::{Frontier, Log, Lsn, Needs, admits};
use inbox::Inboxes;
use lag::{Lag, LagClock};
use pool::ProxyPool;
use scans::Scans;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use waiting::Waiting;

/// The most operations applied by a thread at once.
const BATCH: usize = 4096;
/// The pause between two looks of the proxy for applicable records.
const PAUSE: Duration = Duration::from_millis(1);

/// The timestamp without a cut.
const NO_CUT: u64 = u64::MAX;

/// The record of a committed transaction, as handed over by its session.
pub(crate) struct Handed {
    pub ts: u64,
    pub stream: usize,
    /// The start and the end of the record's frame.
    pub place: (Lsn, Lsn),
    /// The start of the first part; or of the frame, without parts.
    pub first: Lsn,
    /// The dependencies of the transaction, without its own record.
    pub needs: Needs,
    /// By key. A few lie in place.
    pub operations: SmallVec<[Version; 4]>,
    /// The bytes of the record.
    pub bytes: usize,
    /// The time of the handing over, or a little before. Set by the proxy.
    pub handed_ns: u64,
}

/// The proxy of a database.
pub(crate) struct Proxy {
    inbox: Inboxes,
    /// The thread of the proxy has applied a batch, has ended a run, or is closed.
    progressed: Condvar,
    /// Held while operations are applied.
    scans: Mutex<Scans>,
    /// Held by the thread at a cut.
    cutting: Mutex<()>,
    /// Nothing at or above is applied: see [`cut`]. Lowered, and read before an act, under the lock
    /// of the scans; raised by the thread at the cut. Relaxed: a late look at the raise is
    /// harmless.
    cut: AtomicU64,
    /// The state of the scans known without the lock.
    lag: LagClock,
    /// The waiting bytes not counted in the version table.
    held: HeldBytes,
    /// The applying threads.
    pool: Arc<ProxyPool>,
    times: TimeMarks,
}

/// Stops the log at a panic of the thread: the work left undone by the panic is unknown.
pub(crate) struct StopOnPanic<'l>(pub &'l Log);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop("the data component or the proxy panicked");
        }
    }
}

impl Proxy {
    pub fn new(log: &Log, options: &Options, held_bytes: HeldBytes, first_ts: u64) -> Self {
        let mut starts = vec![0; log.streams()];
        log.frontier().load_into(&mut starts);
        let waiting = starts.iter().map(|_| Waiting::default()).collect();
        let (held, parted) = (starts.clone(), vec![0; starts.len()]);
        let applied = starts.iter().map(|_| AppliedBehind::default()).collect();
        let (received, bytes, failed, handed_over) = (Vec::new(), 0, false, starts);
        let highest_applied = 0;
        let scans = Scans {
            waiting,
            received,
            handed_over,
            held,
            applied,
            parted,
            bytes,
            highest_applied,
            due_mark: DueMark::new(first_ts),
            failed,
        };
        let inbox = Inboxes::new(log.streams(), held_bytes.clone(), options.memory_bytes);
        let pool = Arc::new(ProxyPool::new(options, held_bytes.clone()));
        Self {
            inbox,
            progressed: Condvar::new(),
            scans: Mutex::new(scans),
            cutting: Mutex::default(),
            cut: AtomicU64::new(NO_CUT),
            lag: LagClock::new(),
            held: held_bytes,
            pool,
            times: TimeMarks::new(log, options.log.stepped, options.sessions < MOST_SESSIONS),
        }
    }

    /// The applying threads.
    pub fn pool(&self) -> &ProxyPool {
        &self.pool
    }

    /// Takes over the record of a committed transaction. The session has announced its reservation
    /// in the stream, and withdraws the announcement afterwards.
    pub fn hand_over(&self, record: Handed) {
        self.inbox.push(record);
    }

    /// Ends the thread of the proxy.
    pub fn close(&self) {
        locked(&self.inbox.requests).closed = true;
        self.inbox.arrived.notify_all();
        self.progressed.notify_all();
    }

    /// The scans, unless an act on the scans has failed or panicked.
    ///
    /// # Errors
    /// An earlier failure; [`Error::Stalled`]: the holding thread has been at a batch of the data
    /// component for longer than `patience`.
    fn scans(&self, log: &Log, patience: Duration) -> Result<MutexGuard<'_, Scans>, Error> {
        loop {
            match self.scans.try_lock() {
                Ok(scans) if !scans.failed => return Ok(scans),
                Err(TryLockError::WouldBlock) => self.check_call(patience)?,
                Ok(_) | Err(TryLockError::Poisoned(_)) => {
                    let poisoned =
                        log.poisoned().expect("the log is stopped before the scans are left");
                    return Err(hyades_wal::Error::from(poisoned).into());
                }
            }
            std::thread::sleep(PAUSE / 10);
        }
    }

    /// Acts on the scans under their lock. An error or a panic ends the scans, and stops the log
    /// while the scans are still held.
    fn with_scans<R>(
        &self,
        log: &Log,
        patience: Duration,
        act: impl FnOnce(&mut Scans) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut scans = self.scans(log, patience)?;
        // Dropped before the lock is.
        let _guard = StopOnPanic(log);
        let result = act(&mut scans);
        if let Err(error) = &result {
            log.stop(&error.to_string());
            scans.failed = true;
        }
        result
    }

    /// Waits until there may be something to apply, or the proxy is asked to apply; false if the
    /// proxy is closed, or has failed. A proxy without waiting records sleeps until then.
    pub fn wait(&self, log: &Log) -> bool {
        let Ok(scans) = self.scans(log, Duration::MAX) else { return false };
        let waits = !scans.waiting.iter().all(Waiting::is_empty);
        self.inbox.wait(scans, waits, PAUSE)
    }

    /// Applies all applicable records; returns whether anything was applied. If the data component
    /// fails, the log is stopped: the log would grow without end.
    pub fn run(
        &self,
        log: &Log,
        timestamps: &Timestamps,
        data: &Arc<dyn DataComponent>,
        (lag_limit, patience): (usize, Duration),
    ) -> Result<bool, Error> {
        self.with_scans(log, patience, |scans| {
            let horizon = timestamps.oldest_active();
            self.receive(scans, log, timestamps);
            if let Some(mark) = scans.due_mark.take() {
                self.times.write(mark);
            }
            self.pool.look(scans.bytes, lag_limit);
            let mut ran = false;
            loop {
                let horizon = if scans.bytes > lag_limit { u64::MAX } else { horizon };
                // L2.
                let cut = self.cut.load(Ordering::Relaxed);
                let horizon = if broken!(ApplyAboveCut) { horizon } else { horizon.min(cut) };
                let most = BATCH * self.pool.threads();
                let ready = scans.take_ready(log, horizon, most);
                if ready.is_empty() {
                    return Ok(ran);
                }
                ran = true;
                self.apply(scans, data, ready)?;
            }
        })
    }

    /// Applies records taken from the scans.
    fn apply(
        &self,
        scans: &mut Scans,
        data: &Arc<dyn DataComponent>,
        mut ready: Vec<Handed>,
    ) -> Result<(), Error> {
        let ready_held = ready.iter().map(Handed::held_bytes).sum();
        let operations = ready.iter_mut().flat_map(|r| std::mem::take(&mut r.operations));
        let at_batch = self.lag.begin_batch();
        // All threads have ended when `apply` returns.
        self.pool.apply(data, operations)?;
        drop(at_batch);
        scans.note_applied(&ready);
        self.held.subtract(ready_held);
        self.lag.note(scans.bytes, scans.oldest_ns());
        self.progressed.notify_all();
        Ok(())
    }

    /// Takes the records handed over, and finds the end of the complete prefix.
    fn receive(&self, scans: &mut Scans, log: &Log, timestamps: &Timestamps) {
        // The durable positions, then the announcements, then the inbox: a record below both of the
        // first two is in the third.
        let mut complete = vec![0; scans.handed_over.len()];
        log.frontier().load_into(&mut complete);
        timestamps.lower_to_handed_over(&mut complete);
        let mut held = complete.clone();
        timestamps.lower_to_held(&mut held);
        let mut received = std::mem::take(&mut scans.received);
        // A record missed by the looks into the inboxes arrives later.
        let (mut first_ns, mut highest) = (clock::monotonic_ns(), 0);
        for stream in 0..complete.len() {
            let since_ns = self.inbox.take(stream, &mut received);
            for mut record in received.drain(..) {
                (first_ns, highest) = (first_ns.min(since_ns), highest.max(record.ts));
                record.handed_ns = since_ns;
                scans.bytes += record.bytes;
                debug_assert!(
                    record.place.0 >= scans.handed_over[stream],
                    "a record at {:?} comes after all up to {} were complete",
                    record.place,
                    scans.handed_over[stream]
                );
                scans.parted[stream] += usize::from(record.has_parts());
                scans.waiting[stream].insert(record);
            }
            received.shrink_to(BATCH);
        }
        if highest > 0 {
            scans.due_mark.note(first_ns, highest);
        }
        scans.received = received;
        // An announcement may be older than the last look, and its reservation is not.
        for (known, complete) in scans.handed_over.iter_mut().zip(complete) {
            *known = complete.max(*known);
        }
        for (known, held) in scans.held.iter_mut().zip(held) {
            *known = held.max(*known);
        }
        self.lag.note(scans.bytes, scans.oldest_ns());
    }

    /// The lag. Takes no lock that a data component may hold up.
    pub fn lag(&self) -> Lag {
        self.lag.look(self.inbox.waiting())
    }

    /// X7: returns the point for the beginning of redo, with a timestamp below which the data
    /// component sees no operation any more once a checkpoint is taken there. Operations applied
    /// meanwhile are behind the point, and were counted, or are of a then active transaction.
    ///
    /// # Errors
    /// An earlier failure; the log is stopped. [`Error::Stalled`].
    pub fn resume_point(
        &self,
        log: &Log,
        timestamps: &Timestamps,
        patience: Duration,
    ) -> Result<(ResumePoint, u64), Error> {
        self.with_scans(log, patience, |scans| {
            // First: a transaction ended before this look has handed its record over before
            // `receive`.
            let oldest_active = timestamps.oldest_active();
            self.receive(scans, log, timestamps);
            let point = scans.resume_point(log, timestamps);
            let waiting = scans.waiting.iter().flat_map(Waiting::iter);
            scans.applied.iter_mut().zip(&point.positions).for_each(|(a, at)| a.forget_up_to(*at));
            // The records redo would apply: waiting records, and records applied behind the resume
            // point.
            let applied = scans.applied.iter().filter_map(AppliedBehind::lowest);
            let lowest = waiting.map(|record| record.ts).chain(applied).min().unwrap_or(u64::MAX);
            let lowest = match broken!(ForgetAboveResumePoint) {
                true => u64::MAX,
                false => lowest,
            };
            Ok((point, lowest.min(oldest_active)))
        })
    }
}

impl Handed {
    fn has_parts(&self) -> bool {
        self.first != self.place.0
    }

    /// Whether no crash takes the record back, and all earlier records of its stream have been
    /// handed over: `complete` is the end of the handed-over prefix.
    fn is_durable(&self, frontier: &Frontier, complete: Lsn) -> bool {
        let is_durable =
            self.place.1 <= complete && admits(|lane| frontier.at(lane), self.needs.iter());
        is_durable || broken!(ApplyUndurable)
    }
}

#[cfg(test)]
#[path = "proxy/proxy_tests.rs"]
mod tests;
