//! The logging and recovery protocols of Hyades as small models that a checker explores
//! exhaustively: every order of appends, flushes, acknowledgements, power cuts, replays and
//! reopenings, for a few streams and transactions.
//!
//! Each model takes its rules as a parameter. With the rules *as printed* in the papers the checker
//! finds a shortest sequence of steps that breaks a promise; with the rules *as built* the checker
//! visits every state and finds no broken promise. *Mutations* are rules as built with one mistake;
//! the checker has to find each mistake, or the check would prove nothing. docs/protocols discusses
//! the items one by one, with the traces printed by this crate:
//!
//! ```text
//! cargo run -p hyades-model            # every item
//! cargo run -p hyades-model -- E4 E6   # some
//! ```
//!
//! The model of the transaction component as a whole has too many states for every order, and draws
//! its interleavings at random.
//!
//! A model does not prove the code: it checks the rules, with one-byte frames and sequentially
//! consistent memory. The head of each model names the omissions. The checker identifies states by
//! 64-bit fingerprints.
#![forbid(unsafe_code)]

pub mod case;
pub mod check;
pub mod history;
pub mod vector;

pub mod absence;
pub mod anchors;
pub mod arrival;
pub mod checkpoint;
pub mod deuteronomy;
pub mod flush_point;
pub mod gsn;
pub mod hot_rows;
pub mod inserting;
pub mod judging;
pub mod kept_rows;
pub mod mixed;
pub mod numbered;
pub mod occ;
pub mod partitions;
pub mod plover;
pub mod poplar;
pub mod predecessors;
pub mod replaying;
pub mod replication;
pub mod session_order;
pub mod silo_r;
pub mod snapshots;
pub mod sums;
pub mod tictoc;
pub mod timestamp_order;
pub mod turns;
pub mod unwritten;
pub mod versioned_replay;
pub mod versions;

use case::Case;

/// Every case of every model, in the order of docs/protocols.
pub fn cases() -> Vec<Case> {
    let models = [
        judging::cases,
        replaying::cases,
        occ::cases,
        inserting::cases,
        absence::cases,
        anchors::cases,
        flush_point::cases,
        hot_rows::cases,
        unwritten::cases,
        mixed::cases,
        checkpoint::cases,
        snapshots::cases,
        kept_rows::cases,
        poplar::cases,
        silo_r::cases,
        gsn::cases,
        plover::cases,
        predecessors::cases,
        tictoc::cases,
        versions::cases,
        versioned_replay::cases,
        timestamp_order::cases,
        deuteronomy::cases,
        deuteronomy::ranges::cases,
        partitions::cases,
        turns::cases,
        arrival::cases,
        session_order::cases,
        sums::cases,
        replication::lane::cases,
        replication::takeover::cases,
        replication::lease::cases,
        replication::marks::cases,
        replication::holds::cases,
    ];
    let mut all: Vec<Case> = models.into_iter().flat_map(|cases| cases()).collect();
    let place = |case: &Case| ITEMS.iter().position(|item| *item == case.item);
    all.sort_by_key(|case| place(case).expect("every item has its place"));
    all
}

/// The items, in the order of docs/protocols.
pub const ITEMS: &[&str] = &[
    "E1",
    "E2",
    "E3",
    "E4",
    "E5",
    "E6",
    "E7",
    "E8",
    "E10",
    "Compression",
    "Flush point",
    "Hot-row table",
    "Unwritten tables",
    "Waiting",
    "After recovery",
    "Data and commands",
    "Checkpoints",
    "Snapshots",
    "Kept rows",
    "Poplar",
    "Silo-R",
    "GSN",
    "Plover",
    "Taurus of 2016",
    "TicToc",
    "Hekaton",
    "Versions at replay",
    "Timestamp order",
    "Deuteronomy",
    "Scans",
    "Partitions",
    "Turns",
    "Arrival",
    "Session order",
    "Sums",
    "Replicated lane",
    "Takeover",
    "Lease",
    "Cut marks",
    "Holds",
];
