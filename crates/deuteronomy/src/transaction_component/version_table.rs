//! The version table: the versions that are not old enough, or not yet applied enough, to be left
//! to the data component alone; and when each key was last read.
//!
//! Buckets of records, each under a latch. The letters of the steps are those of the crate's
//! documentation. All steps of one operation up to a wait or a fetch are under one hold of the
//! latch, which makes them atomic: what an order of the steps has to ensure without latches (D1,
//! D5 in `docs/protocols/deuteronomy.md`) holds by that.
//!
//! Invariants, under the latch:
//! - The versions of a record ascend strictly by timestamp, and only ones of transactions that are
//!   active or committed are in it.
//! - No version is put into a record below its `last_read`, or below its newest version.
//! - A key without a record has not been read, and has no version, above its bucket's `floor`.
//! - Each version that a transaction may read is in its record, or in the data component; or a
//!   newer one is there, which tells it that its own is gone ([`Sweep::PastActive`]). Where some
//!   have left from between others, one that is gone stands in their place ([`Version::gone`]).
//!
//! The table is a cache as well: what was fetched stays until a sweep finds it unread since the
//! last one (a clock with a second chance; a key that was read only once has none).

mod evicting;

use super::buckets::{Buckets, Hints, Split};
use super::ranges::{self, Ranges};
use super::transaction_table::{Standing, TransactionTable};
use super::version::{VERSION_BYTES, Value, Version};
use crate::error::Abort;
use crate::held_bytes::HeldBytes;
use crate::key::{Key, KeyHasher};
use evicting::trim_record;
use hyades_platform::broken;
use hyades_platform::sync::{AtomicUsize, MutexGuard, Ordering, Padded};
use smallvec::SmallVec;

/// The bytes that a record takes without its key, about.
const RECORD_BYTES: usize = 96;
/// The bytes in the table for which there is a bucket. A bucket takes 64 beside them.
const BYTES_PER_BUCKET: usize = 256;
/// How many buckets ahead a sweep prefetches: as many cache misses as a processor has under way.
const SWEPT_AHEAD: usize = 8;
/// The most buckets that are split by one that puts something into the table. More than one put
/// needs, so that the buckets keep up.
const MOST_SPLIT: usize = 4;

#[derive(Debug)]
struct KeyRecord {
    key: Key,
    /// The highest timestamp of a transaction that has read it, or has written a version of it that
    /// has left for the data component alone.
    last_read: u64,
    /// By ascending timestamp. Two lie in the record: mostly there are no more, since a write
    /// takes out what it leaves without a reader.
    versions: SmallVec<[Version; 2]>,
    /// Whether it has had versions of writers, and is among the keys of [`Ranges`].
    entered: bool,
    /// Whether a version of it was found here since the last sweep.
    hit: bool,
}

/// What a sweep drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// What no active transaction needs, without what was read lately.
    Unread,
    /// What no active transaction needs.
    Unneeded,
    /// Everything that the data component holds, or something newer; of a key whose record has to
    /// stay, these versions. An active transaction that needs an older version finds that it is
    /// gone.
    PastActive,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Mostly one or none: without room for more, so that one fills a cache line.
    records: Box<[KeyRecord]>,
    /// What an absent record stands for: no key of the bucket was read or written above it.
    floor: u64,
    /// Counts each version that was taken out: see [`VersionTable::insert_fetched`].
    drops: u64,
}

/// What a read finds.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The value of the version to read, and its writer; None if that is known to be durable.
    Value(Option<Value>, Option<u64>),
    /// The version to read is of this active, older transaction: wait for it, and read again.
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
    /// About how many bytes records, keys and versions take; without those of `ranges`. Apart from
    /// the number of buckets, which each operation reads.
    bytes: Padded<AtomicUsize>,
    /// What has left the table, and waits for the data component.
    held: HeldBytes,
    /// The bucket at which the next sweep begins.
    hand: Padded<AtomicUsize>,
}

