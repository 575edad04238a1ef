//! Calls run by the database's own threads.

use super::Database;
use crate::error::Error;
use crate::posted::PostedCall;
use crate::transaction::procedure::{ProcedureId, encode_arguments};
use serde::Serialize;

impl Database {
    /// Calls a procedure on a thread of the database, without waiting for its end. The call is run
    /// like a call of a [`Session`](crate::Session), as often as it meets conflicts; calls posted
    /// one after the other may run in another order. `R` is the type of the result.
    ///
    /// Returns at once, except where calls are logged before they run: there the
    /// call is logged. There the function waits, for the device and for no other call, in three
    /// cases: while the buffers of all streams are full, because calls come faster than the devices
    /// write; while a checkpoint writes out more than
    /// [`CheckpointSettings::buffer_bytes`](crate::CheckpointSettings) of overwritten rows; and
    /// while other threads log calls, if the program's sessions occupy all slots of the log. A
    /// failure of the log ends the waiting.
    ///
    /// At most [`Builder::posted_calls`](crate::Builder::posted_calls) may be open: posted, and not
    /// yet ended. [`Builder::post_threads`](crate::Builder::post_threads) run the calls. Closing a
    /// database runs the open calls first.
    ///
    /// ```
    /// use hyades::{Abort, Column, Database, PostedCall, Schema, Transaction, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let mut builder = Database::builder();
    /// let schema = Schema::new("stock").column("item", Type::I64).column("count", Type::I64);
    /// let stock = builder.table(schema.primary_key(&["item"]));
    /// let add = builder.procedure("add", 1, move |tx: &Transaction<'_>, (item, n): (i64, i64)| {
    ///     let count = tx.get(stock, item)?.map_or(0, |row| row.get(Column::<i64>::at(1))) + n;
    ///     tx.upsert(stock, &[item.into(), count.into()])?;
    ///     Ok(count)
    /// });
    /// let db = builder.open(dir)?;
    /// let calls: Result<Vec<PostedCall<i64>>, _> =
    ///     (1..=9i64).map(|n| db.post(add, &(7i64, n))).collect();
    /// // Each returns once its outcome is on disk.
    /// let counts: Result<Vec<i64>, _> = calls?.into_iter().map(PostedCall::wait).collect();
    /// assert_eq!(counts?.into_iter().max(), Some(45));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyPosted`] if too many are open; [`Error::Misuse`] if the procedure is not
    /// this database's, the arguments cannot be encoded or the database was closed; [`Error::Log`]
    /// if the program's own sessions occupy all slots of the log; where calls are logged
    /// before they run [`Error::Poisoned`] if the log has failed.
    /// Then nothing was done. Everything else is an outcome of the call, see [`PostedCall::wait`].
    pub fn post<A: Serialize + ?Sized, R>(
        &self,
        procedure: ProcedureId,
        arguments: &A,
    ) -> Result<PostedCall<R>, Error> {
        let mut bytes = Vec::new();
        encode_arguments(arguments, &mut bytes)?;
        self.shared.posted.post(procedure, bytes)
    }

    /// Runs one posted call on the calling thread. Returns false if no call may run: for a database
    /// without [`Builder::post_threads`](crate::Builder::post_threads).
    ///
    /// # Errors
    /// [`Error::Misuse`] inside a transaction of this database; [`Error::Log`] if all slots of the
    /// log are occupied. Then no call was taken from the queue. The outcome of the call is reported
    /// separately.
    pub fn run_posted(&self) -> Result<bool, Error> {
        self.shared.posted.run_one()
    }
}
