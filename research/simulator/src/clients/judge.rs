//! Whether a recovered state is a state that a crash may leave.
//!
//! A crash ends each cell at one of its versions. A transaction survives if each of its versions is
//! at or before its cell's end. The ends are right if
//!
//! - the recovered state has the versions at which the cells end;
//! - a transaction survives whole: if one of its versions is at or before its cell's end, all are;
//! - each version read by a survivor is at or before its cell's end;
//! - the survivors of a client are a prefix: all transactions of the client before a survivor are
//!   there, and the versions read by those transactions;
//! - the same holds for all transactions that a client was told of and may rely on.
//!
//! All rules but the first say that if one cell ends at or after some version, another cell ends at
//! or after some version. Rules of this form have a least solution, if any: all cells begin at the
//! first version equal to the recovered state, and are raised as far as the rules demand. If an end
//! is beyond the last version equal to the recovered state, there is no solution. A cell of a
//! flushed database, or of a removed collection, is not seen, so any end will do.

mod streams;

use super::model::{Body, CellContent, CellName, Model, Recovered, RecoveredState};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most combinations tried where the recovered one of several generations of a key is not
/// known.
const MOST_TRIED: usize = 4_096;

/// The kind of error of a recovered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    Resurrected,
    Diverged,
    OutOfOrder,
    Partial,
    Lost,
}

/// For each cell, the versions at which the cell may end. `None`: at any.
type Allowed = Vec<Option<Vec<usize>>>;

/// A possible state of a key: the possible ends of some cells.
type Choice = Vec<(usize, Vec<usize>)>;

/// Judges the state recovered at a time. `lost` are the values taken by earlier crashes, see
/// [`lost`].
///
/// # Errors
/// The error, in a sentence.
pub(crate) fn judge(
    model: &Model,
    state: &RecoveredState,
    now_ms: i64,
    lost: &HashSet<String>,
) -> Result<Vec<usize>, (Wrong, String)> {
    let mut choices: Vec<Vec<Choice>> = Vec::new();
    for (database, keys) in state.iter().enumerate() {
        let (mut all, mut why) = (Vec::new(), None);
        let name = CellName::Database(database as u32);
        let Some(cell) = model.cells.iter().position(|cell| cell.name == name) else {
            if keys.is_empty() {
                continue;
            }
            return Err((Wrong::Diverged, format!("database {database} was never used")));
        };
        // The newest first: mostly the newest was recovered.
        for (version, (content, _)) in model.cells[cell].versions.iter().enumerate().rev() {
            let CellContent::Generation(generation) = content else { unreachable!("it is one") };
            match of_generation(model, (database as u32, *generation), keys, now_ms) {
                Ok(own) => all.extend(own.into_iter().map(|mut choice: Choice| {
                    choice.push((cell, vec![version]));
                    choice
                })),
                Err(sentence) => {
                    why.get_or_insert(sentence);
                }
            }
        }
        if all.is_empty() {
            let why = why.expect("there is a generation");
            let was_lost = keys.iter().any(|(key, value)| {
                why.starts_with(&format!("{key} ")) && lost.contains(&told(key, &value.0))
            });
            let wrong = if was_lost { Wrong::Resurrected } else { Wrong::Diverged };
            return Err((wrong, format!("database {database}: {why}")));
        }
        choices.push(all);
    }
    let mut worst = None;
    let combinations: usize = choices.iter().map(Vec::len).product();
    for number in 0..combinations.min(MOST_TRIED) {
        let mut allowed: Allowed = vec![None; model.cells.len()];
        let mut rest = number;
        for all in &choices {
            for (cell, versions) in &all[rest % all.len()] {
                allowed[*cell] = Some(versions.clone());
            }
            rest /= all.len();
        }
        match solve(model, &allowed) {
            Ok(ends) => return Ok(ends),
            Err(wrong) => worst = worst.max(Some(wrong)),
        }
    }
    Err(worst.unwrap_or_else(|| (Wrong::Diverged, "no combination was tried".to_string())))
}

/// The possible states of a generation of a database, of all its keys together.
fn of_generation(
    model: &Model,
    (database, generation): (u32, u32),
    keys: &BTreeMap<String, (Recovered, Option<i64>)>,
    now_ms: i64,
) -> Result<Vec<Choice>, String> {
    let mut known: HashSet<&str> = HashSet::new();
    let mut all: Vec<Choice> = vec![Vec::new()];
    for (cell, versioned) in model.cells.iter().enumerate() {
        let CellName::Head { database: in_database, generation: in_generation, key } =
            &versioned.name
        else {
            continue;
        };
        if (*in_database, *in_generation) != (database, generation) {
            continue;
        }
        known.insert(key);
        let own = of_key(model, cell, keys.get(key), now_ms);
        if own.is_empty() {
            return Err(format!(
                "{key} is {:?}, and was never so; it was {:?}",
                keys.get(key),
                shown(model, cell)
            ));
        }
        let is_large = all.len() * own.len() > MOST_TRIED;
        let own = if is_large { &own[..1] } else { &own[..] };
        all = all
            .iter()
            .flat_map(|before| own.iter().map(|own| [&before[..], &own[..]].concat()))
            .collect();
    }
    match keys.keys().find(|key| !known.contains(key.as_str())) {
        Some(key) => Err(format!("{key} is {:?}, which was never written", keys[key])),
        None => Ok(all),
    }
}

