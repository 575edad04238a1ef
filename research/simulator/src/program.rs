//! Transactions as data, and the reads of each. `random` draws the transactions.
//!
//! Every write holds a digest of all that the program has read so far. A command replayed on other
//! rows than in the first run therefore leaves other content, which the check finds.

mod random;

pub use random::{random, reads_everything};

use crate::schema::{self, At, Content, Keys, Tables};
use hyades::{Abort, Row, Transaction};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A transaction as data: the argument of the only procedure, and the body of closures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Unique in a history. Written to every row as its version.
    pub id: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether the program also inserts a marker row of its own.
    pub mark: bool,
    /// Whether the program aborts at the end.
    pub give_up: bool,
    /// Whether the program returns a duplicate key as an error, where other programs go on.
    pub strict: bool,
}

impl Program {
    /// Whether the program writes nothing.
    pub fn only_reads(&self) -> bool {
        let reads = |step: &Step| {
            matches!(
                step,
                Step::Get(_)
                    | Step::Scan { .. }
                    | Step::Group { .. }
                    | Step::All { .. }
                    | Step::Pair { write: false, .. }
            )
        };
        !self.mark && self.steps.iter().all(reads)
    }
}

/// One step of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Reads a row.
    Get(At),
    /// Reads a row, then writes all of it.
    Put(At),
    /// Writes all of a row without a read.
    Blind(At),
    /// Writes a row without learning whether the row existed (a blind write).
    Store(At),
    /// Changes columns of a row without a read, if the row exists.
    Change(At),
    /// Inserts a row.
    Insert(At),
    /// Deletes a row.
    Delete(At),
    /// Reads a key range of an ordered table.
    Scan {
        /// The table.
        table: u32,
        /// The first key.
        from: i64,
        /// The last key.
        to: i64,
        /// Whether to scan downwards from the end.
        descending: bool,
        /// Maximum number of rows.
        limit: usize,
    },
    /// Reads a group through the secondary index.
    Group {
        /// The table.
        table: u32,
        /// The group.
        group: i64,
    },
    /// Writes all rows of a key range without a read.
    Fill {
        /// The table.
        table: u32,
        /// The first key.
        from: i64,
        /// Number of keys.
        count: i64,
    },
    /// Deletes all rows of a key range.
    Clear {
        /// The table.
        table: u32,
        /// The first key.
        from: i64,
        /// Number of keys.
        count: i64,
    },
    /// Reads every row of a table.
    All {
        /// The table.
        table: u32,
    },
    /// Reads the two rows always written together, panics unless one transaction wrote both, and
    /// may write both.
    Pair {
        /// The table.
        table: u32,
        /// Whether the step writes the rows.
        write: bool,
    },
    /// Steps under a savepoint, which may be rolled back at the end.
    Attempt {
        /// The steps; none of them an `Attempt`.
        steps: Vec<Step>,
        /// Whether their effects are kept.
        keep: bool,
    },
}

/// The result of the read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadResult {
    /// The row as written by this program.
    Version(u64),
    /// No row.
    Absent,
    /// Some row, its writer unknown.
    Present,
    /// Nothing was read: the row was written blindly.
    Nothing,
}

/// The effect of a program on a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WriteTrace {
    /// The knowledge of the row before.
    pub before: ReadResult,
    /// The content left; `None` if the program deleted the row.
    pub after: Option<Content>,
}

/// The reads and writes of a transaction in its last attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// Rows read and not written by the transaction itself before.
    pub reads: Vec<(At, ReadResult)>,
    /// Rows written.
    pub writes: BTreeMap<At, WriteTrace>,
    /// Whether the transaction did only blind writes. It may then survive although the overwritten
    /// writers are lost.
    pub blind: bool,
}

thread_local! {
    /// The trace of the last program on this thread. A procedure that aborts returns nothing
    /// itself.
    static LAST: RefCell<Trace> = RefCell::default();
}

/// Takes the reads and writes of the last program on this thread.
pub fn take_trace() -> Trace {
    LAST.take()
}

