//! Replay of a log of a former schema: changes of tables with different columns now are converted
//! at decoding, and changes of dropped tables are left out. All this happens only while an opening
//! changes the schema.

use super::apply::key_of;
use super::former::FormerTable;
use super::replay::ReplayContext;
use crate::logging::record::{Change, take_change};
use crate::logging::row_frame::Before;
use crate::logging::write::{Write, add_to_outcome};
use crate::storage::Stamp;
use crate::storage::key::KeyBytes;

/// Decodes the next change in `rest` if its table is a former table: the table, the key, and the
/// change in the former layout.
pub(crate) fn take_former<'r, 'a, S: Stamp>(
    replay: &'r ReplayContext<S>,
    rest: &mut &'a [u8],
) -> Option<(&'r FormerTable, KeyBytes, Change<'a>)> {
    let (id, key, change) = take_change(rest, |id| Some(replay.catalogue.former(id)?.shape()))?;
    let former = replay.catalogue.former(id)?;
    Some((former, key_of(&former.layout, key, change), change))
}

/// Converts a change of the table at this position; the needed bytes are written to `out`. `None`
/// if the conversion is impossible; then the replay has failed.
fn convert<'c, S: Stamp>(
    replay: &ReplayContext<S>,
    (former, position): (&FormerTable, usize),
    change: Change<'_>,
    out: &'c mut Vec<u8>,
) -> Option<Change<'c>> {
    let to = &replay.engine.tables[position].layout;
    former.convert(to, change, out).map_err(|error| replay.fail(error)).ok()
}

/// Converts a before-image of the table at this position, as [`convert`].
pub(crate) fn convert_before<'c, S: Stamp>(
    replay: &ReplayContext<S>,
    table: (&FormerTable, usize),
    before: Before<'_>,
    out: &'c mut Vec<u8>,
) -> Option<Before<'c>> {
    let image = convert(replay, table, before.image, out)?;
    Some(Before { base: before.base, image })
}

/// Decodes the next change in `rest`, and converts the change into `out`. `None` if the change fits
/// no table; the inner `None` if its table is dropped.
pub(crate) fn next_change<'c, S: Stamp>(
    replay: &ReplayContext<S>,
    rest: &mut &[u8],
    out: &'c mut Vec<u8>,
) -> Option<Option<(usize, KeyBytes, Change<'c>)>> {
    let (former, key, change) = take_former(replay, rest)?;
    let Some(position) = former.position() else { return Some(None) };
    Some(Some((position, key, convert(replay, (former, position), change, out)?)))
}

/// The outcome of a command, as [`crate::logging::write::outcome`], in terms of the former schema,
/// the schema at the command's run.
pub(crate) fn outcome<'w, 's: 'w, S: Stamp>(
    replay: &ReplayContext<S>,
    writes: impl Iterator<Item = &'w Write<'s, S>>,
) -> u32 {
    let mut converted = Vec::new();
    writes.fold(0, |sum, write| {
        let table = &replay.engine.tables[write.table as usize];
        let pending = match replay.catalogue.former(table.log_id.into()) {
            Some(former) => former.convert_back(&table.layout, write.pending, &mut converted),
            None => Some(write.pending),
        };
        let Some(pending) = pending else { return sum };
        add_to_outcome(sum, table.log_id, write.record.key(), pending)
    })
}
