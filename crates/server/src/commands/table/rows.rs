//! The rows of the table of commands, by group.

use super::super::{
    acl, bitfield, bits, blocking, client, collections, command_docs, config_command, connection,
};
use super::super::{
    debug, dump, expire, generic, hashes, info, keys, latency, lcs, list_edits, lists, migrate,
    numbers,
};
use super::super::{
    pubsub, saving, server, sets, slowlog, sort, sorted_set_algebra, sorted_set_ranges,
    sorted_sets, strings, watching,
};
use super::{ADMIN, ALONE, BLOCKS, FAST, GROW, READ, Run, WRITE};

const ONE: (i32, i32, i32) = (1, 1, 1);
const TWO: (i32, i32, i32) = (1, 2, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);
const NONE: (i32, i32, i32) = (0, 0, 0);

/// Name, arity, flags, keys, and how it runs.
pub type Row = (&'static str, i32, u32, (i32, i32, i32), Run);

pub fn string_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("append", 3, GROW | FAST, ONE, Data(strings::append)),
        ("decr", 2, GROW | FAST, ONE, Data(numbers::decr)),
        ("decrby", 3, GROW | FAST, ONE, Data(numbers::decrby)),
        ("get", 2, READ | FAST, ONE, Data(strings::get)),
        ("getdel", 2, WRITE | FAST, ONE, Data(strings::getdel)),
        ("getex", -2, WRITE | FAST, ONE, Data(strings::getex)),
        ("getrange", 4, READ, ONE, Data(strings::getrange)),
        ("getset", 3, GROW | FAST, ONE, Data(strings::getset)),
        ("incr", 2, GROW | FAST, ONE, Data(numbers::incr)),
        ("incrby", 3, GROW | FAST, ONE, Data(numbers::incrby)),
        ("incrbyfloat", 3, GROW | FAST, ONE, Data(numbers::incrbyfloat)),
        ("lcs", -3, READ, TWO, Data(lcs::lcs)),
        ("mget", -2, READ | FAST, ALL, Data(strings::mget)),
        ("mset", -3, GROW, PAIRS, Data(strings::mset)),
        ("msetnx", -3, GROW, PAIRS, Data(strings::msetnx)),
        ("psetex", 4, GROW, ONE, Data(strings::psetex)),
        ("set", -3, GROW, ONE, Data(strings::set)),
        ("setex", 4, GROW, ONE, Data(strings::setex)),
        ("setnx", 3, GROW | FAST, ONE, Data(strings::setnx)),
        ("setrange", 4, GROW, ONE, Data(strings::setrange)),
        ("strlen", 2, READ | FAST, ONE, Data(strings::strlen)),
        ("substr", 4, READ, ONE, Data(strings::getrange)),
    ]
}

pub fn bitmap_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("bitcount", -2, READ, ONE, Data(bits::bitcount)),
        ("bitfield", -2, GROW, ONE, Data(bitfield::bitfield)),
        ("bitfield_ro", -2, READ | FAST, ONE, Data(bitfield::bitfield_ro)),
        ("bitop", -4, GROW, (2, -1, 1), Data(bits::bitop)),
        ("bitpos", -3, READ, ONE, Data(bits::bitpos)),
        ("getbit", 3, READ | FAST, ONE, Data(numbers::getbit)),
        ("setbit", 4, GROW, ONE, Data(numbers::setbit)),
    ]
}

pub fn list_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("blmove", 6, GROW | BLOCKS, TWO, Data(blocking::blmove)),
        ("blmpop", -5, WRITE | BLOCKS, NONE, Data(blocking::blmpop)),
        ("blpop", -3, WRITE | BLOCKS, (1, -2, 1), Data(blocking::blpop)),
        ("brpop", -3, WRITE | BLOCKS, (1, -2, 1), Data(blocking::brpop)),
        ("brpoplpush", 4, GROW | BLOCKS, TWO, Data(blocking::brpoplpush)),
        ("lindex", 3, READ, ONE, Data(lists::lindex)),
        ("linsert", 5, GROW, ONE, Data(list_edits::linsert)),
        ("llen", 2, READ | FAST, ONE, Data(lists::llen)),
        ("lmove", 5, GROW, TWO, Data(list_edits::lmove)),
        ("lmpop", -4, WRITE, NONE, Data(list_edits::lmpop)),
        ("lpop", -2, WRITE | FAST, ONE, Data(lists::lpop)),
        ("lpos", -3, READ, ONE, Data(list_edits::lpos)),
        ("lpush", -3, GROW | FAST, ONE, Data(lists::lpush)),
        ("lpushx", -3, GROW | FAST, ONE, Data(lists::lpushx)),
        ("lrange", 4, READ, ONE, Data(lists::lrange)),
        ("lrem", 4, WRITE, ONE, Data(list_edits::lrem)),
        ("lset", 4, GROW, ONE, Data(list_edits::lset)),
        ("ltrim", 4, WRITE, ONE, Data(list_edits::ltrim)),
        ("rpop", -2, WRITE | FAST, ONE, Data(lists::rpop)),
        ("rpoplpush", 3, GROW, TWO, Data(list_edits::rpoplpush)),
        ("rpush", -3, GROW | FAST, ONE, Data(lists::rpush)),
        ("rpushx", -3, GROW | FAST, ONE, Data(lists::rpushx)),
    ]
}

