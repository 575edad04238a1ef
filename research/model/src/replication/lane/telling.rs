//! Describes the steps of the model.

use super::steps::incarnation;
use super::{Kind, Lane, LaneRule, LaneState, LaneStep, Message, Phase, Writer};
use crate::check::Protocol;

fn name(message: &Message) -> String {
    let Message { incarnation, kind } = message;
    match kind {
        Kind::Seal => format!("the seal of {incarnation}"),
        Kind::Data { index, batch } if index == batch => format!("batch {batch} of {incarnation}"),
        Kind::Data { index, batch } => {
            format!("batch {batch} of {incarnation}, with index {index},")
        }
        Kind::Lost => "nothing".into(),
    }
}

/// The messages of the lane, in short: S2 is the seal of 2, and 2.0 its message of index 0.
fn lane(log: &[Message]) -> String {
    let short = |Message { incarnation, kind }: &Message| match kind {
        Kind::Seal => format!("S{incarnation}"),
        Kind::Data { index, .. } => format!("{incarnation}.{index}"),
        Kind::Lost => "lost".into(),
    };
    log.iter().map(short).collect::<Vec<_>>().join(" ")
}

fn batches(writer: &Writer) -> String {
    let number = |kind: &Kind| match kind {
        Kind::Data { batch, .. } => batch.to_string(),
        _ => String::new(),
    };
    writer.under_way.iter().map(number).collect::<Vec<_>>().join(" and ")
}

impl Lane {
    fn tell_begin(&self, writer: &Writer, (place, to): (u8, u8), after: &LaneState) -> String {
        let reads = match to == place {
            _ if self.rule == LaneRule::SealUnread => "does not read the lane".into(),
            true => "reads up to there".into(),
            false => format!("is shown the lane up to place {to}"),
        };
        let then = match writer.phase {
            Phase::Writes => "begins",
            _ if after.has_lost() => "stops",
            _ => "is fenced",
        };
        format!("hears of its seal at place {place}, {reads}, and {then}")
    }

    fn tell_look(&self, was: &Writer, is: &Writer, shown: u8) -> String {
        let looks = match self.rule {
            LaneRule::BlindResume => format!("takes {shown} for the end of the lane"),
            LaneRule::LastAlone => format!("looks at the message at place {shown} alone"),
            _ => format!("looks, and is shown the lane up to place {shown}"),
        };
        let batch = batches(was);
        let then = match is.phase {
            Phase::Ended => "fenced".into(),
            _ if is.acknowledged != was.acknowledged => format!("batch {batch} is acknowledged"),
            _ if is.failed != was.failed => format!("batch {batch} has failed"),
            _ => format!("sends batch {batch} again, after place {shown}"),
        };
        format!("{looks}: {then}")
    }
}

impl Protocol for Lane {
    fn tell(&self, before: &LaneState, step: &LaneStep, after: &LaneState) -> String {
        let last = || name(&after.log[after.log.len() - 1]);
        let (number, what) = match *step {
            LaneStep::Draw(number) => (number, "is drawn, and sends its seal".into()),
            LaneStep::Seal(_) => {
                let is_copy = before.log.contains(&after.log[after.log.len() - 1]);
                let again = if is_copy { " again" } else { "" };
                return format!("{} arrives{again}: place {}", last(), after.end());
            }
            LaneStep::Begin(number, place, to) => {
                (number, self.tell_begin(&after.writers[number], (place, to), after))
            }
            LaneStep::Send(number) => {
                let writer = &after.writers[number];
                let batch = writer.begun - 1;
                let condition = match self.rule {
                    LaneRule::Unconditional => "without a condition".into(),
                    _ => {
                        let place = usize::from(writer.last) + writer.under_way.len() - 1;
                        format!("after place {place}")
                    }
                };
                let at_send = self.rule == LaneRule::AtSend;
                let told = if at_send { ", and acknowledges the batch" } else { "" };
                (number, format!("sends batch {batch}, {condition}{told}"))
            }
            LaneStep::Arrive(_) => return format!("{} arrives: place {}", last(), after.end()),
            LaneStep::Hear(number, _) => {
                let told = after.writers[number].acknowledged;
                let told = told & !before.writers[number].acknowledged;
                (number, format!("hears \"stored\": batch {} is acknowledged", told.ilog2()))
            }
            LaneStep::Look(number, shown) => {
                let (was, is) = (&before.writers[number], &after.writers[number]);
                (number, self.tell_look(was, is, shown))
            }
            LaneStep::Lose(place) => {
                let lost = name(&before.log[usize::from(place) - 1]);
                return format!("the service loses {lost} at place {place}");
            }
            LaneStep::Repeat(_) => {
                return format!("the service takes {} again: place {}", last(), after.end());
            }
        };
        format!("incarnation {} {what}", incarnation(number))
    }

    fn verdict(&self, state: &LaneState) -> String {
        let lane = lane(&state.log);
        let fault = if let Some((incarnation, batch)) = state.left_out(self.rule) {
            format!("batch {batch} of {incarnation} is acknowledged, and a reader leaves it out")
        } else if let Some(incarnation) = state.differs(self.rule) {
            format!("two readers end incarnation {incarnation} differently")
        } else if state.takes_fenced(self.rule) {
            "a reader takes what is behind a higher seal".into()
        } else if state.takes_unevenly(self.rule) {
            "a reader takes a batch twice, or leaves one out".into()
        } else if state.stops(self.rule) {
            "all readers stop at a hole".into()
        } else {
            "nothing is wrong".into()
        };
        format!("{fault}; the lane is {lane}")
    }
}
