//! The steps of time, of the holder, of candidates, and of their messages.

use super::{Keys, Known, LEASE, Lease, LeaseRule, Look, OLDEST, Role, State, Step};

/// An age a unit of time later. Ages of which `is_over` holds count as the oldest.
fn older(age: u8, is_over: impl Fn(u8) -> bool) -> u8 {
    if is_over(age + 1) { OLDEST } else { OLDEST.min(age + 1) }
}

/// Whether L has passed, by a clock of this rate.
fn has_waited(age: u8, rate: u8) -> bool {
    age * rate >= LEASE
}

impl Lease {
    /// Whether a lease from a set of this age is over, by a clock of this rate.
    fn is_over(&self, age: u8, rate: u8) -> bool {
        let tenths = if self.rule == LeaseRule::WholeTime { 10 } else { 9 };
        u32::from(age) * u32::from(rate) * 10 >= u32::from(LEASE) * tenths
    }

    /// Whether a holder may answer.
    fn may_answer(&self, state: &State, number: usize) -> bool {
        let process = &state.processes[number];
        !self.is_over(process.heard, process.rate)
    }

    /// Whether a candidate may set the key.
    fn may_take(&self, state: &State, number: usize) -> bool {
        let process = &state.processes[number];
        let Some(known) = process.known else { return false };
        let waits = !state.released && self.rule != LeaseRule::NoWaiting;
        let has_looked = process.looked || self.rule == LeaseRule::ThroughOutage;
        has_looked && (!waits || has_waited(known.age, process.rate))
    }

    /// The steps of time and of the service.
    pub(super) fn steps_of_time(&self, state: &State, steps: &mut Vec<Step>) {
        let may_rest = state.faulty || state.owner() != 0 || state.released;
        match state.keys {
            Keys::Up { renewed } if renewed || may_rest => {
                steps.extend([Step::Tick, Step::Outage]);
            }
            Keys::Up { .. } => {}
            Keys::Out => steps.extend([Step::Tick, Step::OutageEnds]),
        }
        if !state.faulty {
            steps.push(Step::Fault);
        } else if self.rule == LeaseRule::ClockStops {
            let holds = |number: &usize| state.processes[*number].role == Role::Holds;
            steps.extend((0..state.processes.len()).filter(holds).map(Step::Suspended));
        }
    }

    pub(super) fn steps_of_candidate(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        match process.look {
            Look::No if self.rule == LeaseRule::FromLook => steps.push(Step::Look(number)),
            Look::No | Look::Sent(_) if state.keys != Keys::Out => steps.push(Step::Show(number)),
            Look::No | Look::Sent(_) => {}
            Look::Shown(_) => steps.push(Step::See(number)),
        }
        steps.push(Step::Fail(number));
        if self.may_take(state, number) {
            steps.push(Step::Take(number));
        }
    }

    pub(super) fn steps_of_holder(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        let is_owner = state.owner() == number && !state.released;
        let is_up = state.keys != Keys::Out;
        if process.knows && process.set != Some(0) {
            steps.push(Step::Renew(number));
        }
        if process.knows && !process.releases {
            steps.push(Step::Release(number));
        }
        if is_up && state.owner() != number {
            steps.push(Step::FindOther(number));
        }
        if is_up && is_owner && self.rule == LeaseRule::LookRenews {
            steps.push(Step::FindOwn(number));
        }
        if is_owner && !process.knows && self.rule == LeaseRule::RefusedIsFenced {
            steps.push(Step::Refused(number));
        }
        let place = state.place(number).unwrap_or(0);
        if place > state.written {
            steps.push(Step::Write(number));
        }
        if self.rule == LeaseRule::CheckedBefore {
            if self.may_answer(state, number) && !process.checked {
                steps.push(Step::Check(number));
            }
            if process.checked {
                steps.push(Step::Answer(number));
            }
        } else if place < state.written && self.may_answer(state, number) {
            steps.push(Step::Answer(number));
        }
    }

    pub(super) fn steps_of_messages(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        if state.keys != Keys::Out {
            steps.extend(process.set.map(|_| Step::Arrive(number)));
            if process.releases {
                steps.push(Step::Released(number));
            }
        }
        if process.is_told && matches!(process.role, Role::Taking | Role::Holds) {
            steps.push(Step::Hear(number));
        }
    }

    /// The key has another revision: what was known of the last one counts no more.
    fn changed(&self, state: &mut State) {
        for process in &mut state.processes {
            let is_blind = match process.role {
                Role::Taking => self.rule == LeaseRule::TakesBlindly,
                _ => self.rule == LeaseRule::RenewsBlindly,
            };
            if !is_blind {
                process.set = None;
                process.knows = false;
                if process.role == Role::Taking && process.applied == OLDEST && !process.is_told {
                    process.role = Role::Candidate;
                }
            }
            process.releases = false;
            process.known = process.known.filter(|_| self.rule == LeaseRule::TakesBlindly);
            if let Some(known) = &mut process.known {
                known.is_current = false;
            }
            if let Look::Shown(_) = process.look {
                process.look = Look::No;
            }
        }
    }

