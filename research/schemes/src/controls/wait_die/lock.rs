//! The lock of a row or a gap under wait-die: one word with the holders and a lower bound of their
//! timestamps, and the oldest request that waits.
//!
//! **Invariant: a request waits only while every holder is younger.** The word has the bound and
//! the holders together, so each look decides on one state of the lock. The bound falls with each
//! new reader, and is forgotten when the lock is free; while readers come and go it may be that of
//! a reader that has left, which makes requests die in vain but lets none wait. A waiting request
//! looks again: an older reader that has joined meanwhile makes it die. So a circle of waiting
//! transactions, each for a younger one, does not exist for longer than one look.
//!
//! A waiting request keeps younger requests out, as if it held the lock: it is not passed by
//! forever. An older one may pass, and there are finitely many of those.

use hyades_platform::broken;
use hyades_platform::sync::{AtomicU64, Ordering};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// A timestamp has 48 bits: 2^48 transactions, eight years at a million in a second. All later
/// transactions share this one, and do not wait.
pub const MAX_TIMESTAMP: u64 = (1 << BOUND_BITS) - 1;
const BOUND_BITS: u32 = 48;
/// The bound lies above the holders: the number of readers, or [`WRITER`].
const HOLDER_BITS: u32 = 64 - BOUND_BITS;
const HOLDERS: u64 = (1 << HOLDER_BITS) - 1;
const WRITER: u64 = 1 << (HOLDER_BITS - 1);
/// The word of a row or gap that has left its index.
const GONE: u64 = u64::MAX;

/// What a transaction wants of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    Write,
    /// To write, for a transaction that holds the lock to read.
    Upgrade,
}

/// A request of a transaction for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub timestamp: u64,
    pub mode: Mode,
    /// The transaction waits for nothing while it holds the lock: it counts as the youngest holder.
    pub brief: bool,
}

/// The outcome of a look at the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Taken,
    /// All holders are younger.
    Wait,
    /// A holder may be older, or a waiting request is.
    Die,
    /// The row or gap has left its index.
    Gone,
}

#[derive(Debug, Default)]
pub struct WaitDieLock {
    /// Holders and bound; 0 if the lock is free.
    word: AtomicU64,
    /// The oldest request that waits, as [`Request::waits_as`]; 0 if there is none. It decides
    /// about fairness only, and may be missing for as long as its transaction does not look.
    waiting: AtomicU64,
}

fn word(holders: u64, bound: u64) -> u64 {
    bound << HOLDER_BITS | holders
}

impl Request {
    /// The request among those that wait: the timestamp above one bit for writers.
    fn waits_as(self) -> u64 {
        self.timestamp << 1 | u64::from(self.mode != Mode::Read)
    }

    /// The word after the request is granted; `None` if others hold the lock.
    fn grant(self, seen: u64) -> Option<u64> {
        let (holders, bound) = (seen & HOLDERS, seen >> HOLDER_BITS);
        let own = if self.brief { MAX_TIMESTAMP } else { self.timestamp };
        match self.mode {
            Mode::Read if holders == 0 => Some(word(1, own)),
            Mode::Read if holders < WRITER - 1 => Some(word(holders + 1, bound.min(own))),
            Mode::Write if holders == 0 => Some(word(WRITER, own)),
            Mode::Upgrade if holders == 1 => Some(word(WRITER, own)),
            _ => None,
        }
    }

    /// Whether the request waits for these holders.
    fn is_older_than(self, seen: u64) -> bool {
        // The bound of the transaction's own hold, or of an earlier attempt, is its timestamp.
        self.timestamp <= seen >> HOLDER_BITS && self.timestamp < MAX_TIMESTAMP
    }
}

