//! Records by partition: the changes of each partition in a separate record, in the partition's
//! stream.

use super::draft::{Draft, Reserved, encode_write, write_parts};
use super::record::RecordHead;
use super::write::{Write, final_writes};
use crate::storage::Stamp;
use hyades_wal::{FrameKind, Lsn, Reservation, Writer};
use smallvec::SmallVec;
use std::ops::Range;

/// The most partitions: a set of partitions has a bit for each.
const MAX_PARTITIONS: usize = 64;

/// A record of the transaction: the stream, and the ranges of bytes and stamp in the session's
/// buffer.
struct PartitionRecord {
    stream: usize,
    bytes: Range<usize>,
    stamp: Range<usize>,
}

/// Records in several streams, ascending, and their positions once reserved.
pub(super) struct PartitionRecords<'w> {
    places: SmallVec<[Reservation<'w>; 8]>,
    records: SmallVec<[PartitionRecord; 8]>,
    payload: &'w mut Vec<u8>,
}

impl PartitionRecords<'_> {
    /// Returns stream and end of the first record.
    pub fn position(&self) -> Option<(usize, Lsn)> {
        let (record, place) = (self.records.first()?, self.places.first()?);
        Some((record.stream, place.end()))
    }

    /// Calls `patch` with the stamp of each record.
    pub fn patch(&mut self, mut patch: impl FnMut(&mut [u8])) {
        for record in &self.records {
            patch(&mut self.payload[record.stamp.clone()]);
        }
    }

    /// Publishes all records, in the order of streams.
    pub fn fill(self) {
        for (place, record) in self.places.into_iter().zip(self.records) {
            place.fill(FrameKind::Record, &self.payload[record.bytes]);
        }
    }

    /// Voids all frames, which keep their positions and have no content.
    pub fn void(self) {
        self.places.into_iter().for_each(Reservation::void);
    }
}

/// The records of a transaction, with known bytes except for the parts that depend on positions.
pub struct ComposedPartitions<'w> {
    writer: &'w mut Writer,
    records: Box<PartitionRecords<'w>>,
}

impl<'w> ComposedPartitions<'w> {
    /// Reserves all frames: the order point. Neither waits nor allocates.
    pub fn reserve(self) -> Reserved<'w> {
        let ComposedPartitions { writer, mut records } = self;
        let PartitionRecords { places, records: lengths, .. } = &mut *records;
        let lengths = lengths.iter().map(|record| (record.stream, record.bytes.len()));
        writer.reserve_each(lengths, |place| places.push(place));
        let bytes = places.iter().map(|place| place.end() - place.start()).sum();
        Reserved::many(records, bytes)
    }
}

impl<'d, 'w, S: Stamp> Draft<'d, 'w, S> {
    /// Puts a record together for each partition that the transaction writes to. `partition` gives
    /// the partition of a write; `encode` appends the stamp of the record in a stream, given the
    /// set of all streams with a record.
    pub fn compose_by_partition(
        self,
        mut partition: impl FnMut(&Write<'d, S>) -> usize,
        mut encode: impl FnMut(usize, u64, &mut Vec<u8>),
    ) -> ComposedPartitions<'w> {
        let epoch_us = self.epoch_us();
        let Draft { writer, tid, tables, writes, payload, .. } = self;
        let partitions: SmallVec<[u8; 32]> =
            final_writes(writes).map(|write| partition(write) as u8).collect();
        let written = partitions.iter().fold(0u64, |set, stream| set | 1 << stream);
        payload.clear();
        let mut records: SmallVec<[PartitionRecord; 8]> = SmallVec::new();
        for stream in (0..MAX_PARTITIONS).filter(|stream| written >> stream & 1 == 1) {
            // Each record states when the epoch began, since any record may be the one found.
            let mut head = RecordHead { tid, epoch_us, ..RecordHead::default() };
            let start = payload.len();
            let mut begin = |head: &RecordHead, payload: &mut Vec<u8>| {
                payload.truncate(start);
                head.encode(payload);
                let stamp_at = payload.len();
                encode(stream, written, payload);
                stamp_at..payload.len()
            };
            let mut stamp = begin(&head, payload);
            let body_at = payload.len();
            let of_stream = final_writes(writes).zip(&partitions);
            for (write, _) in of_stream.filter(|(_, at)| usize::from(**at) == stream) {
                encode_write(tables, write, payload);
            }
            if payload.len() - start > writer.max_payload() {
                head.continued = Some(write_parts(writer, stream, &payload[body_at..]));
                stamp = begin(&head, payload);
            }
            // Before a number is drawn: other sessions may wait for the next number until all
            // positions are known.
            let length = payload.len() - start;
            assert!(length <= writer.max_payload(), "a record's head is too long for a frame");
            records.push(PartitionRecord { stream, bytes: start..payload.len(), stamp });
        }
        // With room for the positions: nothing is allocated after the reservation.
        let places = SmallVec::with_capacity(records.len());
        let records = Box::new(PartitionRecords { places, records, payload });
        ComposedPartitions { writer, records }
    }
}
