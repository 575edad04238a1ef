//! Pool of sessions for transactions run on the database itself.

use crate::erased::AnySession;
use crate::error::Error;
use hyades_platform::sync::Unpoisoned;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Sessions are created on demand. If the log has no free slot, a caller waits for a session lent
/// for a single transaction: this session is returned soon. The caller does not wait for readers of
/// snapshots: readers may take long, and run transactions inside.
#[derive(Default)]
pub(crate) struct SessionPool {
    state: Mutex<PoolState>,
    came_back: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Box<dyn AnySession>>,
    /// Sessions lent for single transactions.
    lent: usize,
}

impl SessionPool {
    /// Lends an idle session, or creates a session with `new`: for a single transaction if
    /// `is_short`, else to a reader of a snapshot.
    pub fn take(
        &self,
        is_short: bool,
        new: impl Fn() -> Result<Box<dyn AnySession>, Error>,
    ) -> Result<Box<dyn AnySession>, Error> {
        let mut state = self.state();
        loop {
            let session = match state.idle.pop() {
                Some(session) => Ok(session),
                None => new(),
            };
            match session {
                Err(Error::Log(hyades_wal::Error::Writers(_))) if state.lent > 0 => {
                    state = self.came_back.wait(state).unpoisoned();
                }
                Ok(session) => {
                    state.lent += usize::from(is_short);
                    return Ok(session);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes back a session lent by `take`; `None` if the session has ended.
    pub fn give_back(&self, session: Option<Box<dyn AnySession>>, is_short: bool) {
        let mut state = self.state();
        state.lent -= usize::from(is_short);
        state.idle.extend(session);
        let is_last = state.lent == 0;
        drop(state);
        if is_last {
            // Another caller may be faster, and keep the session for long: nothing is left to wait
            // for.
            self.came_back.notify_all();
        } else {
            self.came_back.notify_one();
        }
    }

    /// Ends the idle sessions.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    /// The session that several callers wait for is not returned: none of the callers waits any
    /// more.
    #[test]
    fn callers_wait_only_while_a_session_is_lent() {
        let pool = Arc::new(SessionPool::default());
        pool.state().lent = 1;
        let asked = Arc::new(AtomicUsize::new(0));
        let (told, outcomes) = mpsc::channel();
        for _ in 0..2 {
            let (pool, asked, told) = (pool.clone(), asked.clone(), told.clone());
            thread::spawn(move || {
                let none = || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    Err(Error::Log(hyades_wal::Error::Writers(256)))
                };
                told.send(pool.take(true, none).is_err())
            });
        }
        // Each thread asks under the lock, and releases the lock by waiting.
        while asked.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        pool.give_back(None, true);
        for _ in 0..2 {
            assert_eq!(outcomes.recv_timeout(Duration::from_secs(600)), Ok(true));
        }
    }
}
