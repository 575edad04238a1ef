//! The data component of a database of `hyades-deuteronomy`, as the command line names it.

use crate::failure::Failure;
use hyades_deuteronomy::DataComponent;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The memory for the data component's own cache, in bytes.
#[cfg(any(feature = "redb", feature = "fjall", feature = "rocksdb"))]
const CACHE: usize = 64 << 20;

/// The kinds that this program is built with, and how to get the others.
const KINDS: &str = "redb:FILE, fjall:DIR or rocksdb:DIR, of which a program has those that are \
                     among its features when it is built";

/// A data component: its kind, and its file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPlace {
    kind: String,
    path: PathBuf,
}

impl FromStr for DataPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((kind @ ("redb" | "fjall" | "rocksdb"), path)) if !path.is_empty() => {
                Ok(DataPlace { kind: kind.to_owned(), path: path.into() })
            }
            _ => Err(format!("{text:?} names no data component: give {KINDS}")),
        }
    }
}

impl DataPlace {
    /// The file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens data that exist.
    ///
    /// # Errors
    /// There is nothing, or it cannot be opened.
    pub fn open(&self) -> Result<Box<dyn DataComponent>, Failure> {
        if !self.path.exists() {
            return Err(Failure::Usage(format!("there is no {}", self.path.display())));
        }
        self.open_or_make()
    }

    /// Makes new data, for a copy.
    ///
    /// # Errors
    /// Something is there, or the data cannot be made.
    pub fn make(&self) -> Result<Box<dyn DataComponent>, Failure> {
        if self.path.exists() {
            return Err(Failure::Usage(format!(
                "{} exists: give a place for the copy where nothing is",
                self.path.display()
            )));
        }
        self.open_or_make()
    }

    /// Opens data, or makes new data.
    ///
    /// # Errors
    /// The data cannot be opened, or this program is built without their kind.
    pub fn open_or_make(&self) -> Result<Box<dyn DataComponent>, Failure> {
        match self.kind.as_str() {
            #[cfg(feature = "redb")]
            "redb" => Ok(Box::new(hyades_deuteronomy::RedbData::open(&self.path, CACHE)?)),
            #[cfg(feature = "fjall")]
            "fjall" => Ok(Box::new(hyades_deuteronomy::FjallData::open(&self.path, CACHE)?)),
            #[cfg(feature = "rocksdb")]
            "rocksdb" => Ok(Box::new(hyades_deuteronomy::RocksDbData::open(&self.path, CACHE)?)),
            kind => Err(Failure::Usage(format!(
                "this program was built without {kind}: build it with `--features {kind}`"
            ))),
        }
    }
}

/// The error for a database of a transaction component without the place of its data, or for
/// another database with one.
///
/// # Errors
/// Always, unless both fit.
pub fn check_needed(is_of_component: bool, data: Option<&DataPlace>) -> Result<(), Failure> {
    match (is_of_component, data) {
        (true, None) => Err(Failure::Usage(format!(
            "this log belongs to a transaction component, whose data are elsewhere: give them with \
             --data KIND:PATH ({KINDS})"
        ))),
        (false, Some(_)) => Err(Failure::Usage(
            "this is a database of the engine, which has no other data: leave --data out".into(),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_its_kind_and_its_path() {
        let place: DataPlace = "redb:/data/a:b.redb".parse().unwrap();
        assert_eq!((place.kind.as_str(), place.path()), ("redb", Path::new("/data/a:b.redb")));
        for wrong in ["", "redb", "redb:", "sqlite:a", ":a", "/data/a.redb"] {
            assert!(wrong.parse::<DataPlace>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn data_that_exist_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let there: DataPlace = format!("redb:{}", dir.path().display()).parse().unwrap();
        assert!(matches!(there.make(), Err(Failure::Usage(why)) if why.contains("exists")));
        let absent = format!("redb:{}", dir.path().join("none").display());
        let absent: DataPlace = absent.parse().unwrap();
        assert!(matches!(absent.open(), Err(Failure::Usage(why)) if why.contains("there is no")));
    }
}
