//! Commands that walk over keys. KEYS runs as a job, on a snapshot: event loops go on meanwhile,
//! and the replied keys are on disk; in a script KEYS is part of the transaction. SCAN and
//! RANDOMKEY take steps of a bounded size, in a transaction.

use super::{Done, Job, Local, SYNTAX, Stop, integer, is};
use crate::base::glob;
use crate::base::hash_slot::slot_of;
use crate::data::databases;
use crate::data::field_times;
use crate::data::head::{Head, KINDS};
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;
use crate::state::{Opened, Shared};
use hyades::{Column, Columns, Error, Row};

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const HEAD: Column<u64> = Column::at(2);
const WITHOUT_BODY: Columns = Columns::of(&[0, 1, 2]);

/// Visits the unexpired keys of a database.
fn for_each_key(
    (shared, opened): (&Shared, &Opened),
    database: u32,
    mut visit: impl FnMut(&[u8], Head),
) -> Result<(), Error> {
    let (tables, now) = (opened.tables, shared.clock.now_ms());
    let snapshot = opened.database.open_snapshot();
    let generation = snapshot.read(|tx| Ok(databases::generation(tx, tables, database)?))?;
    let mut failed = Ok(());
    snapshot.for_each(tables.keys, WITHOUT_BODY, |row: &Row<'_>| {
        let head = Head::from_word(row.get(HEAD)).filter(|_| row.get(GENERATION) == generation);
        let Some(head) = head else { return };
        let is_absent = match head.form().is_timed() {
            true => snapshot
                .read(|tx| {
                    let place = (generation, row.get(KEY));
                    Ok(field_times::is_row_absent(tx, tables, place, (head, now))?)
                })
                .unwrap_or_else(|error| {
                    failed = Err(error);
                    true
                }),
            false => head.is_expired(now),
        };
        if !is_absent {
            visit(row.get(KEY), head);
        }
    })?;
    failed
}

/// A job over the keys, whose failure is its reply.
fn job(
    run: impl FnOnce((&Shared, &Opened), &mut Reply<'_>) -> Result<(), Error> + Send + 'static,
) -> Job {
    Job::new(move |shared, reply| {
        let position = reply.position();
        let opened = match shared.opened() {
            Ok(opened) => opened,
            Err(text) => return reply.error(&text),
        };
        if let Err(error) = run((shared, &opened), reply) {
            reply.truncate(position);
            reply.error(&format!("ERR {error}"));
        }
    })
}

/// The number of unexpired keys of a database, found by a walk.
///
/// # Errors
/// Those of a snapshot.
#[cfg(feature = "replication")]
pub fn count(shared: &Shared, opened: &Opened, database: u32) -> Result<i64, Error> {
    let mut keys = 0;
    for_each_key((shared, opened), database, |_, _| keys += 1)?;
    Ok(keys)
}

/// Bytes of a string in a reply beside the string itself, at least.
const HEAD_BYTES: usize = "$1\r\n\r\n".len();

/// Keys to be replied, one behind the other: at most enough to show an excess.
struct FoundKeys {
    names: Vec<u8>,
    /// Where each name ends.
    ends: Vec<usize>,
    /// Bytes for which the reply has room.
    room: usize,
}

impl FoundKeys {
    fn new(room: usize) -> FoundKeys {
        FoundKeys { names: Vec::new(), ends: Vec::new(), room }
    }

    fn is_too_much(&self) -> bool {
        self.names.len() + HEAD_BYTES * self.ends.len() > self.room + HEAD_BYTES
    }

    fn add(&mut self, key: &[u8]) {
        if !self.is_too_much() {
            self.names.extend_from_slice(key);
            self.ends.push(self.names.len());
        }
    }

    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(self.ends.len());
        let mut begin = 0;
        for end in &self.ends {
            reply.bulk(&self.names[begin..*end]);
            begin = *end;
        }
    }
}

pub fn keys(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let (database, pattern) = (local.client.database, args[1].to_vec());
    *local.job = Some(job(move |opened, reply| {
        let mut found = FoundKeys::new(reply.room());
        for_each_key(opened, database, |key, _| {
            if glob::matches(&pattern, key, false) {
                found.add(key);
            }
        })?;
        found.write(reply);
        Ok(())
    }));
    Ok(())
}

/// KEYS in a script: over the keys as its transaction sees them.
pub fn keys_in_transaction(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (mut found, mut cursor) = (FoundKeys::new(reply.room()), 0);
    loop {
        cursor = space.walk(cursor, usize::MAX, |key, _| {
            if glob::matches(args[1], key, false) {
                found.add(key);
            }
        })?;
        if cursor == 0 {
            found.write(reply);
            return Ok(());
        }
    }
}

