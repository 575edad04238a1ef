//! How a candidate finds that the log has lost messages after confirming them.

use super::reading::Reading;
use super::{LANES, Member, Message, Positions, Record, Run, State, Takeover, TakeoverRule};

impl State {
    /// What the messages in the lanes state as stored in a run.
    fn told(&self, number: u8) -> Positions {
        let mut told = [0; LANES];
        for message in self.lanes.iter().flatten() {
            if let Message::Data { run, batch } = message
                && *run == number
            {
                for (told, stored) in told.iter_mut().zip(batch.stored) {
                    *told = (*told).max(stored);
                }
            }
        }
        told
    }
}

impl Takeover {
    /// What a member may know of a run, beside the messages that are still there.
    fn known(&self, state: &State, member: &Member, number: u8) -> Positions {
        let lease = state.renewed.filter(|_| self.witnesses.lease);
        let both = [lease, member.received];
        let mut known = [0; LANES];
        for (_, positions) in both.into_iter().flatten().filter(|(run, _)| *run == number) {
            for (known, position) in known.iter_mut().zip(positions) {
                *known = (*known).max(position);
            }
        }
        known
    }

    /// Whether a member finds an ended incarnation shorter than a witness knows it.
    pub(super) fn notices(
        &self,
        state: &State,
        member: &Member,
        readings: &[Reading; LANES],
        below: u8,
    ) -> bool {
        let is_short = |(number, run): (u8, &Run)| {
            let known = self.known(state, member, number);
            (0..LANES).any(|lane| {
                let taken = readings[lane].of(run.incarnation).filter(|(by, _)| *by == number);
                let end = taken.map_or(run.starts[lane], |(_, end)| end);
                let stated = match self.rule {
                    TakeoverRule::StoredIgnored => 0,
                    _ => State::stated(readings, run.incarnation, lane),
                };
                stated.max(known[lane]) > end
            })
        };
        (0..).zip(&state.runs).filter(|(_, run)| run.incarnation < below).any(is_short)
    }

    /// Whether a member may rely on a record that is acknowledged.
    pub(super) fn is_promised(&self, state: &State, number: usize, record: &Record) -> bool {
        if self.lies == 0 || self.witnesses.promises_all {
            return true;
        }
        let (told, known) =
            (state.told(record.run), self.known(state, &state.members[number], record.run));
        let at = |lane: usize| told[lane].max(known[lane]);
        let lane = usize::from(record.lane);
        record.is_settled || at(lane) >= record.end && at(1 - lane) >= record.needs
    }

    /// Whether a lane has a message that states everything of a run as stored.
    pub(super) fn is_closed(&self, state: &State, number: usize, lane: usize) -> bool {
        let run = &state.runs[number];
        let is_quiet = (0..LANES).all(|lane| run.stored[lane] == run.end(lane));
        is_quiet
            && state.lanes[lane].iter().any(|message| match message {
                Message::Data { run: by, batch } => {
                    usize::from(*by) == number && batch.stored == run.stored
                }
                Message::Seal { .. } => false,
            })
    }

    /// Whether a primary at rest has not yet told a lane of all that is stored.
    pub(super) fn closes(&self, state: &State, member: usize, number: usize, lane: usize) -> bool {
        let run = &state.runs[number];
        let frontier = self.frontier(state, member, number);
        let is_quiet = (0..LANES).all(|lane| frontier[lane] == run.end(lane));
        is_quiet && run.end(0) + run.end(1) > 0 && !self.is_closed(state, number, lane)
    }

    /// A standby receives what the lanes have of the incarnation that it follows.
    pub(super) fn receive(&self, state: &mut State, number: usize) {
        let incarnation = state.members[number].through + 1;
        let readings = state.read(None);
        if let Some((run, ends)) = State::ends(&readings, incarnation) {
            let starts = state.runs[usize::from(run)].starts;
            let ends = [0, 1].map(|lane: usize| ends[lane].unwrap_or(starts[lane]));
            let before = state.members[number].received.filter(|(by, _)| *by == run);
            let (_, before) = before.unwrap_or((run, starts));
            let ends = [0, 1].map(|lane: usize| ends[lane].max(before[lane]));
            state.members[number].received = Some((run, ends));
        }
    }
}
