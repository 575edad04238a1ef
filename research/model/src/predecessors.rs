//! Taurus of 2016, with lists of predecessors: an item of docs/protocols.
//!
//! A record lists the last writers of the rows that its transaction read (RAW) and only overwrote
//! (WAW). The transaction is acknowledged once its own record, and all records that its RAW
//! predecessors need, are durable. Recovery keeps a record iff its RAW predecessors are kept, and
//! replays the record after all its predecessors. Left out: gaps, anchors, and the reads of
//! commands at replay.

use crate::case::{Case, Rules as Origin};
use crate::check::{Outcome, Protocol, explore};
use crate::vector::{BOTTOM, LANES, Vector, covers, join, names};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const ROWS: usize = 3;
const ROW_NAMES: [char; ROWS] = ['a', 'b', 'c'];

/// A record's statement about the records that its transaction has read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// All records.
    Whole,
    /// The record with the highest address in each stream.
    Highest,
    /// The record with the highest address in each stream, and the vector of the needs of all
    /// records.
    HighestAndNeeds,
}

/// A departure from the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// A row that was read and then overwritten counts as only overwritten.
    ReadAsOverwritten,
    /// A record is dead if an only overwritten record is dead.
    OverwrittenIsNeeded,
    /// A transaction waits for records that were only overwritten.
    OverwrittenIsAwaited,
    /// Replay does not wait for records that were only overwritten.
    OverwrittenIsIgnored,
}

/// The rules.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether rows have versions: an older image does not replace a newer one.
    pub has_versions: bool,
    /// Whether the end of a stream resolves the lost records behind it.
    pub ends_resolve: bool,
    /// The contents of the lists in records.
    pub list: List,
    /// The mistake, if any.
    pub mistake: Option<Mistake>,
}

/// The model: rules, and the number of transactions.
#[derive(Debug, Clone, Copy)]
pub struct Predecessors {
    /// The rules.
    pub rules: Rules,
    /// Number of transactions.
    pub txns: usize,
}

/// The access of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Overwrites a without reading a.
    PutA,
    /// Overwrites c without reading c.
    PutC,
    /// Reads and writes a.
    UpdateA,
    /// Reads a, overwrites b.
    CopyToB,
    /// Reads b and c, overwrites a.
    AddToA,
}

const OPS: [Op; 5] = [Op::PutA, Op::PutC, Op::UpdateA, Op::CopyToB, Op::AddToA];

impl Op {
    fn reads(self) -> &'static [usize] {
        match self {
            Op::PutA | Op::PutC => &[],
            Op::UpdateA | Op::CopyToB => &[0],
            Op::AddToA => &[1, 2],
        }
    }

    fn writes(self) -> usize {
        match self {
            Op::PutA | Op::UpdateA | Op::AddToA => 0,
            Op::CopyToB => 1,
            Op::PutC => 2,
        }
    }
}

/// A set of transactions, as bits.
type Set = u8;

