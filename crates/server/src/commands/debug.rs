//! DEBUG, for test suites. Off unless `enable-debug-command` says otherwise.

mod populate;

use super::{Job, Local, config_command, dump, lower};
use crate::base::glob;
use crate::data::keyspace::{Context, Keyspace, Stop};
use crate::resp::reply::Reply;
use crate::state::Shared;
use crate::state::standstill::LONGEST_SLEEP;
use crate::transact;
use hyades::Transaction;
use std::cell::RefCell;
use std::time::Duration;

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONFIG-REWRITE-FORCE-ALL",
    "    Writes all settings into the configuration file.",
    "ERROR <text>",
    "    Replies this error.",
    "OBJECT <key>",
    "    Tells of the value of a key.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Sets <prefix>:0, <prefix>:1 .. (key:0 ..) to value:0, value:1 .., with zero bytes up to",
    "    <size>, but for those keys that exist.",
    "PROTOCOL <type>",
    "    Replies a value of this type: string, integer, double, null, array, set, map, attrib,",
    "    bignum, true, false, verbatim.",
    "SLEEP <seconds>",
    "    Stops the server for this time, 3600 at most: no client is served.",
    "STRINGMATCH-LEN <length> <pattern>",
    "    Matches a pattern with a string of this length.",
    "HELP",
    "    This help.",
];

pub fn debug(local: &mut Local<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    if !local.shared.settings.debug_is_enabled() {
        let text = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                    \"local\", you can run it from a local connection, otherwise you need to set \
                    this option in the configuration file, and then restart the server.";
        return Err(text.into());
    }
    match (lower(args[1]).as_str(), &args[2..]) {
        ("sleep", [seconds]) => {
            sleep(local.shared, seconds)?;
            reply.ok();
        }
        ("populate", words) if (1..=3).contains(&words.len()) => populate::populate(local, words)?,
        ("help", []) => super::help(reply, HELP),
        ("object", [key]) => object(local, key)?,
        ("jmap" | "set-active-expire" | "quicklist-packed-threshold", _) => reply.ok(),
        ("stringmatch-len", [length, pattern]) => {
            let text = vec![b'a'; super::numbers::unsigned(length)?.min(1 << 20)];
            reply.integer(i64::from(glob::matches(pattern, &text, false)));
        }
        ("config-rewrite-force-all", []) => *local.job = Some(config_command::rewrite(true)),
        ("error", [text]) => {
            let text = String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
            return Err(text.into());
        }
        ("protocol", [what]) => protocol(&lower(what), reply)?,
        (other, _) if !is_built(args[1]) => {
            return Err(format!("ERR DEBUG {other} is not built").into());
        }
        _ => {
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(super::subcommand_error(what, "debug", args[1]).into());
        }
    }
    Ok(())
}

/// Whether a subcommand stands in the help, perhaps with other arguments.
fn is_built(name: &[u8]) -> bool {
    HELP[1..].iter().filter_map(|line| line.split(' ').next()).any(|word| super::is(name, word))
}

/// Has all event loops stand still, also the calling loop.
fn sleep(shared: &Shared, seconds: &[u8]) -> Result<(), Stop> {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.ok_or("ERR value is not a valid float")?;
    if !(0.0..=LONGEST_SLEEP).contains(&seconds) {
        return Err(format!("ERR DEBUG SLEEP takes 0 to {LONGEST_SLEEP} seconds").into());
    }
    // The other loops check before any work.
    shared.limits.standstill.begin(Duration::from_secs_f64(seconds), shared.clock.now_ms());
    shared.stand_still();
    Ok(())
}

/// An error while the database is being opened.
fn check_open(shared: &Shared) -> Result<(), Stop> {
    match shared.store.opened.get() {
        Some(_) => Ok(()),
        None => Err(shared.loading().into()),
    }
}

/// The facts of Redis about the object of a value, as far as they exist here.
fn object(local: &mut Local<'_>, key: &[u8]) -> Result<(), Stop> {
    check_open(local.shared)?;
    let (database, key) = (local.client.database, key.to_vec());
    *local.job = Some(Job::new(move |shared, reply| match describe(shared, database, &key) {
        Ok(text) => reply.simple(&text),
        Err(Stop::Error(text) | Stop::ErrorKept(text)) => reply.error(&text),
        Err(Stop::Abort(abort)) => reply.error(&format!("ERR {abort}")),
    }));
    Ok(())
}

/// In a snapshot: the described value is on disk.
fn describe(shared: &Shared, database: u32, key: &[u8]) -> Result<String, Stop> {
    let opened = shared.opened()?;
    let effects = RefCell::default();
    let context = Context { is_patient: true, ..transact::context(shared, &effects) };
    let body = |tx: &Transaction<'_>| -> Result<String, Stop> {
        let space = Keyspace::open(*tx, context, database)?;
        let entry = space.find(key)?;
        let Some((head, value)) = entry.value()? else { return Err("ERR no such key".into()) };
        let encoding = value.encoding(head)?;
        let length = dump::serialized_length(&value)?;
        Ok(format!(
            "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:0 \
             lru_seconds_idle:0"
        ))
    };
    let found = opened.database.open_snapshot().try_read(body);
    found.map_err(|error| Stop::from(format!("ERR {error}")))?
}

/// A reply of each type.
fn protocol(what: &str, reply: &mut Reply<'_>) -> Result<(), Stop> {
    match what {
        "string" => reply.bulk(b"Hello World"),
        "integer" => reply.integer(12_345),
        "double" => reply.double(2.5),
        "null" => reply.null(),
        "array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        "set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        "map" => {
            reply.map(3);
            for n in 0..3 {
                reply.integer(n);
                reply.boolean(n == 1);
            }
        }
        "attrib" => {
            if reply.is_resp3() {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        "bignum" => reply.big_number("1234567999999999999999999999999999999"),
        "true" => reply.boolean(true),
        "false" => reply.boolean(false),
        "verbatim" => reply.verbatim("This is a verbatim\nstring"),
        _ => return Err("ERR Wrong protocol type name".into()),
    }
    Ok(())
}
