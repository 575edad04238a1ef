//! Databases that are not open: read with all checks of an opening, backed up, verified.

use crate::backup::Backup;
use crate::binding::{check, check_is_named, check_is_not_ahead};
use crate::copying::{check_is_empty, copy_operations};
use crate::data_component::{DataComponent, ResumePoint, ScanOrder};
use crate::error::Error;
use crate::inspect::PartsWithoutRecord;
use crate::recovery::read_to_the_ends;
use hyades_platform::device::FileDevice;
use hyades_wal::{Continuation, LogOptions, Recovering, Unfinished, Verdict};
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A log and its data component, which belong together, and together hold everything.
pub(crate) struct ClosedDatabase {
    pub recovering: Recovering,
    pub verdict: Verdict,
    pub without_record: PartsWithoutRecord,
    pub point: Option<ResumePoint>,
}

impl ClosedDatabase {
    /// Reads the log, and checks that the data component belongs to it. Looks for the first time
    /// mark from `asked_us` on.
    pub fn read(
        log: &[PathBuf],
        later: &Continuation,
        data: &dyn DataComponent,
        asked_us: Option<u64>,
    ) -> Result<Self, Error> {
        let recovering = hyades_wal::open_continued(LogOptions::new(log.to_vec(), 1), later)?;
        let (verdict, without_record) = read_to_the_ends(&recovering, asked_us)?;
        let point = data.resume_point()?;
        check(recovering.manifest(), recovering.is_fresh(), &verdict, point.as_ref())?;
        check_is_named(&recovering, data, point.as_ref())?;
        check_is_not_ahead(data, point.as_ref(), without_record.highest_ts())?;
        Ok(Self { recovering, verdict, without_record, point })
    }
}

/// Backs up a database that is not open: as [`Database::backup`](crate::Database::backup), from all
/// directories of its log, and its data component.
///
/// # Errors
/// The log and the data component do not belong together, are damaged or open elsewhere, or were
/// never opened together; `dir` or `into` is not empty; a copy could not be made, or differs.
pub fn backup(
    log: &[PathBuf],
    data: &dyn DataComponent,
    dir: impl AsRef<Path>,
    into: &dyn DataComponent,
) -> Result<Backup, Error> {
    let began = Instant::now();
    check_is_empty(into)?;
    let closed = ClosedDatabase::read(log, &Continuation::default(), data, None)?;
    let Some(point) = closed.point else {
        return Err(Error::Invalid(
            "the data component was never opened with this log: there is nothing to back up"
                .to_string(),
        ));
    };
    let to = Unfinished::begin(FileDevice::shared(), dir.as_ref())?;
    let copied = closed.recovering.backup(&closed.verdict, &to)?;
    let rows = copy_operations(|all, each| data.scan(all, ScanOrder::Ascending, each), into)?;
    // Last: a part of the data without a resume point opens with no log.
    into.checkpoint(&point)?;
    to.finish()?;
    Ok(Backup {
        timestamp: data.highest_ts()?,
        keys: rows.keys,
        data_bytes: rows.bytes,
        log_bytes: copied.bytes,
        duration: began.elapsed(),
    })
}

/// The counts of [`verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The keys with values in the data component.
    pub keys: u64,
    /// The bytes of keys and values.
    pub data_bytes: u64,
    /// The highest timestamp in the data component.
    pub timestamp: u64,
}

/// Verifies a database that is not open: reads all of the log, and all of the data component, which
/// checks what it reads as far as it keeps checksums; and checks that both belong together, and
/// that the keys ascend. Changes nothing, but a data component may repair its own files when it is
/// opened.
///
/// # Errors
/// The fault found.
pub fn verify(log: &[PathBuf], data: &dyn DataComponent) -> Result<Verified, Error> {
    let closed = ClosedDatabase::read(log, &Continuation::default(), data, None)?;
    let point_ts = closed.point.as_ref().map_or(0, |point| point.highest_ts);
    let highest_ts = closed.without_record.highest_ts().max(point_ts);
    let (mut verified, mut last, mut fault) = (Verified::default(), None::<Vec<u8>>, None);
    data.scan((Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, &mut |operation| {
        let key = operation.key;
        if last.as_deref().is_some_and(|last| last >= key) {
            fault = Some(format!("the key {} does not ascend", key.escape_ascii()));
        } else if operation.ts > highest_ts {
            let ts = operation.ts;
            fault = Some(format!("{} is of the timestamp {ts}", key.escape_ascii()));
        }
        verified.keys += u64::from(operation.value.is_some());
        verified.data_bytes += (key.len() + operation.value.map_or(0, <[u8]>::len)) as u64;
        verified.timestamp = verified.timestamp.max(operation.ts);
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if fault.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match fault {
        None => Ok(verified),
        Some(fault) => Err(Error::DataComponent(format!(
            "the data component is damaged: {fault}, and the highest timestamp of the log is \
             {highest_ts}. Restore it from a backup, with its log"
        ))),
    }
}
