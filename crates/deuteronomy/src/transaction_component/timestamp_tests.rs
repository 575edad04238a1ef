//! The clock and the announcements, step by step.

use super::*;
use crate::data_component::MOST_SESSIONS;

#[test]
fn the_oldest_is_announced_before_it_draws() {
    let timestamps = Timestamps::new(5, 2, 0);
    let (a, b) = (timestamps.enter().unwrap(), timestamps.enter().unwrap());
    assert_eq!((timestamps.enter(), timestamps.oldest_active()), (None, 5));
    timestamps.announce(a);
    timestamps.announce(b);
    assert_eq!((timestamps.draw(b), timestamps.oldest_active()), (Some(5), 5));
    timestamps.end(b);
    assert_eq!(timestamps.oldest_active(), 5, "a may still have drawn 5");
    assert_eq!((timestamps.draw(a), timestamps.oldest_active()), (Some(6), 6));
    timestamps.end(a);
    assert_eq!(timestamps.oldest_active(), 7);
}

#[test]
fn a_bound_may_be_old_and_a_session_that_comes_later_is_looked_at() {
    let timestamps = Timestamps::new(5, 3, 0);
    let (a, b) = (timestamps.enter().unwrap(), timestamps.enter().unwrap());
    for ts in 5..9 {
        timestamps.announce(a);
        assert_eq!(timestamps.draw(a), Some(ts));
        timestamps.end(a);
    }
    assert_eq!(timestamps.oldest_active(), 9);
    // The session has seen the clock at its entry, and may not draw below that value.
    timestamps.announce(b);
    assert_eq!(timestamps.oldest_active(), 5);
    assert_eq!((timestamps.draw(b), timestamps.oldest_active()), (Some(9), 9));
    let c = timestamps.enter().unwrap();
    timestamps.announce(c);
    timestamps.end(b);
    assert_eq!(timestamps.oldest_active(), 10, "c has seen the clock at 10");
    assert_eq!(timestamps.draw(c), Some(10));
    timestamps.announce(a);
    assert_eq!(timestamps.oldest_active(), 9);
}

#[test]
fn a_snapshot_holds_the_oldest_back_and_reads_below_what_was_found_before() {
    let timestamps = Timestamps::new(5, 3, 0);
    let [a, b, c] = [(); 3].map(|()| timestamps.enter().unwrap());
    timestamps.announce(a);
    assert_eq!((timestamps.draw(a), timestamps.oldest_active()), (Some(5), 5));
    assert_eq!(timestamps.announce_snapshot(b), 5);
    timestamps.end(a);
    assert_eq!(timestamps.oldest_active(), 5);
    assert_eq!(timestamps.announce_snapshot(c), 5, "it shares what the other one keeps");
    timestamps.end_snapshot(b);
    timestamps.end_snapshot(c);
    assert_eq!(timestamps.oldest_active(), 6);
    assert_eq!(timestamps.announce_snapshot(b), 6);
    timestamps.end_snapshot(b);
}

#[test]
fn sessions_at_rest_are_passed_over_until_they_begin_again() {
    let timestamps = Timestamps::new(0, 5 * GROUP, 0);
    let places: Vec<_> = (0..5 * GROUP).map(|_| timestamps.enter().unwrap()).collect();
    let looked_at = || timestamps.announced().count();
    assert_eq!(looked_at(), GROUP, "none has begun");
    let (a, b) = (places[2 * GROUP], places[3 * GROUP + 5]);
    timestamps.announce(a);
    assert_eq!(timestamps.announce_snapshot(b), 0);
    assert_eq!((looked_at(), timestamps.oldest_active()), (3 * GROUP, 0));
    timestamps.end_snapshot(b);
    timestamps.announce_reserving(a, 0, 7);
    timestamps.rest();
    let mut durable = [9];
    timestamps.lower_to_handed_over(&mut durable);
    assert_eq!((looked_at(), durable), (2 * GROUP, [7]));
    timestamps.end_reserving(a);
    timestamps.end(a);
    timestamps.rest();
    assert_eq!(looked_at(), GROUP);
    timestamps.announce(b);
    assert_eq!((looked_at(), timestamps.oldest_active()), (2 * GROUP, 0));
    assert_eq!((timestamps.draw(b), timestamps.oldest_active()), (Some(0), 0));
    timestamps.end(b);
    assert_eq!(timestamps.oldest_active(), 1);
}

#[test]
fn the_youngest_that_has_written_is_shed_first() {
    let timestamps = Timestamps::new(1, 4, 0);
    let [a, b, c, d] = [(); 4].map(|()| timestamps.enter().unwrap());
    assert_eq!(timestamps.shed_youngest_above(0), None);
    for (at, ts) in [(a, 5), (b, 9), (c, 7)] {
        timestamps.announce_writing(at, ts);
    }
    assert!(timestamps.is_younger_writing(8) && !timestamps.is_younger_writing(9));
    assert_eq!(timestamps.shed_youngest_above(9), None);
    assert_eq!(timestamps.shed_youngest_above(5), Some(9));
    assert_eq!([a, b, c, d].map(|at| timestamps.is_shed(at)), [false, true, false, false]);
    assert!(timestamps.is_younger_writing(8), "it has not ended");
    assert_eq!(timestamps.shed_youngest_above(5), Some(7));
    assert_eq!(timestamps.shed_youngest_above(5), None, "it does not shed itself");
    timestamps.end_writing(b);
    assert!(!timestamps.is_shed(b) && !timestamps.is_younger_writing(7));
    timestamps.announce_writing(b, 11);
    assert!(!timestamps.is_shed(b), "that was its last transaction");
    assert_eq!(timestamps.shed_youngest_above(0), Some(11));
}

