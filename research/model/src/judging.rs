//! Which transactions may be acknowledged, and which belong to the recovered state: items E1, E3,
//! E10, *waiting* and *after recovery* of docs/protocols.
//!
//! Transactions run serially; streams are flushed frame by frame; power fails at any time, with any
//! torn tail. Recovery judges the records; the log is opened again and continues, until the next
//! power cut. `replaying` models how replay proceeds.

mod cases;

pub use cases::cases;

use crate::check::Protocol;
use crate::history::{Frame, History, Op, Stamping};
use crate::vector::{BOTTOM, Vector, covers, names, show};
use stateright::{Model, Property};
use std::fmt::Write as _;

/// When a client is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Everything needed is durable, and all earlier transactions in the stream were answered
    /// (Taurus, algorithm 1, line 18).
    InStreamOrder,
    /// Everything needed is durable, including the own frame.
    Admitted,
    /// Everything that the record names is durable; the own frame is ignored.
    WithoutOwnFrame,
    /// As `Admitted`, but a read-only transaction waits for nothing.
    ReadersAtOnce,
}

/// Where a stream ends at recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ends {
    /// At the file's size, regardless of its content.
    FileSize,
    /// At the end of the valid prefix.
    ValidPrefix,
}

/// How records found at recovery are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judging {
    /// A stream is read up to its first dead record (algorithm 3, line 1).
    StopAtFirstDead,
    /// Each record by itself.
    EachAlone,
}

/// How dead records of an earlier incarnation are judged when the log is replayed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OldDead {
    /// By the ends of their own incarnation.
    OwnEnds,
    /// By the newest ends.
    NewestEnds,
    /// Dead records are cut off at recovery, with all following records of their stream.
    CutOff,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Judge {
    /// Number of streams.
    pub streams: usize,
    /// Number of transactions, over all incarnations.
    pub txns: usize,
    /// Number of power cuts.
    pub crashes: u8,
    /// When a client is answered.
    pub answer: Answer,
    /// Where a stream ends.
    pub ends: Ends,
    /// How records are judged.
    pub judging: Judging,
    /// How old dead records are judged.
    pub old_dead: OldDead,
    /// When rows are stamped.
    pub stamping: Stamping,
    /// Positions in vectors are stored modulo this number, in place of 2^32.
    pub modulus: u8,
}

/// The verdict on a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// None yet, or the transaction has no record.
    Open,
    /// The transaction is in the recovered state.
    Recovered,
    /// The record exists, but does not count.
    Dead,
    /// The record was not reached, or is lost.
    Gone,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    history: History,
    durable: Vector,
    answered: Vec<bool>,
    fate: Vec<Fate>,
    /// Ends of earlier incarnations.
    past_ends: Vec<Vector>,
    /// A transaction that has released its rows and not stamped the rows.
    unstamped: Option<u8>,
    /// A transaction that was not recovered and now is, or the other way round.
    changed: Option<u8>,
    running: bool,
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction runs and pre-commits.
    Run(Op),
    /// The rows of a released transaction are stamped.
    Stamp,
    /// A stream becomes durable up to a position.
    Flush(usize, u8),
    /// Power fails. The streams are valid up to `valid`, in files that may be longer; recovery
    /// judges the records.
    Crash {
        /// Where the valid prefixes end.
        valid: Vector,
        /// Where the files end.
        sizes: Vector,
    },
    /// The log is opened again.
    Reopen,
}

const ANSWERED: &str = "an acknowledged transaction is recovered";
const SEEN: &str = "what an acknowledged reader has read is recovered";
const CLOSED: &str = "a recovered transaction has read only recovered writes";
const FOR_EVER: &str = "a recovered transaction stays recovered, and a dead one stays dead";

impl Judge {
    /// The rules as built.
    pub fn ours(streams: usize, txns: usize, crashes: u8) -> Judge {
        Judge {
            streams,
            txns,
            crashes,
            answer: Answer::Admitted,
            ends: Ends::ValidPrefix,
            judging: Judging::EachAlone,
            old_dead: OldDead::OwnEnds,
            stamping: Stamping::BeforeRelease,
            modulus: u8::MAX,
        }
    }

    fn stored(&self, vector: Vector) -> Vector {
        vector.map(|lsn| lsn % self.modulus)
    }

    /// Answers all transactions that may be answered.
    fn answer(&self, state: &mut State) {
        let durable = self.stored(state.durable);
        for number in 0..state.answered.len() {
            let txn = &state.history.txns[number];
            if txn.incarnation != state.history.incarnation || state.answered[number] {
                continue;
            }
            let needed = match self.answer {
                Answer::WithoutOwnFrame => txn.logged,
                Answer::ReadersAtOnce if txn.op.writes.is_none() => BOTTOM,
                _ => txn.vector,
            };
            // Numbers grow along a stream, so earlier transactions in the stream have been checked
            // before.
            let first = self.answer != Answer::InStreamOrder
                || txn.op.writes.is_none()
                || state.history.txns[..number].iter().zip(&state.answered).all(|(other, done)| {
                    *done
                        || other.op.writes.is_none()
                        || other.op.stream != txn.op.stream
                        || other.incarnation != txn.incarnation
                });
            state.answered[number] = first && covers(durable, self.stored(needed));
        }
    }

