//! The place of the open database.
//!
//! A server opens its database once. A member of a replicated database (feature `replication`) has
//! one database after the other: each change has a number, and a thread that keeps a session also
//! keeps the database as [`Held`], notices another number, and lets both go. The old database is
//! gone once nothing holds the database any more: sessions, jobs and their replies all do.

use super::Opened;
#[cfg(feature = "replication")]
use hyades_platform::sync::Unpoisoned;
use std::ops::Deref;
#[cfg(not(feature = "replication"))]
use std::sync::OnceLock;
#[cfg(feature = "replication")]
use std::sync::{
    Arc, RwLock,
    atomic::{AtomicU64, Ordering},
};

/// The place of the open database. See the module.
#[derive(Default)]
pub struct OpenedSlot {
    #[cfg(not(feature = "replication"))]
    once: OnceLock<Opened>,
    #[cfg(feature = "replication")]
    current: RwLock<Held>,
    /// The number in `current`, to be compared without the lock. Written under the lock, with
    /// Release; a thread that sees a new number with Acquire finds the new database.
    #[cfg(feature = "replication")]
    number: AtomicU64,
}

/// The database that a thread, or a job, goes on using; perhaps none. Without the feature
/// `replication` there is nothing to hold: the database stays to the end.
///
/// The holder drops sessions, snapshots and tickets of the database first, and the `Held` last: the
/// directory is opened again once no `Held` is left, and must not be locked then.
#[derive(Clone, Default)]
pub struct Held {
    #[cfg(feature = "replication")]
    opened: Option<Arc<Opened>>,
    /// The number of the change that brought the database, or its absence.
    #[cfg(feature = "replication")]
    number: u64,
}

#[cfg(not(feature = "replication"))]
impl OpenedSlot {
    /// The open database, if there is one.
    #[inline]
    pub fn get(&self) -> Option<impl Deref<Target = Opened> + use<'_>> {
        self.once.get()
    }

    /// The server has opened its database.
    ///
    /// # Errors
    /// The server has a database already.
    pub fn set(&self, opened: Opened) -> Result<(), Opened> {
        self.once.set(opened)
    }

    /// The present database, to be used for some time.
    pub fn hold(&self) -> Held {
        Held {}
    }

    /// Whether the held database is the present one.
    #[inline]
    pub fn is_current(&self, _: &Held) -> bool {
        true
    }
}

#[cfg(feature = "replication")]
impl OpenedSlot {
    /// The open database, if there is one. The database is held as long as the value lives.
    #[inline]
    pub fn get(&self) -> Option<impl Deref<Target = Opened> + use<>> {
        self.current.read().unpoisoned().opened.clone()
    }

    /// The server has opened its database.
    ///
    /// # Errors
    /// The server has a database already.
    pub fn set(&self, opened: Opened) -> Result<(), Opened> {
        let mut current = self.current.write().unpoisoned();
        if current.opened.is_some() {
            return Err(opened);
        }
        self.put(&mut current, Some(Arc::new(opened)));
        Ok(())
    }

    /// Takes the database out: threads let it go as soon as they look. Returns the last but theirs.
    pub fn take(&self) -> Option<Arc<Opened>> {
        let mut current = self.current.write().unpoisoned();
        let taken = current.opened.take()?;
        self.put(&mut current, None);
        Some(taken)
    }

    fn put(&self, current: &mut Held, opened: Option<Arc<Opened>>) {
        current.opened = opened;
        current.number += 1;
        self.number.store(current.number, Ordering::Release);
    }

    /// The present database, to be used for some time.
    pub fn hold(&self) -> Held {
        self.current.read().unpoisoned().clone()
    }

    /// Whether the held database is the present one.
    #[inline]
    pub fn is_current(&self, held: &Held) -> bool {
        self.number.load(Ordering::Acquire) == held.number
    }
}

#[cfg(test)]
impl OpenedSlot {
    /// Another handle of the open database.
    ///
    /// # Panics
    /// There is no database.
    pub fn cloned(&self) -> Opened {
        Opened::clone(&self.get().expect("a test has opened the database"))
    }
}

impl Held {
    /// Whether there is a database that the server may let go.
    #[cfg(not(feature = "replication"))]
    pub fn has_database(&self) -> bool {
        false
    }

    /// Whether there is a database that the server may let go.
    #[cfg(feature = "replication")]
    pub fn has_database(&self) -> bool {
        self.opened.is_some()
    }

    /// The database.
    #[cfg(feature = "replication")]
    pub fn into_opened(self) -> Option<Arc<Opened>> {
        self.opened
    }
}

#[cfg(all(test, feature = "replication"))]
mod tests {
    use super::*;
    use crate::data::Tables;
    use hyades::Database;

    #[test]
    fn a_database_is_gone_once_nothing_holds_it() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut builder = Database::builder();
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let slot = OpenedSlot::default();
        let before = slot.hold();
        assert!(slot.is_current(&before) && !before.has_database() && slot.take().is_none());
        assert!(slot.set(Opened { database: database.clone(), tables }).is_ok());
        assert!(!slot.is_current(&before));
        assert!(slot.set(Opened { database, tables }).is_err(), "it has one");
        let held = slot.hold();
        assert!(slot.is_current(&held) && held.has_database());
        let taken = slot.take().unwrap();
        assert!(!slot.is_current(&held) && slot.get().is_none());
        assert_eq!(Arc::strong_count(&taken), 2);
        drop(held);
        assert_eq!(Arc::strong_count(&taken), 1);
    }
}
