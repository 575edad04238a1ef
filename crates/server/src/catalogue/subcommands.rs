//! The subcommands of this server: a row for each.

use super::categories;
use super::flags::{
    ADMIN, ALLOW_BUSY, ANY_ARITY, DENY_OOM, NO_FLAGS, NOSCRIPT, PUBSUB, READ, WRITE,
};

/// A subcommand.
pub struct Subcommand {
    /// The whole name, in lower case: `config|set`.
    pub name: &'static str,
    /// [`WRITE`] and other flags.
    pub flags: u32,
    /// Categories that do not follow from the flags.
    categories: &'static str,
    /// The version that brought the subcommand: of Redis, or of Hyades for its own subcommands.
    pub since: &'static str,
    /// How the time grows with the data; `-` for nothing to say.
    pub complexity: &'static str,
    /// The purpose, in a sentence.
    pub summary: &'static str,
    /// The arguments, in the notation of COMMAND DOCS.
    pub arguments: &'static str,
}

impl Subcommand {
    /// The name of the command.
    pub fn command(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(command, _)| command)
    }

    /// A bit for each category.
    pub fn categories(&self) -> u32 {
        categories::of(self.flags, self.categories)
    }
}

/// The subcommands of a command, by name.
pub fn subcommands_of(command: &str) -> &'static [Subcommand] {
    let begin = SUBCOMMANDS.partition_point(|row| row.command() < command);
    let end = SUBCOMMANDS.partition_point(|row| row.command() <= command);
    &SUBCOMMANDS[begin..end]
}

/// The subcommand of a whole name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Subcommand> {
    let command = name.split(|byte| *byte == b'|').next()?.to_ascii_lowercase();
    let rows = subcommands_of(std::str::from_utf8(&command).ok()?);
    rows.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}

