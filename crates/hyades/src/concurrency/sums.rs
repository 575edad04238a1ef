//! The part of a transaction in sum indexes: sums read, counts changed, candidates for nodes. The
//! steps are called by the concurrency controls with [`ConcurrencyControl::SUMS`]; under the other
//! controls a transaction counts by scans.
//!
//! - A transaction that has read all rows of a prefix [`propose`]s their counts before validation,
//!   in which the rows and gaps are found unchanged. A writer that locked its row before the
//!   candidate was in the index fails the validation; a writer that locks its row later finds the
//!   candidate.
//! - A writer [`enter`]s the nodes of its rows once all rows are locked, and before the record is
//!   appended. A node entered counts as locked: the validation of a reader fails. Afterwards the
//!   writer observes the stamps of earlier readers: so either the reader is not valid, or the
//!   writer sees its stamp.
//! - [`SumSet::installed`] sets the count while the row is locked, and hands on the stamp.
//! - [`finish`] makes candidates valid.
//!
//! Whatever is not finished when the transaction ends is taken back.

use super::state::TxnState;
use super::{ConcurrencyControl, inherit};
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::write::{Pending, final_writes};
use crate::storage::row::Assignments;
use crate::storage::sums::TableSums;
use crate::storage::sums::node::{NodeChange, SumNode};
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use crate::storage::{Stamp, record::Record};
use bumpalo::collections::Vec as ArenaVec;
use hyades_platform::broken;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a rule stays broken, to be noticed.
const UNNOTICED: Duration = Duration::from_micros(300);

/// A node whose counts a transaction has read.
struct SeenSum<S> {
    node: Arc<SumNode<S>>,
    version: u64,
}

/// The counts of a prefix as read by the transaction, row by row.
pub(crate) struct ScannedSum<'s, S: Stamp> {
    pub table: u32,
    sums: &'s TableSums<S>,
    pub node: Arc<SumNode<S>>,
    /// The stamps of the rows and gaps read.
    stamps: ArenaVec<'s, &'s S>,
    /// Whether the node is in the index as a candidate.
    is_proposed: bool,
}

impl<S: Stamp> Drop for ScannedSum<'_, S> {
    fn drop(&mut self) {
        if self.is_proposed {
            if broken!(ReadUnprovenSum) {
                std::thread::sleep(UNNOTICED);
            }
            // No reader has left a stamp in a candidate.
            self.sums.drop_node(&self.node, |_, _| ());
        }
    }
}

/// A node entered by a transaction for the change of a count.
struct EnteredSum<'s, S: Stamp> {
    table: u32,
    node: Arc<SumNode<S>>,
    record: &'s Record<S>,
    /// The count after the change; `None` if the row is deleted.
    count: Option<u64>,
    is_inside: bool,
    /// What the change has made of the node.
    change: NodeChange,
}

impl<S: Stamp> Drop for EnteredSum<'_, S> {
    fn drop(&mut self) {
        if self.is_inside {
            self.node.leave();
        }
    }
}

/// The sums of a transaction.
pub(crate) struct SumSet<'s, S: Stamp> {
    seen: Vec<SeenSum<S>>,
    scanned: Vec<ScannedSum<'s, S>>,
    entered: Vec<EnteredSum<'s, S>>,
    /// The number of entered nodes whose change is installed.
    installed: usize,
}

impl<S: Stamp> Default for SumSet<'_, S> {
    fn default() -> Self {
        SumSet { seen: Vec::new(), scanned: Vec::new(), entered: Vec::new(), installed: 0 }
    }
}

/// A transaction that reads the same sums again and again looks at this number of its observations.
const RECENT: usize = 8;

impl<'s, S: Stamp> SumSet<'s, S> {
    /// Remembers an observation.
    pub fn saw(&mut self, node: Arc<SumNode<S>>, version: u64) {
        let is_same = |seen: &SeenSum<S>| Arc::ptr_eq(&seen.node, &node) && seen.version == version;
        if !self.seen.iter().rev().take(RECENT).any(is_same) {
            self.seen.push(SeenSum { node, version });
        }
    }

    /// The counts of a prefix that the transaction has read itself.
    pub fn scanned(&self, table: u32, prefix: &[u8]) -> Option<&Arc<SumNode<S>>> {
        let mut all = self.scanned.iter();
        Some(&all.find(|scan| scan.table == table && *scan.node.prefix == *prefix)?.node)
    }

