//! Transactions that draw numbers and are acknowledged by the marks of streams: the common part of
//! the models of GSN and of Plover.
//!
//! There are two rows, a and b, and two streams. A transaction reads a, or not, and writes some of
//! the rows, under optimistic concurrency control: it locks the rows to write, draws a number with
//! the places of its records, and validates its read. The records are filled when the writes are
//! installed. A flush makes all filled records of a stream durable. If no unfilled record is in
//! between, the flush also makes the stream's mark durable behind the records: the stream's last
//! number. Under GSN rows have numbers, and a transaction has one record, in a stream of its own
//! choice. Under Plover streams are partitions, of a the first and of b the second, and a
//! transaction has a record in each partition that it writes to.
//!
//! Left out are deleted rows and missing keys, whose stamps the model of E8 has; torn tails, which
//! a different flush would have left; and the log after a power cut, as recovery leaves no stamps
//! behind.

pub(crate) mod promises;
mod telling;

use crate::check::Protocol;
use promises::{ANSWERED, CLOSED, ENDS, LAST, RIGOROUS, WHOLE};
use stateright::{Model, Property};

const STREAMS: usize = 2;
const ROWS: usize = 2;

/// How numbers are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Above the numbers of all rows accessed, and the last number of the stream.
    Gsn,
    /// Above the last numbers of all partitions touched.
    Plover,
}

/// The action of an idle stream for waiting transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Nothing.
    Nothing,
    /// The stream takes the highest number as its own, in memory.
    InMemory,
    /// The stream takes the highest number, and states so on disk.
    Durably,
}

/// The marks that a number is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// The marks of all streams.
    All,
    /// The marks of the partitions touched.
    Touched,
    /// None: a record counts if it is durable.
    Own,
}

/// The rules, and the size of the model.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// How numbers are drawn.
    pub scheme: Scheme,
    /// Number of transactions.
    pub txns: usize,
    /// Whether a transaction runs in one step.
    pub at_once: bool,
    /// The action of an idle stream.
    pub idle: Idle,
    /// When a transaction is acknowledged.
    pub answers: Marks,
    /// When recovery takes a record.
    pub counts: Marks,
    /// Whether a number and the places of the records are drawn together.
    pub latched: bool,
    /// Whether the number of a transaction that writes is above the numbers of the rows read, too.
    pub above_reads: bool,
    /// Whether a transaction that writes nothing waits for the writers of the rows read.
    pub readers_wait: bool,
    /// Whether a transaction draws its number before the validation of its reads.
    pub draws_first: bool,
    /// Whether an overwrite of a row has to follow the readers of the old row.
    pub rigorous: bool,
}

/// The program of a transaction: whether a is read, and the rows written, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Program {
    reads: bool,
    writes: u8,
}

const WRITE: Program = Program { reads: false, writes: 0b01 };
const WRITE_B: Program = Program { reads: false, writes: 0b10 };
const WRITE_BOTH: Program = Program { reads: false, writes: 0b11 };
const UPDATE: Program = Program { reads: true, writes: 0b01 };
const COPY: Program = Program { reads: true, writes: 0b10 };
const LOOK: Program = Program { reads: true, writes: 0 };

/// The next step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Read,
    Lock,
    Draw,
    Place,
    Raise,
    Validate,
    Install,
    Ended,
    Aborted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Txn {
    program: Program,
    /// The stream of the transaction's record under GSN.
    stream: u8,
    next: Step,
    /// The highest number of the rows read or locked.
    seen: u8,
    /// The partitions touched, a bit for each.
    touched: u8,
    /// The transaction's number, or the number to wait for if the transaction writes nothing.
    number: u8,
    /// The transaction that wrote the row read.
    source: Option<u8>,
    answered: bool,
}

impl Txn {
    fn ended(&self) -> bool {
        self.next == Step::Ended
    }

    /// Whether nothing is left to fill in its records.
    fn is_filled(&self) -> bool {
        matches!(self.next, Step::Ended | Step::Aborted)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Row {
    locked_by: Option<u8>,
    number: u8,
    /// The transactions that have written the row, in order.
    writers: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Stream {
    /// The last number drawn or skipped.
    counter: u8,
    /// The transaction of each record, and the number of durable records.
    records: Vec<u8>,
    durable: u8,
    /// The mark on disk, and a mark that counts though it is only in memory.
    mark: u8,
    claimed: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    txns: Vec<Txn>,
    rows: [Row; ROWS],
    streams: [Stream; STREAMS],
}

/// A step of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// A transaction begins, with its first step. Under GSN the record goes to this stream.
    Begin(Program, u8),
    /// A transaction takes its next step.
    Go(u8),
    /// The filled records of a stream become durable, and the stream's mark.
    Flush(usize),
    /// A stream without records to flush skips numbers that transactions wait for.
    Skip(usize),
}

/// The members of a set with a bit for each.
fn members(set: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |bit| set >> bit & 1 == 1)
}

impl Numbered {
    /// The rules as built.
    pub fn ours(scheme: Scheme, txns: usize) -> Numbered {
        Numbered {
            scheme,
            txns,
            at_once: false,
            idle: Idle::Durably,
            answers: Marks::All,
            counts: Marks::All,
            latched: true,
            above_reads: true,
            readers_wait: true,
            draws_first: true,
            rigorous: true,
        }
    }

