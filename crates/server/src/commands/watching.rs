//! WATCH and UNWATCH. The state seen by WATCH is compared inside EXEC's transaction, which
//! validates the comparison with all other reads: no write falls between the comparison and the
//! commit.

use super::Done;
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;

/// Most keys of a WATCH, which runs on an event loop and may write the keys' rows.
const MOST_KEYS: usize = 4_096;

/// Most bytes of the keys' names.
const MOST_BYTES: usize = 2 << 20;

pub fn watch(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() > MOST_KEYS + 1 {
        return Err(format!("ERR WATCH names more than {MOST_KEYS} keys").into());
    }
    if args[1..].iter().map(|key| key.len()).sum::<usize>() > MOST_BYTES {
        return Err("ERR the keys that WATCH names have more than 2 MiB".into());
    }
    for key in &args[1..] {
        space.watch(key)?;
    }
    reply.ok();
    Ok(())
}

pub fn unwatch(space: &Keyspace<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    space.unwatch();
    reply.ok();
    Ok(())
}
