//! Removes fields of hashes that have expired, in the transactions that remove keys
//! ([`crate::upkeep::removal`]): a hash of which fields are due is met by the timer of its key.
//!
//! Bound: a transaction removes fields until it has copied [`MOST_COPIED`], and a few more. What
//! is left is looked at again at once, in the next transaction.

use crate::data::field_times;
use crate::data::keyspace::{Context, Keyspace, Stop};
use crate::data::values::Value;
use hyades::{Abort, Transaction};

/// Fields that are removed before it is looked at what was copied.
const STEP: usize = 64;

/// Bytes copied by a transaction after which it removes no more fields.
const MOST_COPIED: usize = if cfg!(test) { 64 << 10 } else { 4 << 20 };

/// What has become of a hash.
#[derive(Debug, Default)]
pub struct Lapsed {
    /// Fields that were removed.
    pub fields: usize,
    /// All its fields had expired, and the key was removed.
    pub is_over: bool,
    /// There are more fields that have expired.
    pub has_more: bool,
    /// When the key is next to be looked at, if ever.
    pub next: Option<i64>,
}

/// Removes those fields of a hash that have expired. `generation` is that of its database.
///
/// # Errors
/// Those of a transaction.
pub fn lapse(
    tx: &Transaction<'_>,
    context: Context<'_>,
    database: u32,
    (generation, key): (u64, &[u8]),
) -> Result<Lapsed, Abort> {
    lapse_in(tx, context, database, (generation, key)).map_err(|stop| match stop {
        Stop::Abort(abort) => abort,
        Stop::Error(_) | Stop::ErrorKept(_) => unreachable!("a hash that shrinks fits"),
    })
}

fn lapse_in(
    tx: &Transaction<'_>,
    context: Context<'_>,
    database: u32,
    (generation, key): (u64, &[u8]),
) -> Result<Lapsed, Stop> {
    let (space, mut lapsed) = (Keyspace::open(*tx, context, database)?, Lapsed::default());
    if space.generation() != generation {
        // The database was flushed or swapped just now.
        lapsed.next = Some(context.now_ms);
        return Ok(lapsed);
    }
    let has_copied_enough = || context.effects.borrow().copied >= MOST_COPIED;
    if has_copied_enough() {
        lapsed.has_more = true;
        return Ok(lapsed);
    }
    let entry = space.find(key)?;
    let Some((head, value)) = entry.value()? else {
        lapsed.is_over = entry.is_stored();
        lapsed.fields += space.stored_fields(key)?;
        entry.remove()?;
        return Ok(lapsed);
    };
    let hash = match value {
        Value::TimedHash(hash) => hash,
        Value::String(_)
        | Value::List(_)
        | Value::Set(_)
        | Value::Hash(_)
        | Value::SortedSet(_)
        | Value::Stream(_) => {
            lapsed.next = head.expires();
            return Ok(lapsed);
        }
    };
    // A field stays that has not expired: the key was found.
    loop {
        let (fields, has_more) = hash.remove_lapsed(STEP)?;
        lapsed.fields += fields;
        if has_more && !has_copied_enough() {
            continue;
        }
        lapsed.has_more = has_more;
        if !has_more {
            let head = space.find_head(key)?.head().ok_or(Abort::Conflict)?;
            let place = (generation, key);
            lapsed.next = field_times::next_of_row(tx, context.tables, place, head)?;
        }
        return Ok(lapsed);
    }
}
