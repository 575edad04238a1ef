//! Isolation, checked by history: what clients asked and were told, when, and whether some serial
//! order explains it that agrees with real time.
//!
//! [`check`](graph::check) builds the graph of dependencies of Adya ("Weak Consistency: A
//! Generalized Theory and Optimistic Implementations for Distributed Transactions", MIT, 1999) from
//! histories that tell the order of versions by themselves, as Kingsbury and Alvaro do ("Elle:
//! Inferring Isolation Anomalies from Experimental Observations", VLDB 2020): every value is written
//! once, lists are only appended to, and a register's write says what it replaced. [`search`] knows
//! nothing of graphs: it tries all orders, and is what the graph is compared with.

pub mod graph;
pub mod search;
pub mod workload;

/// Something that a transaction did, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A value, unique in the history, goes to the end of a list.
    Append {
        /// The list.
        key: u64,
        /// The value.
        value: u64,
    },
    /// A list is read.
    List {
        /// The list.
        key: u64,
        /// Its values.
        saw: Vec<u64>,
    },
    /// A register gets a value, unique in the history.
    Write {
        /// The register.
        key: u64,
        /// The value.
        value: u64,
        /// The value that it had, as read by the same transaction.
        over: Option<u64>,
    },
    /// Registers of a range are read.
    Scan {
        /// The first register.
        from: u64,
        /// The last.
        to: u64,
        /// Those that have a value.
        saw: Vec<(u64, u64)>,
    },
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was acknowledged at this moment.
    Acknowledged(u64),
    /// It took back what it did; what it saw it was told at this moment.
    Aborted(u64),
    /// It may have happened, at any time since.
    Unknown,
}

/// A transaction as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// When it was asked for.
    pub invoked: u64,
    /// How it ended.
    pub end: End,
    /// What it did, in order.
    pub ops: Vec<Op>,
}

/// A value's place: lists and registers are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A list.
    List(u64),
    /// A register.
    Register(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::List(key) => write!(f, "list {key}"),
            Place::Register(key) => write!(f, "register {key}"),
        }
    }
}
