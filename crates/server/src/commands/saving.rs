//! SAVE, BGSAVE, BGREWRITEAOF and LASTSAVE.

use super::{Done, Job, Local, SYNTAX, is};
use crate::resp::reply::Reply;
use crate::state::saves::{Begun, SaveKind};

const UNDER_WAY: &str = "ERR Background save already in progress";

/// Replies once the checkpoint was taken.
pub fn save(local: &mut Local<'_>, _: &[&[u8]], _: &mut Reply<'_>) -> Done {
    *local.job = Some(Job::long(|shared, reply| {
        let opened = match shared.opened() {
            Ok(opened) => opened,
            Err(text) => return reply.error(&text),
        };
        let changes = &shared.stats.counters.changes;
        match shared.store.saves.save(&opened.database, changes) {
            Some(Ok(())) => reply.ok(),
            Some(Err(error)) => reply.error(&format!("ERR {error}")),
            None => reply.error(UNDER_WAY),
        }
    }));
    Ok(())
}

pub fn bgsave(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let may_follow = match &args[1..] {
        [] => false,
        [word] if is(word, "SCHEDULE") => true,
        _ => return Err(SYNTAX.into()),
    };
    // In EXEC the save is said to follow, as in Redis: it begins when the transaction has
    // committed.
    let follows = may_follow || local.is_in_exec;
    match local.shared.store.saves.begin_in_background(SaveKind::Save, follows) {
        Some(Begun::Started) if !local.is_in_exec => reply.simple("Background saving started"),
        Some(_) => reply.simple("Background saving scheduled"),
        None if local.shared.store.saves.stats(SaveKind::Save).since.is_some() => {
            return Err(UNDER_WAY.into());
        }
        None => {
            let text = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use \
                        BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.";
            return Err(text.into());
        }
    }
    Ok(())
}

pub fn bgrewriteaof(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match local.shared.store.saves.begin_in_background(SaveKind::Rewrite, true) {
        Some(Begun::Started) if !local.is_in_exec => {
            reply.simple("Background append only file rewriting started");
        }
        Some(_) => reply.simple("Background append only file rewriting scheduled"),
        None => {
            return Err("ERR Background append only file rewriting already in progress".into());
        }
    }
    Ok(())
}

pub fn lastsave(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    reply.integer(local.shared.last_save_seconds());
    Ok(())
}
