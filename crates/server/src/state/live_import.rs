//! A live import: this server loads the data of another server, its *primary*, and follows the
//! primary's stream of commands until the cutover.
//!
//! Clients choose a primary, or none, by REPLICAOF. A dedicated thread carries out the request, and
//! reports its progress here. While there is a primary, clients write nothing.

use crate::config::PrimaryAddress;
use crate::data::primary::{ImportStage, PrimaryPosition};
use crate::state::stopping::StopSignal;
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The error of a write command.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// The number of the last left-out parts to keep.
const MOST_NAMED: usize = 16;

/// The time between two checks of a wait for a stop of the server.
const SLICE: Duration = Duration::from_millis(50);

const NONE: u8 = 0;
const LOADING: u8 = 1;
const FOLLOWING: u8 = 2;

/// The connection to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is no connection: an attempt follows after a pause.
    #[default]
    Connect,
    /// The connection is being made.
    Connecting,
    /// Both sides exchange their capabilities.
    Handshake,
    /// Values are loaded.
    Sync,
    /// Commands are followed.
    Connected,
}

impl LinkState {
    /// The name in the reply to ROLE.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Connect => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Handshake => "handshake",
            LinkState::Sync => "sync",
            LinkState::Connected => "connected",
        }
    }
}

/// The request of clients.
#[derive(Default)]
struct ImportWish {
    primary: Option<PrimaryAddress>,
    /// The thread works on a request.
    is_busy: bool,
}

/// Numbers for INFO.
#[derive(Debug, Default)]
pub struct ImportNumbers {
    /// The offset up to which the stream was read.
    pub read: AtomicU64,
    /// The offset up to which the whole stream is on disk here.
    pub durable: AtomicU64,
    /// Bytes of the values to load; 0 if unknown.
    pub sync_total: AtomicU64,
    /// Bytes of the values already read.
    pub sync_read: AtomicU64,
    /// The time of the last receipt, in milliseconds since 1970; 0 for never.
    pub last_io_ms: AtomicI64,
    /// How often all values were loaded.
    pub full_syncs: AtomicU64,
    /// How often the stream was continued.
    pub partial_syncs: AtomicU64,
    /// Commands run.
    pub commands: AtomicU64,
    /// Commands and values left out.
    pub left_out: AtomicU64,
}

/// Progress in words.
#[derive(Clone, Debug, Default)]
pub struct ImportNotes {
    /// The connection.
    pub link: LinkState,
    /// When the connection was lost.
    pub down_since: Option<Instant>,
    /// The id of the primary's history.
    pub id: String,
    /// The cause of the failure of the last attempt, if any.
    pub error: Option<String>,
    /// The last parts left out.
    pub left_out: VecDeque<String>,
}

/// A live import.
#[derive(Default)]
pub struct LiveImport {
    stage: AtomicU8,
    wish: Mutex<ImportWish>,
    /// The number of the request, increased by each request.
    number: AtomicU64,
    changed: Condvar,
    /// Numbers for INFO.
    pub numbers: ImportNumbers,
    notes: Mutex<ImportNotes>,
    changing: Mutex<()>,
}

