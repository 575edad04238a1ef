//! Times of expiry.

use super::{Done, integer, is};
use crate::data::head::Head;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;

/// Conditions on the time of expiry, compared with the current time of expiry.
#[derive(Default)]
struct ExpireOptions {
    only_if_none: bool,
    only_if_some: bool,
    only_if_later: bool,
    only_if_earlier: bool,
}

fn expire_options(args: &[&[u8]]) -> Result<ExpireOptions, Stop> {
    let mut options = ExpireOptions::default();
    for option in args {
        match option {
            _ if is(option, "NX") => options.only_if_none = true,
            _ if is(option, "XX") => options.only_if_some = true,
            _ if is(option, "GT") => options.only_if_later = true,
            _ if is(option, "LT") => options.only_if_earlier = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unsupported option {option}").into());
            }
        }
    }
    if options.only_if_none
        && (options.only_if_some || options.only_if_later || options.only_if_earlier)
    {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.into());
    }
    if options.only_if_later && options.only_if_earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(options)
}

/// Sets the time of expiry of a key to `base_ms` and the argument, in units of `unit_ms`.
fn set_expiry(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    (unit_ms, base_ms, name): (i64, i64, &str),
) -> Done {
    let given = integer(args[2])?;
    let options = expire_options(&args[3..])?;
    let at = given.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base_ms));
    let at = at.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let entry = space.find_head(args[1])?;
    let Some(head) = entry.head() else {
        reply.integer(0);
        return Ok(());
    };
    let now = head.expires();
    let is_refused = options.only_if_none && now.is_some()
        || options.only_if_some && now.is_none()
        || options.only_if_later && now.is_none_or(|now| at <= now)
        || options.only_if_earlier && now.is_some_and(|now| at >= now);
    if !is_refused {
        // A past time removes the key.
        entry.change(head.with_expiry(Some(at)), None)?;
    }
    reply.integer(i64::from(!is_refused));
    Ok(())
}

pub fn expire(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_expiry(space, args, reply, (1_000, space.now_ms(), "expire"))
}

pub fn pexpire(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_expiry(space, args, reply, (1, space.now_ms(), "pexpire"))
}

pub fn expireat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_expiry(space, args, reply, (1_000, 0, "expireat"))
}

pub fn pexpireat(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    set_expiry(space, args, reply, (1, 0, "pexpireat"))
}

pub fn persist(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find_head(args[1])?;
    let head = entry.head().filter(|head| head.expires().is_some());
    if let Some(head) = head {
        entry.change(head.with_expiry(None), None)?;
    }
    reply.integer(i64::from(head.is_some()));
    Ok(())
}

/// Replies -2 if the key does not exist, -1 if the key does not expire, else the result of `show`
/// for the time.
fn show(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    show: impl Fn(i64) -> i64,
) -> Done {
    reply.integer(match space.read_head(args[1])?.head().map(Head::expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => show(at),
    });
    Ok(())
}

pub fn ttl(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| (at - space.now_ms() + 500) / 1_000)
}

pub fn pttl(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| at - space.now_ms())
}

pub fn expiretime(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| (at + 500) / 1_000)
}

pub fn pexpiretime(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show(space, args, reply, |at| at)
}
