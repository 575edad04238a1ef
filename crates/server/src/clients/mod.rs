//! The connected clients, as CLIENT and INFO show them.

pub mod channels;
pub mod inbox;
pub mod monitors;
pub mod tracking;

use crate::access::DEFAULT;
use crate::clients::inbox::Inbox;
use crate::clients::tracking::TrackingState;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Calls to an event loop: numbers of the loop's clients to be served for other threads.
pub struct Calls {
    ids: Mutex<Vec<u64>>,
    waker: Waker,
}

impl Calls {
    /// Makes the calls of the event loop of `waker`.
    pub fn new(waker: Waker) -> Arc<Calls> {
        Arc::new(Calls { ids: Mutex::default(), waker })
    }

    /// The clients called since the last `take`, in order; some perhaps twice, or gone.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.ids.lock().unpoisoned())
    }

    fn call(&self, id: u64) {
        self.ids.lock().unpoisoned().push(id);
        self.waker.wake_by_ref();
    }
}

/// How CLIENT UNBLOCK ends waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unblock {
    /// As if the time of the wait had ended.
    Timeout = 1,
    /// With an error.
    Error = 2,
}

/// A request of CLIENT UNBLOCK, until the client's loop has seen the request.
#[derive(Default)]
pub struct UnblockFlag(AtomicU8);

impl UnblockFlag {
    /// Requests the end of the wait.
    pub fn set(&self, how: Unblock) {
        self.0.store(how as u8, Relaxed);
    }

    /// Whether a request is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Forgets a request from before the client waits.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Takes the request.
    pub fn take(&self) -> Option<Unblock> {
        match self.0.swap(0, Relaxed) {
            0 => None,
            1 => Some(Unblock::Timeout),
            _ => Some(Unblock::Error),
        }
    }
}

/// The state of a client as other clients see it. Written by the client's own event loop.
pub struct ClientEntry {
    /// The number, never used again.
    pub id: u64,
    /// The address.
    pub address: String,
    /// The server's address of the connection.
    pub local_address: String,
    /// Connected to the file of `unixsocket`.
    pub is_unix: bool,
    /// Time of the connect, in milliseconds since 1970.
    pub since_ms: i64,
    /// Time of the last command.
    pub active_ms: AtomicI64,
    /// The database.
    pub database: AtomicU32,
    /// 2 or 3.
    pub protocol: AtomicU32,
    /// What the connection holds.
    pub sizes: ClientSizes,
    /// Names, and the last command.
    pub names: Mutex<ClientNames>,
    /// The client is to be disconnected.
    pub is_killed: AtomicBool,
    /// A reply would have been too long for the client: nothing more is sent, and the client is to
    /// be disconnected.
    pub is_over_limit: AtomicBool,
    /// A command of the client waits for an element.
    pub is_blocked: AtomicBool,
    /// The wait for an element has a timeout.
    pub has_timeout: AtomicBool,
    /// Whether a command waits for the end of CLIENT PAUSE.
    pub is_paused: AtomicBool,
    /// The client is told all clients' commands.
    pub is_monitor: AtomicBool,
    /// By CLIENT NO-EVICT.
    pub is_kept: AtomicBool,
    /// By CLIENT NO-TOUCH.
    pub touches_nothing: AtomicBool,
    /// Whether the client is told of writes to keys read by the client.
    pub tracking: TrackingState,
    /// The client has disconnected.
    has_gone: AtomicBool,
    /// The request of CLIENT UNBLOCK.
    pub unblock: UnblockFlag,
    /// Numbers of subscriptions: to channels, patterns, shard channels.
    pub subscriptions: [AtomicU32; 3],
    /// Messages published for the client.
    pub inbox: Inbox,
    calls: Arc<Calls>,
}

/// What a client's connection holds.
#[derive(Debug)]
pub struct ClientSizes {
    /// Bytes received but not run yet; while a command on the connection or the server runs, with
    /// the request's bytes.
    pub input: AtomicU64,
    /// Bytes of replies not sent yet.
    pub output: AtomicU64,
    /// Bytes of memory of the connection, with the commands queued by MULTI.
    pub buffers: AtomicU64,
    /// The number of watched keys.
    pub watched: AtomicU32,
    /// Commands queued by MULTI; -1 outside of it.
    pub queued: AtomicI64,
}

impl Default for ClientSizes {
    fn default() -> Self {
        ClientSizes {
            input: AtomicU64::new(0),
            output: AtomicU64::new(0),
            buffers: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            queued: AtomicI64::new(-1),
        }
    }
}

/// Names of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// The user.
    pub user: String,
    /// By CLIENT SETNAME.
    pub name: String,
    /// Name of the library, by CLIENT SETINFO.
    pub library: String,
    /// Version of the library.
    pub version: String,
    /// The last command.
    pub command: &'static str,
}

impl ClientEntry {
    /// Makes the entry of a client that connects now.
    pub fn new(
        id: u64,
        (address, local_address): (String, String),
        now: i64,
        calls: Arc<Calls>,
    ) -> Self {
        ClientEntry {
            id,
            address,
            local_address,
            is_unix: false,
            since_ms: now,
            active_ms: AtomicI64::new(now),
            database: AtomicU32::new(0),
            protocol: AtomicU32::new(2),
            sizes: ClientSizes::default(),
            names: Mutex::new(ClientNames { user: DEFAULT.to_string(), ..Default::default() }),
            is_killed: AtomicBool::new(false),
            is_over_limit: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            has_timeout: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            touches_nothing: AtomicBool::new(false),
            tracking: TrackingState::default(),
            has_gone: AtomicBool::new(false),
            unblock: UnblockFlag::default(),
            subscriptions: Default::default(),
            inbox: Inbox::default(),
            calls,
        }
    }

