//! The steps of writers, candidates, and the log service.

use super::reading::Reading;
use super::{Kind, Lane, LaneRule, LaneState, LaneStep, Message, Phase, Request, Writer};

/// The incarnation of a writer.
pub(super) fn incarnation(number: usize) -> u8 {
    number as u8 + 1
}

fn seal(number: usize) -> Message {
    Message { incarnation: incarnation(number), kind: Kind::Seal }
}

/// Whether messages shown to a writer have one of a higher incarnation.
fn has_higher(shown: &[Message], number: usize) -> bool {
    shown.iter().any(|message| message.incarnation > incarnation(number))
}

/// Whether messages shown to a writer have its batch, by the index.
fn shows(shown: &[Message], number: usize, batch: Kind) -> bool {
    let same = |kind: Kind| match (kind, batch) {
        (Kind::Data { index: a, .. }, Kind::Data { index: b, .. }) => a == b,
        _ => false,
    };
    let own = |message: &Message| message.incarnation == incarnation(number);
    shown.iter().any(|message| own(message) && same(message.kind))
}

fn end(writer: &mut Writer) {
    writer.phase = Phase::Ended;
    writer.under_way.clear();
}

fn acknowledge(writer: &mut Writer, kind: Kind) {
    if let Kind::Data { batch, .. } = kind {
        writer.acknowledged |= 1 << batch;
    }
}

impl Lane {
    fn window(&self) -> usize {
        match self.rule {
            LaneRule::WindowOfTwo | LaneRule::EachForItself => 2,
            _ => 1,
        }
    }

    /// Sends the batches under way from this one on; the first of all comes after this place.
    fn request(state: &mut LaneState, number: usize, from: usize, last: u8) {
        for (at, kind) in (0..).zip(&state.writers[number].under_way).skip(from) {
            let message = Message { incarnation: incarnation(number), kind: *kind };
            state.requests.push(Request { message, after: last + at });
        }
    }

    /// The place that a writer may hear of as that of a batch under way.
    fn reply(&self, state: &LaneState, number: usize, kind: Kind) -> Option<u8> {
        let is_data = |message: &Message| matches!(message.kind, Kind::Data { .. });
        let is_it = |message: &Message| match self.rule {
            LaneRule::AnyReply => is_data(message),
            _ => message.kind == kind,
        };
        let own = |message: &Message| message.incarnation == incarnation(number);
        let place = state.log.iter().position(|message| own(message) && is_it(message));
        place.map(|place| place as u8 + 1)
    }

    pub(super) fn may_arrive(&self, state: &LaneState, request: &Request) -> bool {
        request.after == state.end() || self.rule == LaneRule::Unconditional
    }

    /// The steps of a writer.
    pub(super) fn steps_of(&self, state: &LaneState, number: usize, steps: &mut Vec<LaneStep>) {
        let writer = &state.writers[number];
        let copies = state.log.iter().filter(|message| **message == seal(number)).count();
        if number > 0 && writer.phase != Phase::Waits && copies < self.copies {
            steps.push(LaneStep::Seal(number));
        }
        match writer.phase {
            Phase::Seals => {
                let places = (0..state.end()).filter(|at| state.log[*at as usize] == seal(number));
                for place in places.map(|at| at + 1) {
                    let short = (1..place).filter(|_| self.rule == LaneRule::ReadsShort);
                    let ends = short.chain([place]);
                    steps.extend(ends.map(|to| LaneStep::Begin(number, place, to)));
                }
            }
            Phase::Writes => {
                if writer.under_way.len() < self.window() && writer.begun < self.batches {
                    steps.push(LaneStep::Send(number));
                }
                let hears = match self.rule {
                    LaneRule::EachForItself => writer.under_way.len(),
                    _ => writer.under_way.len().min(1),
                };
                let may = |at: &usize| self.reply(state, number, writer.under_way[*at]).is_some();
                steps.extend((0..hears).filter(may).map(|at| LaneStep::Hear(number, at)));
            }
            Phase::Waits | Phase::Ended => {}
        }
        // The mistake of a wider window is one even where no look shows less than is known.
        let oldest = if self.window() > 1 { writer.last } else { 0 };
        if writer.phase == Phase::Seals || !writer.under_way.is_empty() {
            steps.extend((oldest..=state.end()).map(|to| LaneStep::Look(number, to)));
        }
    }

