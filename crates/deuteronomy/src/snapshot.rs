//! Snapshots: read-only transactions without conflicts.

use crate::data_component::ScanOrder;
use crate::error::{Abort, Error};
use crate::session::Session;
use crate::ticket::Ticket;
use crate::transaction_component::TransactionComponent;
use crate::transaction_component::scan::Row;
use crate::transaction_component::version::Value;
use crate::transaction_component::work::Work;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A read-only transaction, as of a moment without an active transaction begun before the moment.
///
/// A snapshot waits for no writer, and no writer waits for a snapshot or aborts because of one.
/// Snapshots are serializable together with all transactions; but writes acknowledged while an
/// older transaction was active may be missing, except for writes of the own session. As for
/// transactions, the values read may be passed on once the snapshot's ticket is acknowledged.
///
/// Versions are kept for a snapshot as for a long-open transaction: until the budget of memory is
/// exhausted, or more than [`lag_bytes`](crate::Options::lag_bytes) waits. Then an operation
/// returns [`Abort::SnapshotTooOld`](crate::Abort::SnapshotTooOld). For longer reads, see
/// [`Database::long_snapshot`](crate::Database::long_snapshot).
///
/// ```
/// # use hyades_deuteronomy::{Database, Error, LogOptions, MemoryData, Options};
/// # let dir = tempfile::tempdir()?;
/// # let options = Options::new(LogOptions::new(vec![dir.path().to_owned()], 1));
/// # let database = Database::open(options, std::sync::Arc::new(MemoryData::new()))?;
/// let (mut writer, mut reader) = (database.session()?, database.session()?);
/// writer.execute(|tx| tx.put(b"a", b"1"))?;
/// let mut open = writer.begin()?;
/// open.put(b"a", b"2")?;
/// let mut snapshot = reader.snapshot()?;
/// assert_eq!(snapshot.get(b"a")?.as_deref(), Some(&b"1"[..]));
/// snapshot.end().wait()?;
/// open.commit()?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot<'s> {
    session: &'s mut Session,
}

impl Session {
    /// Begins a snapshot. A dropped snapshot ends. Where memory is exhausted the beginning is tried
    /// as often as a transaction of [`execute`](Session::execute), and keeps the thread meanwhile:
    /// commit or drop other writing transactions of the thread before.
    ///
    /// # Errors
    /// [`Abort::Unfinished`](crate::Abort::Unfinished): an older transaction than the session's
    /// last has been active for longer than the options allow; [`Abort::Shed`](crate::Abort::Shed),
    /// in each attempt; the log has stopped.
    pub fn snapshot(&mut self) -> Result<Snapshot<'_>, Error> {
        for attempt in 1.. {
            let (component, work) = self.parts();
            match component.begin_snapshot(work) {
                Ok(()) => break,
                Err(Error::Aborted(Abort::Shed)) if attempt < component.options.attempts => {
                    self.back_off(attempt);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Snapshot { session: self })
    }
}

impl Snapshot<'_> {
    fn parts(&mut self) -> (&Arc<TransactionComponent>, &mut Work) {
        self.session.parts()
    }

    /// The value of a key; None if there is none, as for a key above the data component's limit.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Error> {
        let (component, work) = self.parts();
        component.get(work, key)
    }

    /// Returns the first `limit` keys with values between two bounds, in `order`, with the values.
    ///
    /// # Errors
    /// [`Error::Aborted`]; [`Error::DataComponent`]; [`Error::NoRanges`].
    pub fn scan(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: ScanOrder,
        limit: usize,
    ) -> Result<Vec<Row>, Error> {
        let (component, work) = self.parts();
        component.scan_rows(work, (from, to), order, limit)
    }

    /// Hands the keys with values between two bounds, with the values, to a closure, until the
    /// closure breaks off. The range may be larger than memory.
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
        let (component, work) = self.parts();
        component.scan(work, (from, to), order, usize::MAX, &mut each)
    }

    /// The highest timestamp of a transaction visible to the snapshot: the snapshot is serialized
    /// just behind the timestamp.
    pub fn timestamp(&self) -> u64 {
        self.session.timestamp()
    }

    /// Ends the snapshot. The values read may be passed on once the ticket is acknowledged.
    pub fn end(self) -> Ticket {
        self.session.abort()
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.session.abort_active();
    }
}
