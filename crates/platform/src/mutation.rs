//! Rules that can be broken on purpose, to show that the tests notice.
//!
//! Only with the feature `mutations`, and only in builds with debug assertions: tests have both.
//! Otherwise [`is`] is a constant and compiles to nothing.

/// Whether a rule is broken: `broken!(SkipValidation)`. False in builds that cannot break rules.
#[macro_export]
macro_rules! broken {
    ($rule:ident) => {
        $crate::mutation::is($crate::mutation::Mutation::$rule)
    };
}

pub(crate) use broken;

/// Declares the rules: for each, what is broken, and its name on a command line.
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
    /// A writer does not depend on the readers of the rows that it overwrites.
    SkipReadFold "skip-read-fold",
    /// A reader is acknowledged before what it read is durable.
    AckReadersAtOnce "ack-readers-at-once",
    /// Changes of transactions whose record is lost are not undone.
    SkipUndo "skip-undo",
    /// Files are removed before the manifest says so.
    TruncateBeforeManifest "truncate-before-manifest",
    /// A checkpoint counts although the log is not yet durable up to its cut.
    ValidBeforeFrontier "valid-before-frontier",
    /// Rows that are overwritten during a checkpoint are not saved for it.
    NoCopyOnWrite "no-copy-on-write",
    /// A checkpoint does not wait for transactions of its epochs that are still installing.
    NoWaitForCommits "no-wait-for-commits",
    /// A record that is in the checkpoint is replayed as well.
    ReplayBelowCut "replay-below-cut",
    /// Checkpoint blocks have no maximum length, and the checkpoint is not read back.
    LongBlocks "long-blocks",
    /// The manifest names a checkpoint that was not read back.
    AdoptedUnread "adopted-unread",
    /// The frontier is raised before a batch is written and synced.
    AckBeforeSync "ack-before-sync",
    /// A failed sync is retried, and trusted if it then succeeds.
    RetryFailedSync "retry-failed-sync",
    /// An optimistic transaction does not validate the rows that it read.
    SkipValidation "skip-validation",
    /// An optimistic transaction does not validate the gaps that it scanned.
    SkipGaps "skip-gaps",
    /// Replay installs an image although the row has a later version.
    ApplyOlder "apply-older",
    /// Replay applies changed columns to whatever version the row has.
    ApplyToAnyVersion "apply-to-any-version",
    /// A watermark of replay passes a record that is parked.
    SkipParkedRecord "skip-parked-record",
    /// A row's LSN vectors are evicted and their slot is reused before its transactions are
    /// durable.
    EvictBeforeDurable "evict-before-durable",
    /// What recovery read beyond the proven end of a stream is not made durable again.
    TrustTail "trust-tail",
    /// Directory entries that are seen are relied on without a sync of their directory.
    TrustDirectoryEntries "trust-directory-entries",
    /// A sleeper reads the sequence of an event after announcing itself.
    LateSequence "late-sequence",
    /// The watermark of a stream counts before the frame that states it is durable.
    MarkInMemory "mark-in-memory",
    /// A transaction with a number waits only for the watermark of its own stream.
    OwnMarkOnly "own-mark-only",
    /// A transaction of Plover waits only for the marks of the partitions that it touched.
    TouchedMarksOnly "touched-marks-only",
    /// An epoch is closed although transactions of it are still committing.
    CloseOpenEpochs "close-open-epochs",
    /// The number of a transaction is not above those of what it read.
    ForgetReadNumbers "forget-read-numbers",
    /// Epochs start anew in each incarnation.
    RestartEpochs "restart-epochs",
    /// The first writer to a table does not depend on its readers that left no read stamp.
    ForgetUnmarkedReaders "forget-unmarked-readers",
    /// A panic of a transaction's body is passed on without validating what the body read.
    RethrowUnvalidated "rethrow-unvalidated",
    /// A starving transaction is retried concurrently with others, forever, never run alone.
    NoExclusiveRetry "no-exclusive-retry",
    /// Under timestamp order a checkpoint closes the epoch of a transaction that runs alone.
    CloseEpochsOfStarving "close-epochs-of-starving",
    /// What a replayed command writes is not compared with what it wrote when it first ran.
    ForgetOutcomes "forget-outcomes",
    /// Replay of data records removes tombstones although earlier versions of their rows may come.
    ForgetUnsettledTombstones "forget-unsettled-tombstones",
    /// Each sweep examines a few garbage items, however many there are, and pauses at a locked one.
    SweepHeldUp "sweep-held-up",
    /// The garbage that a session leaves when it ends is forgotten.
    ForgetLeftBehind "forget-left-behind",
    /// The vectors of a row for which there is no free slot are not kept in the common slot.
    DropCommonSlotVectors "drop-common-slot-vectors",
    /// A waiter for any of several streams is woken only by the first of them.
    WaitForOneLane "wait-for-one-lane",
    /// Streams are compared by their backlog in bytes, regardless of the speed of their devices.
    BacklogInBytes "backlog-in-bytes",
    /// A session waits for room in its stream although another stream has room.
    WaitInFullStream "wait-in-full-stream",
    /// A snapshot is read before the transactions that it holds are installed.
    SnapshotWithoutWait "snapshot-without-wait",
    /// What is overwritten while a snapshot is open is not kept.
    ForgetOverwritten "forget-overwritten",
    /// An index entry is removed although a snapshot holds a version of its row that it matches.
    UnlinkNeededEntries "unlink-needed-entries",
    /// A deleted row that a snapshot holds leaves its index before it is in the kept tree.
    LeaveBeforeKept "leave-before-kept",
    /// A reader of a snapshot does not look for what has left the indexes and is kept for it.
    OverlookKept "overlook-kept",
    /// A transaction that precedes what has committed before it is logged as a command.
    LateCommands "late-commands",
    /// A transaction precedes what has committed in an earlier epoch than its own.
    LateAcrossEpochs "late-across-epochs",
    /// An insertion takes no timestamp above those of the transactions that have missed its key.
    GapsWithoutTimestamps "gaps-without-timestamps",
    /// A transaction takes the timestamp that it reads as of before it announces one.
    ReadBeforeAnnouncing "read-before-announcing",
    /// A transaction draws the timestamp of its commit before it says that it will.
    DrawBeforeSaying "draw-before-saying",
    /// A version is not kept for a reader that has announced a bound only.
    BoundAsTimestamp "bound-as-timestamp",
    /// What is kept as changed words alone loses the row that these belong to.
    LeavePartsBehind "leave-parts-behind",
    /// A version is not kept for transactions that read as of an earlier timestamp.
    OverlookReaders "overlook-readers",
    /// A reader takes the version in place, although one that prepares overwrites it before.
    OverlookPreparing "overlook-preparing",
    /// What was read is valid while it is in place, although one that prepares overwrites it.
    ValidateInPlaceOnly "validate-in-place-only",
    /// A transaction overwrites a version that is newer than what it reads.
    OverwriteNewer "overwrite-newer",
    /// A tombstone, or an index entry, is removed although a transaction reads what was before.
    UnlinkForReaders "unlink-for-readers",
    /// Under snapshot isolation a transaction that begins and commits in different epochs is logged
    /// as a command.
    StraddlingCommands "straddling-commands",
    /// A reader looks for an earlier writer of a row before it marks the row as read.
    LookBeforeReadMark "look-before-read-mark",
    /// A row that a later transaction has read is overwritten.
    OverwriteReadLater "overwrite-read-later",
    /// A row that is marked and not written counts as not read.
    MarkedWithoutReader "marked-without-reader",
    /// A transaction commits in an epoch that a snapshot or a checkpoint has closed.
    CommitInClosedEpoch "commit-in-closed-epoch",
    /// A transaction commits although nothing was kept for it any more.
    CommitAfterEnded "commit-after-ended",
    /// Replay forgets versions that records to come read.
    ForgetAboveFloor "forget-above-floor",
    /// Under snapshot isolation a unique key is looked for as of the snapshot alone.
    UniqueAsOfSnapshot "unique-as-of-snapshot",
    /// Reads that were valid when a version was drafted are not validated again if it is drawn in a
    /// later epoch, which takes longer.
    LateVersions "late-versions",
    /// A transaction does not depend on the version of what was removed where it finds nothing.
    ForgetRemoved "forget-removed",
    /// Under predecessor lists, a row that was read and then overwritten counts as not read.
    OverwrittenAsUnread "overwritten-as-unread",
    /// Replay takes a record for dead if one that it only overwrote is lost.
    NeedOverwritten "need-overwritten",
    /// Replay takes a record for live although one that it has read from is dead.
    ForgetDeadPredecessors "forget-dead-predecessors",
    /// A replayed command sees the newest version of a row, whatever its list names.
    SeeUnlistedVersions "see-unlisted-versions",
    /// Replay drops a version although commands of its epoch, and of the next two, are to come.
    DropVersionsOfOpenEpochs "drop-versions-of-open-epochs",
    /// A list leaves out what is durable, though no anchor states that.
    LeaveOutUnanchored "leave-out-unanchored",
    /// An access outside of the partitions that a transaction holds is not refused.
    UncheckedPartitions "unchecked-partitions",
    /// A transaction leaves its stamp in the first of its partitions only.
    StampHomeOnly "stamp-home-only",
    /// A transaction leaves no stamp in partitions that it has only read.
    StampWrittenOnly "stamp-written-only",
    /// A transaction hands its partitions on before it has installed its rows.
    HandOnBeforeInstall "hand-on-before-install",
    /// A transaction hands its partitions on before it has placed its frames.
    HandOnBeforeFrames "hand-on-before-frames",
    /// A transaction enters its next queue while its predecessor has still to enter some.
    OvertakeInQueues "overtake-in-queues",
    /// A call that is logged before it runs enters its queues once it is logged, without a latch.
    EnterAfterLogging "enter-after-logging",
    /// Such a call is acknowledged by its own record alone.
    AckByOwnFrameAlone "ack-by-own-frame-alone",
    /// A cut does not wait for such calls that have not run.
    CutWithoutQueued "cut-without-queued",
    /// A replayed call that aborts stops recovery.
    RefuseAborts "refuse-aborts",
    /// To state its watermark, a flusher waits for a thread that is drawing a number.
    FlusherWaitsForNumber "flusher-waits-for-number",
    /// A transaction does not follow the one before it in its session's order.
    ForgetSessionOrder "forget-session-order",
    /// The server replies before a transaction is acknowledged.
    ReplyBeforeAdmitted "reply-before-admitted",
    /// The server delivers messages before what their sender did before is acknowledged.
    PublishEarly "publish-early",
    /// The server replies at once to what only reads, whether that is durable or not.
    ReadWithoutNeeds "read-without-needs",
    /// A command that waits for an element runs twice when there is one.
    PopTwice "pop-twice",
    /// A transaction component reads past the version of an older transaction that has not ended.
    ReadPastUnfinished "read-past-unfinished",
    /// A transaction component notes only reads of the newest version.
    NoteNewestReadsOnly "note-newest-reads-only",
    /// A transaction component lets a key be written that a younger transaction has read.
    WriteBelowRead "write-below-read",
    /// A transaction component lets a key be written that a younger transaction has scanned over.
    WriteBelowScan "write-below-scan",
    /// A transaction component forgets a scan although an older transaction is active.
    ForgetScans "forget-scans",
    /// A transaction does not depend on what its scans have found in the data component.
    ForgetScanned "forget-scanned",
    /// A scan that ends early is noted only up to before the last key that it has returned.
    NoteBelowLast "note-below-last",
    /// A scan is noted after it has read.
    NoteAfterScan "note-after-scan",
    /// A scan takes the keys of the version table after those of the data component.
    ScanDataFirst "scan-data-first",
    /// A key of the version table whose versions have left it counts as absent in a scan.
    SkipEvictedInScan "skip-evicted-in-scan",
    /// A record leaves the version table without a trace of when it was read.
    EvictWithoutFloor "evict-without-floor",
    /// A record leaves the version table before the data component holds its versions.
    EvictUnapplied "evict-unapplied",
    /// A transaction reads what the data component holds, whichever version it is.
    FetchAnyVersion "fetch-any-version",
    /// A transaction depends on those it has read from, and not on what these depend on.
    DirectDependenciesOnly "direct-dependencies-only",
    /// A transaction depends on its own record only.
    NoDependencies "no-dependencies",
    /// Operations reach the data component before they are durable.
    ApplyUndurable "apply-undurable",
    /// A resume point is taken to be the end of what the proxy has seen.
    ResumeBehindWaiting "resume-behind-waiting",
    /// Deleted keys are forgotten although redo may write to them.
    ForgetAboveResumePoint "forget-above-resume-point",
    /// Redo applies records that depend on what is lost.
    RedoDeadRecords "redo-dead-records",
    /// Redo takes the last operation on a key that it meets, not that of the highest timestamp.
    RedoByArrival "redo-by-arrival",
    /// Redo begins before the recovered tail is durable.
    RedoUnprovenTail "redo-unproven-tail",
    /// A claim of a key that a transaction has not written stays when that commits.
    KeepClaims "keep-claims",
    /// A log is opened with a data component that holds what is younger than the log.
    OpenOlderLog "open-older-log",
    /// An opening makes no resume point stable that names its incarnation.
    OpenWithoutPoint "open-without-point",
    /// A record that leaves the version table keeps its last read, not its last write.
    FloorOfReadsOnly "floor-of-reads-only",
    /// A resume point may be behind the first part of a transaction that is not applied.
    ResumeBetweenParts "resume-between-parts",
    /// A batch counts as applied when the first of several threads has applied its piece.
    CountFirstPiece "count-first-piece",
    /// What was fetched enters the version table, whatever has left it meanwhile.
    EnterLateFetch "enter-late-fetch",
    /// A transaction joins a fetch, whatever has left the version table since that has begun.
    JoinAnyFetch "join-any-fetch",
    /// A transaction draws its timestamp before it announces a bound.
    DrawFirst "draw-first",
    /// A version counts as applied before the data component has it.
    CountBeforeApplied "count-before-applied",
    /// An entry of the transaction table is used again before its transaction is durable.
    ReuseUndurable "reuse-undurable",
}

