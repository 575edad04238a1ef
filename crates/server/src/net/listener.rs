//! Accepts connections, and gives each to the loop with the fewest.

use crate::net::event_loop::{Accepted, Mailbox};
use crate::sockets::client_socket::ClientSocket;
use crate::sockets::listening::{ListeningSocket, listen};
use crate::sockets::unix_socket::SocketFile;
use crate::sockets::waker::LoopWaker;
use crate::state::{Shared, Stopping};
use crate::tls::Encryption;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Poll, Token};
use rustix::net::sockopt;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[cfg(test)]
mod backlog_tests;

const WAKER: Token = Token(usize::MAX);

/// When the process has no file descriptor left, accepting is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening sockets.
pub struct Listener {
    shared: Arc<Shared>,
    poll: Poll,
    sockets: Vec<ListeningSocket>,
    encryption: Option<Encryption>,
    waker: Arc<LoopWaker>,
    socket_file: Option<SocketFile>,
}

/// Binds one address.
fn bind(address: &str, port: u16, backlog: i32) -> std::io::Result<TcpListener> {
    let address = if address == "*" { "0.0.0.0" } else { address };
    let mut last = std::io::Error::new(ErrorKind::NotFound, "no such address");
    for address in (address, port).to_socket_addrs()? {
        match listen(address, backlog) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Binds all addresses of the settings at a port; returns the port that the addresses got.
fn bind_all(
    shared: &Shared,
    mut port: u16,
    is_encrypted: bool,
    sockets: &mut Vec<ListeningSocket>,
) -> std::io::Result<u16> {
    let before = sockets.len();
    for address in shared.settings.bind() {
        let (name, is_optional) = match address.strip_prefix('-') {
            Some(name) => (name, true),
            None => (&address[..], false),
        };
        match bind(name, port, shared.settings.backlog()) {
            Ok(socket) => {
                // The other addresses get the port of the first address.
                port = socket.local_addr()?.port();
                sockets.push(ListeningSocket::Tcp { socket, is_encrypted });
            }
            Err(_) if is_optional => {}
            Err(error) => {
                let text = format!("cannot listen at {name}:{port}: {error}");
                return Err(std::io::Error::new(error.kind(), text));
            }
        }
    }
    match sockets.len() > before {
        true => Ok(port),
        false => Err(std::io::Error::other("bind names no address that can be listened at")),
    }
}

impl Listener {
    /// Listens at the addresses of the settings.
    ///
    /// # Errors
    /// An address cannot be listened at; said with the address. A file of TLS is not as it should
    /// be. `unixsocket` names a file that cannot be made.
    pub fn bind(shared: &Arc<Shared>) -> std::io::Result<Listener> {
        let poll = Poll::new()?;
        let waker = LoopWaker::new(poll.registry(), WAKER)?;
        let (tls, port) = (shared.settings.tls(), shared.settings.port());
        let encryption = tls.as_ref().map(Encryption::new).transpose();
        let encryption = encryption.map_err(std::io::Error::other)?;
        let mut sockets = Vec::new();
        let unix = shared.settings.unix_socket();
        // Beside a port for TLS, or a file, port 0 means none, as in Redis.
        let shown = match &tls {
            _ if port == 0 && (tls.is_some() || unix.is_some()) => 0,
            Some(tls) if tls.port == port => {
                let text =
                    format!("port and tls-port are both {port}: set port to 0 for TLS alone");
                return Err(std::io::Error::other(text));
            }
            _ => bind_all(shared, port, false, &mut sockets)?,
        };
        if let Some(tls) = &tls {
            bind_all(shared, tls.port, true, &mut sockets)?;
        }
        // Last: an earlier refusal leaves no file.
        let mut socket_file = None;
        if let Some(path) = unix {
            let permissions = shared.settings.unix_permissions();
            let (listener, file) = SocketFile::listen(&path, permissions)?;
            rustix::net::listen(&listener, shared.settings.backlog())?;
            sockets.push(ListeningSocket::Unix(listener));
            socket_file = Some(file);
        }
        let mut state = shared.wiring.listening.lock();
        (state.port, state.backlog) = (Some(port), shared.settings.backlog());
        for (at, listening) in sockets.iter_mut().enumerate() {
            listening.register(poll.registry(), Token(at))?;
            if let Some(address) = listening.address()
                && state.addresses.iter().all(|known| known.ip() != address.ip())
            {
                state.addresses.push(address);
            }
        }
        drop(state);
        let shown = tls.filter(|_| shown == 0).map_or(shown, |tls| tls.port);
        shared.wiring.port.store(u64::from(shown), Relaxed);
        shared.wiring.add_waker(waker.as_waker());
        let shared = shared.clone();
        Ok(Listener { shared, poll, sockets, encryption, waker, socket_file })
    }

    /// The first address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.sockets.iter().find_map(ListeningSocket::address)
    }

    /// Takes the socket file, which is removed when it is dropped.
    pub fn take_socket_file(&mut self) -> Option<SocketFile> {
        self.socket_file.take()
    }

    /// The first address of encrypted connections.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.sockets.iter().find(|socket| socket.is_encrypted())?.address()
    }

    /// Accepts at other sockets of the network in place of the sockets without encryption.
    fn replace(&mut self, next: Vec<ListeningSocket>) -> std::io::Result<()> {
        self.sockets.retain(|socket| socket.is_encrypted() || socket.address().is_none());
        for mut listening in next {
            listening.register(self.poll.registry(), Token(self.sockets.len()))?;
            self.sockets.push(listening);
        }
        Ok(())
    }

    /// Accepts until the server stops.
    pub fn run(mut self, loops: &[Arc<Mailbox>]) {
        let mut events = Events::with_capacity(64);
        let mut pause = None;
        while self.shared.stopping().is_none() {
            match self.poll.poll(&mut events, pause.take()) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return self.shared.stop(Stopping::Failed(format!("cannot poll: {error}")));
                }
                _ => {}
            }
            self.waker.reset();
            for listening in &self.sockets {
                loop {
                    match listening.accept() {
                        Ok((stream, from)) => {
                            self.take(stream, from, listening.is_encrypted(), loops);
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(_) => {
                            // No descriptor is free, or the client has gone: neither lasts.
                            pause = Some(PAUSE);
                            break;
                        }
                    }
                }
            }
            // Behind clients that have connected to the port before.
            let next = self.shared.wiring.listening.lock().next.take();
            if let Some(next) = next {
                if let Err(error) = self.replace(next) {
                    let cause = format!("cannot listen at the port: {error}");
                    return self.shared.stop(Stopping::Failed(cause));
                }
                self.shared.wiring.listening.end_change();
            }
        }
    }

    /// Has the system look whether a silent client is still there, as `tcp-keepalive` says: after
    /// the time of the setting, and three times at a third of the time.
    fn keep_alive(&self, stream: &TcpStream) {
        let seconds = self.shared.settings.keepalive_seconds();
        if seconds == 0 {
            return;
        }
        // A system that refuses the options closes the connection with its own, longer times.
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds));
        let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs((seconds / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(stream, 3);
    }

    /// Why a client is not served, whatever the number of clients.
    fn refusal(&self, from: Option<SocketAddr>) -> Option<&'static str> {
        let shared = &self.shared;
        let is_refused = shared.settings.is_protected()
            && shared.access.is_open()
            && from.is_some_and(|from| !from.ip().to_canonical().is_loopback());
        is_refused.then_some(
            "DENIED Hyades is running in protected mode, since it has no password: it serves this \
             machine only. Set protected-mode to no to serve others",
        )
    }

    fn take(
        &self,
        mut socket: ClientSocket,
        from: Option<SocketAddr>,
        is_encrypted: bool,
        loops: &[Arc<Mailbox>],
    ) {
        let shared = &self.shared;
        // Connections that no loop has taken up yet are counted as well: they may be many at once.
        let connected: usize = loops.iter().map(|mailbox| mailbox.connections.load(Relaxed)).sum();
        let refusal = match connected >= shared.settings.max_clients() {
            true => Some("ERR max number of clients reached"),
            false => self.refusal(from),
        };
        // An encrypted connection has to shake hands before it is told anything: a connection too
        // many does not get so far.
        let is_too_many = refusal.is_some_and(|text| text.starts_with("ERR"));
        if let Some(text) = refusal {
            shared.stats.counters.rejected.fetch_add(1, Relaxed);
            if !is_encrypted {
                let _ = socket.write(format!("-{text}\r\n").as_bytes());
            }
            if !is_encrypted || is_too_many {
                return;
            }
        }
        let encryption = self.encryption.as_ref().filter(|_| is_encrypted);
        let Ok(tls) = encryption.map(Encryption::stream).transpose() else { return };
        if refusal.is_none() {
            shared.stats.counters.connections.fetch_add(1, Relaxed);
        }
        let addresses = match (&socket, from) {
            (ClientSocket::Tcp(stream), Some(from)) => {
                let _ = stream.set_nodelay(true);
                self.keep_alive(stream);
                let local = stream.local_addr().map(|local| local.to_string());
                (from.to_string(), local.unwrap_or_default())
            }
            // As in Redis.
            _ => {
                let path = shared.settings.unix_socket().unwrap_or_default();
                let name = format!("{}:0", path.display());
                (name.clone(), name)
            }
        };
        let fewest = loops.iter().min_by_key(|mailbox| mailbox.connections.load(Relaxed));
        let fewest = fewest.expect("there is a loop");
        fewest.accept(Accepted { socket, addresses, tls: tls.map(Box::new), refusal });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::net::event_loop::EventLoop;
    use crate::net::executors::Executors;
    use std::io::Read;

    /// The clients are accepted before a loop takes up the first.
    #[test]
    fn of_many_that_connect_at_once_no_more_are_served_than_may_be() {
        let text = ["--port", "0", "--bind", "127.0.0.1", "--maxclients", "3"];
        let shared = Shared::new(Settings::from_arguments(&text).unwrap());
        let listener = Listener::bind(&shared).unwrap();
        let address = listener.address().unwrap();
        let (executors, executing) = Executors::start(&shared, 1).unwrap();
        let loops: Vec<EventLoop> =
            (0..2).map(|_| EventLoop::new(&shared, executors.clone()).unwrap()).collect();
        let mailboxes: Vec<_> = loops.iter().map(EventLoop::mailbox).collect();
        let accepting = std::thread::spawn(move || listener.run(&mailboxes));
        let mut clients: Vec<_> =
            (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        for client in &mut clients[3..] {
            let mut told = String::new();
            client.read_to_string(&mut told).unwrap();
            assert_eq!(told, "-ERR max number of clients reached\r\n");
        }
        assert_eq!(shared.stats.counters.rejected.load(Relaxed), 5);
        shared.stop(Stopping::Asked);
        accepting.join().unwrap();
        drop((loops, executors));
        executing.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
