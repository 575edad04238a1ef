//! Histories: what transactions have read and written, and whether a recovered state fits them.

use crate::{Row, ScanOrder, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A key: one byte.
pub type KeyByte = u8;
/// The number of a write; None: no value.
pub type WriteNumber = Option<u64>;

/// A state: keys that are not in it have no value.
pub type KeyState = BTreeMap<KeyByte, WriteNumber>;

/// The bytes of a write: its number, and padding that depends on it.
pub fn bytes(number: u64, padding: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + padding, number as u8);
    bytes
}

/// The number of a write.
///
/// # Panics
/// The bytes are not those of a write.
pub fn number(bytes: &[u8]) -> u64 {
    let (number, padding) = bytes.split_first_chunk::<8>().expect("a value begins with a number");
    let number = u64::from_le_bytes(*number);
    assert!(padding.iter().all(|b| *b == number as u8), "the value of {number} is damaged");
    number
}

/// A scan, and what it returned.
#[derive(Debug)]
pub struct ScannedKeys<'s> {
    /// Its range.
    pub range: Range<KeyByte>,
    /// Its order.
    pub order: ScanOrder,
    /// The most rows that it was to return.
    pub limit: usize,
    /// What it returned.
    pub rows: &'s [Row],
}

impl ScannedKeys<'_> {
    /// The keys of which it has told something: up to where a limit has ended it.
    fn told(&self) -> Range<KeyByte> {
        let Range { start, end } = self.range;
        match self.rows.last().filter(|_| self.rows.len() == self.limit) {
            Some((last, _)) if self.order == ScanOrder::Ascending => start..last[0] + 1,
            Some((last, _)) => last[0]..end,
            None => start..end,
        }
    }

    /// Adds what it has read to the reads of a transaction: keys without values as well.
    ///
    /// # Panics
    /// It has returned what no scan may, or not seen the transaction's own writes.
    pub fn note(
        &self,
        reads: &mut Vec<(KeyByte, WriteNumber)>,
        writes: &BTreeMap<KeyByte, WriteNumber>,
    ) {
        let rows = self.rows;
        let is_sorted = match self.order {
            ScanOrder::Ascending => rows.is_sorted_by(|a, b| a.0 < b.0),
            ScanOrder::Descending => rows.is_sorted_by(|a, b| a.0 > b.0),
        };
        assert!(rows.len() <= self.limit && is_sorted, "{self:?}");
        assert!(rows.iter().all(|(key, _)| self.range.contains(&key[0])), "{self:?}");
        let of_keys: BTreeMap<KeyByte, u64> = rows.iter().map(|(k, v)| (k[0], number(v))).collect();
        for key in self.told() {
            let read = of_keys.get(&key).copied();
            match writes.get(&key) {
                Some(own) => assert_eq!(read, *own, "a scan sees its own writes"),
                None => reads.push((key, read)),
            }
        }
    }
}

/// A transaction that has ended and may have told what it did.
#[derive(Debug)]
pub struct ExecutedInLife {
    /// Its timestamp.
    pub ts: u64,
    /// What it has read, its own writes aside.
    pub reads: Vec<(KeyByte, WriteNumber)>,
    /// What it has written.
    pub writes: BTreeMap<KeyByte, WriteNumber>,
    /// None if the commit did not return one: then its outcome is unknown.
    pub ticket: Option<Ticket>,
    /// Whether it was acknowledged when it was last looked at.
    pub acknowledged: bool,
}

impl ExecutedInLife {
    /// A transaction that has done nothing yet.
    pub fn begun(ts: u64) -> Self {
        let (reads, writes) = (Vec::new(), BTreeMap::new());
        Self { ts, reads, writes, ticket: None, acknowledged: false }
    }

    /// Looks whether it is acknowledged; once it is, it stays so.
    pub fn look(&mut self) {
        let is_acknowledged = |ticket: &Ticket| ticket.is_acknowledged().unwrap_or(false);
        self.acknowledged |= self.ticket.as_ref().is_some_and(is_acknowledged);
    }
}

/// The transactions of a life, over the state that it began with.
#[derive(Debug, Default)]
pub struct LifeHistory {
    /// The state before them.
    pub base: KeyState,
    /// The transactions.
    pub executed: Vec<ExecutedInLife>,
}

