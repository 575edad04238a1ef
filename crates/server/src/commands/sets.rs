//! Sets in their packed form: a change writes the whole set.

use super::lists::{elements, store};
use super::{Done, SYNTAX, integer};
use crate::data::head::Kind;
use crate::data::keyspace::Keyspace;
use crate::resp::reply::Reply;
use std::collections::HashSet;

pub fn sadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::Set)?;
    let (mut known, before): (HashSet<&[u8]>, _) = (all.iter().copied().collect(), all.len());
    all.extend(args[2..].iter().filter(|member| known.insert(member)));
    let added = all.len() - before;
    if added > 0 {
        store(space, args[1], &entry, Kind::Set, all)?;
    }
    reply.count(added);
    Ok(())
}

pub fn srem(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let mut all = elements(&entry, Kind::Set)?;
    let (removed, before): (HashSet<&[u8]>, _) = (args[2..].iter().copied().collect(), all.len());
    all.retain(|member| !removed.contains(member));
    let count = before - all.len();
    if count > 0 {
        store(space, args[1], &entry, Kind::Set, all)?;
    }
    reply.count(count);
    Ok(())
}

pub fn scard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.count(elements(&space.read(args[1])?, Kind::Set)?.len());
    Ok(())
}

pub fn smembers(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    reply.set(all.len());
    all.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

pub fn sismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    reply.integer(i64::from(all.contains(&args[2])));
    Ok(())
}

pub fn smismember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let all = elements(&space.read(args[1])?, Kind::Set)?;
    reply.array(args.len() - 2);
    args[2..].iter().for_each(|member| reply.integer(i64::from(all.contains(member))));
    Ok(())
}

/// Most members that a negative count may ask for.
const MOST_DRAWN: u64 = 1 << 20;

pub fn srandmember(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = match &args[2..] {
        [] => None,
        [count] => Some(integer(count)?),
        _ => return Err(SYNTAX.into()),
    };
    let mut all = elements(&space.read(args[1])?, Kind::Set)?;
    let Some(count) = count else {
        let chosen = (!all.is_empty()).then(|| all[fastrand::usize(..all.len())]);
        reply.bulk_or_null(chosen);
        return Ok(());
    };
    let wanted = count.unsigned_abs();
    if count < 0 && wanted > MOST_DRAWN {
        return Err("ERR value is out of range".into());
    }
    // A negative count draws each member anew; a positive one draws different members.
    let drawn: Vec<&[u8]> = if all.is_empty() {
        Vec::new()
    } else if count < 0 {
        (0..wanted).map(|_| all[fastrand::usize(..all.len())]).collect()
    } else {
        fastrand::shuffle(&mut all);
        all.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        all
    };
    reply.array(drawn.len());
    drawn.iter().for_each(|member| reply.bulk(member));
    Ok(())
}
