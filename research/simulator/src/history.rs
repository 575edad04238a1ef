//! The transactions of a life, their reads, and their acknowledgements, and the check of the
//! recovered state against the history.
//!
//! Every row names its writer program, so a recovered state names its transactions. The order of
//! the writers of a row is known from their reads of the row and from real time: a transaction that
//! returned before another began precedes the other. Where neither decides, nothing is concluded.

use crate::program::{ReadResult, Trace, WriteTrace};
use crate::schema::{At, Content, State};
use hyades::Protocol;
use hyades_schemes::{POPLAR, TAURUS_2016};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A transaction that returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecutedTransaction {
    /// The program's number.
    pub id: u64,
    /// Logical time before the start.
    pub began: u64,
    /// Logical time after the return.
    pub returned: u64,
    /// The reads and writes. Aborted and read-only transactions have no writes.
    pub trace: Trace,
    /// Whether the transaction was acknowledged.
    pub acknowledged: bool,
    /// The way of running and the end, in readable form.
    pub how: String,
}

/// The transactions that may survive although the earlier writers of their rows are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LosesOverwritten {
    /// None.
    #[default]
    Never,
    /// Transactions that have only written blindly.
    BlindTransactions,
    /// All, for the rows that they have written blindly.
    BlindWrites,
}

impl LosesOverwritten {
    /// The rule of a protocol.
    pub fn under(protocol: Protocol) -> Self {
        if protocol == POPLAR {
            LosesOverwritten::BlindTransactions
        } else if protocol == TAURUS_2016 {
            LosesOverwritten::BlindWrites
        } else {
            LosesOverwritten::Never
        }
    }
}

/// The state at the beginning of a life, and the transactions of that life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The possible losses beneath survivors of this life.
    pub loses_overwritten: LosesOverwritten,
    /// The state at the start of the life.
    pub base: State,
    /// Programs lost in a crash that must never reappear.
    pub dead: HashSet<u64>,
    /// The transactions of this life.
    pub life: Vec<ExecutedTransaction>,
}

/// Whether a transaction survived a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    There,
    Gone,
}

/// Violations found in a recovered state, one sentence each.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Missing acknowledged transactions.
    pub lost: Vec<String>,
    /// Transactions that survived in part.
    pub partial: Vec<String>,
    /// Transactions lost in an earlier crash that reappeared.
    pub resurrected: Vec<String>,
    /// States that no replay of a dependency-closed set of the history yields.
    pub diverged: Vec<String>,
    fates: HashMap<u64, Fate>,
}

impl Verdict {
    /// Whether there are no violations.
    pub fn is_sound(&self) -> bool {
        self.sentences().next().is_none()
    }

    /// All violations.
    pub fn sentences(&self) -> impl Iterator<Item = String> + '_ {
        let kinds = [
            ("lost", &self.lost),
            ("partial", &self.partial),
            ("resurrected", &self.resurrected),
            ("diverged", &self.diverged),
        ];
        kinds.into_iter().flat_map(|(kind, all)| all.iter().map(move |s| format!("{kind}: {s}")))
    }
}

/// The writers of one row, and their order as far as known.
struct Chain<'h> {
    writers: Vec<(&'h ExecutedTransaction, &'h WriteTrace)>,
    /// For each writer, the set of later writers, as bits.
    after: Vec<Vec<u64>>,
}

impl<'h> Chain<'h> {
    fn new(writers: Vec<(&'h ExecutedTransaction, &'h WriteTrace)>) -> Self {
        let n = writers.len();
        let mut after = vec![vec![0u64; n.div_ceil(64)]; n];
        for (a, (first, _)) in writers.iter().enumerate() {
            for (b, (second, wrote)) in writers.iter().enumerate() {
                if a != b
                    && (first.returned < second.began
                        || wrote.before == ReadResult::Version(first.id))
                {
                    after[a][b / 64] |= 1 << (b % 64);
                }
            }
        }
        // Transitive closure.
        for via in 0..n {
            let reached = after[via].clone();
            for row in &mut after {
                if row[via / 64] >> (via % 64) & 1 == 1 {
                    row.iter_mut().zip(&reached).for_each(|(to, from)| *to |= from);
                }
            }
        }
        Chain { writers, after }
    }

    fn precedes(&self, a: usize, b: usize) -> bool {
        self.after[a][b / 64] >> (b % 64) & 1 == 1
    }

