//! How a loop ends: after a stop it sends the rest; after a failure of the log it goes on reading
//! as well, since each client with a command sent is told what is known of the command.
//!
//! Invariant: a reply that waits for the disk is sent, once the transaction is certain, or replaced
//! by an error, before its connection is closed, unless the time is over or the client does not
//! read.

use super::{EventLoop, PAUSE, ROUNDING, STOP};
use crate::net::connection::Connection;
use crate::state::Stopping;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// After a failure of the log a loop tells its clients for at most this long.
const FAREWELL: Duration = Duration::from_secs(2);

/// And at least: commands sent before a client heard of the failure arrive meanwhile.
const SHORTEST_FAREWELL: Duration = Duration::from_millis(if cfg!(test) { 1_500 } else { 250 });

impl EventLoop {
    /// How long to wait for events; for ever, if nothing is to be done at a time.
    pub(super) fn timeout(&self, sleeps: bool) -> Option<Duration> {
        if !sleeps {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        // A poll counts whole milliseconds: rounded up, lest the poll end just before.
        let until = |then: Instant| then.saturating_duration_since(now) + ROUNDING;
        let retry = (!self.pausing.is_empty()).then_some(PAUSE);
        let Some(ends) = self.ends else {
            let first = self.deadlines.first().map(|(first, _)| *first);
            let first = first.into_iter().chain(self.idlers.looks_at).chain(self.pause_end());
            let first = first.chain(self.freeing.due).chain(self.parting_end()).min();
            return first.map(until).into_iter().chain(retry).min();
        };
        let tells_until = self.tells_until.filter(|until| *until > now);
        [Some(until(ends)), tells_until.map(until), retry].into_iter().flatten().min()
    }

    pub(super) fn look_for_stop(&mut self) {
        if self.ends.is_some() {
            return;
        }
        let now = Instant::now();
        match self.shared.stopping() {
            None => {}
            Some(Stopping::Asked) => self.ends = Some(now + STOP),
            Some(Stopping::Failed(_)) => {
                self.ends = Some(now + FAREWELL);
                let tells = self.shared.store.log_failure().is_some();
                self.tells_until = tells.then_some(now + SHORTEST_FAREWELL);
            }
        }
    }

    /// The log has failed: no parked transaction will ever be acknowledged.
    pub(super) fn fail(&mut self) {
        let cause = self.shared.store.log_failure().unwrap_or_else(|| "unknown".to_string());
        self.shared.stop_for_log(&cause);
        if self.shared.membership.is_on() {
            return self.part_abruptly();
        }
        self.queue = None;
        let now = Instant::now();
        // A loop asked to stop reads no more.
        if self.ends.is_none() {
            self.tells_until = Some(now + SHORTEST_FAREWELL);
        }
        let ends = now + FAREWELL;
        self.ends = Some(self.ends.map_or(ends, |before| before.min(ends)));
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.conversation.fail(&self.shared);
                connection.write(&self.shared);
            }
            // Input that was held back is refused.
            self.list(id);
        }
    }

    /// Tells the waiting clients of this loop of a failure of the log found by another thread. All
    /// that was on disk is acknowledged by now.
    pub(super) fn end_telling(&mut self) {
        if self.tells_until.is_some() && self.queue.is_some() {
            self.fail();
        }
    }

    /// Whether the loop ends: at the time `ends`, or before if nothing is left to be said.
    pub(super) fn has_ended(&self, ends: Instant) -> bool {
        let now = Instant::now();
        let is_said = |connection: &Connection| {
            (connection.output_bytes() == 0 || connection.is_handshaking())
                && !connection.conversation.is_waiting_for_job()
                && !connection.conversation.has_deliverable()
        };
        if now >= ends {
            let unsaid =
                self.connections.values().filter(|connection| !is_said(connection)).count();
            self.shared.cut_off.fetch_add(unsaid as u64, Relaxed);
            return true;
        }
        let is_told = self
            .tells_until
            .is_none_or(|until| now >= until && self.listed.is_empty() && self.pausing.is_empty());
        is_told
            && self.is_queue_empty()
            && self.connections.values().all(|connection| is_said(connection))
    }
}
