//! Tests of active transactions on one thread.

use super::*;
use hyades_platform::epoch::EpochNumber;

fn active() -> (ActiveTransactions, Epoch) {
    (ActiveTransactions::new(), Epoch::new(EpochNumber(5)))
}

#[test]
fn a_writer_finds_the_readers_below_it() {
    let (active, epoch) = active();
    let [reader, writer, later] = [0; 3].map(|_| active.add().unwrap());
    let as_of = active.begin(reader, &epoch);
    assert_eq!(as_of.epoch(), EpochNumber(5));
    active.begin(writer, &epoch);
    let tid = active.prepare(writer, &epoch).unwrap();
    assert_eq!(active.preparing(writer), Preparing::At(tid));
    assert_eq!(active.begin(later, &epoch), tid);
    let mut found = ReaderTimes::default();
    active.find_readers(writer, tid, &mut found);
    assert!(found.want(as_of) && !found.want(as_of.next()));
    assert_eq!((found.lowest(), active.lowest(&epoch)), (as_of, as_of));
    [reader, writer].into_iter().for_each(|number| active.end(number));
    assert_eq!(active.preparing(writer), Preparing::No);
    assert_eq!(active.lowest(&epoch), tid);
    active.find_readers(writer, tid.next(), &mut found);
    assert!(found.want(tid));
}

#[test]
fn timestamps_follow_the_epoch_and_take_it_along() {
    let (active, epoch) = active();
    let number = active.add().unwrap();
    let first = active.prepare(number, &epoch).unwrap();
    epoch.advance();
    let second = active.prepare(number, &epoch).unwrap();
    assert_eq!((first.epoch(), second.epoch()), (EpochNumber(5), EpochNumber(6)));
    // All timestamps of an epoch are drawn.
    active.clock.store(Tid::last_of(epoch.current()).bits(), Ordering::SeqCst);
    assert_eq!(active.prepare(number, &epoch).unwrap().epoch(), EpochNumber(7));
    assert_eq!(epoch.current(), EpochNumber(7));
}

/// Once all timestamps of the epoch at the limit are drawn, no commit begins, and none is seen
/// to be under way, until the limit is raised.
#[test]
fn no_timestamp_is_above_the_limit_of_epochs() {
    let epoch = Epoch::new(EpochNumber(5)).limited_to(EpochNumber(5));
    let active = ActiveTransactions::new();
    let number = active.add().unwrap();
    active.clock.store(Tid::last_of(epoch.current()).bits() - 1, Ordering::SeqCst);
    let last = active.prepare(number, &epoch);
    assert_eq!(last, Some(Tid::last_of(EpochNumber(5))));
    active.end(number);
    for _ in 0..3 {
        active.begin(number, &epoch);
        assert_eq!(active.prepare(number, &epoch), None);
        assert_eq!(active.preparing(number), Preparing::No);
        active.end(number);
    }
    assert_eq!(epoch.current(), EpochNumber(5));
    epoch.raise_limit(EpochNumber(6));
    let next = active.prepare(number, &epoch).unwrap();
    assert_eq!((next.epoch(), epoch.current()), (EpochNumber(6), EpochNumber(6)));
}

/// A transaction is ended, whatever it has announced by then, and the slot's next transaction
/// is not.
#[test]
fn a_transaction_that_is_ended_notices() {
    let (active, epoch) = active();
    let [reader, writer] = [0; 2].map(|_| active.add().unwrap());
    for has_said_exactly in [true, false] {
        let as_of = active.begin(reader, &epoch);
        if !has_said_exactly {
            let slot = active.slot(reader);
            slot.reads.store(slot.bound.load(Ordering::Relaxed), Ordering::SeqCst);
        }
        let tid = active.prepare(writer, &epoch).unwrap();
        assert!(!active.has_ended(reader, as_of));
        assert!(active.end_oldest(tid) && !active.end_oldest(tid));
        assert!(active.has_ended(reader, as_of));
        active.end(writer);
        assert_eq!(active.lowest(&epoch), tid);
        active.end(reader);
        let as_of = active.begin(reader, &epoch);
        assert!(!active.has_ended(reader, as_of));
        active.end(reader);
    }
}

/// A committing transaction is not below the floor of a replay, even if ended; a transaction
/// that has only begun does not hold the floor back.
#[test]
fn the_floor_of_a_replay_is_not_above_what_commits() {
    let (active, epoch) = active();
    let [reader, first, second] = [0; 3].map(|_| active.add().unwrap());
    active.begin(reader, &epoch);
    let as_of = active.begin(first, &epoch);
    let tid = active.prepare(second, &epoch).unwrap();
    assert_eq!(active.replay_floor(&epoch, false), tid);
    active.end(second);
    let tid = active.prepare(first, &epoch).unwrap();
    active.begin(second, &epoch);
    let later = active.prepare(second, &epoch).unwrap();
    assert!(active.end_oldest(later) && active.end_oldest(later));
    assert_eq!(active.replay_floor(&epoch, false), tid);
    // With snapshots, as of the transaction's reads, in its epoch.
    assert_eq!(active.replay_floor(&epoch, true), as_of);
    active.end(first);
    active.end(second);
    assert_eq!(active.replay_floor(&epoch, false), later);
    assert_eq!(active.replay_floor(&epoch, true), Tid::new(EpochNumber(5), 0));
    // A transaction that draws may have drawn already.
    active.slot(first).commits.store(DRAWING, Ordering::SeqCst);
    active.slot(first).reads.store(as_of.bits() << 1 | BOUND, Ordering::SeqCst);
    assert_eq!(active.replay_floor(&epoch, false), as_of);
}

#[test]
fn slots_are_limited_and_used_again() {
    let (active, _) = active();
    let most = (BLOCK * MOST_BLOCKS) as u32;
    assert!((1..=most).all(|number| active.add().unwrap() == number));
    assert!(active.add().is_err());
    active.remove(7);
    assert_eq!(active.add().unwrap(), 7);
}
