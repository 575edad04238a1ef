//! The thread that turns the wheel.

use super::sweeping::Sweep;
use super::wheel::Wheel;
use crate::data::expiries::{Expiries, Expiry};
use crate::state::{Held, Opened, Shared};
use crate::upkeep::removal::{self, Generations, ToldRemovals};
use hyades::{Error, Session};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Keys that one transaction looks up, and removes.
const BATCH: usize = 256;

/// It works for this time, then leaves the core to others for as long: at 2 us for a key that
/// removes 250,000 keys a second.
const TURN: Duration = Duration::from_millis(1);

/// If keys are removed later than this after they have expired, or if memory is short, it does not
/// pause, and works for longer at a time.
const LATE_MS: i64 = 300;
const LATE_TURN: Duration = Duration::from_millis(5);

/// The longest that it waits until it looks again for the end of CLIENT PAUSE.
const LONGEST_DELAY_MS: i64 = 1_000;

/// After this time without anything to remove it frees what it has removed, and again and again
/// until nothing is left; less and less often while a snapshot needs what is left.
const IDLE_MS: i64 = 20;
const LONGEST_PAUSE_MS: i64 = 1_000;

/// Timers that are due, and the place of the first one whose key was not looked up.
#[derive(Default)]
struct Due {
    timers: Expiries,
    next: usize,
    left: usize,
    /// The time of the first of them when they became due.
    since_ms: Option<i64>,
}

impl Due {
    /// Continues behind `looked_up` timers of `bytes` bytes. The timers `again` are looked up after
    /// all others.
    fn go_on(&mut self, bytes: usize, looked_up: usize, again: &Expiries) {
        self.next += bytes;
        self.left = self.left - looked_up + again.len();
        self.timers.append(again);
        if self.left == 0 {
            *self = Due::default();
        } else if self.next > self.timers.byte_len() / 2 {
            // Each byte is moved at most once for one that is dropped.
            self.timers.drop_first(self.next, self.timers.len() - self.left);
            self.next = 0;
        }
    }
}

/// What the thread has.
#[derive(Default)]
pub(super) struct Turner {
    pub(super) wheel: Wheel,
    due: Due,
    sweep: Sweep,
    session: Option<Session>,
    /// The database of `session`. Declared after `session`, and so dropped after `session`.
    held: Held,
    generations: Option<(u64, Generations)>,
    /// When it frees what it has removed, in milliseconds since 1970, and rounds in vain.
    frees: Option<(i64, u32)>,
}

/// Runs until the server stops.
pub fn run(shared: &Shared) {
    let mut turner = Turner::default();
    while shared.stopping().is_none() {
        turner.let_go(shared);
        turner.take_new(shared);
        let until_ms = match shared.store.opened.get() {
            // Another one than the held: look again, before its timers are among those of none.
            _ if !shared.store.opened.is_current(&turner.held) => 0,
            None => i64::MAX,
            Some(opened) => match turner.work(shared, &opened) {
                Ok(until_ms) => until_ms,
                Err(error) if shared.stops_with_log(&error) => {
                    if !shared.membership.is_on() {
                        return;
                    }
                    // Until the member has another database.
                    i64::MAX
                }
                // Out of memory, say: what is not removed now is removed later.
                Err(_) => {
                    turner.session = None;
                    shared.stop_signal.wait_at_most(Duration::from_secs(1));
                    0
                }
            },
        };
        turner.publish(shared);
        let now = shared.clock.now_ms();
        if until_ms > now {
            shared.store.timers.wait(now, until_ms);
        }
    }
}

/// Removes all that has expired, at once, for tests and torture without threads.
///
/// # Errors
/// Those of a transaction.
#[cfg(any(test, feature = "torture"))]
pub fn remove_expired(shared: &Shared, opened: &Opened) -> Result<(), Error> {
    remove_all(shared, opened, &mut Vec::new())
}

