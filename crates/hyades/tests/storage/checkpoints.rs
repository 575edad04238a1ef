//! Checkpoints, taken one after the other while transactions run. Promise: nothing acknowledged is
//! lost, no transaction is recovered in part, and the recovered state is the state before the power
//! cut.

use crate::common::checkpointing::*;
use crate::common::{
    ACCOUNT_COUNT, Combination, HISTORY, How, ITEMS, TRANSFERS, check, combinations,
    combinations_and_calls, directory, files, fingerprint, fingerprint_at_rest, populate,
    power_cut, refused, run, some_combinations, try_open,
};
use hyades::{
    Abort, CheckpointSettings, Column, Concurrency, Database, Error, Protocol, RecordKind, Schema,
    Transaction, Type, Value,
};
use hyades_schemes::ARRIVAL;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn the_recovered_state_is_the_state_that_was() {
    // A slow checkpoint is a wait, most of the time.
    const AT_ONCE: usize = 3;
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            let share = some_combinations(0).into_iter().skip(first).step_by(AT_ONCE);
            scope.spawn(move || {
                share.for_each(|(seed, c)| the_state_is_the_state_that_was(c, seed as u64));
            });
        }
    });
}

#[test]
fn acknowledged_is_recovered_wherever_the_power_fails() {
    let mut taken = 0;
    for round in 0..10u64 {
        // One round, unless a busy machine takes few checkpoints.
        if taken > 50 {
            break;
        }
        for (at, c) in combinations_and_calls().into_iter().enumerate() {
            let seed = round * 1000 + at as u64 + 500;
            let dir = directory();
            let mut acknowledged = Vec::new();
            for crash in 0..3u64 {
                let device = power_cut(seed * 7 + crash);
                // Fast checkpoints switch the manifest often; slow ones are interrupted in the
                // middle.
                let checkpoints = if crash % 2 == 0 { fast() } else { slow() };
                let threads = 1 + crash as usize % 2;
                let how = How { threads, checkpoints, ..How::default() };
                let opened = open(dir.path(), c, Some(device.clone()), how);
                if crash == 0 {
                    populate(&opened);
                }
                check(&opened, &acknowledged, &format!("{c:?} seed {seed} crash {crash}"));
                std::thread::scope(|scope| {
                    let opened = &opened;
                    let ran = scope.spawn(move || {
                        run_with_checkpoints(opened, seed * 10 + crash + 1, 100_000)
                    });
                    std::thread::sleep(Duration::from_millis(5 + seed * 3 % 40));
                    device.cut();
                    let (ran, checkpoints) = ran.join().unwrap();
                    acknowledged.extend(ran);
                    taken += checkpoints;
                });
            }
            let opened = open(dir.path(), c, None, How::default());
            check(&opened, &acknowledged, &format!("{c:?} seed {seed}, at the end"));
            let digest = opened.db.digest();
            nothing_is_left_behind(&opened, dir.path());
            opened.db.close().unwrap();
            let again = open(dir.path(), c, None, How { threads: 1, ..How::default() });
            assert_eq!(again.db.digest(), digest, "{c:?} seed {seed}: recovered twice");
        }
    }
    assert!(taken > 50, "only {taken} checkpoints were taken");
}

#[test]
fn a_power_cut_at_any_step_of_a_checkpoint_loses_nothing() {
    for (seed, c) in some_combinations(1).into_iter().filter(|(_, c)| c.streams < 16) {
        // All steps of some combinations, some steps of all combinations.
        let stride = if seed % 11 == 0 { 1 } else { 5 };
        let mut step = seed as u64 % stride;
        while !power_fails_at(c, seed as u64, step) {
            step += stride;
            assert!(step < 500, "a checkpoint has no more steps than that");
        }
        assert!(step > 5, "it has more steps than {step}");
    }
}

#[test]
fn a_manifest_that_cannot_be_switched_loses_nothing() {
    for (seed, c) in combinations_and_calls().into_iter().enumerate() {
        manifest_stays(c, seed as u64);
    }
}

