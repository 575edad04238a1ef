//! The steps of members, joiners and purgers.

use super::{HoldRule, Holds, Joining, MEMBERS, Member, Needs, PURGERS, State, Step, View};

impl Holds {
    /// How far a purger may let the lane be purged, by the key.
    pub(super) fn limit(&self, state: &State, own: usize) -> u8 {
        let has_place = |number: usize| matches!(state.members[number].needs, Needs::Place(_));
        let others = (0..MEMBERS).any(|number| number != own && has_place(number));
        let has_own = has_place(own) || self.rule == HoldRule::ForgottenPurges;
        if !has_own || !others && self.rule != HoldRule::OwnFiles {
            return state.purged;
        }
        let counts = |number: usize| match self.rule {
            HoldRule::PastBase => number == own,
            HoldRule::OwnFilesIgnored => number != own,
            HoldRule::HoldsIgnored => has_place(number),
            _ => true,
        };
        let needs = |number: usize| state.members[number].needs.behind();
        let lowest = (0..MEMBERS).filter(|number| counts(*number)).filter_map(needs).min();
        lowest.unwrap_or(0).max(state.purged)
    }

    /// The steps of a member.
    pub(super) fn steps_of(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let member = &state.members[number];
        let is_purger = number < PURGERS && member.joining == Joining::Member;
        // What is under way arrives also after its sender has burned.
        if number < PURGERS && state.views[number].is_some() {
            steps.push(Step::Raise(number));
        }
        if state.forgets > 0 && member.needs != Needs::Nothing {
            steps.push(Step::Forget(number));
        }
        if member.burned {
            return;
        }
        if is_purger && state.views[number].is_none() {
            steps.push(Step::Read(number));
        }
        if state.burns > 0 {
            steps.push(Step::Burn(number));
        }
        match member.joining {
            Joining::Out | Joining::Fetched => return steps.push(Step::Join(number)),
            Joining::Holds => {
                let others = (0..MEMBERS).filter(|other| *other != number);
                let has_files = |other: &usize| {
                    let other = &state.members[*other];
                    !other.burned && other.joining == Joining::Member
                };
                steps.extend(others.filter(has_files).map(|other| Step::Fetch(number, other)));
                return;
            }
            Joining::Member => {}
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
        if member.needs.behind().is_none_or(|behind| behind < self.reports(member)) {
            steps.push(Step::Report(number));
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
            Step::Receive(number) => state.members[number].received += 1,
            Step::Sync(number) => {
                let member = &mut state.members[number];
                member.synced = member.received;
            }
            Step::Report(number) => {
                let at = self.reports(&state.members[number]);
                self.take_place(state, number, at);
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
            Step::Fetch(number, other) => {
                let synced = state.members[other].synced;
                let joiner = &mut state.members[number];
                (joiner.received, joiner.synced) = (synced, synced);
                joiner.joining = Joining::Fetched;
            }
            Step::Read(number) => {
                let limit = self.limit(state, number);
                state.views[number] = Some(View { limit, is_newest: true });
                if self.rule == HoldRule::PurgesFirst {
                    state.begin = state.begin.max(limit);
                }
            }
            Step::Raise(number) => {
                let view = state.views[number].take();
                let view =
                    view.filter(|view| view.is_newest || self.rule == HoldRule::Unconditional);
                if let Some(view) = view.filter(|view| view.limit > state.purged) {
                    state.purged = view.limit;
                    changed(state);
                }
            }
            Step::Forget(number) => {
                state.forgets -= 1;
                set(state, number, Needs::Nothing);
            }
            Step::Purge => state.begin = state.purged,
        }
    }

    /// A member states a place, unless the lane may be purged above: then the member joins anew.
    fn take_place(&self, state: &mut State, number: usize, at: u8) {
        let joins = state.members[number].joining == Joining::Fetched;
        let is_late = match self.rule {
            HoldRule::HoldAfterBase if joins => false,
            HoldRule::LooksAtLane if joins => at < state.begin,
            HoldRule::PlaceAtOnce if !joins => false,
            _ => at < state.purged,
        };
        if is_late {
            state.members[number].joining = Joining::Out;
            return set(state, number, Needs::Nothing);
        }
        state.members[number].joining = Joining::Member;
        set(state, number, Needs::Place(at));
    }

    fn join(&self, state: &mut State, number: usize) {
        match state.members[number].joining {
            Joining::Out => {
                state.members[number].joining = Joining::Holds;
                if !matches!(self.rule, HoldRule::HoldAfterBase | HoldRule::LooksAtLane) {
                    set(state, number, Needs::Hold(state.purged));
                }
            }
            _ => {
                let at = state.members[number].synced;
                self.take_place(state, number, at);
            }
        }
    }
}

/// The key has changed: a set of what was read before is refused.
fn changed(state: &mut State) {
    state.views.iter_mut().flatten().for_each(|view| view.is_newest = false);
}

fn set(state: &mut State, number: usize, needs: Needs) {
    if state.members[number].needs != needs {
        state.members[number].needs = needs;
        changed(state);
    }
}
