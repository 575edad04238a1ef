//! CLIENT TRACKING: clients that keep values they have read are told when the keys are written.
//!
//! The keys that a client reads are *remembered* ([`Tracking::remember`]). Once a transaction that
//! has written keys is acknowledged, its keys are given to [`Tracking::tell`], and the clients
//! remembered for the keys are told and forgotten. Invariant: if a client is sent a value of a key
//! and another transaction has replaced the value, the client is told of the key behind the reply.
//!
//! 1. A command remembers its keys before it reads the keys, in each attempt of its transaction.
//! 2. If the look for a written key finds the reader, the message is put into the reader's inbox.
//!    The reader's event loop writes an inbox between runs, so a message put there during a run is
//!    sent behind the replies of the run. Where another thread runs the commands, the loop may
//!    write the message before the reply: once the loop has the reply, it tells the client again of
//!    each key for which the client is not remembered any more.
//! 3. If the look is before the key is remembered, the write was installed before: the lock of the
//!    table orders the two, and the reader reads the written value.
//! 4. A transaction that began when no client tracked has not noted its writes. The transaction
//!    looks again once it has committed. If there is a tracking client then, all tracking clients
//!    are told that everything has changed. If there is none, each client that begins later reads
//!    the written values: the number of clients is raised before a client reads, and loaded after
//!    the rows were locked. All four are SeqCst, the validation of reads included, so either the
//!    transaction sees the client, or the client's validation sees the lock.
//!
//! Messages to another connection for a client ([`TrackingOptions::redirect`]) have no order with
//! the client's replies: as with Redis, such a client marks a key when it asks for the key, and
//! keeps the reply only if the mark is still there.

mod table;

use crate::clients::ClientEntry;
use crate::clients::channels::Delivery;
use crate::config::OutputLimits;
use crate::resp::reply::Reply;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use table::TrackedKeys;

/// The channel for clients with a redirect.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Most keys forgotten at once where there are too many.
const MOST_FORGOTTEN: usize = 1 << 16;

/// Keys in a piece of a transaction's written keys.
const KEYS_AT_ONCE: usize = 64;

/// How a client tracks.
#[derive(Clone, Default)]
pub struct TrackingOptions {
    /// The connection told in the client's place.
    pub redirect: Option<Arc<ClientEntry>>,
    /// The client is told of all keys with these prefixes, read or not.
    pub prefixes: Option<Vec<Vec<u8>>>,
    /// [`TrackingState::OPTIN`], [`TrackingState::OPTOUT`] and [`TrackingState::NOLOOP`].
    pub flags: u8,
}

/// How a client tracks, as other threads see it.
#[derive(Default)]
pub struct TrackingState {
    flags: AtomicU8,
    /// The number of the connection told in the client's place; 0 if there is none.
    redirect: AtomicU64,
    target: Mutex<Weak<ClientEntry>>,
}

impl TrackingState {
    /// The client tracks.
    pub const ON: u8 = 1;
    /// The client is told of all keys with its prefixes.
    pub const BCAST: u8 = 1 << 1;
    /// Only keys of commands behind CLIENT CACHING YES are remembered.
    pub const OPTIN: u8 = 1 << 2;
    /// Keys of commands behind CLIENT CACHING NO are not remembered.
    pub const OPTOUT: u8 = 1 << 3;
    /// The client is not told of its own writes.
    pub const NOLOOP: u8 = 1 << 4;
    /// The connection told in the client's place has gone.
    pub const BROKEN: u8 = 1 << 5;

    /// Whether any of `flags` is set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Whether the client tracks.
    pub fn is_on(&self) -> bool {
        self.has(Self::ON)
    }

    /// The number of the connection told in the client's place, 0 for none; -1 without tracking.
    pub fn redirect(&self) -> i64 {
        match self.is_on() {
            true => self.redirect.load(Ordering::Relaxed) as i64,
            false => -1,
        }
    }
}

/// A message to clients that track.
#[derive(Clone, Debug)]
pub enum Invalidation {
    /// These keys were written.
    Keys(Arc<[Arc<[u8]>]>),
    /// Any key may have been written.
    All,
    /// The connection of this number, told in the client's place, has gone.
    Broken(u64),
}

impl Invalidation {
    /// Bytes of the message, about.
    pub fn bytes(&self) -> usize {
        match self {
            Invalidation::Keys(keys) => keys.iter().map(|key| key.len() + 16).sum(),
            Invalidation::All | Invalidation::Broken(_) => 0,
        }
    }

