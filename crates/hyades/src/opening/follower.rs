//! Opens a follower: empty tables, or the tables of a checkpoint, and their rounds.

use super::pairs::{self, RunsUnder};
use super::{Opening, check, is_data_only};
use crate::config::Builder;
use crate::engine::snapshots::Snapshots;
use crate::error::Error;
use crate::following::{FirstState, Follower, FollowerHost, Following, Rounds, Serving};
use crate::logging::StartsOnLog;
use crate::origin;
use crate::recovery::report::RecoveryReport;
use crate::recovery::slice;
use hyades_platform::clock;
use hyades_wal::{Incarnation, Recovering, Remote};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The log to follow, and the state with which the follower begins.
pub struct FollowedLog<'f> {
    /// The catalogue in the manifest of the log.
    pub catalogue: &'f [u8],
    /// The incarnation to follow.
    pub incarnation: &'f Incarnation,
    /// A log whose checkpoint is of the incarnation; without one the follower begins with empty
    /// tables, at the beginning of the incarnation.
    pub base: Option<&'f Recovering>,
}

impl Builder {
    /// Sets a replicated log that stores each batch of the log beside the files: for
    /// `hyades-replication`.
    #[doc(hidden)]
    pub fn remote(mut self, remote: Arc<dyn Remote>) -> Self {
        self.log.remote = Some(remote);
        self
    }

    /// Follows the log of another process, for `hyades-replication`: declare the same tables and
    /// procedures as there.
    ///
    /// # Errors
    /// Invalid settings or schemas; [`Error::Mismatch`] if the records cannot be followed, or the
    /// declared tables differ from the tables of the log; a checkpoint that cannot be loaded.
    #[doc(hidden)]
    pub fn follow(self, followed: &FollowedLog<'_>) -> Result<Follower, Error> {
        let started_ns = clock::monotonic_ns();
        check(&self)?;
        let pair = (self.protocol, self.control());
        pairs::check_followed(pair, !is_data_only(&self))?;
        let opening = Opening { builder: self, control: pair.1.name(), started_ns, source: None };
        pairs::follow(pair, opening, followed)
    }
}

impl Opening<'_> {
    /// Follows a log, in tables as of the pair `C` and `P`.
    pub(super) fn follow<C, P>(self, followed: &FollowedLog<'_>) -> Result<Follower, Error>
    where
        C: RunsUnder<P>,
        P: StartsOnLog,
    {
        let incarnation = followed.incarnation;
        slice::check_followed(incarnation)?;
        let catalogue = Arc::new(self.catalogue(followed.catalogue)?);
        if catalogue.needs_checkpoint() {
            return Err(Error::Mismatch(format!(
                "the declared tables differ from the tables of the log to follow ({}): declare \
                 the same tables as the program that writes the log",
                catalogue.changes.join("; ")
            )));
        }
        let threads = self.recovery_threads();
        let (tables, row_ids) = (self.tables::<C::Row>(&catalogue), Arc::new(AtomicU64::new(1)));
        let mut replay = slice::context(tables, catalogue.clone(), row_ids);
        replay.engine.snapshots = Snapshots::new(self.builder.snapshots, None);
        let at = match followed.base {
            None => FirstState::empty(incarnation),
            Some(base) => {
                origin::check(base.manifest())?;
                let Some(checkpoint) = &base.manifest().checkpoint else {
                    return Err(Error::Misuse(
                        "the base of a follower has no checkpoint: copy a database after its \
                         first checkpoint"
                            .to_string(),
                    ));
                };
                let at = FirstState::of(checkpoint, incarnation)?;
                slice::load_base(&replay, base, threads)?;
                at
            }
        };
        let serving = Serving::new(at.served());
        let following = Arc::new(Following { replay, serving, imaging: AtomicBool::new(false) });
        let rounds = Rounds {
            following: following.clone(),
            incarnation: incarnation.clone(),
            at,
            threads,
            has_ended: false,
            failed: None,
        };
        let host = Arc::new(FollowerHost(following));
        let data_only = incarnation.data_only;
        let database = self.finish(host, None, &catalogue, data_only, RecoveryReport::default());
        Ok(Follower::new(Box::new(rounds), database))
    }
}
