//! Describes the steps of the model.

use super::steps::Kind;
use super::{Holds, Joining, State, Step};
use crate::check::Protocol;

const NAMES: [&str; 3] = ["P", "S", "J"];

fn tell_join(before: &State, after: &State, number: usize) -> String {
    let (was, is) = (&before.members[number], &after.members[number]);
    match (was.joining, is.joining) {
        (_, Joining::Chosen(..)) if is.hold != was.hold => "holds the log".into(),
        (_, Joining::Holds) if is.hold != was.hold => "holds the log".into(),
        (_, Joining::Chosen(owner, base)) => {
            format!("chooses the base of {}, from {base}", NAMES[owner])
        }
        (Joining::Chosen(..), Joining::Holds) => "finds that the log begins too late".into(),
        (Joining::Checked(..), Joining::Holds) => "does not get the base any more".into(),
        (_, Joining::Checked(_, base)) => {
            format!("goes on with the base from {base}; the log begins at {}", before.begin)
        }
        (_, Joining::Fetched) if is.hold == was.hold => "has the base, and takes its place".into(),
        (_, Joining::Fetched) => "has the base, and gives its hold back".into(),
        (_, Joining::Member) if is.hold == was.hold => "takes its place".into(),
        (_, Joining::Member) => "gives its hold back".into(),
        (_, Joining::Out | Joining::Holds) => "goes on".into(),
    }
}

impl Protocol for Holds {
    fn tell(&self, before: &State, step: &Step, after: &State) -> String {
        let (number, what) = match *step {
            Step::Append => return format!("message {} is stored", after.end),
            Step::Receive(number) => {
                (number, format!("receives message {}", after.members[number].received))
            }
            Step::Sync(number) => (number, "syncs its files".into()),
            Step::Report(number) => {
                let proven = after.members[number].proven.unwrap_or(0);
                (number, format!("reports position {proven}"))
            }
            Step::Base(number) => {
                let base = after.members[number].base.unwrap_or(0);
                (number, format!("states a base from {base}"))
            }
            Step::Cut(number) => (number, "loses power, and what it has not synced".into()),
            Step::Burn(number) => (number, "burns".into()),
            Step::Join(number) => (number, tell_join(before, after, number)),
            Step::Read(number) => {
                let view = &after.views[number];
                let kind = self.order()[usize::from(view.read) - 1];
                let or_none = |found: Option<u8>| found.map_or("none".into(), |at| at.to_string());
                let what = match kind {
                    Kind::Bases => format!("the bases: {}", or_none(view.base)),
                    Kind::Holds if view.held == Some(true) => "the holds: there is one".into(),
                    Kind::Holds => "the holds: none".into(),
                    Kind::Places => {
                        format!("what members have proven: {}", or_none(view.proven))
                    }
                };
                (number, format!("reads {what}"))
            }
            Step::Purge(number) => {
                let limit = self.limit(&before.views[number]);
                (number, format!("purges up to {limit}; the log begins at {}", after.begin))
            }
        };
        format!("{} {what}", NAMES[number])
    }

    fn verdict(&self, state: &State) -> String {
        match state.cut_off() {
            Some(number) => format!(
                "{} needs the messages behind {}, and the log begins at {}",
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