fn plain() -> Combination {
    let (protocol, concurrency) = (Protocol::Taurus, Concurrency::Silo);
    Combination { protocol, concurrency, record: RecordKind::Adaptive, streams: 3 }
}

#[test]
fn transactions_of_many_frames_are_there_as_a_whole() {
    const NOTE: Column<Option<&str>> = Column::at(3);
    // A call logged before it runs is a short record, whatever it writes.
    let has_frames = |c: &Combination| c.streams > 1 && c.protocol != ARRIVAL;
    for (at, c) in some_combinations(2).into_iter().filter(|(_, c)| has_frames(c)) {
        let dir = directory();
        let device = power_cut(at as u64);
        let how = How { checkpoints: slow(), ..How::default() };
        let opened = open(dir.path(), c, Some(device.clone()), how);
        let insert = |tx: &hyades::Transaction<'_>| {
            for id in 0..5i32 {
                let name = format!("{id}");
                tx.insert(ITEMS, &[id.into(), 0i32.into(), name[..].into(), Value::Null])?;
            }
            Ok::<_, Abort>(())
        };
        opened.db.try_transact(insert).unwrap().unwrap();
        ballast(&opened, 1000);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (opened, over) = (&opened, &over);
                scope.spawn(move || {
                    let mut session = opened.db.session().unwrap();
                    for n in 0.. {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        let note = format!("{thread} {n} {}", "x".repeat(20_000));
                        let write = |tx: &hyades::Transaction<'_>| {
                            for id in 0..5i32 {
                                tx.update(ITEMS, id, &[NOTE.set(&note[..])])?;
                            }
                            Ok::<_, Abort>(())
                        };
                        if session.try_submit(write).is_err() {
                            break;
                        }
                    }
                });
            }
            for _ in 0..2 {
                opened.db.checkpoint().unwrap();
            }
            device.cut();
            over.store(true, Ordering::Release);
        });
        drop(opened);
        let again = open(dir.path(), c, None, How::default());
        let notes = again.db.try_transact(|tx| {
            let rows = tx.scan(ITEMS).rows()?;
            Ok::<_, Abort>(rows.iter().map(|r| format!("{:?}", r.value(3))).collect::<Vec<_>>())
        });
        let notes = notes.unwrap().unwrap();
        assert_eq!(notes.len(), 5);
        assert!(notes.iter().all(|note| *note == notes[0]), "{c:?}: half a transaction");
    }
}

#[test]
fn row_ids_and_epochs_go_on_above_those_of_the_checkpoint() {
    let dir = directory();
    let opened = open(dir.path(), plain(), None, How::default());
    let insert = || opened.db.try_transact(|tx| tx.insert(HISTORY, &[1i64.into(), 2i64.into()]));
    let id = (0..10).map(|_| insert().unwrap().unwrap()).max().unwrap();
    // Deleted, so no row of the image shows the use of this id.
    opened.db.try_transact(|tx| tx.delete(HISTORY, id)).unwrap().unwrap();
    let report = opened.db.checkpoint().unwrap();
    assert_eq!(report.rows, 9);
    assert_eq!(opened.db.checkpoints().replay_seconds, 0.0, "nothing is left to replay");
    opened.db.close().unwrap();
    let again = open(dir.path(), plain(), None, How::default());
    assert_eq!((again.db.recovery().image_rows, again.db.recovery().records), (9, 0));
    let fresh = again.db.try_transact(|tx| tx.insert(HISTORY, &[1i64.into(), 2i64.into()]));
    assert!(fresh.unwrap().unwrap() > id, "row ids are not given out again");
    assert!(again.db.checkpoint().unwrap().cut_epoch > report.cut_epoch);
}

