//! The shared state of all threads of a server.

pub mod cluster;
pub mod command_stats;
mod counters;
mod handshakes;
pub mod latency_events;
mod limits;
pub mod live_import;
#[cfg(feature = "replication")]
pub mod membership;
#[cfg(not(feature = "replication"))]
#[path = "membership_off.rs"]
mod membership;
pub mod membership_asked;
#[cfg(feature = "replication")]
pub mod membership_figures;
pub mod memory;
pub mod migration;
pub mod oom_score;
pub mod open_files;
pub mod pause;
mod rates;
pub mod reaping;
pub mod refused;
pub mod saves;
pub mod scripts;
mod slot;
pub mod slow_log;
pub mod standstill;
mod stats;
pub mod stopping;
mod store;
pub mod timers;
mod used_memory;
mod wiring;

pub use membership::Membership;
pub use slot::Held;
pub use stats::Stats;
pub use stopping::Stopping;
pub use store::{Opened, Opening, Store};

use crate::access::Access;
use crate::base::clock::{Clock, wall_us};
use crate::clients::Clients;
use crate::clients::tracking::Changed;
use crate::config::Settings;
use crate::data::keyspace::Effects;
use crate::data::scripts::ScriptCounts;
use hyades::Error;
use limits::CommandLimits;
use live_import::LiveImport;
use reaping::ReapQueue;
use scripts::Scripts;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use stopping::StopSignal;
use wiring::Wiring;

/// State of a server.
pub struct Shared {
    /// Settings.
    pub settings: Settings,
    /// Wall clock.
    pub clock: Clock,
    /// Users, and their rules.
    pub access: Access,
    /// Connected clients.
    pub clients: Clients,
    /// Counters and measurements.
    pub stats: Stats,
    /// The database.
    pub store: Store,
    /// The work of the reaper.
    pub reaping: ReapQueue,
    /// Scripts sent by EVAL, and running scripts.
    pub scripts: Scripts,
    /// Limits of commands.
    pub limits: CommandLimits,
    /// The import from a running server.
    pub live_import: LiveImport,
    /// The membership in a replicated database.
    pub membership: Membership,
    /// Connections between clients, threads and other servers.
    pub wiring: Wiring,
    /// Whether the server stops.
    pub stop_signal: StopSignal,
    /// When the server was started.
    pub started: Instant,
    /// The number of this run, 40 hexadecimal digits.
    pub run_id: String,
    /// Clients disconnected when the time of a stop ended: the replies were unread, or not yet
    /// sent.
    pub cut_off: AtomicU64,
    /// Starved transactions that are being run: other transactions may find the gate closed.
    pub patient: AtomicU64,
}

impl Shared {
    /// The state of a server that starts now.
    pub fn new(settings: Settings) -> Arc<Shared> {
        Arc::new(Shared {
            access: Access::new(settings.users().clone()),
            wiring: Wiring::new(&settings),
            settings,
            clock: Clock::default(),
            clients: Clients::default(),
            stats: Stats::default(),
            store: Store::default(),
            reaping: ReapQueue::default(),
            scripts: Scripts::default(),
            limits: CommandLimits::default(),
            live_import: LiveImport::default(),
            membership: Membership::default(),
            stop_signal: StopSignal::default(),
            started: Instant::now(),
            run_id: (0..5).map(|_| format!("{:08x}", fastrand::u32(..))).collect(),
            cut_off: AtomicU64::new(0),
            patient: AtomicU64::new(0),
        })
    }

    /// Stops the server; the first cause counts.
    pub fn stop(&self, cause: Stopping) {
        self.stop_signal.stop(cause);
        self.reaping.wake();
        self.store.timers.wake();
        self.store.saves.stop();
        self.live_import.wake();
        self.wiring.wake_all();
    }

    /// Stops the server because its log has failed; a member of a replicated database goes on in
    /// another role.
    pub fn stop_for_log(&self, cause: &str) {
        match self.membership.note_log_stopped(cause) {
            true => self.wiring.wake_all(),
            false => self.stop(Stopping::Failed(format!("the log failed: {cause}"))),
        }
    }

    /// Whether an error says that the log has stopped. The server then stops, or its role ends.
    pub fn stops_with_log(&self, error: &Error) -> bool {
        let cause = match error {
            Error::Poisoned(cause) => Some(cause.clone()),
            _ if self.membership.is_on() => self.store.log_failure(),
            _ => None,
        };
        cause.iter().for_each(|cause| self.stop_for_log(cause));
        cause.is_some()
    }

    /// Whether an error ends the role of this member: the connection is closed without a reply.
    pub fn parts_for(&self, error: &Error) -> bool {
        self.membership.is_on() && self.stops_with_log(error)
    }

