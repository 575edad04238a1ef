//! Rules of the transaction component, each broken on purpose, are noticed by the torture.
#![allow(missing_docs)]

#[path = "common/between.rs"]
mod between;
#[path = "common/claims.rs"]
mod claims;
#[path = "common/cuts.rs"]
mod cuts;
#[path = "common/late_fetch.rs"]
mod late_fetch;
#[path = "common/mixtures.rs"]
mod mixtures;
#[path = "common/older_stream.rs"]
mod older_stream;

use between::{At, inserts_behind_a_scan, misses_what_is_being_applied, misses_what_moves};
use hyades_deuteronomy::torture::{
    LifeCounts, MemoryStore, WrongCounts, WrongLife, live, watch_clock,
};
use hyades_deuteronomy::{MemoryData, Transaction};
use hyades_platform::broken;
use hyades_platform::mutation::{self, Mutation};
use late_fetch::{BeforeEnd, reads_around_a_late_fetch};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The fault noticed with `seed`.
fn wrong(seed: u64) -> Option<WrongLife> {
    let run = || live(seed, &mut MemoryStore::default(), &mut LifeCounts::default());
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(judged) => judged.err(),
        Err(_) => Some(WrongLife::diverged("a rule that is asserted is broken".to_string())),
    }
}

/// Whether a transaction is recovered without the row found by its scan.
fn without_what_it_has_scanned() -> bool {
    let scan = |tx: &mut Transaction<'_>| {
        assert_eq!(tx.scan(Bound::Unbounded, Bound::Unbounded, 9).unwrap().len(), 1);
    };
    older_stream::recovered_from_older(scan) == (false, true)
}

/// Whether the clock has missed an active transaction. With the rule broken, a miss is a matter of
/// time.
fn misses_an_active_one() -> bool {
    let seconds = if broken!(DrawFirst) { 60 } else { 1 };
    watch_clock(Duration::from_secs(seconds)).missed.is_some()
}

/// Whether a long snapshot differs from the commits up to its timestamp. With the rule broken, a
/// difference is a matter of time.
fn cuts_differ() -> bool {
    let time = Duration::from_secs(if broken!(ApplyAboveCut) { 3 } else { 1 });
    cuts::differs_from_commits(Arc::new(MemoryData::new()), 0, time).1.is_some()
}

/// Returns the test for a broken rule not shown by lives.
fn has_own_test(rule: Mutation) -> Option<fn() -> bool> {
    match rule {
        // No crash loses synced bytes: a copy of the log does.
        Mutation::ForgetScanned => Some(without_what_it_has_scanned),
        // In lives nothing happens in the middle of a scan: a life has a single thread.
        Mutation::NoteAfterScan => Some(|| inserts_behind_a_scan(At::End)),
        Mutation::ScanDataFirst | Mutation::SkipEvictedInScan => {
            Some(|| misses_what_moves(At::End))
        }
        // Nor in the middle of a fetch, of a draw, or of a batch.
        Mutation::EnterLateFetch => {
            Some(|| reads_around_a_late_fetch(BeforeEnd::Abort)[2].is_none())
        }
        Mutation::JoinAnyFetch => Some(|| reads_around_a_late_fetch(BeforeEnd::Read)[1].is_none()),
        // In lives nothing happens between two attempts at a cut.
        Mutation::ApplyAboveCut => Some(cuts_differ),
        Mutation::DrawFirst => Some(misses_an_active_one),
        // Lives run each transaction once.
        Mutation::KeepClaims => Some(claims::loses_what_was_claimed),
        // A log and a data component die together: copies of different times are mixed.
        Mutation::OpenOlderLog => Some(mixtures::accepts_a_log_that_is_older),
        Mutation::OpenWithoutPoint => Some(mixtures::accepts_a_log_of_an_earlier_opening),
        Mutation::CountBeforeApplied => Some(misses_what_is_being_applied),
        _ => None,
    }
}

/// Rules of the log: with these rules broken an opening is refused, or something comes back.
const OF_LOG: [Mutation; 4] = [
    Mutation::TruncateBeforeManifest,
    Mutation::AckBeforeSync,
    Mutation::TrustTail,
    Mutation::RetryFailedSync,
];

/// The most runs of a rule's own test: the threads have to meet at a moment, and the system may
/// make them miss; with the rule broken the test is run until the fault shows.
const TRIES: usize = 10;

/// Looks with some seeds whether a fault of the meant kind is noticed with a rule broken, and adds
/// the fault to `kinds`.
fn is_noticed(
    rule: Mutation,
    is_meant: impl Fn(&WrongCounts) -> bool,
    kinds: &mut WrongCounts,
) -> bool {
    mutation::set(Some(rule));
    let noticed = |seed| wrong(seed).filter(|wrong| is_meant(&wrong.counts));
    let found = (0..3000).find_map(|seed| Some((seed, noticed(seed)?)));
    mutation::set(None);
    let Some((seed, noticed)) = found else { return false };
    println!("{}: seed {seed}: {noticed}", rule.name());
    // The broken rule was noticed, nothing else.
    assert_eq!(wrong(seed), None, "seed {seed}, with all rules kept");
    kinds.add(noticed.counts);
    true
}

#[test]
fn each_broken_rule_is_noticed() {
    let (mut unnoticed, mut kinds) = (Vec::new(), WrongCounts::default());
    let of_component = |rule: &Mutation| rule.is_of_transaction_component();
    for rule in Mutation::ALL.iter().copied().filter(of_component) {
        let Some(is_wrong) = has_own_test(rule) else {
            if !is_noticed(rule, |_| true, &mut kinds) {
                unnoticed.push(rule.name());
            }
            continue;
        };
        mutation::set(Some(rule));
        let is_noticed = (0..TRIES).any(|_| is_wrong());
        mutation::set(None);
        println!("{}: by a test of its own", rule.name());
        assert!(is_noticed && !is_wrong(), "{}", rule.name());
    }
    let of_log = OF_LOG.into_iter().filter(|rule| !is_noticed(*rule, |_| true, &mut kinds));
    unnoticed.extend(of_log.map(Mutation::name));
    // A transaction in part is rarer than the fault noticed first.
    let is_partial = |counts: &WrongCounts| counts.partial > 0;
    assert!(is_noticed(Mutation::CountFirstPiece, is_partial, &mut kinds));
    println!("{kinds:?}");
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
    let WrongCounts { lost, partial, resurrected, diverged, refused_wrongly, .. } = kinds;
    let met = [lost, partial, resurrected, diverged, refused_wrongly];
    assert!(met.iter().all(|met| *met > 0), "not all kinds were met: {kinds:?}");
}
