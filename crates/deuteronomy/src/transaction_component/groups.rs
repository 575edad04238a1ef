//! Groups of sessions, so that a look at all announcements passes over sessions at rest.
//!
//! Most of many sessions are idle. A group at rest has no announcement, and is not looked at. A
//! session announces itself, and then wakes its group unless the group is awake. A thread that has
//! found a group idle marks the group as checked, looks again, and puts the group to rest unless
//! the mark has gone: of a session and such a thread, one finds the other (SeqCst). A mark is
//! unique, so no thread takes the mark of another thread for its own.
//!
//! The first group is always looked at: with few sessions there is nothing to save, and their
//! transactions begin without a look at a group.

use hyades_platform::sync::{AtomicU64, Ordering, checker_fence};

/// The sessions of a group.
pub(super) const GROUP: usize = if cfg!(loom) { 1 } else { 64 };

/// The states of a group; above, a mark.
const AWAKE: u64 = 0;
const AT_REST: u64 = 1;
const FIRST_MARK: u64 = 2;

/// The groups of sessions.
#[derive(Debug)]
pub(super) struct Groups {
    states: Box<[AtomicU64]>,
    /// The next mark. Relaxed: only uniqueness counts.
    next_mark: AtomicU64,
}

impl Groups {
    /// All groups of `sessions` sessions, at rest.
    pub fn new(sessions: usize) -> Self {
        let at_rest = |_| AtomicU64::new(AT_REST);
        let states = (0..sessions.div_ceil(GROUP)).map(at_rest).collect();
        Self { states, next_mark: AtomicU64::new(FIRST_MARK) }
    }

    /// Whether a session belongs to the group that is always looked at.
    #[inline]
    pub fn is_always_seen(at: usize) -> bool {
        at < GROUP
    }

    /// The session at a place has announced itself (SeqCst).
    #[inline]
    pub fn wake(&self, at: usize) {
        if !Self::is_always_seen(at) {
            checker_fence();
            let state = &self.states[at / GROUP];
            if state.load(Ordering::SeqCst) != AWAKE {
                // Not a store: for the checker a store and an exchange may be seen in either order.
                state.swap(AWAKE, Ordering::SeqCst);
            }
        }
    }

    /// Whether no session of the group is announced.
    #[inline]
    pub fn is_at_rest(&self, group: usize) -> bool {
        group > 0 && self.states[group].load(Ordering::SeqCst) == AT_REST
    }

    /// Puts a group to rest, if `is_idle` says twice that no session of the group is announced.
    pub fn rest(&self, group: usize, is_idle: impl Fn() -> bool) {
        let state = &self.states[group];
        if group == 0 || state.load(Ordering::SeqCst) != AWAKE || !is_idle() {
            return;
        }
        let mark = self.next_mark.fetch_add(1, Ordering::Relaxed);
        let (set, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        if state.compare_exchange(AWAKE, mark, set, failed).is_err() {
            return;
        }
        checker_fence();
        let next = if is_idle() { AT_REST } else { AWAKE };
        // A failure: a session has woken the group meanwhile.
        let _ = state.compare_exchange(mark, next, set, failed);
    }
}