fn mix(sum: u64, value: u64) -> u64 {
    let mixed = (sum ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

struct Running<'t, 'p> {
    tx: &'t Transaction<'t>,
    tables: Tables,
    program: &'p Program,
    between: &'p mut dyn FnMut(),
    sum: u64,
    trace: Trace,
}

/// Runs a program. [`take_trace`] then returns the reads and writes.
pub fn run(tx: &Transaction<'_>, tables: Tables, program: &Program) -> Result<(), Abort> {
    run_with(tx, tables, program, &mut || {})
}

/// As [`run`]. `between` is called before each step and may run other transactions.
pub fn run_with(
    tx: &Transaction<'_>,
    tables: Tables,
    program: &Program,
    between: &mut dyn FnMut(),
) -> Result<(), Abort> {
    let (sum, trace) = (program.id, Trace::default());
    let mut running = Running { tx, tables, program, between, sum, trace };
    let mut result = running.steps(&program.steps);
    if result.is_ok() && program.mark {
        result = running.insert(tables.mark(program.id));
    }
    if result.is_ok() && program.give_up {
        result = Err(Abort::User(program.id as i64));
    }
    let mut trace = running.trace;
    if result.is_err() {
        // The writes of an aborted program are gone. The overwritten versions count as read.
        for (at, wrote) in std::mem::take(&mut trace.writes) {
            trace.reads.push((at, wrote.before));
        }
    }
    trace.blind = result.is_ok() && !program.mark && !tables.indexed && are_stores(&program.steps);
    // A row that was inserted and removed again only counts as a read of a missing row.
    trace.writes.retain(|at, wrote| {
        let nothing = wrote.before == ReadResult::Absent && wrote.after.is_none();
        if nothing {
            trace.reads.push((*at, ReadResult::Absent));
        }
        !nothing
    });
    LAST.set(trace);
    result
}

impl Running<'_, '_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), Abort> {
        steps.iter().for_each(|step| self.announce(step));
        steps.iter().try_for_each(|step| self.step(step))
    }

    /// Prefetches the index positions of about half of the steps, ascending or descending. A
    /// prefetch must not change any result. Tables without an ordered index ignore prefetches.
    fn announce(&self, step: &Step) {
        match *step {
            Step::Blind(at) | Step::Store(at) | Step::Insert(at) if at.1 % 4 < 2 => {
                let (table, descending) = (at.0, at.1 % 4 == 1);
                let keys = Keys { table, from: at.1, to: at.1, descending };
                schema::announce(self.tx, self.tables, keys);
                schema::announce_group(self.tx, table, at.1 % 3, descending);
            }
            Step::Scan { table, from, to, descending, .. } if from % 2 == 0 => {
                let keys = Keys { table, from, to, descending };
                schema::announce(self.tx, self.tables, keys);
            }
            Step::Group { table, group } if group % 2 == 0 => {
                schema::announce_group(self.tx, table, group, false);
            }
            _ => {}
        }
    }

    fn saw(&mut self, at: At, saw: ReadResult) {
        if saw != ReadResult::Nothing && !self.trace.writes.contains_key(&at) {
            self.trace.reads.push((at, saw));
        }
    }

    fn absorb(&mut self, at: At, content: Option<Content>) {
        self.sum = mix(self.sum, at.1 as u64);
        let Some(content) = content else { return };
        for value in [content.version, content.digest, content.group as u64] {
            self.sum = mix(self.sum, value);
        }
        if content.version != self.program.id {
            self.saw(at, ReadResult::Version(content.version));
        }
    }

    fn see(&mut self, at: At, row: Option<&Row<'_>>) {
        let content = row.map(schema::content);
        if content.is_none() {
            self.saw(at, ReadResult::Absent);
        }
        self.absorb(at, content);
    }

    /// The content of the next write. Its digest covers all reads so far.
    fn next(&mut self, at: At) -> Content {
        self.sum = mix(self.sum, at.1 as u64 + 1);
        let group = (self.sum >> 7) % schema::GROUPS as u64;
        Content { version: self.program.id, digest: self.sum, group: group as i64 }
    }

    fn wrote(&mut self, at: At, found: ReadResult, after: Option<Content>) {
        let known = self.trace.reads.iter().rev().find(|(read, _)| *read == at);
        let before = match known {
            Some((_, ReadResult::Version(version))) => ReadResult::Version(*version),
            Some((_, read)) if found == ReadResult::Nothing => *read,
            _ => found,
        };
        let wrote = self.trace.writes.entry(at).or_insert(WriteTrace { before, after });
        wrote.after = after;
    }

    fn insert(&mut self, at: At) -> Result<(), Abort> {
        let content = self.next(at);
        match schema::insert(self.tx, self.tables, at, content) {
            Ok(()) => {
                self.wrote(at, ReadResult::Absent, Some(content));
                Ok(())
            }
            Err(abort @ Abort::DuplicateKey { .. }) => {
                self.saw(at, ReadResult::Present);
                self.sum = mix(self.sum, 3);
                if self.program.strict { Err(abort) } else { Ok(()) }
            }
            Err(abort) => Err(abort),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Abort> {
        let tx = self.tx;
        (self.between)();
        match step {
            Step::Get(at) => {
                let row = schema::get(tx, self.tables, *at)?;
                self.see(*at, row.as_ref());
            }
            Step::Put(at) => {
                let row = schema::get(tx, self.tables, *at)?;
                self.see(*at, row.as_ref());
                self.upsert(*at)?;
            }
            Step::Blind(at) => self.upsert(*at)?,
            Step::Store(at) => {
                let content = self.next(*at);
                schema::put(tx, self.tables, *at, content)?;
                // With an index a put reads the replaced row.
                let read = [ReadResult::Nothing, ReadResult::Present];
                self.wrote(*at, read[usize::from(self.tables.indexed)], Some(content));
            }
            Step::Change(at) => {
                let content = self.next(*at);
                if schema::update(tx, self.tables, *at, content)? {
                    self.wrote(*at, ReadResult::Present, Some(content));
                } else {
                    self.saw(*at, ReadResult::Absent);
                    self.sum = mix(self.sum, 5);
                }
            }
            Step::Insert(at) => self.insert(*at)?,
            Step::Delete(at) => self.delete(*at)?,
            Step::Scan { .. } | Step::Group { .. } => self.scan(step)?,
            Step::Fill { table, from, count } => {
                (*from..from + count).try_for_each(|key| self.upsert((*table, key)))?;
            }
            Step::Clear { table, from, count } => {
                (*from..from + count).try_for_each(|key| self.delete((*table, key)))?;
            }
            Step::All { table } => {
                self.read_all(*table)?;
                (self.between)();
            }
            Step::Pair { table, write } => self.pair(*table, *write)?,
            Step::Attempt { steps, keep } => {
                let (savepoint, writes) = (tx.savepoint(), self.trace.writes.clone());
                self.steps(steps)?;
                if !keep {
                    tx.rollback_to(savepoint)?;
                    let gone = std::mem::replace(&mut self.trace.writes, writes);
                    for (at, wrote) in gone {
                        self.saw(at, wrote.before);
                    }
                }
            }
        }
        Ok(())
    }

    fn delete(&mut self, at: At) -> Result<(), Abort> {
        if schema::delete(self.tx, self.tables, at)? {
            self.wrote(at, ReadResult::Present, None);
        } else {
            self.saw(at, ReadResult::Absent);
            self.sum = mix(self.sum, 7);
        }
        Ok(())
    }

    fn read_all(&mut self, table: u32) -> Result<(), Abort> {
        if table == schema::ORDERED {
            let (from, to) = (0, i64::MAX);
            return self.scan(&Step::Scan {
                table,
                from,
                to,
                descending: false,
                limit: usize::MAX,
            });
        }
        for key in 0..self.tables.keys {
            let row = schema::get(self.tx, self.tables, (table, key))?;
            self.see((table, key), row.as_ref());
        }
        Ok(())
    }

    fn pair(&mut self, table: u32, write: bool) -> Result<(), Abort> {
        let pair = self.tables.pair(table);
        let mut writers = [None; 2];
        for (at, writer) in pair.into_iter().zip(&mut writers) {
            let row = schema::get(self.tx, self.tables, at)?;
            *writer = row.as_ref().map(|row| schema::content(row).version);
            self.see(at, row.as_ref());
            (self.between)();
        }
        if writers[0] != writers[1] {
            // As a body that asserts an invariant, but without a printed message for each panic.
            std::panic::resume_unwind(Box::new("a body saw an inconsistent snapshot"));
        }
        if write {
            pair.into_iter().try_for_each(|at| self.upsert(at))?;
        }
        Ok(())
    }

    fn upsert(&mut self, at: At) -> Result<(), Abort> {
        let content = self.next(at);
        let replaced = schema::upsert(self.tx, self.tables, at, content)?;
        let found = if replaced { ReadResult::Present } else { ReadResult::Absent };
        self.wrote(at, found, Some(content));
        self.sum = mix(self.sum, u64::from(replaced));
        Ok(())
    }

    fn scan(&mut self, step: &Step) -> Result<(), Abort> {
        match *step {
            Step::Scan { table, from, to, descending, limit } => {
                let keys = Keys { table, from, to, descending };
                let rows = schema::scan(self.tx, self.tables, keys, limit)?;
                let key = |row| schema::key(self.tables, table, row);
                let keys: Vec<i64> = rows.iter().map(key).collect();
                for (row, key) in rows.iter().zip(&keys) {
                    self.see((table, *key), Some(row));
                }
                if rows.len() < limit {
                    let there: BTreeSet<i64> = keys.iter().copied().collect();
                    for key in (from..=to.min(self.tables.keys - 1)).filter(|k| !there.contains(k))
                    {
                        self.saw((table, key), ReadResult::Absent);
                    }
                }
            }
            Step::Group { table, group } => {
                for row in schema::group(self.tx, table, group)? {
                    let key = schema::key(self.tables, table, row);
                    self.see((table, key), Some(row));
                }
            }
            _ => unreachable!("it scans nothing"),
        }
        Ok(())
    }
}

fn are_stores(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step {
        Step::Store(_) => true,
        Step::Attempt { steps, .. } => are_stores(steps),
        _ => false,
    })
}
