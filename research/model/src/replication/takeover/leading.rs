//! The steps of members: checkpoints, crashes, takeovers, rounds.

use super::{LANES, Member, Message, Role, Run, State, Step, Takeover, TakeoverRule};

impl Member {
    /// The role of a member that neither writes nor tries to.
    fn at_rest(&self) -> Role {
        if self.run.is_some() { Role::Joining } else { Role::Standby }
    }

    /// A member begins anew from its files and its checkpoint.
    fn restart(&mut self) {
        (self.applied, self.cut) = self.image.unwrap_or((0, (0, 0)));
        (self.through, self.ends) = (0, [0; LANES]);
        (self.imaging, self.received) = (None, None);
        self.role = self.at_rest();
    }
}

impl State {
    /// Whether a candidate's seal is in a lane.
    fn has_sealed(&self, (incarnation, number): (u8, usize), lane: usize) -> bool {
        let seal = Message::Seal { incarnation, member: number as u8 };
        self.lanes[lane].contains(&seal)
    }

    /// The last incarnation that has ended for a reader of all lanes.
    fn ended(&self) -> u8 {
        let reached = self.read(None).map(|reading| reading.reached);
        reached[0].min(reached[1]) - 1
    }

    /// Whether a standby has received everything up to a mark.
    fn may_round(&self, member: &Member, mark: usize) -> bool {
        let mark = &self.marks[mark];
        let run = &self.runs[usize::from(mark.run)];
        let readings = self.read(None);
        let has = |lane: usize| {
            let reading = &readings[lane];
            let end = reading.of(run.incarnation).map_or(run.starts[lane], |(_, end)| end);
            reading.reached >= run.incarnation && end >= mark.to[lane]
        };
        run.incarnation == member.through + 1
            && (run.incarnation, mark.epoch) > member.cut
            && (0..LANES).all(has)
    }
}

impl Takeover {
    pub(super) fn steps_of_images(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let member = &state.members[number];
        let Role::Primary(run) = member.role else { return };
        if !self.images || member.image.is_some() {
            return;
        }
        let Some((_, ends, _)) = member.imaging else {
            if self.may_end_epoch(&state.runs[usize::from(run)]) {
                steps.push(Step::Image(number));
            }
            return;
        };
        let frontier = self.frontier(state, number, usize::from(run));
        let is_filed = (0..LANES).all(|lane| member.filed[lane] >= ends[lane]);
        let is_stored = (0..LANES).all(|lane| frontier[lane] >= ends[lane]);
        if is_filed && (is_stored || self.rule == TakeoverRule::AdoptUnstored) {
            steps.push(Step::Adopt(number));
        }
    }

    pub(super) fn steps_of_member(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let member = &state.members[number];
        match member.role {
            Role::Joining | Role::Standby => {
                self.steps_at_rest(state, number, steps);
            }
            Role::Candidate(incarnation) => {
                let lacks = |lane: &usize| !state.has_sealed((incarnation, number), *lane);
                let seals = (0..LANES).filter(lacks).map(|lane| Step::Seal(number, lane));
                let before = steps.len();
                steps.extend(seals);
                if steps.len() == before {
                    steps.push(Step::Recover(number));
                }
            }
            Role::Recovered(_) => steps.push(Step::Begin(number)),
            Role::Primary(run) => {
                if state.crashes > 0 {
                    steps.push(Step::Crash(number));
                }
                if state.drawn > state.runs[usize::from(run)].incarnation {
                    steps.push(Step::Demote(number));
                }
            }
            Role::Stopped => {}
        }
    }

    fn steps_at_rest(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let member = &state.members[number];
        if usize::from(state.drawn) < self.records.len() {
            steps.push(Step::Draw(number));
        }
        let is_twice = matches!(self.rule, TakeoverRule::DrawnTwice | TakeoverRule::NoSecondFence);
        if is_twice && state.drawn > 1 && member.through < state.drawn {
            steps.push(Step::DrawAgain(number));
        }
        let ended = state.ended();
        let own = member.run.map_or(0, |run| state.runs[usize::from(run)].incarnation);
        if ended > member.through && ended >= own {
            steps.push(Step::Follow(number));
        }
        if member.role == Role::Standby {
            let may = |mark: &usize| state.may_round(member, *mark);
            steps.extend((0..state.marks.len()).filter(may).map(|mark| Step::Round(number, mark)));
            if self.witnesses.mirror {
                steps.push(Step::Receive(number));
            }
        }
    }

    /// Takes a step, in place.
    pub(super) fn take(&self, state: &mut State, step: Step) {
        if self.take_of_writer(state, step) {
            return;
        }
        match step {
            Step::Arrive(run, lane) => {
                if let Some(batch) = state.runs[run].flight[lane].take() {
                    state.lanes[lane].push(Message::Data { run: run as u8, batch });
                }
            }
            Step::Lose(lane) => {
                state.lanes[lane].pop();
                state.lies -= 1;
            }
            Step::Image(number) => self.image(state, number),
            Step::Adopt(number) => {
                let member = &mut state.members[number];
                member.image = member.imaging.take().map(|(shows, _, cut)| (shows, cut));
            }
            Step::Crash(number) => {
                state.crashes -= 1;
                state.members[number].restart();
            }
            Step::Demote(number) => self.demote(state, number),
            Step::Draw(number) => {
                state.drawn += 1;
                state.limit += 1;
                draw(state, number);
            }
            Step::DrawAgain(number) => draw(state, number),
            Step::Seal(number, lane) => seal(state, number, lane),
            Step::Recover(number) => self.recover(state, number),
            Step::Begin(number) => self.begin(state, number),
            Step::Follow(number) => self.follow(state, number),
            Step::Round(number, mark) => self.round(state, number, mark),
            Step::Receive(number) => self.receive(state, number),
            _ => {}
        }
    }

