//! Rows of the commands for the server. The columns are the fields of `Row`.

macro_rules! server_rows {
    ($with:ident) => { $with! { "server";
    "acl", -2, Local(acl::acl), ADMIN, [], "", Event::None,
        "6.0.0", "-", "Users, and the rules of what they may do",
        "";
    "bgrewriteaof", 1, Open(saving::bgrewriteaof), ADMIN | NOSCRIPT | NO_ASYNC_LOADING, [],
        "", Event::None,
        "1.0.0", "O(1)", "Begins a checkpoint",
        "";
    "bgsave", -1, Open(saving::bgsave), ADMIN | NOSCRIPT | NO_ASYNC_LOADING, [], "", Event::None,
        "1.0.0", "O(1)", "Begins a checkpoint",
        "[SCHEDULE]";
    "cluster", -2, Local(cluster::cluster), NO_FLAGS, [], "", Event::None,
        "3.0.0", "-", "Tells clients of a cluster where its slots are",
        "";
    "command", -1, Local(command_docs::command), NO_FLAGS, [], "connection", Event::None,
        "2.8.13", "O(N) with N the commands", "Tells of the commands",
        "";
    "config", -2, Local(config_command::config), ADMIN, [], "", Event::None,
        "2.0.0", "-", "Reads and changes settings",
        "";
    "dbsize", 1, Data(generic::dbsize), READ | FAST, [], "keyspace", Event::None,
        "1.0.0", "O(1)", "Returns the number of keys of the database",
        "";
    "debug", -2, Local(debug::debug), ADMIN | NOSCRIPT, [], "", Event::None,
        "1.0.0", "-", "Helps those who look for faults",
        "subcommand [arg ..]";
    #[cfg(feature = "replication")]
    "failover", -1, Local(members::failover), ADMIN | NOSCRIPT, [], "", Event::None,
        "6.2.0", "O(1)", "Hands a replicated database over to another member",
        "target:[TO host port:integer [FORCE]] [ABORT] [TIMEOUT milliseconds:integer]";
    "flushall", -1, Data(generic::flushall), WRITE, [], "keyspace dangerous", Event::None,
        "1.0.0", "O(1)", "Deletes all keys of all databases; memory is freed later",
        "async:[ASYNC|SYNC]";
    "flushdb", -1, Data(generic::flushdb), WRITE, [], "keyspace dangerous", Event::None,
        "1.0.0", "O(1)", "Deletes all keys of the database; memory is freed later",
        "async:[ASYNC|SYNC]";
    "hyades.backup", 2, Open(server::backup), ADMIN, [], "", Event::None,
        "0.1.0", "O(N) with N the bytes of the database", "Copies the database while it is used",
        "name";
    "info", -1, Local(info::info), NO_FLAGS, [], "dangerous", Event::None,
        "1.0.0", "O(1)", "Tells of the server",
        "[section ..]";
    "lastsave", 1, Local(saving::lastsave), FAST, [], "admin dangerous", Event::None,
        "1.0.0", "O(1)", "Returns the time of the newest checkpoint",
        "";
    "latency", -2, Local(latency::latency), ADMIN, [], "", Event::None,
        "2.8.13", "-", "Tells of commands that took long",
        "";
    "lolwut", -1, Local(server::lolwut), READ | FAST, [], "", Event::None,
        "5.0.0", "O(1)", "Returns the version",
        "[VERSION version]";
    "memory", -2, Data(generic::memory), READ, [at(2, RO)], "", Event::None,
        "4.0.0", "-", "Tells of memory",
        "";
    "monitor", 1, Local(connection::monitor), ADMIN | NOSCRIPT, [], "", Event::None,
        "1.0.0", "-", "Shows the commands of all connections",
        "";
    "replicaof", 3, Open(replicaof::replicaof), ADMIN | NOSCRIPT | NO_ASYNC_LOADING, [],
        "", Event::None,
        "5.0.0", "O(1)", "Begins a live import from a primary, or cuts it over",
        "host port:integer";
    "role", 1, Local(server::role), FAST | NOSCRIPT, [], "admin dangerous", Event::None,
        "2.8.12", "O(1)", "Returns the role of the server, and how far a live import is",
        "";
    "save", 1, Open(saving::save), ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI, [],
        "", Event::None,
        "1.0.0", "O(N) with N the keys", "Takes a checkpoint",
        "";
    #[cfg(feature = "replication")]
    "sentinel", -2, Local(sentinel::sentinel), ADMIN | NOSCRIPT, [], "", Event::None,
        "2.8.4", "-", "Tells clients of Sentinel where the primary is",
        "";
    "shutdown", -1, Local(server::shutdown), ADMIN | NOSCRIPT | NO_MULTI | ALLOW_BUSY, [],
        "", Event::None,
        "1.0.0", "O(1)", "Stops the server",
        "[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]";
    "slaveof", 3, Open(replicaof::replicaof), ADMIN | NOSCRIPT | NO_ASYNC_LOADING, [],
        "", Event::None,
        "1.0.0", "O(1)", "As REPLICAOF",
        "host port:integer";
    "slowlog", -2, Local(slowlog::slowlog), ADMIN, [], "", Event::None,
        "2.2.12", "-", "Tells of the slowest commands",
        "";
    "swapdb", 3, Data(generic::swapdb), WRITE | FAST, [], "keyspace dangerous", Event::None,
        "4.0.0", "O(1)", "Exchanges two databases",
        "index1 index2";
    "time", 1, Local(server::time), FAST, [], "", Event::None,
        "2.6.0", "O(1)", "Returns the time of the server",
        "";
    } };
}
pub(crate) use server_rows;
