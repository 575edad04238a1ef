//! The clients that are connected, as CLIENT and INFO show them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// What other clients see of a client. Written by its own event loop.
pub struct ClientEntry {
    /// Its number, never used again.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The server's address that it is connected to.
    pub local_address: String,
    /// When it connected, in milliseconds since 1970.
    pub since_ms: i64,
    /// When it sent its last command.
    pub active_ms: AtomicI64,
    /// Its database.
    pub database: AtomicU32,
    /// 2 or 3.
    pub protocol: AtomicU32,
    /// Bytes received that are not run yet.
    pub input: AtomicU64,
    /// Bytes of replies that are not sent yet.
    pub output: AtomicU64,
    /// Commands queued by MULTI; -1 outside of it.
    pub queued: AtomicI64,
    /// What it says of itself, and its last command.
    pub names: Mutex<ClientNames>,
    /// It is to be disconnected.
    pub is_killed: AtomicBool,
    /// Wakes its event loop.
    pub waker: Waker,
}

/// Names of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// By CLIENT SETNAME.
    pub name: String,
    /// Name of its library, by CLIENT SETINFO.
    pub library: String,
    /// Version of its library.
    pub version: String,
    /// Its last command.
    pub command: &'static str,
}

impl ClientEntry {
    /// The entry of a client that connects now.
    pub fn new(
        id: u64,
        (address, local_address): (String, String),
        now: i64,
        waker: Waker,
    ) -> Self {
        ClientEntry {
            id,
            address,
            local_address,
            since_ms: now,
            active_ms: AtomicI64::new(now),
            database: AtomicU32::new(0),
            protocol: AtomicU32::new(2),
            input: AtomicU64::new(0),
            output: AtomicU64::new(0),
            queued: AtomicI64::new(-1),
            names: Mutex::default(),
            is_killed: AtomicBool::new(false),
            waker,
        }
    }

    /// One line of CLIENT LIST.
    pub fn line(&self, now_ms: i64) -> String {
        let names = self.names.lock().expect("no holder panics").clone();
        let seconds = |since: i64| (now_ms - since).max(0) / 1_000;
        let (input, output) = (self.input.load(Relaxed), self.output.load(Relaxed));
        let queued = self.queued.load(Relaxed);
        let mut line = String::new();
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub=0 psub=0 \
             ssub=0 multi={queued} qbuf={input} qbuf-free=0 argv-mem=0 multi-mem=0 rbs={output} \
             rbp={output} obl={output} oll=0 omem={output} tot-mem={} events=r cmd={} \
             user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            names.name,
            seconds(self.since_ms),
            seconds(self.active_ms.load(Relaxed)),
            if queued >= 0 { "x" } else { "N" },
            self.database.load(Relaxed),
            input + output,
            names.command,
            self.protocol.load(Relaxed),
            names.library,
            names.version,
        );
        line
    }
}

/// All clients by number.
#[derive(Default)]
pub struct Clients {
    entries: Mutex<BTreeMap<u64, Arc<ClientEntry>>>,
    last: AtomicU64,
    /// Clients that are to be disconnected and still are not.
    killed: AtomicU64,
}

impl Clients {
    /// The number of the next client.
    pub fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// Adds a client.
    pub fn add(&self, entry: Arc<ClientEntry>) {
        self.entries.lock().expect("no holder panics").insert(entry.id, entry);
    }

    /// Removes a client that has disconnected.
    pub fn remove(&self, id: u64) {
        let mut entries = self.entries.lock().expect("no holder panics");
        if entries.remove(&id).is_some_and(|entry| entry.is_killed.load(Relaxed)) {
            self.killed.fetch_sub(1, Relaxed);
        }
    }

    /// Has a client disconnected by its loop.
    pub fn kill(&self, entry: &ClientEntry) {
        // Under the lock: one that has gone already is not counted, since it is not removed again.
        let entries = self.entries.lock().expect("no holder panics");
        if entries.contains_key(&entry.id) && !entry.is_killed.swap(true, Relaxed) {
            self.killed.fetch_add(1, Relaxed);
            entry.waker.wake_by_ref();
        }
    }

    /// Whether a client is to be disconnected.
    pub fn has_killed(&self) -> bool {
        self.killed.load(Relaxed) > 0
    }

    /// The clients that are connected.
    pub fn list(&self) -> Vec<Arc<ClientEntry>> {
        self.entries.lock().expect("no holder panics").values().cloned().collect()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.entries.lock().expect("no holder panics").len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_gone_is_not_to_be_disconnected() {
        let clients = Clients::default();
        let entry = |id| {
            let addresses = (String::new(), String::new());
            Arc::new(ClientEntry::new(id, addresses, 0, Waker::noop().clone()))
        };
        let (stays, goes) = (entry(1), entry(2));
        [&stays, &goes].iter().for_each(|entry| clients.add((*entry).clone()));
        clients.remove(2);
        clients.kill(&goes);
        assert!(!clients.has_killed());
        clients.kill(&stays);
        clients.kill(&stays);
        assert!(clients.has_killed());
        clients.remove(1);
        assert!(!clients.has_killed());
    }
}
