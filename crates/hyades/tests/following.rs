//! Followers: after each round the tables are exactly the primary's as of the mark, and readers see
//! one such state while rounds go on.
#![allow(missing_docs)]

mod common;

use common::followers::{History, Primary, content, differs, followed};
use common::{Combination, How, broken, directory, power_cut, refused};
use hyades::wal::{LogOptions, open_read};
use hyades::{
    Abort, CheckpointSettings, Column, Concurrency, CutMark, Error, FollowedLog, ImagePlace,
    Protocol, RecordKind,
};
use hyades_platform::mutation::{self, Mutation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

const COMMANDS: Combination = Combination {
    protocol: Protocol::Taurus,
    concurrency: Concurrency::Silo,
    record: RecordKind::Adaptive,
    streams: 4,
};
const DATA: Combination = Combination { record: RecordKind::Data, ..COMMANDS };

/// Every combination that can be followed, in a short history; more with `HYADES_FOLLOWED_SEEDS`.
#[test]
fn a_follower_is_the_primary_as_of_each_mark() {
    let _alone = broken::alone();
    let seeds = std::env::var("HYADES_FOLLOWED_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        for (at, c) in followed().into_iter().enumerate() {
            let history = History { c, seed: seed * 100 + at as u64, marks: 40, readers: at % 3 };
            if let Some(difference) = differs(history) {
                panic!("{history:?}: {difference}");
            }
        }
    }
}

/// Runs a primary for some time, without marks.
fn run(primary: &Primary, seed: u64, transactions: u64) {
    let (number, mut rng) = (AtomicU64::new(seed << 32), fastrand::Rng::with_seed(seed));
    let mut session = primary.db().session().unwrap();
    for _ in 0..transactions {
        primary.change(&mut session, &mut rng, &number);
    }
}

/// A round of some hundred KB runs on several threads, beside readers or not.
#[test]
fn a_large_round_is_replayed_on_several_threads() {
    let _alone = broken::alone();
    for c in [COMMANDS, DATA, Combination { record: RecordKind::Command, ..COMMANDS }] {
        let primary = Primary::new(c, 7);
        let mut follower = primary.follower();
        for (seed, beside) in [(1, false), (2, true), (3, true)] {
            std::thread::scope(|scope| {
                (0..3).for_each(|at| {
                    drop(scope.spawn({
                        let primary = &primary;
                        move || run(primary, seed * 10 + at, 3_000)
                    }))
                });
            });
            let reading = beside.then(|| {
                let snapshot = follower.database().open_snapshot();
                (content(&snapshot), snapshot)
            });
            let mark = primary.mark();
            primary.wait_for(&mark);
            let report = follower.round(&mark, primary.source()).unwrap();
            assert!(report.bytes > 256 << 10, "{report:?}");
            assert_eq!(report.beside_readers, beside);
            assert_eq!(follower.database().digest(), primary.db().digest(), "{c:?}");
            if let Some((before, snapshot)) = reading {
                assert_eq!(content(&snapshot), before, "{c:?}: a reader has its state");
            }
        }
    }
}

