//! A data component in a fjall database: durable, larger than memory, and cheap to write.
//!
//! fjall keeps the last write to arrive. So an operation is compared with the stored item before
//! being written, unless a table of the timestamps applied lately says that the operation is the
//! newest on its key: then nothing is read. Meanwhile no other operation on its key is applied:
//! concurrent calls have no key in common; and no deleted key is removed: removing takes a lock
//! exclusively, and applying takes the same lock shared. Batches reach fjall's journal without a
//! sync; a checkpoint is a batch with the resume point and a sync of the journal. A crash leaves a
//! prefix of the batches, with all batches up to the last checkpoint.
//!
//! One keyspace: after the byte `d` a key, with its timestamp and value as in redb; after `x` the
//! timestamp, big-endian, and the key of each deletion not below the floor yet, overwritten or not;
//! `r`, the resume point; `t`, the highest applied timestamp, little-endian, written by each batch.
//! A database of an earlier version has none until the first batch, and is scanned for the
//! timestamp.

use super::item::{put_item, read_item};
use super::recent::Recent;
use crate::data_component::{
    DataComponent, DataSnapshot, Found, KeyRange, Limits, Operation, ResumePoint, ScanOrder,
    cut_bounds, is_empty_range,
};
use crate::error::Error;
use fjall::config::PartitioningPolicy;
use fjall::{
    Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot, UserValue,
};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

const DATA: u8 = b'd';
const DELETED: u8 = b'x';
const RESUME: [u8; 1] = [b'r'];
const HIGHEST: [u8; 1] = [b't'];

/// The most deleted keys removed at once.
const REMOVED_AT_ONCE: usize = 4096;
/// The bytes at which fjall's journal goes on in another file, and the tables are written.
const JOURNAL_BYTES: u64 = 64 << 20;
/// The longest key, with a timestamp and the byte in front: fjall panics on a longer key, in a
/// look-up, too. fjall would panic on longer values as well, above 4 GiB.
const LIMITS: Limits =
    Limits { key_bytes: u16::MAX as usize - 9, value_bytes: 1 << 30, is_durable: true };

/// Keys and values in a fjall database.
pub struct FjallData {
    database: Database,
    keyspace: Keyspace,
    recent: Recent,
    /// Held shared from the look-up of stored items until the operations are written.
    writing: RwLock<()>,
    /// The highest applied timestamp. Held during the write of a batch with the timestamp, so that
    /// no batch with a lower timestamp is written later; fjall writes a single batch at a time
    /// anyway.
    highest: Mutex<u64>,
}

fn failed(error: impl Into<fjall::Error>) -> Error {
    Error::DataComponent(error.into().to_string())
}

fn damaged(what: &str) -> Error {
    Error::DataComponent(format!("{what} in the fjall database was not written by this program"))
}

fn data_key(key: &[u8]) -> Vec<u8> {
    [&[DATA], key].concat()
}

fn deleted_key(ts: u64, key: &[u8]) -> Vec<u8> {
    [&[DELETED], &ts.to_be_bytes()[..], key].concat()
}

/// The data for finding a key in a table, the filter and the index, are read in pieces of a block.
/// By default a table of the upper levels has the filter and the index in a single piece each, a
/// megabyte for a million keys: a cache smaller than the pieces holds none, and each look-up reads
/// a whole piece.
fn keyspace_options() -> KeyspaceCreateOptions {
    let in_pieces = || PartitioningPolicy::all(true);
    KeyspaceCreateOptions::default()
        .filter_block_partitioning_policy(in_pieces())
        .index_block_partitioning_policy(in_pieces())
}

impl FjallData {
    /// Opens the database in the directory `dir`, or creates a database. The cache takes up to
    /// `cache_bytes`.
    ///
    /// # Errors
    /// The directory cannot be used, the content is damaged, or the database is open elsewhere.
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<Self, Error> {
        let builder = Database::builder(dir).cache_size(cache_bytes as u64);
        let builder = builder.worker_threads(1).max_journaling_size(JOURNAL_BYTES);
        let database = builder.open().map_err(failed)?;
        let keyspace = database.keyspace("hyades", keyspace_options).map_err(failed)?;
        let highest = highest_in(&keyspace)?;
        let (recent, highest) = (Recent::new(highest), Mutex::new(highest));
        Ok(Self { database, keyspace, recent, writing: RwLock::new(()), highest })
    }

