//! The lease of answers: what has only read is acknowledged while the lease is valid, what wrote
//! whenever its record is stored.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{append, reopen, small};
use hyades_platform::clock;
use hyades_platform::device::FileDevice;
use hyades_wal::{
    AnswerLease, Awaited, CommitQueue, FrameKind, Lane, Log, Lsn, Needs, Poisoned, Remote,
    RemoteEnded, StopKind,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const LONG: u64 = 600_000_000_000;

/// A remote with a lease, which stores a batch unless told to hold it, or to refuse it.
#[derive(Debug, Default)]
struct Leased {
    lease: Arc<AnswerLease>,
    state: Mutex<Answers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Answers {
    holds: bool,
    refuses: Option<RemoteEnded>,
    ended: bool,
}

impl Leased {
    fn tell(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Extends the lease for a long time.
    fn extend(&self) {
        self.lease.extend(clock::boot_ns() + LONG);
    }
}

impl Remote for Leased {
    fn max_batch_bytes(&self) -> usize {
        1 << 20
    }

    fn send(&self, _: usize, _: Lsn, _: [&[u8]; 2]) {}

    fn stored(&self, _: usize, wait: bool) -> Option<Result<(), RemoteEnded>> {
        let waits = |state: &mut Answers| state.holds && state.refuses.is_none() && !state.ended;
        let mut state = self.state.lock().unwrap();
        if wait {
            state = self.changed.wait_while(state, waits).unwrap();
        }
        match &state.refuses {
            Some(ended) => Some(Err(ended.clone())),
            None if state.ended => Some(Err(RemoteEnded::Stopped)),
            None => (!state.holds).then_some(Ok(())),
        }
    }

    fn lease(&self) -> Option<Arc<AnswerLease>> {
        Some(Arc::clone(&self.lease))
    }

    fn end(&self) {
        self.tell(|state| state.ended = true);
    }
}

/// A log of two streams with a remote whose lease has run out.
fn leased() -> (tempfile::TempDir, Arc<Leased>, Log) {
    let dir = tempfile::tempdir().unwrap();
    let remote = Arc::new(Leased::default());
    let mut options = small(dir.path(), 2, FileDevice::shared());
    options.remote = Some(remote.clone());
    let log = reopen(options).unwrap().0;
    assert!(log.frontier().has_lease() && !log.frontier().may_answer());
    (dir, remote, log)
}

fn needs(entries: &[(usize, Lsn)]) -> Needs {
    let mut needs = Needs::default();
    entries.iter().for_each(|(stream, lsn)| needs.push((Lane::position(*stream), *lsn)));
    needs
}

fn reader(entries: &[(usize, Lsn)]) -> Awaited {
    Awaited::new(needs(entries)).reading_if(true)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// No waker is left. A flusher takes the wakers of a position shortly after it has raised it.
fn nothing_is_parked(log: &Log) {
    let began = Instant::now();
    while log.frontier().wakers() != (0, 0) {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", log.frontier().wakers());
        thread::yield_now();
    }
}

fn kind(result: Result<impl Sized, Poisoned>) -> Option<StopKind> {
    result.err().map(|poisoned| poisoned.kind)
}

#[test]
fn what_only_read_waits_for_the_lease_and_what_wrote_does_not() {
    let (_dir, remote, log) = leased();
    let mut writer = log.writer().unwrap();
    let end = append(&mut writer, 0, b"a record");
    Awaited::new(needs(&[(0, end)])).wait(&log).unwrap();
    // All that the reader needs is stored, and even so.
    for entries in [&[(0, end)][..], &[]] {
        assert_eq!(reader(entries).is_reached(&log), Ok(false));
    }
    remote.lease.extend(clock::boot_ns());
    assert_eq!(reader(&[]).is_reached(&log), Ok(false), "the deadline is not within the lease");
    remote.lease.extend(clock::boot_ns() + 30_000_000);
    assert_eq!(reader(&[(0, end)]).is_reached(&log), Ok(true));
    reader(&[(0, end)]).wait(&log).unwrap();
    thread::sleep(Duration::from_millis(40));
    assert_eq!(reader(&[]).is_reached(&log), Ok(false), "the lease has run out again");
    // A record goes on being enough.
    let end = append(&mut writer, 1, b"another record");
    Awaited::new(needs(&[(1, end)])).wait(&log).unwrap();
}

/// The positions first: a valid lease acknowledges nothing that is not stored.
#[test]
fn a_valid_lease_does_not_stand_for_the_positions() {
    let (_dir, remote, log) = leased();
    remote.extend();
    remote.tell(|state| state.holds = true);
    let end = append(&mut log.writer().unwrap(), 0, b"held back");
    assert_eq!(reader(&[(0, end)]).is_reached(&log), Ok(false));
    let mut queue = CommitQueue::new(Some(log.clone()));
    queue.push_reader(&mut needs(&[(0, end)]), ());
    assert_eq!(queue.drain(drop), Ok(0));
    remote.tell(|state| state.holds = false);
    reader(&[(0, end)]).wait(&log).unwrap();
    assert_eq!(queue.drain(drop), Ok(1));
}

#[test]
fn a_task_is_woken_by_each_extension() {
    let (_dir, remote, log) = leased();
    let (woken, mut awaited) = (Arc::new(Woken::default()), reader(&[]));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    for extensions in 0..3 {
        assert!(awaited.poll(&log, &mut context).is_pending());
        // A poll without a reason parks no second waker.
        assert!(awaited.poll(&log, &mut context).is_pending());
        assert_eq!((log.frontier().wakers(), woken.times()), ((1, 0), extensions));
        // Too late.
        remote.lease.extend(1 + extensions as u64);
    }
    assert!(awaited.poll(&log, &mut context).is_pending());
    remote.extend();
    assert_eq!(woken.times(), 4);
    assert_eq!(awaited.poll(&log, &mut context), Poll::Ready(Ok(())));
    // A task that is dropped leaves no waker behind.
    let (_dir, _remote, log) = leased();
    let mut dropped = reader(&[]);
    assert!(dropped.poll(&log, &mut context).is_pending());
    assert_eq!(log.frontier().wakers(), (1, 0));
    drop(dropped);
    assert_eq!(log.frontier().wakers(), (0, 0));
}

/// A task that waits for a position and for the lease, in this order and in the other.
#[test]
fn a_task_waits_for_a_position_and_then_for_the_lease() {
    for lease_first in [true, false] {
        let (_dir, remote, log) = leased();
        remote.tell(|state| state.holds = true);
        let end = append(&mut log.writer().unwrap(), 1, b"read by the task");
        let (woken, mut awaited) = (Arc::new(Woken::default()), reader(&[(1, end)]));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert!(awaited.poll(&log, &mut context).is_pending());
        let store = || {
            remote.tell(|state| state.holds = false);
            log.wait(Lane::position(1), end).unwrap();
        };
        if lease_first {
            remote.extend()
        } else {
            store()
        }
        assert!(awaited.poll(&log, &mut context).is_pending());
        if lease_first {
            store()
        } else {
            remote.extend()
        }
        let began = Instant::now();
        while woken.times() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it is not woken");
            thread::yield_now();
        }
        assert_eq!(awaited.poll(&log, &mut context), Poll::Ready(Ok(())));
        nothing_is_parked(&log);
    }
}

#[test]
fn a_blocked_reader_goes_on_with_the_lease_or_fails_with_the_log() {
    let (_dir, remote, log) = leased();
    thread::scope(|scope| {
        let waits = scope.spawn(|| reader(&[]).wait(&log));
        thread::sleep(Duration::from_millis(30));
        assert!(!waits.is_finished());
        remote.extend();
        waits.join().unwrap().unwrap();
    });
    let (_dir, remote, log) = leased();
    thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| reader(&[]).wait(&log)));
        remote.lease.end();
        // The end alone says nothing of a successor: the log has to stop.
        remote.extend();
        thread::sleep(Duration::from_millis(30));
        assert!(waits.iter().all(|waits| !waits.is_finished()));
        assert_eq!(reader(&[]).is_reached(&log), Ok(false));
        log.demote(7);
        for waits in waits {
            assert_eq!(kind(waits.join().unwrap()), Some(StopKind::Demoted { by: 7 }));
        }
    });
    let text = log.poisoned().unwrap().to_string();
    assert!(text.contains("incarnation 7") && text.contains("open the database again"), "{text}");
    assert_eq!(kind(reader(&[]).is_reached(&log)), Some(StopKind::Demoted { by: 7 }));
    // The first cause stays.
    log.demote(8);
    log.stop("later");
    assert_eq!(log.poisoned().unwrap().kind, StopKind::Demoted { by: 7 });
}

