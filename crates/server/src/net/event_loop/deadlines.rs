//! When a loop has to look at silent connections.

use super::EventLoop;
use crate::net::connection::Connection;
use crate::state::Shared;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The state of a loop about silent clients.
#[derive(Default)]
pub(super) struct Idlers {
    /// The setting that `looks_at` follows.
    seconds: u64,
    /// When the first client may have been silent for `seconds`.
    pub(super) looks_at: Option<Instant>,
}

/// Keeps the deadline of a served connection.
pub(super) fn note_deadline(
    deadlines: &mut BTreeSet<(Instant, u64)>,
    shared: &Shared,
    id: u64,
    connection: &mut Connection,
) {
    let deadline = connection.next_deadline(shared);
    if deadline != connection.deadline {
        let before = std::mem::replace(&mut connection.deadline, deadline);
        before.map(|before| deadlines.remove(&(before, id)));
        deadline.map(|deadline| deadlines.insert((deadline, id)));
    }
}

impl EventLoop {
    /// The end of the pause for which connections wait, unless a client ends the pause, which wakes
    /// the loop.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        if self.set_aside.is_empty() {
            return None;
        }
        Some(self.shared.limits.pause.running().map_or_else(Instant::now, |(_, end)| end))
    }

    /// Disconnects clients that have been silent for the time of `timeout`, except clients with a
    /// wait of their own.
    pub(super) fn end_idle(&mut self) {
        let seconds = self.shared.settings.timeout_seconds();
        let is_due = self.idlers.looks_at.is_some_and(|at| at <= Instant::now());
        if seconds == self.idlers.seconds && !is_due {
            return;
        }
        self.idlers = Idlers { seconds, looks_at: None };
        if seconds == 0 {
            return;
        }
        let (now, now_ms) = (Instant::now(), self.shared.clock.now_ms());
        let (time, unheard_until_ms) =
            (Duration::from_secs(seconds), self.shared.limits.standstill.last_end_ms());
        let mut looks_at = now + time;
        let mut ended = Vec::new();
        for (id, connection) in &self.connections {
            let entry = &connection.entry;
            let active_ms = entry.active_ms.load(Relaxed).max(unheard_until_ms);
            let idle_ms = (now_ms - active_ms).max(0) as u64;
            let left = time.saturating_sub(Duration::from_millis(idle_ms));
            let waits = entry.listens()
                || entry.is_monitor.load(Relaxed)
                || connection.conversation.is_blocked()
                || connection.conversation.is_set_aside()
                || connection.conversation.is_held()
                || connection.conversation.is_waiting_for_job();
            match left.is_zero() {
                true if !waits => ended.push(*id),
                true => {}
                false => looks_at = looks_at.min(now + left),
            }
        }
        self.idlers.looks_at = Some(looks_at);
        for id in ended {
            if let Some(connection) = self.connections.get(&id) {
                connection.entry.is_killed.store(true, Relaxed);
            }
            self.list(id);
        }
    }
}