fn members(set: Set) -> impl Iterator<Item = u8> {
    (0..8).filter(move |n| set >> n & 1 == 1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Txn {
    op: Op,
    stream: u8,
    /// The transaction's position in its stream, from 1.
    place: u8,
    /// The transactions whose writes were read.
    sources: Set,
    /// The predecessors listed in the transaction's record.
    raw: Set,
    waw: Set,
    /// The needs stated by the vector of the record.
    stated: Vector,
    /// The vector that the transaction waits for.
    needs: Vector,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    /// The last writer of each row, if any; at replay, of the row's image.
    writers: [Option<u8>; ROWS],
    durable: [u8; STREAMS],
    /// The power has failed, and replay has begun.
    replays: bool,
    replayed: Set,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs.
    Run(Op, u8),
    /// All records of a stream become durable.
    Flush(usize),
    /// The power fails.
    Fail,
    /// A record is replayed.
    Replay(u8),
}

const ANSWERED: &str = "an acknowledged transaction is recovered";
const COMMITTABLE: &str = "a committable transaction is acknowledged";
const CLOSED: &str = "a recovered transaction has read only recovered writes";
const LAST: &str = "the last recovered writer of a row wins";
const ENDS: &str = "replay ends";

impl Predecessors {
    fn run(&self, state: &mut State, op: Op, stream: u8) {
        let writers = |rows: &[usize]| {
            rows.iter().filter_map(|row| state.writers[*row]).fold(0, |set, n| set | 1 << n)
        };
        let sources: Set = writers(op.reads());
        let is_blind = !op.reads().contains(&op.writes())
            || self.rules.mistake == Some(Mistake::ReadAsOverwritten);
        let (mut raw, overwritten) = (sources, writers(&[op.writes()]));
        if is_blind && op.reads().contains(&op.writes()) {
            raw &= !overwritten;
        }
        let waw = overwritten & !raw;
        let awaits = self.rules.mistake == Some(Mistake::OverwrittenIsAwaited);
        let needed = if awaits { raw | waw } else { raw };
        let txns = &state.txns;
        let mut needs = members(needed).fold(BOTTOM, |all, n| join(all, txns[n as usize].needs));
        let stated = if self.rules.list == List::HighestAndNeeds { needs } else { BOTTOM };
        let in_stream = txns.iter().filter(|txn| txn.stream == stream);
        let place = in_stream.count() as u8 + 1;
        needs[stream as usize] = place;
        if self.rules.list != List::Whole {
            raw = Self::highest(txns, raw);
        }
        state.writers[op.writes()] = Some(state.txns.len() as u8);
        state.txns.push(Txn { op, stream, place, sources, raw, waw, stated, needs });
    }

    /// The last of some transactions in each stream.
    fn highest(txns: &[Txn], chosen: Set) -> Set {
        (0..STREAMS as u8).fold(0, |set, stream| {
            let of_stream = members(chosen).filter(|n| txns[*n as usize].stream == stream);
            set | of_stream.max().map_or(0, |n| 1 << n)
        })
    }

    fn durable(state: &State) -> Vector {
        let mut durable = [0; LANES];
        durable[..STREAMS].copy_from_slice(&state.durable);
        durable
    }

    fn is_answered(state: &State, n: u8) -> bool {
        covers(Self::durable(state), state.txns[n as usize].needs)
    }

    fn is_found(state: &State, n: u8) -> bool {
        let txn = &state.txns[n as usize];
        txn.place <= state.durable[txn.stream as usize]
    }

    /// Definition 1.
    fn is_committable(state: &State, n: u8) -> bool {
        Self::is_found(state, n)
            && members(state.txns[n as usize].sources).all(|n| Self::is_committable(state, n))
    }

    /// Whether recovery keeps the record.
    fn is_live(&self, state: &State, n: u8) -> bool {
        let txn = &state.txns[n as usize];
        let needs_all = self.rules.mistake == Some(Mistake::OverwrittenIsNeeded);
        let listed = if needs_all { txn.raw | txn.waw } else { txn.raw };
        // A compressed list has a vector, or nothing, to tell of the omitted records.
        Self::is_found(state, n)
            && covers(Self::durable(state), txn.stated)
            && members(listed).all(|n| self.is_live(state, n))
    }

    fn may_replay(&self, state: &State, n: u8) -> bool {
        let txn = &state.txns[n as usize];
        let ignores = self.rules.mistake == Some(Mistake::OverwrittenIsIgnored);
        let before = if ignores { txn.raw } else { txn.raw | txn.waw };
        let is_resolved = |n: &u8| {
            state.replayed >> n & 1 == 1
                || match Self::is_found(state, *n) {
                    true => !self.is_live(state, *n),
                    false => self.rules.ends_resolve,
                }
        };
        state.replayed >> n & 1 == 0
            && self.is_live(state, n)
            && members(before).all(|n| is_resolved(&n))
    }

    fn replay(&self, state: &mut State, n: u8) {
        state.replayed |= 1 << n;
        let image = &mut state.writers[state.txns[n as usize].op.writes()];
        if !self.rules.has_versions || image.is_none_or(|writer| writer < n) {
            *image = Some(n);
        }
    }

    fn numbers(state: &State) -> std::ops::Range<u8> {
        0..state.txns.len() as u8
    }

    fn lost(&self, state: &State) -> Option<u8> {
        Self::numbers(state).find(|n| Self::is_answered(state, *n) && !self.is_live(state, *n))
    }

    fn kept_waiting(state: &State) -> Option<u8> {
        let mut all = Self::numbers(state);
        all.find(|n| Self::is_committable(state, *n) && !Self::is_answered(state, *n))
    }

    fn deceived(&self, state: &State) -> Option<(u8, u8)> {
        let live = Self::numbers(state).filter(|n| self.is_live(state, *n));
        let mut pairs =
            live.flat_map(|n| members(state.txns[n as usize].sources).map(move |from| (n, from)));
        pairs.find(|(_, from)| !self.is_live(state, *from))
    }

    fn is_stuck(&self, state: &State) -> bool {
        let left = |n: &u8| state.replayed >> n & 1 == 0 && self.is_live(state, *n);
        state.replays
            && Self::numbers(state).any(|n| left(&n))
            && !Self::numbers(state).any(|n| self.may_replay(state, n))
    }

    fn is_over(&self, state: &State) -> bool {
        let is_done = |n| state.replayed >> n & 1 == 1 || !self.is_live(state, n);
        state.replays && Self::numbers(state).all(is_done)
    }

    /// A row whose image is not by the row's last recovered writer.
    fn wrong_row(&self, state: &State) -> Option<usize> {
        let last = |row: usize| {
            let of_row = |n: &u8| state.txns[*n as usize].op.writes() == row;
            Self::numbers(state).filter(of_row).filter(|n| self.is_live(state, *n)).max()
        };
        (0..ROWS).find(|row| self.is_over(state) && state.writers[*row] != last(*row))
    }
}

impl Model for Predecessors {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            txns: Vec::new(),
            writers: [None; ROWS],
            durable: [0; STREAMS],
            replays: false,
            replayed: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.replays {
            let ready = Self::numbers(state).filter(|n| self.may_replay(state, *n));
            actions.extend(ready.map(Action::Replay));
            return;
        }
        if state.txns.len() < self.txns {
            // The first transaction is in stream 1: streams are alike.
            let streams = if state.txns.is_empty() { 1 } else { STREAMS as u8 };
            for stream in 0..streams {
                actions.extend(OPS.map(|op| Action::Run(op, stream)));
            }
        }
        for lane in 0..STREAMS {
            let end = state.txns.iter().filter(|txn| txn.stream as usize == lane).count();
            if usize::from(state.durable[lane]) < end {
                actions.push(Action::Flush(lane));
            }
        }
        actions.push(Action::Fail);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op, stream) => self.run(&mut state, op, stream),
            Action::Flush(lane) => {
                let of_lane = state.txns.iter().filter(|txn| txn.stream as usize == lane);
                state.durable[lane] = of_lane.count() as u8;
            }
            Action::Fail => {
                state.replays = true;
                state.writers = [None; ROWS];
            }
            Action::Replay(n) => self.replay(&mut state, n),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ANSWERED, |m: &Self, s: &State| m.lost(s).is_none()),
            Property::always(CLOSED, |m: &Self, s: &State| m.deceived(s).is_none()),
            Property::always(ENDS, |m: &Self, s: &State| !m.is_stuck(s)),
            Property::always(LAST, |m: &Self, s: &State| m.wrong_row(s).is_none()),
            Property::always(COMMITTABLE, |_: &Self, s: &State| Self::kept_waiting(s).is_none()),
            Property::sometimes("a reader is recovered", |m: &Self, s: &State| {
                m.is_over(s)
                    && s.txns
                        .iter()
                        .enumerate()
                        .any(|(n, t)| t.sources != 0 && m.is_live(s, n as u8))
            }),
        ];
        if self.rules.mistake.is_none() {
            let name = "a blind writer outlives what it overwrote";
            properties.push(Property::sometimes(name, |m: &Self, s: &State| {
                let outlives = |(n, txn): (usize, &Txn)| {
                    m.is_live(s, n as u8) && members(txn.waw).any(|n| !m.is_live(s, n))
                };
                m.is_over(s) && s.txns.iter().enumerate().any(outlives)
            }));
        }
        properties
    }
}