    /// Judges every record on disk.
    fn recover(&self, state: &mut State, valid: Vector, sizes: Vector) {
        let newest = match self.ends {
            Ends::FileSize => sizes,
            Ends::ValidPrefix => valid,
        };
        let mut fate = vec![Fate::Gone; state.fate.len()];
        for (lane, end) in valid.into_iter().enumerate().take(self.streams) {
            state.history.streams[lane].truncate(end as usize);
            for frame in &state.history.streams[lane] {
                let Frame::Record(number) = *frame else { continue };
                let txn = &state.history.txns[number as usize];
                let own = state.past_ends.get(txn.incarnation as usize);
                let ends = match self.old_dead {
                    OldDead::OwnEnds => *own.unwrap_or(&newest),
                    OldDead::NewestEnds | OldDead::CutOff => newest,
                };
                let live = covers(self.stored(ends), self.stored(txn.logged));
                fate[number as usize] = if live { Fate::Recovered } else { Fate::Dead };
                if !live && self.judging == Judging::StopAtFirstDead {
                    break;
                }
            }
        }
        for (number, now) in fate.iter_mut().enumerate() {
            // Read-only transactions have no record.
            let txn = &state.history.txns[number];
            if txn.op.writes.is_none() {
                *now = Fate::Open;
            }
            let before = state.fate[number];
            let counted = |fate| fate == Fate::Recovered;
            if before != Fate::Open && counted(before) != counted(*now) {
                state.changed = Some(number as u8);
            }
        }
        state.fate = fate;
        state.past_ends.push(newest);
        state.running = false;
    }

    fn reopen(&self, state: &mut State) {
        if self.old_dead == OldDead::CutOff {
            for stream in &mut state.history.streams {
                let dead =
                    |frame: &Frame| record(frame).is_some_and(|n| state.fate[n] == Fate::Dead);
                let first = stream.iter().position(dead).unwrap_or(stream.len());
                stream.truncate(first);
            }
        }
        let history = &mut state.history;
        history.incarnation += 1;
        history.write_lv = Default::default();
        history.read_lv = Default::default();
        for row in 0..history.writer.len() {
            let recovered = |number: &usize| {
                history.txns[*number].op.writes == Some(row as u8)
                    && state.fate[*number] == Fate::Recovered
            };
            history.writer[row] = (0..state.fate.len()).rev().find(recovered).map(|n| n as u8);
        }
        state.durable = history.appended();
        state.unstamped = None;
        state.running = true;
    }

    /// Adds every possible power cut.
    fn crashes(&self, state: &State, actions: &mut Vec<Action>) {
        let appended = state.history.appended();
        let mut ways = vec![(BOTTOM, BOTTOM)];
        for lane in 0..self.streams {
            let mut more = Vec::new();
            for (valid, sizes) in ways {
                for end in state.durable[lane]..=appended[lane] {
                    for size in [end, appended[lane]] {
                        let (mut valid, mut sizes) = (valid, sizes);
                        (valid[lane], sizes[lane]) = (end, size);
                        more.push((valid, sizes));
                    }
                }
            }
            ways = more;
        }
        ways.sort_unstable();
        ways.dedup();
        actions.extend(ways.into_iter().map(|(valid, sizes)| Action::Crash { valid, sizes }));
    }

    fn read_from(state: &State, number: usize) -> Option<Fate> {
        state.history.txns[number].read_from.map(|from| state.fate[from as usize])
    }

    /// The first transaction that was answered, has a record and is not recovered.
    fn lost(state: &State) -> Option<usize> {
        (0..state.fate.len())
            .find(|&n| state.answered[n] && matches!(state.fate[n], Fate::Dead | Fate::Gone))
    }

    /// The first transaction among the `wanted` that read from an unrecovered transaction.
    fn deceived(state: &State, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let gone = |n| matches!(Self::read_from(state, n), Some(Fate::Dead | Fate::Gone));
        (0..state.fate.len()).find(|&n| wanted(n) && gone(n))
    }

    fn is_reader(state: &State, number: usize) -> bool {
        state.history.txns[number].op.writes.is_none()
    }
}

/// The transaction whose record is in the frame.
fn record(frame: &Frame) -> Option<usize> {
    match frame {
        Frame::Record(number) => Some(*number as usize),
        Frame::Anchor => None,
    }
}

