//! The state after a power cut, and the promises about the state.

use super::{Marks, Numbered, ROWS, STREAMS, Scheme, State, Txn, members};

pub(crate) const ANSWERED: &str = "an acknowledged transaction is recovered";
pub(crate) const CLOSED: &str = "a recovered transaction has read only recovered writes";
pub(crate) const LAST: &str = "the last recovered writer of a row wins";
pub(crate) const ENDS: &str = "when everything is durable, every transaction is acknowledged";
pub(crate) const WHOLE: &str = "a transaction is recovered with all its records, or not at all";
pub(crate) const RIGOROUS: &str =
    "what overwrites a row is recovered only with those that had read it";

impl Numbered {
    /// Whether the marks of these streams reach a number. Marks in memory count while running.
    fn reached(state: &State, number: u8, lanes: u8, memory: bool) -> bool {
        members(lanes).all(|lane| {
            let stream = &state.streams[lane];
            let claimed = if memory { stream.claimed } else { 0 };
            number <= stream.mark.max(claimed)
        })
    }

    /// Whether the transaction's record in a stream is durable.
    fn found(state: &State, number: u8, lane: usize) -> bool {
        let stream = &state.streams[lane];
        stream.records[..stream.durable as usize].contains(&number)
    }

    fn all_found(&self, state: &State, number: u8) -> bool {
        let written = self.written(&state.txns[number as usize]);
        members(written).all(|lane| Self::found(state, number, lane))
    }

    pub(super) fn answer(&self, state: &mut State) {
        for number in Self::numbers(state) {
            let txn = &state.txns[number as usize];
            let reached = |lanes| Self::reached(state, txn.number, lanes, true);
            let is_reader = txn.program.writes == 0;
            let admitted = match self.answers {
                _ if is_reader && !self.readers_wait => true,
                Marks::All => reached((1 << STREAMS) - 1),
                Marks::Touched => reached(txn.touched),
                Marks::Own if is_reader => reached((1 << STREAMS) - 1),
                Marks::Own => self.all_found(state, number),
            };
            let answered = txn.answered || txn.ended() && admitted;
            state.txns[number as usize].answered = answered;
        }
    }

    pub(super) fn numbers(state: &State) -> std::ops::Range<u8> {
        0..state.txns.len() as u8
    }

    /// Whether recovery would take the transaction's record in a stream, if power failed now.
    fn takes(&self, state: &State, number: u8, lane: usize) -> bool {
        let txn = &state.txns[number as usize];
        let counts = match self.counts {
            Marks::All => Self::reached(state, txn.number, (1 << STREAMS) - 1, false),
            Marks::Touched => {
                self.all_found(state, number)
                    && Self::reached(state, txn.number, txn.touched, false)
            }
            Marks::Own => true,
        };
        txn.ended() && counts && Self::found(state, number, lane)
    }

    /// Whether a power cut now would leave the transaction in the recovered state.
    fn live(&self, state: &State, number: u8) -> bool {
        let written = self.written(&state.txns[number as usize]);
        written != 0 && members(written).all(|lane| self.takes(state, number, lane))
    }

    /// Whether a stream has a durable record that would not count.
    pub(super) fn durable_and_dead(&self, state: &State, lane: usize) -> bool {
        let stream = &state.streams[lane];
        let durable = stream.records[..stream.durable as usize].iter();
        durable.copied().any(|n| state.txns[n as usize].ended() && !self.takes(state, n, lane))
    }

    pub(super) fn lost(&self, state: &State) -> Option<u8> {
        Self::numbers(state).find(|n| {
            let txn = &state.txns[*n as usize];
            txn.answered && txn.program.writes != 0 && !self.live(state, *n)
        })
    }

    /// A transaction that has read a lost write, though the reader counts or was acknowledged.
    pub(super) fn deceived(&self, state: &State) -> Option<(u8, u8)> {
        let counts = |n: u8, txn: &Txn| match self.written(txn) {
            0 => txn.answered,
            written => members(written).any(|lane| self.takes(state, n, lane)),
        };
        let mut readers = Self::numbers(state).filter_map(|n| {
            let txn = &state.txns[n as usize];
            txn.source.filter(|_| counts(n, txn)).map(|source| (n, source))
        });
        readers.find(|(_, source)| !self.live(state, *source))
    }

    /// A row, its recovered writer, and the right writer, if the two differ.
    pub(super) fn wrong_writer(&self, state: &State) -> Option<(usize, u8, u8)> {
        (0..ROWS).find_map(|row| {
            let lane = |n: u8| match self.scheme {
                Scheme::Plover => row,
                Scheme::Gsn => state.txns[n as usize].stream as usize,
            };
            let writers = state.rows[row].writers.iter().copied();
            let taken: Vec<u8> = writers.filter(|n| self.takes(state, *n, lane(*n))).collect();
            let last = *taken.last()?;
            let wins = taken.into_iter().max_by_key(|n| state.txns[*n as usize].number)?;
            (wins != last).then_some((row, wins, last))
        })
    }

    /// A transaction with some records that would count, and some that would not.
    pub(super) fn halved(&self, state: &State) -> Option<u8> {
        Self::numbers(state).find(|n| {
            let written = self.written(&state.txns[*n as usize]);
            let takes = |lane: usize| self.takes(state, *n, lane);
            members(written).any(takes) && !members(written).all(takes)
        })
    }

    /// A recovered transaction that overwrote a, and a lost reader of the overwritten version.
    pub(super) fn overtaken(&self, state: &State) -> Option<(u8, u8)> {
        let writers = &state.rows[0].writers;
        let pairs = writers.iter().enumerate().map(|(at, n)| (*n, at.checked_sub(1)));
        let overwriters = pairs.filter(|(n, _)| self.live(state, *n));
        let mut found = overwriters.filter_map(|(over, before)| {
            let before = before.map(|at| writers[at]);
            if before.is_none() && self.scheme == Scheme::Plover {
                // A row that was never written orders nothing.
                return None;
            }
            let reader = Self::numbers(state).find(|n| {
                let txn = &state.txns[*n as usize];
                let has_read = txn.program.reads && txn.source == before && *n != over;
                has_read && txn.ended() && txn.program.writes != 0 && !self.live(state, *n)
            });
            reader.map(|reader| (over, reader))
        });
        found.next()
    }

    /// A transaction that waits for ever: no action is left but to begin transactions.
    pub(super) fn unanswered(&self, state: &State) -> Option<u8> {
        let rests = state.txns.iter().all(Txn::is_filled);
        let flushed = (0..STREAMS).all(|lane| {
            let stream = &state.streams[lane];
            stream.durable as usize == stream.records.len() && !self.may_skip(state, lane)
        });
        let waits = |n: &u8| {
            let txn = &state.txns[*n as usize];
            txn.ended() && !txn.answered
        };
        Self::numbers(state).find(waits).filter(|_| rests && flushed)
    }
}