/// A scan may find only rows of open transactions behind its last full block.
#[test]
fn a_block_before_rows_of_open_transactions_is_written() {
    let dir = directory();
    let mut builder = Database::builder();
    let schema = Schema::new("hashed").column("id", Type::I64).primary_key(&["id"]).hash();
    let table = builder.table(schema);
    let builder = builder.checkpoint_settings(|settings| settings.block_bytes = 1);
    let db = builder.open(dir.path()).unwrap();
    let put = |tx: &Transaction<'_>, ids: Range<i64>| {
        ids.into_iter().try_for_each(|id| tx.insert(table, &[id.into()]).map(drop))
    };
    for rows in 1..=10 {
        db.try_transact(|tx| put(tx, rows - 1..rows)).unwrap().unwrap();
        let open = db.try_transact(|tx| {
            put(tx, 1_000..3_000)?;
            std::thread::scope(|scope| {
                let checkpoint = scope.spawn(|| db.checkpoint().unwrap());
                assert_eq!(checkpoint.join().unwrap().rows, rows as u64);
            });
            Err::<(), _>(Abort::User(0))
        });
        open.unwrap().expect_err("the transaction is rolled back");
    }
}

#[test]
fn parts_go_to_all_directories_and_all_are_needed() {
    for files_per_dir in [1, 3, 64] {
        let (dir, other) = (directory(), directory());
        let mut checkpoints = CheckpointSettings::default();
        checkpoints.files_per_dir = files_per_dir;
        let how = || {
            let more_dirs = vec![other.path().join("b")];
            How { more_dirs, checkpoints: checkpoints.clone(), ..How::default() }
        };
        let opened = open(dir.path(), plain(), None, how());
        populate(&opened);
        ballast(&opened, 60_000);
        let report = opened.db.checkpoint().unwrap();
        assert_eq!(report.parts, 2 * files_per_dir);
        let digest = opened.db.digest();
        opened.db.close().unwrap();
        for root in [dir.path(), other.path()] {
            let part = |p: &std::path::PathBuf| p.to_string_lossy().contains("/checkpoint-");
            let parts: Vec<_> = files(root).into_iter().filter(part).collect();
            assert_eq!(parts.len(), files_per_dir);
            let bytes: u64 = parts.iter().map(|p| std::fs::metadata(p).unwrap().len()).sum();
            assert!(bytes > 1000, "each directory has its share");
        }
        // Files of the next checkpoint, of another number, replace these files.
        let mut fewer = how();
        fewer.checkpoints.files_per_dir = 2;
        let again = open(dir.path(), plain(), None, fewer);
        assert_eq!(again.db.digest(), digest);
        assert_eq!(again.db.checkpoint().unwrap().parts, 4);
        again.db.close().unwrap();
        let left = files(dir.path()).into_iter();
        let left = left.filter(|p| p.to_string_lossy().contains("/checkpoint-")).count();
        assert_eq!(left, 2);
        assert_eq!(open(dir.path(), plain(), None, how()).db.digest(), digest);
    }
}

