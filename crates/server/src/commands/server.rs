//! Commands on the server.

use super::{Done, Local, SYNTAX, is};
use crate::clock::wall_us;
use crate::conversation::Durability;
use crate::resp::reply::Reply;
use crate::shared::Stopping;

pub fn time(_: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let now = wall_us();
    reply.array(2);
    reply.bulk((now / 1_000_000).to_string().as_bytes());
    reply.bulk((now % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// There is nothing to save: each reply that was sent is on disk.
pub fn shutdown(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let is_known = |arg: &&[u8]| ["NOSAVE", "SAVE", "NOW", "FORCE"].iter().any(|w| is(arg, w));
    match &args[1..] {
        [abort] if is(abort, "ABORT") => Err("ERR No shutdown in progress.".into()),
        flags if flags.iter().all(is_known) => {
            local.client.is_closing = true;
            local.shared.stop(Stopping::Asked);
            // A client takes the closed connection for the reply.
            let _ = reply;
            Ok(())
        }
        _ => Err(SYNTAX.into()),
    }
}

pub fn lastsave(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(local.shared.last_save_seconds());
    Ok(())
}

pub fn role(_: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

/// There are no replicas to wait for.
pub fn wait(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    super::integer(args[1])?;
    super::integer(args[2])?;
    reply.integer(0);
    Ok(())
}

/// Its reply leaves when all that the client was told before, or is to be told, is on disk here;
/// there are no replicas to wait for.
pub fn waitaof(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let is_local = super::integer(args[1])?;
    if !(0..=1).contains(&is_local) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    if super::integer(args[2])? < 0 {
        return Err("ERR value is out of range, must be positive".into());
    }
    if super::integer(args[3]).map_err(|_| "ERR timeout is not an integer or out of range")? < 0 {
        return Err("ERR timeout is negative".into());
    }
    local.client.waits_for_disk = is_local == 1;
    reply.array(2);
    reply.integer(1);
    reply.integer(0);
    Ok(())
}

/// When the client is told of its transactions: when they are on disk, or before.
pub fn durability(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let client = &mut local.client;
    match &args[1..] {
        [] => reply.bulk(client.durability.name().as_bytes()),
        [name] => {
            client.durability = Durability::named(name)
                .ok_or("ERR choose ack (replies are sent when they are on disk), 1s or none")?;
            // So this OK says that all before it is on disk.
            client.waits_for_disk = client.durability == Durability::Acknowledged;
            reply.ok();
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

pub fn lolwut(_: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    reply.verbatim(&format!("Hyades {version}\n"));
    Ok(())
}

/// No functions can be loaded, so there are none to flush or to list.
pub fn function(_: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match &args[1..] {
        [what, ..] if is(what, "FLUSH") => reply.ok(),
        [what, ..] if is(what, "LIST") => reply.array(0),
        _ => return Err("ERR functions are not built yet: there is no Lua".into()),
    }
    Ok(())
}
