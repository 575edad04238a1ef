//! What an import has done.

use std::collections::BTreeMap;

/// Most parts that are named of those that were left out.
const MOST_NAMED: usize = 20;

/// What an import has done.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Keys by type, as they are in the database now.
    pub keys: BTreeMap<&'static str, u64>,
    /// Keys that had expired.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Commands of append-only files that were run.
    pub commands: u64,
    /// Parts that were left out, in all.
    pub left_out: u64,
    /// The first of these, each with the place and the reason.
    pub named: Vec<String>,
    /// Bytes of a command at the end of the last file that is not whole, as a crash leaves it.
    pub cut_bytes: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// An import that was ended before went on.
    pub was_resumed: bool,
    /// Seconds that it took.
    pub seconds: f64,
}

impl ImportReport {
    /// A part was left out.
    pub fn leave_out(&mut self, sentence: String) {
        self.left_out += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push(sentence);
        }
    }

    /// Adds what another thread has done.
    pub fn add(&mut self, other: ImportReport) {
        self.expired += other.expired;
        self.libraries += other.libraries;
        self.commands += other.commands;
        self.left_out += other.left_out;
        self.named.extend(other.named);
        self.named.truncate(MOST_NAMED);
    }

    /// Whether all is there that was in the files.
    pub fn is_whole(&self) -> bool {
        self.left_out == 0
    }
}
