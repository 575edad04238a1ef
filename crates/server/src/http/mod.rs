//! Pages for monitoring over HTTP, for this machine alone unless `metrics-bind` says otherwise: `/`
//! (status page), `/status.json`, `/metrics`, and for probes `/livez`, `/readyz` and `/healthz`.
//!
//! One thread serves a few connections side by side, and never waits for a single connection: each
//! has two seconds for a request, its answer and its end. The thread sleeps while there is no
//! connection. The thread has no part in serving Redis's clients: faults here do not affect
//! clients.

mod connection;
mod metrics;
mod reply;
mod request;
mod status;
#[cfg(test)]
mod tests;

use crate::commands::info;
use crate::sockets::waker::LoopWaker;
use crate::state::{Held, Shared, Stopping};
use connection::{HttpConnection, NextStep};
use hyades::Session;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use request::PageRequest;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most connections at once. Further connections wait until a connection ends.
const MOST_CONNECTIONS: usize = 8;

const WAKER: Token = Token(usize::MAX);

/// Tokens of listening sockets begin here; smaller tokens are connections.
const LISTENERS: usize = MOST_CONNECTIONS;

/// When the process has no file descriptor left, accepting is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// A poll's timeout is a whole multiple of this time.
const ROUNDING: Duration = Duration::from_millis(1);

/// If the server fails, a page with a status request within this time may ask once more: the answer
/// has the cause.
const WATCHED: Duration = Duration::from_secs(3);
const FAREWELL: Duration = Duration::from_millis(if cfg!(test) { 5_000 } else { 1_500 });

