//! Describes the steps of the model.

use super::{Keys, Lease, LeaseRule, Look, Role, State, Step};
use crate::check::Protocol;

const NAMES: [&str; 3] = ["H", "C1", "C2"];

fn tell_set(before: &State, after: &State, number: usize) -> String {
    let name = NAMES[number];
    match after.holders.len() > before.holders.len() {
        true => format!("{name} has the lease"),
        false => format!("a set of {name} arrives"),
    }
}

impl Lease {
    fn tell_of(&self, step: Step, before: &State, after: &State) -> (usize, String) {
        let blindly = match self.rule {
            LeaseRule::RenewsBlindly | LeaseRule::TakesBlindly => ", without a condition",
            _ => "",
        };
        match step {
            Step::Renew(number) => (number, format!("sends a set{blindly}")),
            Step::Take(number) => (number, format!("sends a set to take the lease{blindly}")),
            Step::Hear(number) if before.processes[number].role == Role::Taking => {
                (number, "hears that it has the lease".into())
            }
            Step::Hear(number) => (number, "hears that its set was applied".into()),
            Step::FindOwn(number) => (number, "looks, and finds its own set in the key".into()),
            Step::FindOther(number) => (number, "finds a successor in the key".into()),
            Step::Refused(number) => (
                number,
                "does not know that a set was applied, sends another, and is refused".into(),
            ),
            Step::Release(number) => (number, "releases the lease".into()),
            Step::Look(number) => (number, "sends a look".into()),
            Step::Show(number) if self.rule == LeaseRule::FromLook => {
                (number, "is shown the key; the reply is on its way".into())
            }
            Step::Show(number) => (number, "looks at the key; the reply is on its way".into()),
            Step::See(number) => {
                let known = before.processes[number].known;
                let what = match after.released {
                    true => "hears that the lease is free",
                    false if known.is_some_and(|known| known.is_current) => {
                        "hears of the same revision"
                    }
                    false => "hears of a new revision",
                };
                (number, what.into())
            }
            Step::Fail(number) => (number, "hears nothing of its look".into()),
            Step::Write(number) => (number, "acknowledges a write".into()),
            Step::Check(number) => (number, "finds that it may answer".into()),
            Step::Answer(number) => (number, "reads, and answers".into()),
            _ => (0, String::new()),
        }
    }
}

impl Protocol for Lease {
    fn tell(&self, before: &State, step: &Step, after: &State) -> String {
        match *step {
            Step::Tick => "a quarter of L passes".into(),
            Step::Suspended(number) => {
                let name = NAMES[number];
                format!("a quarter of L passes, in which the machine of {name} is suspended")
            }
            Step::Fault => "from now on H may rest, and its messages may be late".into(),
            Step::Outage => "the keys are out of reach".into(),
            Step::OutageEnds => "the keys are back".into(),
            Step::Arrive(number) => tell_set(before, after, number),
            Step::Released(_) => "the release arrives".into(),
            step => {
                let (number, what) = self.tell_of(step, before, after);
                format!("{} {what}", NAMES[number])
            }
        }
    }

    fn verdict(&self, state: &State) -> String {
        let name = |number: u8| NAMES[usize::from(number)];
        if let Some(number) = state.stale {
            let writer = state.holders[usize::from(state.written)];
            format!("the answer of {} misses what {} has written", name(number), name(writer))
        } else if state.needless {
            "the holder was well, and has lost the lease".into()
        } else if let Some(number) = state.misled {
            format!("{} has ended, and is the holder", name(number))
        } else {
            let looks = state.processes.iter().filter(|p| p.look != Look::No).count();
            let out = state.keys == Keys::Out;
            format!("nothing is wrong; {looks} looks under way, out of reach: {out}")
        }
    }
}
