//! The result of an import.

use std::collections::BTreeMap;

/// Most named parts among the parts left out.
const MOST_NAMED: usize = 20;

/// The result of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Keys by type, as in the database now.
    pub keys: BTreeMap<&'static str, u64>,
    /// Expired keys.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Commands run from append-only files.
    pub commands: u64,
    /// The number of all parts left out.
    pub left_out: u64,
    /// The first parts left out, each with the place and the reason.
    pub named: Vec<String>,
    /// Bytes of an incomplete command at the end of the last file, as a crash leaves it.
    pub cut_bytes: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// An interrupted import was continued.
    pub was_resumed: bool,
    /// Duration in seconds.
    pub seconds: f64,
}

impl ImportReport {
    /// Notes a part left out.
    pub fn leave_out(&mut self, sentence: String) {
        self.left_out += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push(sentence);
        }
    }

    /// Adds the report of another thread.
    pub fn add(&mut self, other: ImportReport) {
        self.expired += other.expired;
        self.libraries += other.libraries;
        self.commands += other.commands;
        self.left_out += other.left_out;
        self.named.extend(other.named);
        self.named.truncate(MOST_NAMED);
    }

    /// Whether nothing in the files was left out.
    pub fn is_whole(&self) -> bool {
        self.left_out == 0
    }
}
