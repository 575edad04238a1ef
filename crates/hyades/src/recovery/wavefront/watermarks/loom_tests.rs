//! Every schedule of runners that raise and park, and of threads that take and finish.

use super::*;
use hyades_platform::sync::Arc;
use loom::thread;

/// Runs every parked record that can run, and asserts that what it follows is installed. Returns
/// how many were run, and how many were dead.
fn serve(marks: &Watermarks<u64>, installed: &[AtomicU64]) -> (u64, u64) {
    let (mut run, mut dead) = (0, 0);
    let mut seen = Seen::new(marks.lanes.len());
    let mut what = 0;
    for at in 0..marks.lanes.len() {
        while marks.waiting(at) > 0
            && let Some(taken) = marks.take(at, &mut seen, &mut what)
        {
            if taken.dead {
                dead += 1;
            } else {
                // Relaxed: the watermarks alone must make it visible.
                for (at, one) in installed.iter().enumerate() {
                    let needed = what >> at & 1 == 1;
                    assert!(!needed || one.load(Ordering::Relaxed) == 1, "it runs too early");
                }
                run += 1;
            }
            marks.finish(taken);
        }
    }
    (run, dead)
}

fn park(
    marks: &Watermarks<u64>,
    (at, start): (usize, Lsn),
    order: &[Lsn],
    validity: &[Lsn],
    what: u64,
) {
    marks.passed(at, start);
    assert!(marks.park(at, start, (order, validity), |kept| *kept = what));
}

fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

fn marks(lanes: usize) -> Arc<Watermarks<u64>> {
    Arc::new(Watermarks::new((0..lanes).map(|_| 0), Box::new(|| ())))
}

/// Two streams are run while a record that follows both is parked in a third: it is run once, after
/// both, and its stream is resolved only then, wherever its runner is.
#[test]
fn a_parked_record_is_run_once_and_after_what_it_needs() {
    model(|| {
        let marks = marks(3);
        let installed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let runner = |at: usize| {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            thread::spawn(move || {
                installed[at].store(1, Ordering::Relaxed);
                marks.passed(at, 10);
            })
        };
        let runners = [runner(0), runner(1)];
        park(&marks, (2, 0), &[0; 3], &[10, 10, 0], 0b11);
        marks.passed(2, 10);
        let mut run = serve(&marks, &*installed).0;
        runners.into_iter().for_each(|runner| runner.join().unwrap());
        run += serve(&marks, &*installed).0;
        assert_eq!(run, 1);
        assert!(marks.has_none_parked(2));
        assert_eq!(marks.resolved(2), 10);
    });
}

/// Two threads look for parked records: each record is taken by one of them.
#[test]
fn a_record_is_taken_by_one_thread() {
    model(|| {
        let marks = marks(1);
        let installed = Arc::new([]);
        park(&marks, (0, 0), &[0], &[0], 0);
        park(&marks, (0, 5), &[0], &[0], 0);
        marks.passed(0, 10);
        let other = {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            thread::spawn(move || serve(&marks, &*installed).0)
        };
        let mine = serve(&marks, &*installed).0;
        assert_eq!(mine + other.join().unwrap(), 2);
        assert_eq!(marks.resolved(0), 10);
    });
}

/// Two parked records are finished by one thread or two, in either order: the watermark stays
/// before the first until that one was run, and then reaches the runner's position.
#[test]
fn a_watermark_stays_before_what_is_left_in_the_window() {
    model(|| {
        let marks = marks(2);
        let installed = Arc::new(AtomicU64::new(0));
        park(&marks, (0, 0), &[0; 2], &[0, 10], 0);
        park(&marks, (0, 5), &[0; 2], &[0; 2], 0);
        marks.passed(0, 10);
        let worker = {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            move || {
                let (mut seen, mut what) = (Seen::new(2), 0);
                while let Some(taken) = marks.take(0, &mut seen, &mut what) {
                    if taken.start == 0 {
                        installed.store(1, Ordering::Relaxed);
                    }
                    marks.finish(taken);
                }
            }
        };
        let other = thread::spawn(worker.clone());
        let is_right = || {
            // Relaxed: the watermark alone must make it visible.
            let resolved = marks.resolved(0);
            let run = installed.load(Ordering::Relaxed) == 1;
            assert!(resolved == 0 || run, "it stands at {resolved}, past what is left");
        };
        is_right();
        marks.passed(1, 10);
        worker();
        is_right();
        other.join().unwrap();
        assert_eq!(marks.resolved(0), 10);
    });
}

/// A runner continues behind a record that it parked for others: what needs that record waits until
/// it was run.
#[test]
fn a_runner_goes_on_only_after_what_its_record_needs() {
    model(|| {
        let marks = marks(1);
        let installed = Arc::new(AtomicU64::new(0));
        park(&marks, (0, 0), &[0], &[0], 0);
        let other = {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            thread::spawn(move || {
                let (mut seen, mut what) = (Seen::new(1), 0);
                let taken = marks.take(0, &mut seen, &mut what).unwrap();
                installed.store(1, Ordering::Relaxed);
                marks.finish(taken);
            })
        };
        marks.passed(0, 5);
        let mut seen = Seen::new(1);
        assert!(seen.may_run(&marks, &[0], &[0]), "it needs nothing");
        if seen.may_run(&marks, &[5], &[0]) {
            // Relaxed: the watermark alone must make it visible.
            assert_eq!(installed.load(Ordering::Relaxed), 1, "it runs too early");
        }
        marks.passed(0, 10);
        other.join().unwrap();
        assert_eq!(marks.resolved(0), 10);
    });
}

/// One thread runs what is parked while the stream's runner continues: together they raise the
/// watermark to the runner's position.
#[test]
fn a_watermark_follows_its_runner_past_what_was_parked() {
    model(|| {
        let marks = marks(2);
        let installed = Arc::new([AtomicU64::new(1)]);
        park(&marks, (1, 0), &[0; 2], &[10, 0], 1);
        marks.passed(0, 10);
        let other = {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            thread::spawn(move || serve(&marks, &*installed).0)
        };
        marks.passed(1, 10);
        marks.end_lane(1, 20);
        assert_eq!(other.join().unwrap(), 1);
        assert!(marks.is_complete(1), "it stands at {}", marks.resolved(1));
    });
}

/// A stream ends while records are parked that need more of it, and that only follow more of it:
/// the first is dead, the second is run.
#[test]
fn who_waits_for_more_than_there_is_is_dead_and_who_only_follows_is_not() {
    model(|| {
        let marks = marks(2);
        let installed = Arc::new([AtomicU64::new(0)]);
        let runner = {
            let (marks, installed) = (Arc::clone(&marks), Arc::clone(&installed));
            thread::spawn(move || {
                installed[0].store(1, Ordering::Relaxed);
                marks.end_lane(0, 10);
            })
        };
        park(&marks, (1, 0), &[0; 2], &[20, 0], 1);
        park(&marks, (1, 5), &[20, 0], &[0; 2], 1);
        marks.end_lane(1, 10);
        let first = serve(&marks, &*installed);
        runner.join().unwrap();
        let rest = serve(&marks, &*installed);
        assert_eq!((first.0 + rest.0, first.1 + rest.1), (1, 1));
        assert!(marks.is_complete(0) && marks.is_complete(1));
    });
}
