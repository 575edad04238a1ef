//! The version table: the versions that are not old enough, or not yet applied enough, to be left
//! to the data component alone; and when each key was last read.
//!
//! Buckets of records, each under a latch. The letters of the steps are those of the crate's
//! documentation. All steps of one operation up to a wait or a fetch are under one hold of the
//! latch, which makes them atomic: what an order of the steps has to ensure without latches (D1,
//! D5 in `docs/protocols.md`) holds by that.
//!
//! Invariants, under the latch:
//! - The versions of a record ascend strictly by timestamp, and only ones of transactions that are
//!   active or committed are in it.
//! - No version is put into a record below its `last_read`, or below its newest version.
//! - A key without a record has not been read, and has no version, above its bucket's `floor`.
//! - Each version that a transaction may read is in its record, or in the data component; or a
//!   newer one is there, which tells it that its own is gone ([`Sweep::PastActive`]).
//!
//! The table is a cache as well: what was fetched stays until a sweep finds it unread since the
//! last one (a clock with a second chance; a key that was read only once has none).

use super::buckets::{Buckets, Split};
use super::ranges::{self, Ranges};
use super::transaction_table::{Standing, TransactionTable};
use crate::error::Abort;
use hyades_platform::mutation::{self, Mutation};
use hyades_platform::sync::{AtomicBool, AtomicUsize, MutexGuard, Ordering};
use std::sync::{Arc, OnceLock};

/// A value; None for a deleted key.
pub(crate) type Value = Option<Arc<[u8]>>;

/// The bytes that a record takes without its key, about.
const RECORD_BYTES: usize = 96;
/// The bytes that a version takes without its value, about.
const VERSION_BYTES: usize = 80;
/// The bytes in the table for which there is a bucket. A bucket takes 48 beside them.
const BYTES_PER_BUCKET: usize = 256;
/// The most buckets that are split by one that puts something into the table. More than one put
/// needs, so that the buckets keep up.
const MOST_SPLIT: usize = 4;

/// A version of a key.
#[derive(Debug)]
pub(crate) struct Version {
    pub ts: u64,
    /// Set before its transaction is committed, and never changed.
    value: OnceLock<Value>,
    /// Whether the data component holds it, or a newer one. Set by the proxy (Release), read by
    /// those that evict (Acquire).
    applied: AtomicBool,
    /// Whether it came from the data component. Then its transaction is committed and durable, and
    /// perhaps of an earlier incarnation, which the transaction table does not know.
    is_fetched: bool,
}

impl Version {
    /// The version of an active transaction.
    pub fn pending(ts: u64) -> Arc<Self> {
        let (value, applied) = (OnceLock::new(), AtomicBool::new(false));
        Arc::new(Self { ts, value, applied, is_fetched: false })
    }

    fn fetched(ts: u64, value: Value) -> Arc<Self> {
        let (value, applied) = (OnceLock::from(value), AtomicBool::new(true));
        Arc::new(Self { ts, value, applied, is_fetched: true })
    }

    /// Whether it came from the data component.
    pub fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// C4: sets the value, once.
    pub fn set(&self, value: Value) {
        let is_first = self.value.set(value).is_ok();
        debug_assert!(is_first, "the version of {} has a value already", self.ts);
    }

    /// The value of a committed version.
    pub fn value(&self) -> &Value {
        self.value.get().expect("a version has its value before its transaction is committed")
    }

    /// The data component holds it, or a newer one.
    pub fn set_applied(&self) {
        self.applied.store(true, Ordering::Release);
    }

    /// Whether the data component holds it, or a newer one.
    pub fn is_applied(&self) -> bool {
        self.applied.load(Ordering::Acquire)
    }

    fn standing(&self, transactions: &TransactionTable) -> Standing {
        if self.is_fetched { Standing::Committed } else { transactions.standing(self.ts) }
    }

    fn bytes(&self) -> usize {
        let value = self.value.get().and_then(Option::as_ref);
        VERSION_BYTES + value.map_or(0, |value| value.len())
    }
}

#[derive(Debug)]
struct KeyRecord {
    key: Arc<[u8]>,
    /// The highest timestamp of a transaction that has read it.
    last_read: u64,
    /// By ascending timestamp.
    versions: Vec<Arc<Version>>,
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
    /// Everything that the data component holds, or something newer. An active transaction that
    /// needs an older version finds that it is gone.
    PastActive,
}

#[derive(Debug, Default)]
struct Bucket {
    records: Vec<KeyRecord>,
    /// What an absent record stands for: no key of the bucket was read or written above it.
    floor: u64,
    /// Counts each version that was taken out: see [`VersionTable::insert_fetched`].
    drops: u64,
}

