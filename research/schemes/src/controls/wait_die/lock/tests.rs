//! Looks of single requests at a lock.

use super::*;

fn request(timestamp: u64, mode: Mode) -> Request {
    Request { timestamp, mode, brief: false }
}

fn look(lock: &WaitDieLock, timestamp: u64, mode: Mode) -> Look {
    lock.look(request(timestamp, mode), || false)
}

fn is_free(lock: &WaitDieLock) -> bool {
    lock.word.load(Ordering::Relaxed) == 0
}

#[test]
fn the_older_waits_and_the_younger_dies() {
    for (held, wanted) in
        [(Mode::Write, Mode::Write), (Mode::Write, Mode::Read), (Mode::Read, Mode::Write)]
    {
        let lock = WaitDieLock::default();
        assert_eq!(look(&lock, 5, held), Look::Taken);
        assert_eq!(look(&lock, 6, wanted), Look::Die, "{held:?}, {wanted:?}");
        assert_eq!(look(&lock, 4, wanted), Look::Wait, "{held:?}, {wanted:?}");
        match held {
            Mode::Read => lock.release_read(),
            _ => lock.release_write(),
        }
        assert!(is_free(&lock));
        assert_eq!(look(&lock, 4, wanted), Look::Taken);
    }
}

/// A reader that is older than a waiting writer joins; the writer then waits for an older one.
#[test]
fn an_older_reader_makes_a_waiting_writer_die() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 7, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 5, Mode::Write), Look::Wait);
    assert_eq!(look(&lock, 4, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 5, Mode::Write), Look::Die);
}

#[test]
fn a_waiting_writer_is_not_passed_by_younger_ones() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 7, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 5, Mode::Write), Look::Wait);
    assert_eq!(look(&lock, 8, Mode::Read), Look::Die);
    lock.release_read();
    // The lock is free, and not yet taken.
    assert_eq!(look(&lock, 8, Mode::Read), Look::Die);
    assert_eq!(look(&lock, 8, Mode::Write), Look::Die);
    assert_eq!(look(&lock, 5, Mode::Write), Look::Taken);
    assert_eq!(lock.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn a_waiting_reader_is_passed_by_readers_only() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 7, Mode::Write), Look::Taken);
    assert_eq!(look(&lock, 5, Mode::Read), Look::Wait);
    lock.release_write();
    assert_eq!(look(&lock, 8, Mode::Write), Look::Die);
    assert_eq!(look(&lock, 8, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 5, Mode::Read), Look::Taken);
}

#[test]
fn one_of_two_upgrades_dies() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 3, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 4, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 4, Mode::Upgrade), Look::Die);
    assert_eq!(look(&lock, 3, Mode::Upgrade), Look::Wait);
    lock.release_read();
    assert_eq!(look(&lock, 3, Mode::Upgrade), Look::Taken);
    lock.release_write();
    assert!(is_free(&lock));
}

/// The bound of a reader that has left is kept while others read: requests die in vain, but the
/// oldest of all transactions.
#[test]
fn a_bound_is_forgotten_when_the_lock_is_free() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 1, Mode::Read), Look::Taken);
    assert_eq!(look(&lock, 9, Mode::Read), Look::Taken);
    lock.release_read();
    assert_eq!(look(&lock, 5, Mode::Write), Look::Die);
    assert_eq!(lock.look(request(5, Mode::Write), || true), Look::Wait);
    lock.release_read();
    assert_eq!(look(&lock, 5, Mode::Write), Look::Taken);
}

/// A brief hold is waited for, whatever the ages; a reader that enters the gap is a reader again.
#[test]
fn a_brief_hold_is_of_the_youngest() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, 2, Mode::Read), Look::Taken);
    let enters = Request { brief: true, ..request(2, Mode::Upgrade) };
    assert_eq!(lock.look(enters, || false), Look::Taken);
    assert_eq!(look(&lock, 9, Mode::Read), Look::Wait);
    lock.withdraw(request(9, Mode::Read));
    lock.downgrade(2);
    assert_eq!(look(&lock, 9, Mode::Write), Look::Die);
    assert_eq!(look(&lock, 9, Mode::Read), Look::Taken);
}

#[test]
fn transactions_of_the_last_timestamp_never_wait() {
    let lock = WaitDieLock::default();
    assert_eq!(look(&lock, MAX_TIMESTAMP, Mode::Write), Look::Taken);
    assert_eq!(look(&lock, MAX_TIMESTAMP, Mode::Write), Look::Die);
    assert_eq!(look(&lock, MAX_TIMESTAMP - 1, Mode::Write), Look::Wait);
}

#[test]
fn a_lock_that_has_ended_is_never_taken() {
    let lock = WaitDieLock::default();
    assert!(lock.try_end());
    assert_eq!(look(&lock, 1, Mode::Read), Look::Gone);
    assert_eq!(look(&lock, 1, Mode::Write), Look::Gone);
    assert!(!lock.try_take() && !lock.try_end());
}

#[test]
fn readers_are_counted_up_to_a_limit() {
    let lock = WaitDieLock::default();
    for _ in 0..WRITER - 1 {
        assert_eq!(look(&lock, 3, Mode::Read), Look::Taken);
    }
    assert_eq!(look(&lock, 4, Mode::Read), Look::Die);
    for _ in 0..WRITER - 1 {
        lock.release_read();
    }
    assert!(is_free(&lock));
}
