//! Fetches under way: a key is read from the data component once, for any number of transactions
//! with a miss meanwhile.
//!
//! A transaction with a missing key joins the fetch of another transaction if both have noted the
//! same number of dropped versions of the bucket. Then the fetched version is right for the joining
//! transaction as well: at its look, the table had no version of the key readable for the
//! transaction, and none has left the table since before the fetch began, so no readable version
//! has come since. With another number a version may have come, been applied, and left: the fetch
//! may have missed the version.
//!
//! Invariant: a fetch is in the list exactly while its transaction is at the data component.

use super::version::Version;
use crate::error::Error;
use hyades_platform::broken;
use hyades_platform::sync::locked;
use std::sync::{Arc, Condvar, Mutex};

/// The lists; keys are spread over the lists by hash.
const LISTS: usize = 64;

/// How far a fetch is.
#[derive(Clone, Debug)]
enum FetchState {
    UnderWay,
    Found(Version),
    /// The data component has failed or panicked: joined transactions ask the data component anew.
    Failed,
}

#[derive(Debug)]
struct Fetch {
    key: Box<[u8]>,
    number: u64,
    state: Mutex<FetchState>,
    ended: Condvar,
}

/// The fetches of a database.
#[derive(Debug)]
pub(crate) struct Fetches {
    lists: Box<[Mutex<Vec<Arc<Fetch>>>]>,
}

impl Fetch {
    fn end(&self, state: FetchState) {
        *locked(&self.state) = state;
        self.ended.notify_all();
    }

    /// Waits for the fetching transaction; None if the fetch has failed.
    fn wait(&self) -> Option<Version> {
        let mut state = locked(&self.state);
        loop {
            match &*state {
                FetchState::UnderWay => {
                    state = self.ended.wait(state).unwrap_or_else(|e| e.into_inner());
                }
                FetchState::Found(version) => return Some(version.clone()),
                FetchState::Failed => return None,
            }
        }
    }
}

/// Takes a fetch out of its list, in a panic of the data component, too; then the fetch ends.
struct EndFetch<'f> {
    list: &'f Mutex<Vec<Arc<Fetch>>>,
    fetch: Arc<Fetch>,
    state: FetchState,
}

impl Drop for EndFetch<'_> {
    fn drop(&mut self) {
        locked(self.list).retain(|other| !Arc::ptr_eq(other, &self.fetch));
        self.fetch.end(std::mem::replace(&mut self.state, FetchState::Failed));
    }
}

impl Fetches {
    pub fn new() -> Self {
        Self { lists: (0..LISTS).map(|_| Mutex::default()).collect() }
    }

    /// Returns the fetch under way of the key with `number`, or a new fetch; and whether the fetch
    /// is new.
    fn join(list: &Mutex<Vec<Arc<Fetch>>>, key: &[u8], number: u64) -> (Arc<Fetch>, bool) {
        let mut list = locked(list);
        let joins_any = broken!(JoinAnyFetch);
        let is_same =
            |fetch: &&Arc<Fetch>| (fetch.number == number || joins_any) && *fetch.key == *key;
        if let Some(fetch) = list.iter().find(is_same) {
            return (Arc::clone(fetch), false);
        }
        let (state, ended) = (Mutex::new(FetchState::UnderWay), Condvar::new());
        let fetch = Arc::new(Fetch { key: key.into(), number, state, ended });
        list.push(Arc::clone(&fetch));
        (fetch, true)
    }

    /// F2: returns the result of `read`, or of another transaction's `read` with the same noted
    /// number. No latch is held meanwhile.
    ///
    /// # Errors
    /// The error of `read`; an error of another transaction's `read` is not passed on.
    pub fn fetch(
        &self,
        key: &[u8],
        hash: u64,
        number: u64,
        mut read: impl FnMut() -> Result<Version, Error>,
    ) -> Result<Version, Error> {
        let list = &self.lists[hash as usize % LISTS];
        loop {
            let (fetch, is_new) = Self::join(list, key, number);
            if is_new {
                let mut end = EndFetch { list, fetch, state: FetchState::Failed };
                let found = read()?;
                end.state = FetchState::Found(found.clone());
                return Ok(found);
            }
            if let Some(found) = fetch.wait() {
                return Ok(found);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn is_listed(fetches: &Fetches) -> bool {
        fetches.lists.iter().any(|list| !locked(list).is_empty())
    }

    fn version(byte: u8) -> Version {
        Version::fetched(b"k", u64::from(byte), Some(&[byte]))
    }

    /// Fetches `k` during another fetch of `k` that ends as `first` does. Returns the result of the
    /// second fetch, and the number of its reads of the data component.
    fn beside(number: u64, first: impl Fn() -> Result<Version, Error> + Sync) -> (u8, usize) {
        let (fetches, asked) = (Fetches::new(), AtomicUsize::new(0));
        let ((reached, is_reached), (go_on, goes_on)) = (channel(), channel::<()>());
        let found = std::thread::scope(|scope| {
            let (fetches, first, asked) = (&fetches, &first, &asked);
            scope.spawn(move || {
                let fetch = || {
                    fetches.fetch(b"k", 9, 1, || {
                        reached.send(()).unwrap();
                        goes_on.recv_timeout(Duration::from_secs(20)).unwrap();
                        first()
                    })
                };
                drop(catch_unwind(AssertUnwindSafe(fetch)));
            });
            is_reached.recv_timeout(Duration::from_secs(20)).unwrap();
            let second = scope.spawn(move || {
                fetches.fetch(b"k", 9, number, || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Ok(version(2))
                })
            });
            if number == 1 {
                // The list, the first and the second: the second has joined.
                let joined = || locked(&fetches.lists[9])[0].clone();
                while Arc::strong_count(&joined()) < 4 {
                    std::thread::yield_now();
                }
                go_on.send(()).unwrap();
                second.join().unwrap()
            } else {
                let found = second.join().unwrap();
                go_on.send(()).unwrap();
                found
            }
        });
        assert!(!is_listed(&fetches));
        (found.unwrap().bytes().unwrap()[0], asked.into_inner())
    }

    #[test]
    fn a_key_is_read_once() {
        assert_eq!(beside(1, || Ok(version(1))), (1, 0));
    }

    #[test]
    fn not_where_a_version_was_dropped_meanwhile() {
        assert_eq!(beside(2, || Ok(version(1))), (2, 1));
    }

    #[test]
    fn a_failed_fetch_fails_for_nobody_else() {
        assert_eq!(beside(1, || Err(Error::DataComponent("a test says so".into()))), (2, 1));
        assert_eq!(beside(1, || panic!("a test says so")), (2, 1));
    }
}
