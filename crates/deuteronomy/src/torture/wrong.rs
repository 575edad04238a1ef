//! The possible faults of a history.

use std::fmt;

/// How much of each kind is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrongCounts {
    /// Transactions missing after a crash, although acknowledged, or read by an acknowledged
    /// transaction; and keys without their value from the beginning of the life.
    pub lost: usize,
    /// Transactions with some writes there, and some missing.
    pub partial: usize,
    /// Keys with a value deleted, aborted or gone before.
    pub resurrected: usize,
    /// Further unexplained states, reads, panics and contents of the data component.
    pub diverged: usize,
    /// Failed openings and operations that must succeed.
    pub refused_wrongly: usize,
    /// Durable transactions without an acknowledgement.
    pub late: usize,
    /// Histories with more memory kept afterwards than after the first histories.
    pub grown: usize,
}

impl WrongCounts {
    /// Adds the counts of another history.
    pub fn add(&mut self, other: WrongCounts) {
        let WrongCounts { lost, partial, resurrected, diverged, refused_wrongly, late, grown } =
            other;
        self.lost += lost;
        self.partial += partial;
        self.resurrected += resurrected;
        self.diverged += diverged;
        self.refused_wrongly += refused_wrongly;
        self.late += late;
        self.grown += grown;
    }
}

/// The faults of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrongLife {
    /// How much of each kind.
    pub counts: WrongCounts,
    /// The fault, in a sentence.
    pub what: String,
}

impl WrongLife {
    /// An unexplained state or read.
    pub fn diverged(what: String) -> Self {
        Self { counts: WrongCounts { diverged: 1, ..Default::default() }, what }
    }

    /// The failure of an operation that must succeed.
    pub fn refused(what: String) -> Self {
        Self { counts: WrongCounts { refused_wrongly: 1, ..Default::default() }, what }
    }

    /// Memory that has grown.
    pub fn grown(what: String) -> Self {
        Self { counts: WrongCounts { grown: 1, ..Default::default() }, what }
    }

    /// The same, with the preceding event.
    pub(super) fn when(self, when: &str) -> Self {
        Self { what: format!("{when}: {}", self.what), ..self }
    }
}

impl fmt::Display for WrongLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongCounts { lost, partial, resurrected, diverged, refused_wrongly, late, grown } =
            self.counts;
        let kinds = [
            (lost, "lost"),
            (partial, "partial"),
            (resurrected, "resurrected"),
            (diverged, "diverged"),
            (refused_wrongly, "refused wrongly"),
            (late, "late"),
            (grown, "grown"),
        ];
        let met = kinds.iter().filter(|(count, _)| *count > 0);
        let met: Vec<String> = met.map(|(count, kind)| format!("{kind} {count}")).collect();
        write!(f, "{} ({})", self.what, met.join(", "))
    }
}
