//! The script of a life: always the same, by a single thread.

use crate::world::{LifePhase, Process};
use hyades_deuteronomy::torture::{ExecutedInLife, KeyByte, KeyState, bytes, number};
use hyades_deuteronomy::{Database, Error, Session, Transaction};
use std::ops::{Bound, Range};

/// All keys ever written.
pub const KEYS: [KeyByte; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The bytes of a long value: two long values do not fit into a frame.
const LONG: usize = 2050;

/// A running transaction.
struct ScriptedTransaction<'s> {
    tx: Transaction<'s>,
    executed: ExecutedInLife,
}

impl<'s> ScriptedTransaction<'s> {
    fn begin(session: &'s mut Session) -> Result<Self, Error> {
        let tx = session.begin()?;
        Ok(Self { executed: ExecutedInLife::begun(tx.timestamp()), tx })
    }

    fn read(&mut self, key: KeyByte) -> Result<(), Error> {
        let read = self.tx.get(&[key])?;
        self.executed.reads.push((key, read.as_deref().map(number)));
        Ok(())
    }
}

/// A life, and its transactions.
pub struct ScriptedLife<'d> {
    database: &'d Database,
    process: &'d Process,
    /// The ended transactions.
    pub executed: Vec<ExecutedInLife>,
    /// The number of the next write.
    pub next_write: u64,
    /// The bytes of the log truncated by checkpoints.
    pub truncated: u64,
}

impl<'d> ScriptedLife<'d> {
    pub fn new(database: &'d Database, process: &'d Process, next_write: u64) -> Self {
        Self { database, process, executed: Vec::new(), next_write, truncated: 0 }
    }

    /// Gives a key a value with `padding` bytes of padding, or deletes the key.
    fn write(
        &mut self,
        running: &mut ScriptedTransaction<'_>,
        key: KeyByte,
        padding: Option<usize>,
    ) -> Result<(), Error> {
        let written = padding.map(|_| self.next_write);
        match padding {
            Some(padding) => running.tx.put(&[key], &bytes(self.next_write, padding))?,
            None => running.tx.delete(&[key])?,
        }
        self.next_write += 1;
        running.executed.writes.insert(key, written);
        Ok(())
    }

    fn commit(&mut self, running: ScriptedTransaction<'_>) -> Result<(), Error> {
        let ScriptedTransaction { tx, mut executed } = running;
        let (ticket, committed) = match tx.commit() {
            Ok(ticket) => (Some(ticket), Ok(())),
            Err(error) => (None, Err(error)),
        };
        executed.ticket = ticket;
        self.executed.push(executed);
        committed
    }

    /// The writes count for nothing. The transaction may tell its reads.
    fn abort(&mut self, running: ScriptedTransaction<'_>) {
        let ScriptedTransaction { tx, mut executed } = running;
        executed.writes.clear();
        executed.ticket = Some(tx.abort());
        self.executed.push(executed);
    }

    /// Runs a transaction with reads of keys, then writes of other keys.
    fn transact(
        &mut self,
        session: &mut Session,
        reads: &[KeyByte],
        writes: &[(KeyByte, Option<usize>)],
    ) -> Result<(), Error> {
        let mut running = ScriptedTransaction::begin(session)?;
        reads.iter().try_for_each(|key| running.read(*key))?;
        for (key, padding) in writes {
            self.write(&mut running, *key, *padding)?;
        }
        self.commit(running)
    }

    /// Writes and syncs a batch of a stream, and looks for acknowledged transactions.
    fn flush(&mut self, stream: usize) -> Result<(), Error> {
        self.database.log().step(stream);
        self.executed.iter_mut().for_each(ExecutedInLife::look);
        let poisoned = self.database.log().poisoned();
        poisoned.map_or(Ok(()), |poisoned| Err(hyades_wal::Error::from(poisoned).into()))
    }

    fn streams(&self) -> Range<usize> {
        0..self.database.log().streams()
    }

    fn flush_all(&mut self) -> Result<(), Error> {
        self.streams().try_for_each(|stream| self.flush(stream))
    }

    fn apply(&mut self) -> Result<(), Error> {
        self.database.step_proxy().map(drop)
    }

    fn checkpoint(&mut self) -> Result<(), Error> {
        self.process.enter(LifePhase::Checkpoint);
        self.truncated += self.database.checkpoint()?;
        self.process.enter(LifePhase::Work);
        Ok(())
    }

