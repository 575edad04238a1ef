//! What goes wrong with a simulated disk, and when.

use crate::random::Random;
use std::time::Duration;

/// What a process finds wrong with the disk. Counts are of operations of the kind from when the
/// fault was armed; 0 is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedFault {
    /// The process dies at the k-th change (write, sync, change of names), of which a first part may
    /// be done.
    Stop(u64),
    /// The k-th sync fails, and if `for_ever` all later ones.
    Sync {
        /// How many succeed before.
        after: u64,
        /// Whether it is the first of many.
        for_ever: bool,
    },
    /// The k-th write fails with an I/O error after a part of it, once.
    Write(u64),
    /// The k-th read fails with an I/O error, once.
    Read(u64),
    /// The disk takes so many more bytes; then writes and new files fail, a first part written.
    Full(u64),
    /// Transfers stop short or are interrupted, now and then, and are to be taken up again.
    Short,
    /// Syncs of files succeed and do nothing: for tests that show that a check can fail.
    LyingSync,
}

/// The faults that a process is to meet.
#[derive(Debug)]
pub(super) struct FaultPlan {
    pub random: Random,
    pub stop: Option<u64>,
    pub sync: Option<(u64, bool)>,
    pub write: Option<u64>,
    pub read: Option<u64>,
    pub room: Option<u64>,
    pub short: bool,
    pub lying: bool,
    /// Directories, by name, whose files are slow, and how slow; `None` means stopped.
    pub slow: Vec<(String, Option<Duration>)>,
}

impl FaultPlan {
    /// None.
    pub fn new(random: Random) -> Self {
        FaultPlan {
            random,
            stop: None,
            sync: None,
            write: None,
            read: None,
            room: None,
            short: false,
            lying: false,
            slow: Vec::new(),
        }
    }

    /// Arms a fault, beside those armed already.
    pub fn arm(&mut self, fault: SimulatedFault) {
        match fault {
            SimulatedFault::Stop(after) => self.stop = Some(after),
            SimulatedFault::Sync { after, for_ever } => self.sync = Some((after, for_ever)),
            SimulatedFault::Write(after) => self.write = Some(after),
            SimulatedFault::Read(after) => self.read = Some(after),
            SimulatedFault::Full(room) => self.room = Some(room),
            SimulatedFault::Short => self.short = true,
            SimulatedFault::LyingSync => self.lying = true,
        }
    }

    /// Counts a sync; true if it is one that is to fail.
    pub fn sync_fails(&mut self) -> bool {
        match &mut self.sync {
            Some((0, true)) => true,
            Some((0, false)) => {
                self.sync = None;
                true
            }
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// How many of these bytes the disk has room for.
    pub fn room_for(&mut self, bytes: usize) -> usize {
        match &mut self.room {
            None => bytes,
            Some(room) => {
                let taken = (bytes as u64).min(*room);
                *room -= taken;
                taken as usize
            }
        }
    }
}

/// Counts an operation down; true if it is the one that is to fail.
pub(super) fn strikes(counter: &mut Option<u64>) -> bool {
    match counter {
        Some(0) => {
            *counter = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}
