//! Connections to the servers that MIGRATE sends keys to. They are kept for a while, since one key
//! is often followed by others.

mod lookups;
mod target;

pub use lookups::Lookups;
pub use target::{MigrationTarget, TargetFailure, TargetPatience, push_words};

use hyades_platform::sync::Unpoisoned;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A connection that is not used for this time is closed.
const KEPT: Duration = Duration::from_secs(10);

/// Most connections that are kept: beyond them the one is closed that was used first.
const MOST_KEPT: usize = 64;

/// A server, and as which of its users it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The hash of what a client has logged in with there, if it has. A connection is for those
    /// with the same name and password: no client has the rights of another one there.
    pub credentials: Option<[u8; 32]>,
}

/// A connection that nothing is sent over.
struct KeptTarget {
    name: TargetName,
    target: MigrationTarget,
    until: Instant,
}

/// The connections that are kept, in the order in which they were used last.
#[derive(Default)]
pub struct KeptTargets {
    all: Mutex<Vec<KeptTarget>>,
}

impl KeptTargets {
    fn lock(&self) -> MutexGuard<'_, Vec<KeptTarget>> {
        self.all.lock().unpoisoned()
    }

    /// Takes a connection out, unless its time has ended, or the target has closed it, or has said
    /// something that it was not asked: that would be taken for the reply to what is sent next.
    pub fn take(&self, name: &TargetName, now: Instant) -> Option<MigrationTarget> {
        self.release(now);
        let mut all = self.lock();
        let at = all.iter().rposition(|kept| kept.name == *name)?;
        let KeptTarget { target, .. } = all.remove(at);
        drop(all);
        target.check_step().is_ok().then_some(target)
    }

    /// Keeps a connection, over which nothing is under way.
    pub fn keep(&self, name: TargetName, target: MigrationTarget, now: Instant) {
        let mut all = self.lock();
        if all.len() >= MOST_KEPT {
            all.remove(0);
        }
        all.push(KeptTarget { name, target, until: now + KEPT });
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// When the first of them is to be closed.
    pub fn first_end(&self) -> Option<Instant> {
        self.lock().first().map(|kept| kept.until)
    }

    /// Closes those whose time has ended.
    pub fn release(&self, now: Instant) {
        self.lock().retain(|kept| kept.until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Calls, ClientEntry};
    use crate::config::Settings;
    use crate::state::Shared;
    use std::net::TcpListener;
    use std::task::Waker;

    fn name(port: u16, credentials: Option<u8>) -> TargetName {
        let credentials = credentials.map(|byte| [byte; 32]);
        TargetName { host: "127.0.0.1".to_string(), port, credentials }
    }

    /// Each is for its own host, port and credentials, and for ten seconds.
    #[test]
    fn connections_are_kept_for_a_while_and_for_the_same_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared::new(Settings::default());
        let addresses = (String::new(), String::new());
        let client = ClientEntry::new(1, addresses, 0, Calls::new(Waker::noop().clone()));
        let patience = TargetPatience {
            stop: &shared.stop_signal,
            clock: &shared.clock,
            client: &client,
            idle: Duration::from_secs(10),
        };
        let connect = || {
            MigrationTarget::connect(&name(port, None), &shared.wiring.lookups, &patience).unwrap()
        };
        let (kept, now) = (KeptTargets::default(), Instant::now());
        assert_eq!((kept.count(), kept.first_end()), (0, None));
        kept.keep(name(port, Some(1)), connect(), now);
        let take = |port, credentials| kept.take(&name(port, credentials), now);
        assert!(take(port, None).is_none() && kept.count() == 1);
        assert!(take(port, Some(2)).is_none());
        assert!(take(port + 1, Some(1)).is_none());
        let taken = take(port, Some(1)).unwrap();
        assert!(take(port, Some(1)).is_none(), "it has one user at a time");
        kept.keep(name(port, None), taken, now);
        let end = kept.first_end().unwrap();
        assert_eq!(end, now + KEPT);
        kept.release(end - Duration::from_millis(1));
        assert_eq!(kept.count(), 1);
        kept.release(end);
        assert_eq!(kept.count(), 0);
        for number in 0..=MOST_KEPT {
            kept.keep(name(port, Some(number as u8)), connect(), now);
        }
        assert_eq!(kept.count(), MOST_KEPT);
        assert!(take(port, Some(0)).is_none(), "the first one was closed");
        assert!(take(port, Some(1)).is_some());
        // The thread that closes them may have had no time for it.
        assert!(kept.take(&name(port, Some(2)), end).is_none() && kept.count() == 0);
    }
}
