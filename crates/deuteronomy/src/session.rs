//! Sessions, and the transactions that they run.

use crate::config::UpdateLogging;
use crate::data_component::{Row, ScanOrder};
use crate::error::{Abort, Error};
use crate::key::hash;
use crate::ticket::Ticket;
use crate::transaction_component::TransactionComponent;
use crate::transaction_component::transaction::Looked;
use crate::transaction_component::work::Work;
use hyades_wal::{Log, Needs, Writer};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

/// A session looks for a less loaded stream after this many bytes, or a quarter of a buffer. The
/// fewer streams are written at a time, the fewer batches have to be written and synced.
const STREAK_BYTES: usize = 256 << 10;

/// A thread's access to a database: it runs one transaction at a time.
pub struct Session {
    component: Arc<TransactionComponent>,
    /// For its tickets.
    log: Arc<Log>,
    writer: Writer,
    /// The stream of its records, and the bytes that it has written there, without the last record.
    stream: usize,
    streak_bytes: usize,
    at: usize,
    work: Work,
}

impl Session {
    pub(crate) fn new(component: Arc<TransactionComponent>) -> Result<Self, Error> {
        let sessions = component.options.sessions;
        // First: there may be as few writers as sessions, and the error of these says more.
        let at = component.timestamps.enter().ok_or(Error::Sessions(sessions))?;
        let writer = component.log.writer();
        let writer = writer.inspect_err(|_| component.timestamps.leave(at))?;
        let (stream, work) = (writer.first_stream(), Work::new(at, component.log.streams()));
        let log = Arc::new(component.log.clone());
        Ok(Self { component, log, writer, stream, streak_bytes: 0, at, work })
    }

    /// The ticket of a transaction that waits for this.
    pub(crate) fn ticket(&self, needs: Needs) -> Ticket {
        Ticket::new(&self.log, needs)
    }

