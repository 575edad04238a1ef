//! The threads of a replay: the streams held by threads, and the waiting of idle threads.

use super::state::{Activity, Front, SLEEP, Thread};
use crate::shared::{Cores, Time};
use std::cmp::Reverse;

/// The time of a round without work, for which a notified thread is awake.
const ROUND: Time = 1_000;

impl<F: Fn(u64) -> f64> Front<'_, F> {
    pub(super) fn schedule(&mut self, thread: usize, at: Time) {
        self.threads[thread].next = at;
        self.events.push(Reverse((at, thread)));
    }

    /// A thread has found no work: it polls for a time, then sleeps and looks again now and then.
    pub(super) fn wait(&mut self, thread: usize, now: Time) {
        let polls = self.timing.polls;
        let own = &mut self.threads[thread];
        (own.is_idle, own.tried, own.looked) = (true, 0, now);
        let since = *own.waits_since.get_or_insert(now);
        let next = now.max(since + polls) + SLEEP;
        let next = own.read_at.map_or(next, |read| read.min(next));
        self.schedule(thread, next.max(now + 1));
    }

    fn polls(&self, thread: &Thread, now: Time) -> bool {
        thread.waits_since.is_some_and(|since| now < since + self.timing.polls)
    }

    /// The threads that poll the lines of all watermarks.
    pub(super) fn polling(&self, now: Time) -> Cores {
        let mut cores = Cores::default();
        for (number, thread) in self.threads.iter().enumerate() {
            cores[number / 64] |= u64::from(self.polls(thread, now)) << (number % 64);
        }
        cores
    }

    /// Notifies the threads that sleep; returns when the notifying thread goes on.
    pub(super) fn notify(&mut self, by: usize, now: Time) -> Time {
        let (wake, polls) = (self.timing.wake, self.timing.polls);
        let mut at = now;
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let sleeps = thread.waits_since.is_some_and(|since| now >= since + polls);
            if number != by && sleeps && thread.notified + ROUND < now {
                at += self.timing.notify;
                thread.notified = now + wake;
            }
        }
        self.spend(by, Activity::Notify, now, at)
    }

    /// A thread that polls finds the change, or else one that was notified. The thread then calls
    /// the next one if it has found work.
    pub(super) fn call_one(&mut self, now: Time) {
        let polls =
            |thread: &Thread| self.polls(thread, now) && thread.next > now.max(thread.looked);
        let awake = |thread: &Thread| {
            let sleeps = thread.waits_since.is_some() && !self.polls(thread, now);
            let at = thread.notified.max(thread.looked).max(now);
            sleeps && thread.notified + ROUND >= now && thread.notified > 0 && thread.next > at
        };
        let found = self.threads.iter().position(polls);
        if let Some(thread) = found.or_else(|| self.threads.iter().position(awake)) {
            let own = &self.threads[thread];
            let at = if found.is_some() { now } else { own.notified.max(now) };
            self.schedule(thread, at.max(own.looked));
        }
    }
}
