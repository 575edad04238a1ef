//! Restart: operations missing in the data component are applied again from the log
//! (`docs/format.md`, 13).
//!
//! Q1 the data component's resume point. Q2 all streams are read, for the ends and the verdict;
//! then again, for the live records by the ends found. Q3 the log begins a new incarnation, and so
//! makes the recovered tail durable. Q4 redo. Q3 before Q4: the data component may write all
//! operations given, and fed from a tail held only by the page cache the data component could keep
//! a part of a transaction taken back by the next crash. Only records proven to be durable, with
//! all dependencies, may be applied before Q3, so that redo fits into memory. Q5 the data component
//! makes the redone operations stable, with a resume point of the new incarnation; before Q5
//! nothing of the new incarnation reaches the data component. A crash anywhere leaves a state from
//! which the restart begins again.
//!
//! Invariant: a data component with a key has a resume point, and so names its log. At its first
//! opening the data component gets an initial point after Q3, when the log is there and durable,
//! and before the first operation: a crash in between leaves a log, and an empty data component
//! without a log, bound by the next opening. In the other order the data component could belong to
//! a log never made.

use crate::binding::{check, check_is_named, check_is_not_ahead};
use crate::data_component::{
    DataComponent, LAST_TS, Limits, MOST_SESSIONS, Operation, ResumePoint,
};
use crate::error::Error;
use crate::inspect::{LoggedTransaction, PROTOCOL, PartsWithoutRecord, RecordReader};
use crate::times::MarkSearch;
use hyades_platform::broken;
use hyades_wal::{
    BY_TIMESTAMP, FrameKind, IncarnationSettings, Lane, Log, LogOptions, Recovering, VERSIONS,
    Verdict, admits,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most operations applied at once.
const BATCH: usize = 4096;
/// The approximate bytes of an operation to be applied again, without key and value.
const ENTRY_BYTES: usize = 100;

/// The counts of a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Transactions with operations applied again.
    pub transactions: u64,
    /// Transactions outside the recovered state, since they depend on lost records.
    pub dead: u64,
    /// The keys with a newest operation applied again. Where the operations do not fit into memory
    /// at once, a key may count more than once.
    pub keys: u64,
}

/// Operations to be applied again, the newest on each key.
#[derive(Debug, Default)]
struct Newest {
    by_key: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    bytes: usize,
}

/// The limits of redo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedoLimits {
    /// The highest timestamp of a transaction applied again.
    pub until: u64,
    /// The bytes above which the proven operations are applied before Q3; None if the data
    /// component may not belong to the log yet, and so is given nothing before it is bound.
    pub early_above: Option<usize>,
    /// Whether no crash takes back a live record: the log is not written any more.
    pub is_log_fixed: bool,
}

/// The redo of a data component.
pub(crate) struct Redo<'d> {
    data: &'d dyn DataComponent,
    /// The data component's limits: the log may be the log of another data component, with higher
    /// limits.
    limits: Limits,
    redo: RedoLimits,
    /// Operations of records safe from any crash, with all dependencies.
    proven: Newest,
    /// Operations of other live records: at most the content of the log's buffers.
    unproven: Newest,
    /// The highest timestamp in the log, of whatever transaction.
    highest_ts: u64,
    /// The highest timestamp of a transaction applied again.
    pub highest_taken: u64,
    /// The number of live transactions above the highest timestamp to apply.
    pub later: u64,
    pub counts: Recovered,
}

/// Recovers the data component from the log, and begins a new incarnation. Returns the log and the
/// first timestamp. Operations to be applied again take about `memory_bytes` at a time, once the
/// data component has had a checkpoint; before a checkpoint, all are applied at once.
pub(crate) fn restart(
    options: LogOptions,
    data: &dyn DataComponent,
    memory_bytes: usize,
) -> Result<(Log, u64, Recovered), Error> {
    let point = data.resume_point()?;
    let mut options = options;
    // One more, for time marks.
    options.max_writers = (options.max_writers + 1).min(MOST_SESSIONS);
    let recovering = hyades_wal::open(options)?;
    let (verdict, without_record) = read_to_the_ends(&recovering, None)?;
    check(recovering.manifest(), recovering.is_fresh(), &verdict, point.as_ref())?;
    check_is_named(&recovering, data, point.as_ref())?;
    // Before the first operation is applied.
    check_is_not_ahead(data, point.as_ref(), without_record.highest_ts())?;
    // An initial point of several data components may be the point of some components only.
    let early_above = point.as_ref().filter(|point| !point.is_initial()).map(|_| memory_bytes);
    let limits = RedoLimits { until: u64::MAX, early_above, is_log_fixed: false };
    let mut redo = Redo::new(data, limits);
    redo.highest_ts = point.as_ref().map_or(0, |point| point.highest_ts);
    redo.collect(&recovering, &verdict, point.as_ref(), &Arc::new(without_record))?;
    if redo.highest_ts >= LAST_TS {
        return Err(Error::Invalid(format!(
            "the log or the data component states the timestamp {}, and the last that a \
             transaction may be given is {LAST_TS}: running transactions does not lead there, so \
             it is damaged. Restore copies of both that were taken together",
            redo.highest_ts
        )));
    }
    if broken!(RedoUnprovenTail) {
        redo.apply_all()?;
    }
    let log = begin_incarnation(recovering, &verdict)?;
    if point.is_none_or(|point| point.is_initial()) {
        data.checkpoint(&ResumePoint {
            highest_ts: redo.highest_ts,
            ..ResumePoint::initial(log.manifest().uuid())
        })?;
    }
    redo.apply_all()?;
    if !broken!(OpenWithoutPoint) {
        data.checkpoint(&first_point(&log, redo.highest_ts))?;
    }
    Ok((log, redo.highest_ts + 1, redo.counts))
}

