//! The basic parallel recovery of section 4.4.1, in its three phases, over the whole log at once:
//! the required result of the graph.

use crate::logging::predecessors::{self, Id, Predecessor};
use hyades_wal::Lsn;
use std::collections::{BTreeMap, BTreeSet};

/// A logged record.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub id: Id,
    pub list: Vec<Predecessor>,
    pub vector: Vec<Lsn>,
}

/// Returns the records to be recovered, among the found records. `start` and `end` bound each
/// stream.
pub(super) fn live(found: &[Logged], start: &[Lsn], end: &[Lsn]) -> BTreeSet<Id> {
    // Phase 1: the dependency graph.
    let mut nodes: BTreeMap<Id, &Logged> = found.iter().map(|logged| (logged.id, logged)).collect();
    // Phase 2: remove the readers of a missing record, until no such reader is left.
    loop {
        let is_there = |id: Id| {
            predecessors::end(id) <= start[predecessors::lane(id)] || nodes.contains_key(&id)
        };
        let reads_lost = |logged: &Logged| {
            logged.list.iter().any(|before| !before.overwritten && !is_there(before.id))
                || logged.vector.iter().zip(end).any(|(needs, end)| needs > end)
        };
        let lost: Vec<Id> =
            nodes.values().filter(|logged| reads_lost(logged)).map(|logged| logged.id).collect();
        if lost.is_empty() {
            return nodes.into_keys().collect();
        }
        nodes.retain(|id, _| !lost.contains(id));
    }
}