    /// A primary that is replaced knows what it has heard of as stored.
    fn demote(&self, state: &mut State, number: usize) {
        let Role::Primary(run) = state.members[number].role else { return };
        let stored = state.runs[usize::from(run)].stored;
        let member = &mut state.members[number];
        member.restart();
        if self.witnesses.mirror {
            member.received = Some((run, stored));
        }
    }

    fn image(&self, state: &mut State, number: usize) {
        let Role::Primary(at) = state.members[number].role else { return };
        let own = |(_, record): &(usize, &super::Record)| record.run == at;
        let shown = state.records.iter().enumerate().filter(own);
        let shown: u16 = shown.map(|(record, _)| 1 << record).sum();
        let run = &mut state.runs[usize::from(at)];
        let (cut, ends) = ((run.incarnation, run.epoch), [run.end(0), run.end(1)]);
        run.epoch += 1;
        let member = &mut state.members[number];
        member.imaging = Some((member.applied | shown, ends, cut));
    }

    fn recover(&self, state: &mut State, number: usize) {
        let mut member = state.members[number].clone();
        let Role::Candidate(incarnation) = member.role else { return };
        let readings = state.read(Some((incarnation, number)));
        let is_fenced = readings.iter().any(|reading| reading.reached > incarnation);
        let is_stopped = readings.iter().any(|reading| reading.is_stopped);
        if is_fenced {
            member.role = member.at_rest();
        } else if is_stopped || self.notices(state, &member, &readings, incarnation) {
            member.role = Role::Stopped;
        } else {
            self.recover_up_to(state, &mut member, &readings, incarnation - 1);
            member.role = Role::Recovered(incarnation);
        }
        state.members[number] = member;
    }

    fn begin(&self, state: &mut State, number: usize) {
        let Role::Recovered(incarnation) = state.members[number].role else { return };
        let is_begun = state.runs.iter().any(|run| run.incarnation == incarnation);
        let replaces =
            matches!(self.rule, TakeoverRule::BeginReplaced | TakeoverRule::NoSecondFence);
        if is_begun && !replaces {
            let member = &mut state.members[number];
            member.role = member.at_rest();
            return;
        }
        let epoch = self.floor(state, number, incarnation);
        let member = &mut state.members[number];
        let starts = member.ends;
        member.role = Role::Primary(state.runs.len() as u8);
        (member.run, member.filed) = (Some(state.runs.len() as u8), starts);
        member.received = None;
        state.runs.push(Run {
            incarnation,
            member: number as u8,
            starts,
            frames: Default::default(),
            epoch,
            limit: epoch,
            marks: 0,
            flight: [None; LANES],
            sent: starts,
            stored: starts,
        });
    }

    /// The first epoch of an incarnation.
    fn floor(&self, state: &State, number: usize, incarnation: u8) -> u8 {
        match self.rule {
            TakeoverRule::FloorForgotten => return 1,
            TakeoverRule::FloorByRecords => {}
            _ => return state.members[number].first_epoch,
        }
        let readings = state.read(Some((incarnation, number)));
        let is_read = |record: &&super::Record| {
            let run = &state.runs[usize::from(record.run)];
            let lane = usize::from(record.lane);
            let taken = (run.incarnation < incarnation).then(|| readings[lane].of(run.incarnation));
            taken.flatten().is_some_and(|(by, end)| by == record.run && record.end <= end)
        };
        let read = state.records.iter().filter(is_read).map(|record| record.epoch);
        read.chain([state.members[number].cut.1]).max().unwrap_or(0) + 1
    }

    fn follow(&self, state: &mut State, number: usize) {
        let (readings, last) = (state.read(None), state.ended());
        let mut member = state.members[number].clone();
        if self.notices(state, &member, &readings, last + 1) {
            member.role = Role::Stopped;
        } else {
            self.recover_up_to(state, &mut member, &readings, last);
            (member.role, member.received) = (Role::Standby, None);
        }
        state.members[number] = member;
    }

    fn round(&self, state: &mut State, number: usize, at: usize) {
        let mark = state.marks[at];
        let incarnation = state.runs[usize::from(mark.run)].incarnation;
        let mut member = state.members[number].clone();
        let mut is_even = true;
        for (at, record) in state.records.iter().enumerate() {
            if record.run != mark.run || record.epoch > mark.epoch {
                continue;
            }
            if record.epoch > member.cut.1 {
                member.applied |= 1 << at;
            }
            is_even &= member.applied >> at & 1 == 1;
        }
        member.cut = (incarnation, mark.epoch);
        state.members[number] = member;
        if !is_even {
            state.uneven = Some(number as u8);
        }
    }
}

/// A member has drawn the last incarnation, and with it the last epoch that the lease allows.
fn draw(state: &mut State, number: usize) {
    let member = &mut state.members[number];
    member.role = Role::Candidate(state.drawn);
    member.first_epoch = state.limit;
}

fn seal(state: &mut State, number: usize, lane: usize) {
    let Role::Candidate(incarnation) = state.members[number].role else { return };
    state.lanes[lane].push(Message::Seal { incarnation, member: number as u8 });
    // Refused from now on, and for ever.
    for run in state.runs.iter_mut().filter(|run| run.incarnation < incarnation) {
        run.flight[lane] = None;
    }
}
