//! Starts a server, waits for its end, and stops it.

mod ping;
mod redis_files;
mod signals;
mod systemd;

pub use ping::{ping, ping_file};
pub use signals::survive_file_limit;

use crate::config::Settings;
use crate::http::HttpServer;
#[cfg(feature = "replication")]
use crate::member::{self, MakeBuilder, RoleSource};
use crate::net::event_loop::EventLoop;
use crate::net::executors::Executors;
use crate::net::listener::Listener;
use crate::replica;
use crate::sockets::unix_socket::SocketFile;
#[cfg(feature = "replication")]
use crate::state::membership::Role;
use crate::state::open_files;
use crate::state::{Opened, Shared, StopOnPanic, Stopping};
use crate::upkeep::{expiry, opening, reaper, saving};
use hyades::Progress;
use hyades_platform::sync::Unpoisoned;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use systemd::Notifier;

#[cfg(test)]
mod ending_tests;

/// How often the progress of recovery is told.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// A server failed. As text, one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The server could not start: an address is in use, or a thread could not be created.
    Start(String),
    /// The database could not be opened, or its log has failed.
    Failed(String),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Start(text) | ServerError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ServerError {}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    notices: Vec<String>,
    /// Removed when the server has stopped.
    _socket_file: Option<SocketFile>,
    /// Event loops, listener, reaper and further threads, which use the database.
    threads: Vec<JoinHandle<()>>,
    opener: JoinHandle<()>,
    notifier: Arc<Notifier>,
}

/// Stops a server from another thread, and reports the result.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Stops the server in good order: no more commands are read; commands already run are
    /// acknowledged first.
    pub fn stop(&self) {
        self.0.stop(Stopping::Asked);
    }

    /// Clients disconnected with replies unread, or not yet sent, at the end of the ten seconds of
    /// a stop.
    pub fn cut_off(&self) -> u64 {
        self.0.cut_off.load(Relaxed)
    }
}

