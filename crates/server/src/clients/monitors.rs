//! MONITOR: clients are told each command, once the command is certain to have taken effect.

use crate::clients::ClientEntry;
use crate::clients::channels::Delivery;
use crate::config::{OutputLimits, redaction};
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

/// The line about a command for monitoring clients, without the sign of its type.
pub type MonitorLine = Arc<str>;

/// Stands in place of a client's address: the command of a script.
pub const SCRIPT: &str = "lua";

/// A line: the time in microseconds since 1970, the database and the address of the client, and the
/// command without passwords.
pub fn line(at_us: u64, (database, address): (u32, &str), args: &[&[u8]]) -> MonitorLine {
    let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
    let mut line = format!("{seconds}.{micros:06} [{database} {address}]");
    for at in 0..args.len() {
        line.push_str(" \"");
        quote(redaction::shown(args, at), &mut line);
        line.push('"');
    }
    line.into()
}

/// Appends bytes as text of one line.
fn quote(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'\\' | b'"' => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(*byte)),
            other => {
                let _ = write!(out, "\\x{other:02x}");
            }
        }
    }
}

/// The monitoring clients.
pub struct Monitors {
    /// Bounds of a client's waiting bytes.
    limits: Arc<OutputLimits>,
    clients: RwLock<BTreeMap<u64, Arc<ClientEntry>>>,
    /// The number of clients. Raised before a client is told of its start.
    count: AtomicUsize,
}

impl Monitors {
    /// Makes the state without clients.
    pub fn new(limits: Arc<OutputLimits>) -> Arc<Monitors> {
        Arc::new(Monitors { limits, clients: RwLock::default(), count: AtomicUsize::new(0) })
    }

    /// Whether a client monitors. If not, nothing is to be done.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Has a client monitor, until the returned value is dropped.
    pub fn add(self: &Arc<Self>, client: &Arc<ClientEntry>) -> Monitoring {
        let mut clients = self.clients.write().unpoisoned();
        clients.insert(client.id, client.clone());
        self.count.store(clients.len(), Relaxed);
        client.is_monitor.store(true, Relaxed);
        Monitoring { monitors: self.clone(), client: client.clone() }
    }

    /// Hands a line to all monitoring clients.
    pub fn deliver(&self, line: &MonitorLine) {
        for client in self.clients.read().unpoisoned().values() {
            let limit = self.limits.get(client.listens());
            client.inbox.add(client, limit, Delivery::Line(line.clone()));
        }
    }
}

/// A client monitors.
pub struct Monitoring {
    monitors: Arc<Monitors>,
    client: Arc<ClientEntry>,
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        let mut clients = self.monitors.clients.write().unpoisoned();
        clients.remove(&self.client.id);
        self.monitors.count.store(clients.len(), Relaxed);
        self.client.is_monitor.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_text_whatever_the_command_has() {
        let args: [&[u8]; 3] = [b"set", b"a \"\\\r\n\t\x07\x08", b"\x00\x7f\xff~"];
        let line = line(1_700_000_000_000_042, (9, "127.0.0.1:5"), &args);
        let shown = r#"1700000000.000042 [9 127.0.0.1:5] "set" "a \"\\\r\n\t\a\b" "\x00\x7f\xff~""#;
        assert_eq!(&*line, shown);
    }
}
