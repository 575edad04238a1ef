//! The settings of a live import: the server to import from, its primary, and the user there.

use super::{Settings, value_place};
use hyades_platform::sync::Unpoisoned;
use std::time::Duration;

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for PrimaryAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl PrimaryAddress {
    /// The host and the port of a text with both.
    pub fn read(text: &str) -> Option<PrimaryAddress> {
        let (host, port) = text.trim().split_once(' ')?;
        Some(PrimaryAddress { host: host.to_string(), port: port.trim().parse().ok()? })
    }

    /// Host and port, in the form of the setting `replicaof`.
    pub fn setting(&self) -> String {
        format!("{} {}", self.host, self.port)
    }
}

impl Settings {
    /// The primary of a live import, if any.
    pub(crate) fn primary(&self) -> Option<PrimaryAddress> {
        PrimaryAddress::read(&self.text("replicaof"))
    }

    /// Sets the primary shown by CONFIG.
    pub(crate) fn set_primary(&self, primary: Option<&PrimaryAddress>) {
        let _changing = self.changing.lock().unpoisoned();
        let at = value_place("replicaof");
        let text = primary.map(PrimaryAddress::setting).unwrap_or_default();
        self.values.write().unpoisoned()[at] = text;
        let mut given = self.given.write().unpoisoned();
        if !given.contains(&at) {
            given.push(at);
        }
    }

    /// The arguments of AUTH to the primary; empty if no password is needed.
    pub(crate) fn primary_credentials(&self) -> Vec<String> {
        let (user, password) = (self.text("masteruser"), self.text("masterauth"));
        match (user.is_empty(), password.is_empty()) {
            (_, true) => Vec::new(),
            (true, false) => vec![password],
            (false, false) => vec![user, password],
        }
    }

    /// The connection is lost after this time without bytes from the primary.
    pub(crate) fn primary_timeout(&self) -> Duration {
        Duration::from_secs(self.number("repl-timeout"))
    }

    /// The port that the primary shows for this server, if different from the listener's port.
    pub(crate) fn announced_port(&self) -> Option<u16> {
        Some(self.number("replica-announce-port") as u16).filter(|port| *port > 0)
    }
}