/// What a read finds.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The version to read.
    Version(Arc<Version>),
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
    /// If there are scans.
    pub ranges: Option<Ranges>,
    /// About how many bytes records, keys and versions take, and values that are to be written;
    /// without those of `ranges`.
    bytes: AtomicUsize,
    /// The bucket at which the next sweep begins.
    hand: AtomicUsize,
}

/// A hash of a key: FNV-1a, and its bits mixed. Not keyed, so that simulations repeat.
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mixed = key.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Bucket {
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.records.iter().position(|record| &*record.key == key)
    }
}

impl Split for Bucket {
    fn split(&mut self, moves: impl Fn(u64) -> bool) -> Self {
        let records = self.records.extract_if(.., |record| moves(hash(&record.key))).collect();
        // What an absent record stands for was said for the keys of both; and what was dropped
        // before the number of a fetch was noted is counted in both.
        Self { records, floor: self.floor, drops: self.drops }
    }
}

impl VersionTable {
    /// An empty table.
    pub fn new(ranges: Option<Ranges>) -> Self {
        Self {
            buckets: Buckets::new(),
            ranges,
            bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    fn bucket(&self, hash: u64) -> MutexGuard<'_, Bucket> {
        self.buckets.lock(hash)
    }

    /// Splits buckets, if what is in the table needs more. No latch is held.
    fn grow(&self) {
        self.buckets.grow(self.bytes.load(Ordering::Relaxed) / BYTES_PER_BUCKET, MOST_SPLIT);
    }

    /// The number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.count()
    }