    /// The rules as built, with transactions run in sequence.
    pub fn in_turn(scheme: Scheme, txns: usize) -> Numbered {
        Numbered { at_once: true, ..Numbered::ours(scheme, txns) }
    }

    /// The steps of a program, in order.
    fn steps(&self, program: Program) -> Vec<Step> {
        let mut steps = Vec::with_capacity(8);
        let mut add = |condition: bool, step: Step| steps.extend(condition.then_some(step));
        let (reads, writes) = (program.reads, program.writes != 0);
        add(reads, Step::Read);
        add(writes, Step::Lock);
        add(reads && !(writes && self.draws_first), Step::Validate);
        add(writes, Step::Draw);
        add(writes && !self.latched, Step::Place);
        add(reads && writes && self.scheme == Scheme::Gsn, Step::Raise);
        add(reads && writes && self.draws_first, Step::Validate);
        add(writes, Step::Install);
        steps.push(Step::Ended);
        steps
    }

    /// The streams of a transaction's records, a bit for each.
    fn written(&self, txn: &Txn) -> u8 {
        match self.scheme {
            Scheme::Plover => txn.program.writes,
            Scheme::Gsn if txn.program.writes == 0 => 0,
            Scheme::Gsn => 1 << txn.stream,
        }
    }

    /// Whether a transaction can take its next step: it waits for rows locked by another
    /// transaction.
    fn may_go(state: &State, number: u8) -> bool {
        let Txn { program, next, .. } = &state.txns[number as usize];
        let is_free = |row: usize| state.rows[row].locked_by.is_none_or(|by| by == number);
        match next {
            Step::Read => is_free(0),
            Step::Lock => members(program.writes).all(is_free),
            Step::Ended | Step::Aborted => false,
            _ => true,
        }
    }

    /// A transaction takes its next step.
    fn go(&self, state: &mut State, number: u8) {
        let State { txns, rows, .. } = state;
        let txn = &mut txns[number as usize];
        let Program { reads, writes } = txn.program;
        match txn.next {
            Step::Read => {
                txn.source = rows[0].writers.last().copied();
                if self.above_reads || writes == 0 {
                    txn.seen = txn.seen.max(rows[0].number);
                    // A row that was never written is durable.
                    txn.touched |= u8::from(txn.source.is_some());
                }
            }
            Step::Lock => {
                txn.touched |= writes;
                for row in members(writes) {
                    rows[row].locked_by = Some(number);
                    txn.seen = txn.seen.max(rows[row].number);
                }
            }
            Step::Draw => self.draw(state, number),
            Step::Place => self.place(state, number),
            Step::Raise => rows[0].number = rows[0].number.max(txn.number),
            Step::Validate => {
                let is_free = rows[0].locked_by.is_none_or(|by| by == number);
                if !is_free || rows[0].writers.last().copied() != txn.source {
                    return Numbered::abort(state, number);
                }
                if writes == 0 {
                    self.end_reader(state, number);
                }
            }
            Step::Install => {
                for row in members(writes) {
                    rows[row].writers.push(number);
                    rows[row].number = rows[row].number.max(txn.number);
                    rows[row].locked_by = None;
                }
            }
            Step::Ended | Step::Aborted => {}
        }
        let txn = &mut state.txns[number as usize];
        let steps = self.steps(txn.program);
        let at = steps.iter().position(|step| *step == txn.next).expect("it is one of them");
        txn.next = steps[at + 1];
        if reads && txn.next == Step::Install && steps[at] == Step::Validate {
            // The two steps cannot be told apart: the rows to install are locked.
            self.go(state, number);
        }
    }

    fn abort(state: &mut State, number: u8) {
        state.txns[number as usize].next = Step::Aborted;
        let own = state.rows.iter_mut().filter(|row| row.locked_by == Some(number));
        own.for_each(|row| row.locked_by = None);
    }

    /// Sets the number that a transaction without writes waits for.
    fn end_reader(&self, state: &mut State, number: u8) {
        let State { txns, streams, .. } = state;
        let txn = &mut txns[number as usize];
        txn.number = match self.scheme {
            Scheme::Gsn => txn.seen,
            Scheme::Plover => {
                members(txn.touched).map(|lane| streams[lane].counter).max().unwrap_or(0)
            }
        };
    }

    /// The streams whose last numbers a transaction's number is above.
    fn drawn_from(&self, txn: &Txn) -> u8 {
        if self.scheme == Scheme::Plover { txn.touched } else { self.written(txn) }
    }

    fn draw(&self, state: &mut State, number: u8) {
        let from = self.drawn_from(&state.txns[number as usize]);
        let last = members(from).map(|lane| state.streams[lane].counter).max().unwrap_or(0);
        let txn = &mut state.txns[number as usize];
        let seen = if self.scheme == Scheme::Gsn { txn.seen } else { 0 };
        txn.number = last.max(seen) + 1;
        if self.latched {
            self.place(state, number);
        } else if self.scheme == Scheme::Gsn {
            state.streams[txn.stream as usize].counter = txn.number;
        }
    }

