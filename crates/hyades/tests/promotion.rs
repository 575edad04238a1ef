//! Promise: a follower that becomes primary has what a recovery of the same files finds, and no
//! reader of the follower sees a change of the new primary.
#![allow(missing_docs)]

mod common;

use common::followers::{Primary, content, followed, try_content};
use common::members::{self, Member, MirrorFrames, follow_all, mirror_options, recovered};
use common::tee::Tee;
use common::{Combination, How, TRANSFERS, broken, directory, power_cut, refused};
use hyades::wal::{Lsn, Mirror, Remote};
use hyades::{Abort, Column, Concurrency, Database, Error, Protocol, RecordKind};
use hyades_platform::device::{SimulatedDisk, SimulatedFault};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const COMMANDS: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Adaptive,
    streams: 4,
};
const DATA: Combination = Combination { record: RecordKind::Data, ..COMMANDS };

/// Runs random transactions; `number` counts transfers, over all primaries.
fn run(primary: &Primary, seed: u64, transactions: u64, number: &AtomicU64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut session = primary.db().session().unwrap();
    for _ in 0..transactions {
        primary.change(&mut session, &mut rng, number);
    }
}

/// Runs transactions while some lanes lose what they are sent, and ends the primary.
fn die(primary: Primary, lost: u64, cut: impl FnOnce(), number: &AtomicU64) -> Arc<Tee> {
    primary.tee.loses.store(lost, Relaxed);
    let mut rng = fastrand::Rng::with_seed(lost);
    let mut sessions = [(); 3].map(|()| primary.db().session().unwrap());
    for _ in 0..20 {
        for session in &mut sessions {
            let id = number.fetch_add(1, Relaxed);
            let (from, to) = (rng.i64(0..12), rng.i64(0..12));
            let transfer = common::Transfer { id, from, to, amount: rng.i64(0..50) };
            drop(session.call(primary.opened.transfer, &transfer).unwrap());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    cut();
    primary.tee.end();
    primary.tee.clone()
}

/// Rows, indexes, sums and counts are the same in both.
fn check_equal(one: &Database, other: &Database, what: &str) {
    assert_eq!((one.digest(), one.rows()), (other.digest(), other.rows()), "{what}");
    let [contents, others] = [one, other].map(|db| content(&db.open_snapshot()));
    assert_eq!(contents, others, "{what}");
    assert_eq!(one.tables(), other.tables(), "{what}");
    assert_eq!(one.recount(), one.tables(), "{what}");
}

/// A primary dies, another member goes on, dies, and a third one goes on. Returns how many records
/// were dead.
fn history(c: Combination, seed: u64) -> u64 {
    let (number, what) = (AtomicU64::new(0), format!("{c:?}, seed {seed}"));
    let device = power_cut(seed);
    let how = How { device: Some(Arc::new(device.clone())), ..How::default() };
    let first = Primary::open(c, seed, directory(), how);
    common::populate(&first.opened);
    let second_device = power_cut(seed + 1);
    let mut second = Member::join(&first, "b", Some(Arc::new(second_device.clone())));
    let mut third = Member::join(&first, "c", None);
    for step in 0..4 {
        run(&first, seed * 10 + step, 60, &number);
        second.round(&first);
        if step % 2 == 0 {
            third.round(&first);
        }
    }
    // A reader: the last round keeps the overwritten rows.
    let held = second.follower.database().open_snapshot();
    let before = content(&held);
    let mask = (1 << c.streams) - 1;
    let tee = die(first, (seed * 7) & mask, || device.cut(), &number);
    second.end(&tee);
    assert_eq!(content(&held), before, "{what}");
    let (plain, _place) = recovered(c, second.dir.path());
    let served = second.follower.served().unwrap();
    let second = second.promote(seed, served + 1000).unwrap();
    check_equal(second.db(), &plain, &what);
    let ended = refused(held.read(|_| Ok(())), "a read of an ended snapshot");
    assert!(matches!(ended, Error::Aborted(Abort::SnapshotEnded)), "{ended}");
    drop(held);
    let stats = second.db().stats();
    assert_eq!((stats.snapshots, stats.old_versions, stats.garbage), (0, 0, 0), "{what}");
    let report = second.db().recovery();
    assert!(report.found && report.seconds > 0.0 && report.records > 0, "{report:?}");
    assert_eq!(report.incarnations.len(), 1);
    let mark = second.mark();
    assert!(mark.epoch > served + 1000, "{what}: epoch {} was used", mark.epoch);
    // The other member goes on with the new primary.
    third.end(&tee);
    assert_eq!(third.follower.database().digest(), plain.digest(), "{what}");
    third.go_on(&second);
    for step in 4..7 {
        run(&second, seed * 10 + step, 60, &number);
        third.round(&second);
    }
    check_equal(third.follower.database(), second.db(), &what);
    let tee = die(second, (seed * 5) & mask, || second_device.cut(), &number);
    third.end(&tee);
    let (plain, _place) = recovered(c, third.dir.path());
    let third = third.promote(seed, 0).unwrap();
    check_equal(third.db(), &plain, &what);
    assert_eq!(third.db().recovery().incarnations.len(), 2);
    run(&third, seed * 10 + 7, 100, &number);
    let dead = third.db().recovery().dead;
    end_of_history(c, third, &what);
    dead
}

/// The third primary is closed, and its files are opened in all ways.
fn end_of_history(c: Combination, third: Primary, what: &str) {
    assert_eq!(third.db().recount(), third.db().tables(), "{what}");
    let (digest, Primary { opened, dir, .. }) = (third.db().digest(), third);
    opened.db.close().unwrap();
    let refused = common::followers::declared(c, How::default()).0.open(dir.path());
    let error = refused.err().expect("the files are a member's").to_string();
    assert!(error.contains("member \"c\""), "{error}");
    let (plain, _place) = recovered(c, dir.path());
    assert_eq!(plain.digest(), digest, "{what}");
    let member = Member::reopen(c, "c", dir, None);
    assert_eq!(member.follower.database().digest(), digest, "{what}");
    // And once more.
    let again = member.promote(1, 0).unwrap();
    check_equal(again.db(), &plain, what);
    run(&again, 3, 20, &AtomicU64::new(1 << 40));
}

/// Every combination that can be followed; more seeds with `HYADES_FOLLOWED_SEEDS`.
#[test]
fn a_promoted_follower_is_as_a_recovery_of_its_files() {
    let _alone = broken::alone();
    let seeds = std::env::var("HYADES_FOLLOWED_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut dead = 0;
    for seed in 0..seeds {
        for (at, c) in followed().into_iter().enumerate() {
            dead += history(c, seed * 100 + at as u64);
        }
    }
    assert!(dead > 0, "no record was dead: the histories lose too little");
}

/// A former primary that lost its last batches in a power cut rejoins.
#[test]
fn a_promoted_member_rejoins_after_a_power_cut() {
    let _alone = broken::alone();
    for (seed, c) in [COMMANDS, DATA].into_iter().enumerate() {
        let number = AtomicU64::new(0);
        let first = Primary::new(c, seed as u64);
        let device = power_cut(seed as u64);
        let mut member = Member::join(&first, "b", Some(Arc::new(device.clone())));
        run(&first, 1, 100, &number);
        member.round(&first);
        let tee = die(first, 5, || (), &number);
        member.end(&tee);
        let second = member.promote(1, 0).unwrap();
        run(&second, 2, 200, &number);
        let Primary { opened, tee, dir, .. } = second;
        device.cut();
        drop(opened);
        let member = Member::reopen(c, "b", dir, Some(&tee));
        let (plain, _place) = recovered(c, member.dir.path());
        check_equal(member.follower.database(), &plain, &format!("{c:?}"));
        let third = member.promote(2, 0).unwrap();
        check_equal(third.db(), &plain, &format!("{c:?}"));
    }
}

/// Members that began with a checkpoint: of their own, or a primary's, which may be fuzzy.
#[test]
fn members_that_began_with_a_checkpoint_become_primary() {
    let _alone = broken::alone();
    let serial = Combination { protocol: Protocol::Serial, streams: 1, ..COMMANDS };
    for (seed, c) in [COMMANDS, DATA, serial].into_iter().enumerate() {
        for is_own in [true, false] {
            let (number, what) = (AtomicU64::new(0), format!("{c:?}, own checkpoint: {is_own}"));
            let first = Primary::new(c, seed as u64);
            run(&first, 1, 150, &number);
            let mut member = if is_own {
                let mut member = Member::join(&first, "b", None);
                member.round(&first);
                member.checkpoint();
                run(&first, 2, 100, &number);
                member.round(&first);
                let restarted = member.restart(&first);
                assert!(restarted.follower.served().is_some(), "{what}");
                restarted
            } else {
                first.db().checkpoint().unwrap();
                run(&first, 2, 100, &number);
                Member::of_base(&first, "b")
            };
            let tee = die(first, 2, || (), &number);
            member.end(&tee);
            let (plain, _place) = recovered(c, member.dir.path());
            let second = member.promote(1, 0).unwrap();
            check_equal(second.db(), &plain, &what);
            let report = second.db().recovery();
            assert!(report.image_rows > 0 && report.image_bytes > 0, "{report:?}");
            run(&second, 3, 100, &number);
            second.db().checkpoint().unwrap();
            run(&second, 4, 100, &number);
            let (digest, Primary { opened, dir, .. }) = (second.db().digest(), second);
            opened.db.close().unwrap();
            let member = Member::reopen(c, "b", dir, None);
            assert_eq!(member.follower.database().digest(), digest, "{what}");
            let again = member.promote(1, 0).unwrap();
            assert_eq!(again.db().digest(), digest, "{what}");
        }
    }
}

const PRIMARY_NOW: &str = "this member has become primary: use the new database";
/// Transfers of the new primary alone have numbers from here on.
const MARKER: u64 = 1 << 50;

/// Reads a follower until it has become primary, or until told to stop. Returns what is wrong.
fn read_on(
    db: &Database,
    expected: &Mutex<HashMap<u64, u64>>,
    stop: &AtomicBool,
) -> Option<String> {
    while !stop.load(Relaxed) {
        let snapshot = db.open_snapshot();
        let Some(epoch) = snapshot.epoch() else {
            let error = refused(snapshot.read(|_| Ok(())), "a read").to_string();
            return (!error.contains(PRIMARY_NOW)).then_some(error);
        };
        let shown = match try_content(&snapshot) {
            Ok(shown) => shown,
            Err(Error::Aborted(Abort::SnapshotEnded)) => continue,
            Err(error) => return Some(error.to_string()),
        };
        if expected.lock().unwrap().get(&epoch).is_some_and(|expected| *expected != shown) {
            return Some(format!("a reader of epoch {epoch} saw another state"));
        }
        drop(snapshot);
        let marked = db.transact(|tx| Ok(tx.scan(TRANSFERS).from(&[MARKER.into()]).rows()?.len()));
        match marked {
            Ok(0) | Err(Error::Aborted(Abort::SnapshotEnded)) => {}
            Ok(rows) => return Some(format!("a reader saw {rows} rows of the new primary")),
            Err(Error::Misuse(why)) if why.contains(PRIMARY_NOW) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
    None
}

/// Writes to a new primary, to all tables, and rows that the follower never had.
fn write_on(primary: &Primary, seed: u64, number: &AtomicU64) {
    let (mut rng, mut session) = (fastrand::Rng::with_seed(seed), primary.db().session().unwrap());
    for _ in 0..150 {
        primary.change(&mut session, &mut rng, number);
    }
}

/// A promotion with readers under way. Returns what readers have seen that is wrong.
fn reads_wrong(c: Combination, seed: u64) -> Vec<String> {
    let (number, later) = (AtomicU64::new(0), AtomicU64::new(MARKER));
    let device = power_cut(seed);
    let how = How { device: Some(Arc::new(device.clone())), ..How::default() };
    let first = Primary::open(c, seed, directory(), how);
    common::populate(&first.opened);
    let mut member = Member::join(&first, "b", None);
    run(&first, seed, 80, &number);
    member.round(&first);
    let db = member.follower.database().clone();
    let (expected, stop) = (Mutex::new(HashMap::new()), AtomicBool::new(false));
    let (began, written) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| read_on(&db, &expected, &stop))).collect();
        run(&first, seed + 1, 80, &number);
        member.round(&first);
        let tee = die(first, (seed * 3) & 15, || device.cut(), &number);
        member.end(&tee);
        let last = db.open_snapshot();
        expected.lock().unwrap().insert(last.epoch().unwrap(), content(&last));
        // A transaction that begins before, and goes on afterwards.
        let long = scope.spawn(|| {
            db.transact(|tx| {
                let balance = |row: hyades::Row<'_>| row.get(Column::<i64>::at(1));
                let before = tx.get(common::ACCOUNTS, 1i64)?.map(balance);
                began.wait();
                written.wait();
                let after = tx.get(common::ACCOUNTS, 1i64).map(|row| row.map(balance));
                // Whatever the operation says, the transaction must not succeed.
                Ok((before, after.ok()))
            })
        });
        began.wait();
        let second = member.promote(seed, 0).unwrap();
        std::thread::scope(|scope| {
            (0..2).for_each(|at| {
                let (second, later) = (&second, &later);
                drop(scope.spawn(move || write_on(second, seed * 10 + at, later)));
            });
        });
        written.wait();
        stop.store(true, Relaxed);
        let mut wrong: Vec<String> = readers
            .into_iter()
            .filter_map(|reader| reader.join().unwrap_or(Some("a reader panicked".to_string())))
            .collect();
        match long.join() {
            Ok(Err(Error::Aborted(Abort::SnapshotEnded))) => {}
            other => wrong.push(format!("a transaction under way: {other:?}")),
        }
        if last.read(|_| Ok(())).is_ok() {
            wrong.push("a snapshot outlived the promotion".to_string());
        }
        if (db.digest(), db.rows(), db.tables().len()) != (0, 0, 0) {
            wrong.push("the follower's handle shows tables".to_string());
        }
        wrong
    })
}

#[test]
fn no_reader_of_a_follower_sees_the_new_primary() {
    let _alone = broken::alone();
    for (at, c) in followed().into_iter().enumerate() {
        let wrong = reads_wrong(c, at as u64);
        assert!(wrong.is_empty(), "{c:?}: {wrong:?}");
    }
}

/// The device dies at any change of a promotion: the files can be opened again.
fn survives_faults(c: Combination, faults: impl Iterator<Item = u64>) {
    let number = AtomicU64::new(0);
    let first = Primary::new(c, 3);
    run(&first, 1, 150, &number);
    let (disk, database) = (SimulatedDisk::new(), first.db().log().unwrap().manifest().uuid());
    let path = std::path::Path::new("/db");
    let open = |disk: &SimulatedDisk, seed: u64| {
        let device = disk.process(seed);
        let options = mirror_options(c, path, Some(Arc::new(device.clone())));
        (Mirror::open(options, "b", database).unwrap(), device)
    };
    let (mut mirror, _) = open(&disk, 1);
    let begin = members::begin_at(&first.incarnation());
    mirror.begin(&begin, &[], members::settings_of(&first), 0).unwrap();
    let tee = die(first, 6, || (), &number);
    tee.feed(&mut mirror);
    mirror.end(&tee.ends()).unwrap();
    drop(mirror);
    let (mut expected, mut failed) = (None, 0);
    for fault in faults {
        let disk = disk.fork();
        let (mirror, device) = open(&disk, fault);
        let frames = MirrorFrames(Mutex::new(mirror));
        let follower = follow_all(c, &frames);
        let reading = follower.database().clone();
        let digest = *expected.get_or_insert(reading.digest());
        assert_eq!(reading.digest(), digest);
        device.arm(SimulatedFault::Stop(fault));
        match members::promote(c, "b", frames, follower, (1, 0)) {
            Ok((db, ..)) => assert_eq!(db.digest(), digest),
            Err(error) => {
                failed += 1;
                assert!(matches!(error, Error::Log(_)), "{error}");
                let told = refused(reading.snapshot(|_| Ok(())), "a read").to_string();
                assert!(told.contains("its promotion has failed"), "{told}");
            }
        }
        match fault % 2 {
            0 => disk.kill(),
            _ => disk.power_cut(fault),
        }
        let (mut mirror, _) = open(&disk, fault + 1);
        if !mirror.has_ended() {
            let starts: Vec<Lsn> =
                mirror.manifest().newest().unwrap().dims.iter().map(|dim| dim.start).collect();
            mirror.end(&starts).unwrap();
        }
        let frames = MirrorFrames(Mutex::new(mirror));
        let follower = follow_all(c, &frames);
        let (db, ..) = members::promote(c, "b", frames, follower, (2, 0)).unwrap();
        assert_eq!(db.digest(), digest, "after fault {fault}");
    }
    assert!(failed > 3, "only {failed} promotions have failed");
}

#[test]
fn a_promotion_that_fails_leaves_files_that_can_be_opened() {
    let _alone = broken::alone();
    survives_faults(DATA, 0..40);
    survives_faults(COMMANDS, (1..40).step_by(2));
}

/// Readers that are not ended are noticed.
#[cfg(feature = "mutations")]
#[test]
fn readers_that_outlive_a_promotion_are_noticed() {
    use hyades_platform::mutation::{self, Mutation};
    let _alone = broken::alone();
    mutation::set(Some(Mutation::ServeAfterPromotion));
    let wrong: Vec<Vec<String>> =
        (0..8).map(|seed| reads_wrong([COMMANDS, DATA][seed % 2], seed as u64)).collect();
    mutation::set(None);
    assert!(wrong.iter().all(|wrong| !wrong.is_empty()), "serve-after-promotion goes unnoticed");
    let is_shown = |wrong: &String| wrong.starts_with("a reader") && wrong.contains("saw");
    assert!(wrong.iter().flatten().any(is_shown), "no reader was shown a change: {wrong:?}");
}
