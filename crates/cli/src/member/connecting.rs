//! The connection of a member with the NATS servers, which may start later than the member.

use super::MemberOptions;
use hyades_replication::member::MemberLoop;
use hyades_replication::meter::LogMeter;
use hyades_replication::nats::{NatsError, NatsLog, NatsSettings};
use hyades_replication::{MemberSettings, begin};
use hyades_server::MakeBuilder;
use hyades_wal::RemoteEnded;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What a member needs to begin.
pub(super) struct Connecting {
    /// How the server is a member.
    pub options: MemberOptions,
    make: MakeBuilder,
    dir: PathBuf,
}

/// Why there is no connection.
pub(super) enum Unconnected {
    /// The servers may answer later.
    Waits(String),
    /// They cannot be used.
    Fails(String),
}

impl From<NatsError> for Unconnected {
    fn from(error: NatsError) -> Unconnected {
        let text = format!("the replicated log cannot be used: {error}");
        if error.may_pass() { Unconnected::Waits(text) } else { Unconnected::Fails(text) }
    }
}

impl Connecting {
    pub fn new(options: MemberOptions, make: MakeBuilder, dir: PathBuf) -> Connecting {
        Connecting { options, make, dir }
    }

    /// Connects, and begins to join.
    pub fn connect(&self) -> Result<(MemberLoop, Arc<LogMeter>), Unconnected> {
        let service = self.service()?;
        let meter = service.meter().clone();
        let member = MemberSettings {
            address: self.options.announce.clone(),
            term: Duration::from_secs_f64(self.options.lease),
            log_bytes: self.options.log_bytes,
            forget_after: Duration::from_secs_f64(self.options.forget_after),
            ..MemberSettings::new(&*self.options.node, &self.dir)
        };
        let make = self.make.clone();
        let declare = Box::new(move || make());
        let member = MemberLoop::new(service, member, declare, Arc::<AtomicBool>::default());
        Ok((member.map_err(|error| Unconnected::Fails(error.to_string()))?, meter))
    }

    /// The log service with as many lanes as the database has, or will have.
    fn service(&self) -> Result<Arc<NatsLog>, Unconnected> {
        let options = &self.options;
        let mut settings = NatsSettings::new(options.replicated.clone());
        settings.replicas = options.replicas as usize;
        settings.credentials.clone_from(&options.nats_creds);
        settings.authorities.clone_from(&options.nats_ca);
        settings.near.clone_from(&options.nats_near);
        let lanes = (self.make)().declared_streams();
        let service = NatsLog::connect(settings.clone(), lanes)?;
        let first = begin::next(&service, 0).map_err(|ended| match ended {
            RemoteEnded::Silent => Unconnected::Waits(ended.to_string()),
            _ => Unconnected::Fails(ended.to_string()),
        })?;
        let known = first.map_or(lanes, |begin| begin.incarnation.dims.len());
        let service = if known == lanes { service } else { NatsLog::connect(settings, known)? };
        Ok(Arc::new(service))
    }
}
