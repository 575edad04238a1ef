//! ACL: users, and their rights.

use super::client::kill_all;
use super::{Done, Job, Local, help, integer, is, lower};
use super::{unknown_subcommand, wrong_arity};
use crate::access::{Access, DEFAULT, Denied, Selector, User, Users, hexadecimal, user_name};
use crate::catalogue::{self, NamedChannels, names};
use crate::clients::ClientEntry;
use crate::clients::channels::Topic;
use crate::config;
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;
use hyades_platform::sync::Unpoisoned;
use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    The categories, or the commands of one.",
    "DELUSER <user> [<user> ...]",
    "    Removes users, and disconnects their clients.",
    "DRYRUN <user> <command> [<arg> ...]",
    "    Whether a user may run a command, which is not run.",
    "GENPASS [<bits>]",
    "    A random password, of 256 bits if nothing else is said.",
    "GETUSER <user>",
    "    The passwords, as hashes, and the rules of a user.",
    "LIST",
    "    All users, as lines of a file.",
    "LOAD",
    "    Reads the file of users again.",
    "LOG [<count>|RESET]",
    "    What was refused last.",
    "SAVE",
    "    Writes the file of users.",
    "SETUSER <user> [<rule> ...]",
    "    Adds a user, or rules to one.",
    "USERS",
    "    The names of all users.",
    "WHOAMI",
    "    The name of this connection's user.",
    "HELP",
    "    This help.",
];

/// Subcommands, with the least and the most arguments behind them.
const SUBCOMMANDS: [(&str, usize, usize); 13] = [
    ("deluser", 1, usize::MAX),
    ("dryrun", 2, usize::MAX),
    ("genpass", 0, usize::MAX),
    ("getuser", 1, 1),
    ("help", 0, 0),
    ("list", 0, 0),
    ("load", 0, 0),
    ("log", 0, usize::MAX),
    ("save", 0, 0),
    ("setuser", 1, usize::MAX),
    ("users", 0, 0),
    ("whoami", 0, 0),
    ("cat", 0, usize::MAX),
];

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
                       to specify users via the ACL SETUSER command and then issue a CONFIG \
                       REWRITE (assuming you have a Redis configuration file set) in order to \
                       store users in the Redis configuration.";

pub fn acl(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let what = lower(args[1]);
    let known = SUBCOMMANDS.iter().find(|(name, ..)| *name == what);
    if known.is_some_and(|(_, least, most)| !(*least..=*most).contains(&(args.len() - 2))) {
        return Err(wrong_arity(&format!("acl|{what}")));
    }
    let access = &local.shared.access;
    match (what.as_str(), &args[2..]) {
        ("whoami", _) => reply.bulk(local.client.login.name().as_bytes()),
        ("users", _) => {
            let users = access.users();
            reply.array(users.iter().count());
            users.iter().for_each(|user| reply.bulk(user.name.as_bytes()));
        }
        ("list", _) => {
            let users = access.users();
            reply.array(users.iter().count());
            users.iter().for_each(|user| reply.bulk(&user.line()));
        }
        ("getuser", [name]) => get_user(find(&access.users(), name), reply),
        ("setuser", [name, rules @ ..]) => set_user(local, name, rules, reply)?,
        ("deluser", names) => delete_users(local, names, reply)?,
        ("cat", []) => {
            reply.array(catalogue::CATEGORIES.len());
            catalogue::CATEGORIES.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        ("cat", [category]) => list_category(category, reply)?,
        ("genpass", options @ ([] | [_])) => generate(options.first().copied(), reply)?,
        ("log", options @ ([] | [_])) => log(local, options.first().copied(), reply)?,
        ("dryrun", [name, command @ ..]) => dry_run(&access.users(), name, command, reply)?,
        ("load", _) => load(local, reply)?,
        ("save", _) => save(local)?,
        ("help", _) => help(reply, HELP),
        _ => return Err(unknown_subcommand("acl", args[1])),
    }
    Ok(())
}

fn find<'u>(users: &'u Users, name: &[u8]) -> Option<&'u Arc<User>> {
    std::str::from_utf8(name).ok().and_then(|name| users.find(name))
}

fn get_user(user: Option<&Arc<User>>, reply: &mut Reply<'_>) {
    let Some(user) = user else { return reply.null() };
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().count());
    user.passwords().for_each(|hash| reply.bulk(hash.as_bytes()));
    let (own, more) = user.selectors().split_first().expect("a user has rules");
    write_selector(own, reply);
    reply.bulk(b"selectors");
    reply.array(more.len());
    for selector in more {
        reply.map(3);
        write_selector(selector, reply);
    }
}

fn write_selector(selector: &Selector, reply: &mut Reply<'_>) {
    reply.bulk(b"commands");
    reply.bulk(selector.describe_commands().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.describe_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.describe_channels());
}

fn set_user(local: &mut Local<'_>, name: &[u8], rules: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let wrong = "ERR Usernames can't contain spaces or null characters";
    let name = user_name(name).ok_or(wrong)?;
    let change = local.shared.access.change(|users| users.change(name, rules));
    change.map_err(|error| Stop::from(format!("ERR {error}")))?;
    reply.ok();
    let users = local.shared.access.users();
    // Another client may have deleted the user again, and has disconnected the user's clients then.
    let Some(user) = users.find(name) else { return Ok(()) };
    let has_subscribed = |client: &Arc<ClientEntry>| {
        client.listens() && client.names.lock().unpoisoned().user == name
    };
    let mut clients = local.shared.clients.list();
    clients.retain(has_subscribed);
    let is_allowed = |topic: Topic, channel: &[u8]| {
        let is_pattern = topic == Topic::Pattern;
        let channels = if is_pattern { NamedChannels::Patterns } else { NamedChannels::Names };
        user.allows_channel(channel, channels)
    };
    let ids = clients.iter().map(|client| client.id).collect();
    let beyond = local.shared.wiring.channels.listeners_beyond(&ids, is_allowed);
    clients.retain(|client| beyond.contains(&client.id));
    kill_all(local, &clients);
    Ok(())
}

