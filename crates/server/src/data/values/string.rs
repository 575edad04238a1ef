//! Strings: their changes in place, in the row of a key or in chunks.

use crate::data::chunks::{LONGEST_IN_ROW, StoredString};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Stop};
use crate::resp::number;

/// The head of a string without an expiry.
pub const STRING: Head = Head::new(Kind::String, Form::Plain);

/// The condition for writing a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// In any case.
    Always,
    /// If the string has changed.
    IfChanged,
}

/// The length of a string, 0 if there is none.
pub fn length_of(text: Option<StoredString<'_>>) -> usize {
    text.map_or(0, |text| text.len())
}

/// The reply of OBJECT ENCODING.
pub(super) fn encoding(text: &StoredString<'_>, form: Form) -> &'static str {
    match (text, form) {
        (StoredString::InChunks(_), _) | (_, Form::Raw) => "raw",
        (StoredString::InRow(text), _) if number::integer(text).is_some() => "int",
        (StoredString::InRow(text), _) if text.len() <= 44 => "embstr",
        (StoredString::InRow(_), _) => "raw",
    }
}

impl Entry<'_, '_> {
    /// Stores a string in the row of the key, after a change in place: the time of expiry stays.
    pub fn store_changed(&self, value: &[u8]) -> Result<(), Stop> {
        match self.head() {
            Some(head) => self.change(head.with_form(Form::Raw), Some(value)),
            None => self.put(STRING.with_form(Form::Raw), value),
        }
    }

    /// As `store_changed`, if the string differs from the stored one: setting a bit already set
    /// causes no write.
    pub fn store_if_changed(&self, value: &[u8]) -> Result<(), Stop> {
        match self.string()? {
            Some(StoredString::InRow(old)) if old == value => Ok(()),
            _ => self.store_changed(value),
        }
    }

    /// Stores a number in the place of the string from which it was computed: the time of expiry
    /// stays.
    pub fn store_number(&self, text: &[u8]) -> Result<(), Stop> {
        match self.head() {
            Some(head) => self.change(head.with_form(Form::Plain), Some(text)),
            None => self.put_string(text),
        }
    }

    /// Writes bytes into the string from `at` on, with zeros before them if `at` is behind the end.
    /// The entry was read with the body.
    pub fn write_at(&self, at: usize, bytes: &[u8], when: Written) -> Result<(), Stop> {
        let (stored, end) = (self.string()?, at + bytes.len());
        let length = length_of(stored).max(end);
        if length > LONGEST_IN_ROW || matches!(stored, Some(StoredString::InChunks(_))) {
            let mut string = self.in_chunks(stored)?;
            let changed = string.write(at, bytes)?;
            return self.store_chunks(&string, changed || when == Written::Always);
        }
        let mut value = stored.map_or(Vec::new(), |text| text.short().to_vec());
        value.resize(length, 0);
        value[at..end].copy_from_slice(bytes);
        match when {
            Written::Always => self.store_changed(&value),
            Written::IfChanged => self.store_if_changed(&value),
        }
    }
}