    /// Whether there is a subscription.
    pub fn listens(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Whether the client has disconnected.
    pub fn has_gone(&self) -> bool {
        self.has_gone.load(Relaxed)
    }

    /// The letters of CLIENT LIST.
    fn flags(&self) -> String {
        let state = match self.sizes.queued.load(Relaxed) {
            _ if self.is_monitor.load(Relaxed) => "O",
            _ if self.is_blocked.load(Relaxed) || self.is_paused.load(Relaxed) => "b",
            0.. => "x",
            _ if self.listens() => "P",
            _ => "",
        };
        let others = [
            ("t", self.tracking.is_on()),
            ("R", self.tracking.has(TrackingState::BROKEN)),
            ("B", self.tracking.has(TrackingState::BCAST)),
            ("U", self.is_unix),
            ("e", self.is_kept.load(Relaxed)),
            ("T", self.touches_nothing.load(Relaxed)),
        ];
        let others = others.iter().filter(|(_, is_so)| *is_so).map(|(letter, _)| *letter);
        let flags: String = std::iter::once(state).chain(others).collect();
        if flags.is_empty() { "N".to_string() } else { flags }
    }

    /// Has the client's loop disconnect the client.
    pub fn kill(&self) {
        self.is_killed.store(true, Relaxed);
        self.call();
    }

    /// Has the client's loop serve the client.
    pub fn call(&self) {
        self.calls.call(self.id);
    }

    /// Returns the client's line of CLIENT LIST.
    pub fn line(&self, now_ms: i64) -> String {
        let names = self.names.lock().unpoisoned().clone();
        let seconds = |since: i64| (now_ms - since).max(0) / 1_000;
        let (input, output) = (self.sizes.input.load(Relaxed), self.sizes.output.load(Relaxed));
        let queued = self.sizes.queued.load(Relaxed);
        let mut line = String::new();
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} \
             ssub={} multi={queued} qbuf={input} qbuf-free=0 argv-mem=0 multi-mem=0 rbs={output} \
             rbp={output} obl={output} oll=0 omem={output} tot-mem={} events=r cmd={} \
             user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            names.name,
            seconds(self.since_ms),
            seconds(self.active_ms.load(Relaxed)),
            self.flags(),
            self.database.load(Relaxed),
            self.subscriptions[0].load(Relaxed),
            self.subscriptions[1].load(Relaxed),
            self.subscriptions[2].load(Relaxed),
            input + output,
            names.command,
            names.user,
            self.tracking.redirect(),
            self.protocol.load(Relaxed),
            names.library,
            names.version,
        );
        line
    }
}

/// Totals over all clients, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// The most bytes arrived from a client and not run.
    pub largest_input: u64,
    /// The most bytes not sent to a client.
    pub largest_output: u64,
    /// Bytes of memory of the connections.
    pub buffers: u64,
    /// The number of clients with watched keys.
    pub watching: u64,
    /// Watched keys; a key that two clients watch counts twice.
    pub watched_keys: u64,
    /// The number of clients with a subscription.
    pub listening: u64,
    /// The number of clients that wait for an element with a timeout.
    pub with_timeout: u64,
}

/// All clients by number.
#[derive(Default)]
pub struct Clients {
    entries: Mutex<BTreeMap<u64, Arc<ClientEntry>>>,
    last: AtomicU64,
}

impl Clients {
    /// The number of the next client.
    pub fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// Adds a client.
    pub fn add(&self, entry: Arc<ClientEntry>) {
        self.entries.lock().unpoisoned().insert(entry.id, entry);
    }

    /// Removes a client that has disconnected.
    pub fn remove(&self, id: u64) {
        if let Some(entry) = self.entries.lock().unpoisoned().remove(&id) {
            entry.has_gone.store(true, Relaxed);
        }
    }

    /// The client with the number `id`.
    pub fn find(&self, id: u64) -> Option<Arc<ClientEntry>> {
        self.entries.lock().unpoisoned().get(&id).cloned()
    }

    /// The connected clients, without clients to be disconnected.
    pub fn list(&self) -> Vec<Arc<ClientEntry>> {
        let entries = self.entries.lock().unpoisoned();
        entries.values().filter(|client| !client.is_killed.load(Relaxed)).cloned().collect()
    }

    /// Returns the totals for INFO.
    pub fn totals(&self) -> ClientTotals {
        let mut all = ClientTotals::default();
        for entry in self.entries.lock().unpoisoned().values() {
            all.largest_input = all.largest_input.max(entry.sizes.input.load(Relaxed));
            all.largest_output = all.largest_output.max(entry.sizes.output.load(Relaxed));
            all.buffers += entry.sizes.buffers.load(Relaxed) + entry.inbox.bytes() as u64;
            let watched = u64::from(entry.sizes.watched.load(Relaxed));
            all.watched_keys += watched;
            all.watching += u64::from(watched > 0);
            all.listening += u64::from(entry.listens());
            all.with_timeout += u64::from(entry.has_timeout.load(Relaxed));
        }
        all
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.entries.lock().unpoisoned().len()
    }
}
