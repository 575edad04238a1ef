//! What the clients of a replicated database have been told, and what must hold of each state that
//! a member shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// An acknowledged transaction is missing under the newest primary, or in the end.
    Lost,
    /// The balances are not those of the transactions in the journal.
    Partial,
    /// A transaction that was refused or rolled back is there.
    Resurrected,
    /// Members differ in the end, or the history has panicked.
    Diverged,
    /// A read misses what was known before the read began.
    Stale,
    /// An incarnation acknowledges what began after a later incarnation has begun to serve.
    Split,
    /// Two members differ as of the same mark.
    Unequal,
    /// There is no primary, although a member and the log are well.
    Late,
    /// A member has stopped although the log has not lied.
    RefusedWrongly,
    /// A transaction does not end, or the history does not.
    Hung,
}

impl Column {
    /// All columns.
    pub const ALL: [Column; 10] = [
        Column::Lost,
        Column::Partial,
        Column::Resurrected,
        Column::Diverged,
        Column::Stale,
        Column::Split,
        Column::Unequal,
        Column::Late,
        Column::RefusedWrongly,
        Column::Hung,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Column::Lost => "lost",
            Column::Partial => "partial",
            Column::Resurrected => "resurrected",
            Column::Diverged => "diverged",
            Column::Stale => "stale",
            Column::Split => "split",
            Column::Unequal => "unequal",
            Column::Late => "late",
            Column::RefusedWrongly => "refused wrongly",
            Column::Hung => "hung",
        }
    }
}

/// A transfer of money, by its number in the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub from: i64,
    pub to: i64,
    pub amount: i64,
}

/// The rows of both tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownRows {
    pub balances: BTreeMap<i64, i64>,
    pub journal: BTreeSet<i64>,
}

/// What the clients know.
#[derive(Debug, Default)]
pub(super) struct ClusterJudge {
    pub transfers: Vec<Transfer>,
    /// Transfers acknowledged, or shown by an acknowledged read, with the incarnation.
    known: Vec<(i64, u32)>,
    is_known: BTreeSet<i64>,
    refused: BTreeSet<i64>,
    /// The newest incarnation that has begun to serve.
    pub served: u32,
    /// Whether lost and missing transfers count: not after the log has lost the ends of lanes.
    pub is_lenient: bool,
    /// The log has lost a seal: the writer of before may append until its lease is refused.
    pub has_lost_seal: bool,
    /// By incarnation and epoch, the digest of a standby, and the standby.
    marks: BTreeMap<(u32, u64), (u64, usize, Arc<ShownRows>)>,
    pub wrong: Vec<(Column, String)>,
    pub acknowledged: u64,
    /// Marks of which two members were compared.
    pub compared: u64,
}

impl ClusterJudge {
    pub fn wrong(&mut self, column: Column, sentence: String) {
        if self.wrong.len() < 20 {
            self.wrong.push((column, sentence));
        }
    }

    /// What a read that begins now must show.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    fn learn(&mut self, number: i64, by: u32) {
        if self.is_known.insert(number) {
            self.known.push((number, by));
        }
    }

    /// A transfer is acknowledged that began when `served` was the newest incarnation to serve.
    pub fn acknowledged(&mut self, number: i64, by: u32, served: u32) {
        self.acknowledged += 1;
        if by < served && !self.has_lost_seal {
            self.wrong(
                Column::Split,
                format!("incarnation {by} acknowledges {number}, begun under incarnation {served}"),
            );
        }
        self.learn(number, by);
    }

    /// A transfer was refused, or rolled back.
    pub fn refused(&mut self, number: i64) {
        self.refused.insert(number);
    }

    /// A primary's read is acknowledged. `known`: from [`ClusterJudge::known`] when the read began.
    pub fn read(&mut self, content: &ShownRows, by: u32, known: usize) {
        self.acknowledged += 1;
        if by < self.served {
            let served = self.served;
            self.wrong(
                Column::Split,
                format!("incarnation {by} answers a read under incarnation {served}"),
            );
        }
        let column = if by < self.served { Column::Stale } else { Column::Lost };
        self.shows(content, known, column, &format!("a read under incarnation {by}"));
        content.journal.iter().for_each(|number| self.learn(*number, by));
    }

    /// A standby's read.
    pub fn standby_read(&mut self, content: &ShownRows, incarnation: u32, member: usize) {
        self.shows(content, 0, Column::Stale, &format!("standby {member}"));
        content.journal.iter().for_each(|number| self.learn(*number, incarnation));
    }

    /// Checks a state.
    pub fn shows(&mut self, content: &ShownRows, known: usize, column: Column, who: &str) {
        let mut expected = BTreeMap::<i64, i64>::new();
        for number in &content.journal {
            let Some(transfer) = self.transfers.get(*number as usize) else { continue };
            *expected.entry(transfer.from).or_default() -= transfer.amount;
            *expected.entry(transfer.to).or_default() += transfer.amount;
        }
        if expected != content.balances {
            let shown = &content.balances;
            let sentence = format!("{who} shows {shown:?}, and the journal's are {expected:?}");
            self.wrong(Column::Partial, sentence);
        }
        if let Some(number) = content.journal.intersection(&self.refused).next() {
            let sentence = format!("{who} shows {number}, which was refused");
            self.wrong(Column::Resurrected, sentence);
        }
        if self.is_lenient {
            return;
        }
        let mut missing = self.known[..known].iter();
        let missing = missing.find(|(number, _)| !content.journal.contains(number));
        if let Some((number, by)) = missing {
            let sentence = format!("{who} misses {number}, known by incarnation {by}");
            self.wrong(column, sentence);
        }
    }

    /// A standby serves an epoch.
    pub fn marked(&mut self, mark: (u32, u64), (digest, content): (u64, ShownRows), member: usize) {
        let first =
            self.marks.entry(mark).or_insert_with(|| (digest, member, Arc::new(content.clone())));
        let (other_digest, other, other_content) = first.clone();
        // A member that was begun again after the log has lost the end of an incarnation may have
        // less of its last epoch.
        if other == member || self.is_lenient {
            return;
        }
        self.compared += 1;
        if other_digest != digest || *other_content != content {
            let only = |one: &ShownRows, two: &ShownRows| -> Vec<i64> {
                one.journal.difference(&two.journal).copied().collect()
            };
            let sentence = format!(
                "members {other} and {member} differ as of epoch {} of incarnation {}: {:?} and \
                 {:?} are in the journal of one alone",
                mark.1,
                mark.0,
                only(&other_content, &content),
                only(&content, &other_content)
            );
            self.wrong(Column::Unequal, sentence);
        }
    }
}
