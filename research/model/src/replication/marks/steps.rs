//! The steps of sessions, and of the thread that makes marks.

use super::{At, Frame, Mark, MarkRule, Marks, STREAMS, Session, Stage, State, Step};

impl Marks {
    /// The steps of a session.
    pub(super) fn steps_of(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let session = &state.sessions[number];
        let may_begin = session.begun < self.transactions;
        let may_part = self.parts && self.rule != MarkRule::PartFirst;
        match session.at {
            At::Idle if !may_begin => return,
            At::Idle if self.late => steps.push(Step::Draw(number)),
            At::Entered(None) if self.parts && self.rule == MarkRule::PartFirst => {
                steps.push(Step::Part(number));
            }
            At::Versioned(_) if may_part => steps.push(Step::Part(number)),
            _ => {}
        }
        steps.push(Step::Next(number));
    }

    /// Whether the thread that makes marks has a step.
    pub(super) fn may_mark(&self, state: &State) -> bool {
        match state.stage {
            Stage::Idle => state.marks.len() < self.marks && state.epoch < self.epochs,
            Stage::Waits(slot) if self.rule != MarkRule::ToEarly => {
                let entered = state.sessions[usize::from(slot)].slot;
                entered.is_none_or(|entered| entered > state.making.epoch)
            }
            _ => true,
        }
    }

    /// Takes a step, in place.
    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::EndEpoch => state.epoch += 1,
            Step::Next(number) => self.next(state, number),
            Step::Draw(number) => {
                let epoch = state.epoch;
                let session = &mut state.sessions[number];
                session.begun += 1;
                session.at = At::Drawn(epoch);
            }
            Step::Part(number) => {
                let frames = &mut state.streams[number % STREAMS];
                let part = frames.len() as u8;
                frames.push(Frame::Part);
                let session = &mut state.sessions[number];
                session.at = match session.at {
                    At::Versioned(epoch) => At::Parted(part, Some(epoch)),
                    _ => At::Parted(part, None),
                };
            }
            Step::Mark => self.mark(state),
        }
    }

    fn next(&self, state: &mut State, number: usize) {
        let (epoch, closed) = (state.epoch, state.closed);
        let Session { at, slot, begun } = &mut state.sessions[number];
        let epoch_first = self.rule == MarkRule::EpochFirst;
        let next = match *at {
            At::Idle if epoch_first => {
                *begun += 1;
                At::Versioned(epoch)
            }
            At::Idle => {
                *begun += 1;
                *slot = Some(epoch);
                At::Entered(None)
            }
            At::Drawn(drawn) => {
                *slot = Some(epoch);
                At::Entered(Some(drawn))
            }
            At::Entered(Some(drawn)) if drawn > closed => At::Versioned(drawn),
            // A conflict: the epoch of the version is closed.
            At::Entered(Some(_)) => {
                *slot = None;
                At::Idle
            }
            At::Entered(None) => At::Versioned(epoch),
            At::Versioned(_) if epoch_first && slot.is_none() => {
                *slot = Some(epoch);
                *at
            }
            At::Versioned(version) => {
                let frames = &mut state.streams[number % STREAMS];
                frames.push(Frame::Record { epoch: version, part: None });
                At::Reserved
            }
            At::Parted(part, None) => At::Parted(part, Some(epoch)),
            At::Parted(part, Some(version)) => {
                let frames = &mut state.streams[number % STREAMS];
                frames.push(Frame::Record { epoch: version, part: Some(part) });
                At::Reserved
            }
            At::Reserved => {
                *slot = None;
                At::Idle
            }
        };
        state.sessions[number].at = next;
    }

    /// The steps of `ClosedEpochs::tick`.
    fn mark(&self, state: &mut State) {
        let note_late = self.rule == MarkRule::FromLate;
        state.stage = match state.stage {
            Stage::Idle => {
                state.making = Mark { epoch: state.epoch, ..Mark::default() };
                if self.rule != MarkRule::ClosedLate {
                    state.closed = state.closed.max(state.epoch);
                }
                if note_late { Stage::Advances } else { Stage::Notes(0) }
            }
            Stage::Notes(stream) => {
                let at = usize::from(stream);
                state.making.from[at] = state.streams[at].len() as u8;
                match at + 1 < STREAMS {
                    true => Stage::Notes(stream + 1),
                    false if note_late => Stage::Waits(0),
                    false => Stage::Checks,
                }
            }
            // Begins anew if the epoch has ended by itself.
            Stage::Checks if state.epoch != state.making.epoch => match self.rule {
                MarkRule::Unchecked => Stage::Advances,
                _ => {
                    state.making = Mark::default();
                    Stage::Idle
                }
            },
            Stage::Checks => Stage::Advances,
            Stage::Advances => {
                state.epoch = state.epoch.max(state.making.epoch + 1);
                if note_late { Stage::Notes(0) } else { Stage::Waits(0) }
            }
            Stage::Waits(slot) if usize::from(slot) + 1 < self.sessions => Stage::Waits(slot + 1),
            Stage::Waits(_) if self.rule == MarkRule::ClosedLate => Stage::Closes,
            Stage::Waits(_) => Stage::Ends(0),
            Stage::Closes => {
                state.closed = state.closed.max(state.making.epoch);
                Stage::Ends(0)
            }
            Stage::Ends(stream) => {
                let at = usize::from(stream);
                state.making.to[at] = state.streams[at].len() as u8;
                if at + 1 < STREAMS {
                    Stage::Ends(stream + 1)
                } else {
                    state.marks.push(std::mem::take(&mut state.making));
                    Stage::Idle
                }
            }
        };
    }
}
