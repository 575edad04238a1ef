//! The steps of members, joiners and purgers.

use super::{HoldRule, Holds, JOINER, Joining, MEMBERS, Member, PURGERS, State, Step, View};

/// The kinds of keys that a purger reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bases,
    Holds,
    Places,
}

impl Holds {
    /// The order in which a purger reads the keys. A hold that it does not see was written after
    /// the bases were read, so its joiner chooses a base that is not lower; and a hold given back
    /// has left a place, which is read afterwards.
    pub(super) fn order(&self) -> [Kind; 3] {
        match self.rule {
            HoldRule::HoldsBeforeBases => [Kind::Holds, Kind::Bases, Kind::Places],
            HoldRule::PlacesBeforeHolds => [Kind::Bases, Kind::Places, Kind::Holds],
            _ => [Kind::Bases, Kind::Holds, Kind::Places],
        }
    }

    /// How far the purger of a view may purge.
    pub(super) fn limit(&self, view: &View) -> u8 {
        let base = match self.rule {
            HoldRule::PastBase => view.proven,
            _ => view.base,
        };
        match (base, view.held) {
            (Some(base), Some(false)) => view.proven.map_or(base, |proven| proven.min(base)),
            _ => 0,
        }
    }

    /// The steps of a member.
    pub(super) fn steps_of(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let member = &state.members[number];
        // A purge may arrive after its sender has burned.
        if number < PURGERS && state.views[number].read == 3 {
            steps.push(Step::Purge(number));
        }
        if member.burned {
            return;
        }
        if number < PURGERS && state.views[number].read < 3 {
            steps.push(Step::Read(number));
        }
        if state.burns > 0 {
            steps.push(Step::Burn(number));
        }
        if member.joining != Joining::Member {
            steps.push(Step::Join(number));
        }
        if !matches!(member.joining, Joining::Fetched | Joining::Member) {
            return;
        }
        if member.received < state.end && member.received >= state.begin {
            steps.push(Step::Receive(number));
        }
        if member.synced < member.received {
            steps.push(Step::Sync(number));
            if state.cuts > 0 {
                steps.push(Step::Cut(number));
            }
        }
        if member.proven.is_some_and(|proven| proven < self.reports(member)) {
            steps.push(Step::Report(number));
        }
        if member.base.is_none_or(|base| base < member.synced) {
            steps.push(Step::Base(number));
        }
    }

    fn reports(&self, member: &Member) -> u8 {
        match self.rule {
            HoldRule::ReportsUnsynced => member.received,
            _ => member.synced,
        }
    }

    /// Takes a step, in place.
    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Append => state.end += 1,
            Step::Receive(number) => {
                let member = &mut state.members[number];
                member.received += 1;
                // Without power cuts it makes no difference when files are synced.
                if self.cuts == 0 {
                    member.synced = member.received;
                }
            }
            Step::Sync(number) => {
                let member = &mut state.members[number];
                member.synced = member.received;
            }
            Step::Report(number) => {
                let member = &mut state.members[number];
                member.proven = Some(self.reports(member));
            }
            Step::Base(number) => {
                let member = &mut state.members[number];
                member.base = Some(member.synced);
            }
            Step::Cut(number) => {
                let member = &mut state.members[number];
                member.received = member.synced;
                state.cuts -= 1;
            }
            Step::Burn(number) => {
                state.members[number].burned = true;
                state.burns -= 1;
            }
            Step::Join(number) => self.join(state, number),
            Step::Read(number) => self.read(state, number),
            Step::Purge(number) => {
                let limit = self.limit(&state.views[number]);
                state.begin = state.begin.max(limit);
                state.views[number] = View::default();
            }
        }
    }

    fn join(&self, state: &mut State, number: usize) {
        let hold_late = self.rule == HoldRule::HoldAfterBase;
        let takes_older = self.rule == HoldRule::OlderBase;
        let (begin, mut joiner) = (state.begin, state.members[number]);
        let is_there = |owner: usize| !state.members[owner].burned;
        joiner.joining = match joiner.joining {
            Joining::Out if !hold_late => {
                joiner.hold = true;
                Joining::Holds
            }
            Joining::Out | Joining::Holds => {
                let with_base = (0..MEMBERS).filter(|owner| is_there(*owner));
                let bases = with_base.filter_map(|owner| Some((state.members[owner].base?, owner)));
                let stated = state.members.iter().filter_map(|member| member.base).max();
                let is_low = |base: u8| stated.is_some_and(|stated| base < stated);
                match bases.max_by_key(|(base, _)| *base) {
                    Some((base, owner)) if !is_low(base) || takes_older => {
                        Joining::Chosen(owner, base)
                    }
                    _ => joiner.joining,
                }
            }
            Joining::Chosen(owner, base) if hold_late && !joiner.hold => {
                joiner.hold = true;
                Joining::Chosen(owner, base)
            }
            Joining::Chosen(owner, base) if begin <= base => Joining::Checked(owner, base),
            Joining::Chosen(..) => Joining::Holds,
            Joining::Checked(owner, base) if is_there(owner) => {
                (joiner.received, joiner.synced) = (base, base);
                match self.rule {
                    HoldRule::ReleasesFirst => joiner.hold = false,
                    _ => joiner.proven = Some(base),
                }
                Joining::Fetched
            }
            Joining::Checked(..) => Joining::Holds,
            Joining::Fetched | Joining::Member => {
                match self.rule {
                    HoldRule::ReleasesFirst => joiner.proven = Some(joiner.synced),
                    _ => joiner.hold = false,
                }
                Joining::Member
            }
        };
        debug_assert_eq!(number, JOINER, "one member joins");
        state.members[number] = joiner;
    }

    fn read(&self, state: &mut State, number: usize) {
        let mut view = state.views[number];
        let all = || state.members.iter().enumerate();
        match self.order()[usize::from(view.read)] {
            Kind::Bases => {
                let counts = |owner: usize| owner != number || self.rule == HoldRule::OwnBase;
                let bases = all().filter(|(owner, _)| counts(*owner)).filter_map(|(_, m)| m.base);
                view.base = bases.max();
            }
            Kind::Holds => view.held = Some(all().any(|(_, member)| member.hold)),
            Kind::Places => {
                let ignores = self.rule == HoldRule::OwnFilesIgnored;
                let places = all().filter(|(owner, _)| *owner != number || !ignores);
                view.proven = places.filter_map(|(_, member)| member.proven).min();
            }
        }
        view.read += 1;
        state.views[number] = view;
    }
}
