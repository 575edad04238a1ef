//! The commands that are built, with what clients are told of them.

use super::{DataCommand, LocalCommand};
use super::{client, command_docs, config_command, connection, debug, expire, generic, info};
use super::{keys, lcs, lists, numbers, server, sets, strings};
use std::sync::OnceLock;

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a transaction, together with its neighbours.
    Data(DataCommand),
    /// Outside of transactions, before the database is open as well.
    Local(LocalCommand),
    /// Outside of transactions, once the database is open.
    Open(LocalCommand),
    /// By the conversation itself: MULTI, EXEC, DISCARD.
    Multi,
}

/// The command writes.
pub const WRITE: u32 = 1;
/// The command reads keys.
pub const READ: u32 = 2;
/// It takes a time that does not depend on the data.
pub const FAST: u32 = 4;
/// It is for operators.
pub const ADMIN: u32 = 8;

/// A command.
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of arguments with its name; at least that many if negative.
    pub arity: i32,
    /// [`WRITE`] and others.
    pub flags: u32,
    /// First key, last key, and step, as COMMAND shows them.
    pub keys: (i32, i32, i32),
    /// Its group in the documentation.
    pub group: &'static str,
    /// How it runs.
    pub run: Run,
}

impl Command {
    /// Whether it changes data.
    pub fn writes(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// Whether it may have this number of arguments.
    pub fn takes(&self, arguments: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => arguments == exactly,
            Err(_) => arguments >= self.arity.unsigned_abs() as usize,
        }
    }

    /// Places of the keys among its arguments.
    pub fn key_places(&self, arguments: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 { arguments as i32 + last } else { last };
        // A subcommand may be without the key that others have.
        let last = last.min(arguments as i32 - 1);
        let places = if first > 0 { first..last + 1 } else { 0..0 };
        places.step_by(step.max(1) as usize).map(|at| at as usize)
    }
}

const ONE: (i32, i32, i32) = (1, 1, 1);
const TWO: (i32, i32, i32) = (1, 2, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);
const NONE: (i32, i32, i32) = (0, 0, 0);

type Row = (&'static str, i32, u32, (i32, i32, i32), Run);

fn string_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("append", 3, WRITE | FAST, ONE, Data(strings::append)),
        ("decr", 2, WRITE | FAST, ONE, Data(numbers::decr)),
        ("decrby", 3, WRITE | FAST, ONE, Data(numbers::decrby)),
        ("get", 2, READ | FAST, ONE, Data(strings::get)),
        ("getdel", 2, WRITE | FAST, ONE, Data(strings::getdel)),
        ("getex", -2, WRITE | FAST, ONE, Data(strings::getex)),
        ("getrange", 4, READ, ONE, Data(strings::getrange)),
        ("getset", 3, WRITE | FAST, ONE, Data(strings::getset)),
        ("incr", 2, WRITE | FAST, ONE, Data(numbers::incr)),
        ("incrby", 3, WRITE | FAST, ONE, Data(numbers::incrby)),
        ("incrbyfloat", 3, WRITE | FAST, ONE, Data(numbers::incrbyfloat)),
        ("lcs", -3, READ, TWO, Data(lcs::lcs)),
        ("mget", -2, READ | FAST, ALL, Data(strings::mget)),
        ("mset", -3, WRITE, PAIRS, Data(strings::mset)),
        ("msetnx", -3, WRITE, PAIRS, Data(strings::msetnx)),
        ("psetex", 4, WRITE, ONE, Data(strings::psetex)),
        ("set", -3, WRITE, ONE, Data(strings::set)),
        ("setex", 4, WRITE, ONE, Data(strings::setex)),
        ("setnx", 3, WRITE | FAST, ONE, Data(strings::setnx)),
        ("setrange", 4, WRITE, ONE, Data(strings::setrange)),
        ("strlen", 2, READ | FAST, ONE, Data(strings::strlen)),
        ("substr", 4, READ, ONE, Data(strings::getrange)),
    ]
}

