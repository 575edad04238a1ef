//! Edits: the form of a delta in a data record, if long values are similar to the replaced values.
//! The edits of such values state only the changes.
//!
//! Edits are the number of columns, then for each, ascending: `column << 1 | null` as a varint, and
//! if not null the value's bytes if the column has a fixed width, else the value's splices. The
//! splices are their number as a varint, then for each splice, in order: how many bytes of the old
//! value stay in front, how many bytes are replaced, how many bytes take their place, all as
//! varints, and the latter bytes. The bytes after the last splice stay. A null has no bytes.
//!
//! Invariant: edits are applied to the very version of the row that they were made from; the record
//! names this version, as for a delta.

use super::layout::Layout;
use super::row::{Assignments, push_varint, take, take_varint};
use super::schema::MAX_ROW_BYTES;
use super::value::Type;
use std::ops::Range;

/// A delta with a value of at least this many bytes is compared with the old row.
const LONG: usize = 48;
/// Edits are logged in place of a delta if they save at least this many bytes.
const WORTH: usize = 16;
/// Equal bytes that end a splice, at least.
const EQUAL: usize = 16;
/// The most bytes of a splice in front of such equal bytes, or behind them; otherwise a splice has
/// all remaining bytes.
const CHANGED: usize = 32;

/// Whether a delta has a value worth comparing with the old value.
pub(crate) fn may_be_similar(layout: &Layout, delta: &[u8]) -> bool {
    delta.len() >= LONG
        && Assignments::new(layout, delta).any(|(column, value)| {
            layout.variable_set >> column & 1 == 1 && value.is_some_and(|value| value.len() >= LONG)
        })
}

/// Appends to `out` the edits that turn the columns of `row` into the columns of `delta`. Returns
/// whether the edits are worth logging; otherwise `out` is unchanged.
pub(crate) fn push_edits(layout: &Layout, row: &[u8], delta: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let assignments = Assignments::new(layout, delta);
    push_varint(out, assignments.missing());
    for (column, value) in assignments {
        push_varint(out, u64::from(column) << 1 | u64::from(value.is_none()));
        let Some(value) = value else { continue };
        if layout.columns[usize::from(column)].kind.width().is_some() {
            out.extend_from_slice(value);
        } else {
            let old = layout.bytes(row, column).unwrap_or_default();
            push_splices(old, value, out);
        }
    }
    let is_worth_it = out.len() - start + WORTH <= delta.len();
    if !is_worth_it {
        out.truncate(start);
    }
    is_worth_it
}

/// The replaced range of an old value, and the range of the new value in its place.
type Splice = (Range<usize>, Range<usize>);

fn push_splices(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    let splices = splices(old, new);
    push_varint(out, splices.len() as u64);
    let mut at = 0;
    for (of_old, of_new) in splices {
        push_varint(out, (of_old.start - at) as u64);
        push_varint(out, of_old.len() as u64);
        push_varint(out, of_new.len() as u64);
        out.extend_from_slice(&new[of_new]);
        at = of_old.end;
    }
}

/// Finds the differences: from the front and from the back, as long as both values differ in the
/// same number of bytes, with equal bytes soon behind; and everything between.
fn splices(old: &[u8], new: &[u8]) -> Vec<Splice> {
    let mut found = Vec::new();
    let most = old.len().min(new.len());
    let mut front = 0;
    loop {
        front += equal_bytes(&old[front..most], &new[front..most]);
        let Some(changed) = changed_bytes(&old[front..most], &new[front..most]) else { break };
        found.push((front..front + changed, front..front + changed));
        front += changed;
    }
    if front == most && old.len() == new.len() {
        return found;
    }
    let mut last = Vec::new();
    let mut back = 0;
    loop {
        let (of_old, of_new) = (&old[front..old.len() - back], &new[front..new.len() - back]);
        back += equal_bytes_at_the_end(of_old, of_new);
        let (of_old, of_new) = (&old[front..old.len() - back], &new[front..new.len() - back]);
        let Some(changed) = changed_bytes_at_the_end(of_old, of_new) else { break };
        let (end_of_old, end_of_new) = (old.len() - back, new.len() - back);
        last.push((end_of_old - changed..end_of_old, end_of_new - changed..end_of_new));
        back += changed;
    }
    let between = (front..old.len() - back, front..new.len() - back);
    if between.0.len() + between.1.len() > 0 {
        found.push(between);
    }
    found.extend(last.into_iter().rev());
    found
}

/// How many bytes are equal in front.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    let (words_of_a, words_of_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words = words_of_a.iter().zip(words_of_b).take_while(|(a, b)| a == b).count();
    let rest = a[8 * words..].iter().zip(&b[8 * words..]);
    8 * words + rest.take_while(|(a, b)| a == b).count()
}

/// How many bytes are equal at the end.
fn equal_bytes_at_the_end(a: &[u8], b: &[u8]) -> usize {
    let (words_of_a, words_of_b) = (a.as_rchunks::<8>().1, b.as_rchunks::<8>().1);
    let words = words_of_a.iter().rev().zip(words_of_b.iter().rev());
    let words = words.take_while(|(a, b)| a == b).count();
    let rest = a[..a.len() - 8 * words].iter().rev().zip(b[..b.len() - 8 * words].iter().rev());
    8 * words + rest.take_while(|(a, b)| a == b).count()
}

/// How many bytes differ in front, if at least [`EQUAL`] equal bytes follow soon.
fn changed_bytes(a: &[u8], b: &[u8]) -> Option<usize> {
    (1..=CHANGED)
        .take_while(|from| from + EQUAL <= a.len())
        .find(|&from| a[from..from + EQUAL] == b[from..from + EQUAL])
}