    /// About how many bytes records, keys and versions take, values that are to be written, and
    /// what scans need.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.ranges.as_ref().map_or(0, Ranges::bytes)
    }

    /// About how many bytes a write takes beside its key and value, where it is the only version.
    pub fn write_bytes(&self) -> usize {
        let entry = if self.ranges.is_some() { ranges::ENTRY_BYTES } else { 0 };
        RECORD_BYTES + VERSION_BYTES + entry
    }

    /// Counts the bytes of a value that a transaction is to write, before its version has it.
    pub fn count_value(&self, value: &Value) {
        self.add(value.as_ref().map_or(0, |value| value.len()));
    }

    /// Takes back [`count_value`](Self::count_value), for a value that no version will have.
    pub fn discount_value(&self, value: &Value) {
        self.subtract(value.as_ref().map_or(0, |value| value.len()));
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// R1, R2 (W1, W2): the record of a key; made if there is none, and then read as of the floor.
    fn find_or_make<'b>(&self, bucket: &'b mut Bucket, key: &[u8]) -> &'b mut KeyRecord {
        let at = bucket.position(key).unwrap_or_else(|| {
            self.add(RECORD_BYTES + key.len());
            let last_read = bucket.floor;
            let (key, versions) = (key.into(), Vec::new());
            let record = KeyRecord { key, last_read, versions, entered: false, hit: false };
            bucket.records.push(record);
            bucket.records.len() - 1
        });
        &mut bucket.records[at]
    }

    /// Whether the table has versions of the key.
    pub fn has_versions(&self, key: &[u8]) -> bool {
        let bucket = self.bucket(hash(key));
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
        let bucket = &mut *self.bucket(hash);
        let number = bucket.drops;
        let record = self.find_or_make(bucket, key);
        // R3: every read counts, whichever version it reads (D2).
        let is_newest = record.versions.last().is_none_or(|newest| newest.ts <= ts);
        if let Some(reader) = reader
            && (is_newest || !mutation::is(Mutation::NoteNewestReadsOnly))
        {
            record.last_read = record.last_read.max(reader);
        }
        for version in record.versions.iter().rev().filter(|version| version.ts <= ts) {
            debug_assert!(
                Some(version.ts) != reader || version.is_fetched,
                "a transaction reads its own"
            );
            // To read past an active one would be wrong: it may commit below this read (D0).
            return match version.standing(transactions) {
                Standing::Active if mutation::is(Mutation::ReadPastUnfinished) => continue,
                Standing::Active => Seen::Active(version.ts),
                Standing::Committed => {
                    record.hit = true;
                    Seen::Version(version.clone())
                }
            };
        }
        Seen::Missing(number)
    }

    /// W1 to W5: puts the pending version of a transaction into the record.
    ///
    /// # Errors
    /// A younger transaction has read or written the key.
    pub fn write(&self, key: &[u8], hash: u64, version: &Arc<Version>) -> Result<(), Abort> {
        let mut bucket = self.bucket(hash);
        let record = self.find_or_make(&mut bucket, key);
        if record.last_read > version.ts && !mutation::is(Mutation::WriteBelowRead) {
            return Err(Abort::ReadByYounger);
        }
        // An older one that is active may be overtaken: the write does not depend on it.
        if record.versions.last().is_some_and(|newest| newest.ts > version.ts) {
            return Err(Abort::TooLate);
        }
        if let Some(ranges) = &self.ranges
            && !record.entered
        {
            ranges.enter(&record.key);
            record.entered = true;
        }
        record.versions.push(version.clone());
        self.add(version.bytes());
        drop(bucket);
        self.grow();
        // M2, W5 for scans.
        if self.ranges.as_ref().is_some_and(|ranges| ranges.is_scanned_by_younger(key, version.ts))
        {
            self.remove(key, hash, version.ts);
            return Err(Abort::ReadByYounger);
        }
        Ok(())
    }

    /// A1, A2: takes out the version of a transaction that aborts.
    pub fn remove(&self, key: &[u8], hash: u64, ts: u64) {
        let bucket = &mut *self.bucket(hash);
        let record = bucket.position(key).map(|at| &mut bucket.records[at]);
        let at = record.as_ref().and_then(|r| r.versions.iter().rposition(|v| v.ts == ts));
        debug_assert!(at.is_some(), "the pending version of {ts} is gone");
        if let (Some(record), Some(at)) = (record, at) {
            self.subtract(record.versions.remove(at).bytes());
            bucket.drops += 1;
        }
    }

    /// F5: keeps what was fetched, as the oldest version of its record, unless a version of the
    /// bucket was dropped since the number was noted: a fetch that ends late, when newer versions
    /// have come and gone, would bring an old one back as the newest (D11). A fetch that ends
    /// before its transaction is not late: what is newer stays. The number is for those to come
    /// that do not.
    pub fn insert_fetched(&self, key: &[u8], hash: u64, number: u64, ts: u64, value: Value) {
        self.grow();
        let bucket = &mut *self.bucket(hash);
        if bucket.drops != number {
            return;
        }
        let Some(at) = bucket.position(key) else { return };
        let record = &mut bucket.records[at];
        if record.versions.first().is_none_or(|oldest| oldest.ts > ts) {
            let version = Version::fetched(ts, value);
            self.add(version.bytes());
            record.versions.insert(0, version);
        }
    }

    /// Trims and evicts in the next buckets, at most this many, until no more than `enough` bytes
    /// are left, where no transaction below `oldest_active` is active or will be; and drops what
    /// is noted of older scans.
    pub fn sweep(&self, most: usize, enough: usize, oldest_active: u64, what: Sweep) {
        if let Some(ranges) = &self.ranges {
            ranges.forget_below(oldest_active);
        }
        for _ in 0..most {
            let nth = self.hand.fetch_add(1, Ordering::Relaxed);
            let bucket = &mut *self.buckets.lock_nth(nth);
            self.trim(bucket, oldest_active);
            self.evict(bucket, oldest_active, what);
            // To sweep more would drop what is read soon.
            if self.bytes() <= enough {
                return;
            }
        }
    }

    /// Drops all versions below the newest of those below `oldest_active`. All of these have ended,
    /// so that newest one is committed, and hides the others from every reader.
    fn trim(&self, bucket: &mut Bucket, oldest_active: u64) {
        for record in &mut bucket.records {
            let old = record.versions.iter().take_while(|v| v.ts < oldest_active).count();
            for version in record.versions.drain(..old.saturating_sub(1)) {
                self.subtract(version.bytes());
                bucket.drops += 1;
            }
        }
    }

    /// E1 to E4: drops records whose versions the data component holds, or something newer. The
    /// floor keeps what the record says of reads and writes (D5).
    fn evict(&self, bucket: &mut Bucket, oldest_active: u64, what: Sweep) {
        let Bucket { records, floor, drops } = bucket;
        records.retain_mut(|record| {
            let is_old = |v: &Arc<Version>| {
                let is_applied = v.is_applied() || mutation::is(Mutation::EvictUnapplied);
                is_applied && (v.ts < oldest_active || what == Sweep::PastActive)
            };
            let is_spared = std::mem::take(&mut record.hit) && what == Sweep::Unread;
            if is_spared || !record.versions.iter().all(is_old) {
                return true;
            }
            // E3. An older transaction that is active may neither write below what is evicted.
            let newest = record.versions.last().map_or(0, |newest| newest.ts);
            let newest = if mutation::is(Mutation::FloorOfReadsOnly) { 0 } else { newest };
            let needed = record.last_read.max(newest);
            // No transaction to come is below `oldest_active`: such a floor says nothing.
            if needed >= oldest_active && !mutation::is(Mutation::EvictWithoutFloor) {
                *floor = (*floor).max(needed);
            }
            if record.entered
                && let Some(ranges) = &self.ranges
            {
                ranges.leave(&record.key);
            }
            let versions: usize = record.versions.iter().map(|v| v.bytes()).sum();
            self.subtract(RECORD_BYTES + record.key.len() + versions);
            *drops += 1;
            false
        });
    }
}
