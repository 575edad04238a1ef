//! A primary of a replicated log answers what it has only read while its lease is valid, and
//! nothing once another process is primary.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::leased::{Leased, READERS, Reader, WORD, WORDS, declared, is_held};
use common::watched::watched;
use hyades::{Abort, Concurrency, Database, Error, Protocol, Transaction};
use hyades_platform::clock;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn read(tx: &Transaction<'_>) -> Result<String, Error> {
    Ok(tx.get(WORDS, 1i64)?.ok_or(Abort::User(1))?.get(WORD).to_string())
}

/// Every way to read waits for the lease, and answers once the lease is extended.
#[test]
fn each_reader_is_held_until_the_lease_is_extended() {
    let _watched = watched("each reader is held");
    for (name, reader) in READERS {
        let leased = Leased::open(|builder| builder);
        assert!(is_held(&leased, reader), "{name} answers without a lease");
        assert_eq!(reader(&leased).unwrap(), "Ain", "{name}: the lease is valid");
    }
}

#[test]
fn each_reader_is_told_of_the_successor() {
    let _watched = watched("each reader is told");
    for (name, reader) in READERS {
        let leased = Leased::open(|builder| builder);
        thread::scope(|scope| {
            let reads = scope.spawn(|| reader(&leased));
            thread::sleep(Duration::from_millis(5));
            leased.remote.lease.end();
            thread::sleep(Duration::from_millis(5));
            assert!(!reads.is_finished(), "{name}: it is not known who is primary");
            leased.db.demote(4);
            let told = reads.join().unwrap();
            assert!(matches!(told, Err(Error::Demoted { by: 4 })), "{name}: {told:?}");
        });
        let told = reader(&leased);
        assert!(matches!(told, Err(Error::Demoted { by: 4 })), "{name}, later: {told:?}");
        assert!(told.unwrap_err().to_string().contains("incarnation 4"));
    }
}

/// Under each control, and protocol, whose log can be followed.
#[test]
fn writers_need_no_lease() {
    for protocol in [Protocol::Taurus, Protocol::Serial] {
        for control in [Concurrency::Silo, Concurrency::NoWait, Concurrency::Hekaton] {
            let streams = if protocol == Protocol::Serial { 1 } else { 2 };
            let leased = Leased::open(|builder| {
                builder.protocol(protocol).concurrency(control).streams(streams)
            });
            for n in 0..50i64 {
                leased.put(n, "Alcor").unwrap();
            }
            // It has read, and has a record of its own.
            let body = |tx: &Transaction<'_>| {
                let word = read(tx)?;
                tx.update(WORDS, 2i64, &[WORD.set("Mizar")])?;
                Ok(word)
            };
            assert_eq!(leased.db.transact(body).unwrap(), "Alcor");
            let (_, reader) = READERS[0];
            let before = leased.db.stats().commits;
            thread::scope(|scope| {
                let reads = scope.spawn(|| reader(&leased));
                while leased.db.stats().commits == before {
                    thread::yield_now();
                }
                for n in 0..50i64 {
                    leased.put(n, "Ain").unwrap();
                }
                assert!(!reads.is_finished());
                leased.remote.extend();
                assert_eq!(reads.join().unwrap().unwrap(), "Alcor");
            });
        }
    }
}

#[test]
fn a_ticket_is_acknowledged_by_positions_and_the_lease() {
    let leased = Leased::open(|builder| builder);
    let mut session = leased.db.session().unwrap();
    // The reader depends on a record that is not stored.
    leased.remote.hold(true);
    let put = |tx: &Transaction<'_>| Ok(tx.update(WORDS, 1i64, &[WORD.set("Ankaa")]).map(drop)?);
    let (_, wrote) = session.submit(put).unwrap();
    let (word, mut ticket) = session.submit(read).unwrap();
    assert_eq!((&word[..], ticket.transaction_id()), ("Ankaa", None));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    leased.remote.extend();
    assert!(!ticket.is_acknowledged().unwrap());
    assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
    leased.remote.hold(false);
    wrote.wait().unwrap();
    ticket.wait().unwrap();

    let leased = Leased::open(|builder| builder);
    let mut session = leased.db.session().unwrap();
    let (_, mut ticket) = session.submit(read).unwrap();
    assert!(!ticket.is_acknowledged().unwrap() && !ticket.may_answer());
    assert!(!session.ticket().is_acknowledged().unwrap());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
    // A deadline that has passed wakes the task, and acknowledges nothing.
    leased.remote.lease.extend(clock::boot_ns());
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(Pin::new(&mut ticket).poll(&mut context).is_pending());
    leased.remote.extend();
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    assert!(matches!(Pin::new(&mut ticket).poll(&mut context), Poll::Ready(Ok(()))));
    assert!(session.ticket().is_acknowledged().unwrap() && session.ticket().may_answer());
}

