//! The work of a life between its opening and its end: transactions, flushes, the proxy, and
//! checkpoints, interleaved by a single thread.

use super::drawn::{PAGES, SESSIONS};
use super::history::{ExecutedInLife, KeyByte, ScannedKeys, bytes, number};
use super::keys::KEYS;
use super::lives::Lives;
use super::reading::{OpenLongSnapshot, OpenSnapshot};
use crate::{Database, Error, ScanOrder, Session, Transaction, Value};
use std::future::Future;
use std::ops::{Bound, ControlFlow};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const LANES: usize = 4;
/// How often each session runs a transaction in a life.
const ROUNDS: usize = 4;

/// A running transaction.
struct OpenInLife<'s> {
    tx: Transaction<'s>,
    executed: ExecutedInLife,
}

fn begun(tx: Transaction<'_>) -> OpenInLife<'_> {
    OpenInLife { executed: ExecutedInLife::begun(tx.timestamp()), tx }
}

/// Reads a key, every second key as a future. Where a single thread does all work, the future never
/// waits.
fn get(tx: &mut Transaction<'_>, key: KeyByte, bytes: &[u8]) -> Result<Option<Value>, Error> {
    if key.is_multiple_of(2) {
        return tx.get(bytes);
    }
    match pin!(tx.get_async(bytes)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read,
        Poll::Pending => panic!("a read waits, and nothing else runs"),
    }
}

impl OpenInLife<'_> {
    fn note_read(&mut self, key: KeyByte, read: Option<u64>) {
        if !self.executed.writes.contains_key(&key) {
            self.executed.reads.push((key, read));
        }
    }
}

