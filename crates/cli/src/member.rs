//! `hyades serve --replicated`: the server as a member of a replicated database.

use clap::Parser;
use hyades_cli::failure::{Failure, usage};
use hyades_cli::units;
use hyades_platform::clock;
use hyades_replication::member::{Heard, MemberLoop};
use hyades_replication::meter::LogMeter;
use hyades_replication::nats::{Address, NatsLog, NatsSettings};
use hyades_replication::{MemberSettings, Role, begin};
use hyades_server::{
    LaneFigures, MakeBuilder, MemberView, PrimaryView, ReadMetrics, RoleChange, RoleSource,
    Settings, SourceFactory, View,
};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A standby that was not heard of for so long is not online.
const ONLINE_NS: u64 = 1_000_000_000;

/// How long a start waits for servers that start as well, and how soon it asks again.
const SERVERS_START_WITHIN: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(200);

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

const NAMES: [&str; 8] = [
    "--replicated",
    "--node",
    "--announce",
    "--lease",
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
            let lanes = make().declared_streams();
            let service = self.connect(lanes)?;
            let meter = service.meter().clone();
            let dir = settings.dir();
            let member = MemberSettings {
                address: self.announce.clone(),
                term: Duration::from_secs_f64(self.lease),
                ..MemberSettings::new(&*self.node, dir)
            };
            let declare = Box::new(move || make());
            let stop = Arc::<AtomicBool>::default();
            let member = MemberLoop::new(service, member, declare, stop);
            let member = Some(member.map_err(|error| error.to_string())?);
            let Address { name, .. } = self.replicated.clone();
            let (node, address) = (self.node.clone(), self.announce.clone());
            let asked = Mutex::default();
            Ok(Box::new(MemberSource { member, name, node, address, meter, asked }))
        })
    }

    /// Connects with as many lanes as the database has, or will have.
    fn connect(&self, lanes: usize) -> Result<Arc<NatsLog>, String> {
        let mut settings = NatsSettings::new(self.replicated.clone());
        settings.replicas = self.replicas as usize;
        settings.credentials.clone_from(&self.nats_creds);
        settings.authorities.clone_from(&self.nats_ca);
        settings.near.clone_from(&self.nats_near);
        let until = Instant::now() + SERVERS_START_WITHIN;
        let connect = |lanes| loop {
            match NatsLog::connect(settings.clone(), lanes) {
                Ok(service) => return Ok(service),
                Err(error) if error.may_pass() && Instant::now() < until => {
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(format!("the replicated log cannot be used: {error}")),
            }
        };
        let service = connect(lanes)?;
        let first = begin::next(&service, 0).map_err(|error| error.to_string())?;
        let known = first.map_or(lanes, |begin| begin.incarnation.dims.len());
        let service = if known == lanes { service } else { connect(known)? };
        Ok(Arc::new(service))
    }
}

/// The roles of a member, for the server.
struct MemberSource {
    /// `None` once the member has stopped.
    member: Option<MemberLoop>,
    name: String,
    node: String,
    address: String,
    meter: Arc<LogMeter>,
    /// The node to which the database is to be handed over, or any.
    asked: Mutex<Option<Option<String>>>,
}

impl RoleSource for MemberSource {
    fn next(&mut self, wait: Duration) -> Option<RoleChange> {
        let Some(member) = &mut self.member else {
            std::thread::sleep(wait);
            return None;
        };
        if let Some(to) = self.asked.lock().unwrap_or_else(|e| e.into_inner()).take() {
            // No standby follows closely any more: the primary goes on.
            let _ = member.hand_over(to.as_deref());
        }
        match member.step(wait) {
            Ok(role) => role.map(|role| match role {
                Role::Standby(database) => RoleChange::Standby(database),
                Role::Primary(database) => RoleChange::Primary(database),
                Role::Candidate => RoleChange::Candidate,
                Role::Joining(why) => RoleChange::Joining(why),
                _ => RoleChange::Joining("the role is not known to this program".to_owned()),
            }),
            Err(error) => {
                self.member = None;
                Some(RoleChange::Stopped(error.to_string()))
            }
        }
    }

    fn view(&self) -> View {
        let empty = View {
            name: self.name.clone(),
            node: self.node.clone(),
            address: self.address.clone(),
            ..View::default()
        };
        let Some(member) = &self.member else { return empty };
        let seen = member.view();
        // A primary that was stopped does not know whether another has its lease: ask others.
        let lease = seen.lease.filter(|lease| seen.is_answered && !lease.released);
        let primary = lease.map(|lease| PrimaryView { node: lease.node, address: lease.address });
        let now = clock::monotonic_ns();
        let members = seen.standbys.into_iter().map(|Heard { report, at_ns }| MemberView {
            node: report.node,
            address: report.address,
            lag_ms: report.lag_us.map(|lag| lag / 1000),
            positions: report.synced,
            is_online: now.saturating_sub(at_ns) < ONLINE_NS,
        });
        View {
            primary,
            incarnation: seen.incarnation,
            database: seen.database.unwrap_or_default(),
            positions: seen.positions,
            members: members.collect(),
            lag: Duration::from_micros(seen.lag_us.unwrap_or(0)),
            behind_bytes: seen.behind_bytes,
            lease_left: seen.lease_left,
            has_caught_up: seen.is_primary || seen.lag_us.is_some(),
            suspended: seen.is_primary && !seen.is_answered,
            stores: true,
            ..empty
        }
    }

    fn figures(&self) -> Option<ReadMetrics> {
        let meter = self.meter.clone();
        let read =
            move || LaneFigures { metrics: meter.metrics(), since_answer: meter.since_answer() };
        Some(Arc::new(read))
    }

    fn hand_over(&self, to: Option<&str>) -> Result<(), String> {
        let Some(member) = &self.member else { return Err("the member has stopped".to_owned()) };
        member.view().successor(to).map_err(|error| error.to_string())?;
        *self.asked.lock().unwrap_or_else(|e| e.into_inner()) = Some(to.map(str::to_owned));
        Ok(())
    }

    fn end(&mut self) {
        if let Some(member) = self.member.take() {
            member.end();
        }
    }
}
