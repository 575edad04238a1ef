//! The commands of Redis that are not built, and the error for a client: the missing feature, and a
//! substitute.

/// Commands that need a missing feature.
struct Missing {
    /// The missing feature, and its substitute.
    reason: &'static str,
    instead: &'static str,
    /// The commands.
    names: &'static str,
}

const MISSING: &[Missing] = &[
    Missing {
        reason: "this server has no replicas",
        instead: "make backups with HYADES.BACKUP, or copy the keys with MIGRATE",
        names: "failover psync replconf sync",
    },
    Missing {
        reason: "modules cannot be loaded",
        instead: "use the types and commands that are built in, which COMMAND LIST names",
        names: "module",
    },
];

/// The missing feature of a command of Redis; `None` if Redis has no such command either.
fn missing(name: &str) -> Option<&'static Missing> {
    let has = |names: &str| names.split_whitespace().any(|word| word == name);
    MISSING.iter().find(|row| has(row.names))
}

/// The error for a command that is not in the table.
pub fn error(args: &[&[u8]]) -> String {
    let name = String::from_utf8_lossy(&args[0][..args[0].len().min(128)]).into_owned();
    if let Some(Missing { reason, instead, .. }) = missing(&name.to_ascii_lowercase()) {
        return format!("ERR command '{name}' is not supported: {reason}; {instead}");
    }
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    for arg in &args[1..] {
        if text.len() > 256 {
            break;
        }
        let arg = String::from_utf8_lossy(&arg[..arg.len().min(128)]);
        text.push_str(&format!("'{arg}' "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// Missing in a server alone, and built for a member of a replicated database.
    const BY_ROLE: &[&str] = if cfg!(feature = "replication") { &["failover"] } else { &[] };

    /// All commands of Redis 7.2.
    const REDIS: &str = "acl append asking auth bgrewriteaof bgsave bitcount bitfield bitfield_ro \
        bitop bitpos blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin client cluster \
        command config copy dbsize debug decr decrby del discard dump echo eval eval_ro evalsha \
        evalsha_ro exec exists expire expireat expiretime failover fcall fcall_ro flushall \
        flushdb function geoadd geodist geohash geopos georadius georadius_ro georadiusbymember \
        georadiusbymember_ro geosearch geosearchstore get getbit getdel getex getrange getset \
        hdel hello hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield \
        hscan hset hsetnx hstrlen hvals incr incrby incrbyfloat info keys lastsave latency lcs \
        lindex linsert llen lmove lmpop lolwut lpop lpos lpush lpushx lrange lrem lset ltrim \
        memory mget migrate module monitor move mset msetnx multi object persist pexpire \
        pexpireat pexpiretime pfadd pfcount pfdebug pfmerge pfselftest ping psetex psubscribe \
        psync pttl publish pubsub punsubscribe quit randomkey readonly readwrite rename renamenx \
        replconf replicaof reset restore restore-asking role rpop rpoplpush rpush rpushx sadd \
        save scan scard script sdiff sdiffstore select set setbit setex setnx setrange shutdown \
        sinter sintercard sinterstore sismember slaveof slowlog smembers smismember smove sort \
        sort_ro spop spublish srandmember srem sscan ssubscribe strlen subscribe substr sunion \
        sunionstore sunsubscribe swapdb sync time touch ttl type unlink unsubscribe unwatch wait \
        waitaof watch xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread \
        xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby zinter \
        zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange \
        zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank \
        zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion \
        zunionstore";

    #[test]
    fn each_command_of_redis_is_built_or_says_what_is_missing() {
        for name in REDIS.split_whitespace() {
            let is_built = catalogue::find(name.as_bytes()).is_some();
            let depends_on_role = BY_ROLE.contains(&name);
            assert!(depends_on_role || is_built != missing(name).is_some(), "{name}");
        }
    }

    /// Each error names the way out, in a single line for clients to show.
    #[test]
    fn what_is_missing_has_something_in_its_place() {
        for Missing { reason, instead, names } in MISSING {
            assert!(!reason.is_empty() && instead.split(' ').count() >= 4, "{names}");
            for name in names.split_whitespace() {
                let text = error(&[name.to_uppercase().as_bytes()]);
                assert!(text.ends_with(&format!(": {reason}; {instead}")), "{text}");
                assert!(text.len() < 250 && !text.contains(['\r', '\n']), "{text}");
            }
        }
        // The substitutes named are existing commands, or words and no commands.
        let words = MISSING.iter().flat_map(|row| row.instead.split([' ', ',']));
        let is_name = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
        for name in words.filter(is_name).filter(|name| !["BYSCORE", "LIST"].contains(name)) {
            assert!(catalogue::find(name.as_bytes()).is_some(), "{name}");
        }
    }

    #[test]
    fn a_command_is_built_or_missing() {
        for command in catalogue::all() {
            let depends_on_role = BY_ROLE.contains(&command.name);
            assert!(depends_on_role || missing(command.name).is_none(), "{}", command.name);
        }
        assert_eq!(
            error(&[b"PSYNC"]),
            "ERR command 'PSYNC' is not supported: this server has no replicas; make backups with \
             HYADES.BACKUP, or copy the keys with MIGRATE"
        );
        assert_eq!(
            error(&[b"foo", b"a", b"b"]),
            "ERR unknown command 'foo', with args beginning with: 'a' 'b' "
        );
    }
}