impl WaitDieLock {
    /// Looks at the lock once. `is_oldest`: no active transaction is older than this one, whatever
    /// the bound says.
    #[inline]
    pub fn look(&self, request: Request, is_oldest: impl Fn() -> bool) -> Look {
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            if seen == GONE {
                self.withdraw(request);
                return Look::Gone;
            }
            if self.passes_by(request) {
                self.withdraw(request);
                return Look::Die;
            }
            let Some(granted) = request.grant(seen) else {
                return self.wait_or_die(request, seen, is_oldest);
            };
            match self.swap(seen, granted) {
                Ok(_) => {
                    self.withdraw(request);
                    return Look::Taken;
                }
                Err(now) => seen = now,
            }
        }
    }

    #[cold]
    fn wait_or_die(&self, request: Request, seen: u64, is_oldest: impl Fn() -> bool) -> Look {
        let waits = request.is_older_than(seen) || is_oldest() || broken!(YoungerWaits);
        if !waits {
            self.withdraw(request);
            return Look::Die;
        }
        self.announce(request);
        Look::Wait
    }

    /// Whether an older request waits, and the lock would go to the younger `request`. A holder
    /// passes no request: the waiting requests wait for the holder.
    #[inline]
    fn passes_by(&self, request: Request) -> bool {
        let waiting = self.waiting.load(Ordering::Acquire);
        waiting != 0
            && waiting >> 1 < request.timestamp
            && match request.mode {
                Mode::Read => waiting & 1 != 0,
                Mode::Write => true,
                Mode::Upgrade => false,
            }
    }

    /// Enters the request, unless an older one waits.
    fn announce(&self, request: Request) {
        let own = request.waits_as();
        let older = |waiting| (waiting == 0 || own < waiting).then_some(own);
        // An `Err`: an older request, or this request, is there.
        let _ = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, older);
    }

    /// Removes the request from those that wait.
    #[inline]
    pub fn withdraw(&self, request: Request) {
        let own = request.waits_as();
        if self.waiting.load(Ordering::Relaxed) == own {
            let (removed, kept) = (Ordering::AcqRel, Ordering::Relaxed);
            // An `Err`: an older request has replaced this request.
            let _ = self.waiting.compare_exchange(own, 0, removed, kept);
        }
    }

    /// AcqRel: what the last holder has done is seen, and what is seen of this one, too.
    #[inline]
    fn swap(&self, seen: u64, next: u64) -> Result<u64, u64> {
        self.word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Locks the row or gap for something that waits for nothing, if the lock is free.
    pub fn try_take(&self) -> bool {
        let (taken, kept) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(0, word(WRITER, MAX_TIMESTAMP), taken, kept).is_ok()
    }

    /// Locks the row or gap for ever, if the lock is free.
    pub fn try_end(&self) -> bool {
        let (taken, kept) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(0, GONE, taken, kept).is_ok()
    }

    /// Makes a lock held to write one for ever.
    pub fn end(&self) {
        debug_assert!(self.is_written(), "only its writer ends a lock");
        self.word.store(GONE, Ordering::Release);
    }

    /// Frees a lock that has ended. To be called only by the thread that has ended the lock.
    pub fn begin_anew(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// Ends the hold of a reader.
    #[inline]
    pub fn release_read(&self) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let holders = seen & HOLDERS;
            debug_assert!(0 < holders && holders < WRITER, "a reader holds the lock");
            let left = if holders == 1 { 0 } else { seen - 1 };
            match self.swap(seen, left) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Ends the hold of the writer.
    #[inline]
    pub fn release_write(&self) {
        debug_assert!(self.is_written(), "its writer holds the lock");
        self.word.store(0, Ordering::Release);
    }

    /// Makes the writer a reader, with this timestamp.
    pub fn downgrade(&self, timestamp: u64) {
        debug_assert!(self.is_written(), "its writer holds the lock");
        self.word.store(word(1, timestamp), Ordering::Release);
    }

    /// Takes over the state of another lock, which its writer holds, or which is free. No other
    /// thread knows this lock yet.
    pub fn copy_from(&self, other: &WaitDieLock) {
        let seen = other.word.load(Ordering::Acquire);
        debug_assert!(seen == 0 || seen & WRITER != 0, "a gap is divided by its writer");
        self.word.store(seen, Ordering::Release);
    }

    /// Whether a writer holds the lock.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WRITER != 0
    }
}
