//! The log service of a run with standbys: in the memory of this process, or NATS.

use super::Replicating;
use hyades_cli::failure::Failure;
use hyades_replication::LogService;
use hyades_replication::simulated::{Faults, SimulatedLog};
use std::sync::Arc;

/// The most bytes of a message in memory: as of a NATS server with default settings.
const MESSAGE_BYTES: usize = (1 << 20) - (4 << 10);

/// Lanes that are new, and gone when the value is dropped.
pub struct RunLanes {
    service: Arc<dyn LogService>,
    /// What keeps the lanes.
    pub name: &'static str,
    /// Removes the lanes, after the last use of the service.
    #[cfg(feature = "nats")]
    _removed: Option<nats::RemovedLanes>,
}

impl RunLanes {
    /// Creates the lanes.
    ///
    /// # Errors
    /// The log service cannot be used.
    pub fn create(options: &Replicating, lanes: usize) -> Result<RunLanes, Failure> {
        match &options.log_service {
            #[cfg(feature = "nats")]
            Some(address) => nats::create(address, options.lane_replicas, lanes),
            #[cfg(not(feature = "nats"))]
            Some(address) => Err(check(address).expect_err("it was checked with the options")),
            None => {
                let log = SimulatedLog::new(lanes, 0, Faults::default());
                Ok(RunLanes {
                    service: Arc::new(log.with_messages_of(MESSAGE_BYTES)),
                    name: "memory",
                    #[cfg(feature = "nats")]
                    _removed: None,
                })
            }
        }
    }

    /// The service.
    pub fn service(&self) -> Arc<dyn LogService> {
        self.service.clone()
    }
}

/// Checks the address of a log service.
///
/// # Errors
/// Wrong usage.
#[cfg(not(feature = "nats"))]
pub fn check(_: &str) -> Result<(), Failure> {
    hyades_cli::failure::usage("this build has no NATS: build it with --features nats")
}

#[cfg(feature = "nats")]
pub use nats::check;

#[cfg(feature = "nats")]
mod nats {
    use super::RunLanes;
    use hyades_cli::failure::Failure;
    use hyades_replication::nats::{Address, NatsLog, NatsSettings};
    use std::sync::Arc;

    /// The most characters of a name that are left before the random ones.
    const NAME: usize = 40;

    /// Lanes that are removed when the value is dropped.
    pub struct RemovedLanes(NatsSettings, usize);

    impl Drop for RemovedLanes {
        fn drop(&mut self) {
            let RemovedLanes(settings, lanes) = self;
            if let Err(error) = NatsLog::remove_lanes(settings, *lanes) {
                eprintln!("the lanes of {} are not removed: {error}", settings.address.name);
            }
        }
    }

    /// See the module above.
    pub fn check(address: &str) -> Result<(), Failure> {
        parsed(address).map(|_| ())
    }

    fn parsed(address: &str) -> Result<Address, Failure> {
        address.parse().map_err(|why| Failure::Usage(format!("--log-service: {why}")))
    }

    /// Creates lanes under the name of the address with a random suffix.
    pub fn create(address: &str, replicas: Option<u32>, lanes: usize) -> Result<RunLanes, Failure> {
        let mut address = parsed(address)?;
        address.name.truncate(NAME);
        address.name += &format!("-{:x}", fastrand::u64(..));
        let mut settings = NatsSettings::new(address);
        settings.replicas = replicas.map_or(settings.replicas, |replicas| replicas as usize);
        let service = NatsLog::connect(settings.clone(), lanes)
            .map_err(Failure::doing("the log service cannot be used"))?;
        let removed = Some(RemovedLanes(settings, lanes));
        Ok(RunLanes { service: Arc::new(service), name: "nats", _removed: removed })
    }
}
