//! Rules that can be broken on purpose, to show that the tests notice.
//!
//! Only with the feature `mutations`, and only in builds with debug assertions: tests have both.
//! Otherwise [`is`] is a constant and compiles to nothing.

/// Whether a rule is broken: `broken!(SkipValidation)`. False in builds without breakable rules.
#[macro_export]
macro_rules! broken {
    ($rule:ident) => {
        $crate::mutation::is($crate::mutation::Mutation::$rule)
    };
}

pub(crate) use broken;

/// Declares the rules: for each, the violation, and the rule's name on a command line.
macro_rules! mutations {
    ($($(#[$doc:meta])+ $rule:ident $name:literal,)+) => {
        /// A rule to break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutation {
            $($(#[$doc])+ $rule,)+
        }

        impl Mutation {
            /// All rules.
            pub const ALL: &[Mutation] = &[$(Mutation::$rule),+];

            /// The rule's name on a command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutation::$rule => $name,)+
                }
            }
        }
    };
}

mutations! {
    /// A holder's lease counts from the arrival of the reply.
    LeaseFromArrival "lease-from-arrival",
    /// A candidate's time runs on through looks that fail.
    TimerThroughOutage "timer-through-outage",
    /// A candidate's time counts from the sending of its look.
    TimerFromLook "timer-from-look",
    /// A takeover ignores what is known to have been stored.
    IgnoreStored "ignore-stored",
    /// A takeover does not read a lane up to its seal: the lane ends where the standby had read.
    SealUnread "seal-unread",
    /// An incarnation begins with the epochs of the incarnation before.
    ReuseEpochs "reuse-epochs",
    /// The reader of a lane goes on behind a missing message.
    SkipHole "skip-hole",
    /// A member that joins fetches a base without a hold, and takes its place whatever was purged.
    HoldAfterBase "hold-after-base",
    /// Lanes are purged up to what the primary has, whatever the other members have.
    PurgePastBase "purge-past-base",
    /// A transaction is acknowledged before its own frame is durable.
    AckBeforeOwnFrame "ack-before-own-frame",
    /// Replay of a stream ends at its first dead record.
    StopAtFirstDead "stop-at-first-dead",
    /// A row takes its writer's stamp after the release.
    StampAfterRelease "stamp-after-release",
    /// The last batch of a stream counts as whole by its header.
    TornBatchIsWhole "torn-batch-is-whole",
    /// Records of all incarnations are judged by where the newest ends.
    DeadByNewestEnd "dead-by-newest-end",
    /// A writer does not depend on the readers of the overwritten rows.
    SkipReadFold "skip-read-fold",
    /// A reader is acknowledged before the versions read are durable.
    AckReadersAtOnce "ack-readers-at-once",
    /// Changes of transactions with a lost record are not undone.
    SkipUndo "skip-undo",
    /// Files are removed before the manifest says so.
    TruncateBeforeManifest "truncate-before-manifest",
    /// A checkpoint counts although the log is not yet durable up to its cut.
    ValidBeforeFrontier "valid-before-frontier",
    /// Rows overwritten during a checkpoint are not saved for the checkpoint.
    NoCopyOnWrite "no-copy-on-write",
    /// A writer of a checkpoint that finds no more rows takes the saved rows for the last time,
    /// while other writers still scan.
    SavedTakenEarly "saved-taken-early",
    /// A checkpoint does not wait for transactions of its epochs still in installation.
    NoWaitForCommits "no-wait-for-commits",
    /// A record in the checkpoint is replayed as well.
    ReplayBelowCut "replay-below-cut",
    /// Checkpoint blocks have no maximum length, and the checkpoint is not read back.
    LongBlocks "long-blocks",
    /// The manifest names a checkpoint not read back.
    AdoptedUnread "adopted-unread",
    /// The frontier is raised before a batch is written and synced.
    AckBeforeSync "ack-before-sync",
    /// A write to non-volatile memory does not flush its last cache line.
    LeaveLastLine "leave-last-line",
    /// A position counts as durable once it is in the file, though the remote may not have it.
    RaiseAtLocalSync "raise-at-local-sync",
    /// A transaction that only read is acknowledged although the lease of answers has run out.
    AnswerUnchecked "answer-unchecked",
    /// The writer of a lane whose message was refused sends again without a look for a later
    /// incarnation.
    BlindResume "blind-resume",
    /// What anchors of other streams state counts for the files of a standby.
    ForeignStatements "foreign-statements",
    /// Frames behind the end of an incarnation by the replicated log are recovered.
    KeepGhostTail "keep-ghost-tail",
    /// An incarnation begins where the files end, not where the replicated log says.
    StartAtOwnEnd "start-at-own-end",
    /// A standby reports the end of what was received, not what an opening finds after a crash.
    ReportUnsynced "report-unsynced",
    /// A standby truncates up to a segment whose header may be in the page cache only.
    TrustFoundSegment "trust-found-segment",
    /// A failed sync is retried, and trusted if the retry succeeds.
    RetryFailedSync "retry-failed-sync",
    /// An optimistic transaction does not validate the rows read.
    SkipValidation "skip-validation",
    /// A transaction does not validate the sums read.
    SkipSums "skip-sums",
    /// The validation of a sum ignores writers that have locked rows and not installed these.
    IgnoreSumWriters "ignore-sum-writers",
    /// The counts of scanned rows enter the sum index after the validation of the scan.
    ProposeSumLate "propose-sum-late",
    /// Counts are read from the sum index before the validation of the scan that found them.
    ReadUnprovenSum "read-unproven-sum",
    /// A sum read from a node that was dropped counts as unchanged.
    ReadDroppedSum "read-dropped-sum",
    /// A writer leaves no stamp in the sums changed by the writer.
    SumWithoutStamp "sum-without-stamp",
    /// Counts of scanned rows enter the sum index without the stamps of the rows and gaps.
    UnstampedSum "unstamped-sum",
    /// A command leaves no stamp in the sums read by the command.
    SkipSumReaders "skip-sum-readers",
    /// The stamps of readers are lost with a dropped node of a sum index.
    ForgetSumReaders "forget-sum-readers",
    /// An optimistic transaction does not validate the scanned gaps.
    SkipGaps "skip-gaps",
    /// Replay installs an image although the row has a later version.
    ApplyOlder "apply-older",
    /// Replay applies changed columns to whatever version the row has.
    ApplyToAnyVersion "apply-to-any-version",
    /// A watermark of replay passes a parked record.
    SkipParkedRecord "skip-parked-record",
    /// A row's LSN vectors are evicted and their slot is reused before its transactions are
    /// durable.
    EvictBeforeDurable "evict-before-durable",
    /// The tail read by recovery beyond the proven end of a stream is not made durable again.
    TrustTail "trust-tail",
    /// Visible directory entries are relied on without a sync of the directory.
    TrustDirectoryEntries "trust-directory-entries",
    /// A sleeper reads the sequence of an event after announcing itself.
    LateSequence "late-sequence",
    /// The watermark of a stream counts before the frame with the watermark is durable.
    MarkInMemory "mark-in-memory",
    /// A transaction with a number waits only for the watermark of its own stream.
    OwnMarkOnly "own-mark-only",
    /// A transaction of Plover waits only for the marks of the touched partitions.
    TouchedMarksOnly "touched-marks-only",
    /// An epoch is closed although transactions of the epoch are still committing.
    CloseOpenEpochs "close-open-epochs",
    /// The number of a transaction is not above the numbers of the versions read.
    ForgetReadNumbers "forget-read-numbers",
    /// Epochs start anew in each incarnation.
    RestartEpochs "restart-epochs",
    /// The first writer to a table does not depend on its readers without a read stamp.
    ForgetUnmarkedReaders "forget-unmarked-readers",
    /// A panic of a transaction's body is passed on without validating the body's reads.
    RethrowUnvalidated "rethrow-unvalidated",
    /// A starving transaction is retried concurrently with other transactions, forever, never run
    /// alone.
    NoExclusiveRetry "no-exclusive-retry",
    /// Under timestamp order a checkpoint closes the epoch of a transaction run alone.
    CloseEpochsOfStarving "close-epochs-of-starving",
    /// The writes of a replayed command are not compared with the writes of its first run.
    ForgetOutcomes "forget-outcomes",
    /// Replay of data records removes tombstones although earlier versions of the rows may come.
    ForgetUnsettledTombstones "forget-unsettled-tombstones",
    /// Each sweep examines a few garbage items, at any number of items, and pauses at a locked
    /// item.
    SweepHeldUp "sweep-held-up",
    /// The garbage left at the end of a session is forgotten.
    ForgetLeftBehind "forget-left-behind",
    /// The vectors of a row without a free slot are not kept in the common slot.
    DropCommonSlotVectors "drop-common-slot-vectors",
    /// A waiter for any of several streams is woken only by the first stream.
    WaitForOneLane "wait-for-one-lane",
    /// Streams are compared by backlog in bytes, regardless of the speed of the devices.
    BacklogInBytes "backlog-in-bytes",
    /// A session waits for room in its stream although another stream has room.
    WaitInFullStream "wait-in-full-stream",
    /// A snapshot is read before the transactions of the snapshot are installed.
    SnapshotWithoutWait "snapshot-without-wait",
    /// Versions overwritten during an open snapshot are not kept.
    ForgetOverwritten "forget-overwritten",
    /// An index entry is removed although a snapshot holds a matching version of its row.
    UnlinkNeededEntries "unlink-needed-entries",
    /// A deleted row held by a snapshot leaves its index before the row is in the kept tree.
    LeaveBeforeKept "leave-before-kept",
    /// A reader of a snapshot does not look for rows removed from the indexes and kept for the
    /// snapshot.
    OverlookKept "overlook-kept",
    /// A transaction ordered before an earlier commit is logged as a command.
    LateCommands "late-commands",
    /// A transaction is ordered before a commit of an earlier epoch than its own.
    LateAcrossEpochs "late-across-epochs",
    /// An insertion takes no timestamp above the timestamps of transactions with an unsuccessful
    /// read of the key.
    GapsWithoutTimestamps "gaps-without-timestamps",
    /// Under wait-die a transaction waits for an older transaction.
    YoungerWaits "younger-waits",
    /// Under wait-die a transaction does not lock the gap in which it misses a key.
    MissWithoutLock "miss-without-lock",
    /// Under wait-die a gap becomes part of another gap while a transaction has locked it.
    MergeLockedGaps "merge-locked-gaps",
    /// Under wait-die the part of a gap that is split off is not held by the splitting reader.
    ForgetSplitOff "forget-split-off",
    /// Under wait-die a transaction has a new timestamp at each attempt.
    DrawTimestampAnew "draw-timestamp-anew",
    /// A transaction takes its read timestamp before announcing a timestamp.
    ReadBeforeAnnouncing "read-before-announcing",
    /// A transaction draws its commit timestamp before announcing the draw.
    DrawBeforeSaying "draw-before-saying",
    /// A version is not kept for a reader with only a bound announced.
    BoundAsTimestamp "bound-as-timestamp",
    /// A version kept as changed words alone loses the row of the words.
    LeavePartsBehind "leave-parts-behind",
    /// A version is not kept for transactions with an earlier read timestamp.
    OverlookReaders "overlook-readers",
    /// A reader takes the version in place, although a preparing transaction overwrites the version
    /// before.
    OverlookPreparing "overlook-preparing",
    /// A transaction does not wait for the commits it depends on.
    ForgetDependencies "forget-dependencies",
    /// A version read is valid while in place, although a preparing transaction overwrites the
    /// version.
    ValidateInPlaceOnly "validate-in-place-only",
    /// A transaction overwrites a version newer than its read timestamp.
    OverwriteNewer "overwrite-newer",
    /// A tombstone, or an index entry, is removed although a transaction reads an earlier version.
    UnlinkForReaders "unlink-for-readers",
    /// Under snapshot isolation a transaction with a beginning and a commit in different epochs is
    /// logged as a command.
    StraddlingCommands "straddling-commands",
    /// A reader looks for an earlier writer of a row before marking the row as read.
    LookBeforeReadMark "look-before-read-mark",
    /// A row read by a later transaction is overwritten.
    OverwriteReadLater "overwrite-read-later",
    /// A marked, unwritten row counts as not read.
    MarkedWithoutReader "marked-without-reader",
    /// A transaction commits in an epoch closed by a snapshot or a checkpoint.
    CommitInClosedEpoch "commit-in-closed-epoch",
    /// A cut mark is made although transactions of the mark's epoch are still committing.
    MarkEarly "mark-early",
    /// The positions from which a cut mark's next round reads are noted after the end of the epoch.
    MarkFromLate "mark-from-late",
    /// A round of a follower replays records of epochs after the mark.
    ApplyLaterEpoch "apply-later-epoch",
    /// The image of a follower does not save the rows that rounds overwrite meanwhile.
    ImageInRound "image-in-round",
    /// A round of a follower does not keep the versions read by open readers.
    ForgetServed "forget-served",
    /// The readers of a follower are not ended when the follower becomes primary.
    ServeAfterPromotion "serve-after-promotion",
    /// A transaction commits although versions are no longer kept for the transaction.
    CommitAfterEnded "commit-after-ended",
    /// Replay forgets versions read by later records.
    ForgetAboveFloor "forget-above-floor",
    /// Under snapshot isolation a unique key is looked for as of the snapshot alone.
    UniqueAsOfSnapshot "unique-as-of-snapshot",
    /// Reads valid at the draft of a version are not validated again if the version is drawn in a
    /// later epoch, which takes longer.
    LateVersions "late-versions",
    /// A transaction does not depend on the version of a removed row after an unsuccessful read.
    ForgetRemoved "forget-removed",
    /// Under predecessor lists, a row read and then overwritten counts as not read.
    OverwrittenAsUnread "overwritten-as-unread",
    /// Replay takes a record for dead if a record only overwritten by it, and not read, is lost.
    NeedOverwritten "need-overwritten",
    /// Replay takes a record for live although a record read from is dead.
    ForgetDeadPredecessors "forget-dead-predecessors",
    /// A replayed command sees the newest version of a row, regardless of the command's list.
    SeeUnlistedVersions "see-unlisted-versions",
    /// Replay drops a version although commands of its epoch, and of the next two, are still due.
    DropVersionsOfOpenEpochs "drop-versions-of-open-epochs",
    /// A list leaves out durable versions, though no anchor states their durability.
    LeaveOutUnanchored "leave-out-unanchored",
    /// An access outside of a transaction's partitions is not refused.
    UncheckedPartitions "unchecked-partitions",
    /// A transaction leaves its stamp in the first of its partitions only.
    StampHomeOnly "stamp-home-only",
    /// A transaction leaves no stamp in partitions only read.
    StampWrittenOnly "stamp-written-only",
    /// A transaction hands its partitions on before installing its rows.
    HandOnBeforeInstall "hand-on-before-install",
    /// A transaction hands its partitions on before placing its frames.
    HandOnBeforeFrames "hand-on-before-frames",
    /// A transaction enters its next queue while its predecessor has still to enter some queues.
    OvertakeInQueues "overtake-in-queues",
    /// A call logged before its run enters its queues once logged, without a latch.
    EnterAfterLogging "enter-after-logging",
    /// A call logged before its run is acknowledged by its own record alone.
    AckByOwnFrameAlone "ack-by-own-frame-alone",
    /// A cut does not wait for logged calls not yet run.
    CutWithoutQueued "cut-without-queued",
    /// An abort of a replayed call stops recovery.
    RefuseAborts "refuse-aborts",
    /// To state its watermark, a flusher waits for a thread drawing a number.
    FlusherWaitsForNumber "flusher-waits-for-number",
    /// A transaction does not follow its predecessor in the session's order.
    ForgetSessionOrder "forget-session-order",
    /// The server replies before a transaction is acknowledged.
    ReplyBeforeAdmitted "reply-before-admitted",
    /// The server delivers messages before earlier transactions of the sender are acknowledged.
    PublishEarly "publish-early",
    /// The server replies at once to read-only commands, durable or not.
    ReadWithoutNeeds "read-without-needs",
    /// A command waiting for an element runs twice once the element is there.
    PopTwice "pop-twice",
    /// The segments removed by a truncation are archived after the truncation of the log.
    TruncateUnarchived "truncate-unarchived",
    /// Copies in an archive are not synced before the log is truncated.
    ArchiveUnsynced "archive-unsynced",
    /// The list of an archive is written after the truncation of the log.
    ListAfterTruncation "list-after-truncation",
    /// An opening does not note in the archive where the last incarnation has ended.
    OpenUnnoted "open-unnoted",
    /// An archived stream truncated without the archive meanwhile counts as archived throughout.
    KeepBehindGap "keep-behind-gap",
    /// A log read on from a copy begins where the later part begins, regardless of a gap.
    JoinOverGap "join-over-gap",
    /// A client's connection to one boot of a data server goes on with the next boot.
    AttachToAnyBoot "attach-to-any-boot",
    /// A boot of a data server is asked before the kept operations are applied there.
    AskBeforeReturned "ask-before-returned",
    /// The client of a data server keeps an operation only once the operation is applied.
    KeepOnceApplied "keep-once-applied",
    /// Operations applied during a checkpoint of a data server are forgotten with the checkpoint.
    ForgetAppliedSince "forget-applied-since",
    /// Kept operations are forgotten before the checkpoint of the data server is stable.
    ForgetUnstable "forget-unstable",
    /// A data server answers a client although another client has taken the place.
    ServeDisplaced "serve-displaced",
    /// A client of a data server takes the place during a request of the client before.
    JoinAmidRequest "join-amid-request",
    /// A client returns to a data server although another client has the place.
    ReturnToTakenPlace "return-to-taken-place",
    /// A client returns to a data server with a resume point of a later incarnation.
    ReturnToLaterPoint "return-to-later-point",
    /// A client notes the incarnation of its resume point once the point is stable.
    RaiseIncarnationLate "raise-incarnation-late",
    /// A transaction component reads past the version of an older, unfinished transaction.
    ReadPastUnfinished "read-past-unfinished",
    /// A transaction component notes only reads of the newest version.
    NoteNewestReadsOnly "note-newest-reads-only",
    /// A transaction component lets a transaction write a key read by a younger transaction.
    WriteBelowRead "write-below-read",
    /// A transaction component lets a transaction write a key scanned over by a younger
    /// transaction.
    WriteBelowScan "write-below-scan",
    /// A transaction component forgets a scan although an older transaction is active.
    ForgetScans "forget-scans",
    /// A transaction does not depend on its scans' results from the data component.
    ForgetScanned "forget-scanned",
    /// A scan with an early end is noted only up to before the last returned key.
    NoteBelowLast "note-below-last",
    /// A scan is noted after its read.
    NoteAfterScan "note-after-scan",
    /// A scan takes the keys of the version table after the keys of the data component.
    ScanDataFirst "scan-data-first",
    /// A key of the version table without versions left counts as absent in a scan.
    SkipEvictedInScan "skip-evicted-in-scan",
    /// A record leaves the version table without a trace of the time of its last read.
    EvictWithoutFloor "evict-without-floor",
    /// A record leaves the version table before the data component holds its versions.
    EvictUnapplied "evict-unapplied",
    /// A transaction reads any version held by the data component.
    FetchAnyVersion "fetch-any-version",
    /// A transaction depends on transactions read from, and not on their dependencies.
    DirectDependenciesOnly "direct-dependencies-only",
    /// A transaction depends on its own record only.
    NoDependencies "no-dependencies",
    /// Operations reach the data component before durability.
    ApplyUndurable "apply-undurable",
    /// A resume point is taken to be the end of the log seen by the proxy.
    ResumeBehindWaiting "resume-behind-waiting",
    /// Deleted keys are forgotten although redo may write to the keys.
    ForgetAboveResumePoint "forget-above-resume-point",
    /// A long snapshot begins below what has been applied.
    CutBelowApplied "cut-below-applied",
    /// A long snapshot begins before all transactions below its cut are applied.
    CutBeforeApplied "cut-before-applied",
    /// The proxy applies records above a cut while the cut is taken.
    ApplyAboveCut "apply-above-cut",
    /// A record applied before an earlier record of its stream counts as passed by the resume
    /// point.
    PassOverUnnoted "pass-over-unnoted",
    /// Redo applies records with a lost dependency.
    RedoDeadRecords "redo-dead-records",
    /// Redo takes the last operation met on a key, not the operation with the highest timestamp.
    RedoByArrival "redo-by-arrival",
    /// Redo begins before the recovered tail is durable.
    RedoUnprovenTail "redo-unproven-tail",
    /// A claim of a key not written by a transaction stays at the transaction's commit.
    KeepClaims "keep-claims",
    /// A log is opened with a data component with operations younger than the log.
    OpenOlderLog "open-older-log",
    /// An opening makes no resume point stable that names its incarnation.
    OpenWithoutPoint "open-without-point",
    /// A record leaving the version table keeps its last read, not its last write.
    FloorOfReadsOnly "floor-of-reads-only",
    /// A resume point may be behind the first part of an unapplied transaction.
    ResumeBetweenParts "resume-between-parts",
    /// A batch counts as applied when the first of several threads has applied its piece.
    CountFirstPiece "count-first-piece",
    /// A fetched version enters the version table, regardless of evictions meanwhile.
    EnterLateFetch "enter-late-fetch",
    /// A transaction joins a fetch, regardless of evictions since the fetch began.
    JoinAnyFetch "join-any-fetch",
    /// A transaction draws its timestamp before announcing a bound.
    DrawFirst "draw-first",
    /// A version counts as applied before the data component has the version.
    CountBeforeApplied "count-before-applied",
    /// An entry of the transaction table is used again before the transaction is durable.
    ReuseUndurable "reuse-undurable",
}

impl Mutation {
    /// Whether the rule is of checkpoints; separate tests break rules of checkpoints.
    pub fn is_of_checkpoints(self) -> bool {
        let of_checkpoints = Mutation::TruncateBeforeManifest as u8..=Mutation::AdoptedUnread as u8;
        of_checkpoints.contains(&(self as u8))
    }

    /// Whether the rule is of sum indexes, which torture does not use.
    pub fn is_of_sums(self) -> bool {
        let of_sums = Mutation::SkipSums as u8..=Mutation::ForgetSumReaders as u8;
        of_sums.contains(&(self as u8))
    }

    /// Whether the rule is of the server; the server has its own torture.
    pub fn is_of_server(self) -> bool {
        let of_server = Mutation::ForgetSessionOrder as u8..=Mutation::PopTwice as u8;
        of_server.contains(&(self as u8))
    }

    /// Whether the rule is of archives of the log; tests of the engine's archives break the rule.
    pub fn is_of_archives(self) -> bool {
        let of_archives = Mutation::TruncateUnarchived as u8..=Mutation::JoinOverGap as u8;
        of_archives.contains(&(self as u8))
    }

    /// Whether the rule is of a data component at a server, which has tests of its own.
    pub fn is_of_remote_data(self) -> bool {
        let of_remote = Mutation::AttachToAnyBoot as u8..=Mutation::RaiseIncarnationLate as u8;
        of_remote.contains(&(self as u8))
    }

    /// Whether the rule is of the transaction component; the component has its own torture.
    pub fn is_of_transaction_component(self) -> bool {
        self as u8 >= Mutation::ReadPastUnfinished as u8
    }
}

#[cfg(all(feature = "mutations", debug_assertions))]
mod active {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// The broken rule of the process, counted from 1; 0 for none. Set before any database is
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

/// Refuses to break a rule: the build has no breakable rules.
///
/// # Panics
/// Always.
#[cfg(all(feature = "mutations", not(debug_assertions)))]
pub fn set(_rule: Option<Mutation>) {
    panic!("rules can be broken in builds with debug assertions only");
}

/// Whether the rule is broken: never in the present build.
#[cfg(not(all(feature = "mutations", debug_assertions)))]
#[inline(always)]
pub const fn is(_rule: Mutation) -> bool {
    false
}
