//! Removal of records and versions from the version table, with the traces left behind.

use super::{Bucket, KeyRecord, RECORD_BYTES, SWEPT_AHEAD, Sweep, VersionTable};
use crate::held_bytes::HeldBytes;
use crate::transaction_component::version::Version;
use hyades_platform::broken;
use hyades_platform::sync::Ordering;

/// The counts of a record's removed versions.
#[derive(Default)]
pub(super) struct Trimmed {
    pub versions: u64,
    pub bytes: usize,
}

/// Drops all versions below the newest of those below `oldest_active`. All transactions of these
/// versions have ended, so the newest version is committed, and hides the rest from every reader.
/// The caller counts the dropped versions.
///
/// A timestamp that was the oldest active at any earlier time serves as well: no transaction below
/// comes back, and no later announced snapshot reads below.
pub(super) fn trim_record(record: &mut KeyRecord, oldest_active: u64, held: &HeldBytes) -> Trimmed {
    let versions = record.versions();
    let old = versions.iter().take_while(|v| v.ts() < oldest_active).count();
    let mut left = old.saturating_sub(1);
    // In front, a gone version says no more than a record without the gone version.
    while versions.get(left).is_some_and(Version::is_gone) {
        left += 1;
    }
    let mut trimmed = Trimmed::default();
    if left == 0 {
        return trimmed;
    }
    let before = record.entry_bytes();
    for version in record.take_oldest(left) {
        version.leave_table(held);
        trimmed.versions += 1;
    }
    trimmed.bytes = before - record.entry_bytes();
    trimmed
}

/// Drops the versions that the data component holds, or holds newer, of a record that has to stay
/// for other versions: versions of active or non-durable transactions. A reader that finds no
/// version behind the remaining versions goes to the data component, which has the right version
/// for the reader, or a newer version. Where a remaining version is older, a gone version keeps the
/// reader from it. Older active writers may not write below the dropped versions, as at the removal
/// of a record. The caller counts the dropped versions.
fn drop_applied(record: &mut KeyRecord) -> Trimmed {
    let (mut dropped, before) = (0, record.entry_bytes());
    for version in record.take_versions() {
        // In front, and behind a gone version, no stand-in is needed.
        let needs_none = record.newest().is_none_or(Version::is_gone);
        if !version.is_applied() || version.is_gone() && !needs_none {
            record.push(version);
            continue;
        }
        record.raise_last_read(version.ts());
        dropped += 1;
        if !needs_none {
            record.push(Version::gone(version.key(), version.ts()));
        }
    }
    Trimmed { versions: dropped, bytes: before - record.entry_bytes() }
}

impl VersionTable {
    /// Trims and evicts in the next buckets, at most `most`, until no more than `enough` bytes are
    /// left; no transaction below `oldest_active` is active or will be. Also drops the notes of
    /// older scans. Returns the number of dropped bytes.
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
            // Further sweeping would drop versions read soon.
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

    /// E1 to E4: drops records whose versions the data component holds, or holds newer. The floor
    /// keeps the record's information on reads and writes (D5).
    fn evict(&self, bucket: &mut Bucket, oldest_active: u64, what: Sweep) -> usize {
        let mut records = std::mem::take(&mut bucket.records).into_vec();
        let Bucket { floor, drops, .. } = bucket;
        let (mut bytes, before) = (0, records.len());
        records.retain_mut(|record| {
            let is_old = |v: &Version| {
                let is_old = v.ts() < oldest_active;
                // The rule is on ended transactions: the version of an active transaction is its
                // own.
                let is_applied = v.is_applied() || is_old && broken!(EvictUnapplied);
                is_applied && (is_old || what == Sweep::PastActive)
            };
            let is_spared = record.take_hit() && what == Sweep::Unread;
            if is_spared || !record.versions().iter().all(is_old) {
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
        match records.len() == before {
            true => bucket.records = records.into_boxed_slice(),
            false => bucket.set_records(records, &self.hasher),
        }
        self.replace(bytes, 0);
        bytes
    }

    /// E3, E4: a record leaves its bucket, with `floor`. Returns the bytes of the record.
    fn leave(&self, record: &KeyRecord, floor: &mut u64, oldest_active: u64) -> usize {
        // E3. An older active transaction may not write below evicted versions either.
        let newest = record.newest().map_or(0, Version::ts);
        let newest = if broken!(FloorOfReadsOnly) { 0 } else { newest };
        let needed = record.last_read().max(newest);
        // No transaction to come is below `oldest_active`: a floor below `oldest_active` says
        // nothing.
        if needed >= oldest_active && !broken!(EvictWithoutFloor) {
            *floor = (*floor).max(needed);
        }
        if record.is_entered()
            && let Some(ranges) = &self.ranges
        {
            ranges.leave(record.key(), self.hasher.hash(record.key()));
        }
        RECORD_BYTES + record.entry_bytes()
    }

    /// Drops the record of a deleted key, if no transaction needs the record: then only the data
    /// component knows of the key, and no scan meets the key here.
    pub fn drop_deleted(&self, key: &[u8], oldest_active: u64) {
        let hash = self.hasher.hash(key);
        let bucket = &mut *self.bucket(hash).0;
        let Some(at) = bucket.position(key, hash) else { return };
        // With the hidden versions.
        let trimmed = trim_record(&mut bucket.records[at], oldest_active, &self.held);
        bucket.drops += trimmed.versions;
        self.replace(trimmed.bytes, 0);
        let [newest] = bucket.records[at].versions() else { return };
        let is_deleted = newest.bytes().is_none() && newest.is_applied() && !newest.is_gone();
        if !is_deleted || newest.ts() >= oldest_active {
            return;
        }
        let mut records = std::mem::take(&mut bucket.records).into_vec();
        let record = records.swap_remove(at);
        bucket.set_records(records, &self.hasher);
        bucket.drops += 1;
        self.subtract(self.leave(&record, &mut bucket.floor, oldest_active));
    }
}
