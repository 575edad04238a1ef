//! The waiting memory is bounded by the memory retired while a guard is pinned, and is freed
//! afterwards.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

/// The counts are per process, so the tests run in sequence.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Retires an object of `bytes` bytes, counted when freed.
fn retire_counted(guard: &Guard, bytes: usize, freed: &'static AtomicUsize) {
    // SAFETY: nothing is freed; the counter lives for ever.
    unsafe { retire(guard, bytes, move || _ = freed.fetch_add(1, Ordering::Relaxed)) };
}

#[test]
fn a_thread_that_retires_much_in_each_pin_frees_it_all_but_for_the_last() {
    let _alone = alone();
    for (objects, bytes) in [(1, 100), (4, 100), (5, 100), (50, 100), (1_000, 100), (3, 100_000)] {
        static FREED: AtomicUsize = AtomicUsize::new(0);
        FREED.store(0, Ordering::Relaxed);
        let mut most = 0;
        for _ in 0..2_000 {
            let guard = pin();
            (0..objects).for_each(|_| retire_counted(&guard, bytes, &FREED));
            drop(guard);
            most = most.max(waiting_bytes());
        }
        // Three pins' objects, or three collections': the epoch takes two steps.
        let bound = 3 * (objects * (bytes + 100)) as u64 + 256 * (bytes as u64 + 100) + (512 << 10);
        assert!(most < bound, "{objects} of {bytes}: {most} of {bound} bytes waited");
        settle();
        assert_eq!(FREED.load(Ordering::Relaxed), 2_000 * objects);
    }
}

#[test]
fn what_a_guard_keeps_is_freed_by_threads_that_only_read() {
    let _alone = alone();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    const OBJECTS: usize = 100_000;
    let (release, released) = mpsc::channel::<()>();
    let (pinned, is_pinned) = mpsc::channel();
    let reader = thread::spawn(move || {
        let guard = pin();
        pinned.send(()).unwrap();
        released.recv().unwrap();
        drop(guard);
    });
    is_pinned.recv().unwrap();
    thread::spawn(|| {
        for _ in 0..OBJECTS / 50 {
            let guard = pin();
            (0..50).for_each(|_| retire_counted(&guard, 1_000, &FREED));
        }
    })
    .join()
    .unwrap();
    assert!(waiting_bytes() > 90_000_000, "the reader keeps them");
    release.send(()).unwrap();
    reader.join().unwrap();
    for _ in 0..OBJECTS / 8 {
        drop(pin());
    }
    assert!(waiting_bytes() < 9_000_000, "{} wait", waiting_bytes());
    settle();
    assert!(FREED.load(Ordering::Relaxed) > OBJECTS - 64);
}

#[test]
fn a_loop_that_refreshes_its_guard_keeps_nothing() {
    let _alone = alone();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let mut guard = pin();
    let mut most = 0;
    for _ in 0..100_000 {
        retire_counted(&guard, 1_000, &FREED);
        guard.refresh();
        most = most.max(waiting_bytes());
    }
    assert!(most < 1_000_000, "{most} bytes waited");
    drop(guard);
    settle();
    assert_eq!(FREED.load(Ordering::Relaxed), 100_000);
}

#[test]
fn a_long_pin_is_seen_and_told_to_end_and_the_next_one_is_not() {
    let _alone = alone();
    let guard = pin_endable();
    oldest_pin();
    thread::sleep(Duration::from_millis(20));
    assert!(oldest_pin() >= Duration::from_millis(20));
    end_long_pins(Duration::from_secs(3600));
    assert!(!guard.must_end());
    end_long_pins(Duration::from_millis(10));
    let inner = pin();
    assert!(guard.must_end() && !inner.must_end());
    drop((inner, guard));
    assert!(!pin_endable().must_end());
}

#[test]
fn threads_that_end_leave_no_count_behind() {
    let _alone = alone();
    static FREED: AtomicUsize = AtomicUsize::new(0);
    settle();
    let before = waiting_bytes();
    for _ in 0..100 {
        thread::spawn(|| retire_counted(&pin(), 30_000, &FREED)).join().unwrap();
    }
    settle();
    assert_eq!(FREED.load(Ordering::Relaxed), 100);
    assert!(waiting_bytes() <= before + 1_000);
    assert!(registry().threads.len() < 20, "the states of ended threads are used again");
}
