//! Snapshots and long snapshots kept open by a life while transactions go on.

use super::history::{ExecutedInLife, ScannedKeys, number};
use super::keys::LifeKeys;
use crate::{Database, Error, LongSnapshot, ScanOrder, Session, Snapshot};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// An open snapshot.
pub(super) struct OpenSnapshot<'s> {
    snapshot: Snapshot<'s>,
    executed: ExecutedInLife,
}

impl<'s> OpenSnapshot<'s> {
    /// Begins a snapshot.
    pub fn begin(session: &'s mut Session) -> Result<Self, Error> {
        let snapshot = session.snapshot()?;
        // Behind the transaction with timestamp `ts`, if any: the transaction has ended, and is
        // earlier in the history.
        let ts = snapshot.timestamp();
        let (reads, writes) = (Vec::new(), BTreeMap::new());
        let executed = ExecutedInLife { ts, reads, writes, ticket: None, acknowledged: false };
        Ok(Self { snapshot, executed })
    }

    /// Does a single act; returns the snapshot unless ended; an ended snapshot is left in the
    /// history.
    pub fn go_on(
        mut self,
        history: &mut Vec<ExecutedInLife>,
        keys: &LifeKeys,
        rng: &mut fastrand::Rng,
    ) -> Result<Option<Self>, Error> {
        let all = keys.all();
        let (key, to) = (all[rng.usize(0..all.len())], all[rng.usize(0..all.len())]);
        match rng.u8(0..10) {
            0..6 => {
                let read = self.snapshot.get(keys.bytes(key))?;
                self.executed.reads.push((key, read.as_deref().map(number)));
            }
            6..8 => {
                let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
                let limit = [1, 2, usize::MAX][rng.usize(0..3)];
                let lower = Bound::Included(keys.bytes(key));
                let rows = self.snapshot.scan(lower, Bound::Excluded(keys.bytes(to)), order, limit);
                let rows = keys.rows(&rows?);
                let scanned = ScannedKeys { range: key..to, order, limit, rows: &rows };
                scanned.note(&mut self.executed.reads, &self.executed.writes);
            }
            _ => {
                let ticket = Some(self.snapshot.end());
                history.push(ExecutedInLife { ticket, ..self.executed });
                return Ok(None);
            }
        }
        Ok(Some(self))
    }
}

/// An open long snapshot.
pub(super) struct OpenLongSnapshot {
    snapshot: LongSnapshot,
    executed: ExecutedInLife,
}

impl OpenLongSnapshot {
    /// Begins a long snapshot.
    pub fn begin(database: &Database) -> Result<Self, Error> {
        let snapshot = database.long_snapshot()?;
        // Everything read is durable.
        let executed =
            ExecutedInLife { acknowledged: true, ..ExecutedInLife::begun(snapshot.timestamp()) };
        Ok(Self { snapshot, executed })
    }

    /// Reads a key or all keys; returns the snapshot unless ended; an ended snapshot is left in the
    /// history.
    pub fn go_on(
        mut self,
        history: &mut Vec<ExecutedInLife>,
        keys: &LifeKeys,
        rng: &mut fastrand::Rng,
    ) -> Result<Option<Self>, Error> {
        let all = keys.all();
        match rng.u8(0..10) {
            0..5 => {
                let key = all[rng.usize(0..all.len())];
                let read = self.snapshot.get(keys.bytes(key))?;
                self.executed.reads.push((key, read.as_deref().map(number)));
            }
            5..8 => {
                let order = [ScanOrder::Ascending, ScanOrder::Descending][rng.usize(0..2)];
                let mut rows = Vec::new();
                self.snapshot.scan(Bound::Unbounded, Bound::Unbounded, order, |key, value| {
                    rows.push((keys.of_bytes(key), number(value)));
                    ControlFlow::Continue(())
                })?;
                let (range, limit) = (0..all.len() as u8, usize::MAX);
                let scanned = ScannedKeys { range, order, limit, rows: &rows };
                scanned.note(&mut self.executed.reads, &self.executed.writes);
            }
            _ => {
                history.push(self.executed);
                return Ok(None);
            }
        }
        Ok(Some(self))
    }
}