/// Q3: begins a new incarnation.
pub(crate) fn begin_incarnation(recovering: Recovering, verdict: &Verdict) -> Result<Log, Error> {
    let settings = [(VERSIONS.to_string(), BY_TIMESTAMP.to_string())];
    let settings = IncarnationSettings {
        data_only: true,
        protocol: PROTOCOL.to_string(),
        settings: settings.into(),
        ..IncarnationSettings::default()
    };
    Ok(recovering.start(settings, verdict, 0)?)
}

/// The resume point of a fresh incarnation: all earlier incarnations are held.
pub(crate) fn first_point(log: &Log, highest_ts: u64) -> ResumePoint {
    let mut positions = vec![0; log.streams()];
    log.frontier().load_into(&mut positions);
    let (uuid, incarnation) = (log.manifest().uuid(), log.incarnation());
    ResumePoint { uuid, incarnation, highest_ts, positions }
}

/// Q2: reads each stream to the end of its valid prefix. Returns also the transactions with parts
/// and without a record, and the first time mark from `asked_us` on.
pub(crate) fn read_to_the_ends(
    recovering: &Recovering,
    asked_us: Option<u64>,
) -> Result<(Verdict, PartsWithoutRecord), Error> {
    let (mut ends, mut without_record) = (Vec::new(), PartsWithoutRecord::default());
    without_record.times = MarkSearch::new(asked_us);
    for mut reader in recovering.readers() {
        while let Some(chunk) = reader.next_chunk()? {
            chunk.frames().for_each(|frame| without_record.note(&frame));
        }
        ends.push(reader.end());
    }
    Ok((recovering.verdict(&ends)?, without_record))
}

impl Newest {
    /// Takes an operation, unless there is a newer operation on its key.
    fn take(&mut self, operation: Operation<'_>) {
        let Operation { key, ts, value } = operation;
        let len = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        let new = || (ts, value.map(<[u8]>::to_vec));
        match self.by_key.get_mut(key) {
            Some(newest) if newest.0 >= ts && !broken!(RedoByArrival) => return,
            Some(newest) => {
                self.bytes -= len(newest.1.as_deref());
                *newest = new();
            }
            None => {
                self.bytes += ENTRY_BYTES + key.len();
                self.by_key.insert(key.to_vec(), new());
            }
        }
        self.bytes += len(value);
    }

    /// Q4: applies the taken operations, and is empty then. Returns the number of operations.
    fn apply(&mut self, data: &dyn DataComponent) -> Result<u64, Error> {
        let newest = std::mem::take(self).by_key;
        let batch: Vec<_> = newest
            .iter()
            .map(|(key, (ts, value))| Operation { key, ts: *ts, value: value.as_deref() })
            .collect();
        batch.chunks(BATCH).try_for_each(|batch| data.apply(batch))?;
        Ok(batch.len() as u64)
    }
}

impl<'d> Redo<'d> {
    pub fn new(data: &'d dyn DataComponent, redo: RedoLimits) -> Self {
        Self {
            data,
            limits: data.limits(),
            redo,
            proven: Newest::default(),
            unproven: Newest::default(),
            highest_ts: 0,
            highest_taken: 0,
            later: 0,
            counts: Recovered::default(),
        }
    }

