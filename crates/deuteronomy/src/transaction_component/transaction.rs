//! What a transaction does, a function per act, in the order of the steps.

use super::TransactionComponent;
use super::place::Place;
use super::record::{self, Parts};
use super::version::{Value, Version};
use super::version_table::Seen;
use super::work::Work;
use super::writes::PendingWrite;
use crate::config::ReaderRecords;
use crate::error::{Abort, Error};
use crate::key::hash;
use crate::proxy::Handed;
use hyades_platform::clock;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{FrameKind, Lane, Needs, Writer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a look at the version table finds for a read.
#[derive(Debug)]
pub(crate) enum Looked {
    /// The value.
    Found(Value),
    /// The version to read is of this active, older transaction.
    Active(u64),
    /// The version to read is in the data component. The number is for the fetch.
    Missing(u64),
}

/// At most how many bytes the operation takes in a frame.
fn operation_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    record::OPERATION_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// At most how many bytes a part takes that has this operation alone.
fn part_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    record::PART_HEAD_BYTES + operation_bytes(key, value)
}

/// After this many writes a session looks for the oldest active transaction, to trim records below
/// it: to look takes cache lines of other sessions, and what is trimmed later costs memory.
const WRITES_PER_LOOK: u32 = 16;

impl TransactionComponent {
    /// B1 to B4.
    pub fn begin(&self, work: &mut Work) -> Result<(), Error> {
        self.prepare(work)?;
        self.timestamps.announce(work.at);
        for draws in 1.. {
            let ts = self.timestamps.draw(work.at);
            if self.transactions.claim(ts, |lane| self.log.frontier().at(lane)) {
                work.ts = ts;
                break;
            }
            // There are more entries than sessions, so one is not active. But all of these may be
            // of transactions that wait for the device.
            if draws % self.options.transactions == 0
                && let Err(poisoned) = self.log.flush()
            {
                self.timestamps.end(work.at);
                return Err(hyades_wal::Error::from(poisoned).into());
            }
        }
        Ok(())
    }

    /// Makes the session ready for a transaction or a snapshot.
    fn prepare(&self, work: &mut Work) -> Result<(), Error> {
        if work.is_active() {
            // Its `Transaction` was leaked.
            drop(self.abort(work));
        }
        if let Some(poisoned) = self.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        self.make_room(work)?;
        debug_assert!(work.parts.is_none(), "parts of an earlier transaction");
        work.failed = None;
        work.write_bytes = 0;
        work.vector.fill(0);
        work.depends_on_durable = false;
        Ok(())
    }

    /// Begins a snapshot: it reads as of just below the horizon, but never before what its session
    /// has written.
    ///
    /// # Errors
    /// [`Abort::Shed`]; the log has stopped; [`Abort::Unfinished`], if an older transaction than
    /// the session's last one takes longer to end than the options allow.
    pub fn begin_snapshot(&self, work: &mut Work) -> Result<(), Error> {
        self.prepare(work)?;
        let mut until = None;
        loop {
            // It raises the horizon.
            self.timestamps.oldest_active();
            let horizon = self.timestamps.announce_snapshot(work.at);
            if work.last_written < horizon {
                (work.ts, work.is_snapshot) = (horizon - 1, true);
                return Ok(());
            }
            self.timestamps.end_snapshot(work.at);
            if !self.may_wait(&mut until) {
                return Err(Abort::Unfinished.into());
            }
            std::thread::yield_now();
        }
    }

    /// R1 to R6: the value of a key.
    pub fn get(&self, work: &mut Work, key: &[u8]) -> Result<Value, Error> {
        let (hash, mut until) = (hash(key), None);
        loop {
            match self.look(work, key, hash)? {
                Looked::Found(value) => return Ok(value),
                Looked::Active(writer) => {
                    if !self.wait_for_end(writer, &mut until) {
                        return Err(work.fail(Abort::Unfinished));
                    }
                }
                Looked::Missing(number) => {
                    let found = self.read_data(key, hash, number)?;
                    return self.take_read(work, key, (hash, number), found);
                }
            }
        }
    }

    /// R1 to R5: what the transaction finds of a key without the data component. If that is needed,
    /// there is room for what it has.
    pub fn look(&self, work: &mut Work, key: &[u8], hash: u64) -> Result<Looked, Error> {
        work.check()?;
        if let Some(write) = work.writes.get(key) {
            return Ok(Looked::Found(write.value.clone()));
        }
        let seen = match work.is_snapshot {
            false => self.versions.read(key, hash, work.ts, &self.transactions),
            true => self.versions.read_below_horizon(key, hash, work.ts, &self.transactions),
        };
        match seen {
            Seen::Value(value, writer) => {
                // One that is applied is durable, and maybe of an earlier incarnation.
                let joins = |ts| self.transactions.join(ts, &mut work.vector);
                if !writer.is_some_and(joins) {
                    work.depends_on_durable = true;
                }
                Ok(Looked::Found(value))
            }
            Seen::Active(writer) => {
                debug_assert!(writer < work.ts, "only the younger waits for the older");
                Ok(Looked::Active(writer))
            }
            Seen::Missing(number) => {
                self.make_room_for(work)?;
                Ok(Looked::Missing(number))
            }
        }
    }

