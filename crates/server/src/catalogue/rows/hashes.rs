//! Rows of the commands for hashes. The columns are the fields of `Row`.

macro_rules! hashes_rows {
    ($with:ident) => { $with! { "hash";
    "hdel", -3, Data(hashes::hdel), WRITE | FAST, [first(RW | DELETE)], "hash", Event::Own,
        "2.0.0", "O(N) with N the fields", "Removes fields from a hash",
        "key field [field ..]";
    "hexists", 3, Data(hashes::hexists), READ | FAST, [first(RO)], "hash", Event::None,
        "2.0.0", "O(1)", "Returns whether a hash has a field",
        "key field";
    "hexpire", -6, Data(hash_times::hexpire), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "7.4.0", "O(N) with N the fields", "Sets when fields expire, in seconds from now on",
        "key seconds condition:[NX|XX|GT|LT] FIELDS numfields field [field ..]";
    "hexpireat", -6, Data(hash_times::hexpireat), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "7.4.0", "O(N) with N the fields", "Sets when fields expire, in seconds since 1970",
        "key unix-time-seconds condition:[NX|XX|GT|LT] FIELDS numfields field [field ..]";
    "hexpiretime", -5, Data(hash_times::hexpiretime), READ | FAST, [first(RO | ACCESS)],
        "hash", Event::None,
        "7.4.0", "O(N) with N the fields", "Returns when fields expire, in seconds since 1970",
        "key FIELDS numfields field [field ..]";
    "hget", 3, Data(hashes::hget), READ | FAST, [first(RO | ACCESS)], "hash", Event::None,
        "2.0.0", "O(1)", "Returns the value of a field",
        "key field";
    "hgetall", 2, Data(hashes::hgetall), READ, [first(RO | ACCESS)], "hash", Event::None,
        "2.0.0", "O(N) with N the fields", "Returns all fields of a hash, and their values",
        "key";
    "hgetdel", -5, Data(hash_times::hgetdel), WRITE | FAST, [first(RW | ACCESS | DELETE)],
        "hash", Event::Told,
        "8.0.0", "O(N) with N the fields", "Returns the values of fields, and removes these",
        "key FIELDS numfields field [field ..]";
    "hgetex", -5, Data(hash_times::hgetex), WRITE | FAST, [first(RW | ACCESS | UPDATE)],
        "hash", Event::Told,
        "8.0.0", "O(N) with N the fields",
        "Returns the values of fields, and sets or removes their times of expiry",
        "key expiration:[EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT \
         unix-time-milliseconds|PERSIST] FIELDS numfields field [field ..]";
    "hincrby", 4, Data(hashes::hincrby), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "hash", Event::Own,
        "2.0.0", "O(1)", "Adds to the integer of a field; to 0 if there is none",
        "key field increment";
    "hincrbyfloat", 4, Data(hashes::hincrbyfloat), GROW | FAST, [first(RW | ACCESS | UPDATE)],
        "hash", Event::Own,
        "2.6.0", "O(1)", "Adds to the number of a field; to 0 if there is none",
        "key field increment:double";
    "hkeys", 2, Data(hashes::hkeys), READ, [first(RO | ACCESS)], "hash", Event::None,
        "2.0.0", "O(N) with N the fields", "Returns all fields of a hash",
        "key";
    "hlen", 2, Data(hashes::hlen), READ | FAST, [first(RO)], "hash", Event::None,
        "2.0.0", "O(1)", "Returns the number of fields of a hash",
        "key";
    "hmget", -3, Data(hashes::hmget), READ | FAST, [first(RO | ACCESS)], "hash", Event::None,
        "2.0.0", "O(N) with N the fields", "Returns the values of several fields",
        "key field [field ..]";
    "hmset", -4, Data(hashes::hmset), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Named("hset"),
        "2.0.0", "O(N) with N the fields", "Sets several fields of a hash, as HSET does",
        "key field value [field value ..]";
    "hpersist", -5, Data(hash_times::hpersist), WRITE | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "7.4.0", "O(N) with N the fields", "Removes the times at which fields expire",
        "key FIELDS numfields field [field ..]";
    "hpexpire", -6, Data(hash_times::hpexpire), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "7.4.0", "O(N) with N the fields", "Sets when fields expire, in milliseconds from now on",
        "key milliseconds condition:[NX|XX|GT|LT] FIELDS numfields field [field ..]";
    "hpexpireat", -6, Data(hash_times::hpexpireat), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "7.4.0", "O(N) with N the fields", "Sets when fields expire, in milliseconds since 1970",
        "key unix-time-milliseconds condition:[NX|XX|GT|LT] FIELDS numfields field [field ..]";
    "hpexpiretime", -5, Data(hash_times::hpexpiretime), READ | FAST, [first(RO | ACCESS)],
        "hash", Event::None,
        "7.4.0", "O(N) with N the fields", "Returns when fields expire, in milliseconds since 1970",
        "key FIELDS numfields field [field ..]";
    "hpttl", -5, Data(hash_times::hpttl), READ | FAST, [first(RO | ACCESS)],
        "hash", Event::None,
        "7.4.0", "O(N) with N the fields", "Returns how long fields stay, in milliseconds",
        "key FIELDS numfields field [field ..]";
    "hrandfield", -2, Data(hashes::hrandfield), READ, [first(RO | ACCESS)], "hash", Event::None,
        "6.2.0", "O(N) with N the fields returned", "Returns random fields of a hash",
        "key options:[count [WITHVALUES]]";
    "hscan", -3, Data(collections::hscan), READ, [first(RO | ACCESS)], "hash", Event::None,
        "2.8.0", "O(1) for each call", "Goes through the fields of a hash, a part with each call",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]";
    "hset", -4, Data(hashes::hset), GROW | FAST, [first(RW | UPDATE)], "hash", Event::Named("hset"),
        "2.0.0", "O(N) with N the fields", "Sets fields of a hash; creates it if there is none",
        "key field value [field value ..]";
    "hsetex", -6, Data(hash_times::hsetex), GROW | FAST, [first(RW | UPDATE)],
        "hash", Event::Told,
        "8.0.0", "O(N) with N the fields", "Sets fields, and when they expire",
        "key condition:[FNX|FXX] expiration:[EX seconds|PX milliseconds|EXAT \
         unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL] \
         FIELDS numfields field value [field value ..]";
    "hsetnx", 4, Data(hashes::hsetnx), GROW | FAST, [first(RW | INSERT)],
        "hash", Event::Named("hset"),
        "2.0.0", "O(1)", "Sets a field that does not exist",
        "key field value";
    "hstrlen", 3, Data(hashes::hstrlen), READ | FAST, [first(RO)], "hash", Event::None,
        "3.2.0", "O(1)", "Returns the length of the value of a field",
        "key field";
    "httl", -5, Data(hash_times::httl), READ | FAST, [first(RO | ACCESS)],
        "hash", Event::None,
        "7.4.0", "O(N) with N the fields", "Returns how long fields stay, in seconds",
        "key FIELDS numfields field [field ..]";
    "hvals", 2, Data(hashes::hvals), READ, [first(RO | ACCESS)], "hash", Event::None,
        "2.0.0", "O(N) with N the fields", "Returns all values of a hash",
        "key";
    } };
}
pub(crate) use hashes_rows;