impl Protocol for Predecessors {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Run(op, stream) => {
                let what = match op {
                    Op::PutA => "overwrites a",
                    Op::PutC => "overwrites c",
                    Op::UpdateA => "reads and writes a",
                    Op::CopyToB => "reads a, overwrites b",
                    Op::AddToA => "reads b and c, overwrites a",
                };
                let txn = &after.txns[after.txns.len() - 1];
                let mut lists = Vec::new();
                for (kind, set) in [("RAW", txn.raw), ("WAW", txn.waw)] {
                    if set != 0 {
                        lists.push(format!("{kind} {}", names("T", members(set))));
                    }
                }
                let lists = if lists.is_empty() { "nothing".into() } else { lists.join(", ") };
                format!("T{} {what}: stream {}, lists {lists}", after.txns.len(), stream + 1)
            }
            Action::Flush(lane) => format!("stream {} is durable", lane + 1),
            Action::Fail => {
                let live = Self::numbers(after).filter(|n| self.is_live(after, *n));
                format!("power fails; live: {}", names("T", live))
            }
            Action::Replay(n) => format!("T{} is replayed", n + 1),
        };
        let is_new = |n: &u8| {
            Self::is_answered(after, *n)
                && !(usize::from(*n) < before.txns.len() && Self::is_answered(before, *n))
        };
        let newly: Vec<u8> = Self::numbers(after).filter(is_new).collect();
        if !newly.is_empty() {
            text += &format!("; acknowledged: {}", names("T", newly));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(n) = self.lost(state) {
            return format!("if power fails now, T{} was acknowledged and is lost", n + 1);
        }
        if let Some((n, from)) = self.deceived(state) {
            return format!("if power fails now, T{} is kept, and T{} is not", n + 1, from + 1);
        }
        if self.is_stuck(state) {
            return "what is left waits for what was lost".into();
        }
        if let Some(row) = self.wrong_row(state) {
            return format!("{} is not as its last writer left it", ROW_NAMES[row]);
        }
        match Self::kept_waiting(state) {
            Some(n) => format!("T{} waits, though all that it has read is durable", n + 1),
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    use Origin::{Mutation, Printed};
    const ITEM: &str = "Taurus of 2016";
    const OURS: Rules =
        Rules { has_versions: true, ends_resolve: true, list: List::Whole, mistake: None };
    fn run(rules: Rules, txns: usize) -> Outcome {
        explore(Predecessors { rules, txns })
    }
    fn with(mistake: Mistake) -> Outcome {
        run(Rules { mistake: Some(mistake), ..OURS }, 3)
    }
    vec![
        Case::breaks((ITEM, Printed), "a lost predecessor is never resolved", ENDS, || {
            run(Rules { ends_resolve: false, ..OURS }, 3)
        }),
        Case::breaks((ITEM, Printed), "the order of lists alone orders images", LAST, || {
            run(Rules { has_versions: false, ..OURS }, 3)
        }),
        Case::breaks((ITEM, Printed), "one predecessor of each stream is listed", CLOSED, || {
            run(Rules { list: List::Highest, ..OURS }, 4)
        }),
        Case::breaks(
            (ITEM, Mutation),
            "replay waits for no record that was only overwritten, and rows have no versions",
            LAST,
            || {
                let mistake = Some(Mistake::OverwrittenIsIgnored);
                run(Rules { has_versions: false, mistake, ..OURS }, 3)
            },
        ),
        Case::breaks(
            (ITEM, Mutation),
            "a row that was read and then overwritten counts as only overwritten",
            CLOSED,
            || with(Mistake::ReadAsOverwritten),
        ),
        Case::breaks(
            (ITEM, Mutation),
            "a record is dead if one that it only overwrote is lost",
            ANSWERED,
            || with(Mistake::OverwrittenIsNeeded),
        ),
        Case::breaks(
            (ITEM, Mutation),
            "a transaction waits for those that it only overwrote",
            COMMITTABLE,
            || with(Mistake::OverwrittenIsAwaited),
        ),
        Case::holds(ITEM, "lists, versions, ends of streams", 10_000, || run(OURS, 4)),
        Case::holds(ITEM, "lists in a vector", 10_000, || {
            run(Rules { list: List::HighestAndNeeds, ..OURS }, 4)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn a_blind_writer_needs_nothing_of_what_it_overwrites() {
        verify_item(cases(), "Taurus of 2016");
    }
}
