//! WATCH and UNWATCH. What WATCH has seen is compared inside EXEC's transaction, which validates
//! it with all else that it reads: no write comes between the comparison and the commit.

use super::Done;
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;

/// Most keys of one WATCH: it runs on an event loop.
const MOST_KEYS: usize = 4_096;

pub fn watch(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() > MOST_KEYS + 1 {
        return Err(format!("ERR WATCH names more than {MOST_KEYS} keys").into());
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