    /// Whether `last` may survive although `other`, which precedes it, is lost.
    fn may_lose(&self, other: usize, last: usize, loses: LosesOverwritten) -> bool {
        match loses {
            LosesOverwritten::Never => false,
            LosesOverwritten::BlindTransactions => self.writers[last].0.trace.blind,
            // A writer behind `other`, up to `last`, has not read the version that it overwrote.
            LosesOverwritten::BlindWrites => (0..self.writers.len()).any(|at| {
                let may_be_between = !self.precedes(at, other) && !self.precedes(last, at);
                let is_blind = self.writers[at].1.before == ReadResult::Nothing;
                at != other && may_be_between && is_blind
            }),
        }
    }

    fn deleters(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.writers.len()).filter(|&at| self.writers[at].1.after.is_none())
    }
}

struct Judge<'h> {
    history: &'h History,
    chains: BTreeMap<At, Chain<'h>>,
    verdict: Verdict,
    /// Evidence that a transaction survived (`there`) or was lost (`gone`).
    there: HashMap<u64, String>,
    gone: HashMap<u64, String>,
}

impl History {
    /// Checks a recovered state.
    pub fn judge(&self, state: &State) -> Verdict {
        let mut writers: BTreeMap<At, Vec<(&ExecutedTransaction, &WriteTrace)>> = BTreeMap::new();
        for ran in &self.life {
            for (at, wrote) in &ran.trace.writes {
                writers.entry(*at).or_default().push((ran, wrote));
            }
        }
        let chains = writers.into_iter().map(|(at, w)| (at, Chain::new(w))).collect();
        let mut judge = Judge {
            history: self,
            chains,
            verdict: Verdict::default(),
            there: HashMap::new(),
            gone: HashMap::new(),
        };
        judge.judge_rows(state);
        judge.judge_absences(state);
        judge.judge_transactions();
        let mut verdict = judge.verdict;
        let fates = |ids: HashMap<u64, String>, fate| ids.into_keys().map(move |id| (id, fate));
        verdict.fates =
            fates(judge.gone, Fate::Gone).chain(fates(judge.there, Fate::There)).collect();
        verdict
    }

    /// Makes a recovered state the base of the next life. Missing transactions count as dead.
    pub fn advance(&mut self, state: State, verdict: &Verdict) {
        let gone = verdict.fates.iter().filter(|(_, fate)| **fate == Fate::Gone);
        self.dead.extend(gone.map(|(id, _)| *id));
        self.base = state;
        self.life.clear();
    }
}