#[test]
fn a_damaged_missing_or_newer_checkpoint_is_refused_by_name() {
    let dir = directory();
    let opened = open(dir.path(), plain(), None, How::default());
    populate(&opened);
    ballast(&opened, 2000);
    opened.db.checkpoint().unwrap();
    let digest = opened.db.digest();
    opened.db.close().unwrap();
    let path = dir.path().join("checkpoint-00000001-000");
    let good = std::fs::read(&path).unwrap();
    let before = fingerprint(dir.path());
    let try_with = |bytes: Option<&[u8]>, what: &str| {
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let error = refused(try_open(dir.path(), plain(), How::default()), what);
        let Error::Checkpoint { path: named, offset, .. } = &error else {
            panic!("{what}: {error}");
        };
        assert_eq!(named, &path, "{what}");
        assert!(*offset <= good.len() as u64, "{what}: {error}");
        error.to_string()
    };
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..150 {
        let mut bytes = good.clone();
        // The last twelve bytes of the header are unused but checked too.
        let bit = rng.usize(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        try_with(Some(&bytes), &format!("bit {bit}"));
        try_with(Some(&good[..rng.usize(0..good.len())]), "a cut");
    }
    assert!(try_with(None, "a missing file").contains("opened"));
    let mut newer = good.clone();
    newer[8] = 9;
    assert!(try_with(Some(&newer), "a newer format").contains("format version 9"));
    std::fs::write(&path, &good).unwrap();
    assert_eq!(fingerprint(dir.path()), before, "a refusal changes nothing");
    let again = open(dir.path(), plain(), None, How::default());
    assert_eq!(again.db.digest(), digest);
}

#[test]
fn the_log_stays_small_under_an_endless_run() {
    let dir = directory();
    let checkpoints = changed(|settings| {
        settings.interval = Some(Duration::from_millis(30));
        settings.share = 1.0;
    });
    let c = Combination { streams: 2, ..plain() };
    let opened = open(dir.path(), c, None, How { checkpoints, ..How::default() });
    populate(&opened);
    let mut most = 0;
    let mut written = 0;
    for round in 0..30 {
        run(&opened, round, 7000);
        // Independent of the scheduler: waits for a checkpoint begun after the transactions.
        let taken = opened.db.checkpoints().taken;
        let stats = || opened.db.checkpoints();
        while stats().taken == taken && stats().replay_seconds > 0.0 && stats().failed == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(stats().last_failure, None);
        let of_log = |p: &std::path::PathBuf| p.to_string_lossy().contains("/segment-");
        most = most.max(files(dir.path()).iter().filter(|p| of_log(p)).count());
        written = opened.db.stats().log_bytes;
    }
    assert!(opened.db.checkpoints().taken >= 5);
    // For each stream: the segment being written, one ahead, two for reuse, and the segments that a
    // round fills.
    let filled = written >> 18;
    assert!(filled > 30, "{written} bytes are too few to tell");
    assert!(most <= 16, "{most} segments for two streams, {written} bytes written");
}

#[test]
fn an_idle_database_takes_no_checkpoints() {
    let dir = directory();
    let checkpoints = changed(|settings| {
        settings.interval = Some(Duration::from_millis(10));
        settings.max_recovery = Some(Duration::from_millis(1));
    });
    let opened = open(dir.path(), plain(), None, How { checkpoints, ..How::default() });
    populate(&opened);
    // A checkpoint can be complete a moment before it is counted, and the log takes time to prepare
    // the next segment.
    let settled = |stats: hyades::CheckpointStats| stats.replay_seconds == 0.0 && !stats.under_way;
    while !settled(opened.db.checkpoints()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = fingerprint_at_rest(dir.path());
    let taken = opened.db.checkpoints().taken;
    assert!(taken > 0);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(opened.db.checkpoints().taken, taken);
    assert_eq!(fingerprint(dir.path()), before, "an idle database writes nothing");
    // New transactions make it take checkpoints again.
    run(&opened, 1, 50);
    while opened.db.checkpoints().taken == taken {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_side_buffer_that_is_full_makes_sessions_wait_and_loses_nothing() {
    let dir = directory();
    let mut checkpoints = slow();
    checkpoints.buffer_bytes = 100;
    let how = How { checkpoints, ..How::default() };
    let opened = open(dir.path(), plain(), None, how);
    populate(&opened);
    ballast(&opened, 5000);
    let (acknowledged, taken) = run_with_checkpoints(&opened, 3, 500);
    assert!(taken > 0);
    check(&opened, &acknowledged, "while it runs");
    let digest = opened.db.digest();
    opened.db.close().unwrap();
    same_state(dir.path(), plain(), digest, &acknowledged);
    assert_eq!(ACCOUNT_COUNT, 12);
}

/// Promise: with a small side buffer, too, sessions wait until saved rows are written out, and not
/// until the scan ends.
#[test]
fn a_small_side_buffer_is_written_out_amid_the_scan() {
    let dir = directory();
    let mut checkpoints = slow();
    (checkpoints.share, checkpoints.buffer_bytes) = (1e-6, 1);
    let opened = open(dir.path(), plain(), None, How { checkpoints, ..How::default() });
    populate(&opened);
    ballast(&opened, 20_000);
    let part = dir.path().join("checkpoint-00000001-000");
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| opened.db.checkpoint());
        // The file is made after the cut.
        while !part.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The row that the first transaction overwrites fills the buffer.
        for id in [1u64, 2] {
            let row = [((1 << 63) | id).into(), 1i64.into(), 1i64.into(), 1i64.into()];
            opened.db.try_transact(|tx| tx.upsert(TRANSFERS, &row)).unwrap().unwrap();
        }
        let written = std::fs::metadata(&part).unwrap().len();
        // The rest of the scan would take several seconds.
        opened.db.clone().close().unwrap();
        assert!(checkpoint.join().unwrap().is_err(), "it was abandoned");
        assert!(written < 500_000, "{written} bytes, and all rows take about a million");
    });
}

#[test]
fn replay_stays_below_its_bound_or_it_is_said_why() {
    let dir = directory();
    let bound = Duration::from_millis(20);
    let checkpoints = changed(|settings| {
        settings.max_recovery = Some(bound);
        settings.share = 1.0;
    });
    let opened = open(dir.path(), plain(), None, How { checkpoints, ..How::default() });
    populate(&opened);
    // Until a replay speed is known nothing is promised.
    let mut rounds = 0;
    while opened.db.checkpoints().longest_replay_seconds == 0.0 {
        run(&opened, rounds, 9000);
        rounds += 1;
        assert!(rounds < 100, "{:?}", opened.db.checkpoints());
    }
    for round in rounds..rounds + 6 {
        run(&opened, round, 9000);
    }
    let stats = opened.db.checkpoints();
    let bytes = opened.db.stats().log_bytes as f64;
    assert!(
        bytes / stats.replay_bytes_per_s as f64 > 3.0 * bound.as_secs_f64(),
        "too little: {bytes}"
    );
    assert!(stats.taken > 1, "{stats:?}");
    let kept = stats.longest_replay_seconds <= bound.as_secs_f64();
    assert!(kept || stats.bound_missed.is_some(), "{stats:?}");
}

/// Promise: a log of data records can be asked for exact cuts, which logs with commands always
/// have.
#[test]
fn an_exact_cut_of_a_data_log_is_recovered_wherever_the_power_fails() {
    // Once, unless a busy machine takes few checkpoints.
    let mut taken = 0;
    for _ in 0..10 {
        taken += exact_cuts_are_recovered();
        if taken > 10 {
            return;
        }
    }
    panic!("only {taken} checkpoints were taken");
}

/// Returns the number of checkpoints.
fn exact_cuts_are_recovered() -> u64 {
    let mut taken = 0;
    let data = |c: &Combination| c.record == RecordKind::Data && c.streams < 16;
    for (seed, c) in combinations().into_iter().enumerate().filter(|(_, c)| data(c)) {
        let dir = directory();
        let mut acknowledged = Vec::new();
        for crash in 0..2u64 {
            let device = power_cut(seed as u64 * 7 + crash);
            let mut checkpoints = if crash == 0 { fast() } else { slow() };
            checkpoints.fuzzy = false;
            let how = How { checkpoints, ..How::default() };
            let opened = open(dir.path(), c, Some(device.clone()), how);
            if crash == 0 {
                populate(&opened);
            }
            check(&opened, &acknowledged, &format!("{c:?} seed {seed} crash {crash}"));
            std::thread::scope(|scope| {
                let opened = &opened;
                let seed = seed as u64 * 10 + crash;
                let ran = scope.spawn(move || run_with_checkpoints(opened, seed, 100_000));
                std::thread::sleep(Duration::from_millis(20 + seed % 30));
                device.cut();
                let (ran, checkpoints) = ran.join().unwrap();
                acknowledged.extend(ran);
                taken += checkpoints;
            });
        }
        let checkpoints = changed(|settings| settings.fuzzy = false);
        let opened = open(dir.path(), c, None, How { checkpoints, ..How::default() });
        check(&opened, &acknowledged, &format!("{c:?} seed {seed}, at the end"));
        let report = opened.db.checkpoint().unwrap();
        let manifest = opened.db.log().unwrap().manifest();
        let checkpoint = manifest.checkpoint.as_ref().unwrap();
        assert_eq!((checkpoint.scan_end, checkpoint.cut), (None, report.cut_epoch), "{c:?}");
    }
    taken
}
