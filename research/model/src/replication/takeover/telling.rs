//! Describes the steps of the model.

use super::{Frame, LANES, Message, Positions, Role, State, Step, Takeover};
use crate::check::Protocol;

const NAMES: [&str; 3] = ["P", "S", "T"];
const LANE_NAMES: [&str; LANES] = ["A", "B"];

fn show(positions: &Positions) -> String {
    format!("({},{})", positions[0], positions[1])
}

/// A lane in short: S2 is the seal of 2, and 1:0-2 its positions 0 to 2 of incarnation 1.
fn lane(state: &State, lane: usize) -> String {
    let short = |message: &Message| match message {
        Message::Seal { incarnation, .. } => format!("S{incarnation}"),
        Message::Data { run, batch } => {
            let incarnation = state.runs[usize::from(*run)].incarnation;
            format!("{incarnation}:{}-{}", batch.start, batch.end)
        }
    };
    state.lanes[lane].iter().map(short).collect::<Vec<_>>().join(" ")
}

impl State {
    fn tell_record(&self, at: usize) -> String {
        let record = &self.records[at];
        let incarnation = self.runs[usize::from(record.run)].incarnation;
        let lane = LANE_NAMES[usize::from(record.lane)];
        format!("the record of {incarnation} at {lane}:{}", record.end)
    }

    fn tell_append(&self, lane: usize) -> String {
        let at = self.records.len() - 1;
        let record = &self.records[at];
        let other = LANE_NAMES[1 - lane];
        let needs = match (record.needs, record.says) {
            (0, 0) => String::new(),
            (0, _) => format!(", in which {other} is left out"),
            (needs, says) if needs == says => format!(", which needs {other}:{needs}"),
            (needs, _) => format!(", which needs {other}:{needs}, and leaves that out"),
        };
        let place = format!("{}:{}", LANE_NAMES[lane], record.end);
        format!("appends a record of epoch {} at {place}{needs}", record.epoch)
    }

    /// Whether a step acknowledges a record.
    fn acknowledged(&self, before: &State) -> String {
        let is_new = |at: &usize| {
            let was = before.records.get(*at).is_some_and(|record| record.acknowledged);
            self.records[*at].acknowledged && !was
        };
        let new = (0..self.records.len()).filter(is_new).map(|at| self.tell_record(at));
        let new: Vec<String> = new.collect();
        if new.is_empty() { String::new() } else { format!("; acknowledged: {}", new.join(", ")) }
    }

    fn tell_of_member(&self, step: Step, before: &State) -> (usize, String) {
        match step {
            Step::Crash(number) => (number, "loses power".into()),
            Step::Demote(number) => {
                (number, format!("hears of incarnation {}, and ends", self.drawn))
            }
            Step::Draw(number) => (number, format!("draws incarnation {}", self.drawn)),
            Step::DrawAgain(number) => (number, format!("takes incarnation {}, too", self.drawn)),
            Step::Seal(number, lane) => (number, format!("seals {}", LANE_NAMES[lane])),
            Step::Recover(number) => {
                let member = &self.members[number];
                let what = match member.role {
                    Role::Recovered(_) => {
                        format!("reads up to its seals, and recovers up to {}", show(&member.ends))
                    }
                    Role::Stopped => "finds that the log has lost something, and stops".into(),
                    _ => "finds a higher seal, and is fenced".into(),
                };
                (number, what)
            }
            Step::Begin(number) => match self.members[number].role {
                Role::Primary(run) => {
                    let run = &self.runs[usize::from(run)];
                    let starts = show(&run.starts);
                    (number, format!("begins at {starts}, in epoch {}", run.epoch))
                }
                _ => (number, "finds that its incarnation has begun, and is fenced".into()),
            },
            Step::Follow(number) => {
                let member = &self.members[number];
                let ends = show(&member.ends);
                let through = member.through;
                match member.role {
                    Role::Stopped => (number, "finds that the log has lost something".into()),
                    _ => (number, format!("reads incarnation {through} up to its ends {ends}")),
                }
            }
            Step::Round(number, mark) => {
                let epoch = before.marks[mark].epoch;
                (number, format!("ends a round up to the mark of epoch {epoch}"))
            }
            Step::Receive(number) => (number, "receives what the lanes have".into()),
            _ => (0, String::new()),
        }
    }
}

