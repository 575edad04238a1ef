//! Row frames: a Part frame that holds the change of a row, for protocols that log row by row. The
//! transaction's record follows, and only states the commit. docs/format.md, "Row frames", is the
//! specification; this file writes and reads row frames.

use super::record::{Change, push_tid, take_tid};
use crate::storage::layout::Layout;
use crate::storage::row::{Assignments, push_varint, take, take_varint};
use crate::storage::tid::Tid;
use hyades_wal::{Frame, Lsn};

/// Whether changed rows have their own frames, and the content of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowFrames {
    /// No row frames: all changes are in the record.
    #[default]
    None,
    /// After-images.
    After,
    /// Before-images too: a transaction with a lost record can be undone.
    Both,
}

impl RowFrames {
    const SETTING: [(RowFrames, &'static str); 2] =
        [(RowFrames::After, "after"), (RowFrames::Both, "both")];

    /// The incarnation setting of a log with cut changes, which cannot be recovered.
    pub const CUT: &'static str = "cut-changes";

    /// Returns the incarnation setting, name and value.
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

/// How row frames name their transaction, by the start of its first frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowHeads {
    /// Each frame by the Lsn, then flags: in logs of earlier versions.
    #[default]
    Long,
    /// Flags, then the Lsn, except in the first frame, which starts at the Lsn itself.
    Short,
}

impl RowHeads {
    /// Parses an incarnation's setting.
    pub fn of(setting: Option<&str>) -> RowHeads {
        match setting {
            Some(hyades_wal::SHORT_HEADS) => RowHeads::Short,
            _ => RowHeads::Long,
        }
    }
}

/// Flags of a row frame. A change too long for a frame goes into several frames.
mod flag {
    /// The change begins here.
    pub const BEGIN: u8 = 1;
    /// The change ends here.
    pub const END: u8 = 2;
    /// The frame is the transaction's first. Only in short heads.
    pub const FIRST: u8 = 4;
    pub const ALL: u8 = 7;
}

/// Bytes of a row frame's payload ahead of the change, at most.
pub(crate) const LONGEST_HEAD: usize = 9;

/// The head of a row frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowHead {
    /// The start of the transaction's first frame; `None`: here.
    pub first: Option<Lsn>,
    /// Whether the change begins here.
    pub begins: bool,
    /// Whether the change ends here.
    pub ends: bool,
}

impl RowHead {
    /// Returns the length of a head with `first`.
    pub fn len(first: Option<Lsn>) -> usize {
        if first.is_some() { LONGEST_HEAD } else { 1 }
    }

    /// Writes a short head to the front of `payload`.
    pub fn write(self, payload: &mut [u8]) {
        let RowHead { first, begins, ends } = self;
        let flags = [(begins, flag::BEGIN), (ends, flag::END), (first.is_none(), flag::FIRST)];
        payload[0] = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        if let Some(first) = first {
            payload[1..LONGEST_HEAD].copy_from_slice(&first.to_le_bytes());
        }
    }
}

/// The payload of a row frame: a change, or a piece of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowFrame<'a> {
    /// The start of the transaction's first frame.
    pub first: Lsn,
    /// Whether the change begins here.
    pub begins: bool,
    /// Whether the change ends here.
    pub ends: bool,
    /// The change, or the piece.
    pub bytes: &'a [u8],
}