    fn place(&self, state: &mut State, number: u8) {
        let txn = &state.txns[number as usize];
        for lane in members(self.drawn_from(txn)) {
            let stream = &mut state.streams[lane];
            stream.counter = stream.counter.max(txn.number);
        }
        let written = self.written(txn);
        members(written).for_each(|lane| state.streams[lane].records.push(number));
    }

    fn begin(&self, state: &mut State, program: Program, stream: u8) {
        let next = self.steps(program)[0];
        let (seen, touched, number, source) = (0, 0, 0, None);
        let answered = false;
        state.txns.push(Txn { program, stream, next, seen, touched, number, source, answered });
    }

    /// The number of records of a stream that can be made durable: the records before the first
    /// unfilled record.
    fn filled(state: &State, lane: usize) -> u8 {
        let is_filled = |txn: &&u8| state.txns[**txn as usize].is_filled();
        state.streams[lane].records.iter().take_while(is_filled).count() as u8
    }

    fn flush(state: &mut State, lane: usize) {
        let filled = Numbered::filled(state, lane);
        let stream = &mut state.streams[lane];
        stream.durable = filled;
        if filled as usize == stream.records.len() {
            stream.mark = stream.counter;
        }
    }

    /// The highest number that a transaction waits for.
    fn wanted(state: &State) -> u8 {
        let waiting = state.txns.iter().filter(|txn| txn.ended() && !txn.answered);
        waiting.map(|txn| txn.number).max().unwrap_or(0)
    }

    fn may_skip(&self, state: &State, lane: usize) -> bool {
        let Stream { records, durable, mark, claimed, .. } = &state.streams[lane];
        self.idle != Idle::Nothing
            && *durable as usize == records.len()
            && (*mark).max(*claimed) < Numbered::wanted(state)
    }

    fn skip(&self, state: &mut State, lane: usize) {
        let highest = state.streams.iter().map(|stream| stream.counter).max().unwrap_or(0);
        let stream = &mut state.streams[lane];
        stream.counter = highest;
        match self.idle {
            Idle::Durably => stream.mark = highest,
            _ => stream.claimed = highest,
        }
    }
}

impl Model for Numbered {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { txns: Vec::new(), rows: Default::default(), streams: Default::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.txns.len() < self.txns {
            let (programs, streams) = match self.scheme {
                // By symmetry, the first record is in the first stream.
                Scheme::Gsn if state.txns.is_empty() => (&[WRITE, WRITE_B, UPDATE, COPY][..], 1),
                Scheme::Gsn => (&[WRITE, WRITE_B, UPDATE, COPY, LOOK][..], STREAMS as u8),
                Scheme::Plover => (&[WRITE, WRITE_BOTH, UPDATE, COPY, LOOK][..], 1),
            };
            for program in programs {
                let streams = if program.writes == 0 { 1 } else { streams };
                actions.extend((0..streams).map(|stream| Action::Begin(*program, stream)));
            }
        }
        let numbers = 0..state.txns.len() as u8;
        actions.extend(numbers.filter(|n| Numbered::may_go(state, *n)).map(Action::Go));
        for lane in 0..STREAMS {
            if state.streams[lane].durable < Numbered::filled(state, lane) {
                actions.push(Action::Flush(lane));
            }
            if self.may_skip(state, lane) {
                actions.push(Action::Skip(lane));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Begin(program, stream) => {
                let number = state.txns.len() as u8;
                self.begin(&mut state, program, stream);
                if !Numbered::may_go(&state, number) {
                    return None;
                }
                self.go(&mut state, number);
                while self.at_once && Numbered::may_go(&state, number) {
                    self.go(&mut state, number);
                }
            }
            Action::Go(number) => self.go(&mut state, number),
            Action::Flush(lane) => Numbered::flush(&mut state, lane),
            Action::Skip(lane) => self.skip(&mut state, lane),
        }
        self.answer(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(ANSWERED, |m: &Numbered, s| m.lost(s).is_none()),
            Property::always(CLOSED, |m: &Numbered, s| m.deceived(s).is_none()),
            Property::always(LAST, |m: &Numbered, s| m.wrong_writer(s).is_none()),
            Property::always(ENDS, |m: &Numbered, s| m.unanswered(s).is_none()),
            Property::sometimes("a durable record does not count", |m: &Numbered, s| {
                (0..STREAMS).any(|lane| m.durable_and_dead(s, lane))
            }),
        ];
        if self.scheme == Scheme::Plover {
            all.push(Property::always(WHOLE, |m: &Numbered, s| m.halved(s).is_none()));
        }
        if self.rigorous {
            all.push(Property::always(RIGOROUS, |m: &Numbered, s| m.overtaken(s).is_none()));
        }
        if !self.at_once {
            all.push(Property::sometimes("a transaction fails to validate", |_, s: &State| {
                s.txns.iter().any(|txn| txn.next == Step::Aborted)
            }));
        }
        all
    }
}
