//! What threads of the log and the thread of the connections hand to each other.

use crate::meter::Measured;
use crate::service::{Question, Reply, Request};
use async_nats::Subject;
use hyades_platform::sync::Unpoisoned;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::WeakUnboundedSender;

/// An answer that a thread may wait for.
#[derive(Debug)]
pub(super) struct Answer {
    measured: Measured,
    reply: Mutex<Option<Reply>>,
    is_there: Condvar,
}

impl Answer {
    /// To a request that begins.
    pub fn to(measured: Measured) -> Answer {
        Answer { measured, reply: Mutex::default(), is_there: Condvar::new() }
    }

    pub fn give(&self, reply: Reply) {
        self.measured.is_answered(&reply);
        *self.reply.lock().unpoisoned() = Some(reply);
        self.is_there.notify_all();
    }

    /// The answer, if there is one.
    pub fn take(&self) -> Option<Reply> {
        self.reply.lock().unpoisoned().take()
    }

    /// Waits at most `limit`: the thread of the connection gives silence earlier.
    pub fn wait(&self, limit: Duration) -> Reply {
        let reply = self.reply.lock().unpoisoned();
        let (mut reply, _) = self
            .is_there
            .wait_timeout_while(reply, limit, |reply| reply.is_none())
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        reply.take().unwrap_or(Reply::Silence)
    }
}

/// What threads hand to the thread of the connections.
pub(super) enum Sent {
    Request(Request, Arc<Answer>),
    Broadcast(Vec<u8>),
    Listen(SyncSender<Vec<u8>>),
    PlaceLeaders,
    /// The questions to a node, and the way by which their answers come back.
    Questions(String, SyncSender<Question>, WeakUnboundedSender<Sent>),
    /// An answer to a question, and its subject.
    Answer(Subject, Vec<u8>),
}
