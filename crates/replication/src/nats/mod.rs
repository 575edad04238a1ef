//! NATS JetStream as the log service: a lane is a stream, replicated over the servers of a cluster.
//!
//! All network work is done by one thread, with a runtime of its own. Threads of the log hand
//! requests over and wait for the answers.
//!
//! **Durability.** An append is acknowledged once a majority of the stream's replicas have the
//! message. Only servers with `sync_interval: always` have the message on disk then; a server does
//! not tell its setting to clients.

mod address;
mod handed;
mod inspect;
mod io;
mod leaders;
mod settings;

pub use address::{Address, BadAddress};
pub use inspect::{FoundKey, FoundLane, FoundLog, ask, inspect};
pub use settings::{NatsError, NatsSettings};

use crate::meter::LogMeter;
use crate::service::{LogService, Question, Reply, Request, RequestId};
use handed::{Answer, Sent};
use hyades_platform::sync::Unpoisoned;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Broadcasts kept for a listener.
const LISTENED: usize = 1 << 10;

/// The lanes of a replicated log on NATS servers.
#[derive(Debug)]
pub struct NatsLog {
    /// `None` once the log is being dropped.
    requests: Option<UnboundedSender<Sent>>,
    answers: Mutex<HashMap<RequestId, Arc<Answer>>>,
    next: AtomicU64,
    max_message_bytes: usize,
    timeout: Duration,
    meter: Arc<LogMeter>,
    thread: Option<JoinHandle<()>>,
}

impl NatsLog {
    /// Connects to the servers, and opens or creates the keys and `lanes` lanes.
    ///
    /// # Errors
    /// No server is reached, or a lane cannot be used.
    pub fn connect(settings: NatsSettings, lanes: usize) -> Result<NatsLog, NatsError> {
        let (ready, started) = mpsc::channel();
        let (requests, received) = tokio::sync::mpsc::unbounded_channel();
        let timeout = settings.timeout;
        let thread = std::thread::Builder::new()
            .name("replication-io".into())
            .spawn(move || io::run(&settings, lanes, received, &ready))
            .map_err(NatsError::Thread)?;
        let ended = || NatsError::Unreachable("the thread of the connection has ended".into());
        let max_message_bytes = started.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(NatsLog {
            requests: Some(requests),
            answers: Mutex::default(),
            next: AtomicU64::new(0),
            max_message_bytes,
            timeout,
            meter: Arc::new(LogMeter::new(lanes)),
            thread: Some(thread),
        })
    }
}

impl NatsLog {
    /// Whether the thread of the connections has taken it.
    fn send(&self, sent: Sent) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.send(sent).is_ok())
    }

    /// Counts and times of the requests.
    pub fn meter(&self) -> &Arc<LogMeter> {
        &self.meter
    }

    /// Removes the lanes and keys, with all that they hold.
    ///
    /// # Errors
    /// No server is reached, or a lane cannot be removed.
    pub fn remove_lanes(settings: &NatsSettings, lanes: usize) -> Result<(), NatsError> {
        io::remove(settings, lanes)
    }
}

impl LogService for NatsLog {
    fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    fn begin(&self, request: Request) -> RequestId {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let answer = Arc::new(Answer::to(self.meter.begin(&request)));
        self.answers.lock().unpoisoned().insert(id, answer.clone());
        if !self.send(Sent::Request(request, answer.clone())) {
            answer.give(Reply::Silence);
        }
        id
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        let answer = self.answers.lock().unpoisoned().get(&request).cloned();
        let Some(answer) = answer else { return Some(Reply::Silence) };
        let reply = if wait { Some(answer.wait(2 * self.timeout)) } else { answer.take() };
        if reply.is_some() {
            self.answers.lock().unpoisoned().remove(&request);
        }
        reply
    }

    fn broadcast(&self, message: Vec<u8>) {
        self.send(Sent::Broadcast(message));
    }

    fn place_leaders(&self) {
        self.send(Sent::PlaceLeaders);
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        let (listener, receiver) = sync_channel(LISTENED);
        self.send(Sent::Listen(listener));
        receiver
    }

    fn questions(&self, node: &str) -> Receiver<Question> {
        let (listener, receiver) = sync_channel(LISTENED);
        if let Some(requests) = &self.requests {
            self.send(Sent::Questions(node.to_owned(), listener, requests.downgrade()));
        }
        receiver
    }
}

impl Drop for NatsLog {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}
