//! The functions of the commands, in the order of the catalogue.

#[cfg(test)]
use super::example;
use super::{DataCommand, LocalCommand, ScriptCommand};
use super::{
    acl, bitfield, bits, blocking, client, cluster, collections, command_docs, comparing,
    config_command, connection, debug, dump, expire, generic, geo, geo_search, hash_times, hashes,
    hyperloglog, info, keys, latency, lcs, libraries, list_edits, lists, migrate, numbers, pubsub,
    replicaof, saving, scripts, server, sets, slowlog, sort, sorted_set_algebra, sorted_set_ranges,
    sorted_sets, stream_claims, stream_groups, stream_info, stream_reads, streams, strings,
    watching,
};
#[cfg(feature = "replication")]
use super::{members, sentinel};
use crate::catalogue::{self, each_row};
use std::sync::OnceLock;

/// The function of a command, by its phase.
#[derive(Clone, Copy)]
pub enum Function {
    /// In a transaction, together with its neighbours.
    Data(DataCommand),
    /// As `Data`, for commands that run other commands.
    Script(ScriptCommand),
    /// Outside of transactions.
    Local(LocalCommand),
    /// None: the conversation itself runs the command.
    Conversation,
}

/// The functions of a group of rows, with the names of the commands.
macro_rules! functions {
    ($group:literal; $(
        $(#[$attribute:meta])*
        $name:literal, $arity:literal, $phase:ident($($function:path)?), $flags:expr,
        [$($key:expr),*], $categories:literal, $event:expr,
        $since:literal, $complexity:literal, $summary:literal,
        $arguments:literal;
    )*) => {
        &[$( $(#[$attribute])* ($name, functions!(@ $phase $($function)?)) ),*]
    };
    (@ Data $function:path) => { Function::Data($function) };
    (@ Script $function:path) => { Function::Script($function) };
    (@ Local $function:path) => { Function::Local($function) };
    (@ Open $function:path) => { Function::Local($function) };
    (@ Multi) => { Function::Conversation };
}

/// The function of the command at a place in the catalogue.
pub fn function(place: usize) -> Function {
    static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
    let functions = FUNCTIONS.get_or_init(|| {
        let groups: &[&[(&str, Function)]] = &each_row!(functions);
        let mut all = groups.concat();
        all.sort_by_key(|(name, _)| *name);
        assert!(all.iter().map(|row| row.0).eq(catalogue::all().iter().map(|row| row.name)));
        all.into_iter().map(|(_, function)| function).collect()
    });
    functions[place]
}
