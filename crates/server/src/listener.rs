//! Accepts connections, and gives each to the loop that has the fewest.

use crate::event_loop::Mailbox;
use crate::shared::{Shared, Stopping};
use crate::waker::LoopWaker;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::net::sockopt;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const WAKER: Token = Token(usize::MAX);

/// When the process has no file descriptor left, accepting is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// The sockets that are listened to.
pub struct Listener {
    shared: Arc<Shared>,
    poll: Poll,
    sockets: Vec<TcpListener>,
    waker: Arc<LoopWaker>,
}

/// Binds one address.
fn bind(address: &str, port: u16) -> std::io::Result<TcpListener> {
    let address = if address == "*" { "0.0.0.0" } else { address };
    let mut last = std::io::Error::new(ErrorKind::NotFound, "no such address");
    for address in (address, port).to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Listener {
    /// Listens at the addresses of the settings.
    ///
    /// # Errors
    /// One cannot be listened at; said with the address.
    pub fn bind(shared: &Arc<Shared>) -> std::io::Result<Listener> {
        let poll = Poll::new()?;
        let waker = LoopWaker::new(poll.registry(), WAKER)?;
        let mut port = shared.settings.port();
        let mut sockets = Vec::new();
        for address in shared.settings.bind() {
            let (name, is_optional) = match address.strip_prefix('-') {
                Some(name) => (name, true),
                None => (&address[..], false),
            };
            match bind(name, port) {
                Ok(mut socket) => {
                    // The other addresses get the port that the first one was given.
                    port = socket.local_addr()?.port();
                    let token = Token(sockets.len());
                    poll.registry().register(&mut socket, token, Interest::READABLE)?;
                    sockets.push(socket);
                }
                Err(_) if is_optional => {}
                Err(error) => {
                    let text = format!("cannot listen at {name}:{port}: {error}");
                    return Err(std::io::Error::new(error.kind(), text));
                }
            }
        }
        if sockets.is_empty() {
            return Err(std::io::Error::other("bind names no address that can be listened at"));
        }
        shared.port.store(u64::from(port), Relaxed);
        shared.add_waker(waker.as_waker());
        Ok(Listener { shared: shared.clone(), poll, sockets, waker })
    }

    /// The first address.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.sockets[0].local_addr()
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
            for socket in &self.sockets {
                loop {
                    match socket.accept() {
                        Ok((stream, from)) => self.take(stream, from, loops),
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
        }
    }

    /// Has the system look whether a silent client is still there, as `tcp-keepalive` says: after
    /// its time, and three times at a third of it.
    fn keep_alive(&self, stream: &TcpStream) {
        let seconds = self.shared.settings.keepalive_seconds();
        if seconds == 0 {
            return;
        }
        // A system that cannot do it closes the connection with its own, longer times.
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds));
        let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs((seconds / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(stream, 3);
    }

    fn take(&self, mut stream: TcpStream, from: SocketAddr, loops: &[Arc<Mailbox>]) {
        let shared = &self.shared;
        let refusal = if shared.clients.len() >= shared.settings.max_clients() {
            Some("-ERR max number of clients reached\r\n")
        } else if shared.settings.is_protected()
            && shared.access.is_open()
            && !from.ip().to_canonical().is_loopback()
        {
            Some(
                "-DENIED Hyades is running in protected mode, since it has no password: it serves \
                 this machine only. Set protected-mode to no to serve others\r\n",
            )
        } else {
            None
        };
        if let Some(text) = refusal {
            shared.counters.rejected.fetch_add(1, Relaxed);
            let _ = stream.write(text.as_bytes());
            return;
        }
        shared.counters.connections.fetch_add(1, Relaxed);
        let _ = stream.set_nodelay(true);
        self.keep_alive(&stream);
        let local = stream.local_addr().map(|local| local.to_string()).unwrap_or_default();
        let fewest = loops.iter().min_by_key(|mailbox| mailbox.connections.load(Relaxed));
        let fewest = fewest.expect("there is a loop");
        fewest.accept(stream, (from.to_string(), local));
    }
}
