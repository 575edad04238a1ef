//! Clients that wait for an element: BLPOP and the like.
//!
//! A client enters the queues of its keys, *then* tries once more. A transaction that fills an
//! empty key commits, *then* the committing side checks whether clients wait for the key. Between
//! the two steps of each side is a fence, so at least one side sees the other: no client waits for
//! a present element. (Dekker's pattern: the committing side reads the count of places, the waiting
//! side reads the keys.)
//!
//! The first client of a queue is called, and runs its whole command again. The client leaves its
//! queues only after a reply, or at the end of the wait, and then the next client of each queue is
//! called: elements may remain. So clients are served in the order of arrival, unless another
//! command takes the element before.
//!
//! Clients that wait for entries of a stream are all called, since entries stay. Clients of a group
//! compete only with each other: each group has a *line* of its own in the queue, and the first
//! client of the line is called.

use crate::clients::ClientEntry;
use crate::data::head::Kind;
use hyades_platform::sync::Unpoisoned;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// A key with the type of its value, for which clients wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitKey {
    /// The number of the database.
    pub database: u32,
    /// The type.
    pub kind: Kind,
    /// The key.
    pub key: Vec<u8>,
}

/// The line of a waiting client: the clients of a queue that compete for elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitLine {
    /// No line: the client takes nothing.
    Free,
    /// The clients without a group.
    Common,
    /// The clients of a group of consumers.
    Group(Vec<u8>),
}

/// A waiting client.
struct Waiter {
    client: Arc<ClientEntry>,
    line: WaitLine,
    is_called: AtomicBool,
}

/// The clients waiting for a key.
#[derive(Default)]
struct Queue(VecDeque<Arc<Waiter>>);

impl Waiter {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.client.call();
    }
}

impl Queue {
    /// Calls the first client of each line, and all clients without a line.
    fn call(&self) {
        let mut called: HashSet<&[u8]> = HashSet::new();
        for waiter in &self.0 {
            match &waiter.line {
                WaitLine::Free => waiter.call(),
                // The rest of the queue belongs to the common line.
                WaitLine::Common => return waiter.call(),
                WaitLine::Group(name) if called.insert(name) => waiter.call(),
                WaitLine::Group(_) => {}
            }
        }
    }

    /// The first client of a line; `None` for clients without a line.
    fn first_of(&self, line: &WaitLine) -> Option<&Arc<Waiter>> {
        self.0.iter().find(|waiter| waiter.line == *line).filter(|_| *line != WaitLine::Free)
    }
}

/// The queues of all keys with waiting clients.
#[derive(Default)]
pub struct WaitQueues {
    /// The number of places in all queues.
    places: AtomicUsize,
    clients: AtomicUsize,
    queues: Mutex<HashMap<WaitKey, Queue>>,
}

/// A client's places in the queues of its keys. Dropping the places leaves the queues.
pub struct Places {
    queues: Arc<WaitQueues>,
    waiter: Arc<Waiter>,
    keys: Vec<WaitKey>,
}

impl WaitQueues {
    /// Enters the queues of the keys, all different. The client is called at once: it has to try
    /// once more.
    pub fn enter(
        self: &Arc<Self>,
        client: Arc<ClientEntry>,
        keys: Vec<WaitKey>,
        line: WaitLine,
    ) -> Places {
        // The client tries once more in any case.
        let waiter = Arc::new(Waiter { client, line, is_called: AtomicBool::new(true) });
        let mut queues = self.queues.lock().unpoisoned();
        for key in &keys {
            queues.entry(key.clone()).or_default().0.push_back(waiter.clone());
        }
        self.places.fetch_add(keys.len(), Ordering::Relaxed);
        self.clients.fetch_add(1, Ordering::Relaxed);
        drop(queues);
        fence(Ordering::SeqCst);
        Places { queues: self.clone(), waiter, keys }
    }

    /// Whether no clients wait. After a commit, [`fence`] first.
    fn is_empty(&self) -> bool {
        self.places.load(Ordering::Relaxed) == 0
    }

    /// Whether a transaction that begins now has to name the keys it fills. A transaction with
    /// unnamed filled keys calls [`WaitQueues::call_all`].
    pub fn wants_keys(&self) -> bool {
        !self.is_empty()
    }

    /// Calls clients of keys that had no elements and have some now, committed before.
    pub fn call<'a>(&self, keys: impl Iterator<Item = &'a WaitKey>) {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return;
        }
        let queues = self.queues.lock().unpoisoned();
        keys.filter_map(|key| queues.get(key)).for_each(Queue::call);
    }

    /// Calls all clients: unknown keys had no elements and have some now, committed before.
    pub fn call_all(&self) {
        self.call_where(|_| true);
    }

    /// As [`WaitQueues::call_all`] for the keys of a database.
    pub fn call_database(&self, database: u32) {
        self.call_where(|key| key.database == database);
    }

    fn call_where(&self, is_wanted: impl Fn(&WaitKey) -> bool) {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return;
        }
        let queues = self.queues.lock().unpoisoned();
        queues.iter().filter(|(key, _)| is_wanted(key)).for_each(|(_, queue)| queue.call());
    }

    /// The number of waiting clients.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// The number of keys with waiting clients.
    pub fn keys(&self) -> usize {
        self.queues.lock().unpoisoned().len()
    }
}

