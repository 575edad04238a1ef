//! What leaves the version table, and what it leaves behind.

use super::{Bucket, KeyRecord, RECORD_BYTES, SWEPT_AHEAD, Sweep, VersionTable};
use crate::held_bytes::HeldBytes;
use crate::transaction_component::version::Version;
use hyades_platform::broken;
use hyades_platform::sync::Ordering;

/// What was taken out of a record.
#[derive(Default)]
pub(super) struct Trimmed {
    pub versions: u64,
    pub bytes: usize,
}

/// Drops all versions below the newest of those below `oldest_active`. All of these have ended, so
/// that newest one is committed, and hides the others from every reader. The caller counts them.
///
/// As right is a timestamp that was the oldest active one at any time before: none below it comes
/// back, and no snapshot that is announced later reads below it.
pub(super) fn trim_record(record: &mut KeyRecord, oldest_active: u64, held: &HeldBytes) -> Trimmed {
    let old = record.versions.iter().take_while(|v| v.ts() < oldest_active).count();
    let mut left = old.saturating_sub(1);
    // In front, one that is gone says no more than a record without it.
    while record.versions.get(left).is_some_and(Version::is_gone) {
        left += 1;
    }
    let mut trimmed = Trimmed::default();
    if left == 0 {
        return trimmed;
    }
    for version in record.versions.drain(..left) {
        version.leave_table(held);
        trimmed.bytes += version.size();
        trimmed.versions += 1;
    }
    trimmed
}

/// Drops the versions that the data component holds, or something newer, of a record that has to
/// stay for others: those of transactions that are active, or not durable. A reader that finds none
/// behind these others goes to the data component, which has what is right for it, or something
/// newer. Where one that stays is older, another that is gone keeps the reader from it. Older
/// writers that are active may not write below what is dropped, as where a record leaves. The
/// caller counts what was dropped.
fn drop_applied(record: &mut KeyRecord) -> Trimmed {
    let mut dropped = Trimmed::default();
    for version in std::mem::take(&mut record.versions) {
        // In front, and behind one that is gone, none has to stand for it.
        let needs_none = record.versions.last().is_none_or(Version::is_gone);
        if !version.is_applied() || version.is_gone() && !needs_none {
            record.versions.push(version);
            continue;
        }
        record.last_read = record.last_read.max(version.ts());
        dropped.versions += 1;
        dropped.bytes += version.size();
        if !needs_none {
            let gone = Version::gone(version.ts());
            dropped.bytes -= gone.size();
            record.versions.push(gone);
        }
    }
    dropped
}

impl VersionTable {
    /// Trims and evicts in the next buckets, at most this many, until no more than `enough` bytes
    /// are left, where no transaction below `oldest_active` is active or will be; and drops what
    /// is noted of older scans. Returns how many bytes it has dropped.
    pub fn sweep(&self, most: usize, enough: usize, oldest_active: u64, what: Sweep) -> usize {
        if let Some(ranges) = &self.ranges {
            ranges.forget_below(oldest_active);
        }
        let mut dropped = 0;
        for _ in 0..most {
            let nth = self.hand.fetch_add(1, Ordering::Relaxed);
            self.buckets.prefetch_ahead(nth, SWEPT_AHEAD);
            let bucket = &mut *self.buckets.lock_nth(nth);
            dropped += self.trim(bucket, oldest_active);
            dropped += self.evict(bucket, oldest_active, what);
            // To sweep more would drop what is read soon.
            if self.bytes() <= enough {
                break;
            }
        }
        dropped
    }

    fn trim(&self, bucket: &mut Bucket, oldest_active: u64) -> usize {
        let mut bytes = 0;
        for record in &mut bucket.records {
            let trimmed = trim_record(record, oldest_active, &self.held);
            bucket.drops += trimmed.versions;
            bytes += trimmed.bytes;
        }
        self.replace(bytes, 0);
        bytes
    }

    /// E1 to E4: drops records whose versions the data component holds, or something newer. The
    /// floor keeps what the record says of reads and writes (D5).
    fn evict(&self, bucket: &mut Bucket, oldest_active: u64, what: Sweep) -> usize {
        let Bucket { records: all, floor, drops } = bucket;
        let mut bytes = 0;
        let mut records = std::mem::take(all).into_vec();
        records.retain_mut(|record| {
            let is_old = |v: &Version| {
                let is_old = v.ts() < oldest_active;
                // The rule is on those that have ended: the version of an active transaction is its
                // own.
                let is_applied = v.is_applied() || is_old && broken!(EvictUnapplied);
                is_applied && (is_old || what == Sweep::PastActive)
            };
            let is_spared = std::mem::take(&mut record.hit) && what == Sweep::Unread;
            if is_spared || !record.versions.iter().all(is_old) {
                if what == Sweep::PastActive {
                    let dropped = drop_applied(record);
                    *drops += dropped.versions;
                    bytes += dropped.bytes;
                }
                return true;
            }
            bytes += self.leave(record, floor, oldest_active);
            *drops += 1;
            false
        });
        *all = records.into_boxed_slice();
        self.replace(bytes, 0);
        bytes
    }

    /// E3, E4: a record leaves its bucket, with this floor. Returns the bytes that it takes.
    fn leave(&self, record: &KeyRecord, floor: &mut u64, oldest_active: u64) -> usize {
        // E3. An older transaction that is active may neither write below what is evicted.
        let newest = record.versions.last().map_or(0, |newest| newest.ts());
        let newest = if broken!(FloorOfReadsOnly) { 0 } else { newest };
        let needed = record.last_read.max(newest);
        // No transaction to come is below `oldest_active`: such a floor says nothing.
        if needed >= oldest_active && !broken!(EvictWithoutFloor) {
            *floor = (*floor).max(needed);
        }
        if record.entered
            && let Some(ranges) = &self.ranges
        {
            ranges.leave(&record.key);
        }
        let versions: usize = record.versions.iter().map(Version::size).sum();
        RECORD_BYTES + record.key.len() + versions
    }

    /// Drops the record of a key that was deleted, if no transaction needs it: then only the data
    /// component knows of the key, and no scan meets it here.
    pub fn drop_deleted(&self, key: &[u8], oldest_active: u64) {
        let bucket = &mut *self.bucket(self.hasher.hash(key)).0;
        let Some(at) = bucket.position(key) else { return };
        // With what it hides.
        let trimmed = trim_record(&mut bucket.records[at], oldest_active, &self.held);
        bucket.drops += trimmed.versions;
        self.replace(trimmed.bytes, 0);
        let [newest] = &bucket.records[at].versions[..] else { return };
        let is_deleted = newest.bytes().is_none() && newest.is_applied() && !newest.is_gone();
        if !is_deleted || newest.ts() >= oldest_active {
            return;
        }
        let mut records = std::mem::take(&mut bucket.records).into_vec();
        let record = records.swap_remove(at);
        bucket.records = records.into_boxed_slice();
        bucket.drops += 1;
        self.subtract(self.leave(&record, &mut bucket.floor, oldest_active));
    }
}
