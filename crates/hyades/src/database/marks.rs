//! Cut marks of a database, for followers of its log.

use super::{Database, DatabaseInner};
use crate::engine::closed_epochs::{ClosedEpochs, CutMark};
use crate::error::Error;
use crate::recovery::slice;
use std::fmt;
use std::sync::Arc;

/// Makes cut marks of a database, see [`Database::cut_marks`].
pub struct CutMarks {
    database: Arc<DatabaseInner>,
    closing: ClosedEpochs,
}

impl fmt::Debug for CutMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CutMarks").field("closing", &self.closing).finish()
    }
}

impl CutMarks {
    /// Ends an epoch, and returns its mark once no commit of the epoch is under way; `None`
    /// otherwise: call again soon. Never waits. A mark each 20 ms costs a session nothing.
    pub fn tick(&mut self) -> Option<CutMark> {
        self.database.engine.close_epoch(&mut self.closing)
    }
}

impl Database {
    /// Makes cut marks, for followers of this database's log, which replay from one mark to the
    /// next. Several makers of marks do not disturb each other.
    ///
    /// # Errors
    /// [`Error::Misuse`] without a log; [`Error::Mismatch`] if the records cannot be followed.
    pub fn cut_marks(&self) -> Result<CutMarks, Error> {
        let newest = self.shared.log.as_ref().and_then(|log| log.manifest().newest().cloned());
        let Some(incarnation) = newest else {
            return Err(Error::Misuse("without a log there are no cut marks".to_string()));
        };
        slice::check_followed(&incarnation)?;
        Ok(CutMarks { database: self.shared.clone(), closing: ClosedEpochs::default() })
    }

    /// Makes a mark together with a snapshot of its epoch, to compare both. Waits for commits.
    ///
    /// # Errors
    /// The database is only read, or has no log; no epoch may end.
    #[doc(hidden)]
    pub fn mark_with_snapshot(&self) -> Result<(CutMark, super::Snapshot), Error> {
        let (mark, state) = self.shared.engine.mark_with_snapshot()?;
        Ok((mark, super::Snapshot::of(self, state)))
    }
}
