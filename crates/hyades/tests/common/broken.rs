//! Rules broken on purpose.
#![cfg(feature = "mutations")]

use hyades_platform::mutation::{self, Mutation};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While the guard is held, no other test breaks a rule.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rule, and a function that returns whether the rule holds.
pub type BrokenRule<'r> = (Mutation, &'r dyn Fn() -> bool);

/// Where threads have to meet at a moment, the system may let threads miss the moment: the check is
/// run until it notices the broken rule, at most this number of times.
const TRIES: usize = 10;

/// Breaks one rule after the other; panics if the checks of some rules do not notice.
pub fn each_is_noticed(rules: &[BrokenRule<'_>]) {
    let mut unnoticed = Vec::new();
    for (rule, holds) in rules {
        mutation::set(Some(*rule));
        let held = (0..TRIES).all(|_| holds());
        mutation::set(None);
        unnoticed.extend(held.then_some(rule.name()));
    }
    assert!(unnoticed.is_empty(), "these go unnoticed: {unnoticed:?}");
}
