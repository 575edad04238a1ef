//! What a client has set for its connection.

mod durability;
mod queued;
mod remembered;
mod run_end;

pub use durability::Durability;
pub use queued::QueuedCommands;
pub use remembered::Remembered;
pub use run_end::RunEnd;

use crate::access::{Access, Login, User};
use crate::clients::ClientEntry;
use crate::clients::channels::{Publication, Subscriptions, Topic};
use crate::clients::monitors::Monitoring;
use crate::clients::tracking::Tracks;
use crate::config::OutputLimits;
use crate::data::keyspace::WatchedKey;
use crate::request::Request;
use hyades::{Ticket, TransactionId};
use hyades_platform::sync::Unpoisoned;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Whether a client gets replies, by CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It does.
    None,
    /// Not to the command that follows CLIENT REPLY SKIP.
    Next,
    /// Not to this one, which follows.
    This,
    /// To none.
    All,
}

/// What a client has set for its connection.
pub struct Client {
    /// What others see.
    pub entry: Arc<ClientEntry>,
    /// Its user.
    pub login: Login,
    /// Its database.
    pub database: u32,
    /// Whether it speaks version 3 of the protocol.
    pub is_resp3: bool,
    /// Whether it gets replies.
    pub silence: Silence,
    /// When it is told of its transactions.
    pub durability: Durability,
    /// Whether an error of a command undoes all of its EXEC.
    pub rolls_back: bool,
    /// Its last transaction that has written.
    pub last: Option<TransactionId>,
    /// The reply of the command that runs is sent when all before it is on disk.
    pub waits_for_disk: bool,
    /// The connection is closed behind its last reply.
    pub is_closing: bool,
    /// What WATCH has seen.
    pub watched: Vec<WatchedKey>,
    /// Commands since MULTI, if there was one.
    pub multi: Option<Multi>,
    /// What it has subscribed to.
    pub subscriptions: Subscriptions,
    /// What the command has published that runs.
    pub published: Vec<Publication>,
    /// It is told the commands of all.
    pub monitoring: Option<Monitoring>,
    /// It is told of keys that were written, which it has read.
    pub tracks: Option<Tracks>,
}

/// The commands that MULTI has queued.
#[derive(Default)]
pub struct Multi {
    /// The commands of the transaction, with their arguments.
    pub queued: QueuedCommands,
    /// Commands on the connection or the server, with their places among all.
    pub locals: Vec<(usize, Request)>,
    /// Bytes of all.
    pub bytes: usize,
    /// What SELECT has set for those behind it.
    pub database: Option<u32>,
    /// One was refused: EXEC runs none.
    pub is_refused: bool,
    /// One tries to log in.
    pub logs_in: bool,
}

impl Multi {
    /// The number of commands.
    pub fn count(&self) -> usize {
        self.queued.len() + self.locals.len()
    }
}

impl Client {
    /// A client that has set nothing.
    pub fn new(access: &Access, entry: Arc<ClientEntry>) -> Client {
        Client {
            login: Login::new(access),
            subscriptions: Subscriptions::new(entry.clone()),
            published: Vec::new(),
            monitoring: None,
            tracks: None,
            entry,
            database: 0,
            is_resp3: false,
            silence: Silence::None,
            durability: Durability::default(),
            rolls_back: false,
            last: None,
            waits_for_disk: false,
            is_closing: false,
            watched: Vec::new(),
            multi: None,
        }
    }

    /// Whether it may only change its subscriptions: version 2 of the protocol does not tell
    /// messages from replies.
    pub fn only_listens(&self) -> bool {
        !self.is_resp3 && !self.subscriptions.is_empty()
    }

    /// Logs in. The name is shown by others' CLIENT LIST.
    pub fn log_in(&mut self, access: &Access, user: Arc<User>) {
        self.entry.names.lock().unpoisoned().user = user.name.to_string();
        self.login.set(access, user);
    }

    /// Most bytes that may wait for it; 0: any number.
    pub fn most_output(&self, limits: &OutputLimits) -> u64 {
        limits.get(self.entry.listens()).hard
    }

    /// A transaction of it has committed.
    pub fn note_ticket(&mut self, ticket: &Ticket) {
        self.last = ticket.transaction_id().or(self.last);
    }

    /// Its connection is closed behind its last reply.
    pub fn quit(&mut self) {
        self.is_closing = true;
        // The last reply would never come while others send commands.
        self.monitoring = None;
    }

    /// Shows the numbers of its subscriptions to others.
    pub fn note_subscriptions(&self) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            let count = self.subscriptions.names(topic).len() as u32;
            self.entry.subscriptions[topic as usize].store(count, Relaxed);
        }
    }

    /// Forgets what it has set.
    pub fn reset(&mut self, access: &Access) {
        *self = Client::new(access, self.entry.clone());
        self.entry.database.store(0, Relaxed);
        self.entry.protocol.store(2, Relaxed);
        self.entry.queued.store(-1, Relaxed);
        self.note_subscriptions();
        self.entry.is_kept.store(false, Relaxed);
        self.entry.touches_nothing.store(false, Relaxed);
        let mut names = self.entry.names.lock().unpoisoned();
        names.name.clear();
        names.user = self.login.name().to_string();
    }
}
