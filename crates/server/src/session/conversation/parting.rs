//! The end of a conversation because this process has another role from now on, as a member of a
//! replicated database.
//!
//! The client is told what is certain, and nothing of a write whose outcome is not known here: the
//! connection is closed, and the client asks again where the primary is.

use super::Conversation;
use crate::resp::reply::Reply;
use crate::session::runs::RunQueue;
use std::sync::atomic::Ordering::Relaxed;

/// The error of a command that waits for an element, as in Redis.
const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Conversation {
    /// Runs nothing more. Replies that wait for the disk, or for another thread, are sent when they
    /// are certain; then the connection is to be closed.
    pub fn part(&mut self) {
        let has_parted = std::mem::replace(&mut self.client.is_closing, true);
        if has_parted && self.run.is_empty() && self.blocked.is_none() {
            return;
        }
        if self.blocked.as_ref().is_some_and(|blocked| !blocked.is_silent()) {
            Reply::new(self.replies.buffer(), self.client.is_resp3).error(UNBLOCKED);
            self.replies.seal_free();
        }
        self.unblock();
        self.receive();
        (self.input, self.taken, self.is_incomplete) = (Vec::new(), 0, true);
        (self.stash, self.protocol_error) = (None, None);
        self.run = RunQueue::default();
        self.locals.clear();
        (self.job, self.held, self.paused) = (None, None, None);
        self.client.entry.is_paused.store(false, Relaxed);
        self.drop_transaction();
        (self.client.monitoring, self.client.tracks) = (None, None);
        self.forget_awaited();
    }

    /// Forgets the replies that are not certain, and the messages behind them: the outcomes will
    /// not be known here.
    #[cfg(feature = "replication")]
    pub fn abandon(&mut self) {
        self.replies.abandon();
        self.forget_published();
    }

    /// Whether nothing of the database is kept: another database may take its place. A run that was
    /// begun, a waiting command and a job belong to the database.
    #[cfg(feature = "replication")]
    pub fn lets_go(&mut self) -> bool {
        let is_free = self.run.is_empty()
            && self.blocked.is_none()
            && self.job.is_none()
            && !self.is_waiting_for_job
            && self.client.watched.is_empty()
            && self.replies.parked() == 0;
        if is_free {
            self.order = Default::default();
        }
        is_free
    }
}
