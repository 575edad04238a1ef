//! The steps of a primary, and of its messages.

use super::{Batch, Frame, LANES, Mark, Message, Record, Role, Run, State, Step};
use super::{Takeover, TakeoverRule};

impl Run {
    /// The end of a stream.
    pub(super) fn end(&self, lane: usize) -> u8 {
        self.starts[lane] + self.frames[lane].len() as u8
    }

    /// What the last anchor of a stream states.
    fn anchor(&self, lane: usize) -> u8 {
        let stated = self.frames[lane].iter().rev().find_map(|frame| match frame {
            Frame::Anchor(position) => Some(*position),
            Frame::Record(_) => None,
        });
        stated.unwrap_or(0)
    }
}

impl State {
    /// Whether a batch on its way finds its condition: the batch before, and no higher seal.
    pub(super) fn may_arrive(&self, number: usize, lane: usize) -> bool {
        let run = &self.runs[number];
        let Some(batch) = run.flight[lane] else { return false };
        let is_higher = |message: &Message| match message {
            Message::Seal { incarnation, .. } => *incarnation > run.incarnation,
            Message::Data { .. } => false,
        };
        let own = self.lanes[lane].iter().rev().find_map(|message| match message {
            Message::Data { run, batch } if usize::from(*run) == number => Some(batch.end),
            _ => None,
        });
        let follows = own.unwrap_or(run.starts[lane]) == batch.start;
        follows && !self.lanes[lane].iter().any(is_higher)
    }

    /// Whether a lane has a message of the run with this end.
    fn has_stored(&self, number: usize, lane: usize, end: u8) -> bool {
        self.lanes[lane].iter().any(|message| match message {
            Message::Data { run, batch } => usize::from(*run) == number && batch.end == end,
            Message::Seal { .. } => false,
        })
    }
}

impl Takeover {
    /// How far a primary counts its streams as durable.
    pub(super) fn frontier(&self, state: &State, member: usize, number: usize) -> [u8; LANES] {
        let (run, filed) = (&state.runs[number], state.members[member].filed);
        [0, 1].map(|lane: usize| match self.rule {
            TakeoverRule::RaiseAtLocal => filed[lane],
            _ if self.files => run.stored[lane].min(filed[lane]),
            _ => run.stored[lane],
        })
    }

    /// Whether the lease allows another epoch.
    pub(super) fn may_end_epoch(&self, run: &Run) -> bool {
        use TakeoverRule::{FloorByRecords, FloorForgotten, LimitPassed};
        run.epoch < run.limit || matches!(self.rule, FloorByRecords | FloorForgotten | LimitPassed)
    }

    fn records_of(&self, state: &State, number: usize) -> usize {
        let own = |record: &&Record| usize::from(record.run) == number;
        state.records.iter().filter(own).count()
    }

    pub(super) fn steps_of_writer(&self, state: &State, member: usize, steps: &mut Vec<Step>) {
        let Role::Primary(number) = state.members[member].role else { return };
        let number = usize::from(number);
        let run = &state.runs[number];
        let at = usize::from(run.incarnation) - 1;
        let may_append =
            self.records_of(state, number) < self.records.get(at).copied().unwrap_or(0);
        for lane in 0..LANES {
            if may_append {
                let ends = state.records.iter().filter(|record| {
                    usize::from(record.run) == number && usize::from(record.lane) != lane
                });
                let needs = ends.map(|record| record.end).chain([0]);
                steps.extend(needs.map(|needs| Step::Append(member, lane, needs)));
            }
            if self.may_anchor(state, member, number, lane) {
                steps.push(Step::Anchor(member, lane));
            }
            self.steps_of_stream(state, member, number, lane, steps);
        }
        self.steps_of_images(state, member, steps);
        if usize::from(run.marks) < self.marks && self.may_end_epoch(run) {
            steps.push(Step::Mark(member));
        }
        let may_extend = state.drawn == run.incarnation && run.epoch == run.limit;
        if may_extend && (self.marks > 0 || self.images) {
            steps.push(Step::Extend(member));
        }
        if self.witnesses.lease && state.drawn == run.incarnation {
            steps.push(Step::Renew(member));
        }
    }