impl<'a> RowFrame<'a> {
    /// Parses a frame; `None` if malformed.
    pub fn read(heads: RowHeads, frame: &Frame<'a>) -> Option<RowFrame<'a>> {
        let mut bytes = frame.payload;
        let (first, flags) = match heads {
            RowHeads::Long => (take_lsn(&mut bytes)?, take(&mut bytes, 1)?[0]),
            RowHeads::Short => {
                let flags = take(&mut bytes, 1)?[0];
                let is_first = flags & flag::FIRST != 0;
                let first = if is_first { frame.start } else { take_lsn(&mut bytes)? };
                let is_sound = flags & !flag::ALL == 0 && (is_first || first < frame.start);
                (is_sound.then_some(first)?, flags)
            }
        };
        let (begins, ends) = (flags & flag::BEGIN != 0, flags & flag::END != 0);
        Some(RowFrame { first, begins, ends, bytes })
    }

    /// Returns whether the frame holds the whole change.
    pub fn is_whole(&self) -> bool {
        self.begins && self.ends
    }
}

/// Takes an Lsn of 8 bytes.
fn take_lsn(bytes: &mut &[u8]) -> Option<Lsn> {
    Some(Lsn::from_le_bytes(take(bytes, 8)?.try_into().ok()?))
}

/// A row's change, once the frames are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramedChange<'a> {
    pub tid: Tid,
    /// The output of [`push_before`]; empty if only after-images are logged.
    pub before: &'a [u8],
    /// The change, encoded as in a data record.
    pub change: &'a [u8],
}

impl<'a> FramedChange<'a> {
    /// Parses a whole change; `None` if malformed.
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

/// Appends the part before a change, which is encoded as in a data record.
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
    /// The change that restores the row.
    pub image: Change<'a>,
}

/// Appends a before-image. `row` is the row's content, if the row existed; of a change of columns
/// only the changed columns are kept.
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

/// Reads the output of [`push_before`]; `None` if malformed.
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
    use crate::storage::layout::layout_of_tests as layout;
    use crate::storage::row::{apply_delta, encode_delta};
    use crate::storage::schema::Set;
    use hyades_platform::epoch::EpochNumber;
    use hyades_wal::FrameKind;
    use proptest::prelude::*;

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
            // The whole row, if replaced or deleted; nothing, if the row did not exist.
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
            for heads in [RowHeads::Long, RowHeads::Short] {
                let _ = RowFrame::read(heads, &frame(7, &bytes));
            }
        }
    }

    fn frame(start: Lsn, payload: &[u8]) -> Frame<'_> {
        Frame { start, end: start + 6 + payload.len() as u64, kind: FrameKind::Part, payload }
    }

    #[test]
    fn a_frame_names_its_transaction_or_begins_it() {
        for (first, begins, ends) in [
            (None, true, true),
            (None, true, false),
            (Some(0), false, true),
            (Some(999), false, false),
            (Some(999), true, true),
        ] {
            let head = RowHead { first, begins, ends };
            let mut payload = vec![0xEE; RowHead::len(first) + 3];
            head.write(&mut payload);
            let first = first.unwrap_or(1000);
            let whole = RowFrame { first, begins, ends, bytes: &[0xEE; 3] };
            assert_eq!(RowFrame::read(RowHeads::Short, &frame(1000, &payload)), Some(whole));
            assert_eq!(whole.is_whole(), begins && ends);
            // The former head.
            let mut payload = first.to_le_bytes().to_vec();
            payload.push(u8::from(begins) | u8::from(ends) << 1);
            payload.extend_from_slice(&[0xEE; 3]);
            assert_eq!(RowFrame::read(RowHeads::Long, &frame(1000, &payload)), Some(whole));
        }
        assert_eq!(RowHeads::of(None), RowHeads::Long);
        assert_eq!(RowHeads::of(Some(hyades_wal::SHORT_HEADS)), RowHeads::Short);
    }

    #[test]
    fn a_frame_that_names_a_later_one_or_has_unknown_flags_is_malformed() {
        let named = |first: Lsn| {
            let mut payload = vec![0; LONGEST_HEAD];
            RowHead { first: Some(first), begins: true, ends: true }.write(&mut payload);
            RowFrame::read(RowHeads::Short, &frame(1000, &payload)).map(|frame| frame.first)
        };
        assert_eq!([999, 1000, 1001].map(named), [Some(999), None, None]);
        let short =
            |payload: &[u8]| RowFrame::read(RowHeads::Short, &frame(1000, payload)).is_some();
        assert!(short(&[7]) && !short(&[7 | 8]) && !short(&[7 | 128]));
        // Cut off.
        assert!(!short(&[]) && !short(&[3; 8]) && short(&[3, 1, 0, 0, 0, 0, 0, 0, 0]));
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
