//! The writes of a group, for stores that do not read what a batch is about to write.

use std::collections::HashMap;
use std::hint::black_box;

/// The last value of each key that a group has written.
#[derive(Default)]
pub struct Written(HashMap<Vec<u8>, Vec<u8>>);

impl Written {
    /// Reads a key's value; says whether the group has written one.
    pub fn read(&self, key: &[u8]) -> bool {
        black_box(self.0.get(key)).is_some()
    }

    pub fn write(&mut self, key: &[u8], value: &[u8]) {
        match self.0.get_mut(key) {
            Some(written) => {
                written.clear();
                written.extend_from_slice(value);
            }
            None => drop(self.0.insert(key.to_vec(), value.to_vec())),
        }
    }

    /// Each key once, with its value.
    pub fn into_entries(self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.0.into_iter()
    }
}