impl Lives<'_> {
    /// Interleaves transactions until all are done, the log fails, or the steps are used up.
    pub fn work(&mut self, database: &Database) {
        let sessions = (0..SESSIONS).map(|_| database.session().expect("there are enough"));
        let mut sessions: Vec<Session> = sessions.collect();
        let mut left = self.rng.usize(0..1500);
        for _ in 0..ROUNDS {
            self.work_round(database, &mut sessions, &mut left);
        }
    }

    /// Interleaves transactions until each session has run a transaction, the log fails, or the
    /// steps are used up.
    fn work_round(&mut self, database: &Database, sessions: &mut [Session], left: &mut usize) {
        let mut fresh = sessions.iter_mut();
        let mut lanes: [Option<OpenInLife<'_>>; LANES] = Default::default();
        let mut reading: Option<OpenSnapshot<'_>> = None;
        let mut reading_long: Option<OpenLongSnapshot> = None;
        while *left > 0 && database.log().poisoned().is_none() {
            *left -= 1;
            match self.rng.u8(0..100) {
                0..8 => {
                    database.log().step(self.rng.usize(0..database.log().streams()));
                }
                8..14 => {
                    if let Err(error) = database.step_proxy() {
                        self.note(&error);
                    }
                }
                14..15 => match database.checkpoint() {
                    Ok(truncated) => {
                        self.met.checkpoints += 1;
                        self.met.truncated += truncated;
                    }
                    Err(error) => self.note(&error),
                },
                15..18 => self.look(),
                18..26 => {
                    let went_on = match reading.take() {
                        Some(open) => self.read_on(open),
                        None => fresh.next().map(OpenSnapshot::begin).transpose(),
                    };
                    match went_on {
                        Ok(open) => reading = open,
                        Err(error) => self.note(&error),
                    }
                }
                26..30 if self.drawn.takes_long_snapshots() => {
                    let went_on = match reading_long.take() {
                        Some(open) => self.read_long(open),
                        None => OpenLongSnapshot::begin(database).map(Some),
                    };
                    match went_on {
                        Ok(open) => reading_long = open,
                        Err(error) => self.note(&error),
                    }
                }
                _ => {
                    let lane = &mut lanes[self.rng.usize(0..LANES)];
                    match lane.take() {
                        None => match fresh.next().map(Session::begin) {
                            Some(Ok(tx)) => *lane = Some(begun(tx)),
                            Some(Err(error)) => self.note(&error),
                            None if lanes.iter().all(Option::is_none) => return,
                            None => {}
                        },
                        Some(running) => *lane = self.go_on(running),
                    }
                }
            }
        }
    }

    fn read_on<'s>(&mut self, open: OpenSnapshot<'s>) -> Result<Option<OpenSnapshot<'s>>, Error> {
        let executed = &mut self.history.executed;
        let open = open.go_on(executed, &self.drawn.keys, &mut self.rng)?;
        self.met.snapshots += usize::from(open.is_none());
        Ok(open)
    }

    fn read_long(&mut self, open: OpenLongSnapshot) -> Result<Option<OpenLongSnapshot>, Error> {
        let open = open.go_on(&mut self.history.executed, &self.drawn.keys, &mut self.rng)?;
        self.met.long_snapshots += usize::from(open.is_none());
        Ok(open)
    }

    fn draw_key(&mut self) -> KeyByte {
        self.rng.usize(0..KEYS) as KeyByte
    }

    /// Returns the next value to write, and its number in a history.
    fn draw_write(&mut self) -> (u64, Vec<u8>) {
        match self.drawn.draw_value(&mut self.rng) {
            0 => {
                self.met.empty_values += 1;
                (number(&[]), Vec::new())
            }
            len => {
                self.met.large_values += usize::from(len >= PAGES);
                let written = self.next_write;
                self.next_write += 1;
                (written, bytes(written, len - 8))
            }
        }
    }

    /// Scans from a key on, in either order, to a limit or until the closure has enough.
    fn scan(&mut self, running: &mut OpenInLife<'_>, from: KeyByte) -> Result<(), Error> {
        let (to, limit) = (self.draw_key(), [1, 2, usize::MAX][self.rng.usize(0..3)]);
        let order = [ScanOrder::Ascending, ScanOrder::Descending][self.rng.usize(0..2)];
        let keys = &self.drawn.keys;
        let (lower, upper) = (Bound::Included(keys.bytes(from)), Bound::Excluded(keys.bytes(to)));
        let OpenInLife { tx, executed } = running;
        let rows = match order {
            _ if self.rng.bool() => {
                let mut rows = Vec::new();
                tx.scan_each(lower, upper, order, |row| {
                    rows.push(row);
                    match rows.len() < limit {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                })?;
                rows
            }
            ScanOrder::Ascending => tx.scan(lower, upper, limit)?,
            ScanOrder::Descending => tx.scan_back(lower, upper, limit)?,
        };
        self.met.scans += 1;
        let rows = keys.rows(&rows);
        let scanned = ScannedKeys { range: from..to, order, limit, rows: &rows };
        scanned.note(&mut executed.reads, &executed.writes);
        Ok(())
    }

    /// Does a single act in a transaction; returns the transaction unless ended.
    fn go_on<'s>(&mut self, mut running: OpenInLife<'s>) -> Option<OpenInLife<'s>> {
        let key = self.draw_key();
        let done = match self.rng.u8(0..20) {
            0..8 => self.read(&mut running, key),
            8..13 => self.put(&mut running, key),
            13 => self.scan(&mut running, key),
            14 => running.tx.delete(self.drawn.keys.bytes(key)).map(|()| {
                running.executed.writes.insert(key, None);
            }),
            15 => self.insert(&mut running, key),
            16 => {
                // The transaction may tell its reads, once durable.
                running.executed.writes.clear();
                let ticket = Some(running.tx.abort());
                self.history.executed.push(ExecutedInLife { ticket, ..running.executed });
                return None;
            }
            _ => {
                let OpenInLife { tx, mut executed } = running;
                match tx.commit() {
                    Ok(ticket) => {
                        self.met.committed += 1;
                        executed.ticket = Some(ticket);
                    }
                    Err(error) => self.note(&error),
                }
                self.history.executed.push(executed);
                return None;
            }
        };
        let Err(error) = done else { return Some(running) };
        self.note(&error);
        // After these errors the transaction can go on without the write.
        let goes_on = matches!(error, Error::WriteTooLarge(..) | Error::TransactionTooLarge(..));
        goes_on.then_some(running)
    }

    fn read(&mut self, running: &mut OpenInLife<'_>, key: KeyByte) -> Result<(), Error> {
        let read = get(&mut running.tx, key, self.drawn.keys.bytes(key))?;
        let read = read.as_deref().map(number);
        if let Some(own) = running.executed.writes.get(&key) {
            assert_eq!(read, *own, "a transaction reads its own write");
        }
        running.note_read(key, read);
        Ok(())
    }

    fn put(&mut self, running: &mut OpenInLife<'_>, key: KeyByte) -> Result<(), Error> {
        let (written, value) = self.draw_write();
        running.tx.put(self.drawn.keys.bytes(key), &value)?;
        running.executed.writes.insert(key, Some(written));
        Ok(())
    }

    fn insert(&mut self, running: &mut OpenInLife<'_>, key: KeyByte) -> Result<(), Error> {
        let (written, value) = self.draw_write();
        match running.tx.insert(self.drawn.keys.bytes(key), &value) {
            Err(Error::Exists) => return Ok(()),
            inserted => inserted?,
        }
        running.note_read(key, None);
        running.executed.writes.insert(key, Some(written));
        Ok(())
    }
}
