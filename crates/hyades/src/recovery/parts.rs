//! Frames that precede their transaction's record: pieces of a long body, or the changes of single
//! rows. If row changes are redone at once, groups without a record are undone at the end.

use super::apply::{Applier, count};
use super::decode::RecordShape;
use super::former_changes::{convert_before, take_former};
use super::replay::ReplayContext;
use crate::error::Error;
use crate::logging::record::RecordHead;
use crate::logging::row_frame::{FramedChange, RowFrame, RowFrames, RowHeads, read_before};
use crate::storage::Stamp;
use crate::storage::row::{push_varint, take, take_varint};
use crate::storage::tid::Tid;
use hyades_platform::broken;
use hyades_platform::reclaim::Guard;
use hyades_wal::{Frame, Lsn};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// The parts of all transactions without a reached record, by the start of the first frame.
pub(crate) type Parts = HashMap<Lsn, Group>;

/// The parts of one transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The body so far, in the format of a data record.
    pub body: Vec<u8>,
    /// The row version, if rows have their own frames.
    tid: Tid,
    /// The before-images, each preceded by its length, in the order of the changes in the body.
    before: Vec<u8>,
    /// The beginning of a change over several frames.
    fragment: Vec<u8>,
    /// Whether `fragment` has the beginning of its change.
    begun: bool,
    /// Whether a change was left out because of a missing beginning: the body is not whole.
    pub incomplete: bool,
    /// Whether a change took several frames: then the group can be applied only as a whole.
    fragmented: bool,
}

impl Group {
    /// Whether every change fitted into one frame, and so was redone at once.
    pub fn is_redone(&self) -> bool {
        !self.fragmented
    }

    /// Returns the bytes of the before-images, with their lengths.
    pub fn before_bytes(&self) -> u64 {
        self.before.len() as u64
    }
}

/// Adds a Part frame to its group; `None` if the frame is malformed.
pub(crate) fn add(
    parts: &mut Parts,
    (rows, heads): (RowFrames, RowHeads),
    frame: &Frame<'_>,
) -> Option<()> {
    if rows == RowFrames::None {
        let (first, piece) = frame.payload.split_first_chunk::<8>()?;
        let group = parts.entry(Lsn::from_le_bytes(*first)).or_default();
        group.body.extend_from_slice(piece);
        return Some(());
    }
    let frame = RowFrame::read(heads, frame)?;
    let group = parts.entry(frame.first).or_default();
    let (whole, bytes) = (frame.is_whole(), frame.bytes);
    let fragment = if whole {
        Vec::new()
    } else {
        group.fragmented = true;
        if frame.begins {
            group.fragment.clear();
            group.begun = true;
        } else if !group.begun {
            // The change began in a segment truncated below a checkpoint: the checkpoint holds the
            // transaction.
            group.incomplete = true;
            return Some(());
        }
        group.fragment.extend_from_slice(bytes);
        if !frame.ends {
            return Some(());
        }
        group.begun = false;
        std::mem::take(&mut group.fragment)
    };
    let row = FramedChange::read(rows, if whole { bytes } else { &fragment })?;
    group.tid = row.tid;
    group.body.extend_from_slice(row.change);
    push_varint(&mut group.before, row.before.len() as u64);
    group.before.extend_from_slice(row.before);
    Some(())
}

/// Repeats history: applies a row frame at once, whether or not its transaction committed. Ignores
/// fragments. `None` if the frame is malformed or does not fit the tables.
pub(crate) fn redo<S: Stamp>(
    replay: &ReplayContext<S>,
    shape: RecordShape,
    frame: &Frame<'_>,
    applier: &mut Applier,
    guard: &Guard,
) -> Option<()> {
    let frame = RowFrame::read(shape.row_heads, frame)?;
    if !frame.is_whole() {
        return Some(());
    }
    let row = FramedChange::read(shape.rows, frame.bytes)?;
    if shape.skips(row.tid) {
        return Some(());
    }
    let mut change = row.change;
    let fits = applier.apply_next(replay, row.tid, &mut change, guard) && change.is_empty();
    fits.then_some(())
}

/// The undo pass: reverts the changes of groups without a record, newest group first.
pub(crate) fn undo<S: Stamp>(
    replay: &ReplayContext<S>,
    shape: RecordShape,
    losers: Parts,
    applier: &mut Applier,
    guard: &Guard,
) -> Result<(), Error> {
    if shape.rows == RowFrames::None {
        return Ok(());
    }
    let mut losers: Vec<(Lsn, Group)> = losers.into_iter().collect();
    losers.sort_unstable_by_key(|(first, _)| std::cmp::Reverse(*first));
    for (first, group) in losers.into_iter().filter(|(_, group)| !shape.skips(group.tid)) {
        // The transaction has used its epoch nevertheless.
        count(replay, &RecordHead { tid: group.tid, ..RecordHead::default() });
        replay.counts.dead.fetch_add(1, Ordering::Relaxed);
        if shape.rows != RowFrames::Both || broken!(SkipUndo) {
            continue;
        }
        undo_group(replay, &group, applier, guard).ok_or_else(|| {
            Error::Recovery(format!(
                "the row frames of the transaction that began at Lsn {first} do not fit the \
                 declared tables, though their checksums are right"
            ))
        })?;
    }
    Ok(())
}

fn undo_group<S: Stamp>(
    replay: &ReplayContext<S>,
    group: &Group,
    applier: &mut Applier,
    guard: &Guard,
) -> Option<()> {
    let (mut changes, mut images) = (&group.body[..], &group.before[..]);
    let (mut rows, mut converted) = (Vec::new(), Vec::new());
    while !changes.is_empty() {
        let start = changes;
        let (former, table, key) = match Applier::next_change(replay, &mut changes) {
            Some((table, key, _)) => (None, Some(table), key),
            None => {
                changes = start;
                let (former, key, _) = take_former(replay, &mut changes)?;
                (Some(former), former.position(), key)
            }
        };
        let len = take_varint(&mut images)? as usize;
        let image = take(&mut images, len)?;
        let Some(table) = table else { continue };
        let layout = former.map_or(&replay.engine.tables[table].layout, |former| &former.layout);
        rows.push((former, table, key, read_before(layout, image)?));
    }
    for (former, table, key, before) in rows.iter().rev() {
        let before = match former {
            None => *before,
            Some(former) => convert_before(replay, (former, *table), *before, &mut converted)?,
        };
        applier.undo_change(replay, *table, key, group.tid, before, guard);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::row_frame::{LONGEST_HEAD, RowHead};
    use hyades_wal::FrameKind;

    /// A checkpoint truncates the log by whole segments; a segment may begin in the middle of a
    /// change.
    #[test]
    fn a_change_whose_beginning_was_truncated_is_left_out() {
        let mut parts = Parts::new();
        let mut add = |first: Lsn, begins: bool, ends: bool| {
            let mut payload = vec![0xFF; LONGEST_HEAD + 40];
            RowHead { first: Some(first), begins, ends }.write(&mut payload);
            let frame = Frame { start: 100, end: 160, kind: FrameKind::Part, payload: &payload };
            super::add(&mut parts, (RowFrames::Both, RowHeads::Short), &frame)
        };
        // The bytes in the place of a change's head are the middle of a change.
        for ends in [false, false, true] {
            assert_eq!(add(7, false, ends), Some(()), "{ends}");
        }
        // An incomplete change is not accepted.
        assert_eq!(add(8, true, false), Some(()));
        assert_eq!(add(8, false, true), None);
        assert!(parts[&7].incomplete && parts[&7].body.is_empty());
    }
}