    /// Writes the message: in version 2 of the protocol as a message to a subscriber.
    pub fn write(&self, reply: &mut Reply<'_>) {
        if let Invalidation::Broken(id) = self {
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            return reply.integer(*id as i64);
        }
        match reply.is_resp3() {
            true => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            false => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
            }
        }
        match self {
            Invalidation::Keys(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            Invalidation::All | Invalidation::Broken(_) => reply.null(),
        }
    }
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub enum Changed {
    /// Nothing, or no client tracks.
    #[default]
    Nothing,
    /// Keys, each once.
    Keys(Vec<Vec<u8>>),
    /// Databases were flushed or swapped, or the writes were not noted.
    All,
}

impl Changed {
    /// Returns the writes of both.
    #[must_use]
    pub fn and(self, other: Changed) -> Changed {
        match (self, other) {
            (Changed::Nothing, changed) | (changed, Changed::Nothing) => changed,
            (Changed::Keys(keys), Changed::Keys(more)) => Changed::Keys([keys, more].concat()),
            (Changed::All, _) | (_, Changed::All) => Changed::All,
        }
    }

    /// Splits the writes into pieces that take a short time to tell.
    pub fn pieces(self) -> Vec<Changed> {
        match self {
            Changed::Nothing => Vec::new(),
            Changed::Keys(keys) if keys.is_empty() => Vec::new(),
            Changed::Keys(keys) => {
                keys.chunks(KEYS_AT_ONCE).map(|piece| Changed::Keys(piece.to_vec())).collect()
            }
            Changed::All => vec![Changed::All],
        }
    }
}

type ById = BTreeMap<u64, Arc<ClientEntry>>;

/// The clients that track.
pub struct Tracking {
    /// Bounds of the bytes that wait for a client.
    limits: Arc<OutputLimits>,
    /// Most remembered keys; 0: any number.
    most_keys: Arc<AtomicUsize>,
    /// The number of clients that track.
    count: AtomicUsize,
    clients: RwLock<ById>,
    prefixes: RwLock<BTreeMap<Vec<u8>, ById>>,
    keys: TrackedKeys,
}

impl Tracking {
    /// Makes the state without clients.
    pub fn new(limits: Arc<OutputLimits>, most_keys: Arc<AtomicUsize>) -> Arc<Tracking> {
        Arc::new(Tracking {
            limits,
            most_keys,
            count: AtomicUsize::new(0),
            clients: RwLock::default(),
            prefixes: RwLock::default(),
            keys: TrackedKeys::default(),
        })
    }

