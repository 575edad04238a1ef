//! Transactions, as their callers run them.

use crate::data_component::ScanOrder;
use crate::error::{Abort, Error};
use crate::session::Session;
use crate::ticket::Ticket;
use crate::transaction_component::scan::Row;
use crate::transaction_component::transaction::Looked;
use crate::transaction_component::version::{Value, Version};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;

/// A transaction. It sees the database as of one moment, and its own writes.
///
/// An operation that returns [`Error::Aborted`] has ended it: all later ones return the same.
///
/// Methods that end in `async` return futures that need no runtime. Several may be under way at a
/// time; the transaction commits after all of them. None of them is run again after an abort: that
/// is for the caller of [`Session::begin`].
pub struct Transaction<'s> {
    /// Locked for single steps of asynchronous operations, never while they wait.
    session: Mutex<&'s mut Session>,
}

/// Lets other tasks of the thread go on.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<'s> Transaction<'s> {
    /// The transaction that the session has begun.
    pub(crate) fn new(session: &'s mut Session) -> Self {
        Self { session: Mutex::new(session) }
    }

    /// Why it has to abort, if it has.
    pub(crate) fn failed(&mut self) -> Option<Abort> {
        self.session().failed()
    }

    /// Claims what it could not write when it was run before.
    pub(crate) fn claim(&mut self) -> Result<(), Error> {
        let (component, work) = self.session().parts();
        component.claim(work)
    }

    /// The session, for an operation that nothing else is under way with.
    fn session(&mut self) -> &mut Session {
        self.session.get_mut().unwrap_or_else(|e| e.into_inner())
    }

    /// The session, for a step of an asynchronous operation.
    fn step(&self) -> MutexGuard<'_, &'s mut Session> {
        self.session.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The same, unless another operation has ended the transaction.
    fn step_of_active(&self) -> Result<MutexGuard<'_, &'s mut Session>, Error> {
        let session = self.step();
        session.failed().map_or(Ok(session), |abort| Err(abort.into()))
    }

    /// The value of a key; None if there is none. A key that is longer than the data component
    /// takes ([`Limits::key_bytes`](crate::Limits::key_bytes)) has none: only writing it is an
    /// error.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Error> {
        let (component, work) = self.session().parts();
        component.get(work, key)
    }

    /// Announces keys that the transaction is about to read or write, a few of them: their cache
    /// misses overlap then. A hint, which reads nothing.
    pub fn prefetch<K: AsRef<[u8]>>(&mut self, keys: &[K]) {
        let versions = &self.session().parts().0.versions;
        let hash = |key: &K| versions.hasher.hash(key.as_ref());
        let hashes: SmallVec<[u64; 16]> = keys.iter().map(hash).collect();
        versions.prefetch(&hashes);
    }

    /// As [`get`](Self::get), for a thread that has other things to do while the data component is
    /// read: the future is pending only then, or while an older transaction that has written the
    /// key has not ended. A value in memory is there at once. Threads of the database read the data
    /// component, at most [`reader_threads`](crate::Options::reader_threads) at a time. Where the
    /// memory for versions is full, the calling thread makes room first, as for [`get`](Self::get).
    ///
    /// ```
    /// # use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
    /// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
    /// # let mut session = database.session()?;
    /// let task = async {
    ///     let tx = session.begin()?;
    ///     tx.insert_async(b"a", b"1").await?;
    ///     let value = tx.get_async(b"a").await?;
    ///     tx.commit()?.await?;
    ///     Ok::<_, Error>(value)
    /// };
    /// # use std::task::{Context, Poll, Waker};
    /// # let mut task = std::pin::pin!(task);
    /// # let value = loop {
    /// #     match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
    /// #         Poll::Ready(value) => break value?,
    /// #         Poll::Pending => std::thread::yield_now(),
    /// #     }
    /// # };
    /// # assert_eq!(value.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_async(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let hash = self.step().hash(key);
        let mut until = None;
        let (reading, number) = loop {
            let looked = {
                let mut session = self.step();
                let (component, work) = session.parts();
                match component.look(work, key, hash)? {
                    Looked::Found(value) => return Ok(value),
                    Looked::Missing(number) => {
                        Some((component.begin_to_read(key, hash, number), number))
                    }
                    Looked::Active(_) if component.may_wait(&mut until) => None,
                    Looked::Active(_) => return Err(work.fail(Abort::Unfinished)),
                }
            };
            match looked {
                Some(missing) => break missing,
                None => give_way().await,
            }
        };
        let found = reading.await?;
        let mut session = self.step();
        let (component, work) = session.parts();
        component.take_read(work, key, (hash, number), found)
    }

    /// As [`insert`](Self::insert), and [`get_async`](Self::get_async).
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn insert_async(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.get_async(key).await?.is_some() {
            return Err(Error::Exists);
        }
        self.insert_absent(key, value)
    }

    /// Inserts a key that was found absent, under one lock: another operation of the transaction
    /// may have written it since.
    fn insert_absent(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut session = self.step_of_active()?;
        match session.parts().1.written(key) {
            Some(written) if written.bytes().is_some() => Err(Error::Exists),
            _ => session.put(key, Some(value)),
        }
    }

    /// As [`update`](Self::update), and [`get_async`](Self::get_async).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_async(&self, key: &[u8], value: &[u8]) -> Result<Value, Error> {
        let found = self.get_async(key).await?;
        self.update_found(key, value, found)
    }

    /// Updates a key whose value was found, or what another operation has written since.
    fn update_found(&self, key: &[u8], value: &[u8], found: Option<Value>) -> Result<Value, Error> {
        let mut session = self.step_of_active()?;
        let written = session.parts().1.written(key).map(Version::value);
        let Some(old) = written.unwrap_or(found) else {
            return Err(session.parts().0.not_found(key));
        };
        session.put(key, Some(value))?;
        Ok(old)
    }

    /// Gives a key a value, whether or not it has one. Both may be empty.
    ///
    /// A key and its value together have to fit into a frame of the log: with the default options
    /// up to 1 MiB less 30 bytes, which no options raise; less than that with a buffer of the log
    /// or segments below 4 MiB, of which a frame takes up to a quarter. The data component may have
    /// lower limits ([`DataComponent::limits`](crate::DataComponent::limits)). All writes of a
    /// transaction together have to fit into [`memory_bytes`](crate::Options::memory_bytes).
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::KeyTooLong`], [`Error::ValueTooLong`],
    /// [`Error::WriteTooLarge`] and [`Error::TransactionTooLarge`], after which the transaction can
    /// go on without this write, as after [`Error::Stalled`]; [`Error::DataComponent`];
    /// [`Error::Log`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.session().put(key, Some(value))
    }

    /// Gives a value to a key that has none.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put); [`Error::Exists`].
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self.get(key)? {
            None => self.put(key, value),
            Some(_) => Err(Error::Exists),
        }
    }

    /// Gives another value to a key that has one, and returns the old one.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put); [`Error::NotFound`].
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<Value, Error> {
        let Some(old) = self.get(key)? else {
            return Err(self.session().parts().0.not_found(key));
        };
        self.put(key, value)?;
        Ok(old)
    }

    /// Deletes a key, whether or not it has a value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.session().put(key, None)
    }

    /// The first `limit` keys between two bounds that have values, in their order, with these.
    ///
    /// Serializable: what older transactions have put there is seen, and one that does so later
    /// aborts; where the limit has ended the scan, only one that writes up to its last key. Between
    /// bounds that hold no key, such as a lower one above the upper one, there is nothing. A bound
    /// may be longer than any key.
    ///
    /// ```
    /// # use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
    /// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
    /// # let mut session = database.session()?;
    /// use std::ops::Bound::{Excluded, Included};
    ///
    /// let rows = session.execute(|tx| {
    ///     tx.put(b"due/2026-01-07", b"rent")?;
    ///     tx.put(b"due/2026-02-07", b"rent")?;
    ///     tx.scan(Included(b"due/2026-01"), Excluded(b"due/2026-02"), 100)
    /// })?;
    /// assert_eq!(rows.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`]; [`Error::NoRanges`].
    pub fn scan(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let (component, work) = self.session().parts();
        component.scan_rows(work, (from, to), ScanOrder::Ascending, limit)
    }

    /// The last `limit` keys between two bounds that have values, the highest first; otherwise as
    /// [`scan`](Self::scan).
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_back(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let (component, work) = self.session().parts();
        component.scan_rows(work, (from, to), ScanOrder::Descending, limit)
    }

    /// Hands the keys between two bounds that have values, with these, to a closure, until it
    /// breaks off. Serializable as [`scan`](Self::scan): an older transaction may still write
    /// behind the key at which it was broken off. The range may be larger than memory.
    ///
    /// ```
    /// # use hyades_deuteronomy::{Database, LogOptions, MemoryData, Options, ScanOrder};
    /// # let dir = tempfile::tempdir()?;
    /// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
    /// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
    /// # let mut session = database.session()?;
    /// use std::ops::Bound::Unbounded;
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// let longest = session.execute(|tx| {
    ///     tx.put(b"a", b"short")?;
    ///     tx.put(b"b", b"a longer one")?;
    ///     let mut longest = 0;
    ///     tx.scan_each(Unbounded, Unbounded, ScanOrder::Descending, |(_, value)| {
    ///         longest = longest.max(value.len());
    ///         if longest > 10 { Break(()) } else { Continue(()) }
    ///     })?;
    ///     Ok::<_, hyades_deuteronomy::Error>(longest)
    /// })?;
    /// assert_eq!(longest, 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_each(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: ScanOrder,
        mut each: impl FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (component, work) = self.session().parts();
        component.scan(work, (from, to), order, usize::MAX, &mut each)
    }

    /// The timestamp: transactions are serializable in the order of their timestamps.
    pub fn timestamp(&self) -> u64 {
        self.step().timestamp()
    }

    /// Commits. Others see the transaction from now on; the ticket says when it is acknowledged.
    ///
    /// # Errors
    /// [`Error::Aborted`] if an operation has returned that; [`Error::OutcomeUnknown`] or
    /// [`Error::Log`] if the log failed.
    pub fn commit(mut self) -> Result<Ticket, Error> {
        self.session().commit()
    }

    /// Aborts. What the transaction has read may be told to others once the ticket is acknowledged.
    pub fn abort(mut self) -> Ticket {
        self.session().abort()
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.session().abort_active();
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