fn bitmap_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("getbit", 3, READ | FAST, ONE, Data(numbers::getbit)),
        ("setbit", 4, WRITE, ONE, Data(numbers::setbit)),
    ]
}

fn list_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("lindex", 3, READ, ONE, Data(lists::lindex)),
        ("llen", 2, READ | FAST, ONE, Data(lists::llen)),
        ("lpop", -2, WRITE | FAST, ONE, Data(lists::lpop)),
        ("lpush", -3, WRITE | FAST, ONE, Data(lists::lpush)),
        ("lpushx", -3, WRITE | FAST, ONE, Data(lists::lpushx)),
        ("lrange", 4, READ, ONE, Data(lists::lrange)),
        ("rpop", -2, WRITE | FAST, ONE, Data(lists::rpop)),
        ("rpush", -3, WRITE | FAST, ONE, Data(lists::rpush)),
        ("rpushx", -3, WRITE | FAST, ONE, Data(lists::rpushx)),
    ]
}

fn set_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("sadd", -3, WRITE | FAST, ONE, Data(sets::sadd)),
        ("scard", 2, READ | FAST, ONE, Data(sets::scard)),
        ("sismember", 3, READ | FAST, ONE, Data(sets::sismember)),
        ("smembers", 2, READ, ONE, Data(sets::smembers)),
        ("smismember", -3, READ | FAST, ONE, Data(sets::smismember)),
        ("srandmember", -2, READ, ONE, Data(sets::srandmember)),
        ("srem", -3, WRITE | FAST, ONE, Data(sets::srem)),
    ]
}

fn generic_rows() -> Vec<Row> {
    use Run::{Data, Open};
    vec![
        ("copy", -3, WRITE, TWO, Data(generic::copy)),
        ("del", -2, WRITE, ALL, Data(generic::del)),
        ("exists", -2, READ | FAST, ALL, Data(generic::exists)),
        ("expire", -3, WRITE | FAST, ONE, Data(expire::expire)),
        ("expireat", -3, WRITE | FAST, ONE, Data(expire::expireat)),
        ("expiretime", 2, READ | FAST, ONE, Data(expire::expiretime)),
        ("keys", 2, READ, NONE, Open(keys::keys)),
        ("move", 3, WRITE | FAST, ONE, Data(generic::move_to)),
        ("object", -2, READ, (2, 2, 1), Data(generic::object)),
        ("persist", 2, WRITE | FAST, ONE, Data(expire::persist)),
        ("pexpire", -3, WRITE | FAST, ONE, Data(expire::pexpire)),
        ("pexpireat", -3, WRITE | FAST, ONE, Data(expire::pexpireat)),
        ("pexpiretime", 2, READ | FAST, ONE, Data(expire::pexpiretime)),
        ("pttl", 2, READ | FAST, ONE, Data(expire::pttl)),
        ("randomkey", 1, READ, NONE, Open(keys::randomkey)),
        ("rename", 3, WRITE, TWO, Data(generic::rename)),
        ("renamenx", 3, WRITE | FAST, TWO, Data(generic::renamenx)),
        ("scan", -2, READ, NONE, Open(keys::scan)),
        ("touch", -2, READ | FAST, ALL, Data(generic::exists)),
        ("ttl", 2, READ | FAST, ONE, Data(expire::ttl)),
        ("type", 2, READ | FAST, ONE, Data(generic::type_of)),
        ("unlink", -2, WRITE | FAST, ALL, Data(generic::del)),
        ("wait", 3, 0, NONE, Run::Local(server::wait)),
    ]
}

