//! Promises of tables, checkpoints, snapshots and copies.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod checkpoints;
mod closing;
mod copies;
mod decoders;
mod edits;
mod former_row_frames;
mod inspecting;
mod large;
mod model;
mod read_only;
mod row_sizes;
mod salvage;
mod schema_change;
mod schema_change_walk;
mod sessions;
mod settings;
mod snapshots;
mod table_stats;
mod typed;
mod walking;

use common::{Combination, some_combinations};
use hyades_schemes::ARRIVAL;

/// [`some_combinations`] under which transactions may be closures.
fn some_combinations_of_closures(offset: usize) -> Vec<(usize, Combination)> {
    some_combinations(offset).into_iter().filter(|(_, c)| c.protocol != ARRIVAL).collect()
}