macro_rules! subcommands {
    ($(
        $(#[$attribute:meta])*
        $name:literal, $flags:expr, $categories:literal,
        $since:literal, $complexity:literal, $summary:literal,
        $arguments:literal;
    )*) => {
        &[$($(#[$attribute])* Subcommand {
            name: $name,
            flags: $flags,
            categories: $categories,
            since: $since,
            complexity: $complexity,
            summary: $summary,
            arguments: $arguments,
        }),*]
    };
}

/// All subcommands by name. The columns are the fields of [`Subcommand`].
pub const SUBCOMMANDS: &[Subcommand] = subcommands! {
    "acl|cat", NOSCRIPT | ANY_ARITY, "",
        "6.0.0", "O(1)", "Lists the categories of commands, or the commands of one",
        "[categoryname]";
    "acl|deluser", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the users", "Removes users, and disconnects their clients",
        "username [username ..]";
    "acl|dryrun", ADMIN | NOSCRIPT, "",
        "7.0.0", "O(1)", "Tells whether a user may run a command",
        "username command [arg ..]";
    "acl|genpass", NOSCRIPT | ANY_ARITY, "",
        "6.0.0", "O(1)", "Returns a random password",
        "[bits]";
    "acl|getuser", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the rules", "Returns the rules of a user",
        "username";
    "acl|help", NO_FLAGS, "",
        "6.0.0", "O(1)", "Lists the subcommands",
        "";
    "acl|list", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the users", "Lists the users as lines of a file",
        "";
    "acl|load", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the users", "Reads the users from their file",
        "";
    "acl|log", ADMIN | NOSCRIPT | ANY_ARITY, "",
        "6.0.0", "O(N) with N the entries", "Lists what was refused, or forgets it",
        "operation:[count|RESET]";
    "acl|save", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the users", "Writes the users to their file",
        "";
    "acl|setuser", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the rules", "Adds rules to a user; creates it if there is none",
        "username [rule ..]";
    "acl|users", ADMIN | NOSCRIPT, "",
        "6.0.0", "O(N) with N the users", "Lists the names of the users",
        "";
    "acl|whoami", NOSCRIPT, "",
        "6.0.0", "O(1)", "Returns the name of the user of the connection",
        "";
    "client|caching", NOSCRIPT, "connection",
        "6.0.0", "O(1)", "Says whether keys of the next command are remembered",
        "mode:(YES|NO)";
    "client|getname", NOSCRIPT, "connection",
        "2.6.9", "O(1)", "Returns the name of the connection",
        "";
    "client|getredir", NOSCRIPT, "connection",
        "6.0.0", "O(1)", "Returns the connection that is told of changed keys",
        "";
    "client|help", NO_FLAGS, "connection",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "client|id", NOSCRIPT, "connection",
        "5.0.0", "O(1)", "Returns the id of the connection",
        "";
    "client|info", NOSCRIPT, "connection",
        "6.2.0", "O(1)", "Tells of the connection",
        "";
    "client|kill", ADMIN | NOSCRIPT, "connection",
        "2.4.0", "O(N) with N the connections", "Ends connections",
        "filter:(ip:port|new-format:(ID client-id|TYPE (NORMAL|MASTER|SLAVE|REPLICA|PUBSUB) |USER \
         username|ADDR ip:port|LADDR ip:port|SKIPME (YES|NO)|MAXAGE seconds) ..)";
    "client|list", ADMIN | NOSCRIPT | ANY_ARITY, "connection",
        "2.4.0", "O(N) with N the connections", "Lists connections",
        "[TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID client-id [client-id ..]]";
    "client|no-evict", ADMIN | NOSCRIPT, "connection",
        "7.0.0", "O(1)", "Sets a flag of CLIENT LIST: connections are not evicted",
        "enabled:(ON|OFF)";
    "client|no-touch", NOSCRIPT, "connection",
        "7.2.0", "O(1)", "Sets a flag of CLIENT LIST: times of use are not kept",
        "enabled:(ON|OFF)";
    "client|pause", ADMIN | NOSCRIPT, "connection",
        "2.9.50", "O(1)", "Has commands, or those that write, wait for a time",
        "timeout:integer mode:[WRITE|ALL]";
    "client|reply", NOSCRIPT, "connection",
        "3.2.0", "O(1)", "Says whether commands of the connection are answered",
        "(ON|OFF|SKIP)";
    "client|setinfo", NOSCRIPT, "connection",
        "7.2.0", "O(1)", "Sets the name or the version of the client's library",
        "attr:(LIB-NAME libname|LIB-VER libver)";
    "client|setname", NOSCRIPT, "connection",
        "2.6.9", "O(1)", "Sets the name of the connection",
        "connection-name";
    "client|tracking", NOSCRIPT, "connection",
        "6.0.0", "O(1)", "Has a connection told of keys that it has read and that are written",
        "status:(ON|OFF) [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ..]] [BCAST] [OPTIN] \
         [OPTOUT] [NOLOOP]";
    "client|trackinginfo", NOSCRIPT, "connection",
        "6.2.0", "O(1)", "Tells how the connection is told of changed keys",
        "";
    "client|unblock", ADMIN | NOSCRIPT, "connection",
        "5.0.0", "O(log(N)) with N the connections", "Ends the wait of a connection",
        "client-id [TIMEOUT|ERROR]";
    "client|unpause", ADMIN | NOSCRIPT, "connection",
        "6.2.0", "O(N) with N the connections that wait", "Ends CLIENT PAUSE",
        "";
    "cluster|countkeysinslot", NO_FLAGS, "",
        "3.0.0", "O(N) with N the keys of the database", "Returns the number of keys of a slot",
        "slot:integer";
    "cluster|getkeysinslot", NO_FLAGS, "",
        "3.0.0", "O(N) with N the keys of the database", "Returns keys of a slot",
        "slot:integer count:integer";
    "cluster|help", NO_FLAGS, "",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "cluster|info", NO_FLAGS, "",
        "3.0.0", "O(1)", "Tells of the state of the cluster",
        "";
    "cluster|keyslot", NO_FLAGS, "",
        "3.0.0", "O(N) with N the bytes of the key", "Returns the slot of a key",
        "key:string";
    "cluster|links", NO_FLAGS, "",
        "7.0.0", "O(1)", "Returns nothing: there is no bus between nodes",
        "";
    "cluster|myid", NO_FLAGS, "",
        "3.0.0", "O(1)", "Returns the id of the node",
        "";
    "cluster|nodes", NO_FLAGS, "",
        "3.0.0", "O(N) with N the nodes", "Tells of the nodes as lines of text",
        "";
    "cluster|replicas", ADMIN, "",
        "5.0.0", "O(N) with N the nodes", "Tells of the standbys of a primary",
        "node-id";
    "cluster|shards", NO_FLAGS, "",
        "7.0.0", "O(N) with N the nodes", "Tells of the shard: its slots and its nodes",
        "";
    "cluster|slaves", ADMIN, "",
        "3.0.0", "O(N) with N the nodes", "As CLUSTER REPLICAS",
        "node-id";
    "cluster|slots", NO_FLAGS, "",
        "3.0.0", "O(N) with N the nodes", "Tells where the slots are",
        "";
    "command|count", NO_FLAGS, "connection",
        "2.8.13", "O(1)", "Returns the number of commands",
        "";
    "command|docs", ANY_ARITY, "connection",
        "7.0.0", "O(N) with N the commands asked for",
        "Returns what commands do and their arguments",
        "[command-name ..]";
    "command|getkeys", NO_FLAGS, "connection",
        "2.8.13", "O(N) with N the arguments", "Returns the keys of a command line",
        "command arg [arg ..]";
    "command|getkeysandflags", ANY_ARITY, "connection",
        "7.0.0", "O(N) with N the arguments",
        "Returns the keys of a command line, and what it does with each",
        "command arg [arg ..]";
    "command|help", NO_FLAGS, "connection",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "command|info", ANY_ARITY, "connection",
        "2.8.13", "O(N) with N the commands asked for", "Returns arity, flags and keys of commands",
        "[command-name ..]";
    "command|list", ANY_ARITY, "connection",
        "7.0.0", "O(N) with N the commands", "Lists the names of the commands",
        "filterby:[FILTERBY (MODULE module-name|ACLCAT category|PATTERN pattern)]";
    "config|get", ADMIN | NOSCRIPT, "",
        "2.0.0", "O(N) with N the settings", "Returns the settings whose names match",
        "parameter [parameter ..]";
    "config|help", NO_FLAGS, "",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "config|resetstat", ADMIN | NOSCRIPT, "",
        "2.0.0", "O(1)", "Sets the counters of INFO to 0",
        "";
    "config|rewrite", ADMIN | NOSCRIPT, "",
        "2.8.0", "O(1)", "Writes the settings to their file",
        "";
    "config|set", ADMIN | NOSCRIPT, "",
        "2.0.0", "O(N) with N the settings", "Changes settings",
        "parameter value [parameter value ..]";
    "function|delete", WRITE | NOSCRIPT, "scripting",
        "7.0.0", "O(N) with N the functions", "Deletes a library and its functions",
        "library-name";
    "function|dump", NOSCRIPT, "scripting",
        "7.0.0", "O(N) with N the functions", "Returns all libraries as a payload",
        "";
    "function|flush", WRITE | NOSCRIPT | ANY_ARITY, "scripting",
        "7.0.0", "O(N) with N the functions", "Deletes all libraries",
        "async:[ASYNC|SYNC]";
    "function|help", NO_FLAGS, "scripting",
        "7.0.0", "O(1)", "Lists the subcommands",
        "";
    "function|kill", NOSCRIPT | ALLOW_BUSY, "scripting",
        "7.0.0", "O(1)", "Ends the functions that take long, and undoes what they have done",
        "";
    "function|list", NOSCRIPT | ANY_ARITY, "scripting",
        "7.0.0", "O(N) with N the functions", "Lists the libraries",
        "[LIBRARYNAME library-name-pattern] [WITHCODE]";
    "function|load", WRITE | DENY_OOM | NOSCRIPT, "scripting",
        "7.0.0", "O(N) with N the bytes of the code", "Keeps a library",
        "[REPLACE] function-code";
    "function|restore", WRITE | DENY_OOM | NOSCRIPT, "scripting",
        "7.0.0", "O(N) with N the bytes of the payload", "Keeps the libraries of a payload",
        "serialized-value policy:[FLUSH|APPEND|REPLACE]";
    "function|stats", NOSCRIPT | ALLOW_BUSY, "scripting",
        "7.0.0", "O(N) with N the functions", "Tells of libraries, and of a function that runs",
        "";
    "latency|doctor", ADMIN | NOSCRIPT, "",
        "2.8.13", "O(1)", "Tells in words what took long",
        "";
    "latency|graph", ADMIN | NOSCRIPT, "",
        "2.8.13", "O(1)", "Draws the times of an event",
        "event";
    "latency|help", NO_FLAGS, "",
        "2.8.13", "O(1)", "Lists the subcommands",
        "";
    "latency|histogram", ADMIN | NOSCRIPT, "",
        "7.0.0", "O(N) with N the commands", "Returns how long commands took",
        "[command ..]";
    "latency|history", ADMIN | NOSCRIPT, "",
        "2.8.13", "O(1)", "Returns the times of an event",
        "event";
    "latency|latest", ADMIN | NOSCRIPT, "",
        "2.8.13", "O(1)", "Returns the last time of each event",
        "";
    "latency|reset", ADMIN | NOSCRIPT, "",
        "2.8.13", "O(1)", "Forgets events",
        "[event ..]";
    "memory|doctor", NO_FLAGS, "",
        "4.0.0", "O(1)", "Tells in words how much memory is used",
        "";
    "memory|help", NO_FLAGS, "",
        "4.0.0", "O(1)", "Lists the subcommands",
        "";
    "memory|stats", NO_FLAGS, "",
        "4.0.0", "O(1)", "Returns how much memory is used",
        "";
    "memory|usage", READ, "",
        "4.0.0", "O(N) with N the blocks of the value", "Returns the bytes that a key takes",
        "key [SAMPLES count]";
    "object|encoding", READ, "keyspace",
        "2.2.3", "O(1)", "Returns the encoding of a value",
        "key";
    "object|freq", READ, "keyspace",
        "4.0.0", "O(1)", "Returns how often a key is used, where that is counted",
        "key";
    "object|help", NO_FLAGS, "keyspace",
        "6.2.0", "O(1)", "Lists the subcommands",
        "";
    "object|idletime", READ, "keyspace",
        "2.2.3", "O(1)", "Returns the time since a key was used; 0 here",
        "key";
    "object|refcount", READ, "keyspace",
        "2.2.3", "O(1)", "Returns the number of references to a value; 1 here",
        "key";
    "pubsub|channels", PUBSUB | ANY_ARITY, "",
        "2.8.0", "O(N) with N the channels", "Lists the channels that have subscribers",
        "[pattern]";
    "pubsub|help", NO_FLAGS, "",
        "6.2.0", "O(1)", "Lists the subcommands",
        "";
    "pubsub|numpat", PUBSUB, "",
        "2.8.0", "O(1)", "Returns the number of patterns that have subscribers",
        "";
    "pubsub|numsub", PUBSUB, "",
        "2.8.0", "O(N) with N the channels asked for",
        "Returns the number of subscribers of channels",
        "[channel ..]";
    "pubsub|shardchannels", PUBSUB | ANY_ARITY, "",
        "7.0.0", "O(N) with N the shard channels", "Lists the shard channels that have subscribers",
        "[pattern]";
    "pubsub|shardnumsub", PUBSUB, "",
        "7.0.0", "O(N) with N the channels asked for",
        "Returns the number of subscribers of shard channels",
        "[shardchannel ..]";
    "script|debug", NOSCRIPT, "scripting",
        "3.2.0", "O(1)", "Says that scripts are not debugged",
        "mode:(YES|SYNC|NO)";
    "script|exists", NOSCRIPT, "scripting",
        "2.6.0", "O(N) with N the digests", "Tells which scripts EVALSHA knows",
        "sha1 [sha1 ..]";
    "script|flush", NOSCRIPT | ANY_ARITY, "scripting",
        "2.6.0", "O(N) with N the scripts", "Forgets all scripts",
        "async:[ASYNC|SYNC]";
    "script|help", NO_FLAGS, "scripting",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "script|kill", NOSCRIPT | ALLOW_BUSY, "scripting",
        "2.6.0", "O(1)", "Ends the scripts that take long, and undoes what they have done",
        "";
    "script|load", NOSCRIPT, "scripting",
        "2.6.0", "O(N) with N the bytes of the script", "Keeps a script for EVALSHA",
        "script";
    #[cfg(feature = "replication")]
    "sentinel|ckquorum", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(1)", "Tells whether a primary is known",
        "master-name";
    #[cfg(feature = "replication")]
    "sentinel|get-master-addr-by-name", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(1)", "Returns the address of the primary",
        "master-name";
    #[cfg(feature = "replication")]
    "sentinel|help", NO_FLAGS, "",
        "2.8.4", "O(1)", "Lists the subcommands",
        "";
    #[cfg(feature = "replication")]
    "sentinel|master", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(1)", "Tells of the primary",
        "master-name";
    #[cfg(feature = "replication")]
    "sentinel|masters", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(1)", "Tells of the primary, if one is known",
        "";
    #[cfg(feature = "replication")]
    "sentinel|myid", ADMIN | NOSCRIPT, "",
        "6.2.0", "O(1)", "Returns the id of this member",
        "";
    #[cfg(feature = "replication")]
    "sentinel|replicas", ADMIN | NOSCRIPT, "",
        "5.0.0", "O(N) with N the members", "Tells of the standbys",
        "master-name";
    #[cfg(feature = "replication")]
    "sentinel|sentinels", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(N) with N the members", "Tells of the other members",
        "master-name";
    #[cfg(feature = "replication")]
    "sentinel|slaves", ADMIN | NOSCRIPT, "",
        "2.8.4", "O(N) with N the members", "Tells of the standbys",
        "master-name";
    "slowlog|get", ADMIN | ANY_ARITY, "",
        "2.2.12", "O(N) with N the entries", "Returns the newest entries of the slow log",
        "[count]";
    "slowlog|help", NO_FLAGS, "",
        "6.2.0", "O(1)", "Lists the subcommands",
        "";
    "slowlog|len", ADMIN, "",
        "2.2.12", "O(1)", "Returns the number of entries of the slow log",
        "";
    "slowlog|reset", ADMIN, "",
        "2.2.12", "O(N) with N the entries", "Removes all entries of the slow log",
        "";
    "xgroup|create", WRITE | DENY_OOM, "stream",
        "5.0.0", "O(1)", "Creates a group",
        "key groupname id:(id|new_id:$) [MKSTREAM] [ENTRIESREAD entries_read:integer]";
    "xgroup|createconsumer", WRITE | DENY_OOM, "stream",
        "6.2.0", "O(1)", "Creates a consumer",
        "key groupname consumername";
    "xgroup|delconsumer", WRITE, "stream",
        "5.0.0", "O(N) with N the entries pending in the group", "Removes a consumer",
        "key groupname consumername";
    "xgroup|destroy", WRITE, "stream",
        "5.0.0", "O(1)", "Removes a group",
        "key groupname";
    "xgroup|help", NO_FLAGS, "stream",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "xgroup|setid", WRITE, "stream",
        "5.0.0", "O(1)", "Sets the last id that a group was delivered",
        "key groupname id:(id|new_id:$) [ENTRIESREAD entries_read:integer]";
    "xinfo|consumers", READ, "stream",
        "5.0.0", "O(N) with N the consumers", "Lists the consumers of a group",
        "key groupname";
    "xinfo|groups", READ, "stream",
        "5.0.0", "O(N) with N the groups", "Lists the groups of a stream",
        "key";
    "xinfo|help", NO_FLAGS, "stream",
        "5.0.0", "O(1)", "Lists the subcommands",
        "";
    "xinfo|stream", READ, "stream",
        "5.0.0", "O(N) with N the nodes and groups of the stream", "Tells of a stream",
        "key full:[FULL [COUNT count]]";
};