    /// What the service may do against its promises.
    pub(super) fn lies(&self, state: &LaneState, steps: &mut Vec<LaneStep>) {
        if state.lies == 0 {
            return;
        }
        for (place, message) in (1..).zip(&state.log) {
            let Kind::Data { index, .. } = message.kind else { continue };
            steps.push(LaneStep::Repeat(place));
            let is_later = |other: &Message| match other.kind {
                Kind::Data { index: later, .. } => later > index,
                _ => false,
            };
            let mut behind = state.log[usize::from(place)..].iter();
            if behind.any(|other| other.incarnation == message.incarnation && is_later(other)) {
                steps.push(LaneStep::Lose(place));
            }
        }
    }

    /// Takes a step, in place.
    pub(super) fn take(&self, state: &mut LaneState, step: LaneStep) {
        match step {
            LaneStep::Draw(number) => state.writers[number].phase = Phase::Seals,
            LaneStep::Seal(number) => state.log.push(seal(number)),
            LaneStep::Begin(number, place, to) => self.begin(state, number, place, to),
            LaneStep::Send(number) => self.send(state, number),
            LaneStep::Arrive(at) => {
                let request = state.requests.remove(at);
                state.log.push(request.message);
            }
            LaneStep::Hear(number, at) => self.hear(state, number, at),
            LaneStep::Look(number, shown) => self.look(state, number, usize::from(shown)),
            LaneStep::Lose(place) => {
                state.log[usize::from(place) - 1].kind = Kind::Lost;
                state.lies -= 1;
            }
            LaneStep::Repeat(place) => {
                state.log.push(state.log[usize::from(place) - 1]);
                state.lies -= 1;
            }
        }
        if self.rule != LaneRule::Unconditional {
            let end = state.end();
            state.requests.retain(|request| request.after >= end);
        }
        state.requests.sort_unstable();
        state.requests.dedup();
    }

    /// A candidate reads up to its own seal, and writes from then on unless there is a higher seal.
    fn begin(&self, state: &mut LaneState, number: usize, place: u8, to: u8) {
        let shown = &state.log[..usize::from(to)];
        let mut reading = Reading::new(self.rule, shown);
        let is_fenced = has_higher(shown, number) && self.rule != LaneRule::SealUnread;
        let writer = &mut state.writers[number];
        if is_fenced || reading.is_stopped {
            end(writer);
            return;
        }
        reading.reached = reading.reached.max(incarnation(number));
        writer.read = Some(reading);
        (writer.phase, writer.last) = (Phase::Writes, place);
    }

    fn send(&self, state: &mut LaneState, number: usize) {
        let writer = &mut state.writers[number];
        let batch = writer.begun;
        let kind = Kind::Data { index: batch - writer.failed, batch };
        writer.begun += 1;
        writer.under_way.push(kind);
        if self.rule == LaneRule::AtSend {
            acknowledge(writer, kind);
        }
        let (from, last) = (writer.under_way.len() - 1, writer.last);
        Self::request(state, number, from, last);
    }

    /// A writer hears that a batch under way is stored.
    fn hear(&self, state: &mut LaneState, number: usize, at: usize) {
        let kind = state.writers[number].under_way[at];
        let Some(place) = self.reply(state, number, kind) else { return };
        let writer = &mut state.writers[number];
        writer.under_way.remove(at);
        writer.last = writer.last.max(place);
        acknowledge(writer, kind);
    }

    /// A writer looks at the lane: fenced, stored, or sent again after the end that was shown.
    fn look(&self, state: &mut LaneState, number: usize, to: usize) {
        let from = match self.rule {
            LaneRule::LastAlone => to.saturating_sub(1),
            _ => 0,
        };
        let shown = &state.log[from..to];
        if has_higher(shown, number) && self.rule != LaneRule::BlindResume {
            end(&mut state.writers[number]);
            return;
        }
        let writer = &mut state.writers[number];
        if writer.phase == Phase::Seals {
            return;
        }
        while let Some(kind) = writer.under_way.first().copied() {
            if !shows(shown, number, kind) {
                break;
            }
            writer.under_way.remove(0);
            writer.last = writer.last.max(to as u8);
            acknowledge(writer, kind);
        }
        if self.rule == LaneRule::ByAbsence {
            writer.failed += writer.under_way.len() as u8;
            writer.under_way.clear();
        }
        if !writer.under_way.is_empty() {
            if self.window() > 1 {
                writer.last = to as u8;
            }
            Self::request(state, number, 0, to as u8);
        }
    }
}
