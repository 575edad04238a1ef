//! Data records beside commands whose records list their predecessors: an image keeps the version
//! that it overwrites, or is kept as an older version itself.

use super::apply::Applier;
use super::replay::ReplayContext;
use crate::concurrency::replaying;
use crate::error::Error;
use crate::logging::record::Change;
use crate::storage::Stamp;
use crate::storage::edits::expand_edits;
use crate::storage::old_versions::LateVersion;
use crate::storage::record::Record;
use crate::storage::row::apply_delta;
use crate::storage::table::TableData;
use crate::storage::tid::Tid;
use bumpalo::Bump;
use hyades_platform::reclaim::Guard;

impl Applier {
    /// Whether rows have several versions, told apart by their writers.
    pub(super) fn is_listed(&self) -> bool {
        self.old_versions.replayed().id != 0
    }

    /// Keeps a version overwritten by transaction `tid`, where commands read what their records
    /// list.
    pub(super) fn keep_listed<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        row: (&Record<S>, u64),
        tid: Tid,
        guard: &Guard,
    ) {
        let versions = replay.engine.snapshots.versions();
        let (writer, how) = (&mut self.old_versions, (None, guard));
        if let Err(what) = replaying::keep_listed(versions, row, tid, writer, how) {
            replay.fail(Error::Recovery(format!("transaction {tid} {what}")));
        }
    }

    /// Keeps a version that arrives after a newer version, where commands may still read the older
    /// version. The caller holds the row's lock; `seen` is the version word.
    pub(super) fn insert_older_version<S: Stamp>(
        &mut self,
        replay: &ReplayContext<S>,
        (table, record, seen): (&TableData<S>, &Record<S>, u64),
        tid: Tid,
        change: Change<'_>,
        guard: &Guard,
    ) {
        if !self.is_listed() {
            return;
        }
        let versions = replay.engine.snapshots.versions();
        let base_of = |base: Tid| {
            let row = versions.image_of((record, seen), base, guard)?;
            Some(table.whole_row(record, &row, &Bump::new()).to_vec())
        };
        let delta = &mut self.expanded;
        let row = match change {
            Change::Put(row) => Some(row.to_vec()),
            Change::Delete => None,
            Change::Delta { base, delta } => {
                let Some(mut row) = base_of(base) else { return };
                if apply_delta(&table.layout, &mut row, delta).is_err() {
                    return;
                }
                Some(row)
            }
            Change::Edits { base, edits } => {
                let Some(mut row) = base_of(base) else { return };
                if expand_edits(&table.layout, &row, edits, delta).is_none()
                    || apply_delta(&table.layout, &mut row, delta).is_err()
                {
                    return;
                }
                Some(row)
            }
        };
        let row = row.as_deref().map(|row| table.record_bytes(row));
        let late = LateVersion { tid, row: row.as_deref() };
        if !versions.insert(&mut self.old_versions, (record, seen), &late, guard) {
            replay.fail(Error::Recovery(format!("transaction {tid} {}", replaying::TOO_MANY)));
        }
    }
}
