//! Runs the threads of a replay, and stops all of them if one fails.

use super::replay::ReplayContext;
use crate::error::Error;
use crate::storage::Stamp;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` on `threads` threads, including the calling thread, each with its own number. An
/// error ends the replay on all threads. A panic, the sign of a defect, ends the replay as well:
/// threads waiting for the failed thread's record would wait for ever. `ended` is called with a
/// thread's number at the end of its work.
pub(crate) fn run_on<S: Stamp>(
    replay: &ReplayContext<S>,
    threads: usize,
    work: impl Fn(usize) -> Result<(), Error> + Sync,
    ended: impl Fn(usize) + Sync,
) {
    let run = |number: usize| {
        let result = catch_unwind(AssertUnwindSafe(|| work(number)));
        if let Err(error) = result.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            replay.fail(error);
        }
        ended(number);
    };
    #[cfg(feature = "replication")]
    if let Some(standing) = replay.standing.get().filter(|_| threads > 1) {
        return standing.run(threads, &run);
    }
    on_threads(threads, &run);
}

/// Calls `run` on `threads` threads, including the calling thread, each with its own number.
/// Compiled once, unlike its callers.
fn on_threads(threads: usize, run: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        (1..threads).for_each(|number| drop(scope.spawn(move || run(number))));
        run(0);
    });
}

/// Calls `work`, and `other` on a second thread. Compiled once, unlike its callers.
pub(crate) fn beside(other: &(dyn Fn() + Sync), work: &mut dyn FnMut()) {
    std::thread::scope(|scope| {
        scope.spawn(other);
        work();
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::Recovery(format!(
        "a thread of the replay panicked ({said}), which is a defect of Hyades; \
         nothing was changed on disk"
    ))
}
