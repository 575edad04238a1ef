//! Transactions, the interface for callers.

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

/// A transaction. A transaction sees the database as of a single moment, and its own writes.
///
/// An operation with result [`Error::Aborted`] has ended the transaction: all later operations
/// return the same.
///
/// Methods ending in `async` return futures that need no runtime. Several may be under way at a
/// time; the transaction commits after all. No future is run again after an abort: retries are for
/// the caller of [`Session::begin`].
pub struct Transaction<'s> {
    /// Locked for single steps of asynchronous operations, never during their waits.
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
    /// Makes the transaction begun by the session.
    pub(crate) fn new(session: &'s mut Session) -> Self {
        Self { session: Mutex::new(session) }
    }

    /// Returns the cause of an abort, if due.
    pub(crate) fn failed(&mut self) -> Option<Abort> {
        self.session().failed()
    }

    /// Claims the keys not writable in the run before.
    pub(crate) fn claim(&mut self) -> Result<(), Error> {
        let (component, work) = self.session().parts();
        component.claim(work)
    }

    /// Returns the session, for an operation without concurrent operations.
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

    /// The value of a key; None if there is none. A key above the data component's limit
    /// ([`Limits::key_bytes`](crate::Limits::key_bytes)) has none: only writing the key is an
    /// error.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Error> {
        let (component, work) = self.session().parts();
        component.get(work, key)
    }

    /// Announces a few keys the transaction is about to read or write: their cache misses overlap
    /// then. A hint, without any read.
    pub fn prefetch<K: AsRef<[u8]>>(&mut self, keys: &[K]) {
        let versions = &self.session().parts().0.versions;
        let hash = |key: &K| versions.hasher.hash(key.as_ref());
        let hashes: SmallVec<[u64; 16]> = keys.iter().map(hash).collect();
        versions.prefetch(&hashes);
    }

    /// As [`get`](Self::get), for a thread with other work during a read of the data component: the
    /// future is pending only during the read, or until the end of an older transaction with a
    /// write of the key. A value in memory is there at once. Threads of the database read the data
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

    /// Inserts a key found absent, under a single lock: another operation of the transaction may
    /// have written the key since.
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

    /// Updates a key with the value found, or with a later write of another operation.
    fn update_found(&self, key: &[u8], value: &[u8], found: Option<Value>) -> Result<Value, Error> {
        let mut session = self.step_of_active()?;
        let written = session.parts().1.written(key).map(Version::value);
        let Some(old) = written.unwrap_or(found) else {
            return Err(session.parts().0.not_found(key));
        };
        session.put(key, Some(value))?;
        Ok(old)
    }

    /// Gives a key a value, whether or not the key has a value. Both may be empty.
    ///
    /// A key and its value together have to fit into a frame of the log: with the default options
    /// up to 1 MiB less 30 bytes, not raised by any options; less with a buffer of the log or
    /// segments below 4 MiB, for a frame takes up to a quarter. The data component may have lower
    /// limits ([`DataComponent::limits`](crate::DataComponent::limits)). All writes of a
    /// transaction together have to fit into [`memory_bytes`](crate::Options::memory_bytes).
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::WriteTooLarge`]
    /// and [`Error::TransactionTooLarge`], after which the transaction can go on without the write,
    /// as after [`Error::Stalled`]; [`Error::DataComponent`]; [`Error::Log`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.session().put(key, Some(value))
    }

    /// Gives a value to a key without a value.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put); [`Error::Exists`].
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self.get(key)? {
            None => self.put(key, value),
            Some(_) => Err(Error::Exists),
        }
    }

    /// Gives another value to a key with a value, and returns the old value.
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

    /// Deletes a key, with or without a value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.session().put(key, None)
    }

    /// Returns the first `limit` keys with values between two bounds, in key order, with the
    /// values.
    ///
    /// Serializable: older transactions' writes in the range are seen, and an older transaction
    /// with a later write there aborts; after an end by the limit, only with a write up to the
    /// scan's last key. Between bounds without a key, as with the lower bound above the upper,
    /// there is nothing. A bound may be longer than any key.
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

    /// Returns the last `limit` keys with values between two bounds, the highest first; otherwise
    /// as [`scan`](Self::scan).
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

    /// Hands the keys with values between two bounds, with the values, to a closure, until the
    /// closure breaks off. Serializable as [`scan`](Self::scan): an older transaction may still
    /// write behind the key at which the scan was broken off. The range may be larger than memory.
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

    /// Commits. Other transactions see the transaction from now on; the ticket says when the
    /// transaction is acknowledged.
    ///
    /// # Errors
    /// [`Error::Aborted`] if an operation has returned an abort; [`Error::OutcomeUnknown`] or
    /// [`Error::Log`] if the log failed.
    pub fn commit(mut self) -> Result<Ticket, Error> {
        self.session().commit()
    }

    /// Aborts. The values read by the transaction may be passed on once the ticket is acknowledged.
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
