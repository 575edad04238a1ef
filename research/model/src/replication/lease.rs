//! The lease: item "Lease" of docs/protocols.
//!
//! A key at the log service names the holder. The holder sets the key again and again, and answers
//! reads until a while after it sent the last set that it heard of. Candidates look at the key, and
//! set it once the same revision has stood for the time L. Sets and looks, and their replies, are
//! late or lost in every way; processes rest at any point; the keys are out of reach for any time;
//! each process has a clock of its own rate. Time is not bounded, and the number of sets is not.
//!
//! The unit of time is a quarter of L; every event happens at a multiple. Ages are measured by the
//! model and turned into the time of a process by the rate of its clock. That a set was applied
//! stays true, so its sender may hear of it at any later time, or never; a set whose condition does
//! not hold any more is refused for ever, and leaves the state.
//!
//! A process holds the lease once, and one draws the lease after the other. A successor counts as
//! having written as early as it hears that it has the lease: seals, recovery and the log itself
//! take longer, and are the matter of other models. A read that was checked, and is answered later,
//! has its place in the history at the check; so a check and its answer are one step.

mod cases;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// The rules, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseRule {
    /// As built.
    Built,
    /// The lease counts from the arrival of the reply.
    FromArrival,
    /// A holder that finds its own set in the key counts the lease from its look.
    LookRenews,
    /// The lease is checked before the read.
    CheckedBefore,
    /// The holder answers for all of L.
    WholeTime,
    /// A candidate takes the lease as soon as it has seen it.
    NoWaiting,
    /// A candidate counts from the sending of its first look.
    FromLook,
    /// A candidate's time runs on while its looks fail.
    ThroughOutage,
    /// The holder sets the key without a condition.
    RenewsBlindly,
    /// A candidate sets the key without a condition.
    TakesBlindly,
    /// The holder's clock stands still while its machine is suspended.
    ClockStops,
    /// The holder releases the lease, and answers until it hears of that.
    ReleasesEarly,
    /// A holder whose set is refused takes itself for fenced.
    RefusedIsFenced,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The rules.
    pub rule: LeaseRule,
    /// The steps of a slow and of a fast clock in a quarter of L, of which a whole L has 44.
    pub rates: [u8; 2],
    /// Processes that may take the lease from the first one.
    pub candidates: usize,
    /// Whether the first holder is well at first: it does not rest, and its messages are not late.
    pub well: bool,
}

/// L, by a clock.
const LEASE: u8 = 44;
/// Older ages are the same.
const OLDEST: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    Candidate,
    /// Has sent a set to take the lease, and has not heard of it.
    Taking,
    Holds,
    /// Has released the lease, or knows of a successor.
    Ended,
}

/// A look of a candidate at the key. A reply that shows an old revision is as good as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Look {
    No,
    /// Sent this long ago, where this counts.
    Sent(u8),
    /// The reply is on its way, and shows the revision of the key.
    Shown(u8),
}

/// How long a candidate knows a revision, and whether the key has the revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Known {
    age: u8,
    is_current: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Process {
    rate: u8,
    role: Role,
    look: Look,
    known: Option<Known>,
    /// Whether a look was answered since the last unit of time.
    looked: bool,
    /// The age of a set on its way. All sets sent at one revision have the same condition, so only
    /// one of them counts, and the others need not be in the state.
    set: Option<u8>,
    /// Whether a release is on its way.
    releases: bool,
    /// Whether the holder knows the revision of the key.
    knows: bool,
    /// The age of the last set that was applied, and whether its reply is on its way.
    applied: u8,
    is_told: bool,
    /// The age of the newest set that the process has heard of.
    heard: u8,
    /// Whether a check before a read was passed.
    checked: bool,
}