pub fn set_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("sadd", -3, GROW | FAST, ONE, Data(sets::sadd)),
        ("scard", 2, READ | FAST, ONE, Data(sets::scard)),
        ("sdiff", -2, READ, ALL, Data(sets::sdiff)),
        ("sdiffstore", -3, GROW, ALL, Data(sets::sdiffstore)),
        ("sinter", -2, READ, ALL, Data(sets::sinter)),
        ("sintercard", -3, READ, NONE, Data(sets::sintercard)),
        ("sinterstore", -3, GROW, ALL, Data(sets::sinterstore)),
        ("sismember", 3, READ | FAST, ONE, Data(sets::sismember)),
        ("smembers", 2, READ, ONE, Data(sets::smembers)),
        ("smismember", -3, READ | FAST, ONE, Data(sets::smismember)),
        ("smove", 4, WRITE | FAST, TWO, Data(sets::smove)),
        ("spop", -2, WRITE | FAST, ONE, Data(sets::spop)),
        ("srandmember", -2, READ, ONE, Data(sets::srandmember)),
        ("srem", -3, WRITE | FAST, ONE, Data(sets::srem)),
        ("sscan", -3, READ, ONE, Data(collections::sscan)),
        ("sunion", -2, READ, ALL, Data(sets::sunion)),
        ("sunionstore", -3, GROW, ALL, Data(sets::sunionstore)),
    ]
}

pub fn generic_rows() -> Vec<Row> {
    use Run::{Data, Open};
    vec![
        ("copy", -3, GROW, TWO, Data(generic::copy)),
        ("del", -2, WRITE, ALL, Data(generic::del)),
        ("dump", 2, READ, ONE, Data(dump::dump)),
        ("exists", -2, READ | FAST, ALL, Data(generic::exists)),
        ("expire", -3, WRITE | FAST, ONE, Data(expire::expire)),
        ("expireat", -3, WRITE | FAST, ONE, Data(expire::expireat)),
        ("expiretime", 2, READ | FAST, ONE, Data(expire::expiretime)),
        ("keys", 2, READ, NONE, Open(keys::keys)),
        ("migrate", -6, WRITE, (3, 3, 1), Open(migrate::migrate)),
        ("move", 3, WRITE | FAST, ONE, Data(generic::move_to)),
        ("object", -2, READ, (2, 2, 1), Data(generic::object)),
        ("persist", 2, WRITE | FAST, ONE, Data(expire::persist)),
        ("pexpire", -3, WRITE | FAST, ONE, Data(expire::pexpire)),
        ("pexpireat", -3, WRITE | FAST, ONE, Data(expire::pexpireat)),
        ("pexpiretime", 2, READ | FAST, ONE, Data(expire::pexpiretime)),
        ("pttl", 2, READ | FAST, ONE, Data(expire::pttl)),
        ("randomkey", 1, READ, NONE, Data(keys::randomkey)),
        ("rename", 3, WRITE, TWO, Data(generic::rename)),
        ("renamenx", 3, WRITE | FAST, TWO, Data(generic::renamenx)),
        ("restore", -4, GROW, ONE, Data(dump::restore)),
        ("restore-asking", -4, GROW, ONE, Data(dump::restore)),
        ("scan", -2, READ, NONE, Data(keys::scan)),
        ("touch", -2, READ | FAST, ALL, Data(generic::exists)),
        ("ttl", 2, READ | FAST, ONE, Data(expire::ttl)),
        ("type", 2, READ | FAST, ONE, Data(generic::type_of)),
        ("unlink", -2, WRITE | FAST, ALL, Data(generic::del)),
        ("wait", 3, 0, NONE, Run::Local(server::wait)),
        ("waitaof", 4, 0, NONE, Run::Local(server::waitaof)),
    ]
}

