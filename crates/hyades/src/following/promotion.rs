//! Promotion: the tables of a follower become the tables of a primary, without being read again.
//!
//! After the last round the tables hold the live records up to the ends of the incarnation, as
//! after a recovery of the same files: rounds are recovery's replay. What recovery leaves behind a
//! replay is there, too, or is made here:
//!
//! - *Stamps and locks.* Replay leaves no stamps in rows, gaps and sums: everything up to the ends
//!   is durable, and precedes the next incarnation. A replayed row is unlocked.
//! - *Tombstones and stale entries* leave at the end of each round, but for those that readers
//!   need: these leave once the readers have ended.
//! - *Older versions* need not be unlinked: the version in a row is below the first epoch of the
//!   next incarnation, so no reader follows the row's link ([`crate::storage::old_versions`]).
//! - *Sums* have no nodes, neither by replay nor by a follower's readers, which scan.
//! - *Usage and row ids* are counted by each round.
//! - *Uniqueness* is not checked again. The rows are those of a state of the primary, which has
//!   refused duplicates; the check would visit every entry before the first transaction.
//!
//! **Readers.** All snapshots of the follower are ended before the next incarnation begins, hence
//! before its first write. A read that finds a later write finds the end of its snapshot as well,
//! and fails ([`crate::concurrency::snapshot_reads`]); so does a transaction at its end. No reader
//! begins afterwards. A transaction under way is not waited for.

use super::host::Following;
use super::rounds::Rounds;
use crate::config::{Builder, Concurrency, Protocol};
use crate::database::Database;
use crate::error::Error;
use crate::recovery::catalogue::Catalogue;
use crate::recovery::report::RecoveryReport;
use crate::recovery::slice;
use crate::storage::Stamp;
use crate::storage::schema::Schema;
use crate::storage::table::TableData;
use hyades_platform::broken;
use hyades_platform::epoch::EpochNumber;
use hyades_wal::{BeginAt, Recovering, Remote, Verdict};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a follower goes on as a primary, see [`Follower::promote`](crate::Follower::promote).
pub struct Promotion {
    /// The member's files, which end where the followed incarnation has ended, and the verdict:
    /// [`Mirror::into_recovering`](hyades_wal::Mirror::into_recovering) returns both.
    pub files: (Recovering, Verdict),
    /// The name of the member's node.
    pub node: String,
    /// The number of the next incarnation, its streams, and where they begin.
    pub at: BeginAt,
    /// The replicated log that stores the next incarnation.
    pub remote: Arc<dyn Remote>,
    /// The next incarnation's epochs are above this epoch, and above all epochs that the member
    /// knows of.
    pub above_epoch: u64,
}

impl fmt::Debug for Promotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promotion").field("node", &self.node).field("at", &self.at).finish()
    }
}

/// Promotes the follower of some pair.
pub(crate) type PromoteRounds<S> = fn(Rounds<S>, Builder, Promotion) -> Result<Database, Error>;

/// What a builder has declared, to be compared with another builder's declarations.
pub(crate) struct Declarations {
    pair: (Protocol, Concurrency),
    tables: Vec<Schema>,
    /// Names and versions.
    procedures: BTreeSet<(String, u32)>,
}

impl Declarations {
    pub fn of(builder: &Builder) -> Declarations {
        let procedures = builder.procedures.iter();
        Declarations {
            pair: (builder.protocol, builder.control()),
            tables: builder.tables.clone(),
            procedures: procedures.map(|p| (p.name.clone(), p.version)).collect(),
        }
    }

    /// Returns how another builder's declarations differ.
    fn difference(&self, builder: &Builder) -> Option<String> {
        let other = Declarations::of(builder);
        let ((protocol, control), (others, other_control)) = (self.pair, other.pair);
        if self.pair != other.pair {
            return Some(format!(
                "it follows {} with {}, and the builder is for {} with {}",
                protocol.name(),
                control.name(),
                others.name(),
                other_control.name()
            ));
        }
        if self.tables != other.tables {
            let names = |tables: &[Schema]| -> Vec<String> {
                tables.iter().map(|table| table.name.clone()).collect()
            };
            return Some(format!(
                "it has the tables {:?}, and the builder declares {:?}, or other columns, keys or \
                 indexes",
                names(&self.tables),
                names(&other.tables)
            ));
        }
        let mut missing = self.procedures.symmetric_difference(&other.procedures);
        missing.next().map(|(name, version)| {
            format!("procedure {name:?} version {version} is registered with one of both builders")
        })
    }
}

