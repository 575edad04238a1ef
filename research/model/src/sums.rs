//! Sums over rows, kept in nodes beside the rows: item "Sums" of docs/protocols.
//!
//! Two writers change a row each; a builder reads both rows and proposes their sum as a node; a
//! command reads the sum from the node; the node may be dropped. The latch of a node and the latch
//! of the index of nodes make each step atomic.

use crate::case::{Case, Rules};
use crate::check::{Outcome, Protocol, explore};
use stateright::{Model, Property};

/// The rules of nodes, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// As built.
    Built,
    /// The builder validates the rows before the candidate is in the index.
    ProposesLate,
    /// A reader takes a sum from a candidate.
    ReadsCandidates,
    /// The validation of a reader ignores writers inside the node.
    IgnoresWriters,
    /// A writer observes the stamp of readers before the writer enters the node.
    ObservesFirst,
    /// A reader leaves no stamp in the node.
    ReadsUnstamped,
    /// A reader leaves its stamp after the validation.
    StampsLate,
    /// The stamps of readers are lost with a dropped node.
    ForgetsReaders,
    /// A dropped node hands its readers on before the node is dead.
    HandsOnFirst,
    /// A sum from a dropped node counts as unchanged.
    TrustsDropped,
    /// A writer leaves no stamp in the node.
    WritesUnstamped,
    /// A candidate has no stamps of the rows read.
    ProposesUnstamped,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Sums {
    /// The rules.
    pub rule: Rule,
}