    /// Removes some deleted keys below a timestamp, the oldest first, from the entry `from` on.
    /// Returns the last entry, if there may be more. The next call begins there: fjall passes over
    /// each removed entry, until its tables are compacted.
    fn forget_some_below(&self, from: Vec<u8>, ts: u64) -> Result<Option<Vec<u8>>, Error> {
        // Where an operation was written in part the batch was not, so a panic leaves no trace.
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        let to = deleted_key(ts, b"");
        let (mut batch, mut removed, mut last) = (self.database.batch(), 0, None);
        for entry in self.keyspace.range(from..to).take(REMOVED_AT_ONCE) {
            let deleted = entry.key().map_err(failed)?;
            let (key, deleted_at) = deleted
                .get(9..)
                .zip(deleted.get(1..).and_then(|rest| rest.first_chunk()))
                .ok_or_else(|| damaged("a deleted key"))?;
            // A later operation may have written the key again.
            let item = found(self.keyspace.get(data_key(key)).map_err(failed)?)?;
            if item.value.is_none() && item.ts == u64::from_be_bytes(*deleted_at) {
                batch.remove(&self.keyspace, data_key(key));
            }
            batch.remove(&self.keyspace, &*deleted);
            removed += 1;
            last = Some(deleted);
        }
        batch.commit().map_err(failed)?;
        Ok(last.filter(|_| removed == REMOVED_AT_ONCE).map(|last| last.to_vec()))
    }
}

/// The highest timestamp noted by batches, or else the highest of an item.
fn highest_in(keyspace: &Keyspace) -> Result<u64, Error> {
    if let Some(noted) = keyspace.get(HIGHEST).map_err(failed)? {
        let noted = noted.first_chunk::<8>().filter(|_| noted.len() == 8);
        return noted.map(|noted| u64::from_le_bytes(*noted)).ok_or_else(|| damaged("a timestamp"));
    }
    let mut highest = 0;
    for entry in keyspace.range(vec![DATA]..vec![DATA + 1]) {
        let _ = hand_on(entry, &mut |operation| {
            highest = highest.max(operation.ts);
            ControlFlow::Continue(())
        })?;
    }
    Ok(highest)
}

/// Returns the operation in an item.
fn found(item: Option<UserValue>) -> Result<Found, Error> {
    let Some(item) = item else { return Ok(Found::default()) };
    let (ts, value) = read_item(&item).ok_or_else(|| damaged("an item"))?;
    Ok(Found { ts, value: value.map(<[u8]>::to_vec) })
}

/// Hands an entry to `each`.
fn hand_on(
    entry: Guard,
    each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let (key, item) = entry.into_inner().map_err(failed)?;
    let (ts, value) = read_item(&item).ok_or_else(|| damaged("an item"))?;
    let key = key.get(1..).ok_or_else(|| damaged("a key"))?;
    Ok(each(Operation { key, ts, value }))
}

/// The data as of a moment. Meanwhile fjall's compactions keep the items replaced since.
struct FjallSnapshot {
    snapshot: Snapshot,
    keyspace: Keyspace,
}

impl FjallData {
    fn look(&self) -> FjallSnapshot {
        FjallSnapshot { snapshot: self.database.snapshot(), keyspace: self.keyspace.clone() }
    }
}

