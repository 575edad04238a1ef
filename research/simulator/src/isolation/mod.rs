//! Isolation check by history: whether a serial order, in agreement with real time if promised,
//! explains the requests of clients, the answers, and the times of both.
//!
//! [`check`](graph::check) builds the dependency graph of Adya ("Weak Consistency: A Generalized
//! Theory and Optimistic Implementations for Distributed Transactions", MIT, 1999) from histories
//! that show the order of versions, as Kingsbury and Alvaro do ("Elle: Inferring Isolation
//! Anomalies from Experimental Observations", VLDB 2020): every value is written once, lists are
//! only appended to, and a write of a register states the replaced value. [`search`] uses no graph:
//! the search tries all orders, and the graph is compared with the search.

mod components;
pub mod graph;
pub mod search;
pub mod workload;

/// An operation of a transaction, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appends a value, unique in the history, to a list.
    Append {
        /// The list.
        key: u64,
        /// The value.
        value: u64,
    },
    /// Reads a list.
    List {
        /// The list.
        key: u64,
        /// The values of the list.
        saw: Vec<u64>,
    },
    /// Writes a value, unique in the history, to a register.
    Write {
        /// The register.
        key: u64,
        /// The value.
        value: u64,
        /// The replaced value, as read by the same transaction.
        over: Option<u64>,
    },
    /// Reads the registers of a range.
    Scan {
        /// The first register.
        from: u64,
        /// The last.
        to: u64,
        /// The registers that have a value, with their values.
        saw: Vec<(u64, u64)>,
    },
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Acknowledged at this time.
    Acknowledged(u64),
    /// Aborted. The reads were reported to the client at this time.
    Aborted(u64),
    /// May have taken effect, at any time after the invocation.
    Unknown,
}

/// The order with which a serial order has to agree, besides the reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// With nothing: serializability.
    Any,
    /// With the order of each session, and of the lives of the database.
    Sessions,
    /// With real time: strict serializability.
    RealTime,
    /// With real time, where a transaction may read at an earlier point than it writes: strong
    /// snapshot isolation.
    Snapshots,
}

impl Order {
    /// Whether the order puts `a`, which was answered before `b` was invoked, before `b`.
    pub(crate) fn separates(self, a: &Observed, b: &Observed) -> bool {
        match self {
            Order::Any => false,
            Order::Sessions => a.life < b.life || (a.life, a.session) == (b.life, b.session),
            Order::RealTime | Order::Snapshots => true,
        }
    }
}

/// A transaction as its client observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The life of the database: its openings, counted.
    pub life: usize,
    /// The session, which runs transactions in sequence.
    pub session: usize,
    /// Time of the invocation.
    pub invoked: u64,
    /// The end of the transaction.
    pub end: End,
    /// The operations, in order.
    pub ops: Vec<Op>,
}

/// The place of a value. Lists and registers have separate keys.
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
