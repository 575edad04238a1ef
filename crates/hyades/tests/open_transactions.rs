//! Promise: a transaction that is begun and ended by calls is like one in a closure: serializable,
//! durable once acknowledged, rolled back if it is dropped.
#![allow(missing_docs)]

mod common;
use common::{
    ACCOUNT_COUNT, ACCOUNTS, BALANCE, Combination, Opened, Transfer, check, combinations,
    directory, open, populate, power_cut, transfer,
};
use hyades::{Abort, Error, RecordKind, Replay, Session, Ticket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// All pairs of protocol and concurrency control, each with one number of streams.
fn pairs() -> Vec<Combination> {
    let mut pairs = combinations();
    pairs.retain(|c| {
        c.record == RecordKind::Data && c.streams == if c.protocol.has_one_stream() { 1 } else { 3 }
    });
    pairs
}

fn balance(session: &mut Session, id: i64) -> i64 {
    let open = session.begin().unwrap();
    let balance = open.tx().get(ACCOUNTS, id).unwrap().unwrap().get(BALANCE);
    open.roll_back().unwrap().wait().unwrap();
    balance
}

#[test]
fn a_commit_lasts_and_a_rollback_or_a_drop_leaves_nothing() {
    for c in pairs() {
        let dir = directory();
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        populate(&opened);
        let mut session = opened.db.session().unwrap();
        let set = |session: &mut Session, to: i64| {
            let open = session.begin().unwrap();
            open.tx().update(ACCOUNTS, 1i64, &[BALANCE.set(to)]).unwrap();
            assert_eq!(open.tx().get(ACCOUNTS, 1i64).unwrap().unwrap().get(BALANCE), to);
            Some(to)
        };
        // Dropped.
        set(&mut session, 5);
        assert_eq!(balance(&mut session, 1), 1000, "{c:?}");
        let open_once = session.begin().unwrap();
        open_once.tx().delete(ACCOUNTS, 1i64).unwrap();
        open_once.roll_back().unwrap().wait().unwrap();
        assert_eq!(balance(&mut session, 1), 1000, "{c:?}");
        let open_once = session.begin().unwrap();
        open_once.tx().update(ACCOUNTS, 1i64, &[BALANCE.set(7)]).unwrap();
        let ticket = open_once.commit().unwrap();
        ticket.wait().unwrap();
        assert_eq!(balance(&mut session, 1), 7, "{c:?}");
        drop(session);
        drop(opened);
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        assert_eq!(balance(&mut opened.db.session().unwrap(), 1), 7, "{c:?}");
    }
}

/// One has read x and writes y, the other has read y and writes x: at most one commits.
#[test]
fn of_two_that_write_what_the_other_has_read_one_commits_at_most() {
    for c in pairs() {
        let dir = directory();
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        populate(&opened);
        let mut session = opened.db.session().unwrap();
        let open = session.begin().unwrap();
        let ours = open.tx().get(ACCOUNTS, 1i64).is_ok();
        let theirs = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut session = opened.db.session().unwrap();
                let attempt = session.attempt(|tx| {
                    tx.get(ACCOUNTS, 2i64)?;
                    tx.update(ACCOUNTS, 1i64, &[BALANCE.set(0)])
                });
                matches!(attempt.unwrap(), hyades::Attempt::Committed(..))
            });
            other.join().unwrap()
        });
        let ours = ours && open.tx().update(ACCOUNTS, 2i64, &[BALANCE.set(0)]).is_ok();
        let ours = match open.commit() {
            Ok(_) => ours,
            Err(Error::Aborted(Abort::Conflict)) => false,
            Err(error) => panic!("{c:?}: {error}"),
        };
        assert!(!(ours && theirs), "{c:?}: both have committed");
        assert!(ours || theirs, "{c:?}: neither has committed");
    }
}