impl DataSnapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        if key.len() > LIMITS.key_bytes {
            return Ok(Found::default());
        }
        found(self.snapshot.get(&self.keyspace, data_key(key)).map_err(failed)?)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let range = cut_bounds(range, LIMITS.key_bytes);
        if is_empty_range(range) {
            return Ok(());
        }
        let from = match range.0 {
            Bound::Unbounded => Bound::Included(vec![DATA]),
            bound => bound.map(data_key),
        };
        let to = match range.1 {
            Bound::Unbounded => Bound::Excluded(vec![DATA + 1]),
            bound => bound.map(data_key),
        };
        let mut entries = self.snapshot.range(&self.keyspace, (from, to));
        loop {
            let next = match order {
                ScanOrder::Ascending => entries.next(),
                ScanOrder::Descending => entries.next_back(),
            };
            let Some(entry) = next else { return Ok(()) };
            if hand_on(entry, each)?.is_break() {
                return Ok(());
            }
        }
    }
}

impl DataComponent for FjallData {
    fn get(&self, key: &[u8]) -> Result<Found, Error> {
        if key.len() > LIMITS.key_bytes {
            return Ok(Found::default());
        }
        found(self.keyspace.get(data_key(key)).map_err(failed)?)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        order: ScanOrder,
        each: &mut dyn FnMut(Operation<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.look().scan(range, order, each)
    }

    fn apply(&self, operations: &[Operation<'_>]) -> Result<(), Error> {
        let _shared = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        let mut batch = self.database.batch();
        let newest = self.recent.note(operations);
        for (operation, is_newest) in operations.iter().zip(newest) {
            LIMITS.check_key(operation.key)?;
            LIMITS.check_value(operation.value)?;
            let key = data_key(operation.key);
            if !is_newest && found(self.keyspace.get(&key).map_err(failed)?)?.ts >= operation.ts {
                continue;
            }
            let mut item = Vec::new();
            put_item(&mut item, operation);
            batch.insert(&self.keyspace, key, item);
            if operation.value.is_none() {
                batch.insert(&self.keyspace, deleted_key(operation.ts, operation.key), b"");
            }
        }
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let now = operations.iter().map(|operation| operation.ts).fold(*highest, u64::max);
        batch.insert(&self.keyspace, HIGHEST, now.to_le_bytes());
        batch.commit().map_err(failed)?;
        *highest = now;
        Ok(())
    }

    /// fjall writes a single batch at a time; stored items are looked up on several threads.
    fn may_cut(&self, _last: &[u8], _next: &[u8]) -> bool {
        true
    }

    fn checkpoint(&self, point: &ResumePoint) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.keyspace, RESUME, point.encode());
        batch.commit().map_err(failed)
    }

    fn resume_point(&self) -> Result<Option<ResumePoint>, Error> {
        let Some(bytes) = self.keyspace.get(RESUME).map_err(failed)? else { return Ok(None) };
        ResumePoint::decode(&bytes).map(Some).ok_or_else(|| damaged("the resume point"))
    }

    fn highest_ts(&self) -> Result<u64, Error> {
        Ok(*self.highest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn forget_below(&self, ts: u64) -> Result<(), Error> {
        self.recent.forget_below(ts);
        let mut from = vec![DELETED];
        while let Some(last) = self.forget_some_below(from, ts)? {
            from = last;
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Arc<dyn DataSnapshot>>, Error> {
        Ok(Some(Arc::new(self.look())))
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_for_deleted_keys_begins_where_the_last_one_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let data = FjallData::open(dir.path(), 1 << 20).unwrap();
        let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
        let batch = (1..).zip(&keys).map(|(ts, key)| Operation { key, ts, value: None });
        data.apply(&batch.collect::<Vec<_>>()).unwrap();
        let mut from = vec![DELETED];
        for nth in [REMOVED_AT_ONCE, 2 * REMOVED_AT_ONCE] {
            let last = data.forget_some_below(from, 10_000).unwrap().expect("there are more");
            assert_eq!(last, deleted_key(nth as u64, &keys[nth - 1]));
            from = last;
        }
        assert_eq!(data.forget_some_below(from, 10_000).unwrap(), None);
        assert_eq!(data.get(&keys[9_998]).unwrap(), Found::default());
        assert_eq!(data.get(&keys[9_999]).unwrap().ts, 10_000);
    }
}
