//! The messages of other threads to an event loop.

use crate::commands::JobReply;
use crate::sockets::client_socket::ClientSocket;
use crate::sockets::waker::LoopWaker;
use crate::state::Held;
use crate::tls::TlsStream;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Wake;

/// An accepted connection.
pub struct Accepted {
    /// The socket.
    pub socket: ClientSocket,
    /// The client's address, and the server's.
    pub addresses: (String, String),
    /// The encryption.
    pub tls: Option<Box<TlsStream>>,
    /// Why the client is not served. The client is told.
    pub refusal: Option<&'static str>,
}

/// A message of another thread to a loop.
pub(super) enum Message {
    Accepted(Box<Accepted>),
    /// With the database of the job, if a database is held: the reply may wait for its log.
    JobDone(u64, Box<JobReply>, Held),
}

/// A loop, as other threads see it.
pub struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Arc<LoopWaker>,
    /// Number of the loop's connections.
    pub connections: AtomicUsize,
}

impl Mailbox {
    /// Makes the mailbox of the loop that `waker` wakes.
    pub(super) fn new(waker: Arc<LoopWaker>) -> Mailbox {
        Mailbox { messages: Mutex::default(), waker, connections: AtomicUsize::new(0) }
    }

    pub(super) fn send(&self, message: Message) {
        self.messages.lock().unpoisoned().push(message);
        self.waker.wake_by_ref();
    }

    /// Takes the reply of a connection's job to the loop.
    pub(super) fn receiver_of(
        self: &Arc<Self>,
        id: u64,
    ) -> impl FnOnce(JobReply, Held) + Send + use<> {
        let mailbox = self.clone();
        move |reply, held| mailbox.send(Message::JobDone(id, Box::new(reply), held))
    }

    /// Has messages sent from here on wake the loop again.
    pub(super) fn reset(&self) {
        self.waker.reset();
    }

    /// Takes the messages sent since the last call.
    pub(super) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock().unpoisoned())
    }

    /// Gives the loop a connection.
    pub fn accept(&self, accepted: Accepted) {
        self.connections.fetch_add(1, Relaxed);
        self.send(Message::Accepted(Box::new(accepted)));
    }
}