#[test]
fn a_thread_has_one_transaction_of_a_database_at_a_time() {
    let dir = directory();
    let opened = open(dir.path(), pairs()[0], None, 2, Replay::Wavefront);
    populate(&opened);
    let (mut one, mut other) = (opened.db.session().unwrap(), opened.db.session().unwrap());
    let open = one.begin().unwrap();
    assert!(matches!(other.begin(), Err(Error::Misuse(_))));
    assert!(matches!(opened.db.transact(|_| Ok(())), Err(Error::Misuse(_))));
    drop(open);
    let open = other.begin().unwrap();
    assert!(open.tx().get(ACCOUNTS, 1i64).unwrap().is_some());
    open.commit().unwrap().wait().unwrap();
}

#[test]
fn open_transactions_of_two_databases_end_in_any_order() {
    let dirs = [directory(), directory()];
    let opened =
        [0, 1].map(|at: usize| open(dirs[at].path(), pairs()[0], None, 2, Replay::Wavefront));
    opened.iter().for_each(populate);
    let mut sessions = [0, 1].map(|at: usize| opened[at].db.session().unwrap());
    let [first, second] = &mut sessions;
    let (one, two) = (first.begin().unwrap(), second.begin().unwrap());
    one.commit().unwrap().wait().unwrap();
    // The second is under way still, the first is not.
    assert!(matches!(opened[1].db.transact(|_| Ok(())), Err(Error::Misuse(_))));
    opened[0].db.transact(|_| Ok(())).unwrap();
    two.commit().unwrap().wait().unwrap();
    opened[1].db.transact(|_| Ok(())).unwrap();
}

#[test]
fn a_panic_rolls_an_open_transaction_back() {
    for c in pairs() {
        let dir = directory();
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        populate(&opened);
        let mut session = opened.db.session().unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let open = session.begin().unwrap();
            open.tx().update(ACCOUNTS, 3i64, &[BALANCE.set(1)]).unwrap();
            panic!("told to");
        }));
        assert!(panic.is_err());
        assert_eq!(balance(&mut session, 3), 1000, "{c:?}");
        let (outcome, ticket) =
            session.submit(|tx| Ok(tx.update(ACCOUNTS, 3i64, &[BALANCE.set(2)])?)).unwrap();
        assert!(outcome);
        ticket.wait().unwrap();
    }
}

/// Runs a transfer until the transaction commits, or the log has failed.
fn run(session: &mut Session, t: Transfer) -> Result<Option<Ticket>, Error> {
    loop {
        let open = session.begin()?;
        match transfer(&open.tx(), t) {
            Ok(_) => {}
            Err(Abort::Conflict) => continue,
            Err(Abort::User(_)) => return Ok(None),
            Err(abort) => panic!("{abort}"),
        }
        match open.commit() {
            Ok(ticket) => return Ok(Some(ticket)),
            Err(Error::Aborted(Abort::Conflict)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The transfers of a thread that are acknowledged before the power is cut.
fn transfers(opened: &Opened, thread: u64) -> Vec<Transfer> {
    let mut rng = fastrand::Rng::with_seed(thread);
    let mut session = opened.db.session().unwrap();
    let mut acknowledged = Vec::new();
    for n in 0..200 {
        let mut account = || rng.i64(0..ACCOUNT_COUNT);
        let t = Transfer { id: thread << 32 | n, from: account(), to: account(), amount: 3 };
        let Ok(ticket) = run(&mut session, t) else { break };
        match ticket.map(Ticket::wait) {
            Some(Ok(())) => acknowledged.push(t),
            Some(Err(_)) => break,
            None => {}
        }
    }
    acknowledged
}

#[test]
fn acknowledged_open_transactions_are_recovered_after_a_power_cut() {
    for (seed, c) in pairs().into_iter().enumerate() {
        let dir = directory();
        let device = power_cut(seed as u64);
        let opened = open(dir.path(), c, Some(device.clone()), 2, Replay::Wavefront);
        populate(&opened);
        let acknowledged = thread::scope(|scope| {
            let threads = [1, 2].map(|at| {
                scope.spawn({
                    let opened = &opened;
                    move || transfers(opened, at)
                })
            });
            thread::sleep(std::time::Duration::from_millis(30));
            device.cut();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        drop(opened);
        let opened = open(dir.path(), c, None, 2, Replay::Wavefront);
        check(&opened, &acknowledged, &format!("{c:?}, seed {seed}"));
    }
}