    /// Takes the live operations behind the resume point.
    pub fn collect(
        &mut self,
        recovering: &Recovering,
        verdict: &Verdict,
        point: Option<&ResumePoint>,
        without_record: &Arc<PartsWithoutRecord>,
    ) -> Result<(), Error> {
        for mut reader in recovering.readers() {
            let (incarnation, lane) = (reader.incarnation, reader.dimension);
            let covered = match point {
                Some(point) if incarnation < point.incarnation => continue,
                Some(point) if incarnation == point.incarnation => point.positions[lane],
                _ => 0,
            };
            let end = verdict.ends().iter().find(|end| end.incarnation == incarnation);
            let end = end.expect("the verdict is on every incarnation");
            reader.skip_to(covered);
            let mut records = RecordReader::new(&reader);
            records.leave_out(Arc::clone(without_record));
            while let Some(chunk) = reader.next_chunk()? {
                records.enter(&chunk);
                for frame in chunk.frames() {
                    if frame.kind == FrameKind::Record && frame.end <= covered {
                        continue;
                    }
                    if let Some(transaction) = records.read(&frame)? {
                        let is_proven = frame.end <= end.proven()[lane];
                        self.take(transaction, &end.ends, is_proven.then_some(end.proven()))?;
                    }
                }
            }
            // Of dead and unfinished transactions, too: the timestamps stay in the log.
            self.highest_ts = self.highest_ts.max(records.highest_ts());
        }
        Ok(())
    }

    /// Takes the operations of a record, if the record is part of the recovered state. `proven` are
    /// the proven durable positions of the streams, if the record is below.
    fn take(
        &mut self,
        transaction: LoggedTransaction<'_>,
        ends: &[u64],
        proven: Option<&[u64]>,
    ) -> Result<(), Error> {
        let LoggedTransaction { ts, vector, operations, .. } = transaction;
        let is_within = |ends: &[u64]| admits(|lane| ends[lane.index()], Lane::each(vector));
        if !is_within(ends) && !broken!(RedoDeadRecords) {
            self.counts.dead += 1;
            return Ok(());
        }
        if ts > self.redo.until {
            self.later += 1;
            return Ok(());
        }
        self.highest_taken = self.highest_taken.max(ts);
        // A read-only transaction may have a record, too.
        self.counts.transactions += u64::from(!operations.is_empty());
        operations.iter().try_for_each(|operation| self.check(operation))?;
        let newest = match self.redo.is_log_fixed || proven.is_some_and(is_within) {
            true => &mut self.proven,
            false => &mut self.unproven,
        };
        operations.into_iter().for_each(|operation| newest.take(operation));
        if self.redo.early_above.is_some_and(|above| self.proven.bytes > above) {
            self.counts.keys += self.proven.apply(self.data)?;
        }
        Ok(())
    }

    /// Whether the data component can take an operation.
    fn check(&self, operation: &Operation<'_>) -> Result<(), Error> {
        let checked = self.limits.check_key(operation.key);
        checked.and_then(|()| self.limits.check_value(operation.value)).map_err(|error| {
            Error::Invalid(format!(
                "the log has what this data component cannot take: {error}. Open the log with \
                 the one that it was written over, or with one that takes as much"
            ))
        })
    }

    /// Q4: applies the newest operation on each key.
    pub fn apply_all(&mut self) -> Result<(), Error> {
        self.counts.keys += self.proven.apply(self.data)?;
        self.counts.keys += self.unproven.apply(self.data)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, MemoryData, Options, UpdateLogging};
    use hyades_platform::device::MemoryDevice;

    #[test]
    fn parts_of_what_has_no_record_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogOptions::new(vec![dir.path().to_owned()], 2);
        log.device = MemoryDevice::shared();
        let mut options = Options::new(log.clone());
        options.update_logging = UpdateLogging::AtOnce;
        let database = Database::open(options, Arc::new(MemoryData::new())).unwrap();
        let mut session = database.session().unwrap();
        for aborts in [true, false, true] {
            let mut tx = session.begin().unwrap();
            tx.put(b"a", b"1").unwrap();
            match aborts {
                true => drop(tx.abort()),
                false => tx.commit().unwrap().wait().unwrap(),
            }
        }
        database.log().flush().unwrap();
        drop((session, database));
        let recovering = hyades_wal::open(log).unwrap();
        let (_, without_record) = read_to_the_ends(&recovering, None).unwrap();
        let without_record = Arc::new(without_record);
        for leaves_out in [true, false] {
            let (mut unfinished, mut transactions, mut highest_ts) = (0, 0, 0);
            for mut reader in recovering.readers() {
                let mut records = RecordReader::new(&reader);
                if leaves_out {
                    records.leave_out(Arc::clone(&without_record));
                }
                while let Some(chunk) = reader.next_chunk().unwrap() {
                    records.enter(&chunk);
                    for frame in chunk.frames() {
                        transactions += usize::from(records.read(&frame).unwrap().is_some());
                    }
                }
                unfinished += records.unfinished();
                highest_ts = highest_ts.max(records.highest_ts());
            }
            let left = if leaves_out { 0 } else { 2 };
            assert_eq!((unfinished, transactions, highest_ts), (left, 1, 3));
        }
    }
}
