//! The end of a transaction, by a commit or an abort; and the logging, in the order of the steps.

use super::TransactionComponent;
use super::counts::Counted;
use super::place::Place;
use super::record::{self, Parts};
use super::work::Work;
use crate::config::ReaderRecords;
use crate::error::Error;
use crate::proxy::Handed;
use hyades_wal::{FrameKind, Lane, Needs, Writer};
use std::sync::atomic::{AtomicU64, Ordering};

impl TransactionComponent {
    /// Whether the transaction logs a record at the commit.
    pub fn has_record(&self, work: &Work) -> bool {
        let of_reader = || match self.options.reader_records {
            // A snapshot has no own timestamp.
            _ if work.is_snapshot => false,
            ReaderRecords::Never => false,
            ReaderRecords::IfNeeded => !self.needs(work, None).is_empty(),
            ReaderRecords::Always => true,
        };
        !work.writes.is_empty() || of_reader()
    }

    /// W6: logs a write at once, where the caller has waited for room in the stream. All parts of a
    /// transaction are in a single stream.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn log_write(
        &self,
        work: &mut Work,
        writer: &mut Writer,
        stream: usize,
        key: &[u8],
    ) -> Result<(), Error> {
        let write = work.writes.get(key).expect("it has written the key");
        work.record.clear();
        record::put_part_head(&mut work.record, work.ts);
        record::put_operation(&mut work.record, key, write.version.bytes());
        self.append_part(work, writer, stream)
    }

    /// Appends the finished part.
    fn append_part(
        &self,
        work: &mut Work,
        writer: &mut Writer,
        stream: usize,
    ) -> Result<(), Error> {
        debug_assert!(work.stream().is_none_or(|own| own == stream), "it has parts elsewhere");
        if work.parts.is_none() {
            // Announced before the reservation, until the record is handed over, or will not come.
            self.timestamps.announce_holding(work.at, stream, self.log.next_lsn(stream));
        }
        let reservation = writer.reserve(stream, work.record.len());
        let start = reservation.start();
        if !reservation.fill(FrameKind::Part, &work.record) {
            if work.parts.is_none() {
                self.timestamps.end_holding(work.at);
            }
            return Err(match self.log.poisoned() {
                Some(poisoned) => hyades_wal::Error::from(poisoned).into(),
                None => Error::OutcomeUnknown,
            });
        }
        let (_, parts) = work.parts.get_or_insert((stream, Parts { first: start, count: 0 }));
        parts.count += 1;
        Ok(())
    }

    /// Logs all writes in parts.
    fn spill(&self, work: &mut Work, writer: &mut Writer, stream: usize) -> Result<(), Error> {
        let limit = writer.max_payload();
        let writes = std::mem::take(&mut work.writes);
        let mut rest = writes.iter().peekable();
        let mut logged = Ok(());
        while logged.is_ok() && rest.peek().is_some() {
            work.record.clear();
            record::put_part_head(&mut work.record, work.ts);
            while let Some((key, write)) = rest.next_if(|(key, write)| {
                work.record.len() + record::operation_bytes(key, write.version.bytes()) <= limit
            }) {
                record::put_operation(&mut work.record, key, write.version.bytes());
            }
            writer.wait_for_room(stream);
            logged = self.append_part(work, writer, stream);
        }
        drop(rest);
        work.writes = writes;
        logged
    }

    /// C1 to C7, where the caller has waited for room in the stream (C0). Returns the positions
    /// required durable before the transaction is acknowledged.
    pub fn commit(
        &self,
        work: &mut Work,
        writer: &mut Writer,
        stream: usize,
    ) -> Result<Needs, Error> {
        if let Err(error) = work.check() {
            self.abort(work);
            return Err(error);
        }
        // Before other transactions see the commit.
        self.release_claims(work);
        if !self.has_record(work) {
            work.counts.count(Counted::Commit);
            return Ok(self.end_without_record(work));
        }
        if let Err(error) = self.encode(work, writer, stream) {
            self.abort(work);
            return Err(error);
        }
        let len = work.record.len();
        // C2: announced before the reservation, until the record is handed over.
        self.timestamps.announce_reserving(work.at, stream, self.log.next_lsn(stream));
        let reservation = writer.reserve(stream, len);
        let place = (reservation.start(), reservation.end());
        // C3
        if !reservation.fill(FrameKind::Record, &work.record) {
            self.timestamps.end_reserving(work.at);
            self.abort(work);
            return Err(Error::OutcomeUnknown);
        }
        // C4 is part of W4: a version has its value from the start. C5, C6
        let own = Place::new(stream, place.1);
        self.transactions.commit(work.ts, own, &work.vector);
        let mut needs = self.needs(work, Some(stream));
        self.proxy.hand_over(Handed {
            ts: work.ts,
            stream,
            place,
            first: work.parts.map_or(place.0, |(_, parts)| parts.first),
            needs: needs.clone(),
            operations: work.writes.drain().map(|(_, write)| write.version).collect(),
            bytes: len.max(work.write_bytes),
            handed_ns: 0,
        });
        self.timestamps.end_reserving(work.at);
        work.last_written = work.ts;
        work.counts.count(Counted::Commit);
        self.end(work);
        // C7
        needs.push((Lane::position(stream), place.1));
        Ok(needs)
    }

    /// V states all durable positions, for a durable dependency at a position not known any more. A
    /// record states its dependencies even where durable: so no vector of durable positions,
    /// however loaded, admits the record without its dependencies. Done once, when the record is
    /// put together: the positions durable then include the positions durable at a read.
    fn join_durable(&self, work: &mut Work) {
        let frontier = self.log.frontier();
        for (lane, lsn) in work.vector.iter_mut().enumerate() {
            *lsn = frontier.durable(lane).max(*lsn);
        }
    }

    /// C1: puts the record together. The record leaves out of V the positions covered by the
    /// anchor, and nothing else. The anchor is loaded before the record gets its position, so the
    /// anchor is before the record.
    ///
    /// # Errors
    /// The writes do not fit into a frame, and the log has stopped.
    fn encode(&self, work: &mut Work, writer: &mut Writer, stream: usize) -> Result<(), Error> {
        if work.depends_on_durable {
            self.join_durable(work);
        }
        let mut is_in_parts = work.parts.is_some();
        self.encode_record(work, stream, is_in_parts);
        if work.record.len() > writer.max_payload() {
            debug_assert!(!is_in_parts, "a record without operations is short");
            self.spill(work, writer, stream)?;
            is_in_parts = true;
            self.encode_record(work, stream, is_in_parts);
        }
        Ok(())
    }

    /// The record, with all writes, or without writes if the writes are in parts.
    fn encode_record(&self, work: &mut Work, stream: usize, is_in_parts: bool) {
        let load = |lane: &AtomicU64| lane.load(Ordering::Acquire);
        let (anchor, parts) = (self.log.anchors(stream), work.parts.map(|(_, parts)| parts));
        work.record.clear();
        record::put_head(&mut work.record, parts, work.ts, &work.vector, anchor, load);
        for (key, write) in work.writes.iter().filter(|_| !is_in_parts) {
            record::put_operation(&mut work.record, key, write.version.bytes());
        }
    }

    /// Returns the lanes of V not durable yet, without the stream of the own record.
    fn needs(&self, work: &Work, own: Option<usize>) -> Needs {
        let (frontier, mut needs) = (self.log.frontier(), Needs::default());
        for (lane, &lsn) in work.vector.iter().enumerate() {
            if Some(lane) != own && frontier.durable(lane) < lsn {
                needs.push((Lane::position(lane), lsn));
            }
        }
        needs
    }

    /// A1 to A4. Returns the positions required durable before a caller may be told the values read
    /// by the transaction.
    pub fn abort(&self, work: &mut Work) -> Needs {
        if work.failed.is_none() {
            work.counts.count(Counted::RolledBack);
        }
        self.release_claims(work);
        for (key, write) in work.writes.drain() {
            self.versions.remove(&key, write.hash, work.ts);
        }
        self.end_without_record(work)
    }

    fn end_without_record(&self, work: &mut Work) -> Needs {
        debug_assert!(work.writes.is_empty(), "a version would stay");
        let (needs, has_parts) = (self.needs(work, None), work.parts.is_some());
        if !work.is_snapshot {
            self.transactions.free(work.ts);
        }
        self.end(work);
        // Of all acts that make the log longer, or have held the resume point back, only an abort
        // with parts leaves no record that makes the proxy look for a due checkpoint.
        if has_parts && self.is_checkpoint_due() {
            self.checkpoints.tell_due();
        }
        needs
    }

    fn end(&self, work: &mut Work) {
        self.counts.add(work.at, &mut work.counts);
        work.ts = 0;
        self.timestamps.end_writing(work.at);
        if work.parts.take().is_some() {
            self.timestamps.end_holding(work.at);
        }
        match std::mem::take(&mut work.is_snapshot) {
            true => self.timestamps.end_snapshot(work.at),
            false => self.timestamps.end(work.at),
        }
    }
}
