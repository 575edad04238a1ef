//! A member with a thread of its own, for programs that embed the database.

use crate::member::{MemberLoop, MemberSettings, MemberView, NoSuccessor, Role};
use crate::service::LogService;
use crate::standby_error::StandbyError;
use hyades::Builder;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Error, RemoteEnded};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a step of a member's thread lasts, about.
const STEP: Duration = Duration::from_millis(20);

/// A member, with a thread of its own. Dropped without [`Member::end`] it keeps the lease until
/// that has run out.
#[derive(Debug)]
pub struct Member {
    roles: Receiver<Result<Role, StandbyError>>,
    shared: Arc<MemberShared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the handle of a member share.
#[derive(Debug, Default)]
struct MemberShared {
    view: Mutex<MemberView>,
    /// What is asked of the thread.
    asked: Mutex<Option<Asked>>,
}

/// What is asked of a member.
#[derive(Clone, Debug)]
enum Asked {
    HandOver(Option<String>),
    End,
}

impl Member {
    /// Joins a database, or founds one, on a thread of its own.
    ///
    /// # Errors
    /// As [`MemberLoop::new`]; the thread did not start.
    pub fn join(
        service: Arc<dyn LogService>,
        settings: MemberSettings,
        declare: impl Fn() -> Builder + Send + 'static,
    ) -> Result<Member, StandbyError> {
        let stop = Arc::<AtomicBool>::default();
        let declare = Box::new(declare);
        let member = MemberLoop::new(service, settings, declare, stop.clone())?;
        let (sender, roles) = channel();
        let shared = Arc::<MemberShared>::default();
        let (stopped, told) = (stop.clone(), shared.clone());
        let run = move || run(member, &sender, (&stopped, &told));
        let thread = std::thread::Builder::new().name("member".into()).spawn(run);
        let thread = thread.map_err(|source| {
            let (path, action) = (PathBuf::new(), "start the thread of a member");
            StandbyError::Files(Error::Io { path, action, source })
        })?;
        Ok(Member { roles, shared, stop, thread: Some(thread) })
    }

    /// The next role, if there is one within `wait`. Drop the database of the role before.
    ///
    /// # Errors
    /// The member has stopped, and why.
    pub fn next(&self, wait: Duration) -> Result<Option<Role>, StandbyError> {
        match self.roles.recv_timeout(wait) {
            Ok(role) => role.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(StandbyError::Service(RemoteEnded::Stopped)),
        }
    }

    /// What the member knows, as of some milliseconds ago.
    pub fn view(&self) -> MemberView {
        self.shared.view.lock().unpoisoned().clone()
    }

    /// Gives the lease away, to a node or to any, if the member is primary; the next role tells.
    /// A standby asks the primary to do so.
    ///
    /// # Errors
    /// No such standby follows closely, so the primary goes on.
    pub fn hand_over(&self, successor: Option<&str>) -> Result<(), NoSuccessor> {
        self.view().successor(successor)?;
        let asked = Asked::HandOver(successor.map(str::to_owned));
        *self.shared.asked.lock().unpoisoned() = Some(asked);
        Ok(())
    }

    /// Leaves: a primary gives its lease away. Waits for the end of the thread.
    pub fn end(mut self) {
        *self.shared.asked.lock().unpoisoned() = Some(Asked::End);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut member: MemberLoop,
    roles: &Sender<Result<Role, StandbyError>>,
    (stop, shared): (&AtomicBool, &MemberShared),
) {
    let send = |role| roles.send(role).is_ok();
    if !send(Ok(Role::Joining("the member starts".to_owned()))) {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        let asked = shared.asked.lock().unpoisoned().take();
        let role = match asked {
            Some(Asked::End) => return member.end(),
            Some(Asked::HandOver(successor)) => {
                // No standby follows closely any more: the primary goes on.
                let _ = member.hand_over(successor.as_deref());
                Ok(None)
            }
            None => member.step(STEP),
        };
        *shared.view.lock().unpoisoned() = member.view();
        let goes_on = match role {
            Ok(None) => true,
            Ok(Some(role)) => send(Ok(role)),
            Err(error) => {
                send(Err(error));
                false
            }
        };
        if !goes_on {
            return;
        }
    }
}
