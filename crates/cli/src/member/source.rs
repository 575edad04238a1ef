//! The roles of a member of a replicated database, for the server.

use super::connecting::{Connecting, Unconnected};
use hyades_platform::clock;
use hyades_replication::Role;
use hyades_replication::member::{Heard, MemberLoop};
use hyades_replication::meter::LogMeter;
use hyades_server::{
    LaneFigures, MemberView, PrimaryView, ReadMetrics, RoleChange, RoleSource, View,
};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A standby that was not heard of for so long is not online.
const ONLINE_NS: u64 = 1_000_000_000;

const NO_MEMBER: &str = "this member is not connected with the replicated log";

enum Connection {
    /// With the reason that was told last.
    Waits(Box<Connecting>, String),
    Member(Box<MemberLoop>),
    Stopped,
}

/// The roles of a member, for the server.
pub(super) struct MemberSource {
    connection: Connection,
    name: String,
    node: String,
    address: String,
    /// Set once the member is connected.
    meter: Arc<OnceLock<Arc<LogMeter>>>,
    /// The node to which the database is to be handed over, or any.
    asked: Mutex<Option<Option<String>>>,
}

impl MemberSource {
    /// Tries to connect; waits for servers that do not answer yet.
    ///
    /// # Errors
    /// The servers cannot be used.
    pub fn begin(connecting: Connecting) -> Result<MemberSource, String> {
        let options = &connecting.options;
        let mut source = MemberSource {
            name: options.replicated.name.clone(),
            node: options.node.clone(),
            address: options.announce.clone(),
            meter: Arc::default(),
            asked: Mutex::default(),
            connection: Connection::Stopped,
        };
        source.connect(connecting, "")?;
        Ok(source)
    }

    /// Tries to connect. Returns why the member waits, if for another reason than `told`.
    fn connect(&mut self, connecting: Connecting, told: &str) -> Result<Option<String>, String> {
        match connecting.connect() {
            Ok((member, meter)) => {
                self.meter.get_or_init(|| meter);
                self.connection = Connection::Member(Box::new(member));
                Ok(None)
            }
            Err(Unconnected::Waits(why)) => {
                let news = (why != told).then(|| why.clone());
                self.connection = Connection::Waits(Box::new(connecting), why);
                Ok(news)
            }
            Err(Unconnected::Fails(why)) => Err(why),
        }
    }

    fn connect_again(&mut self, wait: Duration) -> Option<RoleChange> {
        let before = std::mem::replace(&mut self.connection, Connection::Stopped);
        let Connection::Waits(connecting, told) = before else { return None };
        std::thread::sleep(wait);
        match self.connect(*connecting, &told) {
            Ok(news) => news.map(RoleChange::Joining),
            Err(why) => Some(RoleChange::Stopped(why)),
        }
    }

    fn member(&self) -> Option<&MemberLoop> {
        match &self.connection {
            Connection::Member(member) => Some(member),
            _ => None,
        }
    }
}

impl RoleSource for MemberSource {
    fn next(&mut self, wait: Duration) -> Option<RoleChange> {
        if let Connection::Waits(..) = &self.connection {
            return self.connect_again(wait);
        }
        let Connection::Member(member) = &mut self.connection else {
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
                self.connection = Connection::Stopped;
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
        let Some(member) = self.member() else { return empty };
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
            purged: seen.purged,
            kept_for: seen.kept_for,
            bases: seen.bases,
            ..empty
        }
    }

    fn figures(&self) -> Option<ReadMetrics> {
        let meter = self.meter.clone();
        Some(Arc::new(move || match meter.get() {
            Some(meter) => {
                LaneFigures { metrics: meter.metrics(), since_answer: meter.since_answer() }
            }
            None => LaneFigures::default(),
        }))
    }

    fn hand_over(&self, to: Option<&str>) -> Result<(), String> {
        let Some(member) = self.member() else { return Err(NO_MEMBER.to_owned()) };
        member.view().successor(to).map_err(|error| error.to_string())?;
        *self.asked.lock().unwrap_or_else(|e| e.into_inner()) = Some(to.map(str::to_owned));
        Ok(())
    }

    fn end(&mut self) {
        let connection = std::mem::replace(&mut self.connection, Connection::Stopped);
        if let Connection::Member(member) = connection {
            member.end();
        }
    }
}
