//! Large strings: they are put into chunks, changed there, and copied.

use super::{Entry, Keyspace, Stop, check_lengths};
use crate::data::chunks::{ChunkedString, StoredString};
use crate::data::head::{Form, Head, Kind};
use hyades::Abort;

impl<'t> Keyspace<'t> {
    /// An empty string in chunks.
    fn new_string(&self) -> Result<ChunkedString<'t>, Abort> {
        let number = self.number_collection(Kind::String)?;
        Ok(ChunkedString::new(self.tx, self.context, number))
    }

    /// Stores a string in chunks.
    pub(super) fn put_in_chunks(
        &self,
        key: &[u8],
        entry: &Entry<'_>,
        head: Head,
        text: &[u8],
    ) -> Result<(), Stop> {
        check_lengths(key, &[])?;
        let mut of = self.new_string()?;
        of.write(0, text)?;
        self.put(key, entry, head.with_form(Form::Chunks), &of.body())
    }

    /// What is stored as a string in chunks, so that it may be changed: the one that it is, or a
    /// new one. [`Keyspace::store_chunks`] stores it.
    pub fn in_chunks(&self, stored: Option<StoredString<'t>>) -> Result<ChunkedString<'t>, Abort> {
        match stored {
            Some(StoredString::InChunks(of)) => Ok(of),
            Some(StoredString::InRow(text)) => {
                let mut of = self.new_string()?;
                of.write(0, text)?;
                Ok(of)
            }
            None => self.new_string(),
        }
    }

    /// Stores a string in chunks that was changed in place: its time of expiry stays. `changed`
    /// says whether one of its bytes was; its length, or that it has moved into chunks, shows in
    /// the body of the row. The entry was read with its body.
    pub fn store_chunks(
        &self,
        key: &[u8],
        entry: &Entry<'_>,
        of: &ChunkedString<'_>,
        changed: bool,
    ) -> Result<(), Stop> {
        let body = of.body();
        match entry.value() {
            Some((head, before)) if head.form() == Form::Chunks && before == body => {
                if changed {
                    self.touch(key, entry)?;
                }
                Ok(())
            }
            Some((head, _)) => self.change(key, entry, head.with_form(Form::Chunks), Some(&body)),
            None => self.put(key, entry, Head::new(Kind::String, Form::Chunks), &body),
        }
    }

    /// Stores a copy of a string in chunks, in the place of whatever is there.
    pub fn copy_chunks(
        &self,
        (key, entry): (&[u8], &Entry<'_>),
        head: Head,
        of: &ChunkedString<'_>,
    ) -> Result<(), Stop> {
        let copy = of.copy(self.number_collection(Kind::String)?)?;
        self.put(key, entry, head, &copy.body())
    }
}