fn delete_users(local: &mut Local<'_>, names: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if names.contains(&DEFAULT.as_bytes()) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let names = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
    let names: HashSet<&str> = names.collect();
    let change: Result<_, std::convert::Infallible> = local
        .shared
        .access
        .change(|users| Ok(names.iter().filter(|name| users.remove(name)).count()));
    let Ok((removed, _)) = change;
    disconnect(local, |user| names.contains(user));
    reply.count(removed);
    Ok(())
}

/// Disconnects the clients of some users.
fn disconnect(local: &mut Local<'_>, is_one: impl Fn(&str) -> bool) {
    let mut clients = local.shared.clients.list();
    clients.retain(|client| is_one(&client.names.lock().unpoisoned().user));
    kill_all(local, &clients);
}

fn list_category(category: &[u8], reply: &mut Reply<'_>) -> Done {
    let shown = String::from_utf8_lossy(&category[..category.len().min(128)]);
    let wrong = || Stop::from(format!("ERR Unknown category '{shown}'"));
    let bit = catalogue::category(category).ok_or_else(wrong)?;
    let all = names::all().iter().filter(|named| named.categories & bit != 0);
    reply.array(all.clone().count());
    all.for_each(|named| reply.bulk(named.name.as_bytes()));
    Ok(())
}

/// Most bits of a password.
const MOST_BITS: i64 = 4_096;

fn generate(bits: Option<&[u8]>, reply: &mut Reply<'_>) -> Done {
    let bits = bits.map_or(Ok(256), integer)?;
    if !(1..=MOST_BITS).contains(&bits) {
        let text = "ERR ACL GENPASS argument must be the number of bits for the output password, \
                    a positive number up to 4096";
        return Err(text.into());
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| Stop::from(format!("ERR the system has no random numbers: {error}")))?;
    reply.bulk(&hexadecimal(&random).as_bytes()[..digits]);
    Ok(())
}

/// Number of entries that ACL LOG shows by default.
const LOGGED: i64 = 10;

fn log(local: &Local<'_>, option: Option<&[u8]>, reply: &mut Reply<'_>) -> Done {
    let denied = &local.shared.access.denied;
    let count = match option {
        Some(word) if is(word, "RESET") => {
            denied.clear();
            reply.ok();
            return Ok(());
        }
        Some(count) => integer(count)?,
        None => LOGGED,
    };
    let entries = denied.last(count.max(0) as usize);
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        let fields = [("reason", entry.reason.word()), ("context", entry.place.word())];
        for (name, value) in fields {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"object");
        reply.bulk(&entry.object);
        reply.bulk(b"username");
        reply.bulk(entry.user.as_bytes());
        reply.bulk(b"age-seconds");
        reply.double((local.now_ms - entry.at_ms).max(0) as f64 / 1_000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

fn dry_run(users: &Users, name: &[u8], args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let shown = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(128)]).into_owned();
    let missing = || Stop::from(format!("ERR User '{}' not found", shown(name)));
    let user = find(users, name).ok_or_else(missing)?;
    let missing = || Stop::from(format!("ERR Command '{}' not found", shown(args[0])));
    let named = &names::all()[names::of_request(args).ok_or_else(missing)?];
    if let Some(command) = catalogue::command(args[0])
        && !command.takes(args.len())
    {
        return Err(wrong_arity(named.name));
    }
    let text = "This user has no permissions to";
    match user.check(args) {
        Ok(()) => reply.ok(),
        Err(Denied::Command) => {
            reply.bulk(format!("{text} run the '{}' command", named.name).as_bytes());
        }
        Err(Denied::Key(at)) => {
            reply.bulk(format!("{text} access the '{}' key", shown(args[at])).as_bytes());
        }
        Err(Denied::Channel(at)) => {
            reply.bulk(format!("{text} access the '{}' channel", shown(args[at])).as_bytes());
        }
    }
    Ok(())
}

/// Reads the small file of users. The clients of the users have to log in again.
fn load(local: &mut Local<'_>, reply: &mut Reply<'_>) -> Done {
    let file = local.shared.settings.acl_file().ok_or(NO_FILE)?;
    let name = file.display().to_string();
    let text = std::fs::read(&file).map_err(|error| {
        Stop::from(format!("ERR Error loading ACLs, opening file '{name}': {error}"))
    })?;
    let change = local.shared.access.change(|users| users.read(&text, &name));
    change.map_err(|error| Stop::from(format!("ERR {error}")))?;
    disconnect(local, |user| user != DEFAULT);
    reply.ok();
    Ok(())
}

fn save(local: &mut Local<'_>) -> Done {
    let file = local.shared.settings.acl_file().ok_or(NO_FILE)?;
    *local.job = Some(Job::on_disk(move |shared, reply| {
        match config::replace(&file, &lines(&shared.access)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&format!("ERR cannot write {}: {error}", file.display())),
        }
    }));
    Ok(())
}

fn lines(access: &Access) -> Vec<u8> {
    let with_end = |user: &Arc<User>| [&user.line()[..], b"\n"].concat();
    access.users().iter().flat_map(with_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_can_be_allowed_by_name() {
        for (name, ..) in SUBCOMMANDS {
            let name = format!("acl|{name}");
            assert!(names::find(name.as_bytes()).is_some(), "{name}");
        }
    }
}
