//! Histories: the reads and writes of transactions, and a check of the values read.

use super::wrong::{WrongCounts, WrongLife};
use crate::{ScanOrder, Ticket};
use std::collections::BTreeMap;
use std::ops::Range;

/// The place of a key in the order of all keys; where keys are a single byte long, the byte.
pub type KeyByte = u8;
/// The number of a write; None: no value.
pub type WriteNumber = Option<u64>;

/// A state: absent keys have no value.
pub type KeyState = BTreeMap<KeyByte, WriteNumber>;

/// The number of all writes of no bytes, and of no other write.
pub const EMPTY: u64 = 0;

/// The bytes of a write: the number, and padding that depends on the number.
pub fn bytes(number: u64, padding: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + padding, number as u8);
    bytes
}

/// The number of a write; [`EMPTY`] of no bytes.
///
/// # Panics
/// The bytes are not the bytes of a write.
pub fn number(bytes: &[u8]) -> u64 {
    if bytes.is_empty() {
        return EMPTY;
    }
    let (number, padding) = bytes.split_first_chunk::<8>().expect("a value begins with a number");
    let number = u64::from_le_bytes(*number);
    assert!(padding.iter().all(|b| *b == number as u8), "the value of {number} is damaged");
    number
}

/// A scan, and its result.
#[derive(Debug)]
pub struct ScannedKeys<'s> {
    /// The scan's range.
    pub range: Range<KeyByte>,
    /// The scan's order.
    pub order: ScanOrder,
    /// The most rows to return.
    pub limit: usize,
    /// The rows returned: keys, and the numbers of the values.
    pub rows: &'s [(KeyByte, u64)],
}

impl ScannedKeys<'_> {
    /// The keys covered by the result: only up to the last row, if the limit has ended the scan.
    fn told(&self) -> Range<KeyByte> {
        let Range { start, end } = self.range;
        match self.rows.last().filter(|_| self.rows.len() == self.limit) {
            Some((last, _)) if self.order == ScanOrder::Ascending => start..last + 1,
            Some((last, _)) => *last..end,
            None => start..end,
        }
    }

    /// Adds the scan's reads to the reads of a transaction: keys without values as well.
    ///
    /// # Panics
    /// The scan has returned an impossible result, or not seen the transaction's own writes.
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

/// An ended transaction, with a possibly visible result.
#[derive(Debug)]
pub struct ExecutedInLife {
    /// The timestamp.
    pub ts: u64,
    /// The transaction's reads, without its own writes.
    pub reads: Vec<(KeyByte, WriteNumber)>,
    /// The transaction's writes.
    pub writes: BTreeMap<KeyByte, WriteNumber>,
    /// None if the commit did not return a ticket: then the outcome is unknown.
    pub ticket: Option<Ticket>,
    /// Whether the transaction was acknowledged at the last look.
    pub acknowledged: bool,
}

impl ExecutedInLife {
    /// A transaction without any operation yet.
    pub fn begun(ts: u64) -> Self {
        let (reads, writes) = (Vec::new(), BTreeMap::new());
        Self { ts, reads, writes, ticket: None, acknowledged: false }
    }

    /// Looks whether the transaction is acknowledged; an acknowledged transaction stays so.
    pub fn look(&mut self) {
        let is_acknowledged = |ticket: &Ticket| ticket.is_acknowledged().unwrap_or(false);
        self.acknowledged |= self.ticket.as_ref().is_some_and(is_acknowledged);
    }
}

/// The transactions of a life, over the initial state.
#[derive(Debug, Default)]
pub struct LifeHistory {
    /// The state before the transactions.
    pub base: KeyState,
    /// The transactions.
    pub executed: Vec<ExecutedInLife>,
}

pub(super) fn value(state: &KeyState, key: KeyByte) -> WriteNumber {
    state.get(&key).copied().flatten()
}

impl LifeHistory {
    /// Whether each read has seen the last earlier write, by timestamp: then the history is
    /// strictly serializable, as timestamps are drawn in real time.
    ///
    /// # Errors
    /// The first wrong read.
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
            // Without a ticket other transactions have not seen the writes.
            if executed.ticket.is_some() {
                state.extend(executed.writes.iter().map(|(key, written)| (*key, *written)));
            }
        }
        Ok(())
    }

    /// The state left by the last transaction.
    pub fn last_state(&self) -> KeyState {
        let mut state = self.base.clone();
        for executed in self.executed.iter().filter(|e| e.ticket.is_some()) {
            state.extend(executed.writes.iter().map(|(key, written)| (*key, *written)));
        }
        state
    }

    /// Whether all acknowledgeable transactions are acknowledged, where everything is durable.
    ///
    /// # Errors
    /// The first unacknowledged transaction.
    pub fn check_acknowledged(&self) -> Result<(), WrongLife> {
        let mut open = self.executed.iter().filter(|e| e.ticket.is_some() && !e.acknowledged);
        let Some(first) = open.next() else { return Ok(()) };
        let what = format!("all is durable, and {} is not acknowledged", first.ts);
        let counts = WrongCounts { late: 1 + open.count(), ..Default::default() };
        Err(WrongLife { counts, what })
    }
}