/// The addresses of the settings at a port, and whether each may be missing.
fn addresses(shared: &Shared, port: u16) -> Result<Vec<(SocketAddr, bool)>> {
    let mut all = Vec::new();
    for text in shared.settings.metrics_bind() {
        let (name, is_optional) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (&text[..], false),
        };
        let name = if name == "*" { "0.0.0.0" } else { name };
        let failed = |error: Error| {
            let text = format!("cannot listen at {name} (metrics-bind): {error}");
            Error::new(error.kind(), text)
        };
        match (name, port).to_socket_addrs() {
            Ok(found) => all.extend(found.map(|at| (at, is_optional))),
            Err(_) if is_optional => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(all)
}

/// The sockets and connections of the pages.
pub struct HttpServer {
    shared: Arc<Shared>,
    poll: Poll,
    waker: Arc<LoopWaker>,
    sockets: Vec<TcpListener>,
    /// At least one socket is reached from other machines.
    is_open: bool,
    connections: [Option<HttpConnection>; MOST_CONNECTIONS],
    /// The database of the session.
    held: Held,
    /// For the numbers of the databases, opened at the first request for numbers.
    session: Option<Session>,
    /// The time of the last request for the status.
    asked_at: Option<Instant>,
    /// The time at which the failure of the server was found.
    failed_at: Option<Instant>,
    /// Accepting has failed.
    pauses: bool,
}

impl HttpServer {
    /// Listens at the port of the settings, if there is one.
    ///
    /// # Errors
    /// The server cannot listen at the port; the error names the address.
    pub fn bind(shared: &Arc<Shared>) -> Result<Option<HttpServer>> {
        match shared.settings.metrics_port() {
            0 => Ok(None),
            port => HttpServer::listen(shared, port).map(Some),
        }
    }

    fn listen(shared: &Arc<Shared>, port: u16) -> Result<HttpServer> {
        let poll = Poll::new()?;
        let waker = LoopWaker::new(poll.registry(), WAKER)?;
        let mut sockets = Vec::new();
        let mut is_open = false;
        for (at, is_optional) in addresses(shared, port)? {
            match TcpListener::bind(at) {
                Ok(mut socket) => {
                    is_open |= !at.ip().to_canonical().is_loopback();
                    let token = Token(LISTENERS + sockets.len());
                    poll.registry().register(&mut socket, token, Interest::READABLE)?;
                    sockets.push(socket);
                }
                // A machine may have no IPv6. A port in use is an error: a browser would show the
                // page of the other program.
                Err(error) if is_optional && error.kind() != ErrorKind::AddrInUse => {}
                Err(error) => {
                    let text = format!("cannot listen at {at} (metrics-port): {error}");
                    return Err(Error::new(error.kind(), text));
                }
            }
            // Tests let the system choose a port.
            if port == 0 {
                break;
            }
        }
        if sockets.is_empty() {
            let text = "metrics-bind names no address that can be listened at";
            return Err(Error::other(text));
        }
        shared.wiring.add_waker(waker.as_waker());
        Ok(HttpServer {
            shared: shared.clone(),
            poll,
            waker,
            sockets,
            is_open,
            connections: Default::default(),
            held: Held::default(),
            session: None,
            asked_at: None,
            failed_at: None,
            pauses: false,
        })
    }

    /// The first address.
    pub fn address(&self) -> Result<SocketAddr> {
        self.sockets[0].local_addr()
    }

    /// Serves until the server stops.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.is_over() {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    eprintln!("the pages for monitoring have ended: cannot poll: {error}");
                    return;
                }
                _ => {}
            }
            // Events from here on wake the poll again.
            self.waker.reset();
            if !self.shared.store.opened.is_current(&self.held) {
                (self.session, self.held) = (None, Held::default());
            }
            for event in &events {
                self.serve(event.token().0);
            }
            self.end_late();
            self.accept();
        }
    }

    /// How long to sleep: for ever, if there is no connection.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let ends = self.connections.iter().flatten().map(|connection| connection.ends);
        let farewell = self.failed_at.map(|at| at + FAREWELL);
        let again = self.pauses.then(|| now + PAUSE);
        let first = ends.chain(farewell).chain(again).min()?;
        Some(first.saturating_duration_since(now) + ROUNDING)
    }

    /// Whether the server has stopped, and the cause has been told.
    fn is_over(&mut self) -> bool {
        match self.shared.stopping() {
            None => return false,
            Some(Stopping::Asked) => return true,
            Some(Stopping::Failed(_)) => {}
        }
        let at = *self.failed_at.get_or_insert_with(Instant::now);
        let is_watched = self.asked_at.is_some_and(|asked| asked + WATCHED > at);
        !is_watched || at.elapsed() >= FAREWELL
    }

    /// Serves a connection as far as possible now.
    fn serve(&mut self, at: usize) {
        loop {
            // The waker, a listening socket, or a connection that has ended.
            let Some(Some(connection)) = self.connections.get_mut(at) else { return };
            match connection.advance() {
                NextStep::Event => return,
                NextStep::Close => return self.close(at),
                NextStep::Answer(request) => {
                    let answer = self.answer(&request);
                    if let Some(connection) = &mut self.connections[at] {
                        connection.answer(answer);
                    }
                }
            }
        }
    }

    fn close(&mut self, at: usize) {
        if let Some(mut connection) = self.connections[at].take() {
            let _ = self.poll.registry().deregister(&mut connection.socket);
        }
    }

    /// Ends the connections at the end of their time.
    fn end_late(&mut self) {
        let now = Instant::now();
        for at in 0..MOST_CONNECTIONS {
            if let Some(connection) =
                self.connections[at].as_mut().filter(|connection| connection.ends <= now)
            {
                connection.expire();
                self.close(at);
            }
        }
    }

    /// Accepts while a place is free. Events come once, so the call follows whenever a place may be
    /// free.
    fn accept(&mut self) {
        self.pauses = false;
        for socket in 0..self.sockets.len() {
            while let Some(at) = self.connections.iter().position(Option::is_none) {
                match self.sockets[socket].accept() {
                    Ok((mut stream, _)) => {
                        let interest = Interest::READABLE | Interest::WRITABLE;
                        if self.poll.registry().register(&mut stream, Token(at), interest).is_ok() {
                            self.connections[at] = Some(HttpConnection::new(stream, self.is_open));
                            self.serve(at);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.pauses = true;
                        break;
                    }
                }
            }
        }
    }

    fn answer(&mut self, request: &PageRequest) -> Vec<u8> {
        let shared = self.shared.clone();
        let page = |kind, text: &str| reply::page(200, kind, "", text, request.is_head);
        match &request.path[..] {
            "/" => {
                let policy = reply::policy_of(status::PAGE);
                reply::page(200, reply::HTML, &policy, status::PAGE, request.is_head)
            }
            "/status.json" => {
                self.asked_at = Some(Instant::now());
                page(reply::JSON, &status::json(&shared, &self.generations()))
            }
            "/metrics" => page(reply::PROMETHEUS, &metrics::text(&shared, &self.generations())),
            // The process runs and answers, in any state.
            "/livez" => page(reply::TEXT, "alive\n"),
            "/healthz" | "/readyz" => {
                let state = status::ServerState::of(&shared);
                let status = if state == status::ServerState::Ready { 200 } else { 503 };
                reply::page(
                    status,
                    reply::TEXT,
                    "",
                    &format!("{}\n", state.name()),
                    request.is_head,
                )
            }
            _ => reply::refusal(request::NO_SUCH_PAGE, request.is_head),
        }
    }

    /// The generations of the databases, for [`info::text`].
    fn generations(&mut self) -> Vec<u64> {
        if self.session.is_none() {
            // All slots of the log may be taken; then the databases are not shown.
            self.held = self.shared.store.opened.hold();
            let slot = &self.shared.store.opened;
            let opened = slot.get().filter(|_| slot.is_current(&self.held));
            self.session = opened.and_then(|opened| opened.database.session().ok());
        }
        info::live_generations(&self.shared, self.session.as_mut())
    }
}
