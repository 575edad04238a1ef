//! Whether a log and a data component belong together (`docs/format.md`, 13).
//!
//! Both are copied, restored and lost, each alone. A log older than its data component is the worst
//! case: timestamps already in the data component would be drawn again, and the new writes would
//! count as old there. Two rules keep such a pair apart:
//! - Each opening makes a resume point with the new incarnation stable, before the first operation
//!   of the incarnation reaches the data component. So a log from before the opening is refused.
//! - A data component with a timestamp above the timestamps of the log, and above its resume
//!   point's, is refused: the data component was given operations of a later state of the
//!   incarnation than the log's.

use crate::data_component::{DataComponent, MAX_TS, ResumePoint, holds_a_key};
use crate::error::Error;
use crate::inspect::PROTOCOL;
use hyades_platform::broken;
use hyades_wal::{Lane, Manifest, Recovering, Verdict, admits};

/// Whether all of the log was written by a transaction component.
fn check_protocol(manifest: &Manifest) -> Result<(), Error> {
    let other = manifest.incarnations.iter().find(|i| i.protocol != PROTOCOL);
    if let Some(other) = other {
        let advice = match manifest.incarnations.iter().any(|i| i.protocol == PROTOCOL) {
            true => {
                "The directory was opened as a database of the engine after it belonged to a \
                 transaction component: restore a copy from before that"
            }
            false => {
                "It belongs to a database of the engine: open it as one, and give the \
                 transaction component a directory of its own"
            }
        };
        return Err(Error::Invalid(format!(
            "the log is not one of a transaction component: its protocol is \"{}\". {advice}",
            other.protocol
        )));
    }
    Ok(())
}

/// Checks that the log and the data component belong together, and together hold everything.
///
/// # Errors
/// [`Error::Invalid`] with the mismatch, and the advice what to open instead.
pub(crate) fn check(
    manifest: &Manifest,
    is_fresh: bool,
    verdict: &Verdict,
    point: Option<&ResumePoint>,
) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Invalid(what.to_string()));
    check_protocol(manifest)?;
    let Some(point) = point else {
        return match &manifest.checkpoint {
            None => Ok(()),
            Some(_) => wrong(
                "the log is truncated, and the data component is empty: what was truncated is only \
                 in the one that belongs to this log. Open that",
            ),
        };
    };
    if point.highest_ts > MAX_TS {
        return wrong(
            "the resume point of the data component has a timestamp above all: it is damaged",
        );
    }
    if is_fresh {
        return wrong("the data component belongs to a log, and the log is new: open its own");
    }
    if manifest.uuid() != point.uuid {
        return wrong("the data component belongs to another log: open its own");
    }
    let last = manifest.incarnations.last().map_or(0, |newest| newest.number);
    let end = verdict.end(point.incarnation);
    let is_ahead = point.incarnation > last
        || end.is_some_and(|ends| {
            point.positions.len() != ends.len()
                || !admits(|lane| ends[lane.index()], Lane::each(&point.positions))
        });
    if is_ahead {
        return wrong(
            "the data component is ahead of the log, so the log is an older copy: open the newest \
             log, or restore copies of both that were taken together",
        );
    }
    let is_behind = manifest.checkpoint.as_ref().is_some_and(|checkpoint| {
        let from = || checkpoint.streams.iter().map(|covered| covered.from);
        point.incarnation < checkpoint.incarnation
            || point.incarnation == checkpoint.incarnation
                && (point.positions.len() != checkpoint.streams.len()
                    || point.positions.iter().zip(from()).any(|(at, from)| *at < from))
    });
    match is_behind {
        true => wrong(
            "the log is truncated beyond what the data component holds, so the data component is \
             an older copy: open the newest one, or restore copies of both that were taken \
             together",
        ),
        false => Ok(()),
    }
}

/// Checks that a data component without a named log holds nothing: the timestamps of its operations
/// could be timestamps of other transactions, of the present log or of logs to come.
///
/// # Errors
/// [`Error::Invalid`] with the advice what to open instead.
pub(crate) fn check_is_named(
    recovering: &Recovering,
    data: &dyn DataComponent,
    point: Option<&ResumePoint>,
) -> Result<(), Error> {
    if point.is_some() || !holds_a_key(data)? {
        return Ok(());
    }
    Err(Error::Invalid(
        match recovering.is_fresh() {
            true => {
                "the data component holds keys, and the log is new: open the log with which it was \
                 filled"
            }
            false => {
                "the data component holds keys, and does not say of which log: open an empty one, \
                 which is filled from this log"
            }
        }
        .to_string(),
    ))
}

/// Checks that the data component holds nothing younger than the log. `log_ts` is the highest
/// timestamp of the log.
///
/// # Errors
/// [`Error::Invalid`] with the advice what to open instead.
pub(crate) fn check_is_not_ahead(
    data: &dyn DataComponent,
    point: Option<&ResumePoint>,
    log_ts: u64,
) -> Result<(), Error> {
    let expected = log_ts.max(point.map_or(0, |point| point.highest_ts));
    let found = data.highest_ts()?;
    if found <= expected || broken!(OpenOlderLog) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the data component holds an operation of the timestamp {found}, and the log has none \
         above {expected}: the log is an older copy. Open the newest log, or restore copies of \
         both that were taken together, or open an empty data component if the log is whole"
    )))
}
