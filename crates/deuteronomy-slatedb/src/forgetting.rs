//! Deleted keys leave the database when no older operation can come any more.
//!
//! Each deletion is listed by its timestamp, in the batch of the operation. Forgetting goes through
//! the list below the floor, and deletes a key whose newest item is still a deletion below the
//! floor. All operations below the floor are applied before, so SlateDB's deletion is behind them
//! in SlateDB's own order and hides each, wherever its table is.
//!
//! Invariant: no operation at or above the floor is lost. A SlateDB transaction reads the item and
//! deletes, and does not commit if the key was written in between.

use crate::failure::{damaged, failed};
use crate::item::{data_key, deletions, read_deletion, read_item};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hyades_deuteronomy::Error;
use slatedb::{Db, ErrorKind, IsolationLevel};

/// The most deleted keys removed by a transaction of SlateDB.
pub(crate) const REMOVED_AT_ONCE: usize = 1024;
/// The items read at a time.
const READ_AT_ONCE: usize = 64;
/// What the errors of SlateDB name.
const DOING: &str = "forgetting deleted keys";

/// What a step of forgetting has done.
pub(crate) enum Forgotten {
    /// Listed deletions have gone; the timestamp of the last.
    UpTo(u64),
    /// No deletion below the floor is listed.
    All,
    /// A key was written in between: nothing is done.
    Conflict,
}

/// Up to `most` deletions listed from a timestamp on, and below another.
async fn listed(db: &Db, from: u64, below: u64, most: usize) -> Result<Vec<Bytes>, slatedb::Error> {
    let (mut entries, mut listed) = (db.scan(deletions(from, below)).await?, Vec::new());
    while listed.len() < most {
        let Some(entry) = entries.next().await? else { break };
        listed.push(entry.key);
    }
    Ok(listed)
}

/// Whether the newest item of a key is a deletion below a timestamp.
fn is_deleted_below(item: &Bytes, ts: u64) -> Result<bool, Error> {
    let (newest, value) = read_item(item).ok_or_else(|| damaged("an item"))?;
    Ok(value.is_none() && newest < ts)
}

/// Removes up to `most` deletions listed from a timestamp on and below another, with their keys.
///
/// # Errors
/// SlateDB fails, or the database is damaged.
pub(crate) async fn forget_some(
    db: &Db,
    from: u64,
    below: u64,
    most: usize,
) -> Result<Forgotten, Error> {
    let failed = |error: slatedb::Error| failed(DOING, &error);
    // The transaction begins before anything is read.
    let transaction = db.begin(IsolationLevel::SerializableSnapshot).map_err(failed)?;
    let listed = listed(db, from, below, most).await.map_err(failed)?;
    let mut last = None;
    let mut keys = Vec::with_capacity(listed.len());
    for deletion in &listed {
        let (ts, key) = read_deletion(deletion).ok_or_else(|| damaged("a deletion"))?;
        last = Some(ts);
        keys.push(data_key(key));
    }
    let Some(last) = last else { return Ok(Forgotten::All) };
    let read = async |key: Vec<u8>| transaction.get(&key).await.map(|item| (item, key));
    let items = stream::iter(keys).map(read).buffer_unordered(READ_AT_ONCE);
    let items: Vec<(Option<Bytes>, Vec<u8>)> = items.try_collect().await.map_err(failed)?;
    for (item, key) in items {
        let Some(item) = item else { continue };
        if is_deleted_below(&item, below)? {
            transaction.delete(key).map_err(failed)?;
        }
    }
    for deletion in listed {
        transaction.delete(deletion).map_err(failed)?;
    }
    match transaction.commit().await {
        Ok(_) => Ok(Forgotten::UpTo(last)),
        Err(error) if error.kind() == ErrorKind::Transaction => Ok(Forgotten::Conflict),
        Err(error) => Err(failed(error)),
    }
}
