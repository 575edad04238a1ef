//! The threads of a replay, and what becomes of the others when one of them fails.

use super::replay::ReplayContext;
use crate::error::Error;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` on so many threads, this one among them, each with a number of its own. An error ends
/// the replay for all; and so does a panic, which says no more than that there is a defect: those who
/// wait for what the thread was at would wait for ever. `ended` is called when one is through.
pub(crate) fn run_on<S: Default + Send + Sync + 'static>(
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
    std::thread::scope(|scope| {
        let run = &run;
        (1..threads).for_each(|number| drop(scope.spawn(move || run(number))));
        run(0);
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::Recovery(format!(
        "a thread of the replay panicked ({said}), which is a defect of Hyades; nothing was changed on disk"
    ))
}
