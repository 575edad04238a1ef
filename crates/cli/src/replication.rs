//! `hyades replication`: commands on a replicated log.

mod remove;
mod status;
mod verify;

use clap::{Args, Subcommand};
use hyades_cli::failure::{Failure, usage};
use hyades_cli::units;
use hyades_replication::nats::{Address, NatsLog, NatsSettings, inspect};
use hyades_replication::probe::{ProbeSettings, probe};
use hyades_replication::status::DatabaseStatus;
use hyades_replication::{FirstAppender, LogService};
use hyades_wal::Remote;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a log service is reached.
#[derive(Args, Clone, Debug)]
pub struct LogServers {
    /// File with the credentials of a NATS user [default: none, or those of the address]
    #[arg(long, value_name = "FILE")]
    nats_creds: Option<PathBuf>,
    /// File with certificates of authorities, for addresses with tls://
    #[arg(long, value_name = "FILE")]
    nats_ca: Option<PathBuf>,
}

/// How a log service is used.
#[derive(Args, Clone, Debug)]
pub struct LogServiceOptions {
    /// Replicas of each lane: 1, 3 or 5
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=5))]
    replicas: u32,
    #[command(flatten)]
    servers: LogServers,
}

impl LogServers {
    fn settings(&self, address: Address) -> NatsSettings {
        let mut settings = NatsSettings::new(address);
        settings.credentials.clone_from(&self.nats_creds);
        settings.authorities.clone_from(&self.nats_ca);
        settings
    }
}

/// `hyades replication`.
#[derive(Subcommand, Clone, Debug)]
pub enum Replication {
    /// Print what the log and the members of a replicated database show
    ///
    /// The lease, the members heard of with their lag, the lanes, and the incarnations that have
    /// begun. Only reads. Exit code 1 if the primary was not heard.
    Status(status::StatusOptions),
    /// Take the place of a member that is gone, or all that the log has of a database
    ///
    /// The lanes keep what a member lacks until the member has been silent for a day. Refused for
    /// what is in use.
    Remove(remove::RemoveOptions),
    /// Compare the rows of all members as of one moment
    ///
    /// Each member reads its rows beside other work. Exit code 1 if a member has other rows, or
    /// does not answer.
    Verify(verify::VerifyOptions),
    /// Measure raw appends to a log service, one message at a time in each lane
    ///
    /// Prints bytes and messages per second, and the time to the acknowledgement: the bound of what
    /// a database can log there. The lanes are new, and removed at the end.
    Probe(ProbeOptions),
}

/// Finds a database, and listens to its members for a time.
///
/// # Errors
/// No server is reached, there is no database of the name, or a key cannot be read.
fn find(
    address: &Address,
    servers: &LogServers,
    listen: Duration,
) -> Result<(NatsSettings, DatabaseStatus), Failure> {
    let (settings, name) = (servers.settings(address.clone()), &address.name);
    let found = inspect(&settings, listen);
    let found = found.map_err(Failure::doing("the replicated log cannot be used"))?;
    let Some(found) = found else {
        let servers = address.servers_without_users();
        return Err(Failure::Failed(format!("no database {name:?} is on {servers}")));
    };
    let status = DatabaseStatus::of(found);
    let status = status.map_err(Failure::doing(format!("the keys of {name:?} cannot be read")))?;
    Ok((settings, status))
}

/// Options of `hyades replication probe`.
#[derive(Args, Clone, Debug)]
pub struct ProbeOptions {
    /// Address: nats://HOST:PORT,HOST:PORT,../NAME
    address: Address,
    /// Lanes, one for each log stream: 1 to 64
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    lanes: u32,
    /// Bytes of a message
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = units::size)]
    bytes: u64,
    /// Length of the measurement
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = units::some_seconds)]
    seconds: f64,
    #[command(flatten)]
    how: LogServiceOptions,
}

/// Lanes that are new, and are removed when the value is dropped.
pub struct NewLanes {
    settings: NatsSettings,
    lanes: usize,
    service: Arc<NatsLog>,
}

impl NewLanes {
    /// Creates lanes under the name of the address with a random suffix.
    pub fn create(
        address: &Address,
        how: &LogServiceOptions,
        lanes: usize,
    ) -> Result<NewLanes, Failure> {
        let mut address = address.clone();
        address.name.truncate(40);
        address.name += &format!("-{:x}", fastrand::u64(..));
        let mut settings = how.servers.settings(address);
        settings.replicas = how.replicas as usize;
        let service = NatsLog::connect(settings.clone(), lanes)
            .map_err(Failure::doing("the replicated log cannot be used"))?;
        Ok(NewLanes { settings, lanes, service: Arc::new(service) })
    }

    /// A writer of the lanes.
    pub fn remote(&self) -> Arc<dyn Remote> {
        Arc::new(FirstAppender::new(self.service.clone(), "bench"))
    }
}

impl Drop for NewLanes {
    fn drop(&mut self) {
        if let Err(error) = NatsLog::remove_lanes(&self.settings, self.lanes) {
            let name = &self.settings.address.name;
            eprintln!("the lanes of {name} could not be removed: {error}");
        }
    }
}

/// Runs `hyades replication`.
///
/// # Errors
/// The service cannot be used.
pub fn replication(command: &Replication) -> Result<bool, Failure> {
    match command {
        Replication::Status(options) => status::status(options),
        Replication::Remove(options) => remove::remove(options),
        Replication::Verify(options) => verify::verify_members(options),
        Replication::Probe(options) => probe_lanes(options),
    }
}

fn probe_lanes(options: &ProbeOptions) -> Result<bool, Failure> {
    let lanes = NewLanes::create(&options.address, &options.how, options.lanes as usize)?;
    let most = lanes.service.max_message_bytes();
    if options.bytes > most as u64 {
        return usage(format!("a message has at most {most} bytes here, not {}", options.bytes));
    }
    let report = probe(
        &*lanes.service,
        ProbeSettings {
            lanes: lanes.lanes,
            message_bytes: options.bytes as usize,
            time: Duration::from_secs_f64(options.seconds),
        },
    );
    let at = |share| units::time(report.quantile(share).as_secs_f64());
    println!(
        "{} lanes, messages of {}, one under way in each lane, {} replicas\n  \
         stored          {}: {}/s\n  \
         acknowledged    p50 {}, p99 {}, max {}\n  \
         failed          {}",
        options.lanes,
        units::bytes(options.bytes as f64),
        options.how.replicas,
        units::rate(report.rate()),
        units::bytes(report.rate() * options.bytes as f64),
        at(0.5),
        at(0.99),
        at(1.0),
        report.failed
    );
    Ok(report.failed == 0)
}