pub fn connection_rows() -> Vec<Row> {
    use Run::Local;
    vec![
        ("auth", -2, FAST, NONE, Local(connection::auth)),
        ("client", -2, 0, NONE, Local(client::client)),
        ("echo", 2, FAST, NONE, Local(connection::echo)),
        ("hello", -1, FAST, NONE, Local(connection::hello)),
        ("hyades.durability", -1, FAST, NONE, Local(server::durability)),
        ("hyades.last", 1, FAST, NONE, Local(server::last)),
        ("hyades.rollback", -1, FAST, NONE, Local(server::rollback)),
        ("ping", -1, FAST, NONE, Local(connection::ping)),
        ("quit", -1, FAST, NONE, Local(connection::quit)),
        ("reset", 1, FAST, NONE, Local(connection::reset)),
        ("select", 2, FAST, NONE, Local(connection::select)),
    ]
}

pub fn transaction_rows() -> Vec<Row> {
    vec![
        ("discard", 1, FAST, NONE, Run::Multi),
        ("exec", 1, 0, NONE, Run::Multi),
        ("multi", 1, FAST, NONE, Run::Multi),
        ("unwatch", 1, FAST | ALONE, NONE, Run::Data(watching::unwatch)),
        ("watch", -2, FAST | ALONE, ALL, Run::Data(watching::watch)),
    ]
}

pub fn pubsub_rows() -> Vec<Row> {
    use Run::Local;
    vec![
        ("psubscribe", -2, 0, NONE, Local(pubsub::psubscribe)),
        ("publish", 3, FAST, NONE, Local(pubsub::publish)),
        ("pubsub", -2, 0, NONE, Local(pubsub::pubsub)),
        ("punsubscribe", -1, 0, NONE, Local(pubsub::punsubscribe)),
        ("spublish", 3, FAST, NONE, Local(pubsub::spublish)),
        ("ssubscribe", -2, 0, NONE, Local(pubsub::ssubscribe)),
        ("subscribe", -2, 0, NONE, Local(pubsub::subscribe)),
        ("sunsubscribe", -1, 0, NONE, Local(pubsub::sunsubscribe)),
        ("unsubscribe", -1, 0, NONE, Local(pubsub::unsubscribe)),
    ]
}

pub fn server_rows() -> Vec<Row> {
    use Run::{Data, Local, Open};
    vec![
        ("acl", -2, ADMIN, NONE, Local(acl::acl)),
        ("bgrewriteaof", 1, ADMIN, NONE, Open(saving::bgrewriteaof)),
        ("bgsave", -1, ADMIN, NONE, Open(saving::bgsave)),
        ("command", -1, 0, NONE, Local(command_docs::command)),
        ("config", -2, ADMIN, NONE, Local(config_command::config)),
        ("dbsize", 1, READ | FAST, NONE, Data(generic::dbsize)),
        ("debug", -2, ADMIN, NONE, Local(debug::debug)),
        ("flushall", -1, WRITE, NONE, Data(generic::flushall)),
        ("flushdb", -1, WRITE, NONE, Data(generic::flushdb)),
        ("function", -2, 0, NONE, Local(server::function)),
        ("hyades.backup", 2, ADMIN, NONE, Open(server::backup)),
        ("info", -1, 0, NONE, Local(info::info)),
        ("lastsave", 1, FAST, NONE, Local(saving::lastsave)),
        ("latency", -2, ADMIN, NONE, Local(latency::latency)),
        ("lolwut", -1, READ | FAST, NONE, Local(server::lolwut)),
        ("memory", -2, READ, (2, 2, 1), Data(generic::memory)),
        ("monitor", 1, ADMIN, NONE, Local(connection::monitor)),
        ("role", 1, FAST, NONE, Local(server::role)),
        ("save", 1, ADMIN, NONE, Open(saving::save)),
        ("shutdown", -1, ADMIN, NONE, Local(server::shutdown)),
        ("slowlog", -2, ADMIN, NONE, Local(slowlog::slowlog)),
        ("swapdb", 3, WRITE | FAST, NONE, Data(generic::swapdb)),
        ("time", 1, FAST, NONE, Local(server::time)),
    ]
}

pub fn hash_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("hdel", -3, WRITE | FAST, ONE, Data(hashes::hdel)),
        ("hexists", 3, READ | FAST, ONE, Data(hashes::hexists)),
        ("hget", 3, READ | FAST, ONE, Data(hashes::hget)),
        ("hgetall", 2, READ, ONE, Data(hashes::hgetall)),
        ("hincrby", 4, GROW | FAST, ONE, Data(hashes::hincrby)),
        ("hincrbyfloat", 4, GROW | FAST, ONE, Data(hashes::hincrbyfloat)),
        ("hkeys", 2, READ, ONE, Data(hashes::hkeys)),
        ("hlen", 2, READ | FAST, ONE, Data(hashes::hlen)),
        ("hmget", -3, READ | FAST, ONE, Data(hashes::hmget)),
        ("hmset", -4, GROW | FAST, ONE, Data(hashes::hmset)),
        ("hrandfield", -2, READ, ONE, Data(hashes::hrandfield)),
        ("hset", -4, GROW | FAST, ONE, Data(hashes::hset)),
        ("hsetnx", 4, GROW | FAST, ONE, Data(hashes::hsetnx)),
        ("hstrlen", 3, READ | FAST, ONE, Data(hashes::hstrlen)),
        ("hvals", 2, READ, ONE, Data(hashes::hvals)),
        ("hscan", -3, READ, ONE, Data(collections::hscan)),
    ]
}

