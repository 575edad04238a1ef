//! Describes the steps of the model.

use super::{At, Fault, Frame, Marks, Positions, STREAMS, Stage, State, Step};
use crate::check::Protocol;

fn show(positions: &Positions) -> String {
    format!("({},{})", positions[0], positions[1])
}

fn tell_session(number: usize, before: &State, after: &State) -> String {
    let (was, is) = (&before.sessions[number], &after.sessions[number]);
    let stream = number % STREAMS;
    let what = match (was.at, is.at) {
        (_, At::Reserved) => {
            let place = after.streams[stream].len() - 1;
            let Frame::Record { epoch, .. } = after.streams[stream][place] else { unreachable!() };
            format!("reserves a record of epoch {epoch}: stream {}, {place}", stream + 1)
        }
        (At::Reserved, _) => "has installed its rows, and leaves its slot".into(),
        (_, At::Idle) => "finds the epoch closed: a conflict".into(),
        (At::Entered(Some(_)), At::Versioned(epoch)) => format!("finds epoch {epoch} not closed"),
        (At::Versioned(_), At::Versioned(_)) => format!("enters its slot in epoch {}", after.epoch),
        (_, At::Versioned(epoch) | At::Parted(_, Some(epoch))) => format!("reads epoch {epoch}"),
        (_, At::Entered(_)) => format!("enters its slot in epoch {}", after.epoch),
        (_, At::Drawn(_) | At::Parted(..)) => "goes on".into(),
    };
    format!("session {} {what}", number + 1)
}

impl Protocol for Marks {
    fn tell(&self, before: &State, step: &Step, after: &State) -> String {
        match *step {
            Step::EndEpoch => format!("the epoch ends; it is {}", after.epoch),
            Step::Next(number) => tell_session(number, before, after),
            Step::Draw(number) => {
                format!("session {} draws its version, in epoch {}", number + 1, after.epoch)
            }
            Step::Part(number) => {
                let place = after.streams[number % STREAMS].len() - 1;
                let stream = number % STREAMS + 1;
                format!("session {} reserves a part: stream {stream}, {place}", number + 1)
            }
            Step::Mark => {
                let mark = match (before.stage, after.stage) {
                    (Stage::Idle, _) if after.closed == before.closed => {
                        format!("begins with epoch {}", after.making.epoch)
                    }
                    (Stage::Idle, _) => format!("closes epoch {}", after.closed),
                    (Stage::Notes(stream), _) => {
                        let position = after.making.from[usize::from(stream)];
                        format!("notes from {position} in stream {}", stream + 1)
                    }
                    (Stage::Checks, Stage::Idle) => "finds another epoch, and begins anew".into(),
                    (Stage::Checks, _) if before.epoch == before.making.epoch => {
                        "finds the epoch unchanged".into()
                    }
                    (Stage::Checks, _) => "does not check the epoch".into(),
                    (Stage::Advances, _) => format!("ends the epoch; it is {}", after.epoch),
                    (Stage::Waits(slot), _) => format!("passes slot {}", slot + 1),
                    (Stage::Closes, _) => format!("closes epoch {}", after.closed),
                    (Stage::Ends(_), Stage::Idle) => {
                        let mark = after.marks.last().expect("it is made");
                        let (from, to) = (show(&mark.from), show(&mark.to));
                        format!("has made a mark: epoch {}, from {from}, to {to}", mark.epoch)
                    }
                    (Stage::Ends(stream), _) => {
                        let position = after.making.to[usize::from(stream)];
                        format!("reads to {position} in stream {}", stream + 1)
                    }
                };
                format!("the marker {mark}")
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let at = |stream: usize, place: u8| format!("stream {}, {place}", stream + 1);
        match self.fault(state) {
            Some(Fault::NotExact(stream, place, epoch, c)) if epoch <= c => format!(
                "the record of epoch {epoch} at {} is missing after the round up to {c}",
                at(stream, place)
            ),
            Some(Fault::NotExact(stream, place, epoch, c)) => format!(
                "the record of epoch {epoch} at {} is there after the round up to {c}",
                at(stream, place)
            ),
            Some(Fault::Twice(stream, place)) => {
                format!("the record at {} is applied twice", at(stream, place))
            }
            Some(Fault::WithoutPart(stream, place)) => {
                format!("the part of the record at {} is not read", at(stream, place))
            }
            None => "nothing is wrong".into(),
        }
    }
}
