//! The limit of epochs with which a database is opened, as a member of a replicated log.

use crate::config::Builder;
use crate::error::Error;
use hyades_platform::epoch::EpochNumber;

/// Returns the limit of epochs; above all epochs if there is none.
#[cfg(feature = "replication")]
pub(super) fn of(builder: &Builder) -> EpochNumber {
    builder.log.epoch_limit.unwrap_or(EpochNumber::ABOVE_ALL)
}

/// Returns the limit of epochs: there is none.
#[cfg(not(feature = "replication"))]
pub(super) fn of(_: &Builder) -> EpochNumber {
    EpochNumber::ABOVE_ALL
}

/// Refuses a run whose first epoch is above the limit. `ends`: the opening takes a checkpoint, and
/// so ends that epoch; nothing can raise the limit before the opening returns.
pub(super) fn check(builder: &Builder, first: EpochNumber, ends: bool) -> Result<(), Error> {
    let limit = of(builder);
    let needed = if ends { first.next() } else { first };
    if needed <= limit {
        return Ok(());
    }
    Err(Error::Misuse(format!(
        "the database begins with epoch {first} and needs the epochs up to {needed}, above the \
         limit {limit}: raise the limit in the replicated log, and open the database again"
    )))
}