pub fn sorted_set_rows() -> Vec<Row> {
    use Run::Data;
    vec![
        ("bzmpop", -5, WRITE | BLOCKS, NONE, Data(blocking::bzmpop)),
        ("bzpopmax", -3, WRITE | BLOCKS | FAST, (1, -2, 1), Data(blocking::bzpopmax)),
        ("bzpopmin", -3, WRITE | BLOCKS | FAST, (1, -2, 1), Data(blocking::bzpopmin)),
        ("zadd", -4, GROW | FAST, ONE, Data(sorted_sets::zadd)),
        ("zcard", 2, READ | FAST, ONE, Data(sorted_sets::zcard)),
        ("zcount", 4, READ | FAST, ONE, Data(sorted_set_ranges::zcount)),
        ("zdiff", -3, READ, NONE, Data(sorted_set_algebra::zdiff)),
        ("zdiffstore", -4, GROW, ONE, Data(sorted_set_algebra::zdiffstore)),
        ("zincrby", 4, GROW | FAST, ONE, Data(sorted_sets::zincrby)),
        ("zinter", -3, READ, NONE, Data(sorted_set_algebra::zinter)),
        ("zintercard", -3, READ, NONE, Data(sorted_set_algebra::zintercard)),
        ("zinterstore", -4, GROW, ONE, Data(sorted_set_algebra::zinterstore)),
        ("zlexcount", 4, READ | FAST, ONE, Data(sorted_set_ranges::zlexcount)),
        ("zmpop", -4, WRITE, NONE, Data(sorted_sets::zmpop)),
        ("zmscore", -3, READ | FAST, ONE, Data(sorted_sets::zmscore)),
        ("zpopmax", -2, WRITE | FAST, ONE, Data(sorted_sets::zpopmax)),
        ("zpopmin", -2, WRITE | FAST, ONE, Data(sorted_sets::zpopmin)),
        ("zrandmember", -2, READ, ONE, Data(sorted_sets::zrandmember)),
        ("zrange", -4, READ, ONE, Data(sorted_set_ranges::zrange)),
        ("zrangebylex", -4, READ, ONE, Data(sorted_set_ranges::zrangebylex)),
        ("zrangebyscore", -4, READ, ONE, Data(sorted_set_ranges::zrangebyscore)),
        ("zrangestore", -5, GROW, TWO, Data(sorted_set_ranges::zrangestore)),
        ("zrank", -3, READ | FAST, ONE, Data(sorted_sets::zrank)),
        ("zrem", -3, WRITE | FAST, ONE, Data(sorted_sets::zrem)),
        ("zremrangebylex", 4, WRITE, ONE, Data(sorted_set_ranges::zremrangebylex)),
        ("zremrangebyrank", 4, WRITE, ONE, Data(sorted_set_ranges::zremrangebyrank)),
        ("zremrangebyscore", 4, WRITE, ONE, Data(sorted_set_ranges::zremrangebyscore)),
        ("zrevrange", -4, READ, ONE, Data(sorted_set_ranges::zrevrange)),
        ("zrevrangebylex", -4, READ, ONE, Data(sorted_set_ranges::zrevrangebylex)),
        ("zrevrangebyscore", -4, READ, ONE, Data(sorted_set_ranges::zrevrangebyscore)),
        ("zrevrank", -3, READ | FAST, ONE, Data(sorted_sets::zrevrank)),
        ("zscan", -3, READ, ONE, Data(collections::zscan)),
        ("zscore", 3, READ | FAST, ONE, Data(sorted_sets::zscore)),
        ("zunion", -3, READ, NONE, Data(sorted_set_algebra::zunion)),
        ("zunionstore", -4, GROW, ONE, Data(sorted_set_algebra::zunionstore)),
    ]
}

pub fn sort_rows() -> Vec<Row> {
    use Run::Data;
    vec![("sort", -2, GROW, ONE, Data(sort::sort)), ("sort_ro", -2, READ, ONE, Data(sort::sort_ro))]
}