#[test]
fn a_queue_is_woken_by_extensions_and_does_not_spin() {
    let (_dir, remote, log) = leased();
    let mut queue = CommitQueue::new(Some(log.clone()));
    let end = append(&mut log.writer().unwrap(), 0, b"a record");
    queue.push(&mut needs(&[(0, end)]), "writer");
    queue.push_reader(&mut needs(&[(0, end)]), "reader of it");
    queue.push_reader(&mut Needs::default(), "reader");
    assert!(!queue.only_reads());
    log.wait(Lane::position(0), end).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.drain(|item| done.push(item)), Ok(1));
    assert_eq!((&done[..], queue.len(), queue.only_reads()), (&["writer"][..], 2, true));

    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    for late in 0..3 {
        for _ in 0..3 {
            queue.arm(&waker);
            assert_eq!(queue.drain(|_| panic!("the lease has run out")), Ok(0));
        }
        assert_eq!((woken.times(), log.frontier().wakers()), (late, (1, 0)));
        remote.lease.extend(1 + late as u64);
    }
    assert_eq!(woken.times(), 3);
    queue.arm(&waker);
    remote.extend();
    assert_eq!(woken.times(), 4);
    // The lease is valid: a queue that is armed now would make progress.
    queue.arm(&waker);
    assert!(woken.times() > 4);
    assert!(queue.wait_for_one().is_ok());
    assert_eq!(queue.drain(|item| done.push(item)), Ok(2));
    assert!(queue.is_empty() && done.contains(&"reader") && done.contains(&"reader of it"));
    let times = woken.times();
    queue.arm(&waker);
    assert_eq!((woken.times(), log.frontier().wakers()), (times, (0, 0)));
}

