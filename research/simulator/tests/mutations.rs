//! Tests the checks of torture: each rule of the engine, broken on purpose, must be found within a
//! minute.
#![allow(missing_docs)]
#![cfg(feature = "mutations")]

use hyades::Protocol;
use hyades_platform::mutation::{self, Mutation};
use hyades_schemes::{GSN, PHYSIOLOGICAL, PLOVER, SILO_R, TAURUS_2016};
use hyades_simulator::{Options, Scheduler, torture};
use std::time::{Duration, Instant};

/// Whether the rule belongs to partitioned execution.
fn is_of_partitions(rule: Mutation) -> bool {
    matches!(
        rule,
        Mutation::UncheckedPartitions
            | Mutation::StampHomeOnly
            | Mutation::StampWrittenOnly
            | Mutation::HandOnBeforeInstall
            | Mutation::HandOnBeforeFrames
            | Mutation::OvertakeInQueues
    )
}

/// Whether the rule belongs to Hekaton's concurrency control.
fn is_of_hekaton(rule: Mutation) -> bool {
    matches!(
        rule,
        Mutation::ReadBeforeAnnouncing
            | Mutation::DrawBeforeSaying
            | Mutation::BoundAsTimestamp
            | Mutation::LeavePartsBehind
            | Mutation::StraddlingCommands
            | Mutation::ForgetAboveFloor
            | Mutation::OverlookReaders
            | Mutation::OverlookPreparing
            | Mutation::ForgetDependencies
            | Mutation::ValidateInPlaceOnly
            | Mutation::OverwriteNewer
            | Mutation::UnlinkForReaders
            | Mutation::UniqueAsOfSnapshot
    )
}

/// Whether the rule belongs to two-phase locking that waits.
fn is_of_wait_die(rule: Mutation) -> bool {
    matches!(
        rule,
        Mutation::YoungerWaits
            | Mutation::MissWithoutLock
            | Mutation::MergeLockedGaps
            | Mutation::ForgetSplitOff
            | Mutation::DrawTimestampAnew
    )
}

/// Whether the rule belongs to calls that are logged before they run.
fn is_of_arrival(rule: Mutation) -> bool {
    matches!(
        rule,
        Mutation::EnterAfterLogging
            | Mutation::AckByOwnFrameAlone
            | Mutation::CutWithoutQueued
            | Mutation::RefuseAborts
    )
}

/// Whether another test breaks the rule.
fn is_broken_elsewhere(rule: Mutation) -> bool {
    // These rules only affect the duration of work: `slow_stream.rs` of the engine and the tests of
    // the counters break these rules.
    let of_speed = matches!(
        rule,
        Mutation::WaitForOneLane
            | Mutation::BacklogInBytes
            | Mutation::WaitInFullStream
            | Mutation::FlusherWaitsForNumber
    );
    of_speed
        || rule.is_of_server() // `clients_mutations.rs`
        || rule.is_of_sums() // `crates/hyades/tests/mutations/sums.rs`
        || (rule.is_of_checkpoints() && rule != Mutation::LongBlocks)
        || rule.is_of_transaction_component()
        // Needs a kill between two steps of the preparation of a file, and no sync of its directory
        // between the next opening and a power cut: `names.rs` tries each step.
        || rule == Mutation::TrustDirectoryEntries
        // These leave garbage, and no wrong answers: `crates/hyades/tests/garbage.rs`.
        || matches!(rule, Mutation::SweepHeldUp | Mutation::ForgetLeftBehind)
        // Histories run deterministic procedures only: `crates/hyades/tests/determinism.rs`.
        || rule == Mutation::ForgetOutcomes
        // Histories have too few rows to run out of slots: `crates/hyades/tests/crowded.rs`.
        || rule == Mutation::DropCommonSlotVectors
        // Few histories have a transaction that starves: `crates/hyades/tests/starvation.rs`.
        || matches!(rule, Mutation::NoExclusiveRetry | Mutation::CloseEpochsOfStarving)
        // Snapshots and garbage meet by luck: `crates/hyades/tests/mutations/snapshot.rs`.
        || matches!(rule, Mutation::SnapshotWithoutWait | Mutation::UnlinkNeededEntries)
        || matches!(rule, Mutation::LeaveBeforeKept | Mutation::OverlookKept)
        // Interleavings of a few transactions under one concurrency control:
        // `research/schemes/tests/mutations/tictoc.rs`.
        || matches!(
            rule,
            Mutation::LateCommands | Mutation::LateAcrossEpochs | Mutation::GapsWithoutTimestamps
        )
        || is_of_hekaton(rule) // the same: `crates/hyades/tests/mutations/hekaton.rs`
        // The same: `research/schemes/tests/mutations/timestamp_order.rs`.
        || matches!(
            rule,
            Mutation::LookBeforeReadMark
                | Mutation::OverwriteReadLater
                | Mutation::MarkedWithoutReader
                | Mutation::CommitInClosedEpoch
                | Mutation::CommitAfterEnded
        )
        // Under partitioned execution only: `research/schemes/tests/mutations/partitioned.rs`.
        || is_of_partitions(rule)
        || is_of_wait_die(rule) // `research/schemes/tests/mutations/wait_die.rs`
        // Torture does not log on arrival: `research/schemes/tests/mutations/arrival.rs`.
        || is_of_arrival(rule)
        // A few transactions have to meet: `research/schemes/tests/mutations/poplar.rs`.
        || matches!(rule, Mutation::ForgetRemoved | Mutation::LateVersions)
        || is_found_by_luck(rule)
        || is_seen_by_one_test(rule)
}