impl Bucket {
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.records.iter().position(|record| &*record.key == key)
    }

    fn push(&mut self, record: KeyRecord) {
        let mut records = std::mem::take(&mut self.records).into_vec();
        records.reserve_exact(1);
        records.push(record);
        self.records = records.into_boxed_slice();
    }
}

impl Split for Bucket {
    fn split(&mut self, hasher: &KeyHasher, moves: impl Fn(u64) -> bool) -> Self {
        // What an absent record stands for was said for the keys of both; and what was dropped
        // before the number of a fetch was noted is counted in both.
        let records = std::mem::take(&mut self.records).into_vec().into_iter();
        let is_moved = |record: &KeyRecord| moves(hasher.hash(&record.key));
        let (moved, kept): (Vec<_>, Vec<_>) = records.partition(is_moved);
        self.records = kept.into_boxed_slice();
        Self { records: moved.into_boxed_slice(), floor: self.floor, drops: self.drops }
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

    /// Prefetches what operations on keys with these hashes will look at.
    pub fn prefetch(&self, hashes: &[u64]) {
        self.buckets.prefetch(hashes);
    }

    /// Splits buckets, if what is in the table needs more. No latch is held.
    fn grow(&self) {
        let wanted = self.bytes.load(Ordering::Relaxed) / BYTES_PER_BUCKET;
        self.buckets.grow(wanted, MOST_SPLIT, &self.hasher);
    }

    /// The number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.count()
    }

    /// About how many bytes records, keys and versions take, what scans need, and what waits for
    /// the data component beside these.
    pub fn bytes(&self) -> usize {
        let ranges = self.ranges.as_ref().map_or(0, Ranges::bytes);
        self.bytes.load(Ordering::Relaxed) + ranges + self.held.get()
    }

