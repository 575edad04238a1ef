//! Partitioned records: for protocols that log the changes of each partition in a separate stream.

use super::state::TxnState;
use super::steps::{Appender, Reserved, encode_write, write_parts};
use crate::engine::Engine;
use crate::logging::LoggingProtocol;
use crate::logging::record::{RecordHead, Tid};
use hyades_wal::{FrameKind, Lsn, Reservation};
use smallvec::SmallVec;
use std::ops::Range;

/// A record of the transaction while it is built: its stream, and the ranges of the record and of
/// its stamp in the session's `payload` buffer.
struct PartitionDraft {
    stream: usize,
    bytes: Range<usize>,
    stamp: Range<usize>,
}

/// Reserved frames in several streams, in ascending order, with the bytes of their records.
pub(super) struct PartitionedFrames<'w> {
    places: SmallVec<[Reservation<'w>; 8]>,
    records: SmallVec<[PartitionDraft; 8]>,
    payload: &'w [u8],
}

impl PartitionedFrames<'_> {
    /// Returns the stream and the frame end of the first record.
    pub fn own(&self) -> Option<(usize, Lsn)> {
        let (record, place) = (self.records.first()?, self.places.first()?);
        Some((record.stream, place.end()))
    }

    /// Fills all frames, in the order of streams.
    pub fn fill(self) {
        for (place, record) in self.places.into_iter().zip(self.records) {
            place.fill(FrameKind::Record, &self.payload[record.bytes]);
        }
    }

    /// Voids all frames: they keep their places and hold no record.
    pub fn void(self) {
        self.places.into_iter().for_each(Reservation::void);
    }
}

/// Builds a record for each partition written to, and reserves all of them in one step of the
/// protocol (the order point).
pub(super) fn reserve<'w, P: LoggingProtocol>(
    engine: &Engine<P>,
    state: &mut TxnState<'_, P>,
    appender: &'w mut Appender<'_>,
    tid: u64,
) -> Reserved<'w> {
    let Some(writer) = appender.writer.as_deref_mut() else { return Reserved::nothing() };
    let payload = &mut *appender.payload;
    let protocol = &engine.protocol;
    protocol.versioned(state.stamp, tid);
    let mut written = 0u64;
    let mut partitions: SmallVec<[u8; 32]> = SmallVec::new();
    for write in state.writes.iter().filter(|write| !write.superseded) {
        let stream = protocol.partition(write.table, write.record.key());
        partitions.push(stream as u8);
        written |= 1 << stream;
        protocol.touch(&write.record.stamp, state.stamp, stream);
    }
    payload.clear();
    let epoch = Tid(tid).epoch();
    let mut epoch_us = None;
    if epoch != appender.stated_epoch {
        epoch_us = engine.epoch.began_us(epoch);
        appender.stated_epoch = epoch;
    }
    let mut records: SmallVec<[PartitionDraft; 8]> = SmallVec::new();
    for stream in (0..64).filter(|stream| written >> stream & 1 == 1) {
        // Every record states when the epoch began, since any one of them may be the one found.
        let mut head = RecordHead { tid, epoch_us, ..RecordHead::default() };
        let start = payload.len();
        let begin = |head: &RecordHead, stamp: &mut P::TxnStamp, payload: &mut Vec<u8>| {
            payload.truncate(start);
            head.encode(payload);
            let stamp_at = payload.len();
            protocol.encode(stamp, stream, false, payload);
            stamp_at..payload.len()
        };
        let mut stamp = begin(&head, state.stamp, payload);
        let body_at = payload.len();
        let of_stream = state.final_writes().zip(&partitions);
        for (write, _) in of_stream.filter(|(_, at)| usize::from(**at) == stream) {
            encode_write(engine, write, payload);
        }
        if payload.len() - start > writer.max_payload() {
            head.continued = Some(write_parts(writer, stream, &payload[body_at..]));
            stamp = begin(&head, state.stamp, payload);
        }
        // Checked before a number is drawn: until all frames are reserved, other transactions may
        // be waiting for the next number.
        let length = payload.len() - start;
        assert!(length <= writer.max_payload(), "a record's head is too long for a frame");
        records.push(PartitionDraft { stream, bytes: start..payload.len(), stamp });
    }
    // Allocates in advance: nothing is allocated once the number is drawn.
    let places = SmallVec::with_capacity(records.len());
    let mut many = Box::new(PartitionedFrames { places, records, payload: &[] });
    let PartitionedFrames { places, records, .. } = &mut *many;
    let first = records.first().map_or(0, |record| record.stream);
    protocol.draw(state.stamp, first);
    let lengths = records.iter().map(|record| (record.stream, record.bytes.len()));
    writer.reserve_each(lengths, |place| places.push(place));
    protocol.place(state.stamp, first, places.first().map_or(0, Reservation::end));
    for record in &*records {
        protocol.patch(state.stamp, &mut payload[record.stamp.clone()]);
    }
    // The first record gives the transaction its id.
    *appender.position = places.first().map(|place| (epoch, first, place.end()));
    appender.appended = places.iter().map(|place| place.end() - place.start()).sum();
    many.payload = payload;
    Reserved::many(many)
}