impl LiveImport {
    /// Whether there is a primary: clients write nothing, and nothing expires by itself.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.stage.load(SeqCst) != NONE
    }

    /// Whether the data is incomplete: clients do not read either.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.stage.load(SeqCst) == LOADING
    }

    /// Sets the rights of clients.
    pub fn set_stage(&self, stage: ImportStage) {
        let stage = match stage {
            ImportStage::Loading => LOADING,
            ImportStage::Following => FOLLOWING,
            ImportStage::Over => NONE,
        };
        self.stage.store(stage, SeqCst);
    }

    /// Resumes an import found at this position.
    pub fn resume(&self, position: &PrimaryPosition) {
        self.numbers.read.store(position.offset, Relaxed);
        self.numbers.durable.store(position.offset, Relaxed);
        self.notes().id.clone_from(&position.id);
        self.set_stage(position.stage);
    }

    /// The reason to refuse a command on data, if any.
    #[cold]
    pub fn refusal(&self, writes: bool) -> Option<String> {
        if writes && self.is_on() {
            return Some(READ_ONLY.to_string());
        }
        if !self.is_loading() {
            return None;
        }
        let primary = self.primary().map(|primary| primary.to_string()).unwrap_or_default();
        let read = self.numbers.sync_read.load(Relaxed);
        let how_far = match self.numbers.sync_total.load(Relaxed) {
            0 => format!("{read} bytes so far"),
            total => format!("{read} of {total} bytes"),
        };
        Some(format!("LOADING the database is imported from {primary}: {how_far}"))
    }

    /// Held while a command begins or ends an import.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unpoisoned()
    }

    /// The primary, if any.
    pub fn primary(&self) -> Option<PrimaryAddress> {
        self.wish.lock().unpoisoned().primary.clone()
    }

    /// Progress in words.
    pub fn notes(&self) -> MutexGuard<'_, ImportNotes> {
        self.notes.lock().unpoisoned()
    }

    /// Notes the state of the connection.
    pub fn set_link(&self, link: LinkState) {
        let mut notes = self.notes();
        if (notes.link == LinkState::Connected) != (link == LinkState::Connected) {
            notes.down_since = (link != LinkState::Connected).then(Instant::now);
        }
        notes.link = link;
    }

    /// Notes left-out parts.
    pub fn leave_out(&self, count: u64, named: Vec<String>) {
        self.numbers.left_out.fetch_add(count, Relaxed);
        let mut notes = self.notes();
        notes.left_out.extend(named);
        let surplus = notes.left_out.len().saturating_sub(MOST_NAMED);
        notes.left_out.drain(..surplus);
    }

    /// Makes the thread follow this primary.
    pub fn follow(&self, primary: PrimaryAddress) {
        let mut wish = self.wish.lock().unpoisoned();
        wish.primary = Some(primary);
        self.number.fetch_add(1, SeqCst);
        let mut notes = self.notes();
        let id = std::mem::take(&mut notes.id);
        let down_since = Some(Instant::now());
        *notes = ImportNotes { id, down_since, ..ImportNotes::default() };
        drop(notes);
        self.changed.notify_all();
    }

    /// Makes the thread follow no primary, and waits for the thread: all received and run commands
    /// are on disk then. False if the server stops before.
    pub fn leave(&self, stop: &StopSignal) -> bool {
        let mut wish = self.wish.lock().unpoisoned();
        wish.primary = None;
        self.number.fetch_add(1, SeqCst);
        self.changed.notify_all();
        while wish.is_busy {
            if stop.cause().is_some() {
                return false;
            }
            wish = self.changed.wait_timeout(wish, SLICE).unpoisoned().0;
        }
        true
    }

    /// For the thread: waits for a primary. `None` if the server stops. The number tells whether
    /// the request [is still wanted](LiveImport::is_wanted).
    pub fn wait(&self, stop: &StopSignal) -> Option<(PrimaryAddress, u64)> {
        let mut wish = self.wish.lock().unpoisoned();
        loop {
            if stop.cause().is_some() {
                return None;
            }
            if let Some(primary) = wish.primary.clone() {
                wish.is_busy = true;
                return Some((primary, self.number.load(SeqCst)));
            }
            wish = self.changed.wait(wish).unpoisoned();
        }
    }

    /// For the thread: ends its work for a request.
    pub fn rest(&self) {
        self.wish.lock().unpoisoned().is_busy = false;
        self.changed.notify_all();
    }

    /// For the thread: pauses, unless another request follows, or the server stops.
    pub fn pause(&self, time: Duration, number: u64, stop: &StopSignal) {
        let until = Instant::now() + time;
        let mut wish = self.wish.lock().unpoisoned();
        while self.is_wanted(number) && stop.cause().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            wish = self.changed.wait_timeout(wish, left).unpoisoned().0;
        }
    }

    /// Whether the request of this number is still the present request.
    pub fn is_wanted(&self, number: u64) -> bool {
        self.number.load(SeqCst) == number
    }

    /// The server stops.
    pub fn wake(&self) {
        // The thread checks the cause and begins to wait under this lock, so no wake-up is lost.
        drop(self.wish.lock().unpoisoned());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Stopping;
    use std::sync::Arc;

    #[test]
    fn leaving_waits_until_the_thread_is_at_rest() {
        let (import, stop) = (Arc::new(LiveImport::default()), StopSignal::default());
        assert!(import.leave(&stop), "there is nothing to wait for");
        let address = PrimaryAddress { host: "a".to_string(), port: 1 };
        import.follow(address.clone());
        let (primary, number) = import.wait(&stop).unwrap();
        assert_eq!((primary, import.is_wanted(number)), (address, true));
        let thread = std::thread::spawn({
            let import = import.clone();
            move || {
                while import.is_wanted(number) {
                    std::thread::yield_now();
                }
                import.set_stage(ImportStage::Following);
                import.rest();
            }
        });
        assert!(import.leave(&stop) && import.is_on() && import.primary().is_none());
        thread.join().unwrap();
        import.follow(PrimaryAddress::default());
        let _busy = import.wait(&stop).unwrap();
        stop.stop(Stopping::Asked);
        assert!(!import.leave(&stop) && import.wait(&stop).is_none());
    }

    #[test]
    fn writes_are_refused_first_and_reads_while_values_are_loaded() {
        let import = LiveImport::default();
        assert_eq!(import.refusal(true), None);
        import.set_stage(ImportStage::Loading);
        import.follow(PrimaryAddress { host: "a".to_string(), port: 1 });
        assert_eq!(import.refusal(true).as_deref(), Some(READ_ONLY));
        let text = "LOADING the database is imported from a:1: 0 bytes so far";
        assert_eq!(import.refusal(false).as_deref(), Some(text));
        import.set_stage(ImportStage::Following);
        assert_eq!(import.refusal(false), None);
        import.leave_out(40, (0..40).map(|n| n.to_string()).collect());
        assert_eq!(import.notes().left_out.front().map(String::as_str), Some("24"));
    }
}
