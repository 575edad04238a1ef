//! The commands of Redis that are not built, and what a client is told instead.

/// What is missing, and the commands that need it.
const MISSING: &[(&str, &str)] = &[
    (
        "streams are not built yet",
        "xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending \
      xrange xread xreadgroup xrevrange xsetid xtrim",
    ),
    (
        "geo indexes are not built yet",
        "geoadd geodist geohash geopos georadius \
      georadiusbymember georadiusbymember_ro georadius_ro geosearch geosearchstore",
    ),
    ("HyperLogLog is not built yet", "pfadd pfcount pfdebug pfmerge pfselftest"),
    (
        "scripts are not built yet: send several commands at once, they are one transaction",
        "eval \
      evalsha evalsha_ro eval_ro fcall fcall_ro script",
    ),
    ("there is no cluster mode: one server uses all cores", "asking cluster readonly readwrite"),
    ("replication is not built", "failover psync replconf replicaof slaveof sync"),
    ("MIGRATE is not built: copy the keys with a client", "migrate"),
    ("modules cannot be loaded", "module"),
];

/// What is missing for a command of Redis; `None` if Redis has no such command either.
pub fn reason(name: &str) -> Option<&'static str> {
    let has = |names: &str| names.split_whitespace().any(|of| of == name);
    MISSING.iter().find(|(_, names)| has(names)).map(|(reason, _)| *reason)
}

/// The error for a command that is not in the table.
pub fn error(args: &[&[u8]]) -> String {
    let name = String::from_utf8_lossy(&args[0][..args[0].len().min(128)]).into_owned();
    if let Some(reason) = reason(&name.to_ascii_lowercase()) {
        return format!("ERR command '{name}' is not supported: {reason}");
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
    use super::super::table;
    use super::*;

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
            let is_built = table::find(name.as_bytes()).is_some();
            assert!(is_built != reason(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_command_is_built_or_missing() {
        for command in table::all() {
            assert_eq!(reason(command.name), None, "{}", command.name);
        }
        assert_eq!(
            error(&[b"PFADD"]),
            "ERR command 'PFADD' is not supported: HyperLogLog is not built yet"
        );
        assert_eq!(
            error(&[b"foo", b"a", b"b"]),
            "ERR unknown command 'foo', with args beginning with: 'a' 'b' "
        );
    }
}