/// How many bytes differ at the end, if at least [`EQUAL`] equal bytes are soon before.
fn changed_bytes_at_the_end(a: &[u8], b: &[u8]) -> Option<usize> {
    let most = a.len().min(b.len());
    let before = |bytes: &[u8], from: usize| bytes.len() - from - EQUAL..bytes.len() - from;
    (1..=CHANGED)
        .take_while(|from| from + EQUAL <= most)
        .find(|&from| a[before(a, from)] == b[before(b, from)])
}

/// A splice as read: bytes that stay, replaced bytes, and the bytes in their place.
fn take_splice<'a>(rest: &mut &'a [u8]) -> Option<(usize, usize, &'a [u8])> {
    let mut number = || usize::try_from(take_varint(rest)?).ok();
    let (kept, replaced, len) = (number()?, number()?, number()?);
    Some((kept, replaced, take(rest, len)?))
}

/// The new value of a column.
#[derive(Clone, Copy)]
pub(crate) enum Edit<'a> {
    Null,
    /// Of a column of fixed width.
    Value(&'a [u8]),
    /// The splices as stored.
    Splices(&'a [u8]),
}

impl Edit<'_> {
    /// Appends the edit as stored, behind its column.
    pub fn push_after(self, column: u16, out: &mut Vec<u8>) {
        push_varint(out, u64::from(column) << 1 | u64::from(matches!(self, Edit::Null)));
        match self {
            Edit::Null => {}
            Edit::Value(bytes) | Edit::Splices(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Returns the splices: the start of each in the new value, the number of replaced bytes, and
    /// the bytes in their place.
    pub fn splices(&self) -> Vec<(usize, usize, &[u8])> {
        let mut found = Vec::new();
        if let Edit::Splices(mut rest) = *self {
            let (count, mut at) = (take_varint(&mut rest).unwrap_or(0), 0);
            for _ in 0..count {
                let Some((kept, replaced, bytes)) = take_splice(&mut rest) else { break };
                found.push((at + kept, replaced, bytes));
                at += kept + bytes.len();
            }
        }
        found
    }
}

/// Iterator over edits: column and new value. Ends early at bytes that are no edits.
pub(crate) struct Edits<'a, 'l> {
    layout: &'l Layout,
    left: u64,
    rest: &'a [u8],
}

impl<'a, 'l> Edits<'a, 'l> {
    pub fn new(layout: &'l Layout, mut edits: &'a [u8]) -> Self {
        let left = take_varint(&mut edits).unwrap_or(0);
        Edits { layout, left, rest: edits }
    }
}

impl<'a> Iterator for Edits<'a, '_> {
    type Item = (u16, Edit<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let mut rest = self.rest;
        let tag = take_varint(&mut rest)?;
        let column = u16::try_from(tag >> 1).ok()?;
        let spec = self.layout.columns.get(usize::from(column))?;
        let value = match spec.kind.width() {
            _ if tag & 1 == 1 => Edit::Null,
            Some(width) => Edit::Value(take(&mut rest, width)?),
            None => {
                let splices = rest;
                for _ in 0..take_varint(&mut rest)? {
                    take_splice(&mut rest)?;
                }
                Edit::Splices(&splices[..splices.len() - rest.len()])
            }
        };
        (self.rest, self.left) = (rest, self.left - 1);
        Some((column, value))
    }
}

/// Checks edits read from disk, as far as possible without the row; returns the bytes after them,
/// or `None` if they are invalid.
pub(crate) fn check_edits<'a>(layout: &Layout, edits: &'a [u8]) -> Option<&'a [u8]> {
    let mut walk = Edits::new(layout, edits);
    let mut last = None;
    for (column, value) in walk.by_ref() {
        let is_key = layout.key_set >> column & 1 == 1;
        let nullable = layout.columns[usize::from(column)].nullable;
        if is_key || last >= Some(column) || matches!(value, Edit::Null) && !nullable {
            return None;
        }
        last = Some(column);
    }
    (walk.left == 0 && last.is_some()).then_some(walk.rest)
}

/// Expands edits to a delta for a row, in `out` (cleared first). `None` if the edits were not made
/// from this row.
pub(crate) fn expand_edits(
    layout: &Layout,
    row: &[u8],
    edits: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    out.clear();
    let walk = Edits::new(layout, edits);
    push_varint(out, walk.left);
    for (column, value) in walk {
        let Edit::Splices(splices) = value else {
            value.push_after(column, out);
            continue;
        };
        push_varint(out, u64::from(column) << 1);
        let new = spliced(layout.bytes(row, column).unwrap_or_default(), splices)?;
        let is_text = layout.columns[usize::from(column)].kind == Type::Text;
        if is_text && std::str::from_utf8(&new).is_err() {
            return None;
        }
        push_varint(out, new.len() as u64);
        out.extend_from_slice(&new);
    }
    Some(())
}

fn spliced(mut old: &[u8], mut splices: &[u8]) -> Option<Vec<u8>> {
    let mut new = Vec::with_capacity(old.len() + splices.len());
    for _ in 0..take_varint(&mut splices)? {
        let (kept, replaced, bytes) = take_splice(&mut splices)?;
        new.extend_from_slice(take(&mut old, kept)?);
        take(&mut old, replaced)?;
        new.extend_from_slice(bytes);
    }
    new.extend_from_slice(old);
    (new.len() <= MAX_ROW_BYTES).then_some(new)
}

#[cfg(test)]
mod tests;
