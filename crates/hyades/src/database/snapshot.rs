//! Reading a consistent state while transactions go on.

use super::{Database, DatabaseInner, Loan, Session};
use crate::engine::snapshots::SnapshotState;
use crate::error::{Abort, Error};
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::table::WalkPosition;
#[cfg(feature = "replication")]
use crate::storage::usage::TableStats;
use crate::ticket::Ticket;
use crate::transaction::access::{Table, Transaction};
use std::fmt;
use std::sync::Arc;

/// A consistent state of a database, unchanged while transactions go on; see
/// [`Database::open_snapshot`]. Closed on drop. Several threads may read a snapshot.
pub struct Snapshot {
    database: Database,
    /// The state, or the reason why the snapshot was not opened.
    state: Result<Arc<SnapshotState>, Error>,
}

/// The error of a reader of a snapshot that was not opened.
fn not_opened(why: &Error) -> Error {
    match why {
        Error::Demoted { by } => Error::Demoted { by: *by },
        Error::Poisoned(cause) => Error::Poisoned(cause.clone()),
        refused => Error::Misuse(refused.to_string()),
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.state.as_ref().map(|state| state.epoch.0);
        f.debug_struct("Snapshot").field("epoch", &epoch).finish()
    }
}

impl Snapshot {
    #[cfg(feature = "replication")]
    pub(super) fn of(database: &Database, state: Arc<SnapshotState>) -> Snapshot {
        Snapshot { database: database.clone(), state: Ok(state) }
    }

    /// The last epoch of the snapshot; `None` if the snapshot was not opened.
    #[cfg(feature = "replication")]
    #[doc(hidden)]
    pub fn epoch(&self) -> Option<u64> {
        self.state.as_ref().ok().map(|state| state.epoch.0)
    }

    /// The tables of the database, with sizes of now.
    #[cfg(feature = "replication")]
    pub(super) fn tables(&self) -> Vec<TableStats> {
        self.database.tables()
    }

    pub(super) fn is_of(&self, database: &Arc<DatabaseInner>) -> bool {
        Arc::ptr_eq(&self.database.shared, database)
    }

    /// # Errors
    /// The snapshot was not opened.
    pub(super) fn state(&self) -> Result<&SnapshotState, Error> {
        self.state.as_deref().map_err(not_opened)
    }

    /// Reads the snapshot. Returns once all data of the snapshot is on disk. Memory for the rows
    /// read by the closure is freed when the closure returns, so read a large table in several
    /// calls.
    ///
    /// # Errors
    /// As for [`Database::snapshot`].
    pub fn read<T>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_read(body)?
    }

    /// Like [`Snapshot::read`], with an error of any type: the inner result is the closure's.
    ///
    /// # Errors
    /// As for [`Database::snapshot`].
    pub fn try_read<T, E: From<Abort>>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        let mut session: Session = self.database.pooled(Loan::Reader)?;
        let (result, ticket): (_, Ticket) = session.read_as_of(self.state()?, body)?;
        drop(session);
        self.database.acknowledge(ticket)?;
        Ok(result)
    }
}

impl Snapshot {
    /// Visits every row of a table: by ascending key in an ordered table, in no order in a hash
    /// table. Takes no more memory than some thousand rows do, however long the table is. Returns
    /// the number of rows, once all data of the snapshot is on disk.
    ///
    /// ```
    /// # use hyades::{Column, Columns, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]).hash();
    /// # let words = builder.table(schema);
    /// # let db = builder.open(dir.path())?;
    /// # db.transact(|tx| Ok(tx.insert(words, &["durable".into()])?))?;
    /// let (snapshot, mut bytes) = (db.open_snapshot(), 0);
    /// let rows = snapshot.for_each(words, Columns::ALL, |row| {
    ///     bytes += row.get(Column::<str>::at(0)).len();
    /// })?;
    /// assert_eq!((rows, bytes), (1, 7));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Database::snapshot`].
    pub fn for_each(
        &self,
        table: Table,
        columns: Columns,
        mut visit: impl FnMut(&Row<'_>),
    ) -> Result<u64, Error> {
        let (mut at, mut rows) = (WalkPosition::Start, 0);
        let mut session: Session = self.database.pooled(Loan::Reader)?;
        let mut visit = |row: &Row<'_>| {
            rows += 1;
            visit(row);
        };
        while !matches!(at, WalkPosition::End) {
            session.walk(self.state()?, (table, columns), &mut at, &mut visit)?;
        }
        let ticket = session.ticket_of(self.state()?);
        drop(session);
        self.database.acknowledge(ticket)?;
        Ok(rows)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Ok(state) = &self.state {
            self.database.shared.engine.close_snapshot(state);
        }
    }
}

impl Database {
    /// Reads a consistent state of the database: everything committed before the call, and nothing
    /// committed later. Transactions go on meanwhile. The closure runs once: it never meets a
    /// conflict and never waits for a transaction, however long it takes. Its transaction cannot
    /// write ([`Abort::ReadOnly`]), but other transactions may run inside the closure.
    ///
    /// Returns once all data of the snapshot is on disk. Opening a snapshot takes about as long as
    /// a commit; in the long run it takes up to a millisecond if something is written between one
    /// snapshot and the next, and during this time callers share a snapshot. While the snapshot is
    /// open, each overwritten row is kept in memory;
    /// [`Builder::snapshots`](crate::Builder::snapshots) limits this memory.
    ///
    /// ```
    /// # use hyades::{Database, Table};
    /// # let dir = tempfile::tempdir()?;
    /// # #[derive(Table)]
    /// # struct Account { #[key] id: u64, balance: i64 }
    /// # let mut builder = Database::builder();
    /// # let accounts = builder.table_of::<Account>();
    /// # let db = builder.open(dir.path())?;
    /// # db.transact(|tx| {
    /// #     for id in 1..=9 { accounts.insert(tx, &Account { id, balance: 10 })?; }
    /// #     Ok(())
    /// # })?;
    /// let total = db.snapshot(|tx| {
    ///     let rows = accounts.scan(tx).rows()?;
    ///     Ok(rows.map(|account| account.balance).sum::<i64>())
    /// })?;
    /// assert_eq!(total, 90);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The closure's error; [`Abort::SnapshotEnded`] if the snapshot took too much memory;
    /// [`Error::OutcomeUnknown`] if the log failed before all was on disk; [`Error::Misuse`] inside
    /// a transaction of this database where calls are logged first.
    pub fn snapshot<T>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.open_snapshot().read(body)
    }

    /// Like [`Database::snapshot`], with an error of any type: the inner result is the closure's.
    ///
    /// # Errors
    /// As for [`Database::snapshot`].
    pub fn try_snapshot<T, E: From<Abort>>(
        &self,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        self.open_snapshot().try_read(body)
    }

    /// Opens a snapshot to be read several times, or by several threads. Every read sees the same
    /// state. A snapshot that may not be opened here, see [`Database::snapshot`], is refused at
    /// each read.
    pub fn open_snapshot(&self) -> Snapshot {
        Snapshot { database: self.clone(), state: self.shared.engine.open_snapshot() }
    }
}
