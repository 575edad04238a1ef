//! Pool of sessions for transactions that are run on the database itself.

use crate::erased::AnySession;
use crate::error::Error;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Sessions are created on demand. If the log has no free slot, a caller waits for a lent session
/// to be returned, which is soon: each loan is for a single transaction.
#[derive(Default)]
pub(crate) struct SessionPool {
    state: Mutex<PoolState>,
    came_back: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Box<dyn AnySession>>,
    lent: usize,
}

impl SessionPool {
    /// Lends an idle session, or creates one with `new`.
    pub fn take(
        &self,
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
                    state = self.came_back.wait(state).expect("no holder panics");
                }
                Ok(session) => {
                    state.lent += 1;
                    return Ok(session);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes back a lent session; `None` if it has ended.
    pub fn give_back(&self, session: Option<Box<dyn AnySession>>) {
        let mut state = self.state();
        state.lent -= 1;
        state.idle.extend(session);
        drop(state);
        self.came_back.notify_one();
    }

    /// Ends the idle sessions.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().expect("no holder panics")
    }
}
