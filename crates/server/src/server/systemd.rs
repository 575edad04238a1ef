//! Reports the start to systemd, if systemd wants reports: a service of `Type=notify` counts as
//! started when its database is open, and is not killed during recovery.

use crate::state::Shared;
use std::ffi::OsString;
use std::io::Result;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How often the time for the start is extended, and by how much.
const EVERY: Duration = Duration::from_secs(5);
const EXTENSION_US: u64 = 15_000_000;

/// The listening socket of systemd, if any.
#[derive(Default)]
pub struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// The socket named by the environment. A socket that cannot be reached counts as none: the
    /// service runs all the same.
    pub fn from_environment() -> Notifier {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        Notifier(name.and_then(|name| Notifier::open(&name).ok()))
    }

    fn open(name: &OsString) -> Result<(UnixDatagram, SocketAddr)> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        Ok((UnixDatagram::unbound()?, address))
    }

    /// Whether there is a socket.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sends assignments, a line each.
    pub fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // A failure is ignored: nothing depends on the message.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    /// Reports that the database is open.
    pub fn ready(&self) {
        self.tell("READY=1\nSTATUS=ready");
    }

    /// The server stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    /// Asks for more time and tells how far recovery has got, until the database is open or the
    /// server stops.
    pub fn tell_progress(&self, shared: &Shared) {
        while self.is_on() && shared.store.opened.get().is_none() && shared.stopping().is_none() {
            let status = shared.store.loading();
            self.tell(&format!("EXTEND_TIMEOUT_USEC={EXTENSION_US}\nSTATUS=recovering: {status}"));
            shared.stop_signal.wait_at_most(EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::state::Stopping;
    use std::sync::Arc;

    fn told(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_start_is_told_from_recovery_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let notifier = Notifier(Some(Notifier::open(&path.into_os_string()).unwrap()));
        let shared = Shared::new(Settings::default());
        let (notifier, telling) = (Arc::new(notifier), shared.clone());
        let thread = std::thread::spawn({
            let notifier = notifier.clone();
            move || notifier.tell_progress(&telling)
        });
        let first = told(&socket);
        assert!(first.starts_with("EXTEND_TIMEOUT_USEC=15000000\nSTATUS=recovering: "), "{first}");
        notifier.ready();
        assert_eq!(told(&socket), "READY=1\nSTATUS=ready");
        shared.stop(Stopping::Asked);
        thread.join().unwrap();
        notifier.stopping();
        assert_eq!(told(&socket), "STOPPING=1\nSTATUS=stopping");
        // Without a socket nothing is told, and nothing waits.
        Notifier::default().tell_progress(&Shared::new(Settings::default()));
    }
}