    /// Runs a transaction until it commits, and waits until it is acknowledged.
    ///
    /// The closure is run again after each [`Abort`], so it should have no other effects. If it
    /// returns an error of its own, the transaction is aborted, and the error returned once
    /// everything that the closure has read is durable.
    ///
    /// # Errors
    /// What the closure returned; [`Error::Aborted`] after [`attempts`](crate::Options::attempts)
    /// attempts; [`Error::OutcomeUnknown`] if the log failed.
    pub fn execute<R, E: From<Error>>(
        &mut self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, ticket) = self.submit(body)?;
        ticket.wait()?;
        Ok(result)
    }

    /// As [`execute`](Self::execute), without the wait: others see the transaction from now on, and
    /// the ticket says when it is acknowledged.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn submit<R, E: From<Error>>(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        for attempt in 1.. {
            let abort = match self.attempt(&mut body)? {
                Ok(done) => return Ok(done),
                Err(abort) => abort,
            };
            if attempt >= self.component.options.attempts {
                return Err(Error::Aborted(abort).into());
            }
            self.back_off(attempt);
        }
        unreachable!("attempts are counted in 64 bits")
    }

    /// Runs a transaction once. The inner result is its outcome, or why it was aborted.
    fn attempt<R, E: From<Error>>(
        &mut self,
        body: &mut impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<Result<(R, Ticket), Abort>, E> {
        let mut transaction = match self.begin() {
            Err(Error::Aborted(abort)) => return Ok(Err(abort)),
            begun => begun?,
        };
        let result = body(&mut transaction);
        if let Some(abort) = transaction.session().work.failed() {
            return Ok(Err(abort));
        }
        match result {
            Ok(result) => Ok(Ok((result, transaction.commit()?))),
            Err(error) => {
                transaction.abort().wait()?;
                Err(error)
            }
        }
    }

    /// Lets others pass, the longer the more attempts were in vain.
    pub(crate) fn back_off(&self, attempts: u64) {
        if self.component.options.log.stepped {
        } else if attempts < 4 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(20 * attempts.min(50)));
        }
    }

    /// Begins a transaction that is run once: a caller that wants to run it again after an
    /// [`Abort`] does so itself. Dropped, it is aborted.
    ///
    /// # Errors
    /// [`Abort::Shed`], or the log has stopped.
    pub fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        self.component.begin(&mut self.work)?;
        Ok(Transaction { session: Mutex::new(self) })
    }

    /// What an operation works with.
    pub(crate) fn parts(&mut self) -> (&TransactionComponent, &mut Work) {
        (&self.component, &mut self.work)
    }

    /// The timestamp of what runs.
    pub(crate) fn timestamp(&self) -> u64 {
        self.work.ts()
    }

    /// W1 to W6.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        self.component.put(&mut self.work, key, value)?;
        self.log_at_once(key)
    }

    /// W6, where writes are logged at once: logs that of a key.
    fn log_at_once(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.component.options.update_logging == UpdateLogging::AtCommit {
            return Ok(());
        }
        match self.work.stream() {
            None => self.make_room(),
            Some(own) => {
                self.writer.wait_for_room(own);
            }
        }
        self.component.log_write(&mut self.work, &mut self.writer, self.stream, key)
    }

    /// C0: waits for room in the stream, or goes to one that has room.
    fn make_room(&mut self) {
        self.streak_bytes += self.work.last_logged();
        if self.streak_bytes >= STREAK_BYTES.min(self.log.buffer_bytes() / 4) {
            self.streak_bytes = 0;
            self.stream = self.writer.choose_stream(self.stream, true).stream;
        } else {
            self.writer.wait_for_room(self.stream);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.work.is_active() {
            // Its `Transaction` was leaked.
            drop(self.component.abort(&mut self.work));
        }
        self.component.timestamps.leave(self.at);
    }
}

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
        session.work.failed().map_or(Ok(session), |abort| Err(abort.into()))
    }

    /// The value of a key; None if there is none.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Arc<[u8]>>, Error> {
        let session = self.session();
        session.component.get(&mut session.work, key)
    }

    /// Announces keys that the transaction is about to read or write, a few of them: their cache
    /// misses overlap then. A hint, which reads nothing.
    pub fn prefetch<K: AsRef<[u8]>>(&mut self, keys: &[K]) {
        let hashes: SmallVec<[u64; 16]> = keys.iter().map(|key| hash(key.as_ref())).collect();
        self.session().component.versions.prefetch(&hashes);
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
    pub async fn get_async(&self, key: &[u8]) -> Result<Option<Arc<[u8]>>, Error> {
        let (hash, mut until) = (hash(key), None);
        let (reading, number) = loop {
            let looked = {
                let session = &mut **self.step();
                match session.component.look(&mut session.work, key, hash)? {
                    Looked::Found(value) => return Ok(value),
                    Looked::Missing(number) => {
                        Some((session.component.begin_to_read(key, hash, number), number))
                    }
                    Looked::Active(_) if session.component.may_wait(&mut until) => None,
                    Looked::Active(_) => return Err(session.work.fail(Abort::Unfinished)),
                }
            };
            match looked {
                Some(missing) => break missing,
                None => give_way().await,
            }
        };
        let found = reading.await?;
        let session = &mut **self.step();
        session.component.take_read(&mut session.work, key, (hash, number), found)
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
        match session.work.written(key) {
            Some(Some(_)) => Err(Error::Exists),
            Some(None) | None => session.put(key, Some(value)),
        }
    }

    /// As [`update`](Self::update), and [`get_async`](Self::get_async).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_async(&self, key: &[u8], value: &[u8]) -> Result<Arc<[u8]>, Error> {
        let found = self.get_async(key).await?;
        self.update_found(key, value, found)
    }

    /// Updates a key whose value was found, or what another operation has written since.
    fn update_found(
        &self,
        key: &[u8],
        value: &[u8],
        found: Option<Arc<[u8]>>,
    ) -> Result<Arc<[u8]>, Error> {
        let mut session = self.step_of_active()?;
        let old = session.work.written(key).cloned().unwrap_or(found).ok_or(Error::NotFound)?;
        session.put(key, Some(value))?;
        Ok(old)
    }

    /// Gives a key a value, whether or not it has one.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::KeyTooLong`], [`Error::ValueTooLong`],
    /// [`Error::WriteTooLarge`] and [`Error::TransactionTooLarge`], after which the transaction can
    /// go on without this write; [`Error::DataComponent`]; [`Error::Log`].
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
    pub fn update(&mut self, key: &[u8], value: &[u8]) -> Result<Arc<[u8]>, Error> {
        let old = self.get(key)?.ok_or(Error::NotFound)?;
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
    /// bounds that hold no key, such as a lower one above the upper one, there is nothing.
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
        let session = self.session();
        session.component.scan_rows(&mut session.work, (from, to), ScanOrder::Ascending, limit)
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
        let session = self.session();
        session.component.scan_rows(&mut session.work, (from, to), ScanOrder::Descending, limit)
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
        let session = self.session();
        session.component.scan(&mut session.work, (from, to), order, usize::MAX, &mut each)
    }

    /// The timestamp: transactions are serializable in the order of their timestamps.
    pub fn timestamp(&self) -> u64 {
        self.step().work.ts()
    }

    /// Commits. Others see the transaction from now on; the ticket says when it is acknowledged.
    ///
    /// # Errors
    /// [`Error::Aborted`] if an operation has returned that; [`Error::OutcomeUnknown`] or
    /// [`Error::Log`] if the log failed.
    pub fn commit(mut self) -> Result<Ticket, Error> {
        let session = self.session();
        match session.work.stream() {
            Some(own) => {
                session.writer.wait_for_room(own);
            }
            None if session.component.has_record(&session.work) => session.make_room(),
            None => {}
        }
        let needs =
            session.component.commit(&mut session.work, &mut session.writer, session.stream)?;
        Ok(session.ticket(needs))
    }

    /// Aborts. What the transaction has read may be told to others once the ticket is acknowledged.
    pub fn abort(mut self) -> Ticket {
        let session = self.session();
        let needs = session.component.abort(&mut session.work);
        session.ticket(needs)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let session = self.session();
        if session.work.is_active() {
            drop(session.component.abort(&mut session.work));
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
