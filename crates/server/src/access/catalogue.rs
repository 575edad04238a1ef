//! What the rules of access may name: categories, and the commands of Redis, with subcommands, in
//! them. Commands that are not built are among them, so rules that were written for Redis hold.

use std::sync::OnceLock;

/// The categories, as ACL CAT lists them.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Categories, and the commands that are in all of them and in no other.
const ROWS: &[(&str, &str)] = &[
    ("keyspace read fast", "dbsize exists expiretime pexpiretime pttl touch ttl type"),
    (
        "keyspace read slow",
        "dump object|encoding object|freq object|idletime object|refcount randomkey scan",
    ),
    ("keyspace read slow dangerous", "keys"),
    ("keyspace write fast", "expire expireat move persist pexpire pexpireat renamenx unlink"),
    ("keyspace write fast dangerous", "swapdb"),
    ("keyspace write slow", "copy del rename"),
    ("keyspace write slow dangerous", "flushall flushdb migrate restore restore-asking"),
    ("keyspace slow", "object|help"),
    ("read set sortedset list slow dangerous", "sort_ro"),
    ("read set fast", "scard sismember smismember"),
    ("read set slow", "sdiff sinter sintercard smembers srandmember sscan sunion"),
    ("read sortedset fast", "zcard zcount zlexcount zmscore zrank zrevrank zscore"),
    (
        "read sortedset slow",
        "zdiff zinter zintercard zrandmember zrange zrangebylex zrangebyscore zrevrange \
         zrevrangebylex zrevrangebyscore zscan zunion",
    ),
    ("read list fast", "llen"),
    ("read list slow", "lindex lpos lrange"),
    ("read hash fast", "hexists hget hlen hmget hstrlen"),
    ("read hash slow", "hgetall hkeys hrandfield hscan hvals"),
    ("read string fast", "get mget strlen"),
    ("read string slow", "getrange lcs substr"),
    ("read bitmap fast", "bitfield_ro getbit"),
    ("read bitmap slow", "bitcount bitpos"),
    ("read hyperloglog slow", "pfcount"),
    ("read geo slow", "geodist geohash geopos georadius_ro georadiusbymember_ro geosearch"),
    ("read stream fast", "xlen"),
    ("read stream slow", "xinfo|consumers xinfo|groups xinfo|stream xpending xrange xrevrange"),
    ("read stream slow blocking", "xread"),
    ("read fast", "lolwut"),
    ("read slow", "memory|usage"),
    ("write set sortedset list slow dangerous", "sort"),
    ("write set fast", "sadd smove spop srem"),
    ("write set slow", "sdiffstore sinterstore sunionstore"),
    ("write sortedset fast", "zadd zincrby zpopmax zpopmin zrem"),
    ("write sortedset fast blocking", "bzpopmax bzpopmin"),
    (
        "write sortedset slow",
        "zdiffstore zinterstore zmpop zrangestore zremrangebylex zremrangebyrank \
         zremrangebyscore zunionstore",
    ),
    ("write sortedset slow blocking", "bzmpop"),
    ("write list fast", "lpop lpush lpushx rpop rpush rpushx"),
    ("write list slow", "linsert lmove lmpop lrem lset ltrim rpoplpush"),
    ("write list slow blocking", "blmove blmpop blpop brpop brpoplpush"),
    ("write hash fast", "hdel hincrby hincrbyfloat hmset hset hsetnx"),
    ("write string fast", "append decr decrby getdel getex getset incr incrby incrbyfloat setnx"),
    ("write string slow", "mset msetnx psetex set setex setrange"),
    ("write bitmap slow", "bitfield bitop setbit"),
    ("write hyperloglog admin slow dangerous", "pfdebug"),
    ("write hyperloglog fast", "pfadd"),
    ("write hyperloglog slow", "pfmerge"),
    ("write geo slow", "geoadd georadius georadiusbymember geosearchstore"),
    ("write stream fast", "xack xadd xautoclaim xclaim xdel xsetid"),
    (
        "write stream slow",
        "xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid \
         xtrim",
    ),
    ("write stream slow blocking", "xreadgroup"),
    ("write slow scripting", "function|delete function|flush function|load function|restore"),
    ("hyperloglog admin slow dangerous", "pfselftest"),
    ("stream slow", "xgroup|help xinfo|help"),
    ("pubsub fast", "publish spublish"),
    (
        "pubsub slow",
        "psubscribe pubsub|channels pubsub|numpat pubsub|numsub pubsub|shardchannels \
         pubsub|shardnumsub punsubscribe ssubscribe subscribe sunsubscribe unsubscribe",
    ),
    ("admin fast dangerous", "lastsave role"),
    (
        "admin slow dangerous",
        "acl|deluser acl|dryrun acl|getuser acl|list acl|load acl|log acl|save acl|setuser \
         acl|users bgrewriteaof bgsave cluster|addslots cluster|addslotsrange cluster|bumpepoch \
         cluster|count-failure-reports cluster|delslots cluster|delslotsrange cluster|failover \
         cluster|flushslots cluster|forget cluster|meet cluster|replicas cluster|replicate \
         cluster|reset cluster|saveconfig cluster|set-config-epoch cluster|setslot \
         cluster|slaves config|get config|resetstat config|rewrite config|set debug failover \
         hyades.backup latency|doctor latency|graph latency|histogram latency|history \
         latency|latest latency|reset module|list module|load module|loadex module|unload \
         monitor psync replconf replicaof save shutdown slaveof slowlog|get slowlog|len \
         slowlog|reset sync",
    ),
    (
        "admin slow dangerous connection",
        "client|kill client|list client|no-evict client|pause client|unblock client|unpause",
    ),
    ("fast", "time"),
    (
        "fast connection",
        "asking auth echo hello hyades.durability hyades.last hyades.rollback ping quit readonly \
         readwrite reset select",
    ),
    ("fast transaction", "discard multi unwatch watch"),
    (
        "slow",
        "acl acl|cat acl|genpass acl|help acl|whoami client cluster cluster|countkeysinslot \
         cluster|getkeysinslot cluster|help cluster|info cluster|keyslot cluster|links \
         cluster|myid cluster|nodes cluster|shards cluster|slots config config|help function \
         latency latency|help memory memory|doctor memory|help memory|malloc-stats memory|purge \
         memory|stats module module|help object pubsub pubsub|help script slowlog slowlog|help \
         xgroup xinfo",
    ),
    ("slow dangerous", "info"),
    (
        "slow connection",
        "client|caching client|getname client|getredir client|help client|id client|info \
         client|no-touch client|reply client|setinfo client|setname client|tracking \
         client|trackinginfo command command|count command|docs command|getkeys \
         command|getkeysandflags command|help command|info command|list wait waitaof",
    ),
    ("slow transaction", "exec"),
    (
        "slow scripting",
        "eval eval_ro evalsha evalsha_ro fcall fcall_ro function|dump function|help \
         function|kill function|list function|stats script|debug script|exists script|flush \
         script|help script|kill script|load",
    ),
];

