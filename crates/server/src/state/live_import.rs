//! A live import: this server loads what another one has, its *primary*, and follows its stream of
//! commands until it is cut over.
//!
//! Clients choose a primary, or none, by REPLICAOF. A thread of its own does what they wish, and
//! says here how far it is. While there is a primary, clients write nothing.

use crate::config::PrimaryAddress;
use crate::data::primary::{ImportStage, PrimaryPosition};
use crate::state::stopping::StopSignal;
use hyades_platform::sync::Unpoisoned;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The error of a command that writes.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Parts that were left out of which the last are kept.
const MOST_NAMED: usize = 16;

/// How often a wait looks whether the server stops.
const SLICE: Duration = Duration::from_millis(50);

const NONE: u8 = 0;
const LOADING: u8 = 1;
const FOLLOWING: u8 = 2;

/// The connection to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is none: one is made after a pause.
    #[default]
    Connect,
    /// It is being made.
    Connecting,
    /// Both sides tell what they can.
    Handshake,
    /// Values are loaded.
    Sync,
    /// Commands are followed.
    Connected,
}

impl LinkState {
    /// The name that ROLE shows.
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

/// What clients wish.
#[derive(Default)]
struct ImportWish {
    primary: Option<PrimaryAddress>,
    /// The thread does something for a wish.
    is_busy: bool,
}

/// Numbers that INFO shows.
#[derive(Debug, Default)]
pub struct ImportNumbers {
    /// The offset up to which the stream was read.
    pub read: AtomicU64,
    /// The offset up to which all is on disk here.
    pub durable: AtomicU64,
    /// Bytes of the values that are being loaded; 0 if they are not known.
    pub sync_total: AtomicU64,
    /// Bytes of them that were read.
    pub sync_read: AtomicU64,
    /// When something was received last, in milliseconds since 1970; 0 for never.
    pub last_io_ms: AtomicI64,
    /// Times that all values were loaded.
    pub full_syncs: AtomicU64,
    /// Times that the stream went on where it was.
    pub partial_syncs: AtomicU64,
    /// Commands that were run.
    pub commands: AtomicU64,
    /// Commands and values that were left out.
    pub left_out: AtomicU64,
}

/// What is told in words.
#[derive(Clone, Debug, Default)]
pub struct ImportNotes {
    /// The connection.
    pub link: LinkState,
    /// When the connection was lost.
    pub down_since: Option<Instant>,
    /// The id of the primary's history.
    pub id: String,
    /// Why the last attempt has failed, if it has.
    pub error: Option<String>,
    /// The last parts that were left out.
    pub left_out: VecDeque<String>,
}

/// A live import.
#[derive(Default)]
pub struct LiveImport {
    stage: AtomicU8,
    wish: Mutex<ImportWish>,
    /// The number of the wish, which rises with each.
    number: AtomicU64,
    changed: Condvar,
    /// Numbers that INFO shows.
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

    /// Whether what is there is no whole: clients do not read either.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.stage.load(SeqCst) == LOADING
    }

    /// Sets what clients may do.
    pub fn set_stage(&self, stage: ImportStage) {
        let stage = match stage {
            ImportStage::Loading => LOADING,
            ImportStage::Following => FOLLOWING,
            ImportStage::Over => NONE,
        };
        self.stage.store(stage, SeqCst);
    }

    /// An import is found at this position.
    pub fn resume(&self, position: &PrimaryPosition) {
        self.numbers.read.store(position.offset, Relaxed);
        self.numbers.durable.store(position.offset, Relaxed);
        self.notes().id.clone_from(&position.id);
        self.set_stage(position.stage);
    }

    /// Why a command is refused on data, if it is.
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

    /// The primary, if there is one.
    pub fn primary(&self) -> Option<PrimaryAddress> {
        self.wish.lock().unpoisoned().primary.clone()
    }

    /// What is told in words.
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

    /// Notes what was left out.
    pub fn leave_out(&self, count: u64, named: Vec<String>) {
        self.numbers.left_out.fetch_add(count, Relaxed);
        let mut notes = self.notes();
        notes.left_out.extend(named);
        let surplus = notes.left_out.len().saturating_sub(MOST_NAMED);
        notes.left_out.drain(..surplus);
    }

    /// Has the thread follow this primary.
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

    /// Has the thread follow none, and waits until it does: all that it has received and run is on
    /// disk then. False if the server stops before.
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

    /// For the thread: waits for a primary. `None` if the server stops. The number says whether it
    /// [is still wanted](LiveImport::is_wanted).
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

    /// For the thread: it has ended what it did for a wish.
    pub fn rest(&self) {
        self.wish.lock().unpoisoned().is_busy = false;
        self.changed.notify_all();
    }

    /// For the thread: pauses, unless the wish of this number is none any more, or the server
    /// stops.
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

    /// Whether the wish of this number is still what clients wish.
    pub fn is_wanted(&self, number: u64) -> bool {
        self.number.load(SeqCst) == number
    }

    /// The server stops.
    pub fn wake(&self) {
        // The thread looks for the cause, then waits, under this lock: it does not sleep between.
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