/// Whether the keys can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Keys {
    /// Whether the first holder has renewed the lease since the last unit of time.
    Up {
        renewed: bool,
    },
    Out,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    processes: Vec<Process>,
    /// The holders by the key, in order.
    holders: Vec<u8>,
    released: bool,
    keys: Keys,
    /// Whether the first holder may rest, and its messages be late.
    faulty: bool,
    /// The holders, from the first on, up to the last that has acknowledged a write.
    written: u8,
    stale: Option<u8>,
    needless: bool,
    misled: Option<u8>,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A quarter of L passes.
    Tick,
    /// A quarter of L passes, in which the machine of a process is suspended.
    Suspended(usize),
    /// From now on the first holder may rest, and its messages may be late.
    Fault,
    /// The keys are out of reach from now on.
    Outage,
    /// The keys can be reached again.
    OutageEnds,
    /// A holder sends a set.
    Renew(usize),
    /// A candidate sends a set.
    Take(usize),
    /// The set of a process arrives.
    Arrive(usize),
    /// A process hears that its set was applied.
    Hear(usize),
    /// A holder finds its own set in the key.
    FindOwn(usize),
    /// A holder finds a successor in the key.
    FindOther(usize),
    /// A holder hears that a set was refused.
    Refused(usize),
    /// A holder releases the lease.
    Release(usize),
    /// A release arrives.
    Released(usize),
    /// A candidate sends a look, where the time of sending counts.
    Look(usize),
    /// The service answers a look.
    Show(usize),
    /// The reply to a look arrives.
    See(usize),
    /// A look fails.
    Fail(usize),
    /// A successor's write is acknowledged.
    Write(usize),
    /// A holder checks its lease before a read.
    Check(usize),
    /// A holder reads, and answers.
    Answer(usize),
}

const FRESH: &str = "no answer misses a write that a successor has acknowledged";
const CALM: &str = "an outage of the keys alone moves no lease";
const LED: &str = "a holder ends only for a successor";

impl State {
    /// The holder by the key.
    fn owner(&self) -> usize {
        usize::from(self.holders[self.holders.len() - 1])
    }

    /// The place of a process among the holders.
    fn place(&self, number: usize) -> Option<u8> {
        self.holders.iter().position(|holder| usize::from(*holder) == number).map(|at| at as u8)
    }
}

impl Model for Lease {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let count = self.candidates + 1;
        let process = |number: usize, rates: usize| Process {
            rate: self.rates[rates >> number & 1],
            role: if number == 0 { Role::Holds } else { Role::Candidate },
            look: Look::No,
            known: None,
            looked: false,
            set: None,
            releases: false,
            knows: number == 0,
            applied: if number == 0 { 0 } else { OLDEST },
            is_told: false,
            heard: if number == 0 { 0 } else { OLDEST },
            checked: false,
        };
        let state = |rates: usize| State {
            processes: (0..count).map(|number| process(number, rates)).collect(),
            holders: vec![0],
            released: false,
            keys: Keys::Up { renewed: true },
            faulty: !self.well,
            written: 0,
            stale: None,
            needless: false,
            misled: None,
        };
        (0..1 << count).map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        self.steps_of_time(state, actions);
        for number in 0..state.processes.len() {
            match state.processes[number].role {
                Role::Candidate => self.steps_of_candidate(state, number, actions),
                Role::Holds => self.steps_of_holder(state, number, actions),
                Role::Taking | Role::Ended => {}
            }
            self.steps_of_messages(state, number, actions);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(FRESH, |_: &Lease, s: &State| s.stale.is_none()),
            Property::always(CALM, |_: &Lease, s: &State| !s.needless),
            Property::always(LED, |_: &Lease, s: &State| s.misled.is_none()),
            Property::sometimes("the last candidate writes", |m: &Lease, s: &State| {
                usize::from(s.written) == m.candidates
            }),
            Property::sometimes(
                "two processes take themselves for holders",
                |_: &Lease, s: &State| {
                    let holds = |process: &&Process| process.role == Role::Holds;
                    s.processes.iter().filter(holds).count() > 1
                },
            ),
        ];
        if self.well {
            properties.extend([
                Property::sometimes("an outage alone ends a lease", |_: &Lease, s: &State| {
                    !s.faulty && s.keys == Keys::Out && s.processes[0].heard == OLDEST
                }),
                Property::sometimes("a released lease is taken", |_: &Lease, s: &State| {
                    !s.faulty && s.holders.len() > 1
                }),
            ]);
        }
        properties
    }
}