#[test]
fn a_queue_waits_for_lanes_and_the_lease_at_once() {
    let (_dir, remote, log) = leased();
    remote.tell(|state| state.holds = true);
    let end = append(&mut log.writer().unwrap(), 1, b"held back");
    for by_lease in [true, false] {
        let mut queue = CommitQueue::new(Some(log.clone()));
        queue.push(&mut needs(&[(1, end)]), "writer");
        queue.push_reader(&mut Needs::default(), "reader");
        let first = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                while queue.drain(drop).unwrap() == 0 {
                    queue.wait_for_one().unwrap();
                }
                queue.only_reads()
            });
            thread::sleep(Duration::from_millis(30));
            assert!(!waits.is_finished());
            match by_lease {
                // For a moment that a thread that is woken at once does not miss.
                true => remote.lease.extend(clock::boot_ns() + 2_000_000_000),
                false => remote.tell(|state| state.holds = false),
            }
            waits.join().unwrap()
        });
        assert_eq!(first, !by_lease, "the other one is left");
        if by_lease {
            thread::sleep(Duration::from_millis(2_050));
        }
    }
}

/// A remote that has been sealed by a successor demotes the log, however long the lease would last.
#[test]
fn a_fenced_remote_demotes_the_log() {
    let (_dir, remote, log) = leased();
    remote.extend();
    let mut queue = CommitQueue::new(Some(log.clone()));
    remote.tell(|state| state.refuses = Some(RemoteEnded::Fenced { by: 9 }));
    let end = append(&mut log.writer().unwrap(), 0, b"of unknown outcome");
    queue.push(&mut needs(&[(0, end)]), "writer");
    queue.push_reader(&mut needs(&[(0, end)]), "reader");
    let demoted = Some(StopKind::Demoted { by: 9 });
    assert_eq!(kind(Awaited::new(needs(&[(0, end)])).wait(&log)), demoted);
    assert!(remote.lease.has_ended());
    assert_eq!(kind(reader(&[]).wait(&log)), demoted);
    queue.push_reader(&mut Needs::default(), "later");
    assert_eq!(kind(queue.drain(|item| panic!("{item} is acknowledged"))), demoted);
    assert_eq!(kind(queue.wait_for_one()), demoted);
    assert_eq!((queue.len(), queue.only_reads()), (3, false));
    let woken = Arc::new(Woken::default());
    queue.arm(&Waker::from(woken.clone()));
    assert!(woken.times() > 0);
}