/// The number of keys of a slot, in database 0.
pub fn count_in_slot(slot: u16) -> Job {
    job(move |opened, reply| {
        let mut keys = 0;
        for_each_key(opened, 0, |key, _| keys += i64::from(slot_of(key) == slot))?;
        reply.integer(keys);
        Ok(())
    })
}

/// At most this many keys of a slot, in database 0.
pub fn in_slot(slot: u16, most: usize) -> Job {
    job(move |opened, reply| {
        let (mut found, mut left) = (FoundKeys::new(reply.room()), most);
        for_each_key(opened, 0, |key, _| {
            if left > 0 && slot_of(key) == slot {
                found.add(key);
                left -= 1;
            }
        })?;
        found.write(reply);
        Ok(())
    })
}

/// Places at which RANDOMKEY looks for a key, and keys among which RANDOMKEY chooses. As in Redis,
/// a key is likelier the fewer keys are near.
const RANDOM_PLACES: usize = 32;
const RANDOM_KEYS: usize = 16;

/// An exclusive bound of a walk's cursor.
const CURSORS: u64 = 1 << 52;

pub fn randomkey(space: &Keyspace<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let random = |below: u64| fastrand::u64(0..below);
    if space.counts().is_exact() && space.count_keys() == 0 {
        // The count is updated after each commit, and may be wrong for a moment.
        return some_key(space, 0, reply);
    }
    for _ in 0..RANDOM_PLACES {
        let found = keys_from(space, random(CURSORS), RANDOM_KEYS)?;
        if !found.is_empty() {
            reply.bulk(found[random(found.len() as u64) as usize]);
            return Ok(());
        }
    }
    some_key(space, random(CURSORS), reply)
}

/// The keys of a step from `begin`, each once. At the end the step goes on at the beginning:
/// otherwise the first keys would hardly ever be found, and the last key alone too often.
fn keys_from<'t>(space: &Keyspace<'t>, begin: u64, count: usize) -> Result<Vec<&'t [u8]>, Stop> {
    let mut found = Vec::new();
    let next = space.walk(begin, count, |key, _| found.push(key))?;
    if next == 0 && found.len() < count {
        let from_begin = found.len();
        space.walk(0, count - from_begin, |key, _| {
            if !found[..from_begin].contains(&key) {
                found.push(key)
            }
        })?;
    }
    Ok(found)
}

/// Replies the first key of a walk from `begin`, which goes round once.
fn some_key(space: &Keyspace<'_>, begin: u64, reply: &mut Reply<'_>) -> Done {
    for (mut cursor, end) in [(begin, CURSORS), (0, begin)] {
        while cursor < end {
            let mut found = None;
            let next = space.walk(cursor, 1, |key, _| found = Some(key))?;
            if let Some(key) = found {
                reply.bulk(key);
                return Ok(());
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
    }
    reply.null();
    Ok(())
}

/// The keys of SCAN are read in its transaction, so the reply waits for the disk like any read. A
/// key that exists from the first call to the last is returned exactly once, or after a restart at
/// least once.
pub fn scan(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let from = integer(args[1]).ok().and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let (mut count, mut pattern, mut kind) = (10, None, None);
    for option in args[2..].chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        if is(option, "COUNT") {
            count = integer(value)?.try_into().ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
        } else if is(option, "MATCH") {
            pattern = Some(value);
        } else if is(option, "TYPE") {
            kind = Some(KINDS.into_iter().find(|kind| is(value, kind.name())));
        } else {
            return Err(SYNTAX.into());
        }
    }
    let mut found = Vec::new();
    let next = space.walk(from, count, |key, head| {
        let has_kind = kind.is_none_or(|kind| kind == Some(head.kind()));
        if has_kind && pattern.is_none_or(|pattern| glob::matches(pattern, key, false)) {
            found.push(key);
        }
    })?;
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many keys there are: keys beyond the room of the reply take no memory.
    #[test]
    fn keys_are_kept_until_they_are_too_many() {
        for (length, room) in [(0, 100), (1, 100), (10, 100), (10, 1_000), (99, 100), (200, 100)] {
            let key = vec![b'k'; length];
            let mut found = FoundKeys::new(room);
            let mut too_long = 0;
            for count in 1..=500 {
                found.add(&key);
                let mut out = Vec::new();
                let mut reply = Reply::limited(&mut out, false, room as u64);
                found.write(&mut reply);
                match reply.is_too_long() {
                    false => assert_eq!(found.ends.len(), count, "all are written"),
                    true => too_long += 1,
                }
            }
            assert!(too_long > 0, "{length} bytes, room for {room}");
            assert!(found.names.len() + HEAD_BYTES * found.ends.len() <= room + length + 12);
        }
    }
}
