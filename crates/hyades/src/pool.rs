//! Pool of sessions for transactions that are run on the database itself.

use crate::erased::AnySession;
use crate::error::Error;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Sessions are created on demand. If the log has no free slot, a caller waits for a session that
/// is lent for a single transaction, which is returned soon. It does not wait for readers of
/// snapshots: these may take long, and run transactions inside.
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
    /// Lends an idle session, or creates one with `new`: for a single transaction if `is_short`,
    /// else to a reader of a snapshot.
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
                    state = self.came_back.wait(state).expect("no holder panics");
                }
                Ok(session) => {
                    state.lent += usize::from(is_short);
                    return Ok(session);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes back a session that was lent so; `None` if it has ended.
    pub fn give_back(&self, session: Option<Box<dyn AnySession>>, is_short: bool) {
        let mut state = self.state();
        state.lent -= usize::from(is_short);
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