fn connection_rows() -> Vec<Row> {
    use Run::Local;
    vec![
        ("auth", -2, FAST, NONE, Local(connection::auth)),
        ("client", -2, 0, NONE, Local(client::client)),
        ("echo", 2, FAST, NONE, Local(connection::echo)),
        ("hello", -1, FAST, NONE, Local(connection::hello)),
        ("ping", -1, FAST, NONE, Local(connection::ping)),
        ("quit", -1, FAST, NONE, Local(connection::quit)),
        ("reset", 1, FAST, NONE, Local(connection::reset)),
        ("select", 2, FAST, NONE, Local(connection::select)),
    ]
}

fn transaction_rows() -> Vec<Row> {
    vec![
        ("discard", 1, FAST, NONE, Run::Multi),
        ("exec", 1, 0, NONE, Run::Multi),
        ("multi", 1, FAST, NONE, Run::Multi),
    ]
}

fn server_rows() -> Vec<Row> {
    use Run::{Data, Local, Open};
    vec![
        ("bgrewriteaof", 1, ADMIN, NONE, Local(server::bgrewriteaof)),
        ("bgsave", -1, ADMIN, NONE, Open(keys::save)),
        ("command", -1, 0, NONE, Local(command_docs::command)),
        ("config", -2, ADMIN, NONE, Local(config_command::config)),
        ("dbsize", 1, READ | FAST, NONE, Data(generic::dbsize)),
        ("debug", -2, ADMIN, NONE, Local(debug::debug)),
        ("flushall", -1, WRITE, NONE, Data(generic::flushall)),
        ("flushdb", -1, WRITE, NONE, Data(generic::flushdb)),
        ("function", -2, 0, NONE, Local(server::function)),
        ("info", -1, 0, NONE, Local(info::info)),
        ("lastsave", 1, FAST, NONE, Local(server::lastsave)),
        ("lolwut", -1, READ | FAST, NONE, Local(server::lolwut)),
        ("memory", -2, READ, (2, 2, 1), Data(generic::memory)),
        ("role", 1, FAST, NONE, Local(server::role)),
        ("save", 1, ADMIN, NONE, Open(keys::save)),
        ("shutdown", -1, ADMIN, NONE, Local(server::shutdown)),
        ("swapdb", 3, WRITE | FAST, NONE, Data(generic::swapdb)),
        ("time", 1, FAST, NONE, Local(server::time)),
    ]
}

/// All commands by name.
pub fn all() -> &'static [Command] {
    static ALL_COMMANDS: OnceLock<Vec<Command>> = OnceLock::new();
    ALL_COMMANDS.get_or_init(|| {
        let groups = [
            ("string", string_rows()),
            ("bitmap", bitmap_rows()),
            ("list", list_rows()),
            ("set", set_rows()),
            ("generic", generic_rows()),
            ("connection", connection_rows()),
            ("transactions", transaction_rows()),
            ("server", server_rows()),
        ];
        let mut all = Vec::new();
        for (group, rows) in groups {
            all.extend(rows.into_iter().map(|(name, arity, flags, keys, run)| Command {
                name,
                arity,
                flags,
                keys,
                group,
                run,
            }));
        }
        all.sort_by_key(|command| command.name);
        all
    })
}

/// The place of a command in the table; its name may be in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    all().binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        for (at, command) in all().iter().enumerate() {
            assert_eq!(find(command.name.as_bytes()), Some(at));
            assert_eq!(find(command.name.to_uppercase().as_bytes()), Some(at));
        }
        assert_eq!(find(b"gett"), None);
        assert_eq!(find(&[b'g'; 100]), None);
    }

    #[test]
    fn arities_and_keys() {
        let of = |name: &str| &all()[find(name.as_bytes()).unwrap()];
        assert!(of("get").takes(2) && !of("get").takes(3) && of("set").takes(9));
        assert_eq!(of("mset").key_places(5).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(of("ping").key_places(1).count(), 0);
        for command in all() {
            for arguments in (1..6).filter(|arguments| command.takes(*arguments)) {
                let is_there = |at: usize| at < arguments;
                assert!(command.key_places(arguments).all(is_there), "{}", command.name);
            }
        }
    }
}
