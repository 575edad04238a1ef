//! The rows that a transaction has locked or written: a small hash table owned by the session.

/// Where a row is in the transaction's lists `held` and `writes`: the index plus one, 0 for none.
#[derive(Clone, Copy, Default)]
pub(crate) struct KnownRow {
    address: usize,
    /// Number of the transaction that filled the slot. Other transactions treat the slot as empty.
    transaction: u32,
    pub held: u32,
    pub write: u32,
}

/// Open addressing with linear probing, at most half full. Clearing the table is free: each
/// transaction has a number and sees only slots with the number.
pub(crate) struct KnownRows {
    slots: Vec<KnownRow>,
    transaction: u32,
    len: usize,
}

const FIRST_SLOTS: usize = 64;

impl KnownRows {
    pub fn new() -> Self {
        KnownRows { slots: vec![KnownRow::default(); FIRST_SLOTS], transaction: 1, len: 0 }
    }

    /// The size in bytes, needed by the largest transaction so far.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<KnownRow>()
    }

    /// Empties the table for the next transaction.
    #[inline]
    pub fn begin(&mut self) {
        self.len = 0;
        self.transaction = self.transaction.wrapping_add(1);
        if self.transaction == 0 {
            self.slots.fill(KnownRow::default());
            self.transaction = 1;
        }
    }

    /// Returns the row's slot, or the free slot where it would be inserted.
    #[inline]
    fn find(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        // Records are 16-byte aligned, so the low four bits carry no information.
        let mut at = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & mask;
        loop {
            let slot = &self.slots[at];
            if slot.transaction != self.transaction || slot.address == address {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the entry of the row, if any.
    #[inline]
    pub fn get<T>(&self, row: &T) -> Option<KnownRow> {
        if self.len == 0 {
            return None;
        }
        let known = self.slots[self.find(std::ptr::from_ref(row) as usize)];
        (known.transaction == self.transaction).then_some(known)
    }

    /// Returns the entry of the row; adds an empty entry if there is none.
    #[inline]
    pub fn entry<T>(&mut self, row: &T) -> &mut KnownRow {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let address = std::ptr::from_ref(row) as usize;
        let at = self.find(address);
        let transaction = self.transaction;
        if self.slots[at].transaction != transaction {
            self.slots[at] = KnownRow { address, transaction, held: 0, write: 0 };
            self.len += 1;
        }
        &mut self.slots[at]
    }

    #[cold]
    fn grow(&mut self) {
        let fresh = vec![KnownRow::default(); self.slots.len() * 4];
        let old = std::mem::replace(&mut self.slots, fresh);
        for known in old.iter().filter(|known| known.transaction == self.transaction) {
            let at = self.find(known.address);
            self.slots[at] = *known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_with_what_was_noted_last() {
        let rows: Vec<[u64; 2]> = vec![[0; 2]; 1000];
        let mut known = KnownRows::new();
        for transaction in 0..3 {
            known.begin();
            for (i, row) in rows.iter().enumerate().skip(transaction) {
                assert!(known.get(row).is_none());
                known.entry(row).held = i as u32 + 1;
            }
            for (i, row) in rows.iter().enumerate().skip(transaction).step_by(3) {
                known.entry(row).write = i as u32 + 7;
            }
            for (i, row) in rows.iter().enumerate().skip(transaction) {
                let found = known.get(row).unwrap();
                assert_eq!(found.held, i as u32 + 1);
                let written = (i - transaction).is_multiple_of(3);
                assert_eq!(found.write, if written { i as u32 + 7 } else { 0 });
            }
        }
    }

    #[test]
    fn numbers_of_transactions_may_come_round() {
        let row = [0u64; 2];
        let mut known = KnownRows::new();
        known.transaction = u32::MAX - 1;
        for _ in 0..4 {
            known.begin();
            assert!(known.get(&row).is_none());
            known.entry(&row).held = 1;
            assert_eq!(known.get(&row).unwrap().held, 1);
        }
    }
}