/// The versions of a key, in words.
fn shown(model: &Model, cell: usize) -> Vec<String> {
    let show = |(content, _): &(CellContent, Option<usize>)| match content {
        CellContent::Value { body: Body::Collection(kind, collection), expires } => {
            let members = model.collections[*collection].iter();
            let all: Vec<String> = members
                .map(|(member, cell)| {
                    let versions = &model.cells[*cell].versions;
                    let contents: Vec<&CellContent> =
                        versions.iter().map(|(content, _)| content).collect();
                    format!("{member}: {contents:?}")
                })
                .collect();
            format!("{kind:?} {expires:?} {all:?}")
        }
        CellContent::Value { body: Body::Stream(stream), expires } => {
            format!("stream {expires:?} {:?}", streams::shown(model, *stream))
        }
        other => format!("{other:?}"),
    };
    model.cells[cell].versions.iter().map(show).collect()
}

/// The possible states of a key, by its generations: all absent generations count as one.
fn of_key(
    model: &Model,
    cell: usize,
    found: Option<&(Recovered, Option<i64>)>,
    now_ms: i64,
) -> Vec<Choice> {
    let versions = &model.cells[cell].versions;
    let those = |is_so: &dyn Fn(&CellContent) -> bool| -> Vec<usize> {
        (0..versions.len()).filter(|at| is_so(&versions[*at].0)).collect()
    };
    let one = |own: Vec<usize>| if own.is_empty() { Vec::new() } else { vec![vec![(cell, own)]] };
    let is_value = |content: &CellContent, value: Body, until: Option<i64>| match content {
        CellContent::Value { body, expires } => *body == value && *expires == until,
        _ => false,
    };
    let (kind, members, expires) = match found {
        None => {
            return one(those(&|content| match content {
                CellContent::Absent => true,
                CellContent::Value { expires, .. } => expires.is_some_and(|at| at <= now_ms),
                _ => false,
            }));
        }
        Some((Recovered::Text(text), expires)) => {
            return one(those(&|content| is_value(content, Body::Text(text.clone()), *expires)));
        }
        Some((Recovered::List(list), expires)) => {
            return one(those(&|content| is_value(content, Body::List(list.clone()), *expires)));
        }
        Some((Recovered::Stream(stream), expires)) => {
            return streams::of_stream(model, cell, (stream, *expires));
        }
        Some((Recovered::Collection(kind, members), expires)) => (*kind, members, *expires),
    };
    let mut collections: Vec<usize> = versions
        .iter()
        .filter_map(|(content, _)| match content {
            CellContent::Value { body: Body::Collection(stored_kind, number), expires: until }
                if *stored_kind == kind && *until == expires =>
            {
                Some(*number)
            }
            _ => None,
        })
        .collect();
    collections.sort_by(|a, b| b.cmp(a));
    collections.dedup();
    let mut choices = Vec::new();
    for collection in collections {
        let heads =
            those(&|content| is_value(content, Body::Collection(kind, collection), expires));
        let cells = &model.collections[collection];
        if members.keys().any(|member| !cells.contains_key(member)) {
            continue;
        }
        let mut choice: Choice = vec![(cell, heads)];
        for (member, cell) in cells {
            let value = CellContent::Member(members.get(member).cloned());
            let versions = &model.cells[*cell].versions;
            let ends = (0..versions.len()).filter(|at| versions[*at].0 == value).collect();
            choice.push((*cell, ends));
        }
        if choice.iter().all(|(_, ends)| !ends.is_empty()) {
            choices.push(choice);
        }
    }
    choices
}

/// Why a cell is raised.
#[derive(Clone, Copy)]
enum Because {
    IsTold(usize),
    Survives(usize),
    WasRead(usize),
    /// The transaction came before a survivor, of the same client.
    Precedes(usize, usize),
}

struct Solver<'m> {
    model: &'m Model,
    allowed: &'m Allowed,
    ends: Vec<usize>,
    /// Surviving transactions not looked at yet.
    todo: Vec<usize>,
    survives: Vec<bool>,
    /// The transaction before each transaction of the same client.
    previous: Vec<Option<usize>>,
    /// The survivor for the order of which each transaction survives, if it does only for that.
    because_of: Vec<Option<usize>>,
    is_told: bool,
}

/// The transaction before each transaction of the same client.
fn previous(model: &Model) -> Vec<Option<usize>> {
    let mut last = HashMap::new();
    let all = model.transactions.iter().enumerate();
    all.map(|(number, transaction)| last.insert(transaction.client, number)).collect()
}

