//! Opens a follower: empty tables, or the tables of a checkpoint, and their rounds. Opens the
//! database of a follower that becomes primary ([`crate::following`]).

use super::log_options::log_options;
use super::pairs::{self, RunsUnder};
use super::{Opening, ReplayedLog, check, is_data_only};
use crate::config::Builder;
use crate::database::Database;
use crate::engine::snapshots::Snapshots;
use crate::error::Error;
use crate::following::{
    Declarations, FirstState, Follower, FollowerHost, Following, Promotion, ReplaySpeed, Rounds,
    Serving,
};
use crate::logging::StartsOnLog;
use crate::origin;
use crate::recovery::report::RecoveryReport;
use crate::recovery::slice;
use crate::storage::Stamp;
use crate::storage::table::TableData;
use hyades_platform::clock;
use hyades_platform::epoch::EpochNumber;
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

    /// Sets a limit of epochs, for `hyades-replication`: no transaction and no cut mark is of an
    /// epoch above, from the first moment on. [`Database::raise_epoch_limit`] raises the limit. At
    /// the limit transactions go on in the same epoch; checkpoints, snapshots and cut marks wait,
    /// or do without. The opening fails if the first epoch would be above the limit.
    ///
    /// [`Database::raise_epoch_limit`]: crate::Database::raise_epoch_limit
    #[doc(hidden)]
    pub fn epoch_limit(mut self, limit: u64) -> Self {
        self.log.epoch_limit = Some(EpochNumber(limit));
        self
    }

    /// The number of streams of a new database, for `hyades-replication`.
    #[doc(hidden)]
    pub fn declared_streams(&self) -> usize {
        self.log.streams
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
        // Before the first incarnation there are no streams.
        if !incarnation.dims.is_empty() {
            slice::check_followed(incarnation)?;
        }
        let catalogue = Arc::new(self.catalogue(followed.catalogue)?);
        if catalogue.needs_checkpoint() {
            return Err(Error::Mismatch(format!(
                "the declared tables differ from the tables of the log to follow ({}): declare \
                 the same tables as the program that writes the log",
                catalogue.changes.join("; ")
            )));
        }
        let threads = self.recovery_threads();
        let (declared, checkpoints) =
            (Declarations::of(&self.builder), self.builder.checkpoints.clone());
        let mut report = RecoveryReport { found: true, threads, ..RecoveryReport::default() };
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
                let began_ns = clock::monotonic_ns();
                slice::load_base(&replay, base, threads)?;
                report.image_seconds = (clock::monotonic_ns() - began_ns) as f64 / 1e9;
                report.image_rows = checkpoint.rows;
                report.image_bytes = checkpoint.parts.iter().map(|part| part.bytes).sum();
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
            checkpoints,
            declared,
            promote: promote::<C, P>,
            report: report.clone(),
            speed: ReplaySpeed::default(),
        };
        let host = Arc::new(FollowerHost(following));
        let data_only = incarnation.data_only;
        let database = self.finish(host, None, &catalogue, data_only, report);
        Ok(Follower::new(Box::new(rounds), database))
    }
}

/// Promotes a follower of the pair `C` and `P`.
fn promote<C, P>(
    rounds: Rounds<C::Row>,
    mut builder: Builder,
    to: Promotion,
) -> Result<Database, Error>
where
    C: RunsUnder<P>,
    P: StartsOnLog,
{
    let started_ns = clock::monotonic_ns();
    let Promotion { files: (mut log, verdict), node, at, remote, above_epoch } = to;
    rounds.check_promotion(&builder, &log)?;
    // The number of streams is the replicated log's.
    (builder.log.streams, builder.log.probe_streams) = (at.streams.len(), None);
    builder.log.remote = Some(remote);
    check(&builder)?;
    log.set_options(log_options(&builder));
    if let Some(speed) = rounds.speed.measured() {
        log.set_replay_speed(speed);
    }
    let control = builder.control().name();
    let opening = Opening { builder, control, started_ns, source: None };
    let followed = rounds.catalogue();
    let catalogue = opening.catalogue_with(&log.manifest().catalogue, || followed.secret)?;
    rounds.check_tables(&catalogue)?;
    let floor = EpochNumber(log.manifest().epoch_floor.max(above_epoch));
    let (reached, tables) = (rounds.highest_epoch().max(floor), rounds.tables().clone());
    rounds.end_readers();
    declare_anew(&tables, &opening.builder);
    let replayed = ReplayedLog {
        log,
        verdict,
        tables,
        row_ids: rounds.row_ids(),
        catalogue: Arc::new(catalogue),
        reached,
        changes_log: false,
        report: rounds.report(),
    };
    opening
        .go_on::<C, P>(replayed, |log, settings, verdict, epoch| {
            log.start_as(&node, settings, verdict, epoch, &at)
        })
        .inspect_err(|error| rounds.stop(format!("its promotion has failed: {error}")))
}

/// Makes the tables those of another builder with the same declarations.
fn declare_anew<S: Stamp>(tables: &[TableData<S>], builder: &Builder) {
    for table in tables {
        table.declare_anew(builder.origin);
        if let Some(sums) = &table.sums {
            sums.budget().set_limit(builder.sum_index_bytes);
        }
    }
}