#[test]
fn what_may_be_reserved_is_not_complete() {
    let timestamps = Timestamps::new(1, 2, 0);
    let at = timestamps.enter().unwrap();
    timestamps.announce_reserving(at, 1, 30);
    let mut durable = [50, 50];
    timestamps.lower_to_handed_over(&mut durable);
    assert_eq!(durable, [50, 30]);
    timestamps.end_reserving(at);
    let mut durable = [50, 50];
    timestamps.lower_to_handed_over(&mut durable);
    assert_eq!(durable, [50, 50]);
}

#[test]
fn the_first_part_of_a_transaction_is_held_and_delays_no_record() {
    let timestamps = Timestamps::new(1, 2, 0);
    let at = timestamps.enter().unwrap();
    timestamps.announce_holding(at, 0, 20);
    let (mut durable, mut held) = ([50, 50], [50, 50]);
    timestamps.lower_to_handed_over(&mut durable);
    timestamps.lower_to_held(&mut held);
    assert_eq!((durable, held), ([50, 50], [20, 50]));
    timestamps.end_holding(at);
    timestamps.lower_to_held(&mut durable);
    assert_eq!(durable, [50, 50]);
}

/// A look serves for a while, for all threads; never where a snapshot may have missed the look.
#[test]
fn a_recent_look_serves_unless_there_are_snapshots() {
    let timestamps = Timestamps::new(5, 2, 2);
    let [a, b] = [(); 2].map(|()| timestamps.enter().unwrap());
    let draw = |at| {
        timestamps.announce(at);
        timestamps.draw(at).unwrap()
    };
    assert_eq!((draw(a), timestamps.oldest_lately()), (5, 5));
    timestamps.end(a);
    for ts in 6..=8 {
        assert_eq!((draw(a), timestamps.oldest_lately()), (ts, 5), "no later look is worth it");
        timestamps.end(a);
    }
    assert_eq!((draw(a), timestamps.oldest_lately()), (9, 9));
    timestamps.end(a);
    draw(a);
    timestamps.end(a);
    let horizon = timestamps.announce_snapshot(b);
    assert_eq!((horizon, draw(a), timestamps.oldest_lately()), (9, 11, 9));
    timestamps.end(a);
    assert_eq!(timestamps.oldest_lately(), 9);
    timestamps.end_snapshot(b);
    assert_eq!(timestamps.oldest_active(), 12);
}

/// Each place draws at most a single timestamp at or above `LAST_TS`, whenever the place was taken.
#[test]
fn no_timestamp_above_the_highest_is_drawn() {
    let timestamps = Timestamps::new(LAST_TS - 2, MOST_SESSIONS, 0);
    let places: Vec<_> = (0..MOST_SESSIONS).map(|_| timestamps.enter().unwrap()).collect();
    let draw = |at| {
        timestamps.announce(at);
        let ts = timestamps.draw(at);
        timestamps.end(at);
        ts
    };
    assert_eq!(draw(places[0]), Some(LAST_TS - 2));
    assert_eq!(draw(places[0]), Some(LAST_TS - 1));
    for (at, ts) in places.iter().zip(LAST_TS..) {
        assert_eq!(draw(*at), Some(ts));
        assert_eq!(draw(*at), None);
    }
    assert_eq!(timestamps.next(), MAX_TS);
    for at in places {
        timestamps.leave(at);
        assert_eq!(draw(timestamps.enter().unwrap()), None);
    }
    assert_eq!(timestamps.next(), MAX_TS);
}

/// Not by the checker of schedules: for the checker a store and an exchange of another thread,
/// neither with a view of the other, may be seen in either order.
#[test]
fn the_one_that_is_told_to_abort_has_not_ended() {
    // And more on a busy machine, until some have been told.
    const LAST: u64 = 200_000;
    let (timestamps, ended) = (Timestamps::new(0, 1, 0), AtomicU64::new(0));
    let at = timestamps.enter().unwrap();
    let mut told = Vec::new();
    let seen = std::thread::scope(|scope| {
        let session = scope.spawn(|| {
            let mut seen = Vec::new();
            for ts in 1..=100 * LAST {
                if ts > LAST && seen.len() > 10 {
                    break;
                }
                timestamps.announce_writing(at, ts);
                (0..ts % 64).for_each(|_| std::hint::spin_loop());
                if timestamps.is_shed(at) {
                    seen.push(ts);
                }
                timestamps.end_writing(at);
                ended.store(ts, Ordering::SeqCst);
                assert!(!timestamps.is_shed(at), "{ts} has ended");
            }
            seen
        });
        while !session.is_finished() {
            let before = ended.load(Ordering::SeqCst);
            if let Some(ts) = timestamps.shed_youngest_above(0) {
                assert!(ts > before, "{ts} is to abort, and has ended");
                told.push(ts);
            }
        }
        session.join().unwrap()
    });
    assert!(told.is_sorted_by(|a, b| a < b), "one is told twice");
    assert!(seen.iter().all(|ts| told.binary_search(ts).is_ok()), "{seen:?}, {told:?}");
    assert!(seen.len() > 10, "hardly one was told: {}", seen.len());
    assert!(!timestamps.is_shed(at) && !timestamps.is_younger_writing(0));
}