impl Mutation {
    /// Whether it is a rule of checkpoints, which have their own tests that break it.
    pub fn is_of_checkpoints(self) -> bool {
        let of_checkpoints = Mutation::TruncateBeforeManifest as u8..=Mutation::AdoptedUnread as u8;
        of_checkpoints.contains(&(self as u8))
    }

    /// Whether it is a rule of the server, which has its own torture.
    pub fn is_of_server(self) -> bool {
        let of_server = Mutation::ForgetSessionOrder as u8..=Mutation::PopTwice as u8;
        of_server.contains(&(self as u8))
    }

    /// Whether it is a rule of the transaction component, which has its own torture.
    pub fn is_of_transaction_component(self) -> bool {
        self as u8 >= Mutation::ReadPastUnfinished as u8
    }
}

#[cfg(all(feature = "mutations", debug_assertions))]
mod active {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// The broken rule of this process, counted from 1; 0 for none. Set before any database is
    /// opened.
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

#[cfg(all(feature = "mutations", debug_assertions))]
pub use active::{is, set};

/// Breaks a rule, which this build cannot.
///
/// # Panics
/// Always.
#[cfg(all(feature = "mutations", not(debug_assertions)))]
pub fn set(_rule: Option<Mutation>) {
    panic!("rules can be broken in builds with debug assertions only");
}

/// Whether the rule is broken: never in this build.
#[cfg(not(all(feature = "mutations", debug_assertions)))]
#[inline(always)]
pub const fn is(_rule: Mutation) -> bool {
    false
}