/// The same, and tells clients.
///
/// # Errors
/// Those of a transaction.
#[cfg(test)]
pub fn remove_and_tell(shared: &Shared, opened: &Opened) -> Result<(), Error> {
    let mut told = Vec::new();
    remove_all(shared, opened, &mut told)?;
    told.into_iter().try_for_each(|told| removal::tell(shared, told))
}

#[cfg(any(test, feature = "torture"))]
fn remove_all(shared: &Shared, opened: &Opened, told: &mut Vec<ToldRemovals>) -> Result<(), Error> {
    let mut turner = Turner::default();
    turner.take_new(shared);
    let now = shared.clock.now_ms() + crate::state::timers::FINEST_MS;
    while turner.next_due(now) {
        turner.remove_batch(shared, opened, told)?;
    }
    // The next call finds the others.
    shared.store.timers.add(&turner.wheel.take_all());
    Ok(())
}

impl Turner {
    /// Lets a database go that is not the server's any more, with the timers of its keys. Timers
    /// that came while there was no database are of the next one.
    fn let_go(&mut self, shared: &Shared) {
        if !shared.store.opened.is_current(&self.held) {
            if self.session.is_some() || self.held.has_database() {
                *self = Turner::default();
            }
            self.held = shared.store.opened.hold();
        }
    }

    /// Takes the timers that were added.
    pub(super) fn take_new(&mut self, shared: &Shared) {
        shared.store.timers.take().iter().for_each(|timer| self.wheel.add(timer));
    }

    /// Removes keys for a turn, or sweeps, or frees what it has removed. Returns when there is
    /// something to do next, in milliseconds since 1970.
    fn work(&mut self, shared: &Shared, opened: &Opened) -> Result<i64, Error> {
        let now = shared.clock.now_ms();
        if shared.membership.only_reads() {
            // The primary removes keys; another role wakes the thread.
            return Ok(i64::MAX);
        }
        if let Some((_, end)) = shared.limits.pause.running() {
            // Removals, visible to clients, wait as writes do. An end by command is found soon.
            let left = end.saturating_duration_since(Instant::now()).as_millis();
            return Ok(now + (left as i64).clamp(1, LONGEST_DELAY_MS));
        }
        // The primary of a live import decides what has expired.
        let removes = shared.removes_keys();
        if removes && self.next_due(now) {
            self.remove_some(shared, opened, now)?;
            self.frees = Some((shared.clock.now_ms() + IDLE_MS, 0));
            return Ok(0);
        }
        if self.sweep.is_due(&self.wheel, shared) {
            let began = Instant::now();
            self.sweep.go_on(&mut self.wheel, opened)?;
            shared.stop_signal.wait_at_most(began.elapsed());
            return Ok(0);
        }
        let next = match removes {
            true => self.wheel.next_turn_ms().unwrap_or(i64::MAX),
            false => now + LONGEST_DELAY_MS,
        };
        Ok(next.min(self.free(now)))
    }

    /// Whether a timer is due whose key was not looked up.
    pub(super) fn next_due(&mut self, now: i64) -> bool {
        while self.due.left == 0 {
            let Some(timers) = self.wheel.turn(now) else { return false };
            let since_ms = timers.first_at_ms();
            self.due = Due { left: timers.len(), timers, next: 0, since_ms };
        }
        true
    }

    /// Removes keys for a turn, and pauses.
    fn remove_some(&mut self, shared: &Shared, opened: &Opened, now: i64) -> Result<(), Error> {
        let began = Instant::now();
        let late_ms = now - self.due.since_ms.unwrap_or(now);
        let is_late = late_ms >= LATE_MS || shared.is_out_of_memory();
        let turn = if is_late { LATE_TURN } else { TURN };
        let mut told = Vec::new();
        while self.next_due(now) && began.elapsed() < turn && shared.stopping().is_none() {
            self.remove_batch(shared, opened, &mut told)?;
        }
        let worked = began.elapsed();
        self.publish(shared);
        told.into_iter().try_for_each(|told| removal::tell(shared, told))?;
        if !is_late {
            shared.stop_signal.wait_at_most(worked);
        }
        Ok(())
    }

