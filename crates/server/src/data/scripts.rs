//! Scripts of SCRIPT LOAD, libraries of FUNCTION LOAD with their functions, and the positions of an
//! import.

use super::keyspace::Keyspace;
use hyades::{Abort, Column, Row};

const NAME: Column<[u8]> = Column::at(0);
const BODY: Column<[u8]> = Column::at(1);

/// The first byte of the keys, before the digest of a script, the name of a library, the name of a
/// function in lower case, or the number of an import thread.
const SCRIPT: u8 = b'S';
const LIBRARY: u8 = b'L';
const FUNCTION: u8 = b'F';
const IMPORT: u8 = b'I';

/// Whether a row of the table is a library.
pub fn is_library(row: &Row<'_>) -> bool {
    row.get(NAME).first() == Some(&LIBRARY)
}

/// The bytes of a script's text, if a row of the table is a script.
pub fn script_bytes(row: &Row<'_>) -> Option<usize> {
    (row.get(NAME).first() == Some(&SCRIPT)).then(|| row.get(BODY).len())
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
        if self.put_text(SCRIPT, sha, body)? {
            self.count_script(1, body.len());
        }
        Ok(())
    }

    /// Removes all scripts.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn flush_scripts(&self) -> Result<(), Abort> {
        for body in self.remove_texts(SCRIPT)? {
            self.count_script(-1, body);
        }
        self.context().effects.borrow_mut().scripts_flushed = true;
        Ok(())
    }

    /// Counts a stored or removed script.
    fn count_script(&self, by: i64, bytes: usize) {
        let (scripts, all) = &mut self.context().effects.borrow_mut().loaded_scripts;
        *scripts += by;
        *all += by * bytes as i64;
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

    /// Removes all texts of a kind. Returns the length of each.
    fn remove_texts(&self, kind: u8) -> Result<Vec<usize>, Abort> {
        let mut all = Vec::new();
        for (name, body) in self.texts(kind)? {
            self.remove_text(kind, &name)?;
            all.push(body.len());
        }
        Ok(all)
    }

    fn remove_text(&self, kind: u8, name: &[u8]) -> Result<bool, Abort> {
        self.context().check_copied()?;
        self.context().count_written_bytes(1 + name.len(), 0, 1);
        let key = [&[kind][..], name].concat();
        self.transaction().delete(self.context().tables.scripts, &key[..])
    }

    fn text(&self, kind: u8, name: &[u8]) -> Result<Option<Vec<u8>>, Abort> {
        self.context().check_copied()?;
        let (table, key) = (self.context().tables.scripts, [&[kind][..], name].concat());
        let row = self.transaction().get_columns(table, &key[..], BODY.only())?;
        let body = row.map(|row| row.get(BODY).to_vec());
        self.context().count_read_bytes(key.len(), body.as_ref().map_or(0, Vec::len));
        Ok(body)
    }

    /// Returns whether the text is new.
    fn put_text(&self, kind: u8, name: &[u8], text: &[u8]) -> Result<bool, Abort> {
        self.context().check_copied()?;
        let (table, key) = (self.context().tables.scripts, [&[kind][..], name].concat());
        self.context().count_written_bytes(key.len(), text.len(), 1);
        let replaced = self.transaction().upsert(table, &[(&key[..]).into(), text.into()])?;
        Ok(!replaced)
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
        self.put_text(IMPORT, &[thread], position).map(drop)
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
        self.put_text(LIBRARY, name, code).map(drop)
    }

    /// Removes a library with its functions. Returns whether the library existed.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn remove_library(&self, name: &[u8]) -> Result<bool, Abort> {
        for function in self.functions()?.iter().filter(|function| function.library == name) {
            self.remove_text(FUNCTION, &function.name.to_ascii_lowercase())?;
        }
        self.remove_text(LIBRARY, name)
    }

    /// Removes all libraries.
    ///
    /// # Errors
    /// As [`Keyspace::loaded_script`].
    pub fn flush_libraries(&self) -> Result<(), Abort> {
        self.remove_texts(FUNCTION)?;
        self.remove_texts(LIBRARY).map(drop)
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
        self.put_text(FUNCTION, &function.name.to_ascii_lowercase(), &function.write()).map(drop)
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
