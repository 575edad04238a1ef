//! Starts a server, waits for its end, and stops it.

mod ping;
mod redis_files;
mod signals;
mod systemd;

pub use ping::{ping, ping_file};
pub use signals::survive_file_limit;

use crate::config::Settings;
use crate::http::HttpServer;
use crate::net::event_loop::EventLoop;
use crate::net::executors::Executors;
use crate::net::listener::Listener;
use crate::replica;
use crate::sockets::unix_socket::SocketFile;
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
    /// It could not start: an address is taken, or a thread could not be created.
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

/// A server that runs.
pub struct Server {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    notices: Vec<String>,
    /// Removed when the server has stopped.
    _socket_file: Option<SocketFile>,
    /// Event loops, listener, reaper and others, which use the database.
    threads: Vec<JoinHandle<()>>,
    opener: JoinHandle<()>,
    notifier: Arc<Notifier>,
}

/// Stops a server from another thread, and tells how that went.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Stops it in good order: no more commands are read; what was run is acknowledged first.
    pub fn stop(&self) {
        self.0.stop(Stopping::Asked);
    }

    /// Clients that were disconnected with replies that they had not read, or not got, when the ten
    /// seconds of a stop were over.
    pub fn cut_off(&self) -> u64 {
        self.0.cut_off.load(Relaxed)
    }
}

/// Work of the server on a thread of its own.
type Service = (&'static str, fn(&Arc<Shared>));

const SERVICES: [Service; 4] = [
    ("expiry", |shared| expiry::run(shared)),
    ("reaper", |shared| reaper::run(shared)),
    ("saver", |shared| saving::run(shared)),
    ("replica", replica::run),
];

impl Server {
    /// Starts a server: it listens when this returns, and opens its database meanwhile. Until that
    /// is open it answers most commands with `LOADING`.
    ///
    /// # Errors
    /// [`ServerError::Start`].
    pub fn start(settings: Settings) -> Result<Server, ServerError> {
        Server::try_start(settings).map_err(|error| ServerError::Start(error.to_string()))
    }

    fn try_start(settings: Settings) -> std::io::Result<Server> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = settings.loops();
        let shared = Shared::new(settings);
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
            // If it panics there are no pages; clients are served.
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
        let opener =
            Builder::new().name("opener".into()).spawn(move || match opening::open(&opening) {
                Ok(()) => telling.ready(),
                Err(error) => opening.stop(Stopping::Failed(error.to_string())),
            })?;
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

    /// The first address that it listens at; `None` if it is reached by `unixsocket` alone.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The file that clients of this machine connect to, if `unixsocket` names one.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.shared.settings.unix_socket()
    }

    /// The first address that it listens at for encrypted connections.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// The address of the metrics and of the status page, if `metrics-port` names one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// What a setting asks for and is not done, and why, in words.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What in the directory of a new database is of Redis, and is not read, in words.
    pub fn left_alone(&self) -> Option<String> {
        let is_new =
            self.shared.store.opened.get().is_some_and(|opened| !opened.database.recovery().found);
        is_new.then(|| redis_files::notice(&self.shared.settings)).flatten()
    }

    /// A handle to stop it with.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// Has SIGTERM and SIGINT stop it in good order, and a second one end the process.
    ///
    /// # Errors
    /// The signals cannot be waited for.
    pub fn stop_on_signals(&self) -> std::io::Result<()> {
        signals::stop_on_signals(self.handle())
    }

    /// Waits until the database is open. Returns what was recovered, in words; `None` if the server
    /// was asked to stop before.
    ///
    /// # Errors
    /// The database could not be opened.
    pub fn wait_until_open(&self) -> Result<Option<String>, ServerError> {
        self.wait_until_open_telling(|_| ())
    }

    /// Like [`Server::wait_until_open`]. Calls `tell` a few times a second with how far recovery
    /// has got, once that is known.
    ///
    /// # Errors
    /// As of [`Server::wait_until_open`].
    pub fn wait_until_open_telling(
        &self,
        mut tell: impl FnMut(&Progress),
    ) -> Result<Option<String>, ServerError> {
        let mut told = Instant::now();
        while !self.opener.is_finished() && self.shared.stopping().is_none() {
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let progress = self.shared.store.progress.lock().unpoisoned().clone();
                progress.iter().for_each(&mut tell);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        match (self.shared.store.opened.get(), self.shared.stopping()) {
            (_, Some(Stopping::Failed(cause))) => Err(ServerError::Failed(cause)),
            (Some(opened), _) => Ok(Some(self.recovered(opened))),
            (None, Some(Stopping::Asked)) => Ok(None),
            (None, None) => {
                let cause = "the thread that opens the database has panicked";
                Err(ServerError::Failed(cause.to_string()))
            }
        }
    }

    /// What was recovered, in words.
    fn recovered(&self, opened: &Opened) -> String {
        let found = opened.database.recovery();
        let (dir, streams) = (self.shared.settings.dir(), opened.database.streams());
        let dir = dir.display();
        match found.found {
            false => format!("created a database in {dir}, with {streams} log streams"),
            true => {
                let opening = self.shared.store.opening.get().copied().unwrap_or_default();
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
    /// Why it stopped, unless it was asked to.
    pub fn wait(self) -> Result<(), ServerError> {
        let cause = self.shared.stop_signal.wait();
        self.notifier.stopping();
        // While it is being opened, a database cannot be closed; nothing is lost without it.
        if self.shared.store.opened.get().is_none() && !self.opener.is_finished() {
            return match cause {
                Stopping::Asked => Ok(()),
                Stopping::Failed(cause) => Err(ServerError::Failed(cause)),
            };
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        if let Stopping::Failed(cause) = cause {
            return Err(ServerError::Failed(cause));
        }
        let Some(Opened { database, .. }) = self.shared.store.opened.get() else { return Ok(()) };
        database.clone().close().map_err(|error| ServerError::Failed(error.to_string()))
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