    /// Keeps the version table within its budget while a transaction runs, which is aborted if it
    /// could not be.
    pub(super) fn make_room_for(&self, work: &mut Work) -> Result<(), Error> {
        let made = match self.timestamps.is_shed(work.at) {
            true => Err(Abort::Shed.into()),
            false => self.make_room(work),
        };
        match made {
            Err(Error::Aborted(abort)) => {
                self.room.count_shed();
                Err(work.fail(abort))
            }
            made => made,
        }
    }

    /// V states all that is durable, for a dependency that is durable at a position that is not
    /// known any more. A record states what it depends on even where that is durable: so no vector
    /// of durable positions, however it was loaded, admits it without its dependencies. Done once,
    /// when the record is put together: what is durable then includes what was durable at a read.
    pub(super) fn join_durable(&self, work: &mut Work) {
        let frontier = self.log.frontier();
        for (lane, lsn) in work.vector.iter_mut().enumerate() {
            *lsn = frontier.durable(lane).max(*lsn);
        }
    }

    /// Waits until a transaction has ended; false if that takes longer than the options allow.
    fn wait_for_end(&self, writer: u64, until: &mut Option<u64>) -> bool {
        while self.transactions.is_active(writer) {
            if !self.may_wait(until) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Whether a transaction may go on to wait for an older one. `until` is when it may not any
    /// more, set by the first call.
    pub fn may_wait(&self, until: &mut Option<u64>) -> bool {
        let patience = u64::try_from(self.options.patience.as_nanos()).unwrap_or(u64::MAX);
        let until = *until.get_or_insert_with(|| clock::monotonic_ns().saturating_add(patience));
        // Where one thread does all work, it would wait for itself.
        !self.options.log.stepped && clock::monotonic_ns() < until
    }

    /// F1, F2: reads the data component.
    pub(super) fn read_data(
        &self,
        key: &[u8],
        hash: u64,
        number: u64,
    ) -> Result<(u64, Value), Error> {
        self.fetches.fetch(key, hash, number, || {
            let found = self.data.get(key)?;
            Ok((found.ts, found.value.as_deref().map(Arc::from)))
        })
    }

    /// F3 to F5: takes what was read. The read was noted, so no older writer comes any more. What
    /// the transaction itself has written meanwhile is what it finds.
    pub fn take_read(
        &self,
        work: &mut Work,
        key: &[u8],
        (hash, number): (u64, u64),
        (ts, value): (u64, Value),
    ) -> Result<Value, Error> {
        work.check()?;
        if ts > work.ts && !mutation::is(Mutation::FetchAnyVersion) {
            return Err(work.fail(Abort::SnapshotTooOld));
        }
        work.depends_on_durable = true;
        self.versions.insert_fetched(key, hash, number, ts, value.clone());
        let own = work.writes.get(key);
        Ok(own.map_or(value, |write| write.value.clone()))
    }

    /// W1 to W5: writes a key; None deletes it.
    pub fn put(&self, work: &mut Work, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        work.check()?;
        debug_assert!(!work.is_snapshot, "a snapshot writes");
        let (limits, value_len) = (self.data.limits(), value.map_or(0, <[u8]>::len));
        if key.len() > limits.key_bytes {
            return Err(Error::KeyTooLong(key.len(), limits.key_bytes));
        }
        if value_len > limits.value_bytes {
            return Err(Error::ValueTooLong(value_len, limits.value_bytes));
        }
        let before = work.writes.get(key);
        let keys = work.writes.len() + usize::from(before.is_none());
        let before = before.map_or(0, |w| key.len() + w.value.as_ref().map_or(0, |v| v.len()));
        let write_bytes = work.write_bytes - before + key.len() + value_len;
        // More than this it could not have, were it alone: it would be shed each time.
        let bytes = write_bytes + keys * self.versions.write_bytes();
        let limit = self.options.memory_bytes;
        if bytes > limit {
            return Err(Error::TransactionTooLarge(bytes, limit));
        }
        let (part_bytes, limit) = (part_bytes(key, value), self.log.max_payload());
        if part_bytes > limit {
            return Err(Error::WriteTooLarge(part_bytes, limit));
        }
        self.make_room_for(work)?;
        let value: Value = value.map(Arc::from);
        if let Some(write) = work.writes.get_mut(key) {
            self.versions.count_value(&value);
            self.versions.discount_value(&std::mem::replace(&mut write.value, value));
            work.write_bytes = write_bytes;
            return Ok(());
        }
        if work.writes.is_empty() {
            self.timestamps.announce_writing(work.at, work.ts);
        }
        let (hash, version) = (hash(key), Version::pending(work.ts));
        let oldest_active = self.oldest_active_lately(work);
        if let Err(abort) = self.versions.write(key, hash, &version, &value, oldest_active) {
            return Err(work.fail(abort));
        }
        work.write_bytes = write_bytes;
        work.writes.insert(key, PendingWrite { hash, version, value });
        Ok(())
    }

    /// A timestamp that was the oldest active one when the session last looked.
    fn oldest_active_lately(&self, work: &mut Work) -> u64 {
        match work.writes_until_look.checked_sub(1) {
            Some(left) => work.writes_until_look = left,
            None => {
                work.writes_until_look = WRITES_PER_LOOK - 1;
                work.oldest_active = self.timestamps.oldest_active();
            }
        }
        work.oldest_active
    }

    /// Whether the transaction logs a record when it commits.
    pub fn has_record(&self, work: &Work) -> bool {
        let of_reader = || match self.options.reader_records {
            // A snapshot has no timestamp of its own.
            _ if work.is_snapshot => false,
            ReaderRecords::Never => false,
            ReaderRecords::IfNeeded => !self.needs(work, None).is_empty(),
            ReaderRecords::Always => true,
        };
        !work.writes.is_empty() || of_reader()
    }

    /// W6: logs a write at once, where the caller has waited for room in the stream. All of a
    /// transaction's are in one stream.
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
        record::put_operation(&mut work.record, key, write.value.as_deref());
        self.append_part(work, writer, stream)
    }

    /// Appends the part that was put together.
    fn append_part(
        &self,
        work: &mut Work,
        writer: &mut Writer,
        stream: usize,
    ) -> Result<(), Error> {
        debug_assert!(work.stream().is_none_or(|own| own == stream), "it has parts elsewhere");
        if work.parts.is_none() {
            // Announced before it is reserved, until the record is handed over, or will not come.
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
                let value = write.value.as_deref();
                work.record.len() + operation_bytes(key, value) <= limit
            }) {
                record::put_operation(&mut work.record, key, write.value.as_deref());
            }
            writer.wait_for_room(stream);
            logged = self.append_part(work, writer, stream);
        }
        drop(rest);
        work.writes = writes;
        logged
    }

    /// C1 to C7, where the caller has waited for room in the stream (C0). Returns what has to be
    /// durable before the transaction is acknowledged.
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
        if !self.has_record(work) {
            return Ok(self.end_without_record(work));
        }
        if let Err(error) = self.encode(work, writer, stream) {
            self.abort(work);
            return Err(error);
        }
        let len = work.record.len();
        // C2: announced before it is reserved, until it is handed over.
        self.timestamps.announce_reserving(work.at, stream, self.log.next_lsn(stream));
        let reservation = writer.reserve(stream, len);
        let place = (reservation.start(), reservation.end());
        // C3
        if !reservation.fill(FrameKind::Record, &work.record) {
            self.timestamps.end_reserving(work.at);
            self.abort(work);
            return Err(Error::OutcomeUnknown);
        }
        // C4
        for write in work.writes.values_mut() {
            write.version.set(write.value.take());
        }
        // C5, C6
        let own = Place::new(stream, place.1);
        self.transactions.commit(work.ts, own, &work.vector);
        let mut needs = self.needs(work, Some(stream));
        self.proxy.hand_over(Handed {
            ts: work.ts,
            stream,
            place,
            first: work.parts.map_or(place.0, |(_, parts)| parts.first),
            needs: needs.clone(),
            operations: work.writes.drain().map(|(key, write)| (key, write.version)).collect(),
            bytes: len.max(work.write_bytes),
        });
        self.timestamps.end_reserving(work.at);
        work.last_written = work.ts;
        self.end(work);
        // C7
        needs.push((Lane::position(stream), place.1));
        Ok(needs)
    }

    /// C1: puts the record together. It leaves out of V what the anchor states, and nothing else.
    /// The anchor is loaded before the record gets its position, so it is before the record.
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

    /// The record, with all writes, or without them if they are in parts.
    fn encode_record(&self, work: &mut Work, stream: usize, is_in_parts: bool) {
        let load = |lane: &AtomicU64| lane.load(Ordering::Acquire);
        let (anchor, parts) = (self.log.anchors(stream), work.parts.map(|(_, parts)| parts));
        work.record.clear();
        record::put_head(&mut work.record, parts, work.ts, &work.vector, anchor, load);
        for (key, write) in work.writes.iter().filter(|_| !is_in_parts) {
            record::put_operation(&mut work.record, key, write.value.as_deref());
        }
    }

    /// The lanes of V that are not durable, without the stream of the own record.
    fn needs(&self, work: &Work, own: Option<usize>) -> Needs {
        let (frontier, mut needs) = (self.log.frontier(), Needs::default());
        for (lane, &lsn) in work.vector.iter().enumerate() {
            if Some(lane) != own && frontier.durable(lane) < lsn {
                needs.push((Lane::position(lane), lsn));
            }
        }
        needs
    }

    /// A1 to A4. Returns what has to be durable before a caller may be told what the transaction
    /// has read.
    pub fn abort(&self, work: &mut Work) -> Needs {
        for (key, write) in work.writes.drain() {
            self.versions.remove(&key, write.hash, work.ts);
            self.versions.discount_value(&write.value);
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
        // Of all that makes the log longer, or has held the resume point back, only this leaves no
        // record that wakes the proxy.
        if has_parts && self.is_checkpoint_due() {
            self.proxy.checkpoint_is_due();
        }
        needs
    }

    fn end(&self, work: &mut Work) {
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

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
