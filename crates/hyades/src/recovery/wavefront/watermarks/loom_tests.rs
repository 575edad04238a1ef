//! Every schedule of runners raising and parking, and of threads taking and finishing.

use super::*;
use hyades_platform::sync::Arc;
use loom::thread;

/// Runs every runnable parked record, and asserts that its predecessors are installed. Returns the
/// number of records run, and the number of dead records.
fn serve(watermarks: &Watermarks<u64>, installed: &[AtomicU64]) -> (u64, u64) {
    let (mut run, mut dead) = (0, 0);
    let mut seen = Seen::new(watermarks.lanes.len());
    let mut what = 0;
    for at in 0..watermarks.lanes.len() {
        while watermarks.waiting(at) > 0
            && let Some(taken) = watermarks.take(at, &mut seen, &mut what)
        {
            if taken.dead {
                dead += 1;
            } else {
                // Relaxed: the watermarks alone must make the change visible.
                for (at, one) in installed.iter().enumerate() {
                    let needed = what >> at & 1 == 1;
                    assert!(!needed || one.load(Ordering::Relaxed) == 1, "it runs too early");
                }
                run += 1;
            }
            watermarks.finish(taken);
        }
    }
    (run, dead)
}

fn park(
    watermarks: &Watermarks<u64>,
    (at, start): (usize, Lsn),
    order: &[Lsn],
    validity: &[Lsn],
    what: u64,
) {
    watermarks.advance_to(at, start);
    assert!(watermarks.park(at, start, (order, validity), |kept| *kept = what));
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

fn watermarks(lanes: usize) -> Arc<Watermarks<u64>> {
    Arc::new(Watermarks::new((0..lanes).map(|_| 0), Box::new(|| ())))
}

/// Two streams are run while a follower of both is parked in a third stream: the parked record is
/// run once, after both, and the third stream is resolved only then, for any position of the
/// runner.
#[test]
fn a_parked_record_is_run_once_and_after_what_it_needs() {
    model(|| {
        let watermarks = watermarks(3);
        let installed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let runner = |at: usize| {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            thread::spawn(move || {
                installed[at].store(1, Ordering::Relaxed);
                watermarks.advance_to(at, 10);
            })
        };
        let runners = [runner(0), runner(1)];
        park(&watermarks, (2, 0), &[0; 3], &[10, 10, 0], 0b11);
        watermarks.advance_to(2, 10);
        let mut run = serve(&watermarks, &*installed).0;
        runners.into_iter().for_each(|runner| runner.join().unwrap());
        run += serve(&watermarks, &*installed).0;
        assert_eq!(run, 1);
        assert!(watermarks.has_none_parked(2));
        assert_eq!(watermarks.resolved(2), 10);
    });
}

/// Two threads look for parked records: each record is taken by one thread.
#[test]
fn a_record_is_taken_by_one_thread() {
    model(|| {
        let watermarks = watermarks(1);
        let installed = Arc::new([]);
        park(&watermarks, (0, 0), &[0], &[0], 0);
        park(&watermarks, (0, 5), &[0], &[0], 0);
        watermarks.advance_to(0, 10);
        let other = {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            thread::spawn(move || serve(&watermarks, &*installed).0)
        };
        let mine = serve(&watermarks, &*installed).0;
        assert_eq!(mine + other.join().unwrap(), 2);
        assert_eq!(watermarks.resolved(0), 10);
    });
}

/// Two parked records are finished by one thread or two, in either order: the watermark stays
/// before the first record until its run, and then reaches the runner's position.
#[test]
fn a_watermark_stays_before_what_is_left_in_the_window() {
    model(|| {
        let watermarks = watermarks(2);
        let installed = Arc::new(AtomicU64::new(0));
        park(&watermarks, (0, 0), &[0; 2], &[0, 10], 0);
        park(&watermarks, (0, 5), &[0; 2], &[0; 2], 0);
        watermarks.advance_to(0, 10);
        let worker = {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            move || {
                let (mut seen, mut what) = (Seen::new(2), 0);
                while let Some(taken) = watermarks.take(0, &mut seen, &mut what) {
                    if taken.start == 0 {
                        installed.store(1, Ordering::Relaxed);
                    }
                    watermarks.finish(taken);
                }
            }
        };
        let other = thread::spawn(worker.clone());
        let is_right = || {
            // Relaxed: the watermark alone must make the change visible.
            let resolved = watermarks.resolved(0);
            let run = installed.load(Ordering::Relaxed) == 1;
            assert!(resolved == 0 || run, "it is at {resolved}, past what is left");
        };
        is_right();
        watermarks.advance_to(1, 10);
        worker();
        is_right();
        other.join().unwrap();
        assert_eq!(watermarks.resolved(0), 10);
    });
}

/// A runner continues behind a record parked for other threads: records in need of the parked
/// record wait for its run.
#[test]
fn a_runner_goes_on_only_after_what_its_record_needs() {
    model(|| {
        let watermarks = watermarks(1);
        let installed = Arc::new(AtomicU64::new(0));
        park(&watermarks, (0, 0), &[0], &[0], 0);
        let other = {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            thread::spawn(move || {
                let (mut seen, mut what) = (Seen::new(1), 0);
                let taken = watermarks.take(0, &mut seen, &mut what).unwrap();
                installed.store(1, Ordering::Relaxed);
                watermarks.finish(taken);
            })
        };
        watermarks.advance_to(0, 5);
        let mut seen = Seen::new(1);
        assert!(seen.may_run(&watermarks, &[0], &[0]), "it needs nothing");
        if seen.may_run(&watermarks, &[5], &[0]) {
            // Relaxed: the watermark alone must make the change visible.
            assert_eq!(installed.load(Ordering::Relaxed), 1, "it runs too early");
        }
        watermarks.advance_to(0, 10);
        other.join().unwrap();
        assert_eq!(watermarks.resolved(0), 10);
    });
}

/// One thread runs the parked records while the stream's runner continues: together they raise the
/// watermark to the runner's position.
#[test]
fn a_watermark_follows_its_runner_past_what_was_parked() {
    model(|| {
        let watermarks = watermarks(2);
        let installed = Arc::new([AtomicU64::new(1)]);
        park(&watermarks, (1, 0), &[0; 2], &[10, 0], 1);
        watermarks.advance_to(0, 10);
        let other = {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            thread::spawn(move || serve(&watermarks, &*installed).0)
        };
        watermarks.advance_to(1, 10);
        watermarks.end_lane(1, 20);
        assert_eq!(other.join().unwrap(), 1);
        assert!(watermarks.is_complete(1), "it is at {}", watermarks.resolved(1));
    });
}

/// A stream ends while two records are parked: the first needs more of the stream and is dead, the
/// second is only ordered after more of the stream and is run.
#[test]
fn a_record_that_needs_more_than_there_is_is_dead_and_one_that_only_follows_is_not() {
    model(|| {
        let watermarks = watermarks(2);
        let installed = Arc::new([AtomicU64::new(0)]);
        let runner = {
            let (watermarks, installed) = (Arc::clone(&watermarks), Arc::clone(&installed));
            thread::spawn(move || {
                installed[0].store(1, Ordering::Relaxed);
                watermarks.end_lane(0, 10);
            })
        };
        park(&watermarks, (1, 0), &[0; 2], &[20, 0], 1);
        park(&watermarks, (1, 5), &[20, 0], &[0; 2], 1);
        watermarks.end_lane(1, 10);
        let first = serve(&watermarks, &*installed);
        runner.join().unwrap();
        let rest = serve(&watermarks, &*installed);
        assert_eq!((first.0 + rest.0, first.1 + rest.1), (1, 1));
        assert!(watermarks.is_complete(0) && watermarks.is_complete(1));
    });
}
