//! `hyades serve --replicated`: the server as a member of a replicated database.

mod connecting;
mod source;

use self::connecting::Connecting;
use self::source::MemberSource;
use clap::Parser;
use hyades_cli::failure::{Failure, usage};
use hyades_cli::units;
use hyades_replication::nats::Address;
use hyades_server::{MakeBuilder, Settings, SourceFactory};
use std::path::PathBuf;

/// How the server is a member.
#[derive(Parser, Clone, Debug)]
pub struct MemberOptions {
    /// The log: nats://HOST:PORT,HOST:PORT,../NAME
    #[arg(long)]
    replicated: Address,
    /// The name of this member, another one for each: letters, digits, - and _
    #[arg(long)]
    node: String,
    /// HOST:PORT of this server, for clients and other members
    #[arg(long)]
    announce: String,
    /// How long the lease of a primary lasts
    #[arg(long, default_value = "3", value_parser = units::some_seconds)]
    lease: f64,
    /// The most bytes of the log kept for a member that is behind; beyond, the member joins anew
    #[arg(long, value_name = "SIZE", default_value = "64GiB", value_parser = units::size)]
    log_bytes: u64,
    /// How long the log is kept for a member that is down
    #[arg(long, value_name = "TIME", default_value = "86400", value_parser = units::some_seconds)]
    forget_after: f64,
    /// Replicas of each lane: 1, 3 or 5
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=5))]
    replicas: u32,
    /// File with the credentials of a NATS user
    #[arg(long)]
    nats_creds: Option<PathBuf>,
    /// File with certificates of authorities, for addresses with tls://
    #[arg(long)]
    nats_ca: Option<PathBuf>,
    /// Name of the NATS server on this machine: leads no lane while this member is the primary
    #[arg(long)]
    nats_near: Option<String>,
}

const NAMES: [&str; 10] = [
    "--replicated",
    "--node",
    "--announce",
    "--lease",
    "--log-bytes",
    "--forget-after",
    "--replicas",
    "--nats-creds",
    "--nats-ca",
    "--nats-near",
];

/// Splits the arguments of a server into those of a member, if there are any, and the rest.
///
/// # Errors
/// The arguments of a member are not complete, or not possible.
pub fn split(all: &[String]) -> Result<(Option<MemberOptions>, Vec<String>), Failure> {
    let (mut own, mut rest) = (vec!["serve".to_owned()], Vec::new());
    let mut all = all.iter();
    while let Some(argument) = all.next() {
        let name = argument.split('=').next().unwrap_or_default();
        if !NAMES.contains(&name) {
            rest.push(argument.clone());
            continue;
        }
        own.push(argument.clone());
        if !argument.contains('=') {
            own.extend(all.next().cloned());
        }
    }
    if own.len() == 1 {
        return Ok((None, rest));
    }
    let options = MemberOptions::try_parse_from(own);
    let options = options.map_err(|error| {
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or(&text);
        Failure::Usage(first.trim_start_matches("error: ").to_owned())
    })?;
    let is_named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if options.node.is_empty() || !options.node.chars().all(is_named) {
        return usage(format!(
            "--node {:?}: the name of a member has letters, digits, - and _",
            options.node
        ));
    }
    let port = options.announce.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return usage(format!("--announce {:?} is not HOST:PORT", options.announce));
    }
    if !(1.0..=60.0).contains(&options.lease) {
        return usage("--lease is 1 to 60 seconds".to_owned());
    }
    Ok((Some(options), rest))
}

impl MemberOptions {
    /// What makes the roles of the server.
    pub fn source(self) -> SourceFactory {
        Box::new(move |make: MakeBuilder, settings: &Settings| {
            let connecting = Connecting::new(self, make, settings.dir());
            Ok(Box::new(MemberSource::begin(connecting)?))
        })
    }
}
