//! Clients that wait for an element: BLPOP and the like.
//!
//! A client enters the queues of its keys, *then* tries once more. A transaction that brings
//! elements under a key that had none commits, *then* it is looked whether clients wait for that
//! key. Between the two steps of each is a fence, so at least one sees the other: no client waits
//! for an element that is there. (Dekker's pattern: the count of places is what the committing side
//! reads, the keys what the waiting side reads.)
//!
//! The first client of a queue is called, and runs its whole command again. It leaves its queues
//! only once it has a reply, or ends waiting, and then the next one of each is called: it may be
//! that elements remain. So each is served in the order in which they came, unless another command
//! takes the element before.
//!
//! Clients that wait for entries of a stream, which stay there, are all called. Those of a group
//! take entries from each other alone: each group has a *line* of its own in the queue, whose first
//! client is called.

use crate::clients::ClientEntry;
use crate::data::head::Kind;
use hyades_platform::sync::Unpoisoned;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// A key with the type of its value: what clients wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitKey {
    /// The number of the database.
    pub database: u32,
    /// The type.
    pub kind: Kind,
    /// The key.
    pub key: Vec<u8>,
}

/// The clients of a queue among which one waits: those that take elements from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitLine {
    /// None: it takes nothing.
    Free,
    /// Those that have named no group.
    Common,
    /// Those of a group of consumers.
    Group(Vec<u8>),
}

/// A client that waits.
struct Waiter {
    client: Arc<ClientEntry>,
    line: WaitLine,
    is_called: AtomicBool,
}

/// The clients that wait for a key.
#[derive(Default)]
struct Queue(VecDeque<Arc<Waiter>>);

impl Waiter {
    fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.client.call();
    }
}

impl Queue {
    /// Calls the first client of each line, and all that are in none.
    fn call(&self) {
        let mut called: HashSet<&[u8]> = HashSet::new();
        for waiter in &self.0 {
            match &waiter.line {
                WaitLine::Free => waiter.call(),
                // The rest of the queue is of this line.
                WaitLine::Common => return waiter.call(),
                WaitLine::Group(name) if called.insert(name) => waiter.call(),
                WaitLine::Group(_) => {}
            }
        }
    }

    /// The first client of a line, if it is one.
    fn first_of(&self, line: &WaitLine) -> Option<&Arc<Waiter>> {
        self.0.iter().find(|waiter| waiter.line == *line).filter(|_| *line != WaitLine::Free)
    }
}

/// The queues of all keys that clients wait for.
#[derive(Default)]
pub struct WaitQueues {
    /// The number of places in all queues.
    places: AtomicUsize,
    clients: AtomicUsize,
    queues: Mutex<HashMap<WaitKey, Queue>>,
}

/// A client's places in the queues of its keys. Dropped, it leaves them.
pub struct Places {
    queues: Arc<WaitQueues>,
    waiter: Arc<Waiter>,
    keys: Vec<WaitKey>,
}

impl WaitQueues {
    /// Enters the queues of the keys, which differ. The client is called at once: it has to try
    /// once more.
    pub fn enter(
        self: &Arc<Self>,
        client: Arc<ClientEntry>,
        keys: Vec<WaitKey>,
        line: WaitLine,
    ) -> Places {
        // It tries once more, whatever happens.
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

    /// Whether there are clients that wait. After a commit, [`fence`] first.
    fn is_empty(&self) -> bool {
        self.places.load(Ordering::Relaxed) == 0
    }

    /// Whether a transaction that begins now has to say which keys it fills. One that did not, and
    /// has filled some, calls [`WaitQueues::call_all`].
    pub fn wants_keys(&self) -> bool {
        !self.is_empty()
    }

    /// Elements are there under these keys, which had none: committed before.
    pub fn call<'a>(&self, keys: impl Iterator<Item = &'a WaitKey>) {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return;
        }
        let queues = self.queues.lock().unpoisoned();
        keys.filter_map(|key| queues.get(key)).for_each(Queue::call);
    }

    /// Elements are there under keys that had none, committed before; which is not known.
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

    /// The number of clients that wait.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// The number of keys that they wait for.
    pub fn keys(&self) -> usize {
        self.queues.lock().unpoisoned().len()
    }
}

impl Places {
    /// Whether it was called since it was last asked: it has to try once more.
    pub fn take_call(&self) -> bool {
        self.waiter.is_called.swap(false, Ordering::Acquire)
    }

    /// Whether it was called.
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
                // It may have been called for an element that it has not taken.
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

    /// Of each group the first, and all that take nothing.
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

    /// One that leaves from the middle calls no other.
    #[test]
    fn one_that_was_not_first_calls_none() {
        let queues = Arc::new(WaitQueues::default());
        let (a, b, c) = (enter(&queues, &["x"]), enter(&queues, &["x"]), enter(&queues, &["x"]));
        drop(b);
        assert_eq!(calls(&[&a, &c]), [false, false]);
    }
}
