//! Restart: what the data component lacks is applied again from the log (`docs/format.md`, 13).
//!
//! Q1 the data component's resume point. Q2 all streams are read, which gives their ends and the
//! verdict; then again, for what is live by those ends. Q3 the log begins a new incarnation, which
//! makes the recovered tail durable. Q4 redo. Q3 before Q4: the data component may write what it is
//! given, and fed from a tail that only the page cache holds it could keep a part of a transaction
//! that the next crash takes back. A crash anywhere leaves a state from which this begins again.

use crate::data_component::{DataComponent, MAX_TS, Operation, ResumePoint, ScanOrder};
use crate::error::Error;
use crate::inspect::{LoggedTransaction, PROTOCOL, RecordReader};
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{
    BY_TIMESTAMP, FrameKind, IncarnationSettings, Lane, Log, LogOptions, Manifest, Recovering,
    VERSIONS, Verdict, admits,
};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// The most operations applied at once.
const BATCH: usize = 4096;

/// What a restart has found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Transactions of which operations were applied again.
    pub transactions: u64,
    /// Transactions that are not part of the recovered state, since they depend on what is lost.
    pub dead: u64,
    /// The keys whose newest operation was applied again.
    pub keys: u64,
}

/// The newest live operation on each key behind the resume point.
#[derive(Default)]
struct Redo {
    newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    highest_ts: u64,
    counts: Recovered,
}

/// Recovers the data component from the log, and begins a new incarnation. Returns the log and the
/// first timestamp.
pub(crate) fn restart(
    options: LogOptions,
    data: &dyn DataComponent,
) -> Result<(Log, u64, Recovered), Error> {
    let point = data.resume_point()?;
    let recovering = hyades_wal::open(options)?;
    let verdict = read_to_the_ends(&recovering)?;
    check(recovering.manifest(), recovering.is_fresh(), &verdict, point.as_ref())?;
    // One that was filled and never checkpointed has no resume point to tell it by. Its timestamps
    // would be those of transactions to come.
    if recovering.is_fresh() && holds_a_key(data)? {
        return Err(Error::Invalid(
            "the data component holds keys, and the log is new: open the log with which it was \
             filled"
                .to_string(),
        ));
    }
    let highest_ts = point.as_ref().map_or(0, |point| point.highest_ts);
    let mut redo = Redo { highest_ts, ..Redo::default() };
    redo.collect(&recovering, &verdict, point.as_ref())?;
    let settings = [(VERSIONS.to_string(), BY_TIMESTAMP.to_string())];
    let settings = IncarnationSettings {
        data_only: true,
        protocol: PROTOCOL.to_string(),
        settings: settings.into(),
        ..IncarnationSettings::default()
    };
    if mutation::is(Mutation::RedoUnprovenTail) {
        redo.apply(data)?;
    }
    let log = recovering.start(settings, &verdict, 0)?;
    redo.apply(data)?;
    Ok((log, redo.highest_ts + 1, redo.counts))
}

/// Whether the data component has anything of any key.
fn holds_a_key(data: &dyn DataComponent) -> Result<bool, Error> {
    let mut holds_one = false;
    data.scan((Bound::Unbounded, Bound::Unbounded), ScanOrder::Ascending, &mut |_| {
        holds_one = true;
        ControlFlow::Break(())
    })?;
    Ok(holds_one)
}

/// Q2: reads each stream to the end of its valid prefix.
fn read_to_the_ends(recovering: &Recovering) -> Result<Verdict, Error> {
    let mut ends = Vec::new();
    for mut reader in recovering.readers() {
        while reader.next_chunk()?.is_some() {}
        ends.push(reader.end());
    }
    Ok(recovering.verdict(&ends)?)
}

/// Whether this log and this data component belong together, and hold everything between them.
fn check(
    manifest: &Manifest,
    is_fresh: bool,
    verdict: &Verdict,
    point: Option<&ResumePoint>,
) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Invalid(what.to_string()));
    let other = manifest.incarnations.iter().find(|i| i.protocol != PROTOCOL);
    if let Some(other) = other {
        return Err(Error::Invalid(format!(
            "the log is not one of a transaction component: its protocol is \"{}\"",
            other.protocol
        )));
    }
    let Some(point) = point else {
        return match &manifest.checkpoint {
            None => Ok(()),
            Some(_) => wrong(
                "the log is truncated, and the data component is empty: open the one that belongs \
                 to this log",
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
        return wrong("the data component is ahead of the log: the log was put back to a copy");
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
            "the log is truncated beyond what the data component holds: it was put back to a copy",
        ),
        false => Ok(()),
    }
}

impl Redo {
    fn collect(
        &mut self,
        recovering: &Recovering,
        verdict: &Verdict,
        point: Option<&ResumePoint>,
    ) -> Result<(), Error> {
        for mut reader in recovering.readers() {
            let (incarnation, lane) = (reader.incarnation, reader.dimension);
            let covered = match point {
                Some(point) if incarnation < point.incarnation => continue,
                Some(point) if incarnation == point.incarnation => point.positions[lane],
                _ => 0,
            };
            let ends = verdict.end(incarnation).expect("the verdict is on every incarnation");
            reader.skip_to(covered);
            let mut records = RecordReader::new(&reader);
            while let Some(chunk) = reader.next_chunk()? {
                records.enter(&chunk);
                for frame in chunk.frames() {
                    if frame.kind == FrameKind::Record && frame.end <= covered {
                        continue;
                    }
                    if let Some(transaction) = records.read(&frame)? {
                        self.take(transaction, ends);
                    }
                }
            }
            // Of dead and unfinished transactions, too: their timestamps stay in the log.
            self.highest_ts = self.highest_ts.max(records.highest_ts());
        }
        Ok(())
    }

    /// Takes the operations of a record, if it is part of the recovered state.
    fn take(&mut self, transaction: LoggedTransaction<'_>, ends: &[u64]) {
        let LoggedTransaction { vector, operations, .. } = transaction;
        let is_live = admits(|lane| ends[lane.index()], Lane::each(vector));
        if !is_live && !mutation::is(Mutation::RedoDeadRecords) {
            self.counts.dead += 1;
            return;
        }
        // One that has only read may have a record, too.
        self.counts.transactions += u64::from(!operations.is_empty());
        for Operation { key, ts, value } in operations {
            let new = || (ts, value.map(<[u8]>::to_vec));
            match self.newest.get_mut(key) {
                Some(newest) if newest.0 >= ts && !mutation::is(Mutation::RedoByArrival) => {}
                Some(newest) => *newest = new(),
                None => drop(self.newest.insert(key.to_vec(), new())),
            }
        }
    }

    /// Q4: applies the newest operation on each key.
    fn apply(&mut self, data: &dyn DataComponent) -> Result<(), Error> {
        let newest = self.newest.iter();
        let batch: Vec<_> = newest
            .map(|(key, (ts, value))| Operation { key, ts: *ts, value: value.as_deref() })
            .collect();
        batch.chunks(BATCH).try_for_each(|batch| data.apply(batch))?;
        self.counts.keys = batch.len() as u64;
        Ok(())
    }
}
