//! Wakers parked until a number is reached.

use hyades_platform::callback;
use std::collections::BTreeMap;
use std::task::Waker;

/// Parked wakers.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    /// By the number to be reached and a key of the waker's own.
    by_number: BTreeMap<(u64, u64), Waker>,
    /// The key of the next waker.
    next: u64,
}

impl Wakers {
    /// Parks a waker. Returns the waker's key, for [withdrawing](Self::withdraw) the waker.
    pub(crate) fn park(&mut self, number: u64, waker: Waker) -> u64 {
        let key = self.next;
        self.next += 1;
        self.by_number.insert((number, key), waker);
        key
    }

    /// Takes out a waker, if still parked. Drop the waker after the lock is released: the waker may
    /// be the last reference to a task, and the task's own tickets then withdraw further wakers.
    pub(crate) fn withdraw(&mut self, number: u64, key: u64) -> Option<Waker> {
        debug_assert!(key < self.next, "waker {key} was never parked");
        self.by_number.remove(&(number, key))
    }

    /// Takes out all wakers parked for `number` or less, to be woken after the lock is released: a
    /// waker may park again at once.
    pub(crate) fn take_up_to(&mut self, number: u64) -> TakenWakers {
        let rest = match number.checked_add(1) {
            Some(next) => self.by_number.split_off(&(next, 0)),
            None => BTreeMap::new(),
        };
        TakenWakers(std::mem::replace(&mut self.by_number, rest))
    }

    /// The lowest number with a parked waker, `u64::MAX` if none.
    pub(crate) fn lowest(&self) -> u64 {
        self.by_number.first_key_value().map_or(u64::MAX, |((number, _), _)| *number)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }
}

/// Wakers taken out to be woken.
#[must_use = "a waker that is dropped wakes no task"]
pub(crate) struct TakenWakers(BTreeMap<(u64, u64), Waker>);

impl TakenWakers {
    /// Wakes all. Returns how many have panicked.
    pub(crate) fn wake(self) -> u64 {
        self.0.into_values().map(|waker| u64::from(!callback::wake(waker))).sum()
    }
}
