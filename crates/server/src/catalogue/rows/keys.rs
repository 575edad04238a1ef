//! Rows of the commands for keys of any type. The columns are the fields of `Row`.

macro_rules! keys_rows {
    ($with:ident) => { $with! { "generic";
    "copy", -3, Data(generic::copy), GROW, [first(RO | ACCESS), at(2, OW | UPDATE)],
        "keyspace", Event::Named("copy_to"),
        "6.2.0", "O(N) with N the elements of the value", "Copies a value to another key",
        "source destination [DB destination-db] [REPLACE]";
    "del", -2, Data(generic::del), WRITE, [all_from(1, RM | DELETE)],
        "keyspace", Event::None,
        "1.0.0", "O(N) with N the keys", "Deletes keys",
        "key [key ..]";
    "dump", 2, Data(dump::dump), READ, [first(RO | ACCESS)], "keyspace", Event::None,
        "2.6.0", "O(N) with N the bytes of the value",
        "Returns a value in the format that RESTORE reads",
        "key";
    "exists", -2, Data(generic::exists), READ | FAST, [all_from(1, RO)],
        "keyspace", Event::None,
        "1.0.0", "O(N) with N the keys", "Counts which of the keys exist",
        "key [key ..]";
    "expire", -3, Data(expire::expire), WRITE | FAST, [first(RW | UPDATE)],
        "keyspace", Event::Expiry,
        "1.0.0", "O(1)", "Sets the time to live of a key in seconds",
        "key seconds condition:[NX|XX|GT|LT]";
    "expireat", -3, Data(expire::expireat), WRITE | FAST, [first(RW | UPDATE)],
        "keyspace", Event::Expiry,
        "1.2.0", "O(1)", "Sets the time of expiry of a key in seconds since 1970",
        "key unix-time-seconds condition:[NX|XX|GT|LT]";
    "expiretime", 2, Data(expire::expiretime), READ | FAST, [first(RO | ACCESS)],
        "keyspace", Event::None,
        "7.0.0", "O(1)", "Returns the time of expiry of a key in seconds since 1970",
        "key";
    "keys", 2, Open(keys::keys), READ, [], "keyspace dangerous", Event::None,
        "1.0.0", "O(N) with N the keys of the database", "Returns all keys that match a pattern",
        "pattern";
    "migrate", -6, Open(migrate::migrate), WRITE,
        [
            at(3, RW | ACCESS | DELETE).found_by(finders::migrate_keys),
            behind("KEYS", -2, RW | ACCESS | DELETE | INCOMPLETE)
        ],
        "keyspace dangerous", Event::None,
        "2.6.0", "O(N) with N the bytes of the values",
        "Sends keys to another server, and deletes them here",
        "host port key_or_empty_string:(key|\"\") destination-db timeout:integer [COPY] [REPLACE] \
         authentication:[AUTH password|AUTH2 username password] [KEYS key [key ..]]";
    "move", 3, Data(generic::move_to), WRITE | FAST, [first(RW | ACCESS | UPDATE)],
        "keyspace", Event::Moved,
        "1.0.0", "O(1)", "Moves a key to another database",
        "key db";
    "object", -2, Data(generic::object), READ, [at(2, RO)], "", Event::None,
        "2.2.3", "-", "Tells how a value is kept",
        "";
    "persist", 2, Data(expire::persist), WRITE | FAST, [first(RW | UPDATE)],
        "keyspace", Event::Expiry,
        "2.2.0", "O(1)", "Removes the time of expiry of a key",
        "key";
    "pexpire", -3, Data(expire::pexpire), WRITE | FAST, [first(RW | UPDATE)],
        "keyspace", Event::Expiry,
        "2.6.0", "O(1)", "Sets the time to live of a key in milliseconds",
        "key milliseconds condition:[NX|XX|GT|LT]";
    "pexpireat", -3, Data(expire::pexpireat), WRITE | FAST, [first(RW | UPDATE)],
        "keyspace", Event::Expiry,
        "2.6.0", "O(1)", "Sets the time of expiry of a key in milliseconds since 1970",
        "key unix-time-milliseconds condition:[NX|XX|GT|LT]";
    "pexpiretime", 2, Data(expire::pexpiretime), READ | FAST, [first(RO | ACCESS)],
        "keyspace", Event::None,
        "7.0.0", "O(1)", "Returns the time of expiry of a key in milliseconds since 1970",
        "key";
    "pttl", 2, Data(expire::pttl), READ | FAST, [first(RO | ACCESS)], "keyspace", Event::None,
        "2.6.0", "O(1)", "Returns the time to live of a key in milliseconds",
        "key";
    "randomkey", 1, Data(keys::randomkey), READ, [], "keyspace", Event::None,
        "1.0.0", "O(1)", "Returns a random key of the database",
        "";
    "rename", 3, Data(generic::rename), WRITE, [first(RW | ACCESS | DELETE), at(2, OW | UPDATE)],
        "keyspace", Event::Renamed,
        "1.0.0", "O(1)", "Renames a key, whether the new name exists or not",
        "key newkey";
    "renamenx", 3, Data(generic::renamenx), WRITE | FAST,
        [first(RW | ACCESS | DELETE), at(2, OW | INSERT)], "keyspace", Event::Renamed,
        "1.0.0", "O(1)", "Renames a key if the new name does not exist",
        "key newkey";
    "restore", -4, Data(dump::restore), GROW, [first(OW | UPDATE)],
        "keyspace dangerous", Event::Restored,
        "2.6.0", "O(N) with N the bytes of the value", "Creates a key from what DUMP returned",
        "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]";
    "restore-asking", -4, Data(dump::restore), GROW | ASKING, [first(OW | UPDATE)],
        "keyspace dangerous", Event::Restored,
        "3.0.0", "O(N) with N the bytes of the value",
        "Creates a key from what DUMP returned, as RESTORE does",
        "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]";
    "scan", -2, Data(keys::scan), READ, [], "keyspace", Event::None,
        "2.8.0", "O(1) for each call",
        "Goes through the keys of the database, a part with each call",
        "cursor [MATCH pattern] [COUNT count] [TYPE type]";
    "sort", -2, Data(sort::sort), GROW,
        [
            first(RO | ACCESS),
            somewhere(RO | ACCESS, "BY and GET: the names follow from the elements"),
            somewhere(OW | UPDATE, "STORE may be anywhere in the request")
                .found_by(finders::sort_store)
        ],
        "set sortedset list dangerous", Event::Stored("sortstore"),
        "1.0.0", "O(N+M*log(M)) with N elements and M of them returned",
        "Sorts the elements of a list, a set or a sorted set",
        "key [BY pattern@1] [LIMIT offset count] [GET pattern@1 [GET pattern@1 ..]] \
         order:[ASC|DESC] [sorting:ALPHA] [STORE destination@2]";
    "sort_ro", -2, Data(sort::sort_ro), READ,
        [
            first(RO | ACCESS),
            somewhere(RO | ACCESS, "BY and GET: the names follow from the elements")
        ],
        "set sortedset list dangerous", Event::None,
        "7.0.0", "O(N+M*log(M)) with N elements and M of them returned",
        "Sorts the elements of a list, a set or a sorted set, and stores nothing",
        "key [BY pattern@1] [LIMIT offset count] [GET pattern@1 [GET pattern@1 ..]] \
         order:[ASC|DESC] [sorting:ALPHA]";
    "touch", -2, Data(generic::exists), READ | FAST, [all_from(1, RO)],
        "keyspace", Event::None,
        "3.2.1", "O(N) with N the keys", "Counts which of the keys exist, as EXISTS does",
        "key [key ..]";
    "ttl", 2, Data(expire::ttl), READ | FAST, [first(RO | ACCESS)], "keyspace", Event::None,
        "1.0.0", "O(1)", "Returns the time to live of a key in seconds",
        "key";
    "type", 2, Data(generic::type_of), READ | FAST, [first(RO)], "keyspace", Event::None,
        "1.0.0", "O(1)", "Returns the type of a value",
        "key";
    "unlink", -2, Data(generic::del), WRITE | FAST, [all_from(1, RM | DELETE)],
        "keyspace", Event::None,
        "4.0.0", "O(N) with N the keys", "Deletes keys; memory is freed later",
        "key [key ..]";
    "wait", 3, Local(server::wait), NOSCRIPT, [], "connection", Event::None,
        "3.0.0", "O(1)", "Returns the number of replicas that have what was written; 0 here",
        "numreplicas timeout:integer";
    "waitaof", 4, Local(server::waitaof), NOSCRIPT, [], "connection", Event::None,
        "7.2.0", "O(1)", "Waits until what was written is on disk",
        "numlocal numreplicas timeout:integer";
    } };
}
pub(crate) use keys_rows;
