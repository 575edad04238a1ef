//! Row frames: a Part frame that holds the change of one row, for protocols that log row by row.
//! The transaction's record follows, and only states that it has committed. docs/format.md, "Row
//! frames", is the specification; this file writes and reads them.

use super::record::{Change, push_tid, take_tid};
use crate::storage::layout::Layout;
use crate::storage::row::{Assignments, push_varint, take, take_varint};
use crate::storage::tid::Tid;

/// Whether changed rows have frames of their own, and what these hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowFrames {
    /// No row frames: all changes are in the record.
    #[default]
    None,
    /// After-images.
    After,
    /// Before-images too: a transaction whose record is lost can be undone.
    Both,
}

impl RowFrames {
    const SETTING: [(RowFrames, &'static str); 2] =
        [(RowFrames::After, "after"), (RowFrames::Both, "both")];

    /// The incarnation setting with which changes were cut, and cannot be recovered.
    pub const CUT: &'static str = "cut-changes";

    /// The incarnation setting, name and value, that states this.
    pub fn setting(self) -> Option<(&'static str, &'static str)> {
        let (_, word) = Self::SETTING.iter().find(|(rows, _)| *rows == self)?;
        Some(("rows", word))
    }

    /// Parses an incarnation's setting.
    pub fn of(setting: Option<&str>) -> RowFrames {
        let named = Self::SETTING.iter().find(|(_, word)| Some(*word) == setting);
        named.map_or(RowFrames::None, |(rows, _)| *rows)
    }
}

/// Flags of a row frame. A change that does not fit one frame goes into several.
pub(crate) mod flag {
    /// The change begins here.
    pub const BEGIN: u8 = 1;
    /// The change ends here.
    pub const END: u8 = 2;
}

/// Bytes of a row frame's payload ahead of the change: the start of the transaction's first frame,
/// and flags.
pub(crate) const FRAME_HEAD: usize = 9;

/// A row's change, once its frames are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramedChange<'a> {
    pub tid: Tid,
    /// What [`push_before`] wrote; empty if only after-images are logged.
    pub before: &'a [u8],
    /// The change, encoded as in a data record.
    pub change: &'a [u8],
}

impl<'a> FramedChange<'a> {
    /// Parses a whole change; `None` if it is malformed.
    pub fn read(rows: RowFrames, mut bytes: &'a [u8]) -> Option<FramedChange<'a>> {
        let tid = take_tid(&mut bytes)?;
        let before = match rows {
            RowFrames::Both => {
                let len = take_varint(&mut bytes)?;
                take(&mut bytes, usize::try_from(len).ok()?)?
            }
            _ => &[],
        };
        Some(FramedChange { tid, before, change: bytes })
    }
}

/// Appends what precedes a change that is encoded as in a data record.
pub(crate) fn push_row(rows: RowFrames, tid: Tid, before: &[u8], out: &mut Vec<u8>) {
    push_tid(out, tid);
    if rows == RowFrames::Both {
        push_varint(out, before.len() as u64);
        out.extend_from_slice(before);
    }
}

const ABSENT: u8 = 0;
const ROW: u8 = 1;
const COLUMNS: u8 = 2;

/// The before-image of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before<'a> {
    /// The version of the row before the change.
    pub base: Tid,
    /// The change that restores it.
    pub image: Change<'a>,
}

/// Appends a before-image. `row` is the row's content, if it existed; of a change of columns only
/// these are kept.
pub(crate) fn push_before(
    layout: &Layout,
    base: Tid,
    row: Option<&[u8]>,
    change: Change<'_>,
    out: &mut Vec<u8>,
) {
    let kind_at = out.len();
    out.push(ABSENT);
    push_tid(out, base);
    let Some(row) = row else { return };
    let Change::Delta { delta, .. } = change else {
        out[kind_at] = ROW;
        out.extend_from_slice(row);
        return;
    };
    out[kind_at] = COLUMNS;
    push_varint(out, Assignments::new(layout, delta).count() as u64);
    for (column, _) in Assignments::new(layout, delta) {
        let old = layout.bytes(row, column);
        push_varint(out, (column as u64) << 1 | old.is_none() as u64);
        if let Some(old) = old {
            if layout.columns[column as usize].kind.width().is_none() {
                push_varint(out, old.len() as u64);
            }
            out.extend_from_slice(old);
        }
    }
}

/// Reads what [`push_before`] wrote; `None` if it is malformed.
pub(crate) fn read_before<'a>(layout: &Layout, mut bytes: &'a [u8]) -> Option<Before<'a>> {
    let kind = take(&mut bytes, 1)?[0];
    let base = take_tid(&mut bytes)?;
    let image = match kind {
        ABSENT if bytes.is_empty() => Change::Delete,
        ROW if layout.is_valid(bytes) => Change::Put(bytes),
        COLUMNS if crate::storage::row::check_delta(layout, bytes)?.is_empty() => {
            Change::Delta { base, delta: bytes }
        }
        _ => return None,
    };
    Some(Before { base, image })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::row::{apply_delta, encode_delta};
    use crate::storage::schema::{Schema, Set};
    use crate::storage::value::Type;
    use hyades_platform::epoch::EpochNumber;
    use proptest::prelude::*;

    fn layout() -> Layout {
        let schema = Schema::new("t")
            .column("k", Type::I64)
            .nullable("a", Type::Text)
            .nullable("b", Type::I32)
            .column("c", Type::Bytes)
            .primary_key(&["k"]);
        Layout::new(&schema, 0)
    }

    proptest! {
        #[test]
        fn what_a_row_was_brings_it_back(
            a: Option<String>, b: Option<i32>, c: Vec<u8>,
            na: Option<Option<String>>, nb: Option<Option<i32>>, nc: Option<Vec<u8>>,
            base in (0u64..1 << Tid::BITS).prop_map(Tid::from_bits),
        ) {
            let layout = layout();
            let mut row = Vec::new();
            layout
                .encode(&[1i64.into(), a.as_deref().into(), b.into(), c[..].into()], &mut row)
                .unwrap();
            let mut sets = Vec::new();
            if let Some(a) = &na { sets.push(Set { column: 1, value: a.as_deref().into() }); }
            if let Some(b) = &nb { sets.push(Set { column: 2, value: (*b).into() }); }
            if let Some(c) = &nc { sets.push(Set { column: 3, value: c[..].into() }); }
            let mut delta = Vec::new();
            encode_delta(&layout, &sets, &mut delta).unwrap();
            let mut now = row.clone();
            apply_delta(&layout, &mut now, &delta).unwrap();
            let change = Change::Delta { base, delta: &delta };
            let mut before = Vec::new();
            push_before(&layout, base, Some(&row), change, &mut before);
            match read_before(&layout, &before) {
                Some(Before { base: b, image: Change::Delta { delta, .. } }) => {
                    prop_assert_eq!(b, base);
                    apply_delta(&layout, &mut now, delta).unwrap();
                    prop_assert_eq!(&now, &row);
                }
                other => prop_assert!(false, "{:?}", other),
            }
            // The whole row, if it was replaced or deleted; nothing, if it did not exist.
            for (there, image) in [(Some(&row[..]), Change::Put(&row)), (None, Change::Delete)] {
                let mut before = Vec::new();
                push_before(&layout, base, there, Change::Put(&row), &mut before);
                prop_assert_eq!(read_before(&layout, &before), Some(Before { base, image }));
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read_before(&layout(), &bytes);
            for rows in [RowFrames::After, RowFrames::Both] {
                let _ = FramedChange::read(rows, &bytes);
            }
        }
    }

    #[test]
    fn a_change_is_taken_apart_as_it_was_put_together() {
        for (rows, before) in [(RowFrames::After, &[][..]), (RowFrames::Both, &[1, 2, 3][..])] {
            let mut out = Vec::new();
            push_row(rows, Tid::new(EpochNumber(7), 9), before, &mut out);
            out.extend_from_slice(&[4, 5]);
            let whole = FramedChange { tid: Tid::new(EpochNumber(7), 9), before, change: &[4, 5] };
            assert_eq!(FramedChange::read(rows, &out), Some(whole));
            assert_eq!(RowFrames::of(rows.setting().map(|(_, word)| word)), rows);
        }
        assert_eq!((RowFrames::None.setting(), RowFrames::of(None)), (None, RowFrames::None));
    }
}