/// A follower begins with a checkpoint taken while transactions ran: a fuzzy one, or an exact one.
#[test]
fn a_follower_begins_with_a_checkpoint() {
    let _alone = broken::alone();
    for c in [COMMANDS, DATA] {
        let primary = Primary::new(c, 5);
        let (stop, number) = (AtomicBool::new(false), AtomicU64::new(1));
        let copy = directory();
        let (base, catalogue) = std::thread::scope(|scope| {
            let (primary, stop, number) = (&primary, &stop, &number);
            (0..2).for_each(|seed| drop(scope.spawn(move || primary.work(seed, stop, number))));
            std::thread::sleep(std::time::Duration::from_millis(30));
            primary.db().checkpoint().unwrap();
            let dir = copy.path().join("copy");
            primary.db().backup(&dir).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let base = open_read(LogOptions::new(vec![dir], c.streams)).unwrap();
            let catalogue = base.manifest().catalogue.clone();
            (base, catalogue)
        });
        let incarnation = primary.incarnation();
        let begin =
            FollowedLog { catalogue: &catalogue, incarnation: &incarnation, base: Some(&base) };
        let mut follower = primary.declared().follow(&begin).unwrap();
        // An image of a log of data shows later changes, and is no state.
        let checkpoint = base.manifest().checkpoint.clone().unwrap();
        let is_exact = checkpoint.scan_end.is_none();
        assert_eq!(is_exact, c.record != RecordKind::Data);
        assert_eq!(follower.served(), is_exact.then_some(checkpoint.cut));
        if !is_exact {
            let error = refused(follower.database().snapshot(|_| Ok(())), "no state");
            assert!(error.to_string().contains("serves no state yet"), "{error}");
        }
        let early = primary.mark();
        let early = CutMark { epoch: checkpoint.reaches_back_to() - 1, ..early };
        let error = refused(follower.round(&early, primary.source()), "a mark within the image");
        assert!(error.to_string().contains("is not after epoch"), "{error}");
        let mark = primary.mark();
        primary.wait_for(&mark);
        follower.round(&mark, primary.source()).unwrap();
        assert_eq!(follower.database().digest(), primary.db().digest(), "{c:?}");
    }
}

/// After a power cut the last round ends where recovery has found the ends: what depends on lost
/// records is dead, and the next incarnation goes on.
#[test]
fn a_follower_goes_on_in_the_next_incarnation() {
    let _alone = broken::alone();
    for (at, c) in followed().into_iter().enumerate() {
        let device = power_cut(at as u64);
        let how = How { device: Some(Arc::new(device.clone())), ..How::default() };
        let first = Primary::open(c, 1, directory(), how);
        common::populate(&first.opened);
        run(&first, 1, 300);
        let mut follower = first.follower();
        let mark = first.mark();
        first.wait_for(&mark);
        first.db().log().unwrap().flush().unwrap();
        follower.round(&mark, first.source()).unwrap();
        run(&first, 2, 300);
        device.cut();
        let Primary { opened, tee, dir, .. } = first;
        drop(opened);
        let second = Primary::open(c, 2, dir, How::default());
        let manifest = second.db().log().unwrap().manifest();
        let ended = &manifest.incarnations[0];
        let ends: Vec<_> = ended.dims.iter().map(|dim| dim.end.unwrap()).collect();
        follower.last_round(&ends, &*tee).unwrap();
        assert_eq!(follower.database().digest(), second.db().digest(), "{c:?}");
        run(&second, 3, 300);
        let error = refused(follower.round(&second.mark(), second.source()), "an ended one");
        assert!(error.to_string().contains("has ended"), "{error}");
        follower.next_incarnation(&second.incarnation(), &second.catalogue()).unwrap();
        let mark = second.mark();
        second.wait_for(&mark);
        follower.round(&mark, second.source()).unwrap();
        assert_eq!(follower.database().digest(), second.db().digest(), "{c:?}");
    }
}

