//! What may be wrong in a history.

use std::fmt;

/// How much of each kind is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrongCounts {
    /// Transactions that are missing after a crash, and are acknowledged, or read by one that is;
    /// and keys without the value that they had when the life began.
    pub lost: usize,
    /// Transactions some of whose writes are there, and others are not.
    pub partial: usize,
    /// Keys with a value that was deleted, aborted or gone before.
    pub resurrected: usize,
    /// Other states, reads, panics and contents of the data component that nothing explains.
    pub diverged: usize,
    /// Openings and operations that failed, and had to succeed.
    pub refused_wrongly: usize,
    /// Transactions that are durable, and were not acknowledged.
    pub late: usize,
    /// Histories after which the process kept more memory than after the first ones.
    pub grown: usize,
}

impl WrongCounts {
    /// Adds those of another history.
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

/// What is wrong in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrongLife {
    /// How much of each kind.
    pub counts: WrongCounts,
    /// What it is, in a sentence.
    pub what: String,
}

impl WrongLife {
    /// Something that nothing explains.
    pub fn diverged(what: String) -> Self {
        Self { counts: WrongCounts { diverged: 1, ..Default::default() }, what }
    }

    /// Something that failed, and had to succeed.
    pub fn refused(what: String) -> Self {
        Self { counts: WrongCounts { refused_wrongly: 1, ..Default::default() }, what }
    }

    /// Memory that has grown.
    pub fn grown(what: String) -> Self {
        Self { counts: WrongCounts { grown: 1, ..Default::default() }, what }
    }

    /// The same, and what was done before.
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
