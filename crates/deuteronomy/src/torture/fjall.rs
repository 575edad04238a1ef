//! A fjall database in files; its process is killed.
//!
//! fjall has no seam for a simulated disk. A killed process leaves the content of its files, so the
//! files are copied while the process runs. Power cuts are not simulated.

use super::stores::LivingStore;
use crate::{DataComponent, Error, FjallData};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The bytes of a piece in the copying of a journal, up to the first empty piece: the rest of the
/// journal is room reserved by fjall.
const PIECE: usize = 64 << 10;

/// A fjall database that loses its process.
#[derive(Debug)]
pub struct FjallStore {
    dir: TempDir,
}

impl FjallStore {
    /// Makes a store in a new directory below `parent`.
    ///
    /// # Errors
    /// The directory could not be made.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        Ok(Self { dir: TempDir::new_in(parent)? })
    }
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to, mut piece) = (File::open(from)?, File::create(to)?, vec![0; PIECE]);
    let len = from.metadata()?.len();
    loop {
        let read = from.read(&mut piece)?;
        if piece[..read].iter().all(|byte| *byte == 0) {
            return to.set_len(len);
        }
        to.write_all(&piece[..read])?;
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false if entry.path().extension().is_some_and(|end| end == "jnl") => {
                copy_file(&entry.path(), &to)?;
            }
            false => drop(std::fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

impl LivingStore for FjallStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        Ok(Arc::new(FjallData::open(self.dir.path(), 1 << 20)?))
    }

    fn crash(&mut self, _: &mut fastrand::Rng, _: bool) {
        let parent = self.dir.path().parent().expect("it is below a directory");
        let left = TempDir::new_in(parent).expect("there is room for a copy");
        copy_all(self.dir.path(), left.path()).expect("the files can be copied");
        self.dir = left;
    }
}