/// Whether the primary, recovered from an image that a follower has written beside rounds, is as
/// before.
fn recovers_from_image(c: Combination, seed: u64) -> bool {
    let primary = Primary::new(c, seed);
    let (stop, number) = (AtomicBool::new(false), AtomicU64::new(1));
    let mut follower = primary.follower();
    let mark = |follower: &mut hyades::Follower| {
        primary.allow(20);
        std::thread::sleep(std::time::Duration::from_micros(300));
        let mark = primary.mark();
        primary.wait_for(&mark);
        follower.round(&mark, primary.source()).unwrap();
    };
    let log = primary.db().log().unwrap();
    std::thread::scope(|scope| {
        let (primary, stop, number) = (&primary, &stop, &number);
        (0..2).for_each(|w| drop(scope.spawn(move || primary.work(seed * 2 + w, stop, number))));
        std::thread::sleep(std::time::Duration::from_millis(20));
        mark(&mut follower);
        let (number, parts) = log.next_checkpoint(2);
        let (device, uuid) = (log.device().clone(), log.manifest().uuid());
        let place = ImagePlace { device, uuid, number, parts, before: 0 };
        let image = follower.begin_image(1 << 20).unwrap();
        let error = refused(follower.begin_image(1 << 20).map(|_| ()), "a second image");
        assert!(error.to_string().contains("is being written"), "{error}");
        // The first rounds come before the first row is written.
        (0..5).for_each(|_| mark(&mut follower));
        let stop_image = AtomicBool::new(false);
        let change = |s: &mut CheckpointSettings| (s.share, s.block_bytes) = (0.2, 500);
        let settings = common::checkpointing::changed(change);
        let written = scope.spawn(move || image.write(&place, &settings, &stop_image).unwrap());
        while !written.is_finished() {
            mark(&mut follower);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (checkpoint, report) = written.join().unwrap();
        assert_eq!((checkpoint.rows, report.rows), (report.rows, checkpoint.rows));
        log.adopt(checkpoint).unwrap();
    });
    let digest = primary.db().digest();
    let Primary { opened, dir, .. } = primary;
    drop(follower);
    opened.db.close().unwrap();
    let reopened = common::followers::declared(c, How::default()).0.open(dir.path());
    reopened.is_ok_and(|db| db.digest() == digest)
}

#[test]
fn a_follower_writes_checkpoints_beside_rounds() {
    let _alone = broken::alone();
    for (at, c) in followed().into_iter().enumerate() {
        assert!(recovers_from_image(c, at as u64), "{c:?}");
    }
}

#[test]
fn a_follower_is_only_read() {
    let _alone = broken::alone();
    let primary = Primary::new(COMMANDS, 3);
    let mut follower = primary.follower();
    let mark = primary.mark();
    primary.wait_for(&mark);
    follower.round(&mark, primary.source()).unwrap();
    let db = follower.database();
    let balance = Column::<i64>::at(1);
    let read = db.transact(|tx| Ok(tx.get(common::ACCOUNTS, 1i64)?.map(|row| row.get(balance))));
    assert_eq!(read.unwrap(), Some(1000));
    let read_only = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Aborted(Abort::ReadOnly))), "{result:?}");
    };
    read_only(db.transact(|tx| Ok(tx.delete(common::ACCOUNTS, 1i64).map(drop)?)));
    // Even if the body ignores the error.
    read_only(db.transact(|tx| {
        let _ = tx.delete(common::ACCOUNTS, 1i64);
        Ok(())
    }));
    let arguments = common::Transfer { id: 1, from: 1, to: 2, amount: 3 };
    read_only(db.call::<_, i64>("transfer", &arguments).map(drop));
    let error = refused(db.checkpoint(), "a checkpoint").to_string();
    assert!(error.contains("without a log"), "{error}");
    let error = refused(db.cut_marks().map(|_| ()), "marks").to_string();
    assert!(error.contains("without a log"), "{error}");
    let error = refused(db.session().unwrap().begin().map(|_| ()), "an open transaction");
    assert!(error.to_string().contains("read in a closure"), "{error}");
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_reason() {
    let _alone = broken::alone();
    let refusal = |c: Combination| {
        let tee = common::tee::Tee::new(c.streams, 1);
        let builder = common::followers::declared(c, How::default()).0;
        let error = refused(builder.remote(tee).open(directory().path()), "a pair");
        error.to_string()
    };
    let c = Combination { protocol: hyades_schemes::SILO_R, record: RecordKind::Data, ..COMMANDS };
    assert!(refusal(c).contains("set protocol to taurus or serial"), "{}", refusal(c));
    let c = Combination { concurrency: hyades_schemes::TICTOC, ..DATA };
    assert!(refusal(c).contains("set concurrency to"), "{}", refusal(c));
    let c = Combination { concurrency: Concurrency::Hekaton, ..COMMANDS };
    assert!(refusal(c).contains("set record to data"), "{}", refusal(c));
    // A log without a remote states what it is.
    let dir = directory();
    let c = Combination { protocol: hyades_schemes::SILO_R, ..DATA };
    let db = common::followers::declared(c, How::default()).0.open(dir.path()).unwrap();
    let error = refused(db.cut_marks().map(|_| ()), "marks").to_string();
    assert!(error.contains("cannot be followed: its records are judged by marks"), "{error}");
    // A program that declares an index more.
    let one = |schema: hyades::Schema| {
        let mut builder = hyades::Database::builder();
        builder.table(schema.primary_key(&["a"]));
        builder
    };
    let schema = || hyades::Schema::new("one").column("a", hyades::Type::I64);
    let dir = directory();
    let db = one(schema()).open(dir.path()).unwrap();
    let manifest = db.log().unwrap().manifest();
    let incarnation = manifest.newest().unwrap();
    let log = FollowedLog { catalogue: &manifest.catalogue, incarnation, base: None };
    assert!(one(schema()).follow(&log).is_ok());
    let other = one(schema().index("by_a", &["a"])).follow(&log);
    let error = refused(other.map(|_| ()), "other tables").to_string();
    assert!(error.contains("the declared tables differ"), "{error}");
}

