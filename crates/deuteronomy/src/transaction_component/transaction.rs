//! The acts of a transaction up to its end, a function per act, in the order of the steps. The end
//! is in [`commit`](super::commit).

use super::TransactionComponent;
use super::counts::Counted;
use super::record;
use super::version::{Value, Version};
use super::version_table::Seen;
use super::work::Work;
use super::writes::PendingWrite;
use crate::error::{Abort, Error};
use hyades_platform::broken;
use hyades_platform::clock;

/// The result of a look at the version table for a read.
#[derive(Debug)]
pub(crate) enum Looked {
    /// The value.
    Found(Option<Value>),
    /// The version to read is of an active, older transaction, given by timestamp.
    Active(u64),
    /// The version to read is in the data component. The number is for the fetch.
    Missing(u64),
}

/// The writes of a session between two looks for the oldest active transaction, to trim records
/// below: a look may take cache lines of other sessions, and late trimming costs memory.
const WRITES_PER_LOOK: u32 = 16;

impl TransactionComponent {
    /// B1 to B4.
    ///
    /// # Errors
    /// [`Abort::Shed`]; [`Error::Timestamps`]; the log has stopped.
    pub fn begin(&self, work: &mut Work) -> Result<(), Error> {
        self.prepare(work)?;
        self.timestamps.announce(work.at);
        for draws in 1.. {
            let Some(ts) = self.timestamps.draw(work.at) else {
                self.timestamps.end(work.at);
                return Err(Error::Timestamps);
            };
            if self.transactions.claim(ts, |lane| self.log.frontier().at(lane)) {
                work.ts = ts;
                break;
            }
            // There are more entries than sessions, so an entry is not active. But all inactive
            // entries may be of transactions waiting for the device.
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

    /// Begins a snapshot: the snapshot reads as of just below the horizon, but never before the
    /// session's own writes.
    ///
    /// # Errors
    /// [`Abort::Shed`]; the log has stopped; [`Abort::Unfinished`], if an older transaction than
    /// the session's last transaction takes longer to end than the options allow.
    pub fn begin_snapshot(&self, work: &mut Work) -> Result<(), Error> {
        self.prepare(work)?;
        let mut until = None;
        loop {
            // The call raises the horizon.
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
    pub fn get(&self, work: &mut Work, key: &[u8]) -> Result<Option<Value>, Error> {
        let (hash, mut until) = (self.versions.hasher.hash(key), None);
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

    /// R1 to R5: looks for a key without the data component. If the data component is needed, there
    /// is room for its version.
    pub fn look(&self, work: &mut Work, key: &[u8], hash: u64) -> Result<Looked, Error> {
        work.check()?;
        if key.len() > self.limits.key_bytes {
            // There is no value, and never will be: the key is neither noted nor asked for.
            return Ok(Looked::Found(None));
        }
        if let Some(write) = work.writes.get(key) {
            return Ok(Looked::Found(write.version.value()));
        }
        let seen = match work.is_snapshot {
            false => self.versions.read(key, hash, work.ts, &self.transactions),
            true => self.versions.read_below_horizon(key, hash, work.ts, &self.transactions),
        };
        match seen {
            Seen::Value(value, writer) => {
                work.counts.count(Counted::Hit);
                // An applied version is durable, and maybe of an earlier incarnation.
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
                work.counts.count(Counted::Miss);
                self.make_room_for(work)?;
                Ok(Looked::Missing(number))
            }
        }
    }

    /// Keeps the version table within its budget during a transaction; aborts the transaction on
    /// failure.
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

    /// Waits until a transaction has ended; false if the wait exceeds the options' limit.
    fn wait_for_end(&self, writer: u64, until: &mut Option<u64>) -> bool {
        while self.transactions.is_active(writer) {
            if !self.may_wait(until) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Whether a transaction may go on waiting for an older transaction. `until` is the end of the
    /// permitted wait, set by the first call.
    pub fn may_wait(&self, until: &mut Option<u64>) -> bool {
        let patience = u64::try_from(self.options.patience.as_nanos()).unwrap_or(u64::MAX);
        let until = *until.get_or_insert_with(|| clock::monotonic_ns().saturating_add(patience));
        // Where a single thread does all work, the thread would wait for itself.
        !self.options.log.stepped && clock::monotonic_ns() < until
    }

    /// F1, F2: reads the data component.
    pub(super) fn read_data(&self, key: &[u8], hash: u64, number: u64) -> Result<Version, Error> {
        self.fetches.fetch(key, hash, number, || {
            let found = self.data.get(key)?;
            Ok(Version::fetched(key, found.ts, found.value.as_deref()))
        })
    }

    /// F3 to F5: takes the version read. The read was noted, so no older writer comes any more. The
    /// transaction's own write made meanwhile takes precedence.
    pub fn take_read(
        &self,
        work: &mut Work,
        key: &[u8],
        (hash, number): (u64, u64),
        found: Version,
    ) -> Result<Option<Value>, Error> {
        work.check()?;
        if found.ts() > work.ts && !broken!(FetchAnyVersion) {
            return Err(work.fail(Abort::SnapshotTooOld));
        }
        work.depends_on_durable = true;
        let value = work.written(key).unwrap_or(&found).value();
        self.versions.insert_fetched(key, hash, number, found);
        Ok(value)
    }

    /// Returns the error for the update of a missing key.
    pub fn not_found(&self, key: &[u8]) -> Error {
        self.limits.check_key(key).err().unwrap_or(Error::NotFound)
    }

    /// Whether the data component and a frame of the log can take the write, whatever else the
    /// transaction writes.
    fn check_write(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        self.limits.check_key(key)?;
        self.limits.check_value(value)?;
        let (part_bytes, limit) = (record::part_bytes(key, value), self.log.max_payload());
        match part_bytes > limit {
            true => Err(Error::WriteTooLarge(part_bytes, limit)),
            false => Ok(()),
        }
    }

    /// W1 to W5: writes a key; None deletes it.
    pub fn put(&self, work: &mut Work, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        work.check()?;
        debug_assert!(!work.is_snapshot, "a snapshot writes");
        self.check_write(key, value)?;
        let value_len = value.map_or(0, <[u8]>::len);
        let before = work.writes.get(key);
        let keys = work.writes.len() + usize::from(before.is_none());
        let before = before.map_or(0, |w| key.len() + w.version.bytes().map_or(0, <[u8]>::len));
        let write_bytes = work.write_bytes - before + key.len() + value_len;
        // The transaction could not have more, even alone: the transaction would be shed each time.
        let bytes = write_bytes + keys * self.versions.write_bytes();
        let limit = self.options.memory_bytes;
        if bytes > limit {
            return Err(Error::TransactionTooLarge(bytes, limit));
        }
        self.hold_back()?;
        self.make_room_for(work)?;
        let version = Version::pending(key, work.ts, value);
        if let Some(write) = work.writes.get_mut(key) {
            self.versions.rewrite(key, write.hash, &version);
            write.version = version;
            work.write_bytes = write_bytes;
            return Ok(());
        }
        if let Some(hash) = work.claims.take(key) {
            self.versions.rewrite(key, hash, &version);
            work.write_bytes = write_bytes;
            work.writes.insert(key, PendingWrite { hash, version });
            return Ok(());
        }
        if work.writes.is_empty() && work.claims.is_empty() {
            self.timestamps.announce_writing(work.at, work.ts);
        }
        let (hash, oldest_active) =
            (self.versions.hasher.hash(key), self.oldest_active_lately(work));
        if let Err(abort) = self.versions.write(key, hash, &version, oldest_active) {
            work.claims.want(key);
            return Err(work.fail(abort));
        }
        work.write_bytes = write_bytes;
        work.writes.insert(key, PendingWrite { hash, version });
        Ok(())
    }

    /// Returns a timestamp that was the oldest active at the session's last look.
    pub(super) fn oldest_active_lately(&self, work: &mut Work) -> u64 {
        match work.writes_until_look.checked_sub(1) {
            Some(left) => work.writes_until_look = left,
            None => {
                work.writes_until_look = WRITES_PER_LOOK - 1;
                work.oldest_active = self.timestamps.oldest_lately();
            }
        }
        work.oldest_active
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
