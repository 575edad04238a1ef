//! Connections between clients, threads and other servers.

use super::migration::{KeptTargets, Lookups};
use crate::clients::channels::Channels;
use crate::clients::monitors::Monitors;
use crate::clients::tracking::Tracking;
use crate::config::Settings;
use crate::data::waiting::WaitQueues;
use crate::sockets::listening::ListeningPlaces;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Connections between clients, threads and other servers.
pub struct Wiring {
    /// Publish and subscribe.
    pub channels: Arc<Channels>,
    /// Clients that monitor.
    pub monitors: Arc<Monitors>,
    /// Clients to be told of written keys.
    pub tracking: Arc<Tracking>,
    /// Clients that wait for an element.
    pub waiting: Arc<WaitQueues>,
    /// Connections to the targets of MIGRATE.
    pub targets: KeptTargets,
    /// Look-ups of the names of targets.
    pub lookups: Lookups,
    /// The listening port.
    pub port: AtomicU64,
    /// The listening addresses.
    pub listening: ListeningPlaces,
    /// Wakers of the event loops and of the listener.
    wakers: Mutex<Vec<Waker>>,
}

impl Wiring {
    /// Wiring between clients, with limits for their messages from the settings.
    pub fn new(settings: &Settings) -> Wiring {
        let limits = &settings.output_limits;
        Wiring {
            channels: Channels::new(limits.clone()),
            monitors: Monitors::new(limits.clone()),
            tracking: Tracking::new(limits.clone(), settings.most_tracked.clone()),
            waiting: Arc::default(),
            targets: KeptTargets::default(),
            lookups: Lookups::default(),
            port: AtomicU64::new(0),
            listening: ListeningPlaces::default(),
            wakers: Mutex::default(),
        }
    }

    /// Adds a thread to be woken at changes for all threads.
    pub fn add_waker(&self, waker: Waker) {
        self.wakers.lock().unpoisoned().push(waker);
    }

    /// Wakes all event loops and the listener.
    pub fn wake_all(&self) {
        self.wakers.lock().unpoisoned().iter().for_each(Waker::wake_by_ref);
    }
}
