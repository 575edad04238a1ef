//! A RocksDB database in files; its process is killed.
//!
//! RocksDB runs without its own log, so a killed process leaves what was flushed. The files are
//! copied while the process runs. Power cuts are not simulated.

use super::copies::copy_all;
use super::stores::LivingStore;
use crate::{DataComponent, Error, RocksDbData};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The names of the files with lists of the other files: copied first, a list names no file made
/// later.
const FIRST: &[&str] = &["CURRENT", "MANIFEST"];

/// A RocksDB database that loses its process.
pub struct RocksDbStore {
    dir: TempDir,
    data: Option<Arc<RocksDbData>>,
}

impl RocksDbStore {
    /// Makes a store in a new directory below `parent`.
    ///
    /// # Errors
    /// The directory could not be made.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        Ok(Self { dir: TempDir::new_in(parent)?, data: None })
    }
}

impl LivingStore for RocksDbStore {
    fn open(&mut self) -> Result<Arc<dyn DataComponent>, Error> {
        self.data = None;
        let data = Arc::new(RocksDbData::open(self.dir.path(), 1 << 20)?);
        self.data = Some(Arc::clone(&data));
        Ok(data)
    }

    fn crash(&mut self, _: &mut fastrand::Rng, _: bool) {
        let parent = self.dir.path().parent().expect("it is below a directory");
        let left = TempDir::new_in(parent).expect("there is room for a copy");
        // Until its drop the process removes no file on the list.
        let kept = self.data.take().map(|data| data.keep_files());
        copy_all(self.dir.path(), left.path(), FIRST, "").expect("the files can be copied");
        drop(kept);
        self.dir = left;
    }
}
