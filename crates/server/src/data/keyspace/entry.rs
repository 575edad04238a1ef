//! A key and its value: how the value is recognised, replaced, changed and removed.

use super::{
    BODY, COPIES_OF_A_CHANGE, HEAD, Keyspace, LONGEST_BODY, LONGEST_KEY, Stop, WRONG_TYPE,
};
use crate::data::blocks::BlockTable;
use crate::data::chunks::{ChunkedString, LONGEST_IN_ROW, StoredString};
use crate::data::collections;
use crate::data::head::{Form, Head, Kind};
use hyades::Abort;

/// The result of a lookup of a key, with the functions that write there.
#[derive(Clone, Copy)]
pub struct Entry<'t, 's> {
    space: &'s Keyspace<'t>,
    key: &'s [u8],
    /// The head of the row, if there is one, expired or not.
    stored: Option<Head>,
    /// Head and body, unless the value has expired. The body is empty if only the head was read.
    live: Option<(Head, &'t [u8])>,
}

impl<'t, 's> Entry<'t, 's> {
    pub(super) fn new(
        space: &'s Keyspace<'t>,
        key: &'s [u8],
        stored: Option<Head>,
        body: &'t [u8],
    ) -> Entry<'t, 's> {
        let live = stored.filter(|head| !space.context.has_expired(*head));
        Entry { space, key, stored, live: live.map(|head| (head, body)) }
    }

    /// The same entry, of a hash whose fields have all expired.
    pub(super) fn over(self) -> Entry<'t, 's> {
        Entry { live: None, ..self }
    }

    /// The keyspace of the entry.
    pub fn space(&self) -> &'s Keyspace<'t> {
        self.space
    }

    /// The key.
    pub fn key(&self) -> &'s [u8] {
        self.key
    }