impl Places {
    /// Whether the client was called since the last call of this function: then it has to try once
    /// more.
    pub fn take_call(&self) -> bool {
        self.waiter.is_called.swap(false, Ordering::Acquire)
    }

    /// Whether the client was called.
    pub fn is_called(&self) -> bool {
        self.waiter.is_called.load(Ordering::Acquire)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.lock().unpoisoned();
        for key in &self.keys {
            let queue = queues.get_mut(key).expect("it has a place there");
            let line = &self.waiter.line;
            let is_first = |first: &Arc<Waiter>| Arc::ptr_eq(first, &self.waiter);
            let was_first = queue.first_of(line).is_some_and(is_first);
            queue.0.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            if queue.0.is_empty() {
                queues.remove(key);
            } else if was_first {
                // The client may have been called for an element it has not taken.
                queue.first_of(line).into_iter().for_each(|next| next.call());
            }
        }
        self.queues.places.fetch_sub(self.keys.len(), Ordering::Relaxed);
        self.queues.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Calls;
    use std::task::Waker;

    fn key(name: &str) -> WaitKey {
        WaitKey { database: 0, kind: Kind::List, key: name.into() }
    }

    fn enter(queues: &Arc<WaitQueues>, keys: &[&str]) -> Places {
        enter_line(queues, keys, WaitLine::Common)
    }

    fn enter_line(queues: &Arc<WaitQueues>, keys: &[&str], line: WaitLine) -> Places {
        let addresses = (String::new(), String::new());
        let calls = Calls::new(Waker::noop().clone());
        let client = Arc::new(ClientEntry::new(1, addresses, 0, calls));
        let places = queues.enter(client, keys.iter().map(|name| key(name)).collect(), line);
        assert!(places.take_call());
        places
    }

    fn calls(clients: &[&Places]) -> Vec<bool> {
        clients.iter().map(|places| places.take_call()).collect()
    }

    #[test]
    fn the_first_is_called_and_the_next_once_it_has_left() {
        let queues = Arc::new(WaitQueues::default());
        assert!(!queues.wants_keys());
        let (a, b, c) =
            (enter(&queues, &["x"]), enter(&queues, &["y", "x"]), enter(&queues, &["y"]));
        assert_eq!((queues.clients(), queues.wants_keys()), (3, true));
        queues.call([key("x"), key("z")].iter());
        assert_eq!(calls(&[&a, &b, &c]), [true, false, false]);
        queues.call([WaitKey { kind: Kind::SortedSet, ..key("x") }].iter());
        queues.call_database(1);
        assert_eq!(calls(&[&a, &b, &c]), [false, false, false]);
        drop(a);
        assert_eq!(calls(&[&b, &c]), [true, false]);
        queues.call_database(0);
        assert_eq!(calls(&[&b, &c]), [true, false]);
        queues.call_all();
        drop(b);
        assert_eq!(calls(&[&c]), [true]);
        drop(c);
        assert_eq!((queues.clients(), queues.wants_keys()), (0, false));
        assert!(queues.queues.lock().unwrap().is_empty());
    }

    /// Of each group the first client, and all clients that take nothing.
    #[test]
    fn lines_of_a_queue_are_called_by_themselves() {
        let queues = Arc::new(WaitQueues::default());
        let group = |name: &str| WaitLine::Group(name.into());
        let lines = [group("g"), WaitLine::Free, group("h"), group("g"), WaitLine::Free];
        let mut all: Vec<Places> =
            lines.into_iter().map(|line| enter_line(&queues, &["x"], line)).collect();
        let called =
            |all: &[Places]| all.iter().map(|places| places.take_call()).collect::<Vec<_>>();
        queues.call([key("x")].iter());
        assert_eq!(called(&all), [true, true, true, false, true]);
        drop(all.remove(1));
        assert_eq!(called(&all), [false; 4]);
        drop(all.remove(0));
        assert_eq!(called(&all), [false, true, false]);
        queues.call_all();
        assert_eq!(called(&all), [true; 3]);
    }

    /// A client that leaves from the middle calls no other.
    #[test]
    fn one_that_was_not_first_calls_none() {
        let queues = Arc::new(WaitQueues::default());
        let (a, b, c) = (enter(&queues, &["x"]), enter(&queues, &["x"]), enter(&queues, &["x"]));
        drop(b);
        assert_eq!(calls(&[&a, &c]), [false, false]);
    }
}
