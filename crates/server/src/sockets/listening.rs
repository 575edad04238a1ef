//! Listening sockets, and a change of their port while the server runs.

use super::client_socket::ClientSocket;
use hyades_platform::sync::Unpoisoned;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Longest wait of a change of the port for the listener, which accepts the earlier connections.
const LONGEST_CHANGE: Duration = Duration::from_secs(1);

/// A listening socket.
pub enum ListeningSocket {
    Tcp {
        socket: TcpListener,
        is_encrypted: bool,
    },
    /// The socket file named by `unixsocket`.
    Unix(UnixListener),
}

impl ListeningSocket {
    /// The address, if the socket is of the network.
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

    /// The next connection, and the client's address if the connection is of the network.
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

/// The state of a running listener.
#[derive(Default)]
pub struct ListeningState {
    /// The setting `port` in use; `None` if there is no listener.
    pub port: Option<u16>,
    /// The listening addresses.
    pub addresses: Vec<SocketAddr>,
    /// Most connections of a socket waiting to be accepted.
    pub backlog: i32,
    /// Sockets to replace the sockets at the port.
    pub next: Option<Vec<ListeningSocket>>,
    /// The sockets at the old port are not closed yet.
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

    /// Waits until the old listening port is free for other programs.
    pub fn wait_for_change(&self) {
        let is_changing = |state: &mut ListeningState| state.is_changing;
        let waited = self.changed.wait_timeout_while(self.lock(), LONGEST_CHANGE, is_changing);
        drop(waited.unpoisoned());
    }

    /// Notes that the sockets at the old port are closed.
    pub fn end_change(&self) {
        self.lock().is_changing = false;
        self.changed.notify_all();
    }

    /// Listens at another port, at the same addresses: returns whether there is a change. The
    /// listener has to be woken, and [waited for](ListeningPlaces::wait_for_change).
    ///
    /// # Errors
    /// An address cannot be listened at. Nothing has changed then.
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

/// The same address at another port, with the scope of a link address.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Listens at an address. At most `backlog` connections wait to be accepted, or the number allowed
/// by the system.
pub fn listen(address: SocketAddr, backlog: i32) -> std::io::Result<TcpListener> {
    let socket = TcpListener::bind(address)?;
    // The socket listens already, with a backlog of the library's choice.
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
