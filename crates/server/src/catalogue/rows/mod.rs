//! The rows of all commands, by group.
//!
//! The columns of a row: name, arity, phase and function, flags, specifications of the keys,
//! categories not implied by the flags, keyspace event, version, complexity, summary, and arguments
//! in the notation of COMMAND DOCS.

mod bitmaps;
mod connection;
mod geo;
mod hashes;
mod hyperloglogs;
mod keys;
mod lists;
mod pubsub;
mod scripting;
mod server;
mod sets;
mod sorted_sets;
mod streams;
mod strings;
mod transactions;

pub(crate) use bitmaps::bitmaps_rows;
pub(crate) use connection::connection_rows;
pub(crate) use geo::geo_rows;
pub(crate) use hashes::hashes_rows;
pub(crate) use hyperloglogs::hyperloglogs_rows;
pub(crate) use keys::keys_rows;
pub(crate) use lists::lists_rows;
pub(crate) use pubsub::pubsub_rows;
pub(crate) use scripting::scripting_rows;
pub(crate) use server::server_rows;
pub(crate) use sets::sets_rows;
pub(crate) use sorted_sets::sorted_sets_rows;
pub(crate) use streams::streams_rows;
pub(crate) use strings::strings_rows;
pub(crate) use transactions::transactions_rows;

/// Expands the rows of each group by a macro: an array of the macro's results.
macro_rules! each_row {
    ($with:ident) => {
        [
            $crate::catalogue::rows::strings_rows!($with),
            $crate::catalogue::rows::bitmaps_rows!($with),
            $crate::catalogue::rows::hyperloglogs_rows!($with),
            $crate::catalogue::rows::lists_rows!($with),
            $crate::catalogue::rows::sets_rows!($with),
            $crate::catalogue::rows::hashes_rows!($with),
            $crate::catalogue::rows::sorted_sets_rows!($with),
            $crate::catalogue::rows::geo_rows!($with),
            $crate::catalogue::rows::streams_rows!($with),
            $crate::catalogue::rows::keys_rows!($with),
            $crate::catalogue::rows::connection_rows!($with),
            $crate::catalogue::rows::pubsub_rows!($with),
            $crate::catalogue::rows::transactions_rows!($with),
            $crate::catalogue::rows::scripting_rows!($with),
            $crate::catalogue::rows::server_rows!($with),
        ]
    };
}
pub(crate) use each_row;