fn value(state: &KeyState, key: KeyByte) -> WriteNumber {
    state.get(&key).copied().flatten()
}

impl LifeHistory {
    /// Whether each read has seen the last write before it, by timestamp: then the history is
    /// strictly serializable, as timestamps are drawn in real time.
    ///
    /// # Errors
    /// The first read that has not.
    pub fn check_reads(&mut self) -> Result<(), String> {
        self.executed.sort_by_key(|executed| executed.ts);
        let mut state = self.base.clone();
        for executed in &self.executed {
            for &(key, read) in &executed.reads {
                let expected = value(&state, key);
                if read != expected {
                    let ts = executed.ts;
                    return Err(format!("{ts} read {read:?} of {key}, not {expected:?}"));
                }
            }
            // Without a ticket others have not seen it.
            if executed.ticket.is_some() {
                state.extend(executed.writes.iter().map(|(key, written)| (*key, *written)));
            }
        }
        Ok(())
    }

    /// The state that the last of them has left.
    pub fn last_state(&self) -> KeyState {
        let mut state = self.base.clone();
        for executed in self.executed.iter().filter(|e| e.ticket.is_some()) {
            state.extend(executed.writes.iter().map(|(key, written)| (*key, *written)));
        }
        state
    }

    /// Whether a crash may have left this state of these keys: every acknowledged transaction is
    /// there, each is there whole, and so is everything that it has read.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check_recovered(&self, keys: &[KeyByte], recovered: &KeyState) -> Result<(), String> {
        let of_write = |written: u64| {
            self.executed.iter().position(|e| e.writes.values().any(|w| *w == Some(written)))
        };
        let is_base = |key: KeyByte, written: WriteNumber| value(&self.base, key) == written;
        let mut wanted: Vec<usize> =
            (0..self.executed.len()).filter(|at| self.executed[*at].acknowledged).collect();
        for &key in keys {
            let written = value(recovered, key);
            if let Some(number) = written
                && !is_base(key, written)
            {
                let by = of_write(number);
                wanted.push(by.ok_or_else(|| format!("{number} of {key} was never written"))?);
            }
        }
        self.fits(keys, recovered, wanted)
    }

    /// Whether the state is what these transactions have left, with all that they have read from,
    /// and perhaps others that have only deleted: a deletion does not say which one it is.
    fn fits(
        &self,
        keys: &[KeyByte],
        recovered: &KeyState,
        wanted: Vec<usize>,
    ) -> Result<(), String> {
        let there = self.closure(wanted)?;
        let mut state = self.base.clone();
        for at in &there {
            let writes = self.executed[*at].writes.iter();
            state.extend(writes.map(|(key, written)| (*key, *written)));
        }
        for &key in keys {
            let (expected, found) = (value(&state, key), value(recovered, key));
            if expected == found {
                continue;
            }
            let deletes = |at: &usize| self.executed[*at].writes.get(&key) == Some(&None);
            let others = (0..self.executed.len()).filter(|at| !there.contains(at));
            let with = |other| there.iter().copied().chain([other]).collect();
            let explains = |other| self.fits(keys, recovered, with(other)).is_ok();
            return match found.is_none() && others.filter(deletes).any(explains) {
                true => Ok(()),
                false => Err(format!("{key} is {found:?}, not {expected:?}")),
            };
        }
        Ok(())
    }

    /// These transactions, and all that they have read from.
    fn closure(&self, mut wanted: Vec<usize>) -> Result<BTreeSet<usize>, String> {
        let mut there = BTreeSet::new();
        while let Some(at) = wanted.pop() {
            if !there.insert(at) {
                continue;
            }
            let executed = &self.executed[at];
            for &(key, read) in &executed.reads {
                let is_writer =
                    |e: &ExecutedInLife| e.ticket.is_some() && e.writes.contains_key(&key);
                let writer = self.executed[..at].iter().rposition(is_writer);
                let written = match writer {
                    Some(writer) => self.executed[writer].writes[&key],
                    None => value(&self.base, key),
                };
                if written != read {
                    return Err(format!("{} read {read:?} of {key}: {written:?}", executed.ts));
                }
                wanted.extend(writer);
            }
        }
        Ok(there)
    }
}