impl<S: Stamp> Rounds<S> {
    /// Checks that the tables can become the tables of a primary on these files.
    pub fn check_promotion(&self, builder: &Builder, files: &Recovering) -> Result<(), Error> {
        let number = self.incarnation.number;
        let why = if let Some(why) = &self.failed {
            format!("it has stopped: {why}; follow anew, from a checkpoint")
        } else if !self.has_ended {
            format!("the last round of incarnation {number} has not ended")
        } else if self.following.imaging.load(Ordering::SeqCst) {
            "an image of it is being written: end the image first".to_string()
        } else if let Some(difference) = self.declared.difference(builder) {
            difference
        } else if !self.is_at_end_of(files) {
            format!(
                "it has replayed incarnation {number} up to {:?} by stream, and the files end \
                 elsewhere: {:?}",
                self.at.from,
                files.manifest().newest()
            )
        } else {
            return Ok(());
        };
        Err(Error::Misuse(format!("the follower cannot become primary: {why}")))
    }

    /// Whether the files end where the last round has ended.
    fn is_at_end_of(&self, files: &Recovering) -> bool {
        let Some(newest) = files.manifest().newest() else {
            // A new database: there was no incarnation to follow.
            return self.incarnation.dims.is_empty();
        };
        let ends = newest.dims.iter().map(|dim| dim.end);
        newest.number == self.incarnation.number
            && ends.eq(self.at.from.iter().map(|&end| Some(end)))
    }

    /// Checks that a later catalogue, of this log, numbers the tables as the follower does.
    pub fn check_tables(&self, catalogue: &Catalogue) -> Result<(), Error> {
        let own = self.tables().iter().map(|table| table.log_id);
        if !catalogue.needs_checkpoint() && own.eq(catalogue.table_ids.iter().copied()) {
            return Ok(());
        }
        Err(Error::Mismatch(format!(
            "the files know other tables than the follower was opened with ({}): open the member \
             again",
            catalogue.changes.join("; ")
        )))
    }

    /// The tables.
    pub fn tables(&self) -> &Arc<Vec<TableData<S>>> {
        &self.following.replay.engine.tables
    }

    /// The catalogue with which the follower was opened.
    pub fn catalogue(&self) -> &Catalogue {
        &self.following.replay.catalogue
    }

    /// The next hidden row id.
    pub fn row_ids(&self) -> Arc<AtomicU64> {
        self.following.replay.engine.row_ids.clone()
    }

    /// The highest epoch that has been used, as far as the follower knows.
    pub fn highest_epoch(&self) -> EpochNumber {
        let replayed = self.following.replay.counts.max_epoch.load(Ordering::Relaxed);
        let marks = self.at.cut.unwrap_or_default().max(self.at.shown);
        EpochNumber(replayed).max(marks)
    }

    /// Ends all readers, and lets go of what was kept for them.
    pub fn end_readers(&self) {
        let Following { replay, serving, .. } = &*self.following;
        let engine = &replay.engine;
        if !broken!(ServeAfterPromotion) {
            serving.stop("this member has become primary: use the new database".to_string());
            engine.snapshots.end_all(&engine.epoch);
        }
        slice::settle(replay);
    }

    /// Tells readers that come later why nothing is served any more.
    pub fn stop(&self, why: String) {
        self.following.serving.stop(why);
    }

    /// What the follower has done so far, as the report on the opening of the new database.
    pub fn report(&self) -> RecoveryReport {
        let counts = &self.following.replay.counts;
        RecoveryReport {
            found: true,
            threads: self.threads,
            records: counts.records.load(Ordering::Relaxed),
            dead: counts.dead.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            one_thread_seconds: counts.alone_ns.load(Ordering::Relaxed) as f64 / 1e9,
            ..self.report.clone()
        }
    }
}