    /// About how many bytes a write takes beside its key and value, where it is the only version.
    pub fn write_bytes(&self) -> usize {
        let entry = if self.ranges.is_some() { ranges::ENTRY_BYTES } else { 0 };
        RECORD_BYTES + VERSION_BYTES + entry
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that have come for others that have left. Mostly these are as many: then the
    /// counter, which all threads share, is left alone.
    fn replace(&self, left: usize, come: usize) {
        if come > left {
            self.add(come - left);
        } else if come < left {
            self.subtract(left - come);
        }
    }

    /// R1, R2 (W1, W2): the record of a key; made if there is none, and then read as of the floor.
    fn find_or_make<'b>(&self, bucket: &'b mut Bucket, key: &[u8]) -> &'b mut KeyRecord {
        let at = bucket.position(key).unwrap_or_else(|| {
            self.add(RECORD_BYTES + key.len());
            let last_read = bucket.floor;
            let (key, versions) = (key.into(), SmallVec::new());
            let record = KeyRecord { key, last_read, versions, entered: false, hit: false };
            bucket.push(record);
            bucket.records.len() - 1
        });
        &mut bucket.records[at]
    }

    /// Whether the table has versions of the key.
    pub fn has_versions(&self, key: &[u8]) -> bool {
        let (bucket, _) = self.bucket(self.hasher.hash(key));
        bucket.position(key).is_some_and(|at| !bucket.records[at].versions.is_empty())
    }

    /// R1 to R5: what a transaction with this timestamp reads. Its own version it finds itself.
    pub fn read(&self, key: &[u8], hash: u64, ts: u64, transactions: &TransactionTable) -> Seen {
        self.read_as(Some(ts), key, hash, ts, transactions)
    }

    /// What a snapshot reads. It leaves no note, for no writer at or below its timestamp is active,
    /// or will be.
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
        let number = bucket.drops;
        let record = self.find_or_make(&mut bucket, key);
        // R3: every read counts, whichever version it reads (D2).
        let is_newest = record.versions.last().is_none_or(|newest| newest.ts() <= ts);
        if let Some(reader) = reader
            && (is_newest || !broken!(NoteNewestReadsOnly))
        {
            record.last_read = record.last_read.max(reader);
        }
        for version in record.versions.iter().rev().filter(|version| version.ts() <= ts) {
            // Its claim: what it has written it finds itself.
            if Some(version.ts()) == reader && !version.is_fetched() {
                continue;
            }
            if version.is_gone() {
                break;
            }
            // To read past an active one would be wrong: it may commit below this read (D0).
            return match version.standing(transactions) {
                Standing::Active if broken!(ReadPastUnfinished) => continue,
                Standing::Active => Seen::Active(version.ts()),
                Standing::Committed => {
                    hints.note(record, version);
                    record.hit = true;
                    let writer = (!version.is_applied()).then_some(version.ts());
                    Seen::Value(version.value(), writer)
                }
            };
        }
        Seen::Missing(number)
    }

    /// W1 to W5: puts the pending version of a transaction into the record. Takes out the versions
    /// of the record that no transaction needs, where none below `oldest_active` is active, or will
    /// be.
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
        let (mut bucket, hints) = self.bucket(hash);
        let record = self.find_or_make(&mut bucket, key);
        if record.last_read > version.ts() && !broken!(WriteBelowRead) {
            return Err(Abort::ReadByYounger);
        }
        // An older one that is active may be overtaken: the write does not depend on it.
        if record.versions.last().is_some_and(|newest| newest.ts() > version.ts()) {
            return Err(Abort::TooLate);
        }
        if let Some(ranges) = &self.ranges
            && !record.entered
        {
            ranges.enter(&record.key);
            record.entered = true;
        }
        // Before the new one is there: two have room in the record.
        let trimmed = trim_record(record, oldest_active, &self.held);
        record.versions.push(version.clone());
        hints.note(record, version);
        bucket.drops += trimmed.versions;
        self.replace(trimmed.bytes, version.size());
        drop(bucket);
        self.grow();
        // M2, W5 for scans.
        let ts = version.ts();
        if self.ranges.as_ref().is_some_and(|ranges| ranges.is_scanned_by_younger(key, ts)) {
            self.remove(key, hash, ts);
            return Err(Abort::ReadByYounger);
        }
        Ok(())
    }

    /// W4 again: the transaction writes another value to a key that it has written.
    pub fn rewrite(&self, key: &[u8], hash: u64, version: &Version) {
        let bucket = &mut *self.bucket(hash).0;
        let record = bucket.position(key).map(|at| &mut bucket.records[at]);
        let own = |v: &&mut Version| v.ts() == version.ts();
        let pending = record.and_then(|r| r.versions.iter_mut().rev().find(own));
        debug_assert!(pending.is_some(), "the pending version of {} is gone", version.ts());
        if let Some(pending) = pending {
            self.replace(pending.size(), version.size());
            *pending = version.clone();
        }
    }

    /// A1, A2: takes out the version of a transaction that aborts.
    pub fn remove(&self, key: &[u8], hash: u64, ts: u64) {
        let bucket = &mut *self.bucket(hash).0;
        let record = bucket.position(key).map(|at| &mut bucket.records[at]);
        let at = record.as_ref().and_then(|r| r.versions.iter().rposition(|v| v.ts() == ts));
        debug_assert!(at.is_some(), "the pending version of {ts} is gone");
        if let (Some(record), Some(at)) = (record, at) {
            self.subtract(record.versions.remove(at).size());
            bucket.drops += 1;
        }
    }

    /// F5: keeps what was fetched, as the oldest version of its record, unless a version of the
    /// bucket was dropped since the number was noted: a fetch that ends late, when newer versions
    /// have come and gone, would bring an old one back as the newest (D11). A fetch that ends
    /// before its transaction is not late: what is newer stays. The number is for those to come
    /// that do not.
    pub fn insert_fetched(&self, key: &[u8], hash: u64, number: u64, version: Version) {
        debug_assert!(version.is_fetched(), "a version of a writer comes with its transaction");
        self.grow();
        let bucket = &mut *self.bucket(hash).0;
        if bucket.drops != number && !broken!(EnterLateFetch) {
            return;
        }
        let Some(at) = bucket.position(key) else { return };
        let record = &mut bucket.records[at];
        if record.versions.first().is_none_or(|oldest| oldest.ts() > version.ts()) {
            self.add(version.size());
            record.versions.insert(0, version);
        }
    }
}