    /// Whether a client tracks. If none does, nothing is to be done.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// The number of clients that track.
    pub fn clients(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The numbers of remembered keys, of their clients in all, and of prefixes.
    pub fn numbers(&self) -> [usize; 3] {
        [self.keys.keys(), self.keys.items(), self.prefixes.read().unpoisoned().len()]
    }

    /// Remembers a key for a client that is about to read the key. If too many keys are remembered
    /// then, the clients of some keys are told, as if the keys were written.
    pub fn remember(&self, client: &Arc<ClientEntry>, key: &[u8]) {
        self.keys.add(key, client);
        // Each call adds at most one key; more keys are forgotten after the bound was lowered.
        self.forget_some(16);
    }

    /// Whether a client is remembered for a key.
    pub fn remembers(&self, client: &ClientEntry, key: &[u8]) -> bool {
        self.keys.has(key, client)
    }

    fn forget_some(&self, most: usize) {
        let bound = self.most_keys.load(Ordering::Relaxed);
        for _ in 0..most {
            if bound == 0 || self.keys.keys() <= bound {
                return;
            }
            let Some(forgotten) = self.keys.take_any() else { return };
            let keys: Arc<[Arc<[u8]>]> = [forgotten.key].into();
            forgotten.readers.iter().for_each(|reader| self.send_to_reader(reader, &keys));
        }
    }

    /// The bound of the number of keys has changed.
    pub fn shrink(&self) {
        self.forget_some(MOST_FORGOTTEN);
    }

    /// Tells a client of a key, remembered or not.
    pub fn tell_reader(&self, client: &Arc<ClientEntry>, key: &[u8]) {
        self.send_to_reader(client, &[key.into()].into());
    }

    fn send_to_reader(&self, client: &Arc<ClientEntry>, keys: &Arc<[Arc<[u8]>]>) {
        if client.tracking.is_on() && !client.tracking.has(TrackingState::BCAST) {
            self.send(client, Invalidation::Keys(keys.clone()));
        }
    }

    fn send(&self, client: &Arc<ClientEntry>, what: Invalidation) {
        let redirect = client.tracking.redirect.load(Ordering::Relaxed);
        let target = match redirect {
            0 => Some(client.clone()),
            _ => client.tracking.target.lock().unpoisoned().upgrade(),
        };
        let add = |entry: &Arc<ClientEntry>, what| {
            let limit = self.limits.get(entry.listens());
            entry.inbox.add(entry, limit, Delivery::Invalidation(what, redirect != 0));
        };
        match target.filter(|target| redirect == 0 || !target.has_gone()) {
            Some(target) => add(&target, what),
            None => {
                client.tracking.flags.fetch_or(TrackingState::BROKEN, Ordering::Relaxed);
                let limit = self.limits.get(client.listens());
                let what = Invalidation::Broken(redirect);
                client.inbox.add(client, limit, Delivery::Invalidation(what, false));
            }
        }
    }

    /// Tells clients the writes of the acknowledged transaction of the client `writer`; 0: of no
    /// client.
    pub fn tell(&self, changed: Changed, writer: u64) {
        match changed {
            Changed::Nothing => {}
            Changed::All => self.tell_all(),
            Changed::Keys(keys) => {
                let keys: Vec<Arc<[u8]>> = keys.into_iter().map(Arc::from).collect();
                keys.iter().for_each(|key| self.tell_readers(key, writer));
                self.tell_by_prefix(&keys, writer);
            }
        }
    }

    fn tell_readers(&self, key: &[u8], writer: u64) {
        // A client that has read the key after its own write of the key, and before this call, is
        // not told: the client stays remembered.
        let is_own = |client: &ClientEntry| {
            client.id == writer && client.tracking.has(TrackingState::NOLOOP)
        };
        let Some(found) = self.keys.take(key, is_own) else { return };
        let keys: Arc<[Arc<[u8]>]> = [found.key].into();
        found.readers.iter().for_each(|reader| self.send_to_reader(reader, &keys));
    }

    fn tell_by_prefix(&self, keys: &[Arc<[u8]>], writer: u64) {
        for (prefix, clients) in self.prefixes.read().unpoisoned().iter() {
            let begin_so = keys.iter().filter(|key| key.starts_with(prefix)).cloned();
            let keys: Arc<[Arc<[u8]>]> = begin_so.collect();
            let hears = |client: &&Arc<ClientEntry>| {
                client.id != writer || !client.tracking.has(TrackingState::NOLOOP)
            };
            for client in clients.values().filter(|_| !keys.is_empty()).filter(hears) {
                self.send(client, Invalidation::Keys(keys.clone()));
            }
        }
    }

    fn tell_all(&self) {
        // In this order: a client remembered meanwhile tracks, and is told.
        self.keys.clear();
        let clients = self.clients.read().unpoisoned();
        clients.values().for_each(|client| self.send(client, Invalidation::All));
    }

    /// Has a client track, until the returned value is dropped.
    pub fn start(self: &Arc<Self>, client: &Arc<ClientEntry>) -> Tracks {
        let mut clients = self.clients.write().unpoisoned();
        clients.insert(client.id, client.clone());
        client.tracking.flags.store(TrackingState::ON, Ordering::Relaxed);
        self.count.store(clients.len(), Ordering::SeqCst);
        let (tracking, client) = (self.clone(), client.clone());
        Tracks { tracking, client, prefixes: Vec::new(), is_named: false }
    }
}

/// A client tracks.
pub struct Tracks {
    tracking: Arc<Tracking>,
    client: Arc<ClientEntry>,
    /// The prefixes of the client.
    pub prefixes: Vec<Vec<u8>>,
    /// CLIENT CACHING was the command before.
    pub is_named: bool,
}

impl Tracks {
    /// Sets how the client tracks; prefixes are added.
    pub fn set(&mut self, options: TrackingOptions) {
        let state = &self.client.tracking;
        let is_told = options.prefixes.is_some();
        let broadcast = if is_told { TrackingState::BCAST } else { 0 };
        let target = options.redirect.as_ref().map(Arc::downgrade).unwrap_or_default();
        *state.target.lock().unpoisoned() = target;
        state.redirect.store(options.redirect.map_or(0, |target| target.id), Ordering::Relaxed);
        state.flags.store(TrackingState::ON | broadcast | options.flags, Ordering::Relaxed);
        let mut all = self.tracking.prefixes.write().unpoisoned();
        for prefix in options.prefixes.into_iter().flatten() {
            let clients = all.entry(prefix.clone()).or_default();
            if clients.insert(self.client.id, self.client.clone()).is_none() {
                self.prefixes.push(prefix);
            }
        }
    }
}

impl Drop for Tracks {
    fn drop(&mut self) {
        let Tracks { tracking, client, prefixes, .. } = self;
        let mut clients = tracking.clients.write().unpoisoned();
        clients.remove(&client.id);
        tracking.count.store(clients.len(), Ordering::SeqCst);
        client.tracking.flags.store(0, Ordering::Relaxed);
        if clients.is_empty() {
            // While the lock is held none begins, and none is remembered.
            tracking.keys.clear();
        }
        drop(clients);
        let mut all = tracking.prefixes.write().unpoisoned();
        for prefix in prefixes.drain(..) {
            if let Some(clients) = all.get_mut(&prefix) {
                clients.remove(&client.id);
                if clients.is_empty() {
                    all.remove(&prefix);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
