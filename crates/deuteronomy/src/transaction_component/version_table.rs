//! The version table: the versions too recent, or not yet applied enough, to be left to the data
//! component alone; and the time of each key's last read.
//!
//! Buckets of records, each under a latch. The letters of the steps follow the crate's
//! documentation. All steps of an operation up to a wait or a fetch are under a single hold of the
//! latch, and so atomic: the properties that need an order of the steps without latches (D1, D5 in
//! `docs/protocols/deuteronomy.md`) hold by atomicity.
//!
//! Invariants, under the latch:
//! - The versions of a record ascend strictly by timestamp, and only versions of active or
//!   committed transactions are in a record.
//! - No version is put into a record below its `last_read`, or below its newest version.
//! - A key without a record has not been read, and has no version, above its bucket's `floor`.
//! - Each version readable for a transaction is in its record, or in the data component; or a newer
//!   version is there, and tells the transaction of the loss ([`Sweep::PastActive`]). Where
//!   versions have left from between remaining versions, a gone version stands in the place of the
//!   removed versions ([`Version::gone`]).
//!
//! The table is a cache as well: a fetched version stays until a sweep finds the version unread
//! since the last sweep (a clock with a second chance; a key read only once has none).

mod evicting;
mod key_record;

use super::buckets::{Buckets, Hints, Split};
use super::ranges::{self, Ranges};
use super::transaction_table::{Standing, TransactionTable};
use super::version::{Value, Version};
use crate::error::Abort;
use crate::held_bytes::HeldBytes;
use crate::key::KeyHasher;
use evicting::trim_record;
use hyades_platform::broken;
use hyades_platform::sync::{AtomicUsize, MutexGuard, Ordering, Padded};
use key_record::KeyRecord;

/// The approximate bytes of a record without its versions.
const RECORD_BYTES: usize = 40;
/// The bytes in the table per bucket. A bucket takes a further 64 bytes.
const BYTES_PER_BUCKET: usize = 512;
/// How many buckets ahead a sweep prefetches: as many cache misses as a processor has under way.
const SWEPT_AHEAD: usize = 8;
/// The most buckets split by an insertion into the table. More than needed for an insertion, so
/// that the buckets keep up.
const MOST_SPLIT: usize = 4;

/// The versions dropped by a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Versions that no active transaction needs, except recently read versions.
    Unread,
    /// Versions that no active transaction needs.
    Unneeded,
    /// Everything that the data component holds, or holds newer; of a record that has to stay, only
    /// these versions. An active transaction that needs an older version finds the version gone.
    PastActive,
}

/// Of each of a bucket's first records, a byte of its key's hash: most other keys are told apart
/// without a look at the record's versions.
type Tags = [u8; 8];

#[derive(Debug, Default)]
struct Bucket {
    /// Mostly a few: without room for more, so that the record of a miss takes no more than it
    /// needs.
    records: Box<[KeyRecord]>,
    tags: Tags,
    /// The bound for absent records: no key of the bucket was read or written above the floor.
    floor: u64,
    /// Counts each removed version: see [`VersionTable::insert_fetched`].
    drops: u64,
}

/// The outcome of a read.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The value of the version to read, and the version's writer; None for a known durable writer.
    Value(Option<Value>, Option<u64>),
    /// The version to read is of an active, older transaction, given by timestamp: wait for its
    /// end, and read again.
    Active(u64),
    /// The version to read is in the data component. The number is for
    /// [`VersionTable::insert_fetched`].
    Missing(u64),
}

/// The versions of all keys.
#[derive(Debug)]
pub(crate) struct VersionTable {
    buckets: Buckets<Bucket>,
    /// Hashes the keys for all methods.
    pub hasher: KeyHasher,
    /// If there are scans.
    pub ranges: Option<Ranges>,
    /// The approximate bytes of records, keys and versions; without the bytes of `ranges`. Apart
    /// from the number of buckets, because each operation reads the number.
    bytes: Padded<AtomicUsize>,
    /// The bytes of versions removed from the table and waiting for the data component.
    held: HeldBytes,
    /// The first bucket of the next sweep.
    hand: Padded<AtomicUsize>,
}

impl Bucket {
    fn position(&self, key: &[u8], hash: u64) -> Option<usize> {
        let mut records = self.records.iter().enumerate();
        let may_be = |at: usize| self.tags.get(at).is_none_or(|tag| *tag == hash as u8);
        records.find(|(at, record)| may_be(*at) && record.key() == key).map(|(at, _)| at)
    }

    /// The record of a key.
    fn find(&mut self, key: &[u8], hash: u64) -> Option<&mut KeyRecord> {
        let at = self.position(key, hash)?;
        Some(&mut self.records[at])
    }

    /// Adds the record of a key without a record. Returns its position.
    fn push(&mut self, record: KeyRecord, hash: u64) -> usize {
        let mut records = std::mem::take(&mut self.records).into_vec();
        records.reserve_exact(1);
        records.push(record);
        let at = records.len() - 1;
        self.records = records.into_boxed_slice();
        if let Some(tag) = self.tags.get_mut(at) {
            *tag = hash as u8;
        }
        at
    }

