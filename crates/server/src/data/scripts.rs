//! Scripts of SCRIPT LOAD, libraries of FUNCTION LOAD with their functions, and the positions of an
//! import.

use super::keyspace::Keyspace;
use hyades::{Abort, Column, Row};
use std::ops::AddAssign;

const NAME: Column<[u8]> = Column::at(0);
const BODY: Column<[u8]> = Column::at(1);

/// The first byte of the keys, before the digest of a script, the name of a library, the name of a
/// function in lower case, or the number of an import thread.
const SCRIPT: u8 = b'S';
const LIBRARY: u8 = b'L';
const FUNCTION: u8 = b'F';
const IMPORT: u8 = b'I';

/// Numbers of stored scripts, libraries and functions, or changes of the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptCounts {
    /// Scripts of SCRIPT LOAD.
    pub scripts: i64,
    /// Bytes of the scripts' texts.
    pub script_bytes: i64,
    /// Libraries of FUNCTION LOAD.
    pub libraries: i64,
    /// Functions of the libraries.
    pub functions: i64,
}

impl ScriptCounts {
    /// Counts a row of the table.
    pub fn add_row(&mut self, row: &Row<'_>) {
        let kind = row.get(NAME).first().copied().unwrap_or_default();
        self.add_text(kind, 1, row.get(BODY).len());
    }

    /// Counts texts of a kind with their bytes.
    fn add_text(&mut self, kind: u8, by: i64, bytes: usize) {
        match kind {
            SCRIPT => {
                self.scripts += by;
                self.script_bytes += by * bytes as i64;
            }
            LIBRARY => self.libraries += by,
            FUNCTION => self.functions += by,
            _ => {}
        }
    }
}

impl AddAssign for ScriptCounts {
    fn add_assign(&mut self, change: ScriptCounts) {
        self.scripts += change.scripts;
        self.script_bytes += change.script_bytes;
        self.libraries += change.libraries;
        self.functions += change.functions;
    }
}

/// Names with texts.
pub type NamedTexts = Vec<(Vec<u8>, Vec<u8>)>;

