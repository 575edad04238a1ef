//! The logging protocols, concurrency controls and isolations that a database is opened with.

#[cfg(doc)]
use super::Builder;
use crate::logging::schemes::{CONTROLS, PROTOCOLS, PluggedControl, PluggedProtocol};
use serde::{Deserialize, Serialize};

/// Logging protocol: how transactions are logged, and how the log orders them. The crate
/// `hyades-schemes` has further protocols, of papers, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
#[non_exhaustive]
pub enum Protocol {
    /// No log: nothing survives a restart. The baseline for comparisons.
    None,
    /// One stream, replayed in its order.
    Serial,
    /// Parallel streams with LSN vectors (Xia et al., VLDB 2020), as corrected in
    /// docs/protocols.
    #[default]
    Taurus,
    /// A protocol of another crate.
    #[doc(hidden)]
    Plugged(&'static PluggedProtocol),
}

impl Protocol {
    /// Returns the protocol's name, as in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::None => "none",
            Protocol::Serial => "serial",
            Protocol::Taurus => "taurus",
            Protocol::Plugged(protocol) => protocol.name,
        }
    }

    /// Returns the protocol with this name.
    pub(crate) fn named(name: &str) -> Option<Protocol> {
        Protocol::all().find(|protocol| protocol.name() == name)
    }

    /// Returns all protocols known to this process.
    pub fn all() -> impl Iterator<Item = Protocol> {
        let own = [Protocol::None, Protocol::Serial, Protocol::Taurus];
        own.into_iter().chain(PROTOCOLS.all().into_iter().map(Protocol::Plugged))
    }

    /// Whether procedures may be logged as commands. A protocol logs only changed rows if its log
    /// does not record all ordering constraints of replay, including readers before later writers.
    pub fn takes_commands(self) -> bool {
        match self {
            Protocol::None | Protocol::Serial | Protocol::Taurus => true,
            Protocol::Plugged(protocol) => protocol.takes_commands,
        }
    }

    /// Whether writing closures are logged, and procedures may be logged as data. Otherwise calls
    /// are logged before their run, and nothing else is logged.
    pub fn takes_data(self) -> bool {
        match self {
            Protocol::None | Protocol::Serial | Protocol::Taurus => true,
            Protocol::Plugged(protocol) => protocol.takes_data,
        }
    }

    /// Whether the log has one stream.
    pub fn has_one_stream(self) -> bool {
        match self {
            Protocol::None | Protocol::Taurus => false,
            Protocol::Serial => true,
            Protocol::Plugged(protocol) => protocol.has_one_stream,
        }
    }

    /// Returns the protocols that take commands, by name: "a, b or c".
    pub fn names_taking_commands() -> String {
        let takes = |protocol: &Protocol| *protocol != Protocol::None && protocol.takes_commands();
        alternatives(Protocol::all().filter(takes).map(Protocol::name))
    }
}

impl From<Protocol> for &'static str {
    fn from(protocol: Protocol) -> Self {
        protocol.name()
    }
}

impl TryFrom<String> for Protocol {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Protocol::named(&name).ok_or_else(|| format!("no protocol is named {name:?}"))
    }
}

/// Concurrency control: how transactions are kept serializable. The crate `hyades-schemes` has
/// further controls, of papers, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
#[non_exhaustive]
pub enum Concurrency {
    /// Two-phase locking that aborts instead of waiting.
    NoWait,
    /// Optimistic: transactions are validated at commit (Tu et al., SOSP 2013).
    #[default]
    Silo,
    /// Multi-version: a transaction reads as of its beginning, beside any writers, and of two
    /// writers of a row the first wins (Larson et al., PVLDB 5(4), 2011, the optimistic scheme). A
    /// transaction without writes conflicts only where a writer is held up in its commit, or if
    /// older versions take more memory than [`Builder::snapshots`] allows. See [`Isolation`]. While
    /// a transaction is open, rows deleted since its beginning stay in memory.
    Hekaton,
    /// A concurrency control of another crate.
    #[doc(hidden)]
    Plugged(&'static PluggedControl),
}

impl Concurrency {
    /// Returns the name of the concurrency control, as in manifests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Concurrency::NoWait => "no-wait",
            Concurrency::Silo => "silo",
            Concurrency::Hekaton => "hekaton",
            Concurrency::Plugged(control) => control.name,
        }
    }

    /// Returns the concurrency control with this name.
    pub(crate) fn named(name: &str) -> Option<Concurrency> {
        Concurrency::all().find(|control| control.name() == name)
    }

    /// Returns all concurrency controls known to this process.
    pub fn all() -> impl Iterator<Item = Concurrency> {
        let own = [Concurrency::NoWait, Concurrency::Silo, Concurrency::Hekaton];
        own.into_iter().chain(CONTROLS.all().into_iter().map(Concurrency::Plugged))
    }

    /// Whether the transactions of a partition run one after the other.
    pub fn has_partitions(self) -> bool {
        match self {
            Concurrency::NoWait | Concurrency::Silo | Concurrency::Hekaton => false,
            Concurrency::Plugged(control) => control.has_partitions,
        }
    }

    /// Whether the concurrency control offers this isolation.
    pub fn offers(self, isolation: Isolation) -> bool {
        isolation == Isolation::Serializable || self == Concurrency::Hekaton
    }
}

impl From<Concurrency> for &'static str {
    fn from(concurrency: Concurrency) -> Self {
        concurrency.name()
    }
}

impl TryFrom<String> for Concurrency {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Concurrency::named(&name).ok_or_else(|| format!("no concurrency control is named {name:?}"))
    }
}

/// Returns the names as "a", or "a, b or c".
pub(crate) fn alternatives(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<&str> = names.collect();
    let (last, others) = names.split_last().expect("there are some");
    if others.is_empty() { last.to_string() } else { format!("{} or {last}", others.join(", ")) }
}

/// The protection of transactions with writes, see [`Builder::isolation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Isolation {
    /// Full: there is an order in which the transactions could have run one at a time.
    #[default]
    Serializable,
    /// A transaction reads as of its beginning, and the rows that it writes have not been
    /// overwritten since. The transaction may commit although its reads were overwritten meanwhile:
    /// two transactions that read the same rows and each write a different row of them may both
    /// commit (write skew), which breaks a rule over several rows. Primary keys and unique indexes
    /// stay unique. Under [`Concurrency::Hekaton`].
    Snapshot,
}
