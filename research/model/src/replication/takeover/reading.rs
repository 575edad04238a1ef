//! What readers find in the lanes.

use super::{LANES, Member, Message, Positions, State, Takeover, TakeoverRule};

/// What a reader has found in a lane.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// All lower incarnations have ended.
    pub(super) reached: u8,
    /// Whether the reader has stopped at a hole, or at data that contradicts what was read.
    pub(super) is_stopped: bool,
    /// By incarnation from 1: the run that wrote, and its end.
    taken: Vec<Option<(u8, u8)>>,
    /// The highest positions stated as stored, by incarnation from 1.
    stated: Vec<Positions>,
}

impl Reading {
    /// Reads a lane, up to a place if there is one.
    pub(super) fn new(state: &State, lane: usize, to: Option<usize>) -> Reading {
        let log = &state.lanes[lane];
        let count = usize::from(state.drawn);
        let (taken, stated) = (vec![None; count], vec![[0; LANES]; count]);
        let mut reading = Reading { reached: 1, is_stopped: false, taken, stated };
        for message in &log[..to.unwrap_or(log.len())] {
            let (number, batch) = match *message {
                Message::Seal { incarnation, .. } => {
                    reading.reached = reading.reached.max(incarnation);
                    continue;
                }
                Message::Data { run, batch } => (run, batch),
            };
            let run = &state.runs[usize::from(number)];
            if run.incarnation < reading.reached {
                continue;
            }
            let at = usize::from(run.incarnation) - 1;
            let (taken, end) = reading.taken[at].unwrap_or((number, run.starts[lane]));
            if run.incarnation > reading.reached || taken != number || end != batch.start {
                reading.is_stopped = true;
                break;
            }
            reading.taken[at] = Some((number, batch.end));
            for (stated, stored) in reading.stated[at].iter_mut().zip(batch.stored) {
                *stated = (*stated).max(stored);
            }
        }
        reading
    }

    /// The run and end of an incarnation.
    pub(super) fn of(&self, incarnation: u8) -> Option<(u8, u8)> {
        self.taken[usize::from(incarnation) - 1]
    }

    fn states(&self, incarnation: u8, lane: usize) -> u8 {
        self.stated[usize::from(incarnation) - 1][lane]
    }
}

impl State {
    /// The readings of all lanes, up to the seals of a candidate if there is one.
    pub(super) fn read(&self, candidate: Option<(u8, usize)>) -> [Reading; LANES] {
        [0, 1].map(|lane| {
            let to = candidate.map(|(incarnation, member)| {
                let is_own = |message: &Message| {
                    *message == Message::Seal { incarnation, member: member as u8 }
                };
                let place = self.lanes[lane].iter().position(is_own);
                place.expect("the seal is in the lane") + 1
            });
            Reading::new(self, lane, to)
        })
    }

    /// The ends of an incarnation that has ended, and its run.
    pub(super) fn ends(
        readings: &[Reading; LANES],
        incarnation: u8,
    ) -> Option<(u8, [Option<u8>; LANES])> {
        let found = || readings.iter().filter_map(|reading| reading.of(incarnation));
        let (run, _) = found().next()?;
        let end = |reading: &Reading| {
            let taken = reading.of(incarnation).filter(|(other, _)| *other == run);
            taken.map(|(_, end)| end)
        };
        Some((run, [0, 1].map(|lane: usize| end(&readings[lane]))))
    }

    /// The highest position of a lane that a message of the incarnation states as stored.
    pub(super) fn stated(readings: &[Reading; LANES], incarnation: u8, lane: usize) -> u8 {
        readings.iter().map(|reading| reading.states(incarnation, lane)).max().unwrap_or(0)
    }

    /// Whether an ended incarnation has a dead record below its ends.
    pub(super) fn has_dead(&self) -> bool {
        self.members.iter().any(|member| {
            self.records.iter().enumerate().any(|(at, record)| {
                let run = &self.runs[usize::from(record.run)];
                let lane = usize::from(record.lane);
                run.incarnation == member.through
                    && record.end <= member.ends[lane]
                    && member.applied >> at & 1 == 0
            })
        })
    }
}

impl Takeover {
    /// Recovers the incarnations up to `last` from readings of the lanes.
    pub(super) fn recover_up_to(
        &self,
        state: &State,
        member: &mut Member,
        readings: &[Reading; LANES],
        last: u8,
    ) {
        for incarnation in member.through + 1..=last {
            let Some((number, found)) = State::ends(readings, incarnation) else { continue };
            let run = &state.runs[usize::from(number)];
            let mut ends = [0, 1].map(|lane: usize| found[lane].unwrap_or(run.starts[lane]));
            if member.run == Some(number) {
                for (end, filed) in ends.iter_mut().zip(member.filed) {
                    match self.rule {
                        TakeoverRule::KeepGhost => *end = filed.max(*end),
                        TakeoverRule::OwnEnds => *end = filed,
                        _ => {}
                    }
                }
            }
            for (at, record) in state.records.iter().enumerate() {
                let (lane, other) = (usize::from(record.lane), 1 - usize::from(record.lane));
                let is_live = record.end <= ends[lane] && record.says <= ends[other];
                let skips = record.epoch <= member.cut.1;
                if record.run == number && is_live && !skips {
                    member.applied |= 1 << at;
                }
            }
            member.ends = ends;
        }
        member.through = last;
        member.run = None;
        member.filed = [0; LANES];
    }
}
