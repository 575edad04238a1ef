//! Commands on the server.

use super::{Done, Job, Local, SYNTAX, is};
use crate::base::clock::wall_us;
use crate::client::Durability;
use crate::config::Settings;
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use crate::state::{Shared, Stopping};
use hyades::BackupReport;
use std::path::{Path, PathBuf};

pub fn time(_: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let now = wall_us();
    reply.array(2);
    reply.bulk((now / 1_000_000).to_string().as_bytes());
    reply.bulk((now % 1_000_000).to_string().as_bytes());
    Ok(())
}

/// There is nothing to save: each sent reply is on disk.
pub fn shutdown(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let is_known = |arg: &&[u8]| ["NOSAVE", "SAVE", "NOW", "FORCE"].iter().any(|w| is(arg, w));
    let is_both =
        |args: &[&[u8]]| ["NOSAVE", "SAVE"].iter().all(|word| args.iter().any(|arg| is(arg, word)));
    match &args[1..] {
        [abort] if is(abort, "ABORT") => Err("ERR No shutdown in progress.".into()),
        flags if flags.iter().all(is_known) && !is_both(flags) => {
            local.client.is_closing = true;
            local.shared.stop(Stopping::Asked);
            // A client takes the closed connection for the reply.
            let _ = reply;
            Ok(())
        }
        _ => Err(SYNTAX.into()),
    }
}

pub fn role(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    super::info::role(local.shared, reply);
    Ok(())
}

/// There are no replicas to wait for.
pub fn wait(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    #[cfg(feature = "replication")]
    if local.shared.membership.is_on() {
        return super::members::wait(local, args, reply);
    }
    let _ = local;
    super::integer(args[1])?;
    if super::integer(args[2]).map_err(|_| "ERR timeout is not an integer or out of range")? < 0 {
        return Err("ERR timeout is negative".into());
    }
    reply.integer(0);
    Ok(())
}

/// The reply leaves when everything that the client was told before, or is to be told, is on disk
/// here; there are no replicas to wait for.
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
    #[cfg(feature = "replication")]
    if local.shared.membership.is_on() {
        return super::members::waitaof(local, args, reply);
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
            // So the OK says that everything before it is on disk.
            client.waits_for_disk = client.durability == Durability::Acknowledged;
            reply.ok();
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

/// Whether an error of a command undoes the whole EXEC.
pub fn rollback(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let client = &mut local.client;
    match &args[1..] {
        [] => reply.bulk(if client.rolls_back { b"on" } else { b"off" }),
        [how] if is(how, "ON") || is(how, "OFF") => {
            client.rolls_back = is(how, "ON");
            reply.ok();
        }
        _ => return Err("ERR choose on (an error undoes all of EXEC) or off".into()),
    }
    Ok(())
}

/// The id of the client's last writing transaction, for `hyades recover --until`.
pub fn last(local: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    // The named transaction is on disk before the reply, whatever the client's durability is.
    local.client.waits_for_disk = true;
    let id = local.client.last.map(|id| id.to_string());
    reply.bulk_or_null(id.as_ref().map(String::as_bytes));
    Ok(())
}

/// Longest name of a backup, in bytes.
const LONGEST_NAME: usize = 255;

/// The directory of a backup: the name is a component below `backup-dir`, and no option of any
/// program.
fn backup_dir(settings: &Settings, name: &[u8]) -> Result<PathBuf, Stop> {
    let dir = settings.backup_dir().ok_or(
        "ERR there is no backup-dir: start the server with --backup-dir DIR, the directory below \
         which backups are made",
    )?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+:@".contains(byte);
    let is_name = name.first().is_some_and(u8::is_ascii_alphanumeric)
        && name.len() <= LONGEST_NAME
        && name.iter().all(is_plain);
    match std::str::from_utf8(name) {
        Ok(name) if is_name => Ok(dir.join(name)),
        _ => Err("ERR the name of a backup has letters, digits and -_.+:@, begins with a letter \
                  or digit, and has at most 255 of them"
            .into()),
    }
}

/// Copies the database during use, and reads the copy back.
pub fn backup(local: &mut Local<'_>, args: &[&[u8]], _: &mut Reply<'_>) -> Done {
    let dir = backup_dir(&local.shared.settings, args[1])?;
    *local.job = Some(Job::long(move |shared, reply| match copy(shared, &dir) {
        Ok(report) => {
            reply.map(3);
            reply.bulk(b"directory");
            reply.bulk(dir.as_os_str().as_encoded_bytes());
            for (name, count) in [("files", report.files), ("bytes", report.bytes)] {
                reply.bulk(name.as_bytes());
                reply.integer(count as i64);
            }
        }
        Err(text) if text.starts_with("LOADING ") => reply.error(&text),
        Err(text) => reply.error(&format!("ERR {text}")),
    }));
    Ok(())
}

fn copy(shared: &Shared, dir: &Path) -> Result<BackupReport, String> {
    let above = dir.parent().expect("it is below backup-dir");
    let cannot = |error| format!("cannot create {}: {error}", above.display());
    std::fs::create_dir_all(above).map_err(cannot)?;
    let opened = shared.opened()?;
    // The error names the directory, and says what is wrong with it.
    opened.database.backup(dir).map_err(|error| error.to_string())
}

pub fn lolwut(_: &mut Local<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    reply.verbatim(&format!("Hyades {version}, as Redis ver. {}\n", super::info::REDIS_VERSION));
    Ok(())
}
