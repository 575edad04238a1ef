//! Promise: a flusher makes durable, and states the mark of, at least what the segment index of
//! Poplar (Zhou et al., 2019, section 4.3, algorithm 2) makes durable when segments are closed at
//! the same moments; and neither a hole nor a number above the mark is passed.
//!
//! The order of a stream states the paper's quintuple: `allocated bytes` are those between the
//! durable position and the end of the last reservation, `buffered bytes` those up to the first
//! position not filled, `start offset` is the durable position, `ssn` the mark in the heartbeat
//! that the flusher places when it takes a batch, and a batch is `closed` by being taken.
#![allow(missing_docs)]

mod common;
use common::{Drawn, reopen, small};
use hyades_platform::device::MemoryDevice;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::random::Random;
use hyades_wal::{FrameKind, Log, Lsn, Reservation};
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A segment of the paper. The offsets of log buffers are replaced by the ends of records.
#[derive(Default)]
struct Segment {
    ssn: u64,
    allocated: u64,
    buffered: u64,
    end: Lsn,
    is_closed: bool,
}

/// The paper's segment index of a log buffer, and what its logger thread has flushed.
struct SegmentIndex {
    segments: Vec<Segment>,
    flushed: usize,
    dsn: u64,
    durable: Lsn,
}

impl SegmentIndex {
    fn new() -> Self {
        SegmentIndex { segments: vec![Segment::default()], flushed: 0, dsn: 0, durable: 0 }
    }

    /// Allocates a record; returns its segment.
    fn allocate(&mut self, bytes: u64, end: Lsn) -> usize {
        let last = self.segments.last_mut().unwrap();
        (last.allocated, last.end) = (last.allocated + bytes, end);
        self.segments.len() - 1
    }

    /// Establishing_Segment, when the timer has ended or the segment has the size of an I/O unit.
    fn establish(&mut self, last_ssn: u64) {
        let segment = self.segments.last_mut().unwrap();
        (segment.ssn, segment.is_closed) = (last_ssn, true);
        self.segments.push(Segment::default());
    }

    /// Advancing_DSN.
    fn advance(&mut self) {
        while let Some(segment) = self.segments.get(self.flushed)
            && segment.is_closed
            && segment.allocated == segment.buffered
        {
            self.dsn = segment.ssn;
            self.durable = self.durable.max(segment.end);
            self.flushed += 1;
        }
    }
}

/// A record: its number, place, segment and, while it is not filled, its reservation.
struct Record<'w> {
    number: u64,
    end: Lsn,
    bytes: u64,
    segment: usize,
    reservation: Option<Reservation<'w>>,
}

fn check(log: &Log, index: &SegmentIndex, records: &[Record<'_>]) {
    let (durable, mark) = (log.frontier().durable(0), log.frontier().mark(0));
    assert!(durable >= index.durable, "{durable} is durable, of the paper's {}", index.durable);
    assert!(mark >= index.dsn, "the mark is {mark}, the paper's DSN {}", index.dsn);
    for record in records {
        let is_durable = record.end <= durable;
        assert!(!is_durable || record.reservation.is_none(), "{durable} passes a hole");
        assert!(is_durable || record.number > mark, "{mark} is above a record not durable");
    }
}

/// Reserves, fills and flushes at random.
fn history(seed: u64) {
    let mut random = Random::seeded(seed);
    let dir = tempfile::tempdir_in(MemoryDevice::ROOT).unwrap();
    let mut options = small(dir.path(), 1, MemoryDevice::shared());
    (options.stepped, options.max_writers) = (true, 64);
    let (log, _) = reopen(options).unwrap();
    let drawn = Arc::new(Drawn::default());
    log.install_marks(drawn.clone());
    let mut writers: Vec<_> = (0..60).map(|_| log.writer().unwrap()).collect();
    let mut fresh = writers.iter_mut();
    let (mut index, mut records) = (SegmentIndex::new(), Vec::<Record<'_>>::new());
    for _ in 0..200 {
        match random.below(4) {
            0 | 1 if records.iter().filter(|r| r.reservation.is_some()).count() < 5 => {
                let Some(writer) = fresh.next() else { break };
                let bytes = 1 + random.below(100);
                // The number and the position are drawn in one step.
                let skipped = 1 + random.below(3);
                let number = drawn.0.fetch_add(skipped, Ordering::SeqCst) + skipped;
                let reservation = writer.reserve(0, bytes as usize);
                let end = reservation.end();
                let segment = index.allocate(bytes, end);
                let reservation = Some(reservation);
                records.push(Record { number, end, bytes, segment, reservation });
            }
            0..=2 => {
                let mut open: Vec<_> =
                    records.iter_mut().filter(|r| r.reservation.is_some()).collect();
                if !open.is_empty() {
                    let at = random.below(open.len() as u64) as usize;
                    let record = &mut open[at];
                    index.segments[record.segment].buffered += record.bytes;
                    let payload = vec![7; record.bytes as usize];
                    record.reservation.take().unwrap().fill(FrameKind::Record, &payload);
                }
            }
            _ => {
                index.establish(drawn.0.load(Ordering::SeqCst));
                index.advance();
                log.step(0);
            }
        }
        check(&log, &index, &records);
    }
    drop(records);
}

/// The broken rule is global to the process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_batch_holds_at_least_what_a_closed_segment_holds() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    (0..300).for_each(history);
}

#[test]
fn a_mark_ahead_of_its_batch_is_noticed() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    mutation::set(Some(Mutation::MarkInMemory));
    let noticed = catch_unwind(|| (0..300).for_each(history)).is_err();
    mutation::set(None);
    assert!(noticed);
}