/// Work of the server on a dedicated thread.
type Service = (&'static str, fn(&Arc<Shared>));

const SERVICES: [Service; 4] = [
    ("expiry", |shared| expiry::run(shared)),
    ("reaper", |shared| reaper::run(shared)),
    ("saver", |shared| saving::run(shared)),
    ("replica", replica::run),
];

impl Server {
    /// Starts a server: the server listens when the call returns, and opens its database meanwhile.
    /// Until the database is open, the server answers most commands with `LOADING`.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn start(settings: Settings) -> Result<Server, ServerError> {
        Server::start_with(Shared::new(settings), |shared, notifier| match opening::open(shared) {
            Ok(()) => notifier.ready(),
            Err(error) => shared.stop(Stopping::Failed(error.to_string())),
        })
    }

    /// Starts a server whose role, and whose database, a source decides: a member of a replicated
    /// database. The server listens when the call returns; the factory makes the source on a thread
    /// of its own, from the function that describes the server's database, once for each role, and
    /// the settings. A factory that fails stops the server.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    #[cfg(feature = "replication")]
    pub fn start_as_member(
        settings: Settings,
        factory: impl FnOnce(MakeBuilder, &Settings) -> Result<Box<dyn RoleSource>, String>
        + Send
        + 'static,
    ) -> Result<Server, ServerError> {
        if let Some(primary) = settings.primary() {
            let text = format!("replicaof {primary} is not possible: the log decides the primary");
            return Err(ServerError::Start(text));
        }
        let shared = Shared::new(settings);
        // Before the first client: a member without a database is no primary.
        shared.membership.set_role(Role::Joining, "the member joins its database");
        Server::start_with(shared, move |shared, notifier| {
            member::run(shared, Box::new(factory), || notifier.ready());
        })
    }

    /// Starts a server whose database is brought by `open`, on a thread of its own.
    fn start_with(
        shared: Arc<Shared>,
        open: impl FnOnce(&Arc<Shared>, &Notifier) + Send + 'static,
    ) -> Result<Server, ServerError> {
        let started = Server::try_start(shared, open);
        started.map_err(|error| ServerError::Start(error.to_string()))
    }

    fn try_start(
        shared: Arc<Shared>,
        open: impl FnOnce(&Arc<Shared>, &Notifier) + Send + 'static,
    ) -> std::io::Result<Server> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = shared.settings.loops();
        let mut notices = shared.settings.notices().to_vec();
        notices.extend(open_files::fit_clients(&shared.settings).map_err(std::io::Error::other)?);
        let mut listener = Listener::bind(&shared)?;
        let _socket_file = listener.take_socket_file();
        let (address, tls_address) = (listener.address(), listener.tls_address());
        let http = HttpServer::bind(&shared)?;
        shared.limits.oom_score.apply(&shared.settings).map_err(std::io::Error::other)?;
        let metrics_address = http.as_ref().map(HttpServer::address).transpose()?;
        let (executors, mut threads) = Executors::start(&shared, (cores / 4).max(1))?;
        let mut mailboxes = Vec::new();
        for number in 0..loops {
            let event_loop = EventLoop::new(&shared, executors.clone())?;
            mailboxes.push(event_loop.mailbox());
            let thread = Builder::new().name(format!("loop-{number}"));
            let guard = StopOnPanic(shared.clone());
            threads.push(thread.spawn(move || guard.run(|| event_loop.run()))?);
        }
        let thread = Builder::new().name("listener".into());
        let guard = StopOnPanic(shared.clone());
        threads.push(thread.spawn(move || guard.run(|| listener.run(&mailboxes)))?);
        if let Some(http) = http {
            // If the thread panics there are no pages; clients are served.
            threads.push(Builder::new().name("http".into()).spawn(move || http.run())?);
        }
        for (name, run) in SERVICES {
            let (shared, guard) = (shared.clone(), StopOnPanic(shared.clone()));
            let thread = Builder::new().name(name.into());
            threads.push(thread.spawn(move || guard.run(|| run(&shared)))?);
        }
        let notifier = Arc::new(Notifier::from_environment());
        if notifier.is_on() {
            let (telling, notifier) = (shared.clone(), notifier.clone());
            let thread = Builder::new().name("systemd".into());
            thread.spawn(move || notifier.tell_progress(&telling))?;
        }
        let (opening, telling) = (shared.clone(), notifier.clone());
        let opener = Builder::new().name("opener".into());
        let opener = opener.spawn(move || open(&opening, &telling))?;
        Ok(Server {
            shared,
            address,
            tls_address,
            metrics_address,
            notices,
            _socket_file,
            threads,
            opener,
            notifier,
        })
    }

    /// The first listening address; `None` if only `unixsocket` is in use.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The socket file for clients of this machine, if `unixsocket` names a file.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.shared.settings.unix_socket()
    }

    /// The first listening address for encrypted connections.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// The address of the metrics and of the status page, if `metrics-port` names a port.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Requests of settings that are not carried out, with the reasons, in words.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Files of Redis in the directory of a new database, which are not read, in words.
    pub fn left_alone(&self) -> Option<String> {
        let is_new =
            self.shared.store.opened.get().is_some_and(|opened| !opened.database.recovery().found);
        is_new.then(|| redis_files::notice(&self.shared.settings)).flatten()
    }

    /// A handle to stop the server.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// Makes SIGTERM and SIGINT stop the server in good order, and a second signal end the process.
    ///
    /// # Errors
    /// The signals cannot be waited for.
    pub fn stop_on_signals(&self) -> std::io::Result<()> {
        signals::stop_on_signals(self.handle())
    }

    /// Waits until the database is open. Returns a report of the recovery, in words; `None` if the
    /// server was asked to stop before.
    ///
    /// # Errors
    /// The database could not be opened.
    pub fn wait_until_open(&self) -> Result<Option<String>, ServerError> {
        self.wait_until_open_telling(|_| ())
    }

    /// Like [`Server::wait_until_open`]. Calls `tell` a few times a second with the progress of
    /// recovery, once known.
    ///
    /// # Errors
    /// As of [`Server::wait_until_open`].
    pub fn wait_until_open_telling(
        &self,
        mut tell: impl FnMut(&Progress),
    ) -> Result<Option<String>, ServerError> {
        let mut told = Instant::now();
        let is_open = || self.opener.is_finished() || self.has_role();
        while !is_open() && self.shared.stopping().is_none() {
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let progress = self.shared.store.progress.lock().unpoisoned().clone();
                progress.iter().for_each(&mut tell);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        match (self.shared.store.opened.get(), self.shared.stopping()) {
            (_, Some(Stopping::Failed(cause))) => Err(ServerError::Failed(cause)),
            (Some(opened), _) => Ok(Some(self.recovered(&opened))),
            (None, Some(Stopping::Asked)) => Ok(None),
            (None, None) => {
                let cause = "the thread that opens the database has panicked";
                Err(ServerError::Failed(cause.to_string()))
            }
        }
    }

    /// Whether the server is a member of a replicated database, and has found its first role.
    fn has_role(&self) -> bool {
        self.shared.membership.is_on() && self.shared.store.opened.get().is_some()
    }

    /// A report of the recovery, in words.
    fn recovered(&self, opened: &Opened) -> String {
        let found = opened.database.recovery();
        let (dir, streams) = (self.shared.settings.dir(), opened.database.streams());
        let dir = dir.display();
        if let Some(role) = self.shared.membership.in_words() {
            return format!("{role} in {dir}");
        }
        match found.found {
            false => format!("created a database in {dir}, with {streams} log streams"),
            true => {
                let opening = self.shared.store.opening().unwrap_or_default();
                format!(
                    "opened the database in {dir} in {:.2} s: recovered {} rows of a checkpoint \
                     and {} transactions of the log in {:.2} s on {} threads, and counted the \
                     keys in {:.2} s; {streams} log streams",
                    opening.time.as_secs_f64(),
                    found.image_rows,
                    found.records,
                    found.seconds,
                    found.threads,
                    opening.counting.as_secs_f64(),
                )
            }
        }
    }

    /// Waits until the server has stopped and its database is closed.
    ///
    /// # Errors
    /// The cause of the stop, unless the server was asked to stop.
    pub fn wait(self) -> Result<(), ServerError> {
        let cause = self.shared.stop_signal.wait();
        self.notifier.stopping();
        // A database cannot be closed during its opening; nothing is lost without the close.
        let is_member = self.shared.membership.is_on();
        let is_open = self.opener.is_finished() || is_member;
        if self.shared.store.opened.get().is_none() && !is_open {
            return match cause {
                Stopping::Asked => Ok(()),
                Stopping::Failed(cause) => Err(ServerError::Failed(cause)),
            };
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        if is_member {
            // The thread of the member closes the database.
            let _ = self.opener.join();
        }
        if let Stopping::Failed(cause) = cause {
            return Err(ServerError::Failed(cause));
        }
        let Some(opened) = self.shared.store.opened.get() else { return Ok(()) };
        opened.database.clone().close().map_err(|error| ServerError::Failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recovery may take long: a stop does not wait for its end.
    #[test]
    fn a_stop_does_not_wait_for_recovery() {
        let (done, until_done) = std::sync::mpsc::channel::<()>();
        let server = Server {
            shared: Shared::new(Settings::default()),
            address: None,
            _socket_file: None,
            tls_address: None,
            metrics_address: None,
            notices: Vec::new(),
            threads: Vec::new(),
            opener: std::thread::spawn(move || until_done.recv().unwrap_or_default()),
            notifier: Arc::default(),
        };
        server.handle().stop();
        assert_eq!(server.wait_until_open(), Ok(None));
        assert_eq!(server.wait(), Ok(()));
        drop(done);
    }
}
