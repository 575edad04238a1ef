//! Walks over hash tables, in steps, possibly in separate transactions.

use super::access::{Access, Table, Transaction};
use crate::error::Abort;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::value::Value;

/// The goal and the limits of a step of a walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkStep<'k> {
    /// The cursor at which the step begins.
    pub cursor: u64,
    /// The first values of the keys to read.
    pub prefix: &'k [Value<'k>],
    /// The step ends after reading this many rows,
    pub limit: usize,
    /// or after looking at this many buckets and rows.
    pub steps: usize,
    /// Columns to read.
    pub columns: Columns,
}

/// The findings of a step of a walk.
#[derive(Clone, Copy)]
pub struct Walked<'t> {
    /// The rows, in no order.
    pub rows: &'t [Row<'t>],
    /// The cursor of the next step; 0 if this step was the last.
    pub next: u64,
    /// The number of buckets and rows looked at, about.
    pub steps: usize,
}

/// A step of a walk, to be configured; [`Walk::rows`] takes it. See [`Transaction::walk`].
pub struct Walk<'t, 'k> {
    access: &'t dyn Access,
    table: Table,
    step: WalkStep<'k>,
}

impl<'t> Transaction<'t> {
    /// Starts a step of a walk over the rows of a hash table, in the order of the index. The walk
    /// begins with cursor 0; each step returns the cursor of the next step, and 0 at the end. Steps
    /// may be taken in different transactions and sessions, at any time: a cursor is a number below
    /// 2 to the power of 53, and the database keeps nothing for it.
    ///
    /// A row that is there from the first step to the last is returned, and, unless the database
    /// was opened anew in between, exactly once, however the table grows or shrinks. Rows inserted
    /// or deleted meanwhile are returned or not. The rows returned by a step are reads like any
    /// other, valid when the transaction commits. Rows *not* found are no reads: unlike a range, a
    /// step is not protected against phantoms, and so conflicts with no insert.
    ///
    /// The time of a step is bounded by its [limits](Walk::limit), whatever the size of the table.
    ///
    /// ```
    /// # use hyades::{Column, Database, Schema, Type};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut builder = Database::builder();
    /// # let schema = Schema::new("words").column("w", Type::Text).primary_key(&["w"]).hash();
    /// # let words = builder.table(schema);
    /// # let db = builder.open(dir.path())?;
    /// # db.transact(|tx| Ok(tx.insert(words, &["durable".into()])?))?;
    /// let (mut cursor, mut bytes) = (0, 0);
    /// loop {
    ///     let (more, next) = db.transact(|tx| {
    ///         let step = tx.walk(words, cursor).limit(100).rows()?;
    ///         let lengths = step.rows.iter().map(|row| row.get(Column::<str>::at(0)).len());
    ///         Ok((lengths.sum::<usize>(), step.next))
    ///     })?;
    ///     (bytes, cursor) = (bytes + more, next);
    ///     if cursor == 0 {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(bytes, 7);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk<'k>(&self, table: Table, cursor: u64) -> Walk<'t, 'k> {
        let (prefix, columns) = (&[][..], Columns::ALL);
        let step = WalkStep { cursor, prefix, limit: 1_000, steps: 10_000, columns };
        Walk { access: self.0, table, step }
    }
}

impl<'t, 'k> Walk<'t, 'k> {
    /// Only keys that start with these values. Other keys are passed, and take part of the time.
    pub fn prefix(mut self, key: &'k [Value<'k>]) -> Self {
        self.step.prefix = key;
        self
    }

    /// Ends at the end of the bucket in which the step has read `n` rows: it may read some more.
    /// The default is 1,000.
    pub fn limit(mut self, n: usize) -> Self {
        self.step.limit = n;
        self
    }

    /// Ends after a look at about `n` buckets and rows, whatever was found; a bucket holds a few
    /// rows, or none. The default is 10,000.
    pub fn steps(mut self, n: usize) -> Self {
        self.step.steps = n;
        self
    }

    /// Reads only these columns.
    pub fn columns(mut self, columns: Columns) -> Self {
        self.step.columns = columns;
        self
    }

    /// Takes the step. A number beyond all cursors is the end.
    ///
    /// # Errors
    /// [`Abort::UnknownHandle`] if the table's primary index is ordered: scan it.
    /// [`Abort::NotInCall`] in a procedure whose call may be logged and repeated: the order of an
    /// index is not the same at replay.
    pub fn rows(self) -> Result<Walked<'t>, Abort> {
        self.access.walk(self.table, &self.step)
    }
}
