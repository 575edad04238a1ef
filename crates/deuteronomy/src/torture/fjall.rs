//! A fjall database in files; its process is killed.
//!
//! fjall has no seam for a simulated disk. A killed process leaves the content of its files, so the
//! files are copied while the process runs. Power cuts are not simulated.

use super::copies::copy_all;
use super::stores::LivingStore;
use crate::{DataComponent, Error, FjallData};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

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

impl LivingStore for FjallStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        Ok(Arc::new(FjallData::open(self.dir.path(), 1 << 20)?))
    }

    fn crash(&mut self, _: &mut fastrand::Rng, _: bool) {
        let parent = self.dir.path().parent().expect("it is below a directory");
        let left = TempDir::new_in(parent).expect("there is room for a copy");
        copy_all(self.dir.path(), left.path(), &[], "jnl").expect("the files can be copied");
        self.dir = left;
    }
}
