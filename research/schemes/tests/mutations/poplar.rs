//! Mutation tests: rules of Poplar, broken on purpose, are noticed.

use crate::common::broken::{self, BrokenRule};
use crate::common::by_hand::{
    BOTH, X, Y, a_missing_row_depends_on_its_deletion, builder, put, read,
};
use crate::common::directory;
use hyades::{Abort, Concurrency, Transaction};
use hyades_platform::mutation::Mutation;
use hyades_schemes::POPLAR;
use std::time::Duration;

/// A row that is only written.
const OTHER: i64 = 9;

/// T1 reads x and writes y, T2 writes x, a snapshot reads both, and T3 draws a number in the
/// stream of T1, all at about the same time. Returns whether each snapshot that has x of T2 without
/// y of T1 follows a T1 that has seen x of T2.
fn snapshots_are_serializable() -> bool {
    let dir = directory();
    let mut builder = builder(POPLAR, Concurrency::Silo, 2);
    builder = builder.log_settings(|log| {
        log.research.fixed_streams = true;
        // Only snapshots begin epochs.
        log.epoch = Some(Duration::from_secs(60));
    });
    let db = builder.open(dir.path()).unwrap();
    let mut sessions: Vec<_> = (0..4).map(|_| db.session().unwrap()).collect();
    (0..50).all(|_| {
        db.transact(|tx| Ok(put(tx, X, 0).and_then(|()| put(tx, Y, 0))?)).unwrap();
        let both = |tx: &Transaction<'_>| Ok::<_, Abort>((read(tx, X)?, read(tx, Y)?));
        let [one, two, three, _] = &mut sessions[..] else { unreachable!("there are four") };
        std::thread::scope(|scope| {
            let t1 = scope.spawn(|| {
                let run = |tx: &Transaction<'_>| {
                    let x = read(tx, X)?;
                    put(tx, Y, 1)?;
                    Ok::<_, Abort>(x)
                };
                one.try_submit(run).unwrap().0.unwrap()
            });
            std::thread::sleep(Duration::from_millis(1));
            two.try_submit(|tx| put(tx, X, 1)).unwrap().0.unwrap();
            let snapshot = scope.spawn(|| db.snapshot(|tx| Ok(both(tx)?)).unwrap());
            std::thread::sleep(Duration::from_millis(1));
            three.try_submit(|tx| put(tx, OTHER, 1)).unwrap().0.unwrap();
            let (seen, shot) = (t1.join().unwrap(), snapshot.join().unwrap());
            shot != (1, 0) || seen == 1
        })
    })
}

#[test]
fn each_broken_rule_of_poplar_is_noticed() {
    let _alone = broken::alone();
    assert!(snapshots_are_serializable());
    let rules: [BrokenRule<'_>; 1] = [(Mutation::LateVersions, &snapshots_are_serializable)];
    broken::each_is_noticed(&rules);
    for concurrency in BOTH {
        let waits = || a_missing_row_depends_on_its_deletion(concurrency);
        assert!(waits());
        let rules: [BrokenRule<'_>; 1] = [(Mutation::ForgetRemoved, &waits)];
        broken::each_is_noticed(&rules);
    }
}