impl Judge<'_> {
    fn is_there(&mut self, id: u64, why: impl FnOnce() -> String) {
        self.there.entry(id).or_insert_with(why);
    }

    fn is_gone(&mut self, id: u64, why: impl FnOnce() -> String) {
        self.gone.entry(id).or_insert_with(why);
    }

    /// Derives from each row the writers that survived and the writers that were lost.
    fn judge_rows(&mut self, state: &State) {
        let chains = std::mem::take(&mut self.chains);
        let base = &self.history.base;
        let places: BTreeSet<At> =
            state.keys().chain(base.keys()).chain(chains.keys()).copied().collect();
        let nobody = Chain::new(Vec::new());
        for at in places {
            let chain = chains.get(&at).unwrap_or(&nobody);
            match state.get(&at) {
                Some(row) => self.judge_row(at, row, chain),
                None => self.judge_missing_row(at, chain),
            }
        }
        self.chains = chains;
    }

    fn judge_row(&mut self, at: At, row: &Content, chain: &Chain<'_>) {
        let Some(last) = chain.writers.iter().position(|(ran, _)| ran.id == row.version) else {
            return self.judge_old_row(at, row, chain);
        };
        if chain.writers[last].1.after != Some(*row) {
            let left = chain.writers[last].1.after;
            self.verdict.diverged.push(format!("row {at:?} is {row:?}, its writer left {left:?}"));
        }
        let id = row.version;
        self.is_there(id, || format!("row {at:?} is its"));
        let loses = self.history.loses_overwritten;
        for (other, (ran, _)) in chain.writers.iter().enumerate() {
            if chain.precedes(other, last) && !chain.may_lose(other, last, loses) {
                self.is_there(ran.id, || format!("row {at:?} went on from it to {id}"));
            } else if chain.precedes(last, other) {
                self.is_gone(ran.id, || format!("row {at:?} is still that of {id}"));
            }
        }
    }

    fn judge_old_row(&mut self, at: At, row: &Content, chain: &Chain<'_>) {
        if self.history.base.get(&at) == Some(row) {
            for (ran, _) in &chain.writers {
                self.is_gone(ran.id, || format!("row {at:?} is as before this life"));
            }
        } else if self.history.dead.contains(&row.version) {
            self.verdict
                .resurrected
                .push(format!("row {at:?} is of {}, which is dead", row.version));
        } else {
            let before = self.history.base.get(&at);
            self.verdict.diverged.push(format!(
                "row {at:?} is {row:?}, which no transaction of this life left; before: {before:?}"
            ));
        }
    }

    fn judge_missing_row(&mut self, at: At, chain: &Chain<'_>) {
        if self.history.base.contains_key(&at) && chain.deleters().next().is_none() {
            self.verdict.lost.push(format!("row {at:?} was there and no transaction deleted it"));
        }
        for (writer, (ran, wrote)) in chain.writers.iter().enumerate() {
            let may_be_deleted =
                || chain.deleters().any(|d| d != writer && !chain.precedes(d, writer));
            if wrote.after.is_some() && !may_be_deleted() {
                self.is_gone(ran.id, || format!("row {at:?} is not there"));
            }
        }
    }

    /// Checks that each missing row was deleted by a surviving writer, once the survivors are
    /// known.
    fn judge_absences(&mut self, state: &State) {
        for (at, chain) in self.chains.iter().filter(|(at, _)| !state.contains_key(at)) {
            let there = |&w: &usize| self.there.contains_key(&chain.writers[w].0.id);
            let all: Vec<usize> = (0..chain.writers.len()).filter(there).collect();
            let last = |&w: &&usize| !all.iter().any(|&other| chain.precedes(*w, other));
            let mut lasts = all.iter().filter(last).peekable();
            let deleter = |w: &usize| chain.writers[*w].1.after.is_none();
            let unsure = || {
                let sure = |d: usize| self.gone.contains_key(&chain.writers[d].0.id);
                chain.deleters().any(|d| !sure(d) && !all.contains(&d))
            };
            let there_before = self.history.base.contains_key(at);
            let sound = match lasts.peek() {
                None => !there_before,
                Some(_) => lasts.any(deleter),
            };
            if !sound && !unsure() {
                let ids: Vec<u64> = all.iter().map(|&w| chain.writers[w].0.id).collect();
                self.verdict.diverged.push(format!(
                    "row {at:?} is not there, though of its writers {ids:?} none that is there \
                     deleted it"
                ));
            }
        }
    }

    fn judge_transactions(&mut self) {
        for ran in &self.history.life {
            let (there, gone) = (self.there.get(&ran.id), self.gone.get(&ran.id));
            let who = || format!("{} ({})", ran.id, ran.how);
            if let (Some(there), Some(gone)) = (there, gone) {
                self.verdict.partial.push(format!("{}: {there}, but {gone}", who()));
                continue;
            }
            if let (true, Some(gone)) = (ran.acknowledged, gone) {
                self.verdict.lost.push(format!("{} was acknowledged, but {gone}", who()));
            }
            if there.is_none() && !ran.acknowledged {
                continue;
            }
            let Some(fault) = self.missing_read(ran) else { continue };
            if ran.trace.writes.is_empty() {
                self.verdict.lost.push(format!("what the acknowledged {} saw: {fault}", who()));
            } else if there.is_some() {
                self.verdict.diverged.push(format!("{} is there without {fault}", who()));
            }
        }
    }

    /// Returns a missing row or version that a transaction read.
    fn missing_read(&self, ran: &ExecutedTransaction) -> Option<String> {
        for (at, saw) in &ran.trace.reads {
            match saw {
                ReadResult::Version(writer) => {
                    if let Some(why) = self.gone.get(writer) {
                        return Some(format!("row {at:?} as {writer} left it: {why}"));
                    }
                }
                ReadResult::Absent => {
                    if let Some(what) = self.missing_deletion(ran, *at) {
                        return Some(what);
                    }
                }
                ReadResult::Present | ReadResult::Nothing => {}
            }
        }
        None
    }

    /// Returns a message if a reader of a missing row needs a deletion that cannot have survived.
    fn missing_deletion(&self, reader: &ExecutedTransaction, at: At) -> Option<String> {
        let chain = self.chains.get(&at)?;
        // The row existed before this life, or a writer had certainly finished before the reader
        // began.
        let earlier = chain.writers.iter().position(|(w, wrote)| {
            wrote.after.is_some() && w.returned < reader.began && w.id != reader.id
        });
        if earlier.is_none() && !self.history.base.contains_key(&at) {
            return None;
        }
        let may_be = chain.deleters().any(|d| {
            let deleter = chain.writers[d].0;
            deleter.id != reader.id
                && !self.gone.contains_key(&deleter.id)
                && deleter.began < reader.returned
                && earlier.is_none_or(|writer| !chain.precedes(d, writer))
        });
        (!may_be).then(|| format!("the deletion of row {at:?}"))
    }
}