impl Protocol for Takeover {
    fn tell(&self, before: &State, step: &Step, after: &State) -> String {
        let (number, what) = match *step {
            Step::Append(number, lane, _) => (number, after.tell_append(lane)),
            Step::Anchor(number, lane) => {
                let Role::Primary(run) = after.members[number].role else { unreachable!() };
                let last = after.runs[usize::from(run)].frames[lane].last();
                let stated = last.map_or(0, |frame| match frame {
                    Frame::Anchor(stated) => *stated,
                    Frame::Record(_) => 0,
                });
                let (lane, other) = (LANE_NAMES[lane], LANE_NAMES[1 - lane]);
                (number, format!("appends an anchor to {lane}: {other}:{stated}"))
            }
            Step::Send(number, lane) => {
                let Role::Primary(run) = after.members[number].role else { unreachable!() };
                let end = after.runs[usize::from(run)].sent[lane];
                (number, format!("sends {} up to {end}", LANE_NAMES[lane]))
            }
            Step::Arrive(run, lane) => {
                let incarnation = after.runs[run].incarnation;
                let lane = LANE_NAMES[lane];
                return format!("the batch of {incarnation} arrives in {lane}");
            }
            Step::File(number, lane) => {
                let end = after.members[number].filed[lane];
                (number, format!("has the file of {} up to {end}", LANE_NAMES[lane]))
            }
            Step::Hear(number, lane) => {
                (number, format!("hears that its batch in {} is stored", LANE_NAMES[lane]))
            }
            Step::Image(number) => (number, "takes a checkpoint of all that is in memory".into()),
            Step::Adopt(number) => (number, "adopts the checkpoint".into()),
            Step::Mark(number) => {
                let mark = after.marks.last().expect("it is made");
                (number, format!("states a mark: epoch {}, to {}", mark.epoch, show(&mark.to)))
            }
            Step::Extend(number) => {
                (number, format!("renews the lease, with epochs up to {}", after.limit))
            }
            Step::Renew(number) => {
                let stored = after.renewed.map_or([0; LANES], |(_, stored)| stored);
                (number, format!("renews the lease, and states {} as stored", show(&stored)))
            }
            Step::Lose(lane) => {
                return format!("the service loses the last message of {}", LANE_NAMES[lane]);
            }
            step => after.tell_of_member(step, before),
        };
        format!("{} {what}{}", NAMES[number], after.acknowledged(before))
    }

    fn verdict(&self, state: &State) -> String {
        let lanes = format!("the lanes are {} and {}", lane(state, 0), lane(state, 1));
        let fault = if let Some((number, at)) = self.is_lost(state) {
            let record = state.tell_record(at);
            format!("{record} is acknowledged, and {} has not recovered it", NAMES[number])
        } else if let Some((a, b)) = state.differ() {
            format!("{} and {} have different records", NAMES[a], NAMES[b])
        } else if let Some((number, at)) = state.open() {
            let record = state.tell_record(at);
            format!("{} has {record}, and not what this one needs", NAMES[number])
        } else if let Some(lane) = state.stops() {
            format!("readers stop in {}", LANE_NAMES[lane])
        } else if state.is_below() {
            "a record is below one of an earlier incarnation".into()
        } else if let Some(number) = state.uneven {
            format!("{} lacks a record up to the mark", NAMES[usize::from(number)])
        } else {
            "nothing is wrong".into()
        };
        format!("{fault}; {lanes}")
    }
}