/// Rules that torture finds if threads happen to meet. Tests of the engine have the threads meet.
fn is_found_by_luck(rule: Mutation) -> bool {
    // In one history or in none of 250: `unwritten.rs`.
    rule == Mutation::ForgetUnmarkedReaders
        // A session evicts every 64 transactions, and a reader has to come before the next sync: in
        // one history or in none of 290. `slow_stream.rs`.
        || rule == Mutation::EvictBeforeDurable
}

/// Rules that torture cannot reach.
fn is_seen_by_one_test(rule: Mutation) -> bool {
    rule.is_of_remote_data() // `crates/deuteronomy-remote/tests/mutations.rs`
        || rule.is_of_archives() // `crates/hyades/tests/mutations/archive.rs`
        // Only rot shows the fault, in the last write of a stream: `mutations/taurus_2016.rs` of
        // the engine.
        || rule == Mutation::LeaveOutUnanchored
        // Few histories are in non-volatile memory: `crates/wal/tests/nvm.rs`.
        || rule == Mutation::LeaveLastLine
        // Torture has no replicated log: `crates/replication/tests/lanes.rs`.
        || matches!(rule, Mutation::RaiseAtLocalSync | Mutation::BlindResume)
        // Nor a lease: `crates/hyades/tests/mutations/lease.rs`, `replicated_mutations.rs`, and
        // `crates/replication/tests/lease_mutations.rs`.
        || matches!(rule, Mutation::AnswerUnchecked | Mutation::LeaseFromArrival)
        || matches!(rule, Mutation::TimerThroughOutage | Mutation::TimerFromLook)
        || matches!(rule, Mutation::IgnoreStored | Mutation::SealUnread)
        || matches!(rule, Mutation::ReuseEpochs | Mutation::SkipHole)
        || matches!(rule, Mutation::HoldAfterBase | Mutation::PurgePastBase)
        // Nor standbys: `crates/wal/tests/mirror`.
        || matches!(
            rule,
            Mutation::ForeignStatements
                | Mutation::KeepGhostTail
                | Mutation::StartAtOwnEnd
                | Mutation::ReportUnsynced
                | Mutation::TrustFoundSegment
        )
        // Torture has no followers: `crates/hyades/tests/following.rs`, `promotion.rs`.
        || matches!(rule, Mutation::MarkEarly | Mutation::MarkFromLate)
        || matches!(rule, Mutation::ApplyLaterEpoch | Mutation::ForgetServed)
        || rule == Mutation::ServeAfterPromotion
        || rule == Mutation::ImageInRound
        // The same, and `crates/hyades/tests/validation.rs`.
        || matches!(rule, Mutation::SkipGaps | Mutation::RethrowUnvalidated)
}

/// The protocol to which the rule applies, if there is only one.
fn protocol_of(rule: Mutation) -> Option<Protocol> {
    match rule {
        Mutation::CloseOpenEpochs => Some(SILO_R),
        Mutation::SkipUndo => Some(PHYSIOLOGICAL),
        Mutation::TouchedMarksOnly => Some(PLOVER),
        Mutation::MarkInMemory | Mutation::OwnMarkOnly | Mutation::ForgetReadNumbers => Some(GSN),
        Mutation::OverwrittenAsUnread
        | Mutation::NeedOverwritten
        | Mutation::ForgetDeadPredecessors
        | Mutation::SeeUnlistedVersions
        | Mutation::DropVersionsOfOpenEpochs
        | Mutation::LeaveOutUnanchored => Some(TAURUS_2016),
        Mutation::SkipReadFold
        | Mutation::ForgetUnmarkedReaders
        | Mutation::StopAtFirstDead
        | Mutation::DeadByNewestEnd
        | Mutation::SkipParkedRecord => Some(Protocol::Taurus),
        _ => None,
    }
}

/// The seed to begin with: for rules that few histories reach, a seed of such a history. Beginning
/// with 1 takes minutes (docs/reliability.md), for a known result.
fn first_seed(rule: Mutation) -> u64 {
    match rule {
        Mutation::LongBlocks => 250,
        Mutation::RetryFailedSync => 33,
        Mutation::OverwrittenAsUnread | Mutation::NeedOverwritten => 26,
        Mutation::ForgetDeadPredecessors => 41,
        _ => 1,
    }
}

/// Promise: torture finds each broken rule. The broken rule is global to the process, so all are in
/// one test. If `HYADES_MUTATION` is the name of a rule, only that rule is broken.
#[test]
fn each_broken_rule_is_found_within_a_minute() {
    let only = std::env::var("HYADES_MUTATION").ok();
    let keep = tempfile::tempdir().unwrap();
    // On a busy machine a minute may be too short.
    let seconds = std::env::var("HYADES_MUTATION_SECONDS").map_or(60.0, |s| s.parse().unwrap());
    for &rule in Mutation::ALL {
        let wanted = only.as_ref().map_or(!is_broken_elsewhere(rule), |only| only == rule.name());
        if !wanted {
            continue;
        }
        mutation::set(Some(rule));
        let options = Options {
            seconds,
            seed: first_seed(rule),
            lying_sync: false,
            scheduler: Scheduler::Both,
            protocol: protocol_of(rule),
            // A lost wake-up shows as a hang, so the bound must be below the duration of the test.
            hangs_after: Duration::from_secs(40),
            shrink_for: Duration::ZERO,
            keep: keep.path().to_owned(),
        };
        let began = Instant::now();
        let found = torture(&options, |line| eprintln!("{}: {line}", rule.name())).unwrap();
        mutation::set(None);
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("{}: after {seconds:.1} s {:?}", rule.name(), found.report);
        assert!(!found.report.is_sound(), "{} goes unnoticed: {:?}", rule.name(), found.report);
    }
}
