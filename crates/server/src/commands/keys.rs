//! Commands that walk over all keys. They run as jobs, on a snapshot: event loops go on meanwhile,
//! and what is replied is on disk.

use super::{Done, Job, Local, SYNTAX, integer, is};
use crate::data::databases;
use crate::data::head::{Head, KINDS, Kind};
use crate::glob;
use crate::resp::reply::Reply;
use crate::shared::{Opened, Shared};
use hyades::{Column, Columns, Error, Row};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

const GENERATION: Column<u64> = Column::at(0);
const KEY: Column<[u8]> = Column::at(1);
const HEAD: Column<u64> = Column::at(2);
const WITHOUT_BODY: Columns = Columns::of(&[0, 1, 2]);

/// Visits the keys of a database that have not expired.
fn for_each_key(
    shared: &Shared,
    database: u32,
    mut visit: impl FnMut(&[u8], Head),
) -> Result<(), Error> {
    let Opened { database: db, tables } = shared.opened.get().expect("checked before the job");
    let (tables, now) = (*tables, shared.clock.now_ms());
    let snapshot = db.open_snapshot();
    let generation = snapshot.read(|tx| Ok(databases::generation(tx, tables, database)?))?;
    snapshot.for_each(tables.keys, WITHOUT_BODY, |row: &Row<'_>| {
        let head = Head::from_word(row.get(HEAD)).filter(|head| !head.is_expired(now));
        if let Some(head) = head.filter(|_| row.get(GENERATION) == generation) {
            visit(row.get(KEY), head);
        }
    })?;
    Ok(())
}

/// A job whose failure is its reply.
fn job(run: impl FnOnce(&Shared, &mut Reply<'_>) -> Result<(), Error> + Send + 'static) -> Job {
    Job::new(move |shared, reply| {
        let position = reply.position();
        if let Err(error) = run(shared, reply) {
            reply.truncate(position);
            reply.error(&format!("ERR {error}"));
        }
    })
}

pub fn keys(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let (database, pattern) = (local.client.database, args[1].to_vec());
    *local.job = Some(job(move |shared, reply| {
        let mut found = Vec::new();
        for_each_key(shared, database, |key, _| {
            if glob::matches(&pattern, key, false) {
                found.push(key.to_vec());
            }
        })?;
        reply.array(found.len());
        found.iter().for_each(|key| reply.bulk(key));
        Ok(())
    }));
    Ok(())
}

pub fn randomkey(local: &mut Local<'_>, _: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let database = local.client.database;
    *local.job = Some(job(move |shared, reply| {
        let (mut seen, mut chosen) = (0, None);
        for_each_key(shared, database, |key, _| {
            seen += 1;
            // Each key is chosen with the same probability, though their number is not known.
            if fastrand::u64(0..seen) == 0 {
                chosen = Some(key.to_vec());
            }
        })?;
        reply.bulk_or_null(chosen.as_deref());
        Ok(())
    }));
    Ok(())
}

/// The order in which SCAN visits keys: 43 bits of a hash, so that a cursor fits into the integers
/// of every client. FNV-1a, finished as in MurmurHash3.
fn scan_position(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ hash >> 33) >> 21
}

/// Each call visits all keys, so it returns at least this share of them: a whole scan takes as many
/// walks at most.
const MOST_CALLS: u64 = 64;

struct Wanted {
    database: u32,
    /// Positions from here on were not returned yet.
    from: u64,
    count: usize,
    pattern: Option<Vec<u8>>,
    kind: Option<Option<Kind>>,
}

/// A key that exists during the whole scan is returned exactly once: its position never changes.
pub fn scan(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let from = integer(args[1]).ok().and_then(|from| u64::try_from(from).ok());
    let from = from.ok_or("ERR invalid cursor")?;
    let database = local.client.database;
    let mut wanted = Wanted { database, from, count: 10, pattern: None, kind: None };
    for option in args[2..].chunks(2) {
        let &[option, value] = option else { return Err(SYNTAX.into()) };
        if is(option, "COUNT") {
            wanted.count = integer(value)?.try_into().ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
        } else if is(option, "MATCH") {
            wanted.pattern = Some(value.to_vec());
        } else if is(option, "TYPE") {
            wanted.kind = Some(KINDS.into_iter().find(|kind| is(value, kind.name())));
        } else {
            return Err(SYNTAX.into());
        }
    }
    *local.job = Some(job(move |shared, reply| scan_from(shared, &wanted, reply)));
    Ok(())
}

fn scan_from(shared: &Shared, wanted: &Wanted, reply: &mut Reply<'_>) -> Result<(), Error> {
    // By position; several keys may share one, and are returned together.
    let mut lowest: BTreeMap<u64, Vec<(Vec<u8>, Head)>> = BTreeMap::new();
    let mut kept = 0;
    // Positions from here on are left to later calls.
    let mut end = u64::MAX;
    let all = shared.counts.all() as u64 / MOST_CALLS;
    let count = wanted.count.max(all as usize);
    for_each_key(shared, wanted.database, |key, head| {
        let position = scan_position(key);
        if !(wanted.from..end).contains(&position) {
            return;
        }
        lowest.entry(position).or_default().push((key.to_vec(), head));
        kept += 1;
        while lowest.last_key_value().is_some_and(|(_, last)| kept - last.len() >= count) {
            let (position, last) = lowest.pop_last().expect("it was found");
            kept -= last.len();
            end = position;
        }
    })?;
    let next = if end == u64::MAX { 0 } else { end };
    let fits = |(key, head): &&(Vec<u8>, Head)| {
        let has_name = wanted.pattern.as_ref().is_none_or(|p| glob::matches(p, key, false));
        has_name && wanted.kind.is_none_or(|kind| kind == Some(head.kind()))
    };
    let found: Vec<_> = lowest.values().flatten().filter(fits).collect();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|(key, _)| reply.bulk(key));
    Ok(())
}

/// SAVE, BGSAVE and BGREWRITEAOF take a checkpoint: what is acknowledged is on disk before it, and
/// after it.
pub fn save(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let said = match args[0] {
        name if is(name, "BGSAVE") => "Background saving started",
        name if is(name, "BGREWRITEAOF") => "Background append only file rewriting started",
        _ => "OK",
    };
    let mut job = job(move |shared, reply| {
        shared.opened.get().expect("checked before the job").database.checkpoint()?;
        shared.counters.changes.store(0, Relaxed);
        reply.simple(said);
        Ok(())
    });
    job.is_slow = true;
    *local.job = Some(job);
    Ok(())
}
