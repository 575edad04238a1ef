//! Final steps of recovery: removes tombstones and checks unique indexes.

use super::replay::ReplayContext;
use crate::concurrency::replaying::Replaying;
use crate::error::Error;
use crate::garbage::Garbage;
use crate::logging::unstamped::Unstamped;
use crate::storage::Stamp;
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use std::sync::atomic::Ordering;

/// Ends an incarnation. Fails if a delta still waits. No delta is kept, since row objects of the
/// next incarnation may get the same addresses.
pub(crate) fn finish_incarnation<S: Stamp>(replay: &ReplayContext<S>) -> Result<(), Error> {
    let tables = &replay.engine.tables;
    match replay.held.settle(tables, &hyades_platform::reclaim::pin()) {
        None => Ok(()),
        Some((table, base, tid)) => Err(Error::Recovery(format!(
            "a row of table {:?} is missing version {base}, which transaction {tid} changed: a \
             stream of the log is incomplete; restore the log's files from a copy",
            tables[table].layout.name
        ))),
    }
}

/// Compares the outcomes of an incarnation's calls with the outcomes stated by its records. Not in
/// a salvage: records of calls followed by later calls may be missing.
pub(crate) fn compare_outcomes<S: Stamp>(
    replay: &ReplayContext<S>,
    salvage: bool,
) -> Result<(), Error> {
    let outcomes = std::mem::take(&mut *replay.outcomes.lock().unpoisoned());
    let Some((epoch, procedures)) = outcomes.differing() else { return Ok(()) };
    if salvage || broken!(ForgetOutcomes) {
        return Ok(());
    }
    let names: Vec<String> = procedures
        .into_iter()
        .filter_map(|id| replay.catalogue.procedure(id.into()).ok())
        .map(|procedure| format!("procedure {:?} version {}", procedure.name, procedure.version))
        .collect();
    Err(Error::Recovery(format!(
        "replay stopped: calls of epoch {epoch} have ended otherwise than when they ran, or wrote \
         something else: {} is not deterministic, or was changed and kept its version; nothing \
         was changed on disk{}",
        names.join(", or "),
        replay.catalogue.advice()
    )))
}

pub(crate) fn finish<S: Stamp>(replay: &ReplayContext<S>) -> Result<(), Error> {
    let mut garbage = Garbage::default();
    let absent = std::mem::take(&mut *replay.absent.lock().unpoisoned());
    for (table, key) in absent {
        garbage.add_row(table, key);
    }
    // A tombstone with a stale entry may be left. It only takes memory.
    garbage.sweep_all::<Replaying, Unstamped<S>>(&replay.engine, &mut (), |_, _| ());
    let row_ids = &replay.engine.row_ids;
    row_ids.fetch_max(replay.counts.max_row_id.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    check_unique(replay)
}

/// Checks unique indexes. Rows are restored in any order, so this is possible only at the end.
pub(super) fn check_unique<S: Stamp>(replay: &ReplayContext<S>) -> Result<(), Error> {
    let guard = hyades_platform::reclaim::pin();
    for table in replay.engine.tables.iter() {
        for at in (0..table.secondaries.len()).filter(|&at| table.secondaries[at].unique) {
            if table.duplicates(at, &guard).is_some() {
                return Err(Error::Recovery(format!(
                    "two recovered rows of table {:?} share a key of a unique index: the log was \
                     not written by the declared procedures",
                    table.layout.name
                )));
            }
        }
    }
    Ok(())
}