fn solve(model: &Model, allowed: &Allowed) -> Result<Vec<usize>, (Wrong, String)> {
    let mut solver = Solver {
        model,
        allowed,
        ends: vec![0; model.cells.len()],
        todo: Vec::new(),
        survives: vec![false; model.transactions.len()],
        previous: previous(model),
        because_of: vec![None; model.transactions.len()],
        is_told: false,
    };
    for cell in 0..model.cells.len() {
        solver.raise(cell, 0, Because::IsTold(0))?;
    }
    solver.settle()?;
    // From here on, an impossible state is a loss.
    solver.is_told = true;
    for (number, transaction) in model.transactions.iter().enumerate() {
        if transaction.is_told {
            for (cell, version) in transaction.reads.iter().chain(&transaction.writes) {
                solver.raise(*cell, *version, Because::IsTold(number))?;
            }
            solver.settle()?;
        }
    }
    Ok(solver.ends)
}

impl Solver<'_> {
    /// Has a cell end at or after a version.
    fn raise(&mut self, cell: usize, to: usize, why: Because) -> Result<(), (Wrong, String)> {
        let end = self.ends[cell].max(to);
        let end = match &self.allowed[cell] {
            None => Some(end),
            Some(all) => all.iter().copied().find(|at| *at >= end),
        };
        let Some(end) = end else { return Err(self.fail(cell, to, why)) };
        let before = std::mem::replace(&mut self.ends[cell], end);
        for (_, writer) in &self.model.cells[cell].versions[before + 1..=end.max(before)] {
            let writer = writer.expect("only the first has none");
            if !std::mem::replace(&mut self.survives[writer], true) {
                self.todo.push(writer);
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), (Wrong, String)> {
        while let Some(number) = self.todo.pop() {
            let transaction = &self.model.transactions[number];
            let precedes = self.because_of[number].map(|later| Because::Precedes(number, later));
            for (cell, version) in &transaction.writes {
                self.raise(*cell, *version, precedes.unwrap_or(Because::Survives(number)))?;
            }
            for (cell, version) in &transaction.reads {
                self.raise(*cell, *version, precedes.unwrap_or(Because::WasRead(number)))?;
            }
            if let Some(before) = self.previous[number]
                && !std::mem::replace(&mut self.survives[before], true)
            {
                self.because_of[before] = Some(number);
                self.todo.push(before);
            }
        }
        Ok(())
    }

    fn fail(&self, cell: usize, to: usize, why: Because) -> (Wrong, String) {
        let VersionOf { name, contents } = self.version_of(cell);
        let ends = self.allowed[cell].as_ref().and_then(|all| all.last()).copied();
        let describe = |number: usize| {
            let transaction = &self.model.transactions[number];
            format!(
                "transaction {number} of client {}, {:?},",
                transaction.client, transaction.text
            )
        };
        let (wrong, what) = match why {
            Because::IsTold(number) => (Wrong::Lost, format!("{} was told", describe(number))),
            Because::Survives(number) => {
                (Wrong::Partial, format!("{} is there in part", describe(number)))
            }
            Because::WasRead(number) => (
                Wrong::Diverged,
                format!("{} is there, and what it has read is not", describe(number)),
            ),
            Because::Precedes(number, later) => (
                Wrong::OutOfOrder,
                format!("{} is to be there, since {} is", describe(number), describe(later)),
            ),
        };
        let wrong = if self.is_told { Wrong::Lost } else { wrong };
        let sentence = format!(
            "{what}: {name} of version {to} at least; what was recovered is version {ends:?} at \
             most of {contents}"
        );
        (wrong, sentence)
    }

    fn version_of(&self, cell: usize) -> VersionOf {
        let cell = &self.model.cells[cell];
        let all: Vec<String> = cell
            .versions
            .iter()
            .map(|(content, writer)| format!("{content:?} by {writer:?}"))
            .collect();
        VersionOf { name: format!("{:?}", cell.name), contents: all.join(", ") }
    }
}

struct VersionOf {
    name: String,
    contents: String,
}

/// A value of a key, in words unique to the value: every value is written once.
fn told(key: &str, value: &Recovered) -> String {
    format!("{key} {value:?}")
}

/// The losses in a crash: the values of keys behind their ends.
pub(crate) fn lost(model: &Model, ends: &[usize]) -> Vec<String> {
    let mut all = Vec::new();
    for (cell, end) in model.cells.iter().zip(ends) {
        let CellName::Head { key, .. } = &cell.name else { continue };
        for (content, _) in &cell.versions[end + 1..] {
            let CellContent::Value { body, .. } = content else { continue };
            all.extend(match body {
                Body::Text(text) => Some(told(key, &Recovered::Text(text.clone()))),
                Body::List(list) => Some(told(key, &Recovered::List(list.clone()))),
                Body::Collection(..) | Body::Stream(_) => None,
            });
        }
    }
    all
}

#[cfg(test)]
mod tests;