impl Keyspace<'_> {
    /// The body of a loaded script.
    ///
    /// # Errors
    /// A conflict, or the transaction has copied too much.
    pub fn loaded_script(&self, sha: &[u8; 20]) -> Result<Option<Vec<u8>>, Abort> {
        self.text(SCRIPT, sha)
    }

    /// Stores a script.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn load_script(&self, sha: &[u8; 20], body: &[u8]) -> Result<(), Abort> {
        self.put_text(SCRIPT, sha, body)
    }

    /// Removes all scripts.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn flush_scripts(&self) -> Result<(), Abort> {
        self.remove_texts(SCRIPT)?;
        self.context().effects.borrow_mut().scripts_flushed = true;
        Ok(())
    }

    /// Counts a stored or removed text.
    fn count_text(&self, kind: u8, by: i64, bytes: usize) {
        self.context().effects.borrow_mut().scripts.add_text(kind, by, bytes);
    }

    /// The keys behind the first byte, and the texts, of all rows of a kind, in order.
    fn texts(&self, kind: u8) -> Result<NamedTexts, Abort> {
        let (table, mut all) = (self.context().tables.scripts, Vec::new());
        let (from, before) = ([kind], [kind + 1]);
        let (from, before) = ([(&from[..]).into()], [(&before[..]).into()]);
        let tx = self.transaction();
        for row in tx.scan(table).from(&from).before(&before).rows()? {
            let (key, body) = (row.get(NAME), row.get(BODY));
            self.context().check_copied()?;
            self.context().count_read_bytes(key.len(), body.len());
            all.push((key[1..].to_vec(), body.to_vec()));
        }
        Ok(all)
    }

    /// Removes all texts of a kind.
    fn remove_texts(&self, kind: u8) -> Result<(), Abort> {
        for (name, body) in self.texts(kind)? {
            self.remove_text(kind, &name, body.len())?;
        }
        Ok(())
    }

    /// Removes a text of `bytes` bytes. Returns whether the text existed.
    fn remove_text(&self, kind: u8, name: &[u8], bytes: usize) -> Result<bool, Abort> {
        self.context().check_copied()?;
        self.context().count_written_bytes(1 + name.len(), 0, 1);
        let key = [&[kind][..], name].concat();
        let existed = self.transaction().delete(self.context().tables.scripts, &key[..])?;
        if existed {
            self.count_text(kind, -1, bytes);
        }
        Ok(existed)
    }

    fn text(&self, kind: u8, name: &[u8]) -> Result<Option<Vec<u8>>, Abort> {
        self.context().check_copied()?;
        let (table, key) = (self.context().tables.scripts, [&[kind][..], name].concat());
        let row = self.transaction().get_columns(table, &key[..], BODY.only())?;
        let body = row.map(|row| row.get(BODY).to_vec());
        self.context().count_read_bytes(key.len(), body.as_ref().map_or(0, Vec::len));
        Ok(body)
    }

    /// Stores a text, in the place of any earlier text. The text of a script never changes: the key
    /// is a digest.
    fn put_text(&self, kind: u8, name: &[u8], text: &[u8]) -> Result<(), Abort> {
        self.context().check_copied()?;
        let (table, key) = (self.context().tables.scripts, [&[kind][..], name].concat());
        self.context().count_written_bytes(key.len(), text.len(), 1);
        if !self.transaction().upsert(table, &[(&key[..]).into(), text.into()])? {
            self.count_text(kind, 1, text.len());
        }
        Ok(())
    }

    /// The positions of the threads of an import, by the threads' numbers.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn import_positions(&self) -> Result<NamedTexts, Abort> {
        self.texts(IMPORT)
    }

    /// Stores the position of a thread of an import.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn put_import_position(&self, thread: u8, position: &[u8]) -> Result<(), Abort> {
        self.put_text(IMPORT, &[thread], position)
    }

    /// The code of a library.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn library(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Abort> {
        self.text(LIBRARY, name)
    }

    /// All libraries by name, with their code.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn libraries(&self) -> Result<NamedTexts, Abort> {
        self.texts(LIBRARY)
    }

    /// Stores the code of a library.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn put_library(&self, name: &[u8], code: &[u8]) -> Result<(), Abort> {
        self.put_text(LIBRARY, name, code)
    }

    /// Removes a library with its functions. Returns whether the library existed.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn remove_library(&self, name: &[u8]) -> Result<bool, Abort> {
        for function in self.functions()?.iter().filter(|function| function.library == name) {
            self.remove_text(FUNCTION, &function.name.to_ascii_lowercase(), 0)?;
        }
        self.remove_text(LIBRARY, name, 0)
    }

    /// Removes all libraries.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn flush_libraries(&self) -> Result<(), Abort> {
        self.remove_texts(FUNCTION)?;
        self.remove_texts(LIBRARY)
    }

    /// A function, whatever the case of its name.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn function(&self, name: &[u8]) -> Result<Option<KeptFunction>, Abort> {
        let text = self.text(FUNCTION, &name.to_ascii_lowercase())?;
        text.map(|text| KeptFunction::read(&text).ok_or(Abort::Conflict)).transpose()
    }

    /// All functions.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn functions(&self) -> Result<Vec<KeptFunction>, Abort> {
        let all = self.texts(FUNCTION)?;
        // Texts are written by this program: another text is a torn view, which is not validated.
        all.iter().map(|(_, text)| KeptFunction::read(text).ok_or(Abort::Conflict)).collect()
    }

    /// Stores a function.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn put_function(&self, function: &KeptFunction) -> Result<(), Abort> {
        self.put_text(FUNCTION, &function.name.to_ascii_lowercase(), &function.write())
    }
}

/// A function as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFunction {
    /// The digest of the code of the library.
    pub sha: [u8; 20],
    /// Bits of the function's flags.
    pub flags: u8,
    /// The name of the library.
    pub library: Vec<u8>,
    /// The name of the function.
    pub name: Vec<u8>,
    /// A description in words.
    pub description: Option<Vec<u8>>,
}

impl KeptFunction {
    /// The digest, the flags, and each text behind its length; the description may be absent.
    fn write(&self) -> Vec<u8> {
        let mut text = self.sha.to_vec();
        text.push(self.flags);
        let texts = [Some(&self.library), Some(&self.name), self.description.as_ref()];
        for own in texts.into_iter().flatten() {
            text.extend_from_slice(&(own.len() as u32).to_le_bytes());
            text.extend_from_slice(own);
        }
        text
    }

    fn read(text: &[u8]) -> Option<KeptFunction> {
        let (sha, rest) = text.split_first_chunk::<20>()?;
        let (flags, mut rest) = rest.split_first()?;
        let mut next = || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (own, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(own.to_vec())
        };
        let (library, name, description) = (next()?, next()?, next());
        Some(KeptFunction { sha: *sha, flags: *flags, library, name, description })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_reads_back() {
        for description in [None, Some(b"".to_vec()), Some(b"what it does".to_vec())] {
            let (library, name) = (b"lib".to_vec(), b"Name".to_vec());
            let function = KeptFunction { sha: [7; 20], flags: 3, library, name, description };
            assert_eq!(KeptFunction::read(&function.write()), Some(function));
        }
        assert_eq!(KeptFunction::read(&[0; 22]), None);
    }
}