    /// Each transaction reads a write of another session; the write may be durable later, or never.
    fn long_values(&mut self, sessions: &mut [Session; 2], turns: u8) -> Result<(), Error> {
        for turn in 0..turns {
            let (key, before) = (turn % 8, (turn + 7) % 8);
            // The next time another session writes the key, into another stream.
            let session = usize::from((turn + turn / 8) % 2);
            self.transact(&mut sessions[session], &[before], &[(key, Some(LONG))])?;
            if turn % 3 != 0 {
                self.flush(session)?;
            }
            if turn % 4 == 3 {
                self.apply()?;
            }
        }
        self.flush_all()?;
        self.apply()
    }
}

/// The first life, of a new database, up to the close.
pub fn first_life(life: &mut ScriptedLife<'_>) -> Result<(), Error> {
    let database = life.database;
    let mut sessions = [database.session()?, database.session()?];
    let mut third = database.session()?;
    life.long_values(&mut sessions, 14)?;
    // Transactions younger than `old` wait, and hold the resume point back.
    let mut old = ScriptedTransaction::begin(&mut third)?;
    old.read(0)?;
    life.write(&mut old, 7, Some(100))?;
    life.transact(&mut sessions[0], &[1], &[(0, Some(300)), (2, None)])?;
    life.transact(&mut sessions[1], &[0], &[(1, Some(300))])?;
    life.flush_all()?;
    life.apply()?;
    life.checkpoint()?;
    life.write(&mut old, 6, Some(100))?;
    life.commit(old)?;
    // In parts.
    let all = [3, 4, 5, 6].map(|key| (key, Some(LONG)));
    life.transact(&mut sessions[0], &[7], &all)?;
    life.flush_all()?;
    let mut aborted = ScriptedTransaction::begin(&mut sessions[1])?;
    aborted.read(3)?;
    life.write(&mut aborted, 6, Some(100))?;
    life.abort(aborted);
    life.transact(&mut sessions[1], &[3], &[(4, None)])?;
    life.flush_all()?;
    life.apply()?;
    life.long_values(&mut sessions, 6)?;
    // A deletion overtakes an earlier write, left to redo by the checkpoint.
    life.transact(&mut sessions[0], &[], &[(4, Some(50))])?;
    let written_to = life.streams().find(|stream| database.log().backlog(*stream) > 0);
    life.transact(&mut sessions[1], &[], &[(4, None)])?;
    for stream in life.streams().filter(|stream| Some(*stream) != written_to) {
        life.flush(stream)?;
    }
    life.checkpoint()?;
    life.flush_all()?;
    life.transact(&mut sessions[0], &[5], &[(5, Some(200))])?;
    life.flush(0)?;
    life.transact(&mut sessions[1], &[5], &[(6, Some(200)), (0, None)])?;
    life.flush(1)?;
    life.apply()?;
    // The last transaction is left to the end.
    life.transact(&mut sessions[0], &[6], &[(7, Some(200))])
}

/// A later life, up to the close.
pub fn later_life(life: &mut ScriptedLife<'_>) -> Result<(), Error> {
    let database = life.database;
    // As the thread of the proxy does after a restart.
    life.checkpoint()?;
    let mut sessions = [database.session()?, database.session()?];
    life.transact(&mut sessions[0], &[0], &[(1, Some(100))])?;
    life.flush(0)?;
    life.transact(&mut sessions[1], &[1, 4], &[(0, Some(100)), (3, None)])?;
    life.flush_all()?;
    life.apply()?;
    life.transact(&mut sessions[0], &[3], &[(2, Some(100))])
}

/// The state; a scan and single reads agree on the state.
pub fn read_all(database: &Database) -> Result<KeyState, Error> {
    let mut session = database.session()?;
    let mut tx = session.begin()?;
    let rows = tx.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX)?;
    let scanned: KeyState = rows.iter().map(|(key, value)| (key[0], Some(number(value)))).collect();
    let read = KEYS.map(|key| Ok((key, tx.get(&[key])?.as_deref().map(number))));
    let read = read.into_iter().collect::<Result<KeyState, Error>>()?;
    let with_value = read.iter().filter(|(_, written)| written.is_some());
    let with_value: KeyState = with_value.map(|(key, written)| (*key, *written)).collect();
    assert_eq!(scanned, with_value, "a scan and single reads differ");
    Ok(read)
}