    /// Looks some keys up whose timers are due, and removes those that have expired.
    pub(super) fn remove_batch(
        &mut self,
        shared: &Shared,
        opened: &Opened,
        told: &mut Vec<ToldRemovals>,
    ) -> Result<(), Error> {
        let generations = self.generations(shared, opened)?;
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(opened.database.session()?),
        };
        let batch: Vec<Expiry<'_>> = self.due.timers.from(self.due.next).take(BATCH).collect();
        let keys = batch.iter().map(|expiry| (expiry.generation, expiry.key));
        let removed = removal::remove(shared, opened, session, keys, &generations)?;
        let next = batch.iter().map(Expiry::bytes).sum::<usize>();
        let looked_up = batch.len();
        drop(batch);
        // Kept until here: what fails is looked up again.
        self.due.go_on(next, looked_up, &removed.again);
        removed.later.iter().for_each(|timer| self.wheel.add(timer));
        told.extend(removed.told);
        Ok(())
    }

    /// The generations of the databases, read again after each change.
    fn generations(&mut self, shared: &Shared, opened: &Opened) -> Result<Generations, Error> {
        let number = shared.store.timers.generations();
        if let Some((version, known)) = &self.generations
            && *version == number
        {
            return Ok(known.clone());
        }
        let snapshot = opened.database.open_snapshot();
        let read = snapshot.read(|tx| Ok(Generations::read(tx, opened.tables)?))?;
        self.generations = Some((number, read.clone()));
        Ok(read)
    }

    /// Frees some of what its transactions have removed, if it is time. Returns when it is again.
    fn free(&mut self, now: i64) -> i64 {
        let (Some((at, in_vain)), Some(session)) = (self.frees, &mut self.session) else {
            return i64::MAX;
        };
        if at > now {
            return at;
        }
        let in_vain = if session.free_unused() { 0 } else { in_vain + 1 };
        if !session.has_unused() {
            // Event loops free what is left, if anything is.
            (self.session, self.frees) = (None, None);
            return i64::MAX;
        }
        let next = now + (IDLE_MS << in_vain.min(6)).min(LONGEST_PAUSE_MS);
        self.frees = Some((next, in_vain));
        next
    }

    /// A step of a sweep, if one is due.
    #[cfg(test)]
    pub(super) fn sweep_once(&mut self, shared: &Shared, opened: &Opened) -> bool {
        let is_due = self.sweep.is_due(&self.wheel, shared);
        if is_due {
            self.sweep.go_on(&mut self.wheel, opened).unwrap();
        }
        is_due
    }

    /// The number of timers.
    #[cfg(test)]
    pub(super) fn timers(&self) -> usize {
        self.due.left + self.wheel.len() + self.sweep.held().1
    }

    /// Tells INFO.
    fn publish(&self, shared: &Shared) {
        let numbers = &shared.store.timers.numbers;
        let (due, wheel) = (&self.due, &self.wheel);
        let (held_bytes, held) = self.sweep.held();
        numbers.timers.store((due.left + wheel.len() + held) as u64, Relaxed);
        let bytes = due.timers.bytes() + wheel.bytes() + held_bytes;
        numbers.bytes.store(bytes as u64, Relaxed);
        numbers.due.store(due.left as u64 + wheel.due(shared.clock.now_ms()) as u64, Relaxed);
        let late_ms = due.since_ms.map_or(0, |since| (shared.clock.now_ms() - since).max(0));
        numbers.late_ms.store(late_ms as u64, Relaxed);
        numbers.sweeps.store(self.sweep.ended(), Relaxed);
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        numbers.cpu_ms.store((used.tv_sec * 1_000 + used.tv_nsec / 1_000_000) as u64, Relaxed);
    }
}
