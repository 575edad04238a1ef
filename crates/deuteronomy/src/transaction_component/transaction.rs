//! What a transaction does, a function per act, in the order of the steps.

use super::TransactionComponent;
use super::place::Place;
use super::record;
use super::version_table::{Seen, Value, Version, hash};
use crate::error::{Abort, Error};
use crate::proxy::Handed;
use hyades_platform::clock;
use hyades_platform::mutation::{self, Mutation};
use hyades_wal::{FrameKind, Lane, Needs, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the transaction will write.
#[derive(Debug)]
struct PendingWrite {
    hash: u64,
    version: Arc<Version>,
    value: Value,
}

/// The state of a session's transaction.
#[derive(Debug)]
pub(crate) struct Work {
    /// The session's place among the announcements.
    at: usize,
    /// The timestamp; 0 if no transaction is active.
    ts: u64,
    /// V: by stream, up to where the transaction depends on it.
    vector: Vec<u64>,
    /// By key.
    writes: BTreeMap<Arc<[u8]>, PendingWrite>,
    /// The bytes of the keys and values in `writes`.
    write_bytes: usize,
    /// Why it has to abort, if it has.
    failed: Option<Abort>,
    /// The record, while it is put together.
    record: Vec<u8>,
}

impl Work {
    pub fn new(at: usize, streams: usize) -> Self {
        let (writes, record) = (BTreeMap::new(), Vec::new());
        let vector = vec![0; streams];
        Self { at, ts: 0, vector, writes, write_bytes: 0, failed: None, record }
    }

    pub fn is_active(&self) -> bool {
        self.ts != 0
    }

    pub fn ts(&self) -> u64 {
        self.ts
    }

    /// Whether the transaction has written the key.
    pub fn has_written(&self, key: &[u8]) -> bool {
        self.writes.contains_key(key)
    }

    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    pub fn failed(&self) -> Option<Abort> {
        self.failed
    }

    pub(super) fn fail(&mut self, abort: Abort) -> Error {
        self.failed = Some(abort);
        abort.into()
    }

    /// The transaction has to abort if an earlier act of it failed.
    pub(super) fn check(&self) -> Result<(), Error> {
        debug_assert!(self.is_active(), "no transaction is active");
        self.failed.map_or(Ok(()), |abort| Err(abort.into()))
    }
}

impl TransactionComponent {
    /// B1 to B4.
    pub fn begin(&self, work: &mut Work) -> Result<(), Error> {
        if work.is_active() {
            // Its `Transaction` was leaked.
            drop(self.abort(work));
        }
        if let Some(poisoned) = self.log.poisoned() {
            return Err(hyades_wal::Error::from(poisoned).into());
        }
        self.make_room()?;
        work.failed = None;
        work.write_bytes = 0;
        work.vector.fill(0);
        self.timestamps.announce(work.at);
        for draws in 1.. {
            let ts = self.timestamps.draw(work.at);
            if self.transactions.claim(ts, self.log.frontier()) {
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

    /// R1 to R6: the value of a key.
    pub fn get(&self, work: &mut Work, key: &[u8]) -> Result<Value, Error> {
        work.check()?;
        if let Some(write) = work.writes.get(key) {
            return Ok(write.value.clone());
        }
        let hash = hash(key);
        let mut until = None;
        loop {
            match self.versions.read(key, hash, work.ts, &self.transactions) {
                Seen::Version(version) => {
                    // One from the data component is durable, and maybe of an earlier incarnation.
                    if version.is_fetched() || !self.transactions.join(version.ts, &mut work.vector)
                    {
                        self.join_durable(work);
                    }
                    return Ok(version.value().clone());
                }
                Seen::Active(writer) => {
                    debug_assert!(writer < work.ts, "only the younger waits for the older");
                    if !self.wait_for_end(writer, &mut until) {
                        return Err(work.fail(Abort::Unfinished));
                    }
                }
                Seen::Missing(number) => {
                    self.make_room_for(work)?;
                    return self.fetch(work, key, hash, number);
                }
            }
        }
    }

    /// Keeps the version table within its budget while a transaction runs, which is aborted if it
    /// could not be.
    pub(super) fn make_room_for(&self, work: &mut Work) -> Result<(), Error> {
        match self.make_room() {
            Err(Error::Aborted(abort)) => Err(work.fail(abort)),
            made => made,
        }
    }

    /// V states all that is durable, for a dependency that is durable at a position that is not
    /// known any more. A record states what it depends on even where that is durable: so no vector
    /// of durable positions, however it was loaded, admits it without its dependencies.
    pub(super) fn join_durable(&self, work: &mut Work) {
        let frontier = self.log.frontier();
        for (lane, lsn) in work.vector.iter_mut().enumerate() {
            *lsn = frontier.durable(lane).max(*lsn);
        }
    }

    /// Waits until a transaction has ended; false if that takes longer than the options allow.
    fn wait_for_end(&self, writer: u64, until: &mut Option<u64>) -> bool {
        let patience = u64::try_from(self.options.patience.as_nanos()).unwrap_or(u64::MAX);
        let until = *until.get_or_insert_with(|| clock::monotonic_ns().saturating_add(patience));
        while self.transactions.is_active(writer) {
            // Where one thread does all work, it would wait for itself.
            if self.options.log.stepped || clock::monotonic_ns() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// F1 to F5: reads the data component. The read is noted, so no older writer comes any more.
    fn fetch(&self, work: &mut Work, key: &[u8], hash: u64, number: u64) -> Result<Value, Error> {
        let read = || {
            let found = self.data.get(key)?;
            Ok((found.ts, found.value.as_deref().map(Arc::from)))
        };
        let (ts, value): (u64, Value) = self.fetches.fetch(key, hash, number, read)?;
        if ts > work.ts && !mutation::is(Mutation::FetchAnyVersion) {
            return Err(work.fail(Abort::SnapshotTooOld));
        }
        self.join_durable(work);
        self.versions.insert_fetched(key, hash, number, ts, value.clone());
        Ok(value)
    }

    /// W1 to W5: writes a key; None deletes it.
    pub fn put(&self, work: &mut Work, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        work.check()?;
        let (limits, value_len) = (self.data.limits(), value.map_or(0, <[u8]>::len));
        if key.len() > limits.key_bytes {
            return Err(Error::KeyTooLong(key.len(), limits.key_bytes));
        }
        if value_len > limits.value_bytes {
            return Err(Error::ValueTooLong(value_len, limits.value_bytes));
        }
        let before = work.writes.get(key);
        let before = before.map_or(0, |w| key.len() + w.value.as_ref().map_or(0, |v| v.len()));
        // A lower bound of the record's length.
        let write_bytes = work.write_bytes - before + key.len() + value_len;
        let limit = self.log.max_payload().min(self.options.memory_bytes);
        if write_bytes > limit {
            return Err(Error::TransactionTooLarge(write_bytes, limit));
        }
        self.make_room_for(work)?;
        let value: Value = value.map(Arc::from);
        if let Some(write) = work.writes.get_mut(key) {
            self.versions.count_value(&value);
            self.versions.discount_value(&std::mem::replace(&mut write.value, value));
            work.write_bytes = write_bytes;
            return Ok(());
        }
        let (hash, version) = (hash(key), Version::pending(work.ts));
        if let Err(abort) = self.versions.write(key, hash, &version) {
            return Err(work.fail(abort));
        }
        self.versions.count_value(&value);
        work.write_bytes = write_bytes;
        work.writes.insert(key.into(), PendingWrite { hash, version, value });
        Ok(())
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
        if work.writes.is_empty() {
            return Ok(self.end_without_record(work));
        }
        self.encode(work, stream);
        let (len, limit) = (work.record.len(), writer.max_payload());
        if len > limit {
            self.abort(work);
            return Err(Error::TransactionTooLarge(len, limit));
        }
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
        let writes = std::mem::take(&mut work.writes).into_iter();
        self.proxy.hand_over(Handed {
            ts: work.ts,
            stream,
            place,
            needs: needs.clone(),
            operations: writes.map(|(key, write)| (key, write.version)).collect(),
            bytes: len,
        });
        self.timestamps.end_reserving(work.at);
        self.end(work);
        // C7
        needs.push((Lane::position(stream), place.1));
        Ok(needs)
    }

    /// C1: puts the record together. It leaves out of V what the anchor states, and nothing else.
    /// The anchor is loaded before the record gets its position, so it is before the record.
    fn encode(&self, work: &mut Work, stream: usize) {
        let load = |lane: &AtomicU64| lane.load(Ordering::Acquire);
        work.record.clear();
        let anchor = self.log.anchors(stream);
        record::put_head(&mut work.record, work.ts, &work.vector, anchor, load);
        for (key, write) in &work.writes {
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
        for (key, write) in std::mem::take(&mut work.writes) {
            self.versions.remove(&key, write.hash, work.ts);
            self.versions.discount_value(&write.value);
        }
        self.end_without_record(work)
    }

    fn end_without_record(&self, work: &mut Work) -> Needs {
        debug_assert!(work.writes.is_empty(), "a version would stay");
        let needs = self.needs(work, None);
        self.transactions.free(work.ts);
        self.end(work);
        needs
    }

    fn end(&self, work: &mut Work) {
        work.ts = 0;
        self.timestamps.end(work.at);
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