    fn steps_of_stream(
        &self,
        state: &State,
        member: usize,
        number: usize,
        lane: usize,
        steps: &mut Vec<Step>,
    ) {
        let run = &state.runs[number];
        let filed = state.members[member].filed[lane];
        let is_free =
            run.stored[lane] == run.sent[lane] && (filed == run.sent[lane] || !self.files);
        let is_quiet = self.witnesses.closing && self.closes(state, member, number, lane);
        if is_free && run.flight[lane].is_none() && (run.end(lane) > run.sent[lane] || is_quiet) {
            steps.push(Step::Send(member, lane));
        }
        if filed < run.sent[lane] {
            steps.push(Step::File(member, lane));
        }
        let hears = run.stored[lane] < run.sent[lane];
        if hears && state.has_stored(number, lane, run.sent[lane]) {
            steps.push(Step::Hear(member, lane));
        }
    }

    fn anchors_stated(&self, state: &State, member: usize, number: usize, lane: usize) -> u8 {
        match self.rule {
            TakeoverRule::AnchorsOfFiles => state.members[member].filed[1 - lane],
            _ => self.frontier(state, member, number)[1 - lane],
        }
    }

    fn may_anchor(&self, state: &State, member: usize, number: usize, lane: usize) -> bool {
        let run = &state.runs[number];
        let is_anchor = |frame: &&Frame| matches!(frame, Frame::Anchor(_));
        let anchors = run.frames.iter().flatten().filter(is_anchor).count();
        anchors < self.anchors
            && self.anchors_stated(state, member, number, lane) > run.anchor(lane)
    }

    /// Takes a step of a writer, in place. Returns whether the step was one.
    pub(super) fn take_of_writer(&self, state: &mut State, step: Step) -> bool {
        let (member, lane) = match step {
            Step::Append(member, lane, _) => (member, lane),
            Step::Anchor(member, lane)
            | Step::Send(member, lane)
            | Step::File(member, lane)
            | Step::Hear(member, lane) => (member, lane),
            Step::Mark(member) | Step::Renew(member) | Step::Extend(member) => (member, 0),
            _ => return false,
        };
        let Role::Primary(number) = state.members[member].role else { return false };
        let number = usize::from(number);
        let stated = self.anchors_stated(state, member, number, lane);
        let run = &mut state.runs[number];
        match step {
            Step::Append(_, _, needs) => {
                let says = if needs <= run.anchor(lane) { run.anchor(lane) } else { needs };
                run.frames[lane].push(Frame::Record(state.records.len() as u8));
                state.records.push(Record {
                    run: number as u8,
                    lane: lane as u8,
                    end: run.end(lane),
                    needs,
                    says,
                    epoch: run.epoch,
                    acknowledged: false,
                    is_settled: false,
                });
            }
            Step::Anchor(..) => run.frames[lane].push(Frame::Anchor(stated)),
            Step::Send(..) => {
                let (start, end) = (run.sent[lane], run.end(lane));
                run.flight[lane] = Some(Batch { start, end, stored: run.stored });
                run.sent[lane] = end;
            }
            Step::File(..) => state.members[member].filed[lane] = run.sent[lane],
            Step::Hear(..) => run.stored[lane] = run.sent[lane],
            Step::Mark(_) => {
                let to = [run.end(0), run.end(1)];
                state.marks.push(Mark { run: number as u8, epoch: run.epoch, to });
                run.epoch += 1;
                run.marks += 1;
            }
            Step::Extend(_) => {
                run.limit = run.epoch + 1;
                state.limit = run.limit;
            }
            _ => {
                state.renewed = Some((number as u8, run.stored));
                for record in state.records.iter_mut().filter(|r| usize::from(r.run) == number) {
                    record.is_settled |= record.acknowledged;
                }
            }
        }
        true
    }

    /// Acknowledges what every primary may acknowledge.
    pub(super) fn acknowledge(&self, state: &mut State) {
        for member in 0..state.members.len() {
            let Role::Primary(number) = state.members[member].role else { continue };
            let frontier = self.frontier(state, member, usize::from(number));
            for record in state.records.iter_mut().filter(|record| record.run == number) {
                let (lane, other) = (usize::from(record.lane), 1 - usize::from(record.lane));
                let admits = record.end <= frontier[lane] && record.needs <= frontier[other];
                record.acknowledged |= admits;
            }
            let is_closed = |lane: usize| self.is_closed(state, usize::from(number), lane);
            if self.witnesses.closing && (0..LANES).all(is_closed) {
                for record in state.records.iter_mut().filter(|record| record.run == number) {
                    record.is_settled |= record.acknowledged;
                }
            }
        }
    }
}
