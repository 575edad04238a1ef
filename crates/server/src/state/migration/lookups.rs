//! Addresses of the names of hosts.
//!
//! The system's look-up of a name cannot be interrupted, and has its own time limit, possibly long.
//! So a dedicated thread does the look-up, and is left alone when the client's time limit is over.
//! The number of threads is bounded.

use super::{TargetFailure, TargetPatience};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

/// Most look-ups under way: beyond the limit no name is looked up.
const MOST_LOOKUPS: usize = 16;

/// The look-ups under way.
#[derive(Default)]
pub struct Lookups(Arc<AtomicUsize>);

/// A look-up, counted until dropped.
struct CountedLookup(Arc<AtomicUsize>);

impl Drop for CountedLookup {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Lookups {
    /// The addresses of a host.
    ///
    /// # Errors
    /// The host has no address, or the addresses are not found in time.
    pub fn find(
        &self,
        host: &str,
        port: u16,
        patience: &TargetPatience<'_>,
    ) -> Result<Vec<SocketAddr>, TargetFailure> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_string();
        self.run(patience, move || Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn run(
        &self,
        patience: &TargetPatience<'_>,
        look_up: impl FnOnce() -> std::io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>, TargetFailure> {
        let before = self.0.fetch_add(1, Relaxed);
        let counted = CountedLookup(self.0.clone());
        if before >= MOST_LOOKUPS {
            return Err(TargetFailure::Unreachable);
        }
        let (sender, found) = channel();
        let thread = std::thread::Builder::new().name("lookup".into()).spawn(move || {
            let found = look_up();
            drop(counted);
            // The caller may have stopped waiting.
            let _ = sender.send(found);
        });
        thread.map_err(|_| TargetFailure::Unreachable)?;
        let began = Instant::now();
        loop {
            match found.recv_timeout(patience.slice()) {
                Ok(Ok(addresses)) => return Ok(addresses),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(TargetFailure::Unreachable);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if began.elapsed() >= patience.idle || patience.has_ended() {
                        return Err(TargetFailure::Unreachable);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Calls, ClientEntry};
    use crate::config::Settings;
    use crate::state::{Shared, Stopping};
    use std::task::Waker;
    use std::time::Duration;

    /// The wait for an endless look-up ends at its time limit, and delays no stop.
    #[test]
    fn a_name_is_not_looked_up_for_longer_than_is_allowed() {
        let shared = Shared::new(Settings::default());
        let addresses = (String::new(), String::new());
        let client = ClientEntry::new(1, addresses, 0, Calls::new(Waker::noop().clone()));
        let patience = |idle: u64| {
            let idle = Duration::from_millis(idle);
            TargetPatience {
                stop: &shared.stop_signal,
                clock: &shared.clock,
                client: &client,
                idle,
            }
        };
        let lookups = Lookups::default();
        let (goes_on, waits) = channel::<()>();
        let waits = Arc::new(std::sync::Mutex::new(waits));
        let never = || {
            let waits = waits.clone();
            move || {
                let _ = waits.lock().unwrap().recv();
                Ok(Vec::new())
            }
        };
        let began = Instant::now();
        assert_eq!(lookups.run(&patience(1), never()), Err(TargetFailure::Unreachable));
        assert_eq!(lookups.run(&patience(120), never()), Err(TargetFailure::Unreachable));
        assert!(began.elapsed() >= Duration::from_millis(120));
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        // Further names are looked up meanwhile, as long as there are few.
        let local = "127.0.0.1:7".parse().unwrap();
        for _ in 2..MOST_LOOKUPS {
            assert_eq!(lookups.run(&patience(60_000), move || Ok(vec![local])), Ok(vec![local]));
            assert_eq!(lookups.run(&patience(1), never()), Err(TargetFailure::Unreachable));
        }
        let one_more = lookups.run(&patience(60_000), move || Ok(vec![local]));
        assert_eq!(one_more, Err(TargetFailure::Unreachable));
        // An address is no name.
        assert_eq!(lookups.find("127.0.0.1", 7, &patience(1)), Ok(vec![local]));
        let sixth = "[::1]:7".parse().unwrap();
        assert_eq!(lookups.find("::1", 7, &patience(1)), Ok(vec![sixth]));
        drop(goes_on);
        while lookups.0.load(Relaxed) > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "a look-up is counted for ever");
            std::thread::yield_now();
        }
        assert!(lookups.find("localhost", 7, &patience(60_000)).unwrap().contains(&local));
        shared.stop(Stopping::Asked);
        let waits = channel::<()>();
        let stopped = lookups.run(&patience(86_400_000), move || {
            let _ = waits.1.recv();
            Ok(Vec::new())
        });
        assert_eq!(stopped, Err(TargetFailure::Unreachable));
        drop(waits.0);
    }
}
