//! The content of records of a log, as given on the command line.

use crate::words;

words! {
    /// The content of records.
    RecordKind("kind of record") {
        /// The changed rows.
        Data = "data",
        /// The procedure and its arguments.
        Command = "command",
        /// Chosen for each transaction.
        Adaptive = "adaptive",
    }
}

impl RecordKind {
    /// The engine's name for the kind.
    pub fn record(self) -> hyades::RecordKind {
        match self {
            RecordKind::Data => hyades::RecordKind::Data,
            RecordKind::Command => hyades::RecordKind::Command,
            RecordKind::Adaptive => hyades::RecordKind::Adaptive,
        }
    }
}
