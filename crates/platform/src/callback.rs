//! Code of the program that a database runs on its own threads: wakers of tasks, and subscribers to
//! its events.
//!
//! A panic of such code ends here, since the thread has other work to do. And the thread is marked
//! while such code runs: what would wait for the database is refused, because it would wait for the
//! thread on which it waits.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

thread_local! {
    /// How many marks the thread has, see [`OnDatabaseThread`].
    static MARKS: Cell<u32> = const { Cell::new(0) };
}

/// Marks the calling thread as working for a database, until it is dropped.
#[derive(Debug)]
pub struct OnDatabaseThread(PhantomData<*const ()>);

impl OnDatabaseThread {
    /// From now on code of the program that runs here must not wait for the database.
    pub fn begin() -> Self {
        MARKS.set(MARKS.get() + 1);
        OnDatabaseThread(PhantomData)
    }
}

impl Drop for OnDatabaseThread {
    fn drop(&mut self) {
        MARKS.set(MARKS.get() - 1);
    }
}

/// Whether the calling thread works for a database: it must not wait for one.
#[inline]
pub fn is_on_database_thread() -> bool {
    MARKS.get() > 0
}

/// Runs code of the program, whose panic ends here. Whether it has ended without one.
pub fn run(work: impl FnOnce()) -> bool {
    let forget_panic = |payload: Box<dyn Any + Send>| {
        // The destructor of what it panicked with is the program's, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(forget_panic).is_ok()
}

/// Wakes a task. Whether its waker has not panicked; an event tells of one that has.
pub fn wake(waker: Waker) -> bool {
    let is_well = run(|| waker.wake());
    if !is_well {
        crate::event!(ERROR, "a waker panicked");
    }
    is_well
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("the second panic of this test");
        }
    }

    #[test]
    fn a_panic_ends_here_and_so_does_that_of_its_payload() {
        assert!(run(|| ()));
        assert!(!run(|| panic!("the first panic of this test")));
        assert!(!run(|| std::panic::panic_any(PanicsWhenDropped)));
    }

    #[test]
    fn a_thread_is_marked_until_the_last_mark_is_dropped() {
        let marks = [OnDatabaseThread::begin(), OnDatabaseThread::begin()];
        for mark in marks {
            assert!(is_on_database_thread());
            assert!(!std::thread::spawn(is_on_database_thread).join().unwrap());
            drop(mark);
        }
        assert!(!is_on_database_thread());
    }
}
