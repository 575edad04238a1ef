//! The keys in a command line, and their use: COMMAND GETKEYS and GETKEYSANDFLAGS.

use super::integer;
use crate::catalogue::{self, ACCESS, KeyFlags, RO, RW, RequestKeys, UPDATE, flag_names};
use crate::data::keyspace::Stop;
use crate::resp::reply::Reply;

/// Scripts have their keys behind the number of keys.
const SCRIPTS: [&str; 6] = ["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

const INVALID_NUMBER: &str = "ERR Invalid number of arguments specified for command";
const INVALID: &str = "ERR Invalid arguments specified for command";
const NO_KEYS: &str = "ERR The command has no key arguments";

/// The keys of a script.
fn script_keys(name: &str, args: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Stop> {
    let count = *args.get(2).ok_or(INVALID_NUMBER)?;
    let count = integer(count).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count <= args.len() - 3).ok_or(INVALID)?;
    let flags = if name.ends_with("_ro") { RO | ACCESS } else { RW | ACCESS | UPDATE };
    Ok((3..3 + count).map(|at| (at, flags)).collect())
}

/// The keys of a command line: their places, and their flags.
fn keys(args: &[&[u8]]) -> Result<Vec<(usize, KeyFlags)>, Stop> {
    let script = SCRIPTS.into_iter().find(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
    if let Some(name) = script {
        // A script without keys is treated alike.
        return script_keys(name, args);
    }
    let command = catalogue::command(args[0]).ok_or("ERR Invalid command specified")?;
    if !command.takes(args.len()) {
        return Err(INVALID_NUMBER.into());
    }
    let keys = RequestKeys::of(command, args).keys;
    if keys.is_empty() { Err(NO_KEYS.into()) } else { Ok(keys.to_vec()) }
}

pub fn getkeys(args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let keys = keys(args)?;
    reply.array(keys.len());
    keys.iter().for_each(|(at, _)| reply.bulk(args[*at]));
    Ok(())
}

pub fn getkeysandflags(args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let keys = keys(args)?;
    reply.array(keys.len());
    for (at, flags) in keys {
        reply.array(2);
        reply.bulk(args[at]);
        let flags = flag_names(flags);
        reply.set(flags.len());
        flags.for_each(|flag| reply.simple(flag));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match keys(&args) {
            Ok(keys) => {
                let name = |at: usize| String::from_utf8_lossy(args[at]).into_owned();
                let flags = |flags| flag_names(flags).collect::<Vec<_>>().join("+");
                let told = keys.iter().map(|(at, key_flags)| name(*at) + ":" + &flags(*key_flags));
                told.collect::<Vec<_>>().join(" ")
            }
            Err(Stop::Error(text) | Stop::ErrorKept(text)) => text.into_owned(),
            Err(Stop::Abort(abort)) => abort.to_string(),
        }
    }

    #[test]
    fn keys_and_flags_are_those_of_redis() {
        for (line, expected) in [
            ("GET a", "a:RO+access"),
            ("STRLEN a", "a:RO"),
            ("SET a b", "a:OW+update"),
            ("SET a b GET", "a:RW+access+update"),
            ("SETNX a b", "a:OW+insert"),
            ("APPEND a b", "a:RW+insert"),
            ("INCR a", "a:RW+access+update"),
            ("GETDEL a", "a:RW+access+delete"),
            ("DEL a b", "a:RM+delete b:RM+delete"),
            ("LMOVE a b left left", "a:RW+access+delete b:RW+insert"),
            ("MOVE a 1", "a:RW+access+update"),
            ("RENAME a b", "a:RW+access+delete b:OW+update"),
            ("RENAMENX a b", "a:RW+access+delete b:OW+insert"),
            ("COPY a b", "a:RO+access b:OW+update"),
            ("HSET a b c", "a:RW+update"),
            ("SDIFFSTORE a b", "a:OW+update b:RO+access"),
            ("SINTERSTORE a b", "a:RW+update b:RO+access"),
            ("SREM a b", "a:RW+delete"),
            ("BLPOP a b 0", "a:RW+access+delete b:RW+access+delete"),
            ("ZUNIONSTORE a 2 b c", "a:OW+update b:RO+access c:RO+access"),
            ("SORT a ALPHA STORE b", "a:RO+access b:OW+update"),
            ("EVAL text 2 a b c", "a:RW+access+update b:RW+access+update"),
            ("FCALL_RO text 1 a", "a:RO+access"),
            ("EVAL text 0 a", ""),
            ("XGROUP CREATE a g $", "a:RW+insert"),
            ("XREAD STREAMS a b 0 0", "a:RO+access b:RO+access"),
            ("XLEN a", "a:RO"),
            ("MIGRATE h 1 a 0 1 COPY", "a:RW+access+delete"),
            ("MIGRATE h 1  0 1 KEYS a b", "a:RW+access+delete b:RW+access+delete"),
            ("MIGRATE h 1 a 0", INVALID_NUMBER),
            ("XADD", INVALID_NUMBER),
            ("CLUSTER INFO", NO_KEYS),
            ("EVAL text 1", INVALID),
            ("EVAL text -1", INVALID),
            ("EVAL text", INVALID_NUMBER),
            ("EVALSHA text 1 a", "a:RW+access+update"),
            ("PING", NO_KEYS),
            ("GET", INVALID_NUMBER),
            ("NONE a", "ERR Invalid command specified"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }
}
