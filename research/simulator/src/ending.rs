//! How a life of a database or of a server ends, and what the disk does then.

use fastrand::Rng;
use hyades_platform::device::{SimulatedDevice, SimulatedFault};

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All transactions are answered, and the database is closed.
    Close,
    /// All transactions are answered, and the process is killed while it closes the database.
    StopsClosing,
    /// All transactions are durable, then the power is cut.
    Quiet,
    /// The power is cut.
    PowerCut,
    /// The process is killed.
    Kill,
    /// The process is killed at some change of the disk.
    Stop,
    /// A sync fails; the database is opened again.
    SyncFails,
    /// A write fails.
    WriteFails,
    /// The disk is full.
    Full,
}

const ENDINGS: [(Ending, &str); 9] = [
    (Ending::Close, "closed in good order"),
    (Ending::StopsClosing, "killed while closing"),
    (Ending::Quiet, "power cut when all is durable"),
    (Ending::PowerCut, "power cut at work"),
    (Ending::Kill, "killed at work"),
    (Ending::Stop, "killed at a write, sync or change of names"),
    (Ending::SyncFails, "a sync fails"),
    (Ending::WriteFails, "a write fails half-way"),
    (Ending::Full, "disk full"),
];

impl Ending {
    /// Draws an ending of a database's life, with its name.
    pub(crate) fn draw(rng: &mut Rng) -> (Ending, &'static str) {
        ENDINGS[rng.usize(0..ENDINGS.len())]
    }

    /// Draws an ending of a server's life, which is not killed while it closes.
    pub(crate) fn draw_of_server(rng: &mut Rng) -> (Ending, &'static str) {
        let mut all = ENDINGS.into_iter().filter(|(ending, _)| *ending != Ending::StopsClosing);
        all.nth(rng.usize(0..ENDINGS.len() - 1)).expect("all endings but one")
    }

    /// Whether all transactions run before the life ends.
    pub(crate) fn is_quiet(self) -> bool {
        matches!(self, Ending::Close | Ending::StopsClosing | Ending::Quiet)
    }

    /// Has the device fail as this ending says, after some operations.
    pub(crate) fn arm(self, rng: &mut Rng, device: &SimulatedDevice) {
        match self {
            Ending::Stop => device.arm(SimulatedFault::Stop(rng.u64(0..60))),
            Ending::WriteFails => device.arm(SimulatedFault::Write(rng.u64(0..30))),
            Ending::Full => device.arm(SimulatedFault::Full(rng.u64(0..200_000))),
            Ending::SyncFails => {
                let (after, for_ever) = (rng.u64(0..30), rng.bool());
                device.arm(SimulatedFault::Sync { after, for_ever });
            }
            _ => {}
        }
    }
}