    /// Remembers the counts of a prefix that the transaction has read, with the stamps of the rows
    /// and gaps.
    pub fn scan(
        &mut self,
        (table, sums): (u32, &'s TableSums<S>),
        node: Arc<SumNode<S>>,
        stamps: ArenaVec<'s, &'s S>,
    ) {
        self.scanned.push(ScannedSum { table, sums, node, stamps, is_proposed: false });
    }

    /// Whether all sums read are unchanged.
    pub fn are_current(&self) -> bool {
        let own = |node: &Arc<SumNode<S>>| {
            self.entered.iter().filter(|entered| Arc::ptr_eq(&entered.node, node)).count() as u64
        };
        let is_current = |seen: &SeenSum<S>| seen.node.is_current(seen.version, own(&seen.node));
        self.seen.iter().all(is_current) || broken!(SkipSums)
    }

    /// Whether the transaction has read sums.
    pub fn has_read(&self) -> bool {
        !self.seen.is_empty()
    }

    /// The stamps for the reader of the sums.
    pub fn read_stamps(&self) -> impl Iterator<Item = &S> {
        self.seen.iter().map(|seen| &seen.node.readers)
    }

    /// Called for each row at installation, in the order of [`enter`], while the row is locked.
    /// `stamp` raises a stamp to at least the stamp of the row.
    #[inline]
    pub fn installed(&mut self, record: &Record<S>, tid: Tid, stamp: impl FnOnce(&S)) {
        let Some(entered) = self.entered.get_mut(self.installed) else { return };
        if !std::ptr::eq(entered.record, record) {
            return;
        }
        if broken!(IgnoreSumWriters) {
            std::thread::sleep(UNNOTICED);
        }
        self.installed += 1;
        entered.is_inside = false;
        let key = &record.key()[entered.node.prefix.len()..];
        entered.change = entered.node.set(key, entered.count, tid, stamp);
    }
}

/// The count of a row after a write: `None` if the write leaves the count as it is, `Some(None)` if
/// the write deletes the row.
#[inline]
pub(crate) fn count_after<S: Stamp>(
    table: &TableData<S>,
    sums: &TableSums<S>,
    pending: Pending<'_>,
) -> Option<Option<u64>> {
    match pending {
        Pending::Delete => Some(None),
        Pending::Put(row) => {
            let bytes = table.layout.bytes(row, sums.column).unwrap_or_default();
            Some(Some(TableSums::<S>::value(bytes)))
        }
        Pending::Delta(columns, _) if columns >> sums.column & 1 == 0 => None,
        Pending::Delta(_, delta) => {
            let mut all = Assignments::new(&table.layout, delta);
            let (_, bytes) = all.find(|(column, _)| *column == sums.column)?;
            Some(Some(TableSums::<S>::value(bytes.unwrap_or_default())))
        }
    }
}

/// Before validation: puts the counts of scanned prefixes into the index, as candidates, and enters
/// the nodes of the rows whose counts the write set changes. The write set is locked.
#[inline(always)]
pub fn enter<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    enter_read_only(engine, state);
    if engine.has_sums {
        enter_nodes(engine, state);
    }
}

/// As [`enter`], for a transaction that ends without writes.
#[inline(always)]
pub fn enter_read_only<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    if state.sums.is_some() && !broken!(ProposeSumLate) {
        propose(engine, state);
    }
}

/// The candidates are in the index before the validation of the rows and gaps that were read.
#[cold]
fn propose<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    let TxnState { sums: Some(set), stamp, max_tid, .. } = state else { return };
    for scan in &mut set.scanned {
        if !C::SUMS || scan.is_proposed || !scan.sums.is_worth_a_node(&scan.node) {
            continue;
        }
        let stamps = &scan.stamps;
        scan.is_proposed = scan.sums.propose(&scan.node, *max_tid, |node, readers| {
            let protocol = &engine.protocol;
            if !broken!(UnstampedSum) {
                for from in stamps {
                    inherit::<C, P>(protocol, &node.written, from, stamp);
                }
            }
            inherit::<C, P>(protocol, &node.readers, readers, stamp);
        });
    }
}

fn enter_nodes<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    let TxnState { sums: set, stamp, control, writes, .. } = state;
    let mut observe = |readers: &C::Row| {
        C::observe_write(readers, control);
        engine.protocol.observe_write(C::stamp(readers), stamp);
    };
    for write in final_writes(writes) {
        let table = &engine.tables[write.table as usize];
        let Some(sums) = &table.sums else { continue };
        let Some(count) = count_after(table, sums, write.pending) else { continue };
        if count == sums.count_in(write.record) {
            continue;
        }
        let prefix = &write.record.key()[..sums.prefix_bytes];
        let Some(node) = sums.find(prefix) else {
            sums.dropped_readers(prefix).into_iter().for_each(&mut observe);
            continue;
        };
        node.enter();
        observe(&node.readers);
        let (record, is_inside, change) = (write.record, true, NodeChange::Changed);
        let (table, node) = (write.table, node);
        let entered = EnteredSum { table, node, record, count, is_inside, change };
        set.get_or_insert_default().entered.push(entered);
    }
}

/// After the installation, or after the validation of a transaction without writes: the candidates
/// are valid. Drops nodes without rows, and nodes for which there is no memory.
#[inline(always)]
pub fn finish<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    if state.sums.is_some() {
        finish_set(engine, state);
    }
}

fn finish_set<C: ConcurrencyControl<P>, P: LoggingProtocol>(
    engine: &Engine<P, C::Row>,
    state: &mut TxnState<'_, C, P>,
) {
    if broken!(ProposeSumLate) {
        std::thread::sleep(UNNOTICED);
        propose(engine, state);
    }
    let TxnState { sums: Some(set), stamp, .. } = state else { return };
    let protocol = &engine.protocol;
    let mut leave = |to: &C::Row, from: &C::Row| inherit::<C, P>(protocol, to, from, stamp);
    let mut has_grown = false;
    for scan in &mut set.scanned {
        if std::mem::take(&mut scan.is_proposed) {
            scan.node.prove();
            has_grown = true;
        }
    }
    for entered in &set.entered {
        has_grown |= entered.change == NodeChange::Grown;
        if entered.change == NodeChange::Emptied
            && let Some(sums) = &engine.tables[entered.table as usize].sums
        {
            sums.drop_node(&entered.node, &mut leave);
        }
    }
    if has_grown {
        let all = engine.tables.iter().filter_map(|table| table.sums.as_ref());
        all.for_each(|sums| sums.make_room(&mut leave));
    }
}