    /// Whether something removes keys here: a standby, and a database in a live import, have what
    /// another server has removed.
    pub fn removes_keys(&self) -> bool {
        !self.live_import.is_on() && !self.membership.only_reads()
    }

    /// The open database.
    ///
    /// # Errors
    /// The reply for a client: there is no database now. A command may have been admitted before
    /// the database of a member went.
    pub fn opened(&self) -> Result<impl Deref<Target = Opened> + use<'_>, String> {
        self.store.opened.get().ok_or_else(|| self.loading())
    }

    /// The reply for a command on data while there is no database.
    pub fn loading(&self) -> String {
        if let Some(why) = self.membership.stopped() {
            return format!("MASTERDOWN this member has stopped: {why}");
        }
        let waits_for = self.membership.waits_for();
        format!("LOADING {}", waits_for.unwrap_or_else(|| self.store.loading()))
    }

    /// The reason of a stop of the server, if any.
    pub fn stopping(&self) -> Option<Stopping> {
        self.stop_signal.cause()
    }

    /// For an event loop: waits until the standstill is over, if any, or the server stops.
    #[inline]
    pub fn stand_still(&self) {
        while let Some(left) = self.limits.standstill.left()
            && self.stopping().is_none()
        {
            self.stop_signal.wait_at_most(left);
        }
    }

    /// The time of the newest checkpoint, in seconds since 1970; before the first checkpoint, the
    /// start of the server.
    pub fn last_save_seconds(&self) -> i64 {
        let started = wall_us() as i64 / 1_000_000 - self.started.elapsed().as_secs() as i64;
        self.store.last_save_seconds(&self.settings.dir(), started)
    }

    /// The writes of a committed transaction, for clients that track. `keys` are the noted keys, if
    /// the transaction `notes` keys: if no client tracked at the start, see
    /// [`crate::clients::tracking`].
    pub fn changed(&self, notes: bool, effects: &Effects, mut keys: Vec<Vec<u8>>) -> Changed {
        if effects.changes == 0 && !effects.flushed && !effects.swapped {
            return Changed::Nothing;
        }
        if !notes && !self.wiring.tracking.is_on() {
            return Changed::Nothing;
        }
        if !notes || effects.flushed || effects.swapped {
            return Changed::All;
        }
        if keys.len() > 1 {
            let mut known = HashSet::new();
            keys.retain(|key| known.insert(key.clone()));
        }
        Changed::Keys(keys)
    }

    /// Applies the effects of a committed transaction beside its rows.
    pub fn apply(&self, effects: &Effects) {
        effects.counts.iter().for_each(|change| self.store.counts.apply(*change));
        let add = |counter: &AtomicU64, n: u64| {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        };
        add(&self.stats.counters.hits, effects.hits);
        add(&self.stats.counters.misses, effects.misses);
        add(&self.stats.counters.expired, effects.expired);
        add(&self.stats.counters.expired_fields, effects.expired_fields);
        // Redis saves at FLUSHALL if saves are configured. Here nothing is left to save.
        let saves = || self.settings.has_times_of_saving();
        let saved = effects.flushed_all_after.filter(|_| saves());
        if saved.is_some() {
            self.stats.counters.changes.store(0, Relaxed);
        }
        add(&self.stats.counters.changes, effects.changes - saved.unwrap_or(0));
        if !effects.fills.is_empty() {
            self.wiring.waiting.call(effects.fills.keys.iter());
            if effects.fills.unnamed {
                self.wiring.waiting.call_all();
            }
            effects
                .fills
                .databases
                .iter()
                .for_each(|database| self.wiring.waiting.call_database(*database));
        }
        if effects.discarded {
            self.reaping.remove_garbage();
        }
        if effects.scripts_flushed {
            self.scripts.flush();
        }
        if effects.scripts != ScriptCounts::default() {
            self.scripts.count_stored(effects.scripts);
        }
        if effects.flushed || effects.swapped {
            self.store.timers.note_generations();
        }
        if effects.flushed {
            self.reaping.no_later_than(0);
        }
        if !effects.expiries.is_empty() {
            self.store.timers.add(&effects.expiries);
        }
    }
}

/// Stops the server if its thread panics: without the thread, the server would serve some clients
/// and leave others waiting for ever.
pub struct StopOnPanic(pub Arc<Shared>);

impl StopOnPanic {
    /// Runs the work of a thread.
    pub fn run(self, work: impl FnOnce()) {
        work();
    }
}

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(Stopping::Failed("a thread of the server has panicked".to_string()));
        }
    }
}
