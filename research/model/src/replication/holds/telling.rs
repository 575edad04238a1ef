//! Describes the steps of the model.

use super::{Holds, Joining, Needs, State, Step};
use crate::check::Protocol;

const NAMES: [&str; 3] = ["P", "S", "J"];

fn tell_place(after: &State, number: usize) -> String {
    match after.members[number].needs {
        Needs::Place(at) => format!("takes its place at {at}"),
        _ => "is too late, and joins anew".into(),
    }
}

impl Protocol for Holds {
    fn tell(&self, before: &State, step: &Step, after: &State) -> String {
        let (number, what) = match *step {
            Step::Append => return format!("message {} is stored", after.end),
            Step::Purge => return format!("the lane is purged up to {}", after.begin),
            Step::Forget(number) => return format!("{} is forgotten", NAMES[number]),
            Step::Receive(number) => {
                (number, format!("receives message {}", after.members[number].received))
            }
            Step::Sync(number) => (number, "syncs its files".into()),
            Step::Report(number) => (number, tell_place(after, number)),
            Step::Cut(number) => (number, "loses power, and what it has not synced".into()),
            Step::Burn(number) => (number, "burns".into()),
            Step::Join(number) if before.members[number].joining == Joining::Out => {
                let what = match after.members[number].needs {
                    Needs::Hold(at) => format!("holds the lane from {at} on"),
                    _ => "joins without a hold".into(),
                };
                (number, what)
            }
            Step::Join(number) => (number, tell_place(after, number)),
            Step::Fetch(number, other) => {
                let at = after.members[number].synced;
                (number, format!("has the files of {}, up to {at}", NAMES[other]))
            }
            Step::Read(number) => {
                let limit = after.views[number].map_or(0, |view| view.limit);
                let purges = if after.begin > before.begin { ", and purges" } else { "" };
                (number, format!("reads the key: purged may be {limit}{purges}"))
            }
            Step::Raise(number) if after.purged > before.purged => {
                (number, format!("sets the key: purged is {}", after.purged))
            }
            Step::Raise(number) => (number, "does not set the key".into()),
        };
        format!("{} {what}", NAMES[number])
    }

    fn verdict(&self, state: &State) -> String {
        match state.cut_off() {
            Some(number) => format!(
                "{} needs the messages behind {}, and the lane begins at {}",
                NAMES[number],
                state.needs(number).unwrap_or(0),
                state.begin
            ),
            None if !state.has_copy() => {
                format!("the messages up to {} are purged, and there is no copy", state.begin)
            }
            None => "nothing is wrong".into(),
        }
    }
}