    /// Whether there is a row, of a live or an expired value.
    pub fn is_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.live.is_some()
    }

    /// Whether there is an expired value.
    pub(super) fn has_expired(&self) -> bool {
        self.stored.is_some() && self.live.is_none()
    }

    /// Whether there is a hash whose fields have all expired, while the hash itself has not.
    pub(super) fn is_over(&self) -> bool {
        let context = &self.space.context;
        self.live.is_none() && self.stored.is_some_and(|head| !context.has_expired(head))
    }

    /// The head, if the key exists.
    pub fn head(&self) -> Option<Head> {
        self.live.map(|(head, _)| head)
    }

    /// Head and body of the row, if the key exists.
    pub fn row(&self) -> Option<(Head, &'t [u8])> {
        self.live
    }

    /// The blocks of the elements, if the value lies in blocks.
    pub fn blocks(&self) -> BlockTable<'t> {
        self.space.blocks()
    }

    /// Whether the key holds a collection in blocks.
    pub fn lies_in_blocks(&self) -> bool {
        self.head().is_some_and(|head| matches!(head.form(), Form::Blocks | Form::TimedBlocks))
    }

    /// Whether there is a row, expired or not, of a value in blocks or chunks.
    fn stores_number(&self) -> bool {
        self.stored.is_some_and(|head| head.form().is_numbered())
    }

    /// The body of a value, which has to be of this type; `None` if the key does not exist.
    pub fn body_of(&self, kind: Kind) -> Result<Option<&'t [u8]>, Stop> {
        match self.live {
            Some((head, _)) if head.kind() != kind => Err(WRONG_TYPE.into()),
            live => Ok(live.map(|(_, body)| body)),
        }
    }

    /// The string, `None` if the key does not exist.
    pub fn string(&self) -> Result<Option<StoredString<'t>>, Stop> {
        match self.live {
            None => Ok(None),
            Some((head, body)) if head.kind() == Kind::String => {
                Ok(Some(self.string_in(head.form(), body)?))
            }
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    /// The string of a body.
    pub fn string_in(&self, form: Form, body: &'t [u8]) -> Result<StoredString<'t>, Abort> {
        Ok(match form {
            Form::Chunks => StoredString::InChunks(self.blocks().string(body)?),
            Form::Plain | Form::Raw | Form::Blocks | Form::Timed | Form::TimedBlocks => {
                StoredString::InRow(body)
            }
        })
    }

    /// Counts the change from the stored head to the new head.
    fn count(&self, now: Option<Head>) {
        let number = |head: Option<Head>| {
            let expires = head.is_some_and(|head| head.expires().is_some());
            (i64::from(head.is_some()), i64::from(expires))
        };
        let ((keys, expiring), (keys_now, expiring_now)) = (number(self.stored), number(now));
        let generation = self.space.generation.get();
        let mut effects = self.space.context.effects.borrow_mut();
        if (keys, expiring) != (keys_now, expiring_now) {
            effects.count(generation, keys_now - keys, expiring_now - expiring);
        }
        effects.expired += u64::from(self.has_expired() && !self.is_over());
        effects.changes += 1;
        effects.note_expiry((generation, self.key), self.stored, now);
        drop(effects);
        self.note_written(now);
        self.note_filled(now);
    }

    /// Stores a value. A value that expires at once is removed instead. A long string is put into
    /// chunks.
    ///
    /// # Errors
    /// The key or the value is too long.
    pub fn put(&self, head: Head, body: &[u8]) -> Result<(), Stop> {
        let context = &self.space.context;
        if context.has_expired(head) {
            self.remove()?;
            return Ok(());
        }
        if is_for_chunks(head, body) {
            return self.put_in_chunks(head, body);
        }
        check_lengths(self.key, body)?;
        self.free()?;
        self.count(Some(head));
        if head.form().is_timed() {
            self.note_all_due(head, body)?;
        }
        context.count_written_bytes(self.key.len(), body.len(), 1);
        let generation = self.space.generation.get();
        let row = [generation.into(), self.key.into(), head.word().into(), body.into()];
        Ok(self.space.tx.overwrite(context.tables.keys, &row)?)
    }

    /// Stores a string that does not expire.
    pub fn put_string(&self, value: &[u8]) -> Result<(), Stop> {
        self.put(Head::new(Kind::String, Form::Plain), value)
    }

    /// Replaces the given columns of an existing key: the head, and the body if given. The blocks
    /// or chunks of the value are removed if the new head has none.
    pub fn change(&self, head: Head, body: Option<&[u8]>) -> Result<(), Stop> {
        let Keyspace { tx, context, .. } = self.space;
        if context.has_expired(head) {
            self.remove()?;
            return Ok(());
        }
        if !head.form().is_numbered() {
            self.free()?;
        }
        self.count(Some(head));
        let (keys, place) = (context.tables.keys, (self.space.generation.get(), self.key));
        let is_same_head = self.stored == Some(head);
        match body {
            Some(body) => {
                debug_assert!(!is_for_chunks(head, body), "it was put there");
                check_lengths(self.key, body)?;
                context.count_written_bytes(self.key.len(), body.len(), COPIES_OF_A_CHANGE);
                match is_same_head {
                    true => tx.update(keys, place, &[BODY.set(body)])?,
                    false => tx.update(keys, place, &[HEAD.set(head.word()), BODY.set(body)])?,
                };
            }
            None if is_same_head => {}
            None => {
                context.count_written_bytes(self.key.len(), 0, COPIES_OF_A_CHANGE);
                tx.update(keys, place, &[HEAD.set(head.word())])?;
            }
        }
        Ok(())
    }

    /// Removes the key. Returns whether the key existed.
    pub fn remove(&self) -> Result<bool, Abort> {
        self.free()?;
        self.remove_moved()
    }

    /// Removes the key, whose value another key has now. Returns whether the key existed.
    pub fn remove_moved(&self) -> Result<bool, Abort> {
        if self.stored.is_some() {
            self.count(None);
            let Keyspace { tx, context, .. } = self.space;
            context.count_written_bytes(self.key.len(), 0, 1);
            tx.delete(context.tables.keys, (self.space.generation.get(), self.key))?;
        }
        Ok(self.exists())
    }

    /// Makes the reaper remove the blocks or chunks of the stored value, if it has any: whatever
    /// their number, the transaction writes one row.
    pub fn free(&self) -> Result<(), Abort> {
        if !self.stores_number() {
            return Ok(());
        }
        let Keyspace { tx, context, .. } = self.space;
        let place = (self.space.generation.get(), self.key);
        let row = tx.get_columns(context.tables.keys, place, BODY.only())?;
        // The row existed when the entry was read.
        let body = row.ok_or(Abort::Conflict)?.get(BODY);
        collections::discard(tx, context.tables, body)?;
        context.count_written_bytes(0, size_of::<u64>(), 1);
        context.effects.borrow_mut().discarded = true;
        Ok(())
    }

    /// Notes a change of blocks or chunks of the value that did not write its row: the row is
    /// written if it is marked, see [`Keyspace::watch`].
    pub fn touch(&self) -> Result<(), Abort> {
        self.space.context.effects.borrow_mut().changes += 1;
        self.note_written(self.head());
        self.note_filled(self.head());
        match self.head().filter(|head| head.is_watched()) {
            Some(head) => self.space.write_head(self.key, head.unwatched()),
            None => Ok(()),
        }
    }

    /// An empty string in chunks.
    fn new_string(&self) -> Result<ChunkedString<'t>, Abort> {
        let number = self.space.number_collection(Kind::String)?;
        Ok(ChunkedString::new(self.space.tx, self.space.context, number))
    }

    /// Stores a string in chunks.
    fn put_in_chunks(&self, head: Head, text: &[u8]) -> Result<(), Stop> {
        check_lengths(self.key, &[])?;
        let mut string = self.new_string()?;
        let _is_new = string.write(0, text)?;
        self.put(head.with_form(Form::Chunks), &string.body())
    }

    /// The stored string in chunks, so that it may be changed: the string itself if it lies in
    /// chunks, or a new string. [`Entry::store_chunks`] stores it.
    pub fn in_chunks(&self, stored: Option<StoredString<'t>>) -> Result<ChunkedString<'t>, Abort> {
        match stored {
            Some(StoredString::InChunks(string)) => Ok(string),
            Some(StoredString::InRow(text)) => {
                let mut string = self.new_string()?;
                let _is_new = string.write(0, text)?;
                Ok(string)
            }
            None => self.new_string(),
        }
    }

    /// Stores a string in chunks that was changed in place: its time of expiry stays. `changed`
    /// says whether one of its bytes was changed; a new length, or a move into chunks, shows in the
    /// body of the row. The entry was read with its body.
    pub fn store_chunks(&self, string: &ChunkedString<'_>, changed: bool) -> Result<(), Stop> {
        let body = string.body();
        match self.row() {
            Some((head, before)) if head.form() == Form::Chunks && before == body => {
                if changed {
                    self.touch()?;
                }
                Ok(())
            }
            Some((head, _)) => self.change(head.with_form(Form::Chunks), Some(&body)),
            None => self.put(Head::new(Kind::String, Form::Chunks), &body),
        }
    }

    /// Stores a copy of a string in chunks, in the place of any earlier value.
    pub fn put_copy(&self, head: Head, string: &ChunkedString<'_>) -> Result<(), Stop> {
        let copy = string.copy(self.space.number_collection(Kind::String)?)?;
        self.put(head, &copy.body())
    }
}

/// Whether a body is a string too long for the row of its key.
fn is_for_chunks(head: Head, body: &[u8]) -> bool {
    head.kind().is_in_chunks() && body.len() > LONGEST_IN_ROW
}

fn check_lengths(key: &[u8], body: &[u8]) -> Result<(), Stop> {
    if key.len() > LONGEST_KEY {
        return Err("ERR the key is longer than 1 MiB".into());
    }
    if body.len() > LONGEST_BODY {
        return Err(format!("ERR the value is longer than {LONGEST_BODY} bytes").into());
    }
    Ok(())
}