    /// Takes records in place of all records.
    fn set_records(&mut self, records: Vec<KeyRecord>, hasher: &KeyHasher) {
        for (tag, record) in self.tags.iter_mut().zip(&records) {
            *tag = hasher.hash(record.key()) as u8;
        }
        self.records = records.into_boxed_slice();
    }
}

impl Split for Bucket {
    fn split(&mut self, hasher: &KeyHasher, moves: impl Fn(u64) -> bool) -> Self {
        // The floor for absent records holds for the keys of both buckets; and versions dropped
        // before the number of a fetch was noted are counted in both.
        let records = std::mem::take(&mut self.records).into_vec().into_iter();
        let is_moved = |record: &KeyRecord| moves(hasher.hash(record.key()));
        let (moved, kept): (Vec<_>, Vec<_>) = records.partition(is_moved);
        let mut other = Self { floor: self.floor, drops: self.drops, ..Self::default() };
        self.set_records(kept, hasher);
        other.set_records(moved, hasher);
        other
    }
}

impl VersionTable {
    /// An empty table.
    pub fn new(ranges: Option<Ranges>, held: HeldBytes, hasher: KeyHasher) -> Self {
        Self {
            hasher,
            held,
            buckets: Buckets::new(),
            ranges,
            bytes: Padded(AtomicUsize::new(0)),
            hand: Padded(AtomicUsize::new(0)),
        }
    }

    fn bucket(&self, hash: u64) -> (MutexGuard<'_, Bucket>, &Hints) {
        self.buckets.lock(hash)
    }

    /// Prefetches the memory of operations on keys with `hashes`.
    pub fn prefetch(&self, hashes: &[u64]) {
        self.buckets.prefetch(hashes);
    }

    /// Splits buckets, if the content of the table needs more. No latch is held.
    fn grow(&self) {
        let wanted = self.bytes.load(Ordering::Relaxed) / BYTES_PER_BUCKET;
        self.buckets.grow(wanted, MOST_SPLIT, &self.hasher);
    }

