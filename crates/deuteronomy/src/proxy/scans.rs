//! The scans: per stream, the records waiting to be applied, and the end of the fully applied
//! prefix.

use super::Handed;
use super::applied::AppliedBehind;
use super::waiting::Waiting;
use crate::data_component::ResumePoint;
use crate::times::DueMark;
use crate::transaction_component::timestamp::Timestamps;
use hyades_platform::broken;
use hyades_wal::{Log, Lsn};

/// The most bytes applied at once, plus a record: a batch is an uninterrupted step of the data
/// component.
const BATCH_BYTES: usize = 8 << 20;

/// The scans.
pub(super) struct Scans {
    /// By stream, the records handed over and not yet applied, by position.
    pub waiting: Vec<Waiting>,
    /// Empty: room for the inbox's records until the next look.
    pub received: Vec<Handed>,
    /// By stream, the end of the longest prefix known to have been handed over.
    pub handed_over: Vec<Lsn>,
    /// By stream, a position. Each transaction with its first part below has handed its record
    /// over.
    pub held: Vec<Lsn>,
    /// By stream, the applied records possibly behind the resume point: redo applies these records
    /// again.
    pub applied: Vec<AppliedBehind>,
    /// By stream, the number of waiting records with parts.
    pub parted: Vec<usize>,
    /// The bytes of the waiting records.
    pub bytes: usize,
    /// The highest timestamp of an applied record.
    pub highest_applied: u64,
    /// The next time mark.
    pub due_mark: DueMark,
    /// An act under the lock has failed. Set after the log was stopped.
    pub failed: bool,
}

impl Scans {
    /// Notes applied records possibly behind the resume point: records behind a part of an
    /// unapplied transaction, or behind a waiting record passed over for a [cut](super::cut). In
    /// other streams, the applied records are a prefix.
    pub fn note_applied(&mut self, ready: &[Handed]) {
        for Handed { stream, place, ts, .. } in ready {
            let first = self.waiting[*stream].first();
            let is_behind_waiting = first.is_some_and(|first| first.place.0 < place.0);
            let is_behind_waiting = is_behind_waiting && !broken!(PassOverUnnoted);
            if self.held[*stream] < place.1 || self.parted[*stream] > 0 || is_behind_waiting {
                self.applied[*stream].note(place.1, *ts);
            }
            self.highest_applied = self.highest_applied.max(*ts);
        }
        for record in ready.iter().filter(|record| record.has_parts()) {
            self.parted[record.stream] -= 1;
        }
        for stream in 0..self.applied.len() {
            if self.parted[stream] == 0 {
                let first = self.waiting[stream].first().map_or(Lsn::MAX, |first| first.place.0);
                self.applied[stream].forget_up_to(self.held[stream].min(first));
            }
        }
    }

    /// By stream, the end of the last frame up to which all records are applied, and all parts
    /// belong to applied records.
    pub fn resume_at(&self) -> Vec<Lsn> {
        let first = |waiting: &Waiting| {
            let begin = |record: &Handed| match broken!(ResumeBetweenParts) {
                true => record.place.0,
                false => record.first,
            };
            let first = waiting.iter().map(begin).min();
            first.filter(|_| !broken!(ResumeBehindWaiting))
        };
        // `held` is at or below `handed_over`.
        let ends = match broken!(ResumeBetweenParts) {
            true => self.handed_over.iter(),
            false => self.held.iter(),
        };
        let ends = ends.zip(&self.waiting);
        ends.map(|(end, w)| first(w).map_or(*end, |start| start.min(*end))).collect()
    }

    /// The point for the beginning of redo, after a look for records handed over.
    pub fn resume_point(&self, log: &Log, timestamps: &Timestamps) -> ResumePoint {
        ResumePoint {
            uuid: log.manifest().uuid(),
            incarnation: log.incarnation(),
            highest_ts: timestamps.next() - 1,
            positions: self.resume_at(),
        }
    }

    /// X2: takes of each stream the next records within the complete prefix, admitted by the
    /// frontier, and below the horizon; until there are as many operations, or [`BATCH_BYTES`].
    pub fn take_ready(&mut self, log: &Log, horizon: u64, most: usize) -> Vec<Handed> {
        let (frontier, mut ready) = (log.frontier(), Vec::new());
        let (mut operations, mut bytes) = (0, 0);
        for (waiting, complete) in self.waiting.iter_mut().zip(&self.handed_over) {
            while operations < most
                && bytes < BATCH_BYTES
                && let Some(record) = waiting.first()
            {
                let may_pass = record.ts < horizon && record.is_durable(frontier, *complete);
                if !may_pass {
                    break;
                }
                let Some(record) = waiting.take_first() else { break };
                operations += record.operations.len();
                bytes += record.bytes;
                self.bytes -= record.bytes;
                ready.push(record);
            }
        }
        ready
    }

    /// Returns the handing-over time of the oldest waiting record.
    pub fn oldest_ns(&self) -> Option<u64> {
        let first = |waiting: &Waiting| waiting.first().map(|record| record.handed_ns);
        self.waiting.iter().filter_map(first).min()
    }
}