/// Reads and writes in one queue: writers pass readers that are held, and an event loop that arms
/// the queue is woken by the extension alone.
#[test]
fn a_queue_holds_readers_and_lets_writers_go() {
    let leased = Leased::open(|builder| builder);
    let (mut session, mut queue) = (leased.db.session().unwrap(), leased.db.commit_queue());
    for n in 0..20i64 {
        let (_, ticket) = session.submit(read).unwrap();
        queue.push(ticket, -1);
        let put = |tx: &Transaction<'_>| Ok(tx.upsert(WORDS, &[n.into(), "x".into()]).map(drop)?);
        let (_, ticket) = session.submit(put).unwrap();
        queue.push(ticket, n);
    }
    let mut written = 0;
    while written < 20 {
        queue
            .drain(|n| {
                assert!(n >= 0, "a reader is answered without a lease");
                written += 1;
            })
            .unwrap();
    }
    assert_eq!(queue.len(), 20);
    let woken = Arc::new(Woken::default());
    queue.arm(&Waker::from(woken.clone()));
    thread::sleep(Duration::from_millis(10));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    leased.remote.extend();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(queue.drain(|n| assert_eq!(n, -1)).unwrap(), 20);
}

/// A writer whose record may be stored or not has an unknown outcome; readers, and all that comes
/// later, are sent to the successor.
#[test]
fn a_demotion_leaves_the_outcome_of_writers_open() {
    let _watched = watched("a demotion");
    for fenced_by_log in [true, false] {
        let leased = Leased::open(|builder| builder);
        leased.remote.extend();
        let (mut session, mut both) = (leased.db.session().unwrap(), leased.db.commit_queue());
        let mut readers = leased.db.commit_queue();
        leased.remote.hold(true);
        let put =
            |tx: &Transaction<'_>| Ok(tx.upsert(WORDS, &[5i64.into(), "x".into()]).map(drop)?);
        let (_, wrote) = session.submit(put).unwrap();
        both.push(session.submit(put).unwrap().1, ());
        let see = |tx: &Transaction<'_>| Ok(tx.get(WORDS, 5i64)?.is_some());
        let (seen, reads) = session.submit(see).unwrap();
        assert!(seen && !reads.is_acknowledged().unwrap());
        both.push(session.submit(see).unwrap().1, ());
        readers.push(session.submit(see).unwrap().1, ());
        thread::scope(|scope| {
            let wrote = scope.spawn(|| wrote.wait());
            let reads = scope.spawn(|| reads.wait());
            thread::sleep(Duration::from_millis(10));
            assert!(!wrote.is_finished() && !reads.is_finished());
            match fenced_by_log {
                true => leased.remote.fence(8),
                false => leased.db.demote(8),
            }
            assert!(matches!(wrote.join().unwrap(), Err(Error::OutcomeUnknown)));
            assert!(matches!(reads.join().unwrap(), Err(Error::Demoted { by: 8 })));
        });
        assert!(matches!(both.drain(drop), Err(Error::OutcomeUnknown)));
        assert!(matches!(readers.drain(drop), Err(Error::Demoted { by: 8 })));
        assert!(matches!(readers.wait_for_one(), Err(Error::Demoted { by: 8 })));
        let told = |result: Result<(), Error>, what: &str| {
            assert!(matches!(result, Err(Error::Demoted { by: 8 })), "{what}: {result:?}");
        };
        told(leased.put(6, "y"), "a write");
        told(session.submit(put).map(drop), "a write of a session");
        told(session.attempt(|_| Ok::<_, Abort>(())).map(drop), "an attempt");
        told(session.begin().map(drop), "an open transaction");
        told(leased.db.checkpoint().map(drop), "a checkpoint");
        told(leased.db.snapshot(|_| Ok(())), "a snapshot");
        drop((session, both, readers));
        let Leased { db, dir, .. } = leased;
        told(db.close(), "the close");
        // The directory is free.
        let (builder, _) = declared(Database::builder().streams(2));
        assert!(builder.open(dir.path()).unwrap().rows() > 0);
    }
}

/// A record that is not waited for proves nothing: such answers need the lease, too.
#[test]
fn asynchronous_writers_need_the_lease() {
    let leased = Leased::open(|builder| builder.asynchronous(true));
    let mut session = leased.db.session().unwrap();
    let put = |tx: &Transaction<'_>| Ok(tx.upsert(WORDS, &[5i64.into(), "x".into()]).map(drop)?);
    let (_, ticket) = session.submit(put).unwrap();
    assert!(ticket.transaction_id().is_some() && !ticket.is_acknowledged().unwrap());
    leased.remote.hold(true);
    leased.remote.extend();
    assert!(ticket.is_acknowledged().unwrap());
    let (_, ticket) = session.submit(put).unwrap();
    assert!(ticket.is_acknowledged().unwrap(), "it waits for no device");
    leased.remote.hold(false);
}

/// Readers in a loop while the lease is extended for moments: each answer was checked, and none is
/// forgotten.
#[test]
fn readers_go_on_with_short_leases() {
    let _watched = watched("short leases");
    let leased = Leased::open(|builder| builder);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (leased, answered) = (&leased, &answered);
        let run = |(_, reader): (&str, Reader)| {
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(reader(leased).unwrap(), "Ain");
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let threads = READERS.map(run);
        while threads.iter().any(|thread| !thread.is_finished()) {
            leased.remote.lease.extend(clock::boot_ns() + 2_000_000);
            thread::sleep(Duration::from_millis(3));
        }
    });
    assert_eq!(answered.load(Ordering::SeqCst), 20 * READERS.len());
    assert_eq!(leased.db.log().unwrap().frontier().wakers(), (0, 0));
}
