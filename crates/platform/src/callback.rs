//! Code of the program run by a database on its own threads: wakers of tasks, and subscribers to
//! events.
//!
//! A panic of the program's code ends here, since the thread has further work to do. And the thread
//! is marked while the program's code runs: waits for the database are refused, because the thread
//! would wait for itself.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

thread_local! {
    /// How many marks the thread has, see [`OnDatabaseThread`].
    static MARKS: Cell<u32> = const { Cell::new(0) };
}

/// Marks the calling thread as working for a database, until the mark is dropped.
#[derive(Debug)]
pub struct OnDatabaseThread(PhantomData<*const ()>);

impl OnDatabaseThread {
    /// Begins a mark: from now on the program's code on the thread must not wait for the database.
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

/// Whether the calling thread works for a database: the thread must not wait for a database.
#[inline]
pub fn is_on_database_thread() -> bool {
    MARKS.get() > 0
}

/// Runs code of the program; a panic ends here. Returns whether the code ended without a panic.
pub fn run(work: impl FnOnce()) -> bool {
    let forget_panic = |payload: Box<dyn Any + Send>| {
        // The destructor of the panic's payload is the program's, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(forget_panic).is_ok()
}

/// Wakes a task. Returns false if the waker panicked; an event reports the panic.
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
