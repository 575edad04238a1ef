//! Sums over the rows of a prefix, and the row with an element: from the sum index, or from a scan
//! whose counts the transaction keeps, and proposes to the index.

use super::access::Table;
use super::running::{Rec, Running, Tables};
use crate::concurrency::ConcurrencyControl;
use crate::concurrency::state::TxnState;
use crate::concurrency::sums::count_after;
use crate::error::Abort;
use crate::logging::LoggingProtocol;
use crate::storage::kept::KeysInOrder;
use crate::storage::key::{KeyBytes, successor_of_prefix};
use crate::storage::range::Range;
use crate::storage::row::Row;
use crate::storage::schema::Columns;
use crate::storage::sums::TableSums;
use crate::storage::sums::counts::OrderedCounts;
use crate::storage::value::Value;
use crate::storage::wanted::fetch_rows;
use bumpalo::collections::Vec as ArenaVec;
use std::ops::{Bound, ControlFlow};

/// The counts of the transaction's own writes under a prefix, sorted by the rest of the key; `None`
/// for deleted rows.
type OwnCounts<'s> = ArenaVec<'s, (&'s [u8], Option<u64>)>;

/// A table with a sum index, and the index.
type Summed<'s, C, P> = (&'s Tables<C, P>, &'s TableSums<<C as ConcurrencyControl<P>>::Row>);

/// The counts of a prefix, and the stamps of the rows and gaps that have been read for them.
type Scanned<'s, S> = (OrderedCounts, ArenaVec<'s, &'s S>);

/// The sum of the rows before a key, or of all rows, after the transaction's own writes.
fn sum_before(counts: &OrderedCounts, own: &OwnCounts<'_>, before: Option<&[u8]>) -> u64 {
    let sum = before.map_or_else(|| counts.total(), |key| counts.before(key));
    let is_before = |key: &[u8]| before.is_none_or(|before| key < before);
    own.iter().take_while(|(key, _)| is_before(key)).fold(sum, |sum, (key, count)| {
        let replaced = counts.get(key).unwrap_or(0);
        sum.wrapping_add(count.unwrap_or(0)).wrapping_sub(replaced)
    })
}

/// The row with element `n`, after the transaction's own writes: the rest of the row's key, and the
/// sum of the rows before.
fn select(counts: &OrderedCounts, own: &OwnCounts<'_>, n: u64) -> Option<(Vec<u8>, u64)> {
    // By how much the own writes before have changed sums.
    let mut change = 0u64;
    for (key, count) in own {
        let begin = counts.before(key).wrapping_add(change);
        if n < begin {
            break;
        }
        let count = count.unwrap_or(0);
        if n - begin < count {
            return Some((key.to_vec(), begin));
        }
        let replaced = counts.get(key).unwrap_or(0);
        change = change.wrapping_add(count).wrapping_sub(replaced);
    }
    // The row lies between two own writes.
    let found = counts.select(n.wrapping_sub(change))?;
    Some((found.key.to_vec(), found.before.wrapping_add(change)))
}

/// The key range of a prefix.
fn bounds(prefix: &KeyBytes) -> (KeyBytes, Option<KeyBytes>) {
    let mut upper = prefix.clone();
    let is_bounded = successor_of_prefix(&mut upper);
    (prefix.clone(), is_bounded.then_some(upper))
}

impl<'s, C: ConcurrencyControl<P>, P: LoggingProtocol> Running<'s, C, P> {
    /// The sum over the rows of a prefix, or over those before a key.
    pub(super) fn sum_rows(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        prefix: &[Value<'_>],
        before: Option<&[Value<'_>]>,
    ) -> Result<u64, Abort> {
        let ((data, sums), prefix) = self.summed(state, table, prefix)?;
        let before = match before {
            Some(key) => data.encode_bound(None, key, false)?,
            None => None,
        };
        let rest = match &before {
            Some(key) if key.starts_with(&prefix) => Some(&key[prefix.len()..]),
            Some(key) if **key < *prefix => return Ok(0),
            // The key is above the prefix.
            _ => None,
        };
        self.with_counts(state, (data, sums), &prefix, |counts, own| sum_before(counts, own, rest))
    }

    /// The row in which an element of a prefix lies, and the sum of the rows before.
    pub(super) fn select_row(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        prefix: &[Value<'_>],
        n: u64,
    ) -> Result<Option<(Row<'s>, u64)>, Abort> {
        let ((data, sums), prefix) = self.summed(state, table, prefix)?;
        let found =
            self.with_counts(state, (data, sums), &prefix, |counts, own| select(counts, own, n))?;
        let Some((rest, before)) = found else { return Ok(None) };
        let mut key = prefix;
        key.extend_from_slice(&rest);
        let row = match self.find_or_miss(state, data, &key) {
            Some(record) => self.read(state, data, record, Columns::ALL)?,
            None => None,
        };
        let row = match row {
            None => C::beside_indexes(|| self.read_kept(state, data, &key, Columns::ALL))
                .unwrap_or(Ok(None))?,
            row => row,
        };
        // A row that is gone was deleted since.
        row.map(|row| Some((row, before))).ok_or(Abort::Conflict)
    }

    /// The table, its sum index, and the encoded prefix.
    fn summed(
        &self,
        state: &mut TxnState<'s, C, P>,
        table: Table,
        prefix: &[Value<'_>],
    ) -> Result<(Summed<'s, C, P>, KeyBytes), Abort> {
        let data = self.table(table)?;
        let sums = data.sums.as_ref().ok_or(Abort::UnknownHandle)?;
        if prefix.len() != sums.prefix_columns {
            let column = prefix.len() as u16;
            return Err(Abort::WrongType { table: data.layout.table, column });
        }
        let key = data.encode_bound(None, prefix, false)?.unwrap_or(KeyBytes::new());
        let (lower, upper) = (Bound::Included(prefix), Bound::Included(prefix));
        let range = Range { lower, upper, descending: false, limit: usize::MAX };
        self.enter_range(state, data, None, &range)?;
        Ok(((data, sums), key))
    }

    /// Calls `answer` with the counts of a prefix, and with the transaction's own writes. The
    /// counts are added to the read set.
    fn with_counts<T>(
        &self,
        state: &mut TxnState<'s, C, P>,
        (data, sums): Summed<'s, C, P>,
        prefix: &KeyBytes,
        answer: impl Fn(&OrderedCounts, &OwnCounts<'s>) -> T,
    ) -> Result<T, Abort> {
        let own = Self::own_counts(state, (data, sums), prefix);
        let table = data.layout.table;
        if C::SUMS
            && let Some(node) = sums.find(prefix)
        {
            let read = node.read(|counts, highest| {
                state.observe_read(&self.engine.protocol, &node.written);
                state.max_tid = state.max_tid.max(highest);
                answer(counts, &own)
            });
            if let Some((version, answer)) = read {
                state.sums.get_or_insert_default().saw(node, version);
                return Ok(answer);
            }
        }
        let scanned = state.sums.as_ref().and_then(|sums| sums.scanned(table, prefix));
        if let Some(node) = scanned {
            return Ok(node.own(|counts| answer(counts, &own)));
        }
        let (counts, stamps) = loop {
            if let Some(found) = self.scan_counts(state, (data, sums), prefix)? {
                break found;
            }
        };
        let answer = answer(&counts, &own);
        let node = sums.candidate(prefix, counts);
        state.sums.get_or_insert_default().scan((table, sums), node, stamps);
        Ok(answer)
    }

    /// The counts of the transaction's own writes.
    fn own_counts(
        state: &TxnState<'s, C, P>,
        (data, sums): Summed<'s, C, P>,
        prefix: &[u8],
    ) -> OwnCounts<'s> {
        let mut own = ArenaVec::new_in(state.arena);
        for write in state.final_writes() {
            let key = write.record.key();
            if write.table != data.layout.table || !key.starts_with(prefix) {
                continue;
            }
            if let Some(count) = count_after(data, sums, write.pending) {
                own.push((&key[prefix.len()..], count));
            }
        }
        own.sort_unstable_by_key(|(key, _)| *key);
        own
    }

    /// Reads the counts of a prefix as committed, whatever the transaction itself has written, and
    /// adds rows and gaps to the read set. Returns the stamps of the rows and gaps, too. `None` if
    /// a gap has changed during the scan.
    #[cold]
    fn scan_counts(
        &self,
        state: &mut TxnState<'s, C, P>,
        (data, sums): Summed<'s, C, P>,
        prefix: &KeyBytes,
    ) -> Result<Option<Scanned<'s, C::Row>>, Abort> {
        let (mut counts, mut failed, mut settled) = (OrderedCounts::default(), None, true);
        let mut stamps = ArenaVec::new_in(state.arena);
        let column = Columns(1 << sums.column);
        let (lower, upper) = bounds(prefix);
        let lower = Bound::Included(&*lower);
        let upper = upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut visit = |state: &mut TxnState<'s, C, P>, record: &'s Rec<C, P>| {
            match self.read_committed(state, data, record, column) {
                Ok(None) => return false,
                Ok(Some(row)) => {
                    let count = match row.value(sums.column) {
                        Value::U32(count) => u64::from(count),
                        Value::U64(count) => count,
                        _ => unreachable!("the column is an unsigned integer"),
                    };
                    counts.push(&record.key()[prefix.len()..], count);
                }
                Err(abort) => failed = Some(abort),
            }
            true
        };
        let guard = state.guard;
        let fetch = |records: &[&'s Rec<C, P>]| fetch_rows(data, column, records.iter().copied());
        let as_of = C::beside_indexes(|| {
            let keys = KeysInOrder { lower, upper, descending: false };
            // Of the records of a key, one has a row as of the snapshot.
            data.scan_as_of(keys, guard, &fetch, &mut |records| {
                let _ = records.iter().any(|record| visit(state, record));
                ControlFlow::Continue(())
            })
        });
        match as_of {
            Some(scanned) => scanned?,
            None => data.scan(lower, upper, false, guard, &mut |gap, records| {
                stamps.push(gap.stamp());
                settled = self.saw_gap(state, gap);
                if !settled {
                    return ControlFlow::Break(());
                }
                fetch(records);
                for record in records {
                    stamps.push(&record.stamp);
                    visit(state, record);
                }
                ControlFlow::Continue(())
            })?,
        }
        match failed {
            Some(abort) => Err(abort),
            None => Ok(settled.then_some((counts, stamps))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bumpalo::Bump;
    use std::collections::BTreeMap;

    #[test]
    fn own_writes_count() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let (arena, mut counts) = (Bump::new(), OrderedCounts::default());
            let (mut own, mut model) = (OwnCounts::new_in(&arena), BTreeMap::new());
            for n in 0..12u8 {
                let committed = rng.bool().then(|| rng.u64(..3));
                if let Some(count) = committed {
                    counts.push(&[n], count);
                    model.insert(vec![n], count);
                }
                if rng.u8(..3) == 0 {
                    let count = rng.bool().then(|| rng.u64(..3));
                    own.push((&*arena.alloc_slice_copy(&[n]), count));
                    match count {
                        Some(count) => _ = model.insert(vec![n], count),
                        None => _ = model.remove(&vec![n]),
                    }
                }
            }
            let sum =
                |range: &mut dyn Iterator<Item = (&Vec<u8>, &u64)>| range.map(|(_, n)| n).sum();
            let total: u64 = sum(&mut model.iter());
            assert_eq!(sum_before(&counts, &own, None), total);
            for n in 0..13u8 {
                let before: u64 = sum(&mut model.range(..vec![n]));
                assert_eq!(sum_before(&counts, &own, Some(&[n])), before);
            }
            let mut elements = Vec::new();
            for (key, count) in &model {
                let before = elements.len() as u64;
                elements.extend((0..*count).map(|_| (key.clone(), before)));
            }
            for n in 0..total + 2 {
                assert_eq!(select(&counts, &own, n), elements.get(n as usize).cloned());
            }
        }
    }
}
