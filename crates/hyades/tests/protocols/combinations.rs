//! Every combination of protocol, concurrency control and record kind. Promise: acknowledged
//! transactions are recovered, and the recovered state is the state before the crash.

use crate::common::{check, combinations_and_calls, open, populate, power_cut, run};
use hyades::Replay;

#[test]
fn the_recovered_state_is_the_state_that_was() {
    for (seed, c) in combinations_and_calls().into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let device = power_cut(seed as u64);
        let opened = open(dir.path(), c, Some(device.clone()), 1, Replay::Wavefront);
        populate(&opened);
        let acknowledged = run(&opened, seed as u64, 400);
        check(&opened, &acknowledged, &format!("{c:?} before"));
        // `run` waits for transfers only. The other pre-committed transactions must not be lost
        // here.
        opened.db.log().expect("there is a log").flush().unwrap();
        let before = opened.db.digest();
        device.cut();
        drop(opened);
        for (threads, replay) in [
            (1, Replay::Wavefront),
            (2, Replay::Automatic),
            (3, Replay::Pools),
            (2, Replay::Phases),
            (2, Replay::Serial),
        ] {
            let what = format!("{c:?} recovered by {threads} threads, {replay:?}");
            let again = open(dir.path(), c, None, threads, replay);
            assert_eq!(again.db.digest(), before, "{what}: another state");
            check(&again, &acknowledged, &what);
            again.db.close().unwrap();
        }
    }
}

#[test]
fn acknowledged_is_recovered() {
    for round in 0..2u64 {
        for (at, c) in combinations_and_calls().into_iter().enumerate() {
            let seed = round * 1000 + at as u64;
            let dir = tempfile::tempdir().unwrap();
            let mut acknowledged = Vec::new();
            for crash in 0..3u64 {
                let device = power_cut(seed * 7 + crash);
                let opened = open(
                    dir.path(),
                    c,
                    Some(device.clone()),
                    1 + crash as usize % 2,
                    Replay::Wavefront,
                );
                if crash == 0 {
                    populate(&opened);
                }
                check(&opened, &acknowledged, &format!("{c:?} seed {seed} crash {crash}"));
                std::thread::scope(|scope| {
                    let ran = scope.spawn(|| run(&opened, seed * 10 + crash + 1, 100_000));
                    std::thread::sleep(std::time::Duration::from_millis(5 + seed % 20));
                    device.cut();
                    acknowledged.extend(ran.join().unwrap());
                });
            }
            let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
            check(&opened, &acknowledged, &format!("{c:?} seed {seed}, at the end"));
        }
    }
}