/// A pair of facts, one for each writer or row.
type Pair = [bool; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NodeIs {
    Missing,
    Candidate,
    Valid,
    /// Marked dead and taken out of the index.
    Dead,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    is: NodeIs,
    /// The rows that count one more.
    sum: Pair,
    version: u8,
    inside: u8,
    /// The writers in the stamp.
    written: Pair,
    /// Whether the command is in the stamp of readers.
    read: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WriterAt {
    Begins,
    Locked,
    /// Has looked for the node, and entered it if there was one.
    Entered,
    /// Has observed the stamp of readers.
    Observed,
    Installed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Writer {
    at: WriterAt,
    found: bool,
    /// Whether the writer follows the command.
    follows: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Builder {
    /// Steps done: two reads, the proposal and two checks in their order, the end.
    steps: u8,
    seen: Pair,
    valid: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ReaderAt {
    Begins,
    Read,
    Stamped,
    Committed,
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reader {
    at: ReaderAt,
    sum: Pair,
    version: u8,
    /// The writers in the reader's vector.
    depends: Pair,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Whether each row has its new count, and is locked.
    rows: [(bool, bool); 2],
    node: Node,
    /// Whether the command is in the stamp that dropped nodes leave.
    dropped_read: bool,
    /// Steps of the drop: 0 to 2. The index is latched at 1.
    dropping: u8,
    writers: [Writer; 2],
    builder: Builder,
    reader: Reader,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step of a writer.
    Write(usize),
    /// The next step of the builder.
    Build,
    /// The next step of the reader.
    Read,
    /// The next step of dropping the node.
    Drop,
}

const VALUE: &str = "a valid node has the sum of the unlocked rows";
const SEEN: &str = "a command's vector has the writers whose counts the command has read";
const ORDERED: &str = "a writer whose count a command has not read follows the command";

const BUILT: u8 = 6;

impl Sums {
    fn write(&self, state: &mut State, number: usize) {
        let (node, writer) = (&mut state.node, &mut state.writers[number]);
        let observes_first = self.rule == Rule::ObservesFirst;
        match writer.at {
            WriterAt::Begins => {
                state.rows[number].1 = true;
                writer.at = WriterAt::Locked;
            }
            WriterAt::Locked => {
                writer.found = matches!(node.is, NodeIs::Candidate | NodeIs::Valid);
                match writer.found {
                    true if observes_first => writer.follows |= node.read,
                    true => node.inside += 1,
                    false => writer.follows |= state.dropped_read,
                }
                writer.at = WriterAt::Entered;
            }
            WriterAt::Entered => {
                match writer.found {
                    true if observes_first => node.inside += 1,
                    true => writer.follows |= node.read,
                    false => {}
                }
                writer.at = WriterAt::Observed;
            }
            WriterAt::Observed => {
                if writer.found {
                    node.inside -= 1;
                }
                if writer.found && node.is != NodeIs::Dead {
                    node.sum[number] = true;
                    node.version += 1;
                    node.written[number] |= self.rule != Rule::WritesUnstamped;
                }
                state.rows[number] = (true, false);
                writer.at = WriterAt::Installed;
            }
            WriterAt::Installed => {}
        }
    }

    fn propose(&self, state: &mut State) {
        let seen = state.builder.seen;
        state.node.is = NodeIs::Candidate;
        state.node.sum = seen;
        if self.rule != Rule::ProposesUnstamped {
            state.node.written = seen;
        }
    }

    fn check(state: &mut State, row: usize) {
        let is_same = state.rows[row] == (state.builder.seen[row], false);
        state.builder.valid &= is_same;
    }

    fn build(&self, state: &mut State) {
        let is_late = self.rule == Rule::ProposesLate;
        match state.builder.steps {
            row @ (0 | 1) => state.builder.seen[usize::from(row)] = state.rows[usize::from(row)].0,
            2 if is_late => Self::check(state, 0),
            2 => self.propose(state),
            3 if is_late => Self::check(state, 1),
            3 => Self::check(state, 0),
            4 if is_late => self.propose(state),
            4 => Self::check(state, 1),
            _ if state.builder.valid => state.node.is = NodeIs::Valid,
            _ => {
                state.node.is = NodeIs::Dead;
                state.node.version += 1;
            }
        }
        state.builder.steps += 1;
    }

    fn may_read(&self, state: &State) -> bool {
        let is_readable = match state.node.is {
            NodeIs::Valid => true,
            NodeIs::Candidate => self.rule == Rule::ReadsCandidates,
            NodeIs::Missing | NodeIs::Dead => false,
        };
        match state.reader.at {
            ReaderAt::Begins => is_readable,
            ReaderAt::Read | ReaderAt::Stamped => true,
            ReaderAt::Committed => self.rule == Rule::StampsLate && !state.node.read,
            ReaderAt::Aborted => false,
        }
    }

    fn read(&self, state: &mut State) {
        let (node, reader) = (&mut state.node, &mut state.reader);
        match reader.at {
            ReaderAt::Begins => {
                (reader.sum, reader.version) = (node.sum, node.version);
                reader.depends = node.written;
                reader.at = ReaderAt::Read;
            }
            ReaderAt::Read => {
                node.read = !matches!(self.rule, Rule::ReadsUnstamped | Rule::StampsLate);
                reader.at = ReaderAt::Stamped;
            }
            ReaderAt::Stamped => {
                let is_free = node.inside == 0 || self.rule == Rule::IgnoresWriters;
                let is_valid = node.version == reader.version && is_free;
                reader.at = if is_valid { ReaderAt::Committed } else { ReaderAt::Aborted };
            }
            ReaderAt::Committed | ReaderAt::Aborted => node.read = true,
        }
    }

    fn drop_step(&self, state: &mut State) {
        let hands_on = (state.dropping == 1) != (self.rule == Rule::HandsOnFirst);
        if hands_on {
            state.dropped_read |= state.node.read && self.rule != Rule::ForgetsReaders;
        } else {
            state.node.is = NodeIs::Dead;
            state.node.version += u8::from(self.rule != Rule::TrustsDropped);
        }
        state.dropping += 1;
    }

    /// The writer of a count that the committed command has not read, and that does not follow.
    fn unordered(state: &State) -> Option<usize> {
        let is_committed = state.reader.at == ReaderAt::Committed;
        (0..2).filter(|_| is_committed).find(|at| {
            let writer = &state.writers[*at];
            writer.at == WriterAt::Installed && !state.reader.sum[*at] && !writer.follows
        })
    }

    fn unseen(state: &State) -> Option<usize> {
        let reader = &state.reader;
        let is_committed = reader.at == ReaderAt::Committed;
        (0..2).filter(|_| is_committed).find(|at| reader.sum[*at] && !reader.depends[*at])
    }

    fn has_wrong_value(state: &State) -> bool {
        let is_wrong = |at: &usize| !state.rows[*at].1 && state.node.sum[*at] != state.rows[*at].0;
        state.node.is == NodeIs::Valid && (0..2).any(|at| is_wrong(&at))
    }
}

impl Model for Sums {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let writer = || Writer { at: WriterAt::Begins, found: false, follows: false };
        vec![State {
            rows: [(false, false); 2],
            node: Node {
                is: NodeIs::Missing,
                sum: [false; 2],
                version: 0,
                inside: 0,
                written: [false; 2],
                read: false,
            },
            dropped_read: false,
            dropping: 0,
            writers: [writer(), writer()],
            builder: Builder { steps: 0, seen: [false; 2], valid: true },
            reader: Reader {
                at: ReaderAt::Begins,
                sum: [false; 2],
                version: 0,
                depends: [false; 2],
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let is_latched = state.dropping == 1;
        for number in 0..2 {
            let at = state.writers[number].at;
            let waits = is_latched && at == WriterAt::Locked;
            if at != WriterAt::Installed && !waits {
                actions.push(Action::Write(number));
            }
        }
        let step = state.builder.steps;
        // A reader of a row waits for the lock of the row.
        let waits = step < 2 && state.rows[usize::from(step)].1;
        if step < BUILT && !waits {
            actions.push(Action::Build);
        }
        if self.may_read(state) {
            actions.push(Action::Read);
        }
        if state.node.is == NodeIs::Valid && state.dropping == 0 || is_latched {
            actions.push(Action::Drop);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Write(number) => self.write(&mut state, number),
            Action::Build => self.build(&mut state),
            Action::Read => self.read(&mut state),
            Action::Drop => self.drop_step(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(VALUE, |_, s: &State| !Sums::has_wrong_value(s)),
            Property::always(SEEN, |_, s: &State| Sums::unseen(s).is_none()),
            Property::always(ORDERED, |_, s: &State| Sums::unordered(s).is_none()),
            Property::sometimes("a command reads a count that was built", |_, s: &State| {
                s.reader.at == ReaderAt::Committed && s.builder.seen[0] && s.reader.sum[0]
            }),
            Property::sometimes("a command reads a count that was added", |_, s: &State| {
                s.reader.at == ReaderAt::Committed && !s.builder.seen[0] && s.reader.sum[0]
            }),
            Property::sometimes("a writer follows by a dropped node", |_, s: &State| {
                let follows = |writer: &Writer| writer.follows && !writer.found;
                s.reader.at == ReaderAt::Committed && s.writers.iter().any(follows)
            }),
        ]
    }
}

impl Protocol for Sums {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        match action {
            Action::Write(number) => {
                let (was, now) = (&before.writers[*number], &after.writers[*number]);
                let what = match (was.at, now.found) {
                    (WriterAt::Begins, _) => "locks its row",
                    (WriterAt::Locked, false) => "finds no node",
                    (WriterAt::Locked, true) => "enters the node",
                    (WriterAt::Entered, _) if now.follows => "follows the command",
                    (WriterAt::Entered, _) => "follows no command",
                    (_, true) => "counts in the node, and installs its row",
                    (_, false) => "installs its row",
                };
                format!("T{} {what}", number + 1)
            }
            Action::Build => match before.builder.steps {
                row @ (0 | 1) => format!("the builder reads row {}", row + 1),
                _ if before.node.is == NodeIs::Missing && after.node.is == NodeIs::Candidate => {
                    "the builder proposes a node".into()
                }
                step if step + 1 < BUILT => "the builder checks a row".into(),
                _ if after.node.is == NodeIs::Valid => "the node is valid".into(),
                _ => "the candidate is discarded".into(),
            },
            Action::Read => match (before.reader.at, after.reader.at) {
                (ReaderAt::Begins, _) => "T3, a command, reads the sum".into(),
                (ReaderAt::Read, _) => "T3 appends its record, and stamps the node".into(),
                (ReaderAt::Stamped, ReaderAt::Committed) => "T3 is valid".into(),
                (ReaderAt::Stamped, _) => "T3 is not valid".into(),
                _ => "T3 stamps the node".into(),
            },
            Action::Drop if after.node.is == before.node.is => {
                "the stamps of readers are handed on".into()
            }
            Action::Drop => "the node is dead".into(),
        }
    }

    fn verdict(&self, state: &State) -> String {
        if Sums::has_wrong_value(state) {
            return "the sum lacks a count".into();
        }
        if let Some(writer) = Sums::unseen(state) {
            return format!("T3 has read the count of T{}, and does not need T{0}", writer + 1);
        }
        match Sums::unordered(state) {
            Some(writer) => {
                format!("T3 has not read the count of T{}, which may be replayed first", writer + 1)
            }
            None => "nothing is wrong".into(),
        }
    }
}

/// The cases of this model.
pub fn cases() -> Vec<Case> {
    macro_rules! mistake {
        ($rule:ident, $promise:ident, $text:literal) => {
            Case::breaks(("Sums", Rules::Mutation), $text, $promise, || run(Rule::$rule))
        };
    }
    fn run(rule: Rule) -> Outcome {
        explore(Sums { rule })
    }
    vec![
        mistake!(ProposesLate, VALUE, "the rows are validated before the candidate is proposed"),
        mistake!(ReadsCandidates, ORDERED, "a reader takes a sum from a candidate"),
        mistake!(IgnoresWriters, ORDERED, "a reader's validation ignores writers in the node"),
        mistake!(ObservesFirst, ORDERED, "a writer observes readers before it enters the node"),
        mistake!(ReadsUnstamped, ORDERED, "a command leaves no stamp in the node"),
        mistake!(StampsLate, ORDERED, "a command stamps the node after its validation"),
        mistake!(ForgetsReaders, ORDERED, "the stamps of readers are lost with a dropped node"),
        mistake!(HandsOnFirst, ORDERED, "a node hands its readers on before it is dead"),
        mistake!(TrustsDropped, ORDERED, "a sum from a dropped node counts as unchanged"),
        mistake!(WritesUnstamped, SEEN, "a writer leaves no stamp in the node"),
        mistake!(ProposesUnstamped, SEEN, "a candidate has no stamps of the rows read"),
        Case::holds("Sums", "nodes are proposed, entered and stamped in order", 2_000, || {
            run(Rule::Built)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::cases;
    use crate::case::verify_item;

    #[test]
    fn sums_are_those_of_the_rows() {
        verify_item(cases(), "Sums");
    }
}
