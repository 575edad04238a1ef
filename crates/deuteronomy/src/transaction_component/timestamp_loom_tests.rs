//! Announcements under every schedule of their threads.

use super::*;
use hyades_platform::sync::AtomicBool;
use loom::sync::{Arc, Mutex as LoomMutex};
use loom::thread;

/// O1, O2: below the oldest timestamp found every transaction has ended, and its effects are seen.
#[test]
fn none_below_the_oldest_is_active() {
    loom::model(|| {
        let timestamps = Arc::new(Timestamps::new(0, 2, 0));
        let ended = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let run = || {
            let (timestamps, ended) = (timestamps.clone(), ended.clone());
            thread::spawn(move || {
                let at = timestamps.enter().unwrap();
                timestamps.announce(at);
                let ts = timestamps.draw(at).unwrap();
                ended[ts as usize].store(true, Ordering::Relaxed);
                timestamps.end(at);
            })
        };
        let threads = [run(), run()];
        for ts in 0..timestamps.oldest_active() {
            assert!(ended[ts as usize].load(Ordering::Relaxed), "{ts} is active");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(timestamps.oldest_active(), 2);
    });
}

/// A session whose group is being put to rest is not missed. Its place is not in the first group.
#[test]
fn a_session_that_begins_while_its_group_goes_to_rest_is_found() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let timestamps = Arc::new(Timestamps::new(0, 2, 0));
        let at = [(); 2].map(|()| timestamps.enter().unwrap())[1];
        // The group is awake, and idle.
        timestamps.announce(at);
        timestamps.end(at);
        let session = {
            let timestamps = timestamps.clone();
            thread::spawn(move || {
                timestamps.announce(at);
                timestamps.draw(at).unwrap()
            })
        };
        let other = {
            let timestamps = timestamps.clone();
            thread::spawn(move || timestamps.rest())
        };
        timestamps.rest();
        let ts = session.join().unwrap();
        other.join().unwrap();
        // The transaction is active.
        assert!(timestamps.oldest_active() <= ts);
    });
}

/// A thread using an oldest timestamp, of its own look or of another thread's, leaves the versions
/// read by a snapshot, in either order; and transactions below a snapshot's horizon have ended.
#[test]
fn no_thread_goes_by_a_timestamp_above_the_horizon_of_a_snapshot() {
    goes_by(Timestamps::oldest_active);
    goes_by(Timestamps::oldest_lately);
}

fn goes_by(oldest: fn(&Timestamps) -> u64) {
    let mut model = loom::model::Builder::new();
    // All schedules would take minutes.
    model.preemption_bound = Some(3);
    model.check(move || {
        let timestamps = Arc::new(Timestamps::new(0, 2, 100));
        let ended = Arc::new(AtomicBool::new(false));
        let writer = {
            let (timestamps, ended) = (timestamps.clone(), ended.clone());
            thread::spawn(move || {
                let at = timestamps.enter().unwrap();
                timestamps.announce(at);
                timestamps.draw(at).unwrap();
                ended.store(true, Ordering::Relaxed);
                timestamps.end(at);
                // For the look of the other thread.
                timestamps.oldest_active();
            })
        };
        let reader = {
            let (timestamps, ended) = (timestamps.clone(), ended.clone());
            thread::spawn(move || {
                let at = timestamps.enter().unwrap();
                let horizon = timestamps.announce_snapshot(at);
                assert!(horizon == 0 || ended.load(Ordering::Relaxed), "0 is active");
                // The snapshot stays open.
                horizon
            })
        };
        let oldest = oldest(&timestamps);
        writer.join().unwrap();
        let horizon = reader.join().unwrap();
        assert!(oldest <= horizon, "{oldest}, and it reads as of {horizon}");
        assert!(timestamps.oldest_active() <= horizon);
    });
}

/// Each record below the complete positions was handed over.
#[test]
fn what_is_complete_was_handed_over() {
    let mut model = loom::model::Builder::new();
    // All schedules would take minutes.
    model.preemption_bound = Some(3);
    model.check(|| {
        let timestamps = Arc::new(Timestamps::new(0, 2, 0));
        // The stream: positions are given out, and durable at once.
        let reserved = Arc::new(AtomicU64::new(0));
        let inbox = Arc::new(LoomMutex::new(Vec::new()));
        let write = || {
            let (timestamps, reserved) = (timestamps.clone(), reserved.clone());
            let inbox = inbox.clone();
            thread::spawn(move || {
                let at = timestamps.enter().unwrap();
                timestamps.announce_reserving(at, 0, reserved.load(Ordering::Acquire));
                let place = reserved.fetch_add(1, Ordering::AcqRel);
                inbox.lock().unwrap().push(place);
                timestamps.end_reserving(at);
            })
        };
        let threads = [write(), write()];
        let mut complete = [reserved.load(Ordering::Acquire)];
        timestamps.lower_to_handed_over(&mut complete);
        let handed_over = inbox.lock().unwrap().clone();
        for place in 0..complete[0] {
            assert!(handed_over.contains(&place), "{place} of {handed_over:?}");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
