//! Sockets that are listened to, and a change of their port while the server runs.

use super::client_socket::ClientSocket;
use hyades_platform::sync::Unpoisoned;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longest that a change of the port waits for the listener, which accepts what has connected
/// before.
const LONGEST_CHANGE: Duration = Duration::from_secs(1);

/// A socket that is listened to.
pub enum ListeningSocket {
    Tcp {
        socket: TcpListener,
        is_encrypted: bool,
    },
    /// The file that `unixsocket` names.
    Unix(UnixListener),
}

impl ListeningSocket {
    /// The address, if it is one of the network.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            ListeningSocket::Tcp { socket, .. } => socket.local_addr().ok(),
            ListeningSocket::Unix(_) => None,
        }
    }

    /// Whether clients speak TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, ListeningSocket::Tcp { is_encrypted: true, .. })
    }

    /// Has a poll tell of clients.
    pub fn register(&mut self, registry: &Registry, token: Token) -> std::io::Result<()> {
        match self {
            ListeningSocket::Tcp { socket, .. } => {
                registry.register(socket, token, Interest::READABLE)
            }
            ListeningSocket::Unix(socket) => registry.register(socket, token, Interest::READABLE),
        }
    }

    /// The next connection, and the client's address if it is one of the network.
    pub fn accept(&self) -> std::io::Result<(ClientSocket, Option<SocketAddr>)> {
        Ok(match self {
            ListeningSocket::Tcp { socket, .. } => {
                let (stream, from) = socket.accept()?;
                (ClientSocket::Tcp(stream), Some(from))
            }
            ListeningSocket::Unix(socket) => (ClientSocket::Unix(socket.accept()?.0), None),
        })
    }
}

/// What is known of a listener that runs.
#[derive(Default)]
pub struct ListeningState {
    /// The setting `port` that it follows; `None` if there is no listener.
    pub port: Option<u16>,
    /// The addresses at which it listens.
    pub addresses: Vec<SocketAddr>,
    /// Most connections of a socket that wait to be accepted.
    pub backlog: i32,
    /// Sockets that are to take the place of those at the port.
    pub next: Option<Vec<ListeningSocket>>,
    /// Those at the port before are not closed yet.
    pub is_changing: bool,
}

/// The listening addresses, and their change.
#[derive(Default)]
pub struct ListeningPlaces {
    state: Mutex<ListeningState>,
    changed: Condvar,
}

impl ListeningPlaces {
    /// The state, locked.
    pub fn lock(&self) -> MutexGuard<'_, ListeningState> {
        self.state.lock().unpoisoned()
    }

    /// Waits until a port that was listened at before is free for others.
    pub fn wait_for_change(&self) {
        let is_changing = |state: &mut ListeningState| state.is_changing;
        let waited = self.changed.wait_timeout_while(self.lock(), LONGEST_CHANGE, is_changing);
        drop(waited.unpoisoned());
    }

    /// The sockets at the port before are closed.
    pub fn end_change(&self) {
        self.lock().is_changing = false;
        self.changed.notify_all();
    }

    /// Listens at another port, at the same addresses: whether there is something to do. The
    /// listener has to be woken, and [waited for](ListeningPlaces::wait_for_change).
    ///
    /// # Errors
    /// One address cannot be listened at. Nothing has changed then.
    pub fn listen_at(&self, port: u16) -> std::io::Result<bool> {
        let mut state = self.lock();
        if state.port.is_none_or(|before| before == port) {
            return Ok(false);
        }
        if port == 0 {
            return Err(std::io::Error::other("there would be no port any more"));
        }
        let backlog = state.backlog;
        let bind = |address: &SocketAddr| {
            let address = at_port(*address, port);
            let failed = |error: std::io::Error| {
                std::io::Error::new(error.kind(), format!("{address}: {error}"))
            };
            let socket = listen(address, backlog).map_err(failed)?;
            Ok(ListeningSocket::Tcp { socket, is_encrypted: false })
        };
        let sockets = state.addresses.iter().map(bind).collect::<std::io::Result<Vec<_>>>()?;
        if sockets.is_empty() {
            return Err(std::io::Error::other("there is no address"));
        }
        (state.port, state.next, state.is_changing) = (Some(port), Some(sockets), true);
        Ok(true)
    }
}

/// The same address at another port, with the scope that one of a link has.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Listens at an address. At most this number of connections wait to be accepted, or the one that
/// the system allows.
pub fn listen(address: SocketAddr, backlog: i32) -> std::io::Result<TcpListener> {
    let socket = TcpListener::bind(address)?;
    // It listens already, with a number of the library's choice.
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_link_keeps_its_scope() {
        for (address, at_seven) in [("[fe80::1%3]:1", "[fe80::1%3]:7"), ("1.2.3.4:1", "1.2.3.4:7")]
        {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(at_port(address, 7).to_string(), at_seven);
        }
    }
}
