//! Rules that can be broken on purpose, to show that the tests miss them.
//!
//! Only with the feature `mutations`; without it [`is`] is a constant, and nothing of this is left in
//! a build.

/// Declares the rules once: each with what is broken, and its name on a command line.
macro_rules! mutations {
    ($($(#[$doc:meta])+ $rule:ident $name:literal,)+) => {
        /// A rule to break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutation {
            $($(#[$doc])+ $rule,)+
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Mutation] = &[$(Mutation::$rule),+];

            /// Its name on a command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutation::$rule => $name,)+
                }
            }
        }
    };
}

mutations! {
    /// A transaction is acknowledged before its own frame is durable.
    AckBeforeOwnFrame "ack-before-own-frame",
    /// Replay of a stream ends at its first dead record.
    StopAtFirstDead "stop-at-first-dead",
    /// A row takes its writer's stamp after it is released.
    StampAfterRelease "stamp-after-release",
    /// Records of all incarnations are judged by where the newest ends.
    DeadByNewestEnd "dead-by-newest-end",
    /// A writer does not follow those who read what it overwrites.
    SkipReadFold "skip-read-fold",
    /// A reader is acknowledged without what it read.
    AckReadersAtOnce "ack-readers-at-once",
    /// What was lost half-way is not undone.
    SkipUndo "skip-undo",
    /// Files are given up before the manifest says so.
    TruncateBeforeManifest "truncate-before-manifest",
    /// A checkpoint counts although the log is not yet durable up to its cut.
    ValidBeforeFrontier "valid-before-frontier",
    /// Rows that are overwritten while a checkpoint is being written are not saved for it.
    NoCopyOnWrite "no-copy-on-write",
    /// A checkpoint does not wait for transactions of its epochs that are still installing.
    NoWaitForCommits "no-wait-for-commits",
    /// A record that is in the checkpoint is replayed all the same.
    ReplayBelowCut "replay-below-cut",
    /// A block of a checkpoint takes whatever a stretch of the table holds, and nobody looks whether it can be read.
    LongBlocks "long-blocks",
    /// The manifest names a checkpoint that was not read back.
    AdoptedUnread "adopted-unread",
    /// The frontier is raised before a batch is written and synced.
    AckBeforeSync "ack-before-sync",
    /// A sync that failed is tried again, and believed when it succeeds.
    RetryFailedSync "retry-failed-sync",
    /// An optimistic transaction does not look whether what it read has changed.
    SkipValidation "skip-validation",
    /// An optimistic transaction does not look whether the gaps that it scanned are as they were.
    SkipGaps "skip-gaps",
    /// Replay installs an image although the row has a later version.
    ApplyOlder "apply-older",
    /// A watermark of replay passes a record that waits.
    PassParked "pass-parked",
    /// A row is taken for cold, and its slot is given out again, though who used it is not yet durable.
    EvictWarm "evict-warm",
    /// What recovery read beyond the proven end of a stream is not made durable again.
    BelieveTail "believe-tail",
    /// Names that are seen are relied on without a sync of their directory.
    BelieveNames "believe-names",
    /// A sleeper reads the sequence of an event after it has announced itself.
    LateSequence "late-sequence",
    /// The mark of a stream counts before the frame that states it is durable.
    MarkInMemory "mark-in-memory",
    /// A transaction with a number waits for the mark of its own stream alone.
    OwnMarkOnly "own-mark-only",
    /// An epoch is closed although transactions of it are still committing.
    CloseOpenEpochs "close-open-epochs",
    /// The number of a transaction is not above those of what it read.
    ForgetReadNumbers "forget-read-numbers",
    /// Epochs begin anew in each incarnation.
    RestartEpochs "restart-epochs",
    /// Who first writes to a table does not follow those who read it and left no mark.
    ForgetUnmarkedReaders "forget-unmarked-readers",
    /// A panic of a transaction's body is passed on without a look whether what the body saw was valid.
    RethrowUnvalidated "rethrow-unvalidated",
    /// A transaction that starves is run again beside all others, for ever.
    NeverAlone "never-alone",
    /// What a replayed command writes is not compared with what it wrote when it ran.
    ForgetOutcomes "forget-outcomes",
    /// However much there is to clear away, a few items are looked at, and one that is locked ends that for a while.
    SweepHeldUp "sweep-held-up",
    /// What a session that ends has still to clear away is forgotten.
    ForgetLeftBehind "forget-left-behind",
    /// A row for whose vectors there is no slot stands for what is cold.
    ForgetCommon "forget-common",
    /// Who waits for one of several streams is woken by the first of them alone.
    WaitForOneLane "wait-for-one-lane",
    /// Streams are compared by the bytes that wait for their devices, however long these take.
    BacklogInBytes "backlog-in-bytes",
    /// A session waits for room in its stream although another one has some.
    WaitInFullStream "wait-in-full-stream",
    /// A flusher waits for whoever draws a number, to state the mark, before it flushes.
    FlusherWaitsForNumber "flusher-waits-for-number",
}

impl Mutation {
    /// Whether it is a rule of checkpoints, which have tests of their own that break it.
    pub fn is_of_checkpoints(self) -> bool {
        let of_checkpoints = Mutation::TruncateBeforeManifest as u8..=Mutation::AdoptedUnread as u8;
        of_checkpoints.contains(&(self as u8))
    }
}

#[cfg(feature = "mutations")]
mod active {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// The broken rule of this process, counted from 1; 0 for none. Set before any database is opened.
    static BROKEN: AtomicU8 = AtomicU8::new(0);

    /// Whether the rule is broken.
    #[inline]
    pub fn is(rule: Mutation) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule as u8 + 1
    }

    /// Breaks a rule, or none, in the whole process.
    pub fn set(rule: Option<Mutation>) {
        BROKEN.store(rule.map_or(0, |rule| rule as u8 + 1), Ordering::Relaxed);
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
