//! The settings of a client for its connection.

#[cfg(feature = "replication")]
mod awaited;
mod durability;
mod queued;
mod remembered;
mod run_end;

#[cfg(feature = "replication")]
pub use awaited::{AwaitedMember, AwaitingCommand};
pub use durability::Durability;
pub use queued::QueuedCommands;
pub use remembered::Remembered;
pub use run_end::RunEnd;

use crate::access::{Access, Login, User};
use crate::base::hash_slot::KeySlots;
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
    /// Replies to all commands.
    None,
    /// No reply to the next command, behind CLIENT REPLY SKIP.
    Next,
    /// No reply to the current command, behind CLIENT REPLY SKIP.
    This,
    /// No replies.
    All,
}

/// A client's settings for the connection.
pub struct Client {
    /// The state for other clients.
    pub entry: Arc<ClientEntry>,
    /// The user.
    pub login: Login,
    /// The database.
    pub database: u32,
    /// Version 3 of the protocol is in use.
    pub is_resp3: bool,
    /// Whether the client gets replies.
    pub silence: Silence,
    /// READONLY: the client reads what a standby has.
    pub reads_standbys: bool,
    /// When the client is told of transactions.
    pub durability: Durability,
    /// An error of a command undoes the whole EXEC.
    pub rolls_back: bool,
    /// The last transaction with writes.
    pub last: Option<TransactionId>,
    /// The reply of the running command waits until everything before is on disk.
    pub waits_for_disk: bool,
    /// The connection is closed behind its last reply.
    pub is_closing: bool,
    /// The watched keys, as seen by WATCH.
    pub watched: Vec<WatchedKey>,
    /// Commands since MULTI, if there was one.
    pub multi: Option<Multi>,
    /// Subscriptions.
    pub subscriptions: Subscriptions,
    /// Messages published by the running command.
    pub published: Vec<Publication>,
    /// The client is told all clients' commands.
    pub monitoring: Option<Monitoring>,
    /// The client is told of writes to keys read by the client.
    pub tracks: Option<Tracks>,
    /// A command waits for a standby.
    #[cfg(feature = "replication")]
    pub awaits: Option<AwaitingCommand>,
}

/// The commands queued by MULTI.
#[derive(Default)]
pub struct Multi {
    /// The commands of the transaction, with their arguments.
    pub queued: QueuedCommands,
    /// Commands on the connection or the server, with their places among all.
    pub locals: Vec<(usize, Request)>,
    /// Bytes of all.
    pub bytes: usize,
    /// The slots of all keys, in cluster mode.
    pub slots: KeySlots,
    /// The database set by SELECT for later commands.
    pub database: Option<u32>,
    /// A command was refused: EXEC runs none.
    pub is_refused: bool,
    /// A command tries to log in.
    pub logs_in: bool,
}

impl Multi {
    /// The number of commands.
    pub fn count(&self) -> usize {
        self.queued.len() + self.locals.len()
    }
}

impl Client {
    /// Makes a client with no settings.
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
            reads_standbys: false,
            durability: Durability::default(),
            rolls_back: false,
            last: None,
            waits_for_disk: false,
            is_closing: false,
            watched: Vec::new(),
            multi: None,
            #[cfg(feature = "replication")]
            awaits: None,
        }
    }

    /// Whether only subscriptions may be changed: version 2 of the protocol does not tell messages
    /// from replies.
    pub fn only_listens(&self) -> bool {
        !self.is_resp3 && !self.subscriptions.is_empty()
    }

    /// Logs in. CLIENT LIST of other clients shows the name.
    pub fn log_in(&mut self, access: &Access, user: Arc<User>) {
        self.entry.names.lock().unpoisoned().user = user.name.to_string();
        self.login.set(access, user);
    }

    /// Most bytes waiting for the client; 0: any number.
    pub fn most_output(&self, limits: &OutputLimits) -> u64 {
        limits.get(self.entry.listens()).hard
    }

    /// Notes the commit of a transaction.
    pub fn note_ticket(&mut self, ticket: &Ticket) {
        self.last = ticket.transaction_id().or(self.last);
    }

    /// Closes the connection behind its last reply.
    pub fn quit(&mut self) {
        self.is_closing = true;
        // Monitoring would delay the last reply for ever while other clients send commands.
        self.monitoring = None;
    }

    /// Shows the numbers of subscriptions to other clients.
    pub fn note_subscriptions(&self) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            let count = self.subscriptions.names(topic).len() as u32;
            self.entry.subscriptions[topic as usize].store(count, Relaxed);
        }
    }

    /// Forgets the settings.
    pub fn reset(&mut self, access: &Access) {
        *self = Client::new(access, self.entry.clone());
        self.entry.database.store(0, Relaxed);
        self.entry.protocol.store(2, Relaxed);
        self.entry.sizes.queued.store(-1, Relaxed);
        self.note_subscriptions();
        self.entry.is_kept.store(false, Relaxed);
        self.entry.touches_nothing.store(false, Relaxed);
        let mut names = self.entry.names.lock().unpoisoned();
        names.name.clear();
        names.user = self.login.name().to_string();
    }
}