    /// The number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.count()
    }

    /// Returns the approximate bytes of records, keys and versions, of the data for scans, and of
    /// removed versions waiting for the data component.
    pub fn bytes(&self) -> usize {
        let ranges = self.ranges.as_ref().map_or(0, Ranges::bytes);
        self.bytes.load(Ordering::Relaxed) + ranges + self.held.get()
    }

    /// Returns the most bytes of a write without its key and value, as the only version.
    pub fn write_bytes(&self) -> usize {
        let entry = if self.ranges.is_some() { ranges::ENTRY_BYTES } else { 0 };
        RECORD_BYTES + Version::most_beside() + entry
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes added in place of bytes removed. Mostly the numbers are equal: then the
    /// counter, shared by all threads, is left alone.
    fn replace(&self, left: usize, come: usize) {
        if come > left {
            self.add(come - left);
        } else if come < left {
            self.subtract(left - come);
        }
    }

    /// Whether the table has versions of the key.
    pub fn has_versions(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash(key);
        let mut bucket = self.bucket(hash).0;
        bucket.find(key, hash).is_some_and(|record| !record.versions().is_empty())
    }

    /// R1 to R5: the read of a transaction with timestamp `ts`. The transaction finds its own
    /// version itself.
    pub fn read(&self, key: &[u8], hash: u64, ts: u64, transactions: &TransactionTable) -> Seen {
        self.read_as(Some(ts), key, hash, ts, transactions)
    }

    /// The read of a snapshot. The read leaves no note, for no writer at or below the snapshot's
    /// timestamp is active, or will be.
    pub fn read_below_horizon(
        &self,
        key: &[u8],
        hash: u64,
        ts: u64,
        transactions: &TransactionTable,
    ) -> Seen {
        let seen = self.read_as(None, key, hash, ts, transactions);
        debug_assert!(!matches!(seen, Seen::Active(_)), "a version below the horizon is pending");
        seen
    }

    fn read_as(
        &self,
        reader: Option<u64>,
        key: &[u8],
        hash: u64,
        ts: u64,
        transactions: &TransactionTable,
    ) -> Seen {
        let (mut bucket, hints) = self.bucket(hash);
        let bucket = &mut *bucket;
        let (number, floor) = (bucket.drops, bucket.floor);
        // R1, R2: the record of the key; made if there is none, and then read as of the floor.
        let at = bucket.position(key, hash).unwrap_or_else(|| {
            let record = KeyRecord::empty(key, floor);
            self.add(RECORD_BYTES + record.entry_bytes());
            bucket.push(record, hash)
        });
        let record = &mut bucket.records[at];
        // R3: every read counts, of any version (D2).
        let is_newest = record.newest().is_none_or(|newest| newest.ts() <= ts);
        if let Some(reader) = reader
            && (is_newest || !broken!(NoteNewestReadsOnly))
        {
            record.raise_last_read(reader);
        }
        for version in record.versions().iter().rev().filter(|version| version.ts() <= ts) {
            // The reader's claim: the reader finds its own writes itself.
            if Some(version.ts()) == reader && !version.is_fetched() {
                continue;
            }
            if version.is_gone() {
                break;
            }
            // To read past an active transaction's version would be wrong: the transaction may
            // commit below the read (D0).
            return match version.standing(transactions) {
                Standing::Active if broken!(ReadPastUnfinished) => continue,
                Standing::Active => Seen::Active(version.ts()),
                Standing::Committed => {
                    hints.note(record, version);
                    let writer = (!version.is_applied()).then_some(version.ts());
                    let seen = Seen::Value(version.value(), writer);
                    record.set_hit();
                    seen
                }
            };
        }
        Seen::Missing(number)
    }

    /// W1 to W5: puts the pending version of a transaction into the record. Takes out the unneeded
    /// versions of the record; no transaction below `oldest_active` is active, or will be.
    ///
    /// # Errors
    /// A younger transaction has read or written the key.
    pub fn write(
        &self,
        key: &[u8],
        hash: u64,
        version: &Version,
        oldest_active: u64,
    ) -> Result<(), Abort> {
        let (mut locked, hints) = self.bucket(hash);
        let bucket = &mut *locked;
        // W1, W2: without a record, the key was read as of the floor.
        let found = bucket.position(key, hash);
        let before = found.map(|at| &bucket.records[at]);
        let last_read = before.map_or(bucket.floor, KeyRecord::last_read);
        if last_read > version.ts() && !broken!(WriteBelowRead) {
            return Err(Abort::ReadByYounger);
        }
        // A pending version of an older transaction may be overtaken: the write does not depend on
        // the older version.
        if before.and_then(KeyRecord::newest).is_some_and(|newest| newest.ts() > version.ts()) {
            return Err(Abort::TooLate);
        }
        let enter = |record: &mut KeyRecord| {
            if let Some(ranges) = &self.ranges
                && !record.is_entered()
            {
                ranges.enter(key, hash);
                record.set_entered();
            }
        };
        if let Some(at) = found {
            let record = &mut bucket.records[at];
            enter(record);
            let before = record.entry_bytes();
            // Before the new version is there: the record has room for two.
            bucket.drops += trim_record(record, oldest_active, &self.held).versions;
            record.push(version.clone());
            hints.note(record, version);
            self.replace(before, record.entry_bytes());
        } else {
            let mut record = KeyRecord::of(version.clone(), last_read);
            enter(&mut record);
            self.add(RECORD_BYTES + record.entry_bytes());
            bucket.push(record, hash);
        }
        drop(locked);
        self.grow();
        // M2, W5 for scans.
        let ts = version.ts();
        if self.ranges.as_ref().is_some_and(|ranges| ranges.is_scanned_by_younger(key, ts)) {
            self.remove(key, hash, ts);
            return Err(Abort::ReadByYounger);
        }
        Ok(())
    }

    /// W4 again: the transaction writes another value to a key written before.
    pub fn rewrite(&self, key: &[u8], hash: u64, version: &Version) {
        let mut bucket = self.bucket(hash).0;
        let pending = bucket.find(key, hash).and_then(|record| record.rewrite(version));
        debug_assert!(pending.is_some(), "the pending version of {} is gone", version.ts());
        if let Some(pending) = pending {
            self.replace(pending.size(), version.size());
        }
    }

    /// A1, A2: takes out the version of an aborting transaction.
    pub fn remove(&self, key: &[u8], hash: u64, ts: u64) {
        let bucket = &mut *self.bucket(hash).0;
        let Some(record) = bucket.find(key, hash) else {
            debug_assert!(false, "the record of the pending version of {ts} is gone");
            return;
        };
        let before = record.entry_bytes();
        let removed = record.remove(ts);
        debug_assert!(removed.is_some(), "the pending version of {ts} is gone");
        self.replace(before, record.entry_bytes());
        bucket.drops += u64::from(removed.is_some());
    }

    /// F5: keeps a fetched version, as the oldest version of its record, unless a version of the
    /// bucket was dropped since the number was noted: a late fetch, after newer versions have come
    /// and gone, would bring an old version back as the newest (D11). A fetch ended before its
    /// transaction is not late: newer versions stay. The number is for fetches that may outlast
    /// their transaction.
    pub fn insert_fetched(&self, key: &[u8], hash: u64, number: u64, version: Version) {
        debug_assert!(version.is_fetched(), "a version of a writer comes with its transaction");
        self.grow();
        let bucket = &mut *self.bucket(hash).0;
        if bucket.drops != number && !broken!(EnterLateFetch) {
            return;
        }
        let Some(record) = bucket.find(key, hash) else { return };
        if record.versions().first().is_none_or(|oldest| oldest.ts() > version.ts()) {
            let before = record.entry_bytes();
            record.push_oldest(version);
            self.replace(before, record.entry_bytes());
        }
    }
}