/// A command, or a subcommand.
pub struct CatalogueEntry {
    /// Its name: `get`, `config|set`.
    pub name: &'static str,
    /// A bit for each of [`CATEGORIES`].
    pub categories: u32,
    /// It has subcommands of its own.
    pub is_container: bool,
}

/// All of them by name.
pub fn all() -> &'static [CatalogueEntry] {
    static ALL_NAMED: OnceLock<Vec<CatalogueEntry>> = OnceLock::new();
    ALL_NAMED.get_or_init(|| {
        let mut all = Vec::new();
        for (categories, names) in ROWS {
            let bits = categories.split(' ').map(|of| category(of.as_bytes()));
            let categories = bits.fold(0, |all, bit| all | bit.expect("it is in the list"));
            let named = |name| CatalogueEntry { name, categories, is_container: false };
            all.extend(names.split(' ').map(named));
        }
        all.sort_by_key(|named| named.name);
        let parents = all.iter().filter_map(|named| named.name.split_once('|'));
        let parents: Vec<&str> = parents.map(|(parent, _)| parent).collect();
        for named in &mut all {
            named.is_container = parents.contains(&named.name);
        }
        all
    })
}

/// The bit of a category.
pub fn category(name: &[u8]) -> Option<u32> {
    let is_it = |of: &&str| of.as_bytes().eq_ignore_ascii_case(name);
    CATEGORIES.iter().position(is_it).map(|at| 1 << at)
}

/// Longest name that is looked for.
const LONGEST: usize = 32;

fn find_parts(command: &[u8], subcommand: Option<&[u8]>) -> Option<usize> {
    let mut lower = [0; LONGEST];
    let mut length = 0;
    let parts = [Some(command), subcommand.map(|_| &b"|"[..]), subcommand];
    for part in parts.into_iter().flatten() {
        let to = lower.get_mut(length..length + part.len())?;
        to.copy_from_slice(part);
        length += part.len();
    }
    lower[..length].make_ascii_lowercase();
    all().binary_search_by(|named| named.name.as_bytes().cmp(&lower[..length])).ok()
}

/// The place of a command, or of a subcommand by its whole name, in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    find_parts(name, None)
}

/// The place of what a request runs: of a subcommand, if there is one of this name.
pub fn of_request(args: &[&[u8]]) -> Option<usize> {
    let command = find(args.first().filter(|name| !name.contains(&b'|'))?)?;
    match args.get(1).filter(|_| all()[command].is_container) {
        Some(word) => find_parts(args[0], Some(word)).or(Some(command)),
        None => Some(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    #[test]
    fn every_command_that_is_built_can_be_named() {
        for command in table::all() {
            assert!(find(command.name.as_bytes()).is_some(), "{}", command.name);
        }
        assert!(all().windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(all().iter().all(|named| named.name.len() <= LONGEST));
    }

    #[test]
    fn a_request_is_its_subcommand() {
        let name = |args: &[&[u8]]| of_request(args).map(|at| all()[at].name);
        assert_eq!(name(&[b"GET", b"a"]), Some("get"));
        assert_eq!(name(&[b"Config", b"SET", b"a"]), Some("config|set"));
        assert_eq!(name(&[b"config", b"no-such"]), Some("config"));
        assert_eq!(name(&[b"config"]), Some("config"));
        assert_eq!(name(&[b"config|set"]), None);
        assert_eq!(name(&[&[b'x'; 99]]), None);
        assert_eq!(name(&[b"config", &[b'x'; 99]]), Some("config"));
    }
}
