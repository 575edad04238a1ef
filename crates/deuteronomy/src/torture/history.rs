//! Histories: what transactions have read and written, and whether each has read the right values.

use super::wrong::{WrongCounts, WrongLife};
use crate::{ScanOrder, Ticket};
use std::collections::BTreeMap;
use std::ops::Range;

/// The place of a key in the order of all keys; where keys are one byte long, that byte.
pub type KeyByte = u8;
/// The number of a write; None: no value.
pub type WriteNumber = Option<u64>;

/// A state: keys that are not in it have no value.
pub type KeyState = BTreeMap<KeyByte, WriteNumber>;

/// The number of all writes of no bytes, which no other write has.
pub const EMPTY: u64 = 0;

/// The bytes of a write: its number, and padding that depends on it.
pub fn bytes(number: u64, padding: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + padding, number as u8);
    bytes
}

/// The number of a write; [`EMPTY`] of no bytes.
///
/// # Panics
/// The bytes are not those of a write.
pub fn number(bytes: &[u8]) -> u64 {
    if bytes.is_empty() {
        return EMPTY;
    }
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
    /// What it returned: keys, and the numbers of their values.
    pub rows: &'s [(KeyByte, u64)],
}

impl ScannedKeys<'_> {
    /// The keys of which it has told something: up to where a limit has ended it.
    fn told(&self) -> Range<KeyByte> {
        let Range { start, end } = self.range;
        match self.rows.last().filter(|_| self.rows.len() == self.limit) {
            Some((last, _)) if self.order == ScanOrder::Ascending => start..last + 1,
            Some((last, _)) => *last..end,
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
        assert!(rows.iter().all(|(key, _)| self.range.contains(key)), "{self:?}");
        let of_keys: BTreeMap<KeyByte, u64> = rows.iter().copied().collect();
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

pub(super) fn value(state: &KeyState, key: KeyByte) -> WriteNumber {
    state.get(&key).copied().flatten()
}

impl LifeHistory {
    /// Whether each read has seen the last write before it, by timestamp: then the history is
    /// strictly serializable, as timestamps are drawn in real time.
    ///
    /// # Errors
    /// The first read that has not.
    pub fn check_reads(&mut self) -> Result<(), WrongLife> {
        self.executed.sort_by_key(|executed| executed.ts);
        let mut state = self.base.clone();
        for executed in &self.executed {
            for &(key, read) in &executed.reads {
                let expected = value(&state, key);
                if read != expected {
                    let ts = executed.ts;
                    let what = format!("{ts} read {read:?} of {key}, not {expected:?}");
                    return Err(WrongLife::diverged(what));
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

    /// Whether all that can be acknowledged is, where everything is durable.
    ///
    /// # Errors
    /// The first transaction that is not.
    pub fn check_acknowledged(&self) -> Result<(), WrongLife> {
        let mut open = self.executed.iter().filter(|e| e.ticket.is_some() && !e.acknowledged);
        let Some(first) = open.next() else { return Ok(()) };
        let what = format!("all is durable, and {} is not acknowledged", first.ts);
        let counts = WrongCounts { late: 1 + open.count(), ..Default::default() };
        Err(WrongLife { counts, what })
    }
}
