//! `hyades replication remove`: takes the place of a member that is gone, or all that the log
//! service has of a database.

use super::{LogServers, find};
use clap::Args;
use hyades_cli::failure::{Failure, usage};
use hyades_replication::holds;
use hyades_replication::nats::{Address, NatsLog};
use hyades_replication::status::DatabaseStatus;
use std::time::Duration;

/// A member that runs is heard within this time.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

const UNUSABLE: &str = "the replicated log cannot be used";

/// Options of `hyades replication remove`.
#[derive(Args, Clone, Debug)]
pub struct RemoveOptions {
    /// Address: nats://HOST:PORT,HOST:PORT,../NAME
    address: Address,
    /// Node of a member that will not come back with its files
    node: Option<String>,
    /// Remove the lanes and keys of the database: what no member's files have is lost
    #[arg(long, conflicts_with = "node")]
    everything: bool,
    #[command(flatten)]
    servers: LogServers,
}

/// Runs `hyades replication remove`.
///
/// # Errors
/// No server is reached, there is no database or node of the name, or what is to be removed is in
/// use.
pub fn remove(options: &RemoveOptions) -> Result<bool, Failure> {
    if options.node.is_none() && !options.everything {
        return usage("name a node, or --everything".to_owned());
    }
    let name = &options.address.name;
    let (settings, status) = find(&options.address, &options.servers, HEARD_WITHIN)?;
    let running = running(&status);
    match &options.node {
        Some(node) if running.contains(node) => {
            let text = format!("node {node:?} of {name:?} runs: stop the member before");
            Err(Failure::Failed(text))
        }
        Some(node) => {
            let lanes = status.lanes.len();
            let service = NatsLog::connect(settings, lanes).map_err(Failure::doing(UNUSABLE))?;
            if !holds::remove(&service, node).map_err(Failure::doing(UNUSABLE))? {
                let text = format!("no member of {name:?} on node {node:?} has a place");
                return Err(Failure::Failed(text));
            }
            println!("{name}: the lanes wait no longer for node {node}");
            Ok(true)
        }
        None if !running.is_empty() => {
            let text = format!("members of {name:?} run: stop {} before", running.join(", "));
            Err(Failure::Failed(text))
        }
        None => {
            NatsLog::remove_lanes(&settings, status.lanes.len())
                .map_err(Failure::doing(UNUSABLE))?;
            println!("{name}: {} lanes and the keys are removed", status.lanes.len());
            Ok(true)
        }
    }
}

/// The nodes of the members that were heard.
fn running(status: &DatabaseStatus) -> Vec<String> {
    let holder = status.holder().filter(|_| status.is_primary_heard()).cloned();
    holder.into_iter().chain(status.standbys.iter().map(|report| report.node.clone())).collect()
}
