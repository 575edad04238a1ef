//! Which rows a transaction has locked or written: a small hash table in its arena.

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;

/// What is known of a row: positions in the transaction's lists, plus one; 0 for none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    address: usize,
    pub held: u32,
    pub write: u32,
}

/// Open addressing with linear probing; never more than half full.
pub(crate) struct KnownRows<'s> {
    slots: ArenaVec<'s, Known>,
    len: usize,
}

const FIRST_SLOTS: usize = 16;

impl<'s> KnownRows<'s> {
    pub fn new(arena: &'s Bump) -> Self {
        KnownRows { slots: ArenaVec::new_in(arena), len: 0 }
    }

    #[inline]
    fn find(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        // Records are aligned to 16: the low bits say nothing.
        let mut at = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & mask;
        while self.slots[at].address != 0 && self.slots[at].address != address {
            at = (at + 1) & mask;
        }
        at
    }

    /// What is known of the row at this address, if anything.
    #[inline]
    pub fn get<T>(&self, row: &T) -> Option<Known> {
        if self.len == 0 {
            return None;
        }
        let known = self.slots[self.find(std::ptr::from_ref(row) as usize)];
        (known.address != 0).then_some(known)
    }

    /// The place for what is known of the row.
    pub fn entry<T>(&mut self, row: &T) -> &mut Known {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let address = std::ptr::from_ref(row) as usize;
        let at = self.find(address);
        if self.slots[at].address == 0 {
            self.slots[at].address = address;
            self.len += 1;
        }
        &mut self.slots[at]
    }

    fn grow(&mut self) {
        let wanted = (self.slots.len() * 4).max(FIRST_SLOTS);
        let mut fresh = ArenaVec::with_capacity_in(wanted, self.slots.bump());
        fresh.resize(wanted, Known::default());
        let old = std::mem::replace(&mut self.slots, fresh);
        for known in old.iter().filter(|known| known.address != 0) {
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
        let arena = Bump::new();
        let rows: Vec<[u64; 2]> = vec![[0; 2]; 1000];
        let mut known = KnownRows::new(&arena);
        for (i, row) in rows.iter().enumerate() {
            assert!(known.get(row).is_none());
            known.entry(row).held = i as u32 + 1;
        }
        for (i, row) in rows.iter().enumerate().step_by(3) {
            known.entry(row).write = i as u32 + 7;
        }
        for (i, row) in rows.iter().enumerate() {
            let found = known.get(row).unwrap();
            assert_eq!(found.held, i as u32 + 1);
            assert_eq!(found.write, if i % 3 == 0 { i as u32 + 7 } else { 0 });
        }
    }
}