/// A failure, or the end of the owner, says nothing of a successor: answers last as long as the
/// lease.
#[test]
fn other_ends_of_the_log_leave_the_lease() {
    for closes in [true, false] {
        let (_dir, remote, log) = leased();
        remote.extend();
        let expected = if closes { StopKind::Closed } else { StopKind::Failed };
        let kept = log.clone();
        if closes {
            log.close().unwrap()
        } else {
            log.stop("a test")
        }
        assert_eq!(kept.poisoned().unwrap().kind, expected);
        assert_eq!(reader(&[]).is_reached(&kept), Ok(true));
        remote.lease.end();
        assert_eq!(kind(reader(&[]).is_reached(&kept)), Some(expected));
        assert_eq!(kind(reader(&[]).wait(&kept)), Some(expected));
    }
    let (_dir, remote, log) = leased();
    remote.extend();
    remote.tell(|state| state.refuses = Some(RemoteEnded::Different("it was shortened".into())));
    let end = append(&mut log.writer().unwrap(), 0, b"a record");
    assert_eq!(kind(Awaited::new(needs(&[(0, end)])).wait(&log)), Some(StopKind::Failed));
}

/// A log that has failed and is then taken over answers nothing, although the failure is why the
/// log has stopped.
#[test]
fn a_failed_log_that_is_taken_over_answers_nothing() {
    let (_dir, remote, log) = leased();
    remote.extend();
    log.stop("the disk is gone");
    log.demote(3);
    assert!(remote.lease.has_ended());
    assert_eq!(kind(reader(&[]).is_reached(&log)), Some(StopKind::Failed));
}

/// Without a lease, readers wait for positions alone.
#[test]
fn without_a_lease_nothing_waits_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let log = reopen(small(dir.path(), 1, FileDevice::shared())).unwrap().0;
    assert!(!log.frontier().has_lease() && log.frontier().may_answer());
    assert_eq!(reader(&[]).is_reached(&log), Ok(true));
    reader(&[]).wait(&log).unwrap();
    let mut queue = CommitQueue::new(Some(log.clone()));
    queue.push_reader(&mut Needs::default(), ());
    queue.wait_for_one().unwrap();
    assert_eq!(queue.drain(drop), Ok(1));
    let mut writer = log.writer().unwrap();
    let reservation = writer.reserve(0, 1);
    let end = reservation.end();
    reservation.fill(FrameKind::Record, b"x");
    reader(&[(0, end)]).wait(&log).unwrap();
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The lease runs out and is extended again and again, under readers of each kind. None is
/// forgotten, and none is acknowledged by a deadline that had passed before its read.
#[test]
fn no_waiter_is_forgotten_by_short_leases() {
    let (_dir, remote, log) = leased();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (log, over, remote) = (&log, &over, &remote);
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(1);
            while !over.load(Ordering::SeqCst) {
                remote.lease.extend(clock::boot_ns() + rng.u64(0..200_000));
                thread::sleep(Duration::from_micros(rng.u64(0..300)));
            }
        });
        let blocking = scope.spawn(move || {
            for _ in 0..300 {
                reader(&[]).wait(log).unwrap();
                thread::sleep(Duration::from_micros(100));
            }
        });
        let polling = scope.spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            for _ in 0..300 {
                let mut awaited = reader(&[]);
                while awaited.poll(log, &mut Context::from_waker(&waker)).is_pending() {
                    thread::park();
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        let queueing = scope.spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let (mut queue, mut writer) =
                (CommitQueue::new(Some(log.clone())), log.writer().unwrap());
            for turn in 0..300 {
                let end = append(&mut writer, turn % 2, b"a record");
                queue.push(&mut needs(&[(turn % 2, end)]), ());
                queue.push_reader(&mut needs(&[(turn % 2, end)]), ());
                queue.push_reader(&mut Needs::default(), ());
                while !queue.is_empty() {
                    if queue.drain(drop).unwrap() == 0 {
                        queue.arm(&waker);
                        thread::park();
                    }
                }
            }
        });
        for thread in [blocking, polling, queueing] {
            thread.join().unwrap();
        }
        over.store(true, Ordering::SeqCst);
    });
    nothing_is_parked(&log);
}
