//! Notes about expiring fields: their timers, and the events for clients.

use super::{BODY, Entry, HEAD, Keyspace, VALUE, WrittenKey};
use crate::data::expiries::Expiry;
use crate::data::field_times;
use crate::data::head::Head;
use hyades::Abort;

impl Entry<'_, '_> {
    /// Notes a field of the hash with this time of expiry, earlier than all others: the field gets
    /// a timer.
    pub fn note_due(&self, at_ms: i64) {
        let Keyspace { context, generation, .. } = self.space();
        let expiry = Expiry { at_ms, generation: generation.get(), key: self.key() };
        context.effects.borrow_mut().expiries.push(expiry);
    }

    /// Notes a hash with times, stored here: the first of the times gets a timer.
    pub(super) fn note_all_due(&self, head: Head, body: &[u8]) -> Result<(), Abort> {
        let first = field_times::first_behind(head, body, self.blocks(), -1)?;
        first.into_iter().for_each(|at_ms| self.note_due(at_ms));
        Ok(())
    }

    /// Notes expired fields of the hash, removed now with the next write.
    pub fn note_lapsed(&self, fields: u64) {
        let Keyspace { context, database, .. } = self.space();
        if fields == 0 {
            return;
        }
        context.effects.borrow_mut().expired_fields += fields;
        if context.events.is_on() {
            let lapsed = WrittenKey::lapsed(*database, self.key(), self.head());
            context.effects.borrow_mut().written_keys.push(lapsed);
        }
    }
}

impl Keyspace<'_> {
    /// The number of stored fields of a hash with times, though all fields may have expired.
    pub fn stored_fields(&self, key: &[u8]) -> Result<usize, Abort> {
        let place = (self.generation(), key);
        let row = self.transaction().get_columns(self.context().tables.keys, place, VALUE)?;
        let Some(row) = row else { return Ok(0) };
        field_times::count(self.head_of(row.get(HEAD))?, row.get(BODY), self.blocks())
    }
}
