//! The faults of a simulated disk.

use crate::random::Random;
use std::time::Duration;

/// A fault of the disk as seen by a process. Counts are of operations of the kind since the fault
/// was armed; 0 is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedFault {
    /// The process dies at the k-th change (write, sync, change of names); a first part of the
    /// change may be done.
    Stop(u64),
    /// The k-th sync fails, and if `for_ever` all later syncs.
    Sync {
        /// The number of syncs that succeed before.
        after: u64,
        /// Whether all later syncs fail too.
        for_ever: bool,
    },
    /// The k-th write fails with an I/O error after storing a part, once.
    Write(u64),
    /// The k-th read fails with an I/O error, once.
    Read(u64),
    /// The number of bytes of room left on the disk. A write beyond the room stores a part and
    /// fails, as do all later writes, including the zeros of a new file.
    Full(u64),
    /// Some transfers are short or interrupted, and have to be continued.
    Short,
    /// Syncs of files succeed and do nothing, for tests that a check can fail.
    LyingSync,
}

/// The faults armed for a process.
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
    /// Directories with slow files, by name, and the delay; `None` means stopped.
    pub slow: Vec<(String, Option<Duration>)>,
}

impl FaultPlan {
    /// A plan without faults.
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

    /// Arms a fault in addition to the faults already armed.
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

    /// Counts a sync; returns true if the sync has to fail.
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

    /// Takes up to `bytes` of the room left on the disk; returns how many bytes fit.
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

/// Counts an operation down; returns true if the operation has to fail.
pub(super) fn countdown_fires(counter: &mut Option<u64>) -> bool {
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
