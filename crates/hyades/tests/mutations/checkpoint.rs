//! Breaks rules of checkpoints on purpose. The tests that guard the rules must fail.

use crate::common::broken;
use crate::common::checkpointing::*;
use crate::common::held::HeldDevice;
use crate::common::{
    ACCOUNTS, Combination, How, ITEMS, combinations, directory, populate, power_cut, run, try_open,
};
use hyades::{Abort, Column, Database, RecordKind, Schema, Table, Type};
use hyades_platform::device::{Fault, FaultyDevice, FileDevice};
use hyades_platform::mutation::{self, Mutation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A test that takes a combination and a seed, and panics at a violation.
type Guard = fn(Combination, u64);

/// Runs the guard with the rule broken, over the given combinations, until the guard fails. Where
/// no other test runs the guard, `sound` asks that the guard passes with the rule in force.
fn is_caught(among: &[Combination], rule: Mutation, rounds: u64, sound: bool, guard: Guard) {
    mutation::set(None);
    for (seed, &c) in among.iter().enumerate().filter(|_| sound) {
        guard(c, seed as u64);
    }
    mutation::set(Some(rule));
    let began = Instant::now();
    for seed in 0..rounds {
        for &c in among {
            if catch_unwind(AssertUnwindSafe(|| guard(c, seed))).is_err() {
                mutation::set(None);
                let time = began.elapsed();
                eprintln!("{}: noticed in round {seed} after {time:.1?}, {c:?}", rule.name());
                return;
            }
        }
    }
    mutation::set(None);
    panic!("{}: goes unnoticed", rule.name());
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
            let balance = |id: i64| Ok::<_, Abort>(tx.get(ACCOUNTS, id)?.unwrap().get(BALANCE));
            let (a, b) = (balance(1)?, balance(2)?);
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

/// Promise: rows larger than a block survive.
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
    device.arm(Fault::Flip { files: "checkpoint-", write: seed % 2 });
    drop(opened.db.checkpoint());
    drop(opened);
    let again = open(dir.path(), c, None, How::default());
    assert_eq!(again.db.digest(), digest, "{c:?}");
}

fn few() -> Vec<Combination> {
    combinations().into_iter().step_by(5).collect()
}

/// Promise: a checkpoint taken while transactions run, and the log, hold all transactions.
fn a_checkpoint_amid_transactions(c: Combination, seed: u64) {
    let dir = directory();
    let checkpoints = fast();
    let opened = open(dir.path(), c, None, How { checkpoints, ..How::default() });
    populate(&opened);
    std::thread::scope(|scope| {
        let transactions = scope.spawn(|| run(&opened, seed, 300));
        std::thread::sleep(Duration::from_millis(2));
        opened.db.checkpoint().unwrap();
        transactions.join().unwrap();
    });
    opened.db.log().expect("there is a log").flush().unwrap();
    let digest = opened.db.digest();
    drop(opened);
    assert_eq!(open(dir.path(), c, None, How::default()).db.digest(), digest, "{c:?}");
}

fn logs_commands(c: &Combination) -> bool {
    c.record == RecordKind::Command
}

#[test]
fn long_blocks() {
    let _alone = broken::alone();
    is_caught(&few(), Mutation::LongBlocks, 1, true, large_rows);
}

#[test]
fn adopted_unread() {
    let _alone = broken::alone();
    is_caught(&few(), Mutation::AdoptedUnread, 2, true, a_write_is_stored_wrong);
}

#[test]
fn no_copy_on_write() {
    let _alone = broken::alone();
    let rule = Mutation::NoCopyOnWrite;
    is_caught(&combinations(), rule, 5, false, the_state_is_the_state_that_was);
}

#[test]
fn no_wait_for_commits() {
    let _alone = broken::alone();
    let rule = Mutation::NoWaitForCommits;
    is_caught(&few(), rule, 20, true, a_checkpoint_amid_transactions);
}

/// Commands alone: applying data records a second time changes nothing.
#[test]
fn replay_below_the_cut() {
    let _alone = broken::alone();
    let among: Vec<_> = combinations().into_iter().filter(logs_commands).collect();
    is_caught(&among, Mutation::ReplayBelowCut, 5, true, a_checkpoint_amid_transactions);
}

#[test]
fn valid_before_the_frontier() {
    let _alone = broken::alone();
    is_caught(&combinations(), Mutation::ValidBeforeFrontier, 20, true, unwaited_commits);
}

#[test]
fn truncate_before_the_manifest() {
    let _alone = broken::alone();
    is_caught(&combinations(), Mutation::TruncateBeforeManifest, 5, false, manifest_stays);
}

#[test]
fn what_long_blocks_left_is_read() {
    let _alone = broken::alone();
    for c in few() {
        let dir = directory();
        mutation::set(Some(Mutation::LongBlocks));
        let digest = large_rows_in_a_checkpoint(dir.path(), c);
        mutation::set(None);
        assert_eq!(open(dir.path(), c, None, How::default()).db.digest(), digest, "{c:?}");
    }
}

/// Promise: a checkpoint with two writers has the rows that are overwritten while one writer still
/// scans the last part of the table, and the other finds no part left. Returns whether the second
/// writer was held in the middle of a part; if not, nothing was tested.
fn rows_change_until_the_last_part_is_scanned() -> bool {
    const ROWS: Table = Table::nth(0);
    const N: Column<i64> = Column::at(1);
    const COUNT: i64 = 3000;
    let dir = directory();
    let device = HeldDevice::new(FileDevice::shared());
    let open = || {
        let mut builder = Database::builder().record(RecordKind::Command);
        builder = builder.checkpoint_settings(|settings| {
            *settings = slow();
            (settings.share, settings.files_per_dir) = (0.2, 2);
        });
        builder = builder.log_settings(|log| log.device = Some(Arc::new(device.clone())));
        let rows = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
        builder.table(rows.primary_key(&["id"]));
        let add =
            builder.procedure("add", 1, |tx: &hyades::Transaction<'_>, (id, n): (i64, i64)| {
                let before = tx.get(ROWS, id)?.map_or(0, |row| row.get(N));
                tx.upsert(ROWS, &[id.into(), (before + n).into()]).map(drop)
            });
        (builder.open(dir.path()).unwrap(), add)
    };
    let (db, add) = open();
    let mut session = db.session().unwrap();
    let mut add_to_all = || {
        for id in 0..COUNT {
            let (outcome, _) = session.call(add, &(id, 1i64)).unwrap();
            outcome.unwrap();
        }
    };
    add_to_all();
    let held = device.hold_writes("checkpoint-00000001-001");
    let was_held = std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint());
        let was_held = device.wait_for_held_write(|| checkpoint.is_finished());
        // The other writer walks over all other parts meanwhile.
        std::thread::sleep(Duration::from_millis(500));
        add_to_all();
        drop(held);
        assert_eq!(checkpoint.join().unwrap().unwrap().parts, 2);
        was_held
    });
    db.log().unwrap().flush().unwrap();
    let digest = db.digest();
    drop((session, db));
    assert_eq!(open().0.digest(), digest);
    was_held
}

#[test]
fn saved_taken_early() {
    let _alone = broken::alone();
    assert!((0..10).any(|_| rows_change_until_the_last_part_is_scanned()), "no writer was held");
    let guard = |_, _| {
        rows_change_until_the_last_part_is_scanned();
    };
    is_caught(&few()[..1], Mutation::SavedTakenEarly, 10, false, guard);
}
