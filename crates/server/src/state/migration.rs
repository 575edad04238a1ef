//! Connections to the target servers of MIGRATE. Connections are kept for a while, since a key is
//! often followed by more keys.

mod lookups;
mod target;

pub use lookups::Lookups;
pub use target::{MigrationTarget, TargetFailure, TargetPatience, push_words};

use hyades_platform::sync::Unpoisoned;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A connection unused for this time is closed.
const KEPT: Duration = Duration::from_secs(10);

/// Most connections to keep: beyond the limit, the least recently used connection is closed.
const MOST_KEPT: usize = 64;

/// A server, and the user of the server for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// The host of the server.
    pub host: String,
    /// The port of the server.
    pub port: u16,
    /// The hash of a client's login at the server, if any. A connection serves requests with the
    /// same name and password only: no client has the rights of another client there.
    pub credentials: Option<[u8; 32]>,
}

/// An idle connection.
struct KeptTarget {
    name: TargetName,
    target: MigrationTarget,
    until: Instant,
}

/// The kept connections, in the order of their last use.
#[derive(Default)]
pub struct KeptTargets {
    all: Mutex<Vec<KeptTarget>>,
}

impl KeptTargets {
    fn lock(&self) -> MutexGuard<'_, Vec<KeptTarget>> {
        self.all.lock().unpoisoned()
    }

    /// Removes and returns a connection, unless its time has ended, or the target has closed the
    /// connection, or has sent unrequested bytes: the bytes would be taken for the next reply.
    pub fn take(&self, name: &TargetName, now: Instant) -> Option<MigrationTarget> {
        self.release(now);
        let mut all = self.lock();
        let at = all.iter().rposition(|kept| kept.name == *name)?;
        let KeptTarget { target, .. } = all.remove(at);
        drop(all);
        target.check_step().is_ok().then_some(target)
    }

    /// Keeps a connection without pending replies.
    pub fn keep(&self, name: TargetName, target: MigrationTarget, now: Instant) {
        let mut all = self.lock();
        if all.len() >= MOST_KEPT {
            all.remove(0);
        }
        all.push(KeptTarget { name, target, until: now + KEPT });
    }

    /// The number of kept connections.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The time at which the first connection is to be closed.
    pub fn first_end(&self) -> Option<Instant> {
        self.lock().first().map(|kept| kept.until)
    }

    /// Closes connections after the end of their time.
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

    /// Each connection is for its own host, port and credentials, and for ten seconds.
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
        // The thread that closes connections may have had no time yet.
        assert!(kept.take(&name(port, Some(2)), end).is_none() && kept.count() == 0);
    }
}
