//! Transactions that remove much, on threads beside the workers of a soak test: deleted rows,
//! entries of indexes, undone insertions, and long values that become short.

use super::child::is_refused;
use super::data::{CHURNED, GROUP, VALUE};
use hyades::{Abort, Column, Database, Error, Row, Session, Transaction};
use serde::{Deserialize, Serialize};

/// How a transaction removes something.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum RemovalKind {
    /// Deletes rows, and inserts as many with other keys.
    Replace,
    /// Deletes rows, and inserts the same rows in the next transaction.
    Same,
    /// Changes the indexed column of rows.
    Index,
    /// Makes long rows shorter or longer.
    Resize,
    /// Inserts rows and aborts.
    Abort,
    /// Inserts rows, rolls back the inserts, and commits.
    RollBack,
}

const KINDS: [RemovalKind; 6] = [
    RemovalKind::Replace,
    RemovalKind::Same,
    RemovalKind::Index,
    RemovalKind::Resize,
    RemovalKind::Abort,
    RemovalKind::RollBack,
];

/// The longest value in bytes.
const LONG: usize = 700;

/// Threads that remove, and how much.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Removals {
    pub kind: RemovalKind,
    /// Rows of each transaction.
    pub rows: u64,
    pub threads: u64,
}

impl Removals {
    pub fn random(rng: &mut fastrand::Rng) -> Removals {
        let rows = [1, 4, 5, 50, 50, 2000, 100_000][rng.usize(0..7)];
        let threads = if rows > 10_000 { 1 } else { [1, 2, 8][rng.usize(0..3)] };
        Removals { kind: KINDS[rng.usize(0..KINDS.len())], rows, threads }
    }

    /// Bound for the bytes of the rows, the rows of two transactions of each thread, and the log
    /// records of these transactions.
    pub fn memory(&self) -> u64 {
        self.threads * self.rows * 12 * (LONG as u64 + 300)
    }

    /// Removes until the database fails. `done` is called after each transaction.
    pub fn run(&self, db: &Database, thread: u64, done: &dyn Fn()) -> Result<(), Error> {
        let base = thread << 40;
        let mut client = RemovingClient { removals: *self, session: db.session()?, base };
        until_admitted(|| client.remove_found())?;
        until_admitted(|| client.insert(base, 0))?;
        for n in 0.. {
            until_admitted(|| client.step(n))?;
            done();
        }
        Ok(())
    }
}

/// Repeats a transaction refused because of memory kept by long transactions.
fn until_admitted(mut run: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        match run() {
            Err(error) if is_refused(&error) => {}
            ran => return ran,
        }
    }
}

/// One thread's transactions, over keys of its own.
struct RemovingClient {
    removals: Removals,
    session: Session,
    base: u64,
}

impl RemovingClient {
    /// Removes the thread's rows left by an earlier run.
    fn remove_found(&mut self) -> Result<(), Error> {
        let (from, to) = ([self.base.into()], [(self.base + (1 << 40) - 1).into()]);
        loop {
            let (removed, _) = self.session.submit(|tx| {
                let rows = tx.scan(CHURNED).from(&from).to(&to).limit(10_000).rows()?;
                let key = |row: &Row<'_>| row.get(Column::<u64>::at(0));
                rows.iter().try_for_each(|row| tx.delete(CHURNED, key(row)).map(drop))?;
                Ok(rows.len())
            })?;
            if removed == 0 {
                return Ok(());
            }
        }
    }

    fn value(&self, n: u64) -> Vec<u8> {
        let long = self.removals.kind == RemovalKind::Resize && n % 2 == 1;
        vec![b'x'; if long { LONG } else { 40 }]
    }

    fn transact(
        &mut self,
        body: impl FnMut(&Transaction<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.session.submit(body).map(drop)
    }

    fn insert(&mut self, from: u64, n: u64) -> Result<(), Error> {
        let (value, rows) = (self.value(n), self.removals.rows);
        self.transact(|tx| Ok(insert_all(tx, from..from + rows, n, &value)?))
    }

    fn step(&mut self, n: u64) -> Result<(), Error> {
        let (value, rows, kind) = (self.value(n), self.removals.rows, self.removals.kind);
        let first = self.base + if kind == RemovalKind::Replace { n * rows } else { 0 };
        let (keys, others) = (first..first + rows, first + rows..first + 2 * rows);
        match kind {
            RemovalKind::Replace => self.transact(|tx| {
                delete_all(tx, keys.clone())?;
                Ok(insert_all(tx, others.clone(), n, &value)?)
            }),
            RemovalKind::Same => {
                self.transact(|tx| Ok(delete_all(tx, keys.clone())?))?;
                self.insert(first, n)
            }
            RemovalKind::Index | RemovalKind::Resize => self.transact(|tx| {
                for key in keys.clone() {
                    let sets = [GROUP.set(n * 7 % 1_000_003), VALUE.set(&value[..])];
                    tx.update(CHURNED, key, &sets)?;
                }
                Ok(())
            }),
            RemovalKind::Abort => {
                let aborted = self.transact(|tx| {
                    insert_all(tx, others.clone(), n, &value)?;
                    Err(Abort::User(7).into())
                });
                if matches!(aborted, Err(Error::Aborted(Abort::User(7)))) {
                    Ok(())
                } else {
                    aborted
                }
            }
            RemovalKind::RollBack => self.transact(|tx| {
                let before = tx.savepoint();
                insert_all(tx, others.clone(), n, &value)?;
                tx.rollback_to(before)?;
                Ok(())
            }),
        }
    }
}

fn delete_all(tx: &Transaction<'_>, mut keys: std::ops::Range<u64>) -> Result<(), Abort> {
    keys.try_for_each(|key| tx.delete(CHURNED, key).map(drop))
}

fn insert_all(
    tx: &Transaction<'_>,
    mut keys: std::ops::Range<u64>,
    n: u64,
    value: &[u8],
) -> Result<(), Abort> {
    keys.try_for_each(|key| {
        tx.insert(CHURNED, &[key.into(), n.into(), (n % 7).into(), value.into()]).map(drop)
    })
}
