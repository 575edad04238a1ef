//! The commands and subcommands of Redis missing in this server: their categories. No entry has
//! keys.

/// Categories, and the names with exactly these categories.
pub const UNBUILT: &[(&str, &str)] = &[
    #[cfg(not(feature = "replication"))]
    ("admin slow dangerous", "failover"),
    (
        "admin slow dangerous",
        "cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|count-failure-reports \
         cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots \
         cluster|forget cluster|meet cluster|replicate cluster|reset \
         cluster|saveconfig cluster|set-config-epoch cluster|setslot \
         module|list module|load module|loadex module|unload psync replconf sync",
    ),
    ("slow", "memory|malloc-stats memory|purge module module|help"),
];