#[test]
fn marks_and_frames_that_do_not_fit_are_refused() {
    let _alone = broken::alone();
    let primary = Primary::new(COMMANDS, 3);
    let mut follower = primary.follower();
    let source = primary.source();
    let error = refused(follower.database().snapshot(|_| Ok(())), "a read").to_string();
    assert!(error.contains("first round has not ended"), "{error}");
    run(&primary, 1, 50);
    let mark = primary.mark();
    primary.wait_for(&mark);
    follower.round(&mark, source).unwrap();
    let mut refuse = |mark: &CutMark, why: &str| {
        let error = refused(follower.round(mark, source), why).to_string();
        assert!(error.contains(why), "{error}");
    };
    refuse(&mark, "is not after epoch");
    run(&primary, 2, 50);
    let next = primary.mark();
    primary.wait_for(&next);
    refuse(&CutMark { incarnation: 9, ..next.clone() }, "is of incarnation 9");
    refuse(&CutMark { to: vec![0; 4], ..next.clone() }, "where the round begins");
    refuse(&CutMark { to: vec![9; 3], ..next.clone() }, "where the round begins");
    let incarnation = primary.incarnation();
    let error = refused(follower.next_incarnation(&incarnation, &primary.catalogue()), "too early");
    assert!(error.to_string().contains("cannot follow"), "{error}");
    // None of them has hurt.
    follower.round(&next, source).unwrap();
    assert_eq!(follower.database().digest(), primary.db().digest());
    // Frames that are missing end the follower, and a reader is told.
    run(&primary, 3, 100);
    let last = primary.mark();
    primary.wait_for(&last);
    let lane = (0..4).max_by_key(|&lane| last.to[lane] - next.from[lane]).unwrap();
    *primary.tee.withheld.lock().unwrap() = Some((lane, next.to[lane] + 1));
    let error = refused(follower.round(&last, source), "missing frames").to_string();
    assert!(error.contains("the copy of the log is incomplete"), "{error}");
    let error = refused(follower.round(&last, source), "a broken follower").to_string();
    assert!(error.contains("the follower has stopped"), "{error}");
    let error = refused(follower.database().snapshot(|_| Ok(())), "a read").to_string();
    assert!(error.contains("serves no state any more"), "{error}");
}

/// Each rule of marks and rounds, broken on purpose, is noticed.
#[cfg(feature = "mutations")]
#[test]
fn each_broken_rule_of_rounds_is_noticed() {
    let _alone = broken::alone();
    let rules = [
        Mutation::MarkEarly,
        Mutation::MarkFromLate,
        Mutation::ApplyLaterEpoch,
        Mutation::ForgetServed,
    ];
    for rule in rules {
        let is_noticed = |c: Combination, seed: u64| {
            let history = History { c, seed, marks: 30, readers: 2 };
            differs(history).is_some()
        };
        mutation::set(Some(rule));
        let combinations = [DATA, COMMANDS, Combination { streams: 1, ..DATA }];
        let noticed = (0..60).any(|seed| is_noticed(combinations[seed % 3], seed as u64));
        mutation::set(None);
        assert!(noticed, "{} goes unnoticed", rule.name());
    }
    mutation::set(Some(Mutation::ImageInRound));
    let noticed = (0..4).any(|seed| !recovers_from_image(COMMANDS, seed));
    mutation::set(None);
    assert!(noticed, "image-in-round goes unnoticed");
}
