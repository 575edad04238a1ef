//! Rules of checkpoints broken on purpose: the tests that guard them must notice. Built with the feature
//! `mutations` only: `cargo test -p hyades --features mutations --test checkpoint_mutations`.
#![allow(missing_docs)]

mod common;
use common::checkpointing::*;
use common::held::HeldDevice;
use common::{ACCOUNTS, Combination, How, combinations, directory, populate, power_cut, try_open};
use hyades::{Abort, Column};
use hyades_platform::mutation::{self, Mutation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What a test is given: a combination and a seed. It panics if it notices something.
type Guard = fn(Combination, u64);

/// Runs the test without and with the rule broken, over all combinations, until it notices.
fn is_caught(name: &str, rule: Mutation, rounds: u64, guard: Guard) {
    mutation::set(None);
    for (seed, c) in combinations().into_iter().enumerate() {
        guard(c, seed as u64);
    }
    mutation::set(Some(rule));
    for seed in 0..rounds {
        for c in combinations() {
            if catch_unwind(AssertUnwindSafe(|| guard(c, seed))).is_err() {
                mutation::set(None);
                eprintln!("{name}: noticed in round {seed}, {c:?}");
                return;
            }
        }
    }
    mutation::set(None);
    panic!("{name}: nobody noticed");
}

/// A checkpoint right after transactions that nobody waits for, and then the power fails.
fn nobody_waits(c: Combination, seed: u64) {
    const BALANCE: Column<i64> = Column::at(1);
    let dir = directory();
    let device = power_cut(seed);
    let slow = HeldDevice::new(Arc::new(device.clone()));
    let how = How { device: Some(Arc::new(slow.clone())), ..How::default() };
    let opened = try_open(dir.path(), c, how).unwrap();
    populate(&opened);
    let mut session = opened.db.session().unwrap();
    let held = slow.hold("stream-0000");
    // So few that the buffer of the held stream takes them all, before and after images too.
    for _ in 0..60 {
        let move_one = |tx: &hyades::Transaction<'_>| {
            let of = |id: i64| Ok::<_, Abort>(tx.get(ACCOUNTS, id)?.unwrap().get(BALANCE));
            let (a, b) = (of(1)?, of(2)?);
            tx.update(ACCOUNTS, 1i64, &[BALANCE.set(a - 1)])?;
            tx.update(ACCOUNTS, 2i64, &[BALANCE.set(b + 1)])?;
            Ok::<_, Abort>(())
        };
        drop(session.submit(move_one).unwrap());
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        // Returns only when the stream's sync has.
        opened.db.checkpoint().unwrap();
        device.cut();
    });
    let digest = opened.db.digest();
    drop(session);
    drop(opened);
    let again = open(dir.path(), c, None, How::default());
    assert_eq!(again.db.digest(), digest);
}

#[test]
fn every_broken_rule_is_noticed() {
    is_caught("no copy on write", Mutation::NoCopyOnWrite, 5, the_state_is_the_state_that_was);
    let rule = Mutation::NoWaitForCommits;
    is_caught("no wait for commits", rule, 20, the_state_is_the_state_that_was);
    let rule = Mutation::ReplayBelowCut;
    is_caught("replay below the cut", rule, 5, the_state_is_the_state_that_was);
    is_caught("valid before the frontier", Mutation::ValidBeforeFrontier, 20, nobody_waits);
    let rule = Mutation::TruncateBeforeManifest;
    is_caught("truncate before the manifest", rule, 5, manifest_stays);
}
