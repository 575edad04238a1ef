//! Long snapshots: reads of all data as of a moment, however long, beside any writes.

use crate::data_component::{DataSnapshot, ResumePoint, ScanOrder, cut_bounds, is_empty_range};
use crate::database::Database;
use crate::error::{Abort, Error};
use crate::proxy::cut::{CutAttempt, Cutting};
use crate::transaction_component::TransactionComponent;
use hyades_platform::event;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// The data as of a moment without an active transaction begun before the moment, for reads of any
/// length: reports, exports, copies.
///
/// The data component keeps the snapshot, so the snapshot takes no memory of versions, is never too
/// old, and holds up no writer. Everything read is durable already: there is no ticket. A snapshot
/// is serializable together with all transactions; but writes acknowledged while an older
/// transaction was active may be missing. Any number of threads may read at a time.
///
/// While a snapshot is open the data component keeps what is overwritten meanwhile: `RedbData` in
/// its file, which grows, `FjallData` and `RocksDbData` in their tables, and `MemoryData` in
/// memory. Only the end of the snapshot bounds the growth; [`Stats::long_snapshots`] counts the
/// open snapshots.
///
/// [`Stats::long_snapshots`]: crate::Stats::long_snapshots
///
/// ```
/// # use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options, ScanOrder};
/// # use std::ops::{Bound, ControlFlow};
/// # let dir = tempfile::tempdir()?;
/// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
/// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
/// let mut session = database.session()?;
/// session.execute(|tx| tx.put(b"a", b"1"))?;
/// let snapshot = database.long_snapshot()?;
/// session.execute(|tx| tx.put(b"a", b"2"))?;
/// assert_eq!(snapshot.get(b"a")?.as_deref(), Some(&b"1"[..]));
/// let mut bytes = 0;
/// snapshot.scan(Bound::Unbounded, Bound::Unbounded, ScanOrder::Ascending, |key, value| {
///     bytes += key.len() + value.len();
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(bytes, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LongSnapshot {
    data: Arc<dyn DataSnapshot>,
    /// The timestamp below which each transaction is in the snapshot, and at or above none is.
    cut: u64,
    /// The length of the longest key.
    key_bytes: usize,
    _open: SnapshotCount,
}

/// Counts an open snapshot and its clones, each.
struct SnapshotCount(Arc<AtomicUsize>);

impl SnapshotCount {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        // Relaxed: the count orders nothing.
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clone for SnapshotCount {
    fn clone(&self) -> Self {
        Self::begin(&self.0)
    }
}

impl Drop for SnapshotCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for LongSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongSnapshot").field("timestamp", &self.timestamp()).finish_non_exhaustive()
    }
}

impl Database {
    /// Begins a long snapshot: waits until the transactions before the moment are durable and
    /// applied. Meanwhile younger transactions commit, and are not applied.
    ///
    /// # Errors
    /// [`Abort::Unfinished`]: more than [`lag_bytes`](crate::Options::lag_bytes) was applied beside
    /// a transaction, and the transaction has been active for longer than
    /// [`patience`](crate::Options::patience) since. [`Error::NoSnapshots`]; [`Error::Stalled`];
    /// the data component or the log failed.
    pub fn long_snapshot(&self) -> Result<LongSnapshot, Error> {
        Ok(self.component().cut()?.0)
    }
}

impl TransactionComponent {
    /// L1 to L4. Returns the resume point of the snapshot, too.
    pub fn cut(&self) -> Result<(LongSnapshot, ResumePoint), Error> {
        let patience = self.options.store_patience;
        let cutting = self.begin_cut(patience)?;
        let (mut until, began, mut has_flushed) = (None, Instant::now(), false);
        loop {
            match cutting.attempt(&self.log, &self.timestamps, &self.data, patience)? {
                CutAttempt::Taken { data, cut, point } => {
                    let open = SnapshotCount::begin(&self.open_snapshots);
                    event!(DEBUG, "long snapshot begun", timestamp = cut - 1, open = open.count());
                    let key_bytes = self.limits.key_bytes;
                    return Ok((LongSnapshot { data, cut, key_bytes, _open: open }, point));
                }
                CutAttempt::Unsupported => return Err(Error::NoSnapshots),
                CutAttempt::TooEarly if self.may_wait(&mut until) => {}
                CutAttempt::TooEarly => return Err(Abort::Unfinished.into()),
                CutAttempt::NotDurable => {
                    if has_flushed && (self.options.log.stepped || began.elapsed() > patience) {
                        return Err(Error::Stalled(began.elapsed()));
                    }
                    self.log.flush().map_err(hyades_wal::Error::from)?;
                    if !std::mem::replace(&mut has_flushed, true) {
                        continue;
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until no other thread is at a cut.
    fn begin_cut(&self, patience: Duration) -> Result<Cutting<'_>, Error> {
        loop {
            if let Some(cutting) = self.proxy.begin_cut() {
                return Ok(cutting);
            }
            self.proxy.check_call(patience)?;
            std::thread::sleep(PAUSE);
        }
    }
}

impl LongSnapshot {
    /// The value of a key; None if there is none, as for a key above the data component's limit.
    ///
    /// # Errors
    /// [`Error::DataComponent`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match key.len() > self.key_bytes {
            true => Ok(None),
            false => Ok(self.data.get(key)?.value),
        }
    }

    /// Hands the keys with values between two bounds, with the values, to a closure in `order`,
    /// until the closure breaks off. The closure may take any time, and may run transactions.
    ///
    /// # Errors
    /// [`Error::DataComponent`].
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: ScanOrder,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let range = cut_bounds((from, to), self.key_bytes);
        if is_empty_range(range) {
            return Ok(());
        }
        self.data.scan(range, order, &mut |operation| match operation.value {
            Some(value) => each(operation.key, value),
            None => ControlFlow::Continue(()),
        })
    }

    pub(crate) fn data(&self) -> &dyn DataSnapshot {
        &*self.data
    }

    /// The highest timestamp of a transaction visible to the snapshot, or above: the snapshot is
    /// serialized just behind the timestamp.
    pub fn timestamp(&self) -> u64 {
        self.cut - 1
    }
}
