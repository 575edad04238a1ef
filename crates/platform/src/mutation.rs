//! Rules that can be broken on purpose, to show that the tests miss them.
//!
//! Only with the feature `mutations`; without it [`is`] is a constant, and nothing of this is left in
//! a build.

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// A transaction is acknowledged before its own frame is durable.
    AckBeforeOwnFrame = 1,
    /// Replay of a stream ends at its first dead record.
    StopAtFirstDead,
    /// A row takes its writer's stamp after it is released.
    StampAfterRelease,
    /// Records of all incarnations are judged by where the newest ends.
    DeadByNewestEnd,
    /// A writer does not follow those who read what it overwrites.
    SkipReadFold,
    /// A reader is acknowledged without what it read.
    AckReadersAtOnce,
    /// What was lost half-way is not undone.
    SkipUndo,
    /// Files are given up before the manifest says so.
    TruncateBeforeManifest,
    /// A checkpoint counts although the log is not yet durable up to its cut.
    ValidBeforeFrontier,
    /// Rows that are overwritten while a checkpoint is being written are not saved for it.
    NoCopyOnWrite,
    /// A checkpoint does not wait for transactions of its epochs that are still installing.
    NoWaitForCommits,
    /// A record that is in the checkpoint is replayed all the same.
    ReplayBelowCut,
    /// The frontier is raised before a batch is written and synced.
    AckBeforeSync,
    /// A sync that failed is tried again, and believed when it succeeds.
    RetryFailedSync,
    /// An optimistic transaction does not look whether what it read has changed.
    SkipValidation,
    /// An optimistic transaction does not look whether the gaps that it scanned are as they were.
    SkipGaps,
    /// Replay installs an image although the row has a later version.
    ApplyOlder,
    /// A watermark of replay passes a record that waits.
    PassParked,
    /// A row is taken for cold, and its slot is given out again, though who used it is not yet durable.
    EvictWarm,
    /// What recovery read beyond the proven end of a stream is not made durable again.
    BelieveTail,
    /// Names that are seen are relied on without a sync of their directory.
    BelieveNames,
    /// A sleeper reads the sequence of an event after it has announced itself.
    LateSequence,
    /// The mark of a stream counts before the frame that states it is durable.
    MarkInMemory,
    /// A transaction with a number waits for the mark of its own stream alone.
    OwnMarkOnly,
    /// An epoch is closed although transactions of it are still committing.
    CloseOpenEpochs,
    /// The number of a transaction is not above those of what it read.
    ForgetReadNumbers,
    /// Epochs begin anew in each incarnation.
    RestartEpochs,
    /// Who first writes to a table does not follow those who read it and left no mark.
    ForgetUnmarkedReaders,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 28] = [
        Mutation::AckBeforeOwnFrame,
        Mutation::StopAtFirstDead,
        Mutation::StampAfterRelease,
        Mutation::DeadByNewestEnd,
        Mutation::SkipReadFold,
        Mutation::AckReadersAtOnce,
        Mutation::SkipUndo,
        Mutation::TruncateBeforeManifest,
        Mutation::ValidBeforeFrontier,
        Mutation::NoCopyOnWrite,
        Mutation::NoWaitForCommits,
        Mutation::ReplayBelowCut,
        Mutation::AckBeforeSync,
        Mutation::RetryFailedSync,
        Mutation::SkipValidation,
        Mutation::SkipGaps,
        Mutation::ApplyOlder,
        Mutation::PassParked,
        Mutation::EvictWarm,
        Mutation::BelieveTail,
        Mutation::BelieveNames,
        Mutation::LateSequence,
        Mutation::MarkInMemory,
        Mutation::OwnMarkOnly,
        Mutation::CloseOpenEpochs,
        Mutation::ForgetReadNumbers,
        Mutation::RestartEpochs,
        Mutation::ForgetUnmarkedReaders,
    ];

    /// Whether it is a rule of checkpoints, which have tests of their own that break it.
    pub fn is_of_checkpoints(self) -> bool {
        let of_checkpoints =
            Mutation::TruncateBeforeManifest as u8..=Mutation::ReplayBelowCut as u8;
        of_checkpoints.contains(&(self as u8))
    }

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::AckBeforeOwnFrame => "ack-before-own-frame",
            Mutation::StopAtFirstDead => "stop-at-first-dead",
            Mutation::StampAfterRelease => "stamp-after-release",
            Mutation::DeadByNewestEnd => "dead-by-newest-end",
            Mutation::SkipReadFold => "skip-read-fold",
            Mutation::AckReadersAtOnce => "ack-readers-at-once",
            Mutation::SkipUndo => "skip-undo",
            Mutation::TruncateBeforeManifest => "truncate-before-manifest",
            Mutation::ValidBeforeFrontier => "valid-before-frontier",
            Mutation::NoCopyOnWrite => "no-copy-on-write",
            Mutation::NoWaitForCommits => "no-wait-for-commits",
            Mutation::ReplayBelowCut => "replay-below-cut",
            Mutation::AckBeforeSync => "ack-before-sync",
            Mutation::RetryFailedSync => "retry-failed-sync",
            Mutation::SkipValidation => "skip-validation",
            Mutation::SkipGaps => "skip-gaps",
            Mutation::ApplyOlder => "apply-older",
            Mutation::PassParked => "pass-parked",
            Mutation::EvictWarm => "evict-warm",
            Mutation::BelieveTail => "believe-tail",
            Mutation::BelieveNames => "believe-names",
            Mutation::LateSequence => "late-sequence",
            Mutation::MarkInMemory => "mark-in-memory",
            Mutation::OwnMarkOnly => "own-mark-only",
            Mutation::CloseOpenEpochs => "close-open-epochs",
            Mutation::ForgetReadNumbers => "forget-read-numbers",
            Mutation::RestartEpochs => "restart-epochs",
            Mutation::ForgetUnmarkedReaders => "forget-unmarked-readers",
        }
    }
}

#[cfg(feature = "mutations")]
mod active {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// The broken rule of this process; 0 for none. Set before any database is opened.
    static BROKEN: AtomicU8 = AtomicU8::new(0);

    /// Whether the rule is broken.
    #[inline]
    pub fn is(rule: Mutation) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u8
    }

    /// Breaks a rule, or none, in the whole process.
    pub fn set(rule: Option<Mutation>) {
        BROKEN.store(rule.map_or(0, |rule| rule as u8), Ordering::Relaxed);
    }
}

#[cfg(feature = "mutations")]
pub use active::{is, set};

/// Whether the rule is broken: never in this build.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn is(_rule: Mutation) -> bool {
    false
}