impl Model for Judge {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            history: History::default(),
            durable: BOTTOM,
            answered: Vec::new(),
            fate: Vec::new(),
            past_ends: Vec::new(),
            unstamped: None,
            changed: None,
            running: true,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.running {
            if state.past_ends.len() < self.crashes as usize {
                actions.push(Action::Reopen);
            }
            return;
        }
        if state.unstamped.is_some() {
            actions.push(Action::Stamp);
        }
        if state.history.txns.len() < self.txns {
            let ops = state.history.ops(self.streams, true);
            actions.extend(ops.into_iter().map(Action::Run));
        }
        let appended = state.history.appended();
        for (lane, last) in appended.into_iter().enumerate().take(self.streams) {
            let ends = state.durable[lane] + 1..=last;
            actions.extend(ends.map(|end| Action::Flush(lane, end)));
        }
        self.crashes(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Run(op) => {
                let stamping = match state.unstamped {
                    None if op.writes.is_some() => self.stamping,
                    _ => Stamping::BeforeRelease,
                };
                let number = state.history.commit(op, stamping);
                if stamping == Stamping::AfterRelease {
                    state.unstamped = Some(number);
                }
                state.answered.push(false);
                state.fate.push(Fate::Open);
                self.answer(&mut state);
            }
            Action::Stamp => {
                let number = state.unstamped.take()?;
                state.history.stamp(number);
            }
            Action::Flush(lane, end) => {
                state.durable[lane] = end;
                self.answer(&mut state);
            }
            Action::Crash { valid, sizes } => self.recover(&mut state, valid, sizes),
            Action::Reopen => self.reopen(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ANSWERED, |_, s| Self::lost(s).is_none()),
            Property::always(SEEN, |_, s| {
                Self::deceived(s, |n| s.answered[n] && Self::is_reader(s, n)).is_none()
            }),
            Property::always(CLOSED, |_, s| {
                Self::deceived(s, |n| s.fate[n] == Fate::Recovered).is_none()
            }),
            Property::always(FOR_EVER, |_, s: &State| s.changed.is_none()),
            Property::sometimes(
                "an acknowledged record behind a dead one is recovered",
                |_, s: &State| {
                    s.history.streams.iter().any(|stream| {
                        let fate = |frame, fate| record(frame).is_some_and(|n| s.fate[n] == fate);
                        let answered = |frame| record(frame).is_some_and(|n| s.answered[n]);
                        stream.iter().position(|f| fate(f, Fate::Dead)).is_some_and(|dead| {
                            stream[dead..].iter().any(|f| fate(f, Fate::Recovered) && answered(f))
                        })
                    })
                },
            ),
            Property::sometimes("an acknowledged reader of another's value", |_, s: &State| {
                (0..s.fate.len()).any(|n| {
                    s.answered[n]
                        && Self::is_reader(s, n)
                        && Self::read_from(s, n) == Some(Fate::Recovered)
                })
            }),
            Property::sometimes("power fails as often as it may", |m: &Judge, s: &State| {
                s.past_ends.len() == m.crashes as usize
            }),
        ]
    }
}

impl Protocol for Judge {
    fn tell(&self, before: &State, action: &Action, after: &State) -> String {
        let mut text = match action {
            Action::Run(_) => after.history.tell_last(self.streams),
            Action::Stamp => {
                format!("the rows of T{} are stamped", before.unstamped.map_or(0, |n| n + 1))
            }
            Action::Flush(lane, end) => {
                format!("stream {} is durable up to {end}", lane + 1)
            }
            Action::Crash { valid, sizes } => {
                let mut text = format!("power fails; valid up to {}", show(*valid, self.streams));
                if sizes != valid {
                    let _ = write!(text, ", file sizes {}", show(*sizes, self.streams));
                }
                let fated = |fate| {
                    let is = move |n: &u8| after.fate[*n as usize] == fate;
                    names("T", (0..after.fate.len() as u8).filter(is))
                };
                let _ = write!(
                    text,
                    "; recovered: {}; dead: {}",
                    fated(Fate::Recovered),
                    fated(Fate::Dead)
                );
                text
            }
            Action::Reopen => {
                format!(
                    "the log is reopened and continues at {}",
                    show(after.durable, self.streams)
                )
            }
        };
        let newly = |n: &u8| {
            after.answered[*n as usize] && !before.answered.get(*n as usize).is_some_and(|a| *a)
        };
        let answered: Vec<u8> = (0..after.answered.len() as u8).filter(newly).collect();
        if !answered.is_empty() {
            let _ = write!(text, "; acknowledged: {}", names("T", answered));
        }
        text
    }

    fn verdict(&self, state: &State) -> String {
        if let Some(number) = Self::lost(state) {
            return format!("T{} was acknowledged and is lost", number + 1);
        }
        let answered = |n| state.answered[n] && Self::is_reader(state, n);
        let recovered = |n| state.fate[n] == Fate::Recovered;
        for (who, what) in [
            (Self::deceived(state, answered), "was acknowledged, and has read"),
            (Self::deceived(state, recovered), "is recovered, and has read"),
        ] {
            if let Some(number) = who {
                let from = state.history.txns[number].read_from.map_or(0, |from| from + 1);
                return format!("T{} {what} the value of T{from}, which is lost", number + 1);
            }
        }
        match state.changed {
            Some(number) if state.fate[number as usize] == Fate::Recovered => {
                format!("T{} was dead, and is now live", number + 1)
            }
            Some(number) => format!("T{} was recovered, and is now lost", number + 1),
            None => "nothing is wrong".into(),
        }
    }
}
