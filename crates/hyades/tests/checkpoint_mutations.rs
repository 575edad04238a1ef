//! Breaks rules of checkpoints on purpose. The tests that guard them must fail. Built with the
//! feature `mutations` only:
//! `cargo test -p hyades --features mutations --test checkpoint_mutations`.
#![allow(missing_docs)]

mod common;
use common::checkpointing::*;
use common::held::HeldDevice;
use common::{
    ACCOUNTS, Combination, How, ITEMS, combinations, directory, populate, power_cut, try_open,
};
use hyades::{Abort, Column};
use hyades_platform::device::{Fault, FaultyDevice, FileDevice};
use hyades_platform::mutation::{self, Mutation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A test that takes a combination and a seed, and panics if it finds a violation.
type Guard = fn(Combination, u64);

/// Runs the test without and with the rule broken, over all combinations, until it fails.
fn is_caught(name: &str, rule: Mutation, rounds: u64, guard: Guard) {
    is_caught_among(&combinations(), name, rule, rounds, guard);
}

/// As [`is_caught`], over these combinations.
fn is_caught_among(among: &[Combination], name: &str, rule: Mutation, rounds: u64, guard: Guard) {
    mutation::set(None);
    for (seed, &c) in among.iter().enumerate() {
        guard(c, seed as u64);
    }
    mutation::set(Some(rule));
    for seed in 0..rounds {
        for &c in among {
            if catch_unwind(AssertUnwindSafe(|| guard(c, seed))).is_err() {
                mutation::set(None);
                eprintln!("{name}: noticed in round {seed}, {c:?}");
                return;
            }
        }
    }
    mutation::set(None);
    panic!("{name}: goes unnoticed");
}

/// Takes a checkpoint right after transactions whose tickets are dropped, then cuts the power.
fn unwaited_commits(c: Combination, seed: u64) {
    const BALANCE: Column<i64> = Column::at(1);
    let dir = directory();
    let device = power_cut(seed);
    let slow = HeldDevice::new(Arc::new(device.clone()));
    let how = How { device: Some(Arc::new(slow.clone())), ..How::default() };
    let opened = try_open(dir.path(), c, how).unwrap();
    populate(&opened);
    let mut session = opened.db.session().unwrap();
    let held = slow.hold("stream-0000");
    // Few enough to fit the buffer of the held stream, with before-images and after-images.
    for _ in 0..60 {
        let move_one = |tx: &hyades::Transaction<'_>| {
            let of = |id: i64| Ok::<_, Abort>(tx.get(ACCOUNTS, id)?.unwrap().get(BALANCE));
            let (a, b) = (of(1)?, of(2)?);
            tx.update(ACCOUNTS, 1i64, &[BALANCE.set(a - 1)])?;
            tx.update(ACCOUNTS, 2i64, &[BALANCE.set(b + 1)])?;
            Ok::<_, Abort>(())
        };
        drop(session.try_submit(move_one).unwrap());
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        // Returns only after the stream's sync.
        opened.db.checkpoint().unwrap();
        device.cut();
    });
    let digest = opened.db.digest();
    drop(session);
    drop(opened);
    let again = open(dir.path(), c, None, How::default());
    assert_eq!(again.db.digest(), digest);
}

/// A table of 40 MB in rows of 40 kB, in a checkpoint. Returns the digest before the process ends.
fn large_rows_in_a_checkpoint(dir: &std::path::Path, c: Combination) -> u64 {
    let opened = open(dir, c, None, How::default());
    for id in 0..1000i32 {
        let text = format!("{id:040000}");
        let row = [id.into(), 0i32.into(), text[..].into(), hyades::Value::Null];
        opened.db.try_transact(|tx| tx.insert(ITEMS, &row)).unwrap().unwrap();
    }
    opened.db.checkpoint().unwrap();
    opened.db.digest()
}

/// Promise: rows that are larger than a block survive.
fn large_rows(c: Combination, _: u64) {
    let dir = directory();
    let digest = large_rows_in_a_checkpoint(dir.path(), c);
    assert_eq!(open(dir.path(), c, None, How::default()).db.digest(), digest, "{c:?}");
}

/// Promise: if a device stores one write of a checkpoint wrongly, the state is still recovered.
fn a_write_is_stored_wrong(c: Combination, seed: u64) {
    let dir = directory();
    let device = FaultyDevice::new(FileDevice::shared());
    let how = How { device: Some(Arc::new(device.clone())), ..How::default() };
    let opened = try_open(dir.path(), c, how).unwrap();
    populate(&opened);
    ballast(&opened, 3000);
    let digest = opened.db.digest();
    device.arm(Fault::Flip(seed % 2));
    drop(opened.db.checkpoint());
    drop(opened);
    let again = open(dir.path(), c, None, How::default());
    assert_eq!(again.db.digest(), digest, "{c:?}");
}

#[test]
fn every_broken_rule_is_noticed() {
    let few = combinations().into_iter().step_by(5).collect::<Vec<_>>();
    is_caught_among(&few, "long blocks", Mutation::LongBlocks, 1, large_rows);
    is_caught_among(&few, "adopted unread", Mutation::AdoptedUnread, 2, a_write_is_stored_wrong);
    is_caught("no copy on write", Mutation::NoCopyOnWrite, 5, the_state_is_the_state_that_was);
    let rule = Mutation::NoWaitForCommits;
    is_caught("no wait for commits", rule, 20, the_state_is_the_state_that_was);
    let rule = Mutation::ReplayBelowCut;
    is_caught("replay below the cut", rule, 5, the_state_is_the_state_that_was);
    is_caught("valid before the frontier", Mutation::ValidBeforeFrontier, 20, unwaited_commits);
    let rule = Mutation::TruncateBeforeManifest;
    is_caught("truncate before the manifest", rule, 5, manifest_stays);
    what_long_blocks_left_is_read();
}

/// Not a test of its own, since the broken rule is global to the process.
fn what_long_blocks_left_is_read() {
    for c in combinations().into_iter().step_by(5) {
        let dir = directory();
        mutation::set(Some(Mutation::LongBlocks));
        let digest = large_rows_in_a_checkpoint(dir.path(), c);
        mutation::set(None);
        assert_eq!(open(dir.path(), c, None, How::default()).db.digest(), digest, "{c:?}");
    }
}
