//! The state of a replay: streams, threads, and the time spent on each activity.

use crate::costs::{Costs, SchemeCosts};
use crate::rules::Logged;
use crate::shared::{Caches, Lock, SharedLine, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Records that a thread runs in a stream before looking at the remaining streams.
pub(super) const QUANTUM: usize = 64;
/// A stream is read no further while this many of its records wait.
pub(super) const LOOKAHEAD: usize = 8;
/// A runnable record is parked for idle threads only if fewer than this many records wait.
pub(super) const OFFERED: usize = LOOKAHEAD / 2;
/// The places of a window, in which parked records stay until all records before them were run.
pub(super) const WINDOW: usize = 32;
/// Records after which a stream's runner publishes its position, unless a thread waits for it.
pub(super) const PUBLISH_EVERY: usize = 8;
/// Rounds without work before a thread sleeps.
pub(super) const SPINS: f64 = 1_000.0;
/// The longest sleep.
pub(super) const SLEEP: Time = 200_000;
/// The longest simulated replay: a long log counts by what was replayed until then.
pub(super) const LONGEST: Time = 200_000_000;
/// Lines of a record's head and of a window's place beside vectors and body.
pub(super) const HEAD_LINES: usize = 3;
/// Lines of a stream's cursor beside the decoder's vectors.
pub(super) const CURSOR_LINES: usize = 4;

/// The costs of replay on a number of threads, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// A record's own work.
    pub run: Time,
    pub read: Time,
    pub decode: Time,
    pub copy: Time,
    pub line: Time,
    pub further: Time,
    pub lock: Time,
    pub wake: Time,
    pub notify: Time,
    /// The time for which an idle thread polls.
    pub polls: Time,
    pub row: f64,
}

impl Timing {
    /// The costs of a scheme; `None` if its replay was not measured.
    pub(crate) fn of(costs: &Costs, own: &SchemeCosts, threads: usize) -> Option<Timing> {
        let slowed = |ns: f64| (ns * costs.replay_slowed(own, threads)).round() as Time;
        let (whole, parts, sharing) = (own.replay_ns?, own.replay, costs.sharing);
        let alone = threads == 1;
        let shared = |ns: f64| if alone { 0 } else { ns.round() as Time };
        Some(Timing {
            // At least a tenth of the whole: the parts are measured apart.
            run: slowed((whole - parts.read_ns - parts.decode_ns).max(whole / 10.0)).max(1),
            read: slowed(parts.read_ns),
            decode: slowed(parts.decode_ns),
            copy: slowed(parts.copy_ns),
            line: shared(costs.line_ns),
            further: shared(sharing.further_line_ns),
            lock: shared(sharing.lock_ns),
            wake: shared(sharing.wake_ns),
            notify: shared(sharing.notify_ns),
            polls: shared(SPINS * sharing.pause_ns),
            row: if alone { 0.0 } else { costs.row_ns },
        })
    }
}

/// The activities of threads, by their place in [`Front::spent`].
#[derive(Clone, Copy)]
pub(super) enum Activity {
    Run,
    Decode,
    Copy,
    Window,
    Line,
    Cursor,
    Row,
    Notify,
    Search,
}

pub(super) const ACTIVITIES: [&str; 9] = [
    "running records",
    "reading and decoding",
    "copies in windows",
    "locks of windows",
    "lines of watermarks",
    "cursors of streams",
    "rows of other threads",
    "notifications",
    "looking for work in vain",
];

pub(super) struct Front<'l, F> {
    pub log: &'l [Logged],
    pub timing: Timing,
    pub lanes: Vec<Lane>,
    pub threads: Vec<Thread>,
    pub rows: Caches,
    pub lookahead: usize,
    /// The time when the bytes up to a position have been read from the device.
    pub read_ns: F,
    pub events: BinaryHeap<Reverse<(Time, usize)>>,
    pub resolved: usize,
    /// The time of the event in progress.
    pub event: Time,
    pub spent: [Time; ACTIVITIES.len()],
}

/// A parked record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parked {
    /// The record's number in the log.
    pub record: usize,
    pub taken: bool,
    pub done: bool,
    /// The thread that parked the record.
    pub by: usize,
}

/// The place of a record that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    InTurn,
    Window(usize),
}

/// The work of a thread until its next event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Doing {
    #[default]
    Nothing,
    /// The next record of the stream that the thread holds.
    Decoding(usize),
    /// A record of the stream.
    Running(usize, Place),
}

#[derive(Default)]
pub(super) struct Lane {
    /// The stream's records, by their number in the log.
    pub records: Vec<usize>,
    /// The first record not yet reached by the stream's runner.
    pub next: usize,
    /// Whether that record has been read.
    pub is_read: bool,
    /// The parked records, from the first unresolved record to the last before `next`.
    pub window: VecDeque<Parked>,
    /// The number of records in the window that no thread has taken.
    pub waiting: usize,
    /// The thread that runs the stream.
    pub holder: Option<usize>,
    pub last_holder: Option<usize>,
    /// The time that runners of the stream have worked, or notified threads.
    pub worked: Time,
    pub notified: Time,
    /// The stream's progress, in bytes of all streams; as of when its last runner left.
    pub progress: u64,
    /// The watermark.
    pub resolved: u64,
    /// The lowest position awaited by a thread.
    pub wanted: u64,
    /// Records run in turn since the runner's position was published.
    pub unpublished: usize,
    /// The line of the watermark; the counts of parked records and of events are on this line too.
    pub mark: SharedLine,
    /// The line with the number of waiting records and what they lack.
    pub places: SharedLine,
    pub lock: Lock,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// The stream that the thread runs, and the remaining number of records.
    pub holds: Option<(usize, usize)>,
    pub doing: Doing,
    /// The thread's next event; all other events are obsolete.
    pub next: Time,
    /// The time when the first record found unread will have been read.
    pub read_at: Option<Time>,
    /// Whether the thread has found no work, and has not run a stream since.
    pub is_idle: bool,
    /// Since when the thread has found no work.
    pub waits_since: Option<Time>,
    /// The end of the last round in vain.
    pub looked: Time,
    /// A sleeping thread that was notified looks for work at this time.
    pub notified: Time,
    /// The watermarks last seen by the thread.
    pub seen: Vec<u64>,
    /// The streams that could not continue since the thread last found work, a bit for each.
    pub tried: u32,
    /// The stream whose window the thread has just locked.
    pub locked: Option<usize>,
}

impl Thread {
    pub fn new(streams: usize) -> Thread {
        Thread {
            holds: None,
            doing: Doing::Nothing,
            next: 0,
            read_at: None,
            is_idle: false,
            waits_since: None,
            looked: 0,
            notified: 0,
            seen: vec![0; streams],
            tried: 0,
            locked: None,
        }
    }
}