    /// Takes a step, in place.
    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state, None),
            Step::Suspended(number) => self.tick(state, Some(number)),
            Step::Fault => state.faulty = true,
            Step::Outage => state.keys = Keys::Out,
            Step::OutageEnds => state.keys = Keys::Up { renewed: false },
            Step::Renew(number) => state.processes[number].set = Some(0),
            Step::Take(number) => {
                let process = &mut state.processes[number];
                process.set = Some(0);
                process.role = Role::Taking;
                (process.known, process.look, process.looked) = (None, Look::No, false);
            }
            Step::Arrive(number) => self.arrive(state, number),
            Step::Hear(number) => self.hear(state, number),
            Step::FindOwn(number) => state.processes[number].heard = 0,
            Step::FindOther(number) => end(state, number),
            Step::Refused(number) => {
                state.misled = Some(number as u8);
                end(state, number);
            }
            Step::Release(number) => {
                if self.rule != LeaseRule::ReleasesEarly {
                    end(state, number);
                }
                state.processes[number].releases = true;
            }
            Step::Released(_) => {
                state.released = true;
                self.changed(state);
            }
            Step::Look(_) | Step::Show(_) | Step::See(_) | Step::Fail(_) => self.look(state, step),
            Step::Write(number) => state.written = state.place(number).unwrap_or(0),
            Step::Check(number) => state.processes[number].checked = true,
            Step::Answer(number) => {
                state.processes[number].checked = false;
                if state.place(number).is_some_and(|place| place < state.written) {
                    state.stale = Some(number as u8);
                }
            }
        }
        if state.faulty && state.keys != Keys::Out {
            state.keys = Keys::Up { renewed: true };
        }
    }

    fn tick(&self, state: &mut State, suspended: Option<usize>) {
        for (number, process) in state.processes.iter_mut().enumerate() {
            let rate = process.rate;
            if suspended != Some(number) {
                let is_over = |age: u8| self.is_over(age, rate);
                process.set = process.set.map(|age| older(age, is_over));
                process.applied = older(process.applied, is_over);
                process.heard = older(process.heard, is_over);
            }
            if let Look::Sent(age) | Look::Shown(age) = &mut process.look
                && self.rule == LeaseRule::FromLook
            {
                *age = older(*age, |age| has_waited(age, rate));
            }
            let is_kept = process.looked || self.rule == LeaseRule::ThroughOutage;
            process.known = process.known.filter(|_| is_kept);
            if let Some(known) = &mut process.known {
                known.age = older(known.age, |age| has_waited(age, rate));
            }
            process.looked = false;
        }
        if let Keys::Up { renewed } = &mut state.keys {
            *renewed = false;
        }
    }

    /// A set arrives, and its condition holds.
    fn arrive(&self, state: &mut State, number: usize) {
        let Some(age) = state.processes[number].set.take() else { return };
        if state.place(number).is_none() {
            let from_first = state.holders.len() == 1;
            state.needless |= from_first && !state.faulty && !state.released;
            state.holders.push(number as u8);
            state.released = false;
        }
        let process = &mut state.processes[number];
        (process.applied, process.is_told) = (age, true);
        self.changed(state);
    }

    fn hear(&self, state: &mut State, number: usize) {
        let is_owner = state.owner() == number && !state.released;
        let process = &mut state.processes[number];
        process.is_told = false;
        process.role = Role::Holds;
        process.knows = is_owner;
        process.heard = match self.rule {
            LeaseRule::FromArrival => 0,
            _ => process.applied,
        };
        if number == 0 && process.applied == 0 {
            state.keys = match state.keys {
                Keys::Up { .. } => Keys::Up { renewed: true },
                Keys::Out => Keys::Out,
            };
        }
    }

    fn look(&self, state: &mut State, step: Step) {
        match step {
            Step::Look(number) => state.processes[number].look = Look::Sent(0),
            Step::Show(number) => {
                let process = &mut state.processes[number];
                process.look = match process.look {
                    Look::Sent(age) => Look::Shown(age),
                    _ => Look::Shown(0),
                };
            }
            Step::See(number) => {
                let process = &mut state.processes[number];
                if let Look::Shown(age) = process.look {
                    let known = process.known.filter(|known| known.is_current);
                    process.known = known.or(Some(Known { age, is_current: true }));
                    process.looked = true;
                }
                process.look = Look::No;
            }
            Step::Fail(number) => {
                let process = &mut state.processes[number];
                process.look = Look::No;
                if self.rule != LeaseRule::ThroughOutage {
                    process.known = None;
                }
            }
            _ => {}
        }
    }
}

/// A process answers nothing from now on.
fn end(state: &mut State, number: usize) {
    let process = &mut state.processes[number];
    process.role = Role::Ended;
    (process.is_told, process.checked, process.knows) = (false, false, false);
    (process.applied, process.heard) = (OLDEST, OLDEST);
}
