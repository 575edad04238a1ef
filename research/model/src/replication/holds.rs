//! What the log may forget: item "Holds" of docs/protocols.
//!
//! A lane keeps the messages behind `begin`. Members have files, received and synced up to some
//! position. One key at the log service states the place of each member, the holds of members that
//! join, and `purged`, up to where the lane may be purged. Two members raise `purged`, each by what
//! it has read of the key: one of the two may have lost its place as primary long ago. A change of
//! the key counts only if the key has not changed since the reading. A purge up to `purged`
//! may arrive at any later time, and need not be of the member that has raised `purged`.
//!
//! A member that joins holds the log, fetches the files of another member, and takes its place.
//! A member may be forgotten after a long silence, and goes on later: with a place, if `purged` is
//! not above its files, or else as a member that joins. Power cuts take what a member has not
//! synced; one machine may burn, with its files. What the key states of it stays. Left out: several
//! lanes, which are purged each for itself.

mod cases;
mod steps;
mod telling;

pub use cases::cases;

use stateright::{Model, Property};

/// The rules, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldRule {
    /// As built.
    Built,
    /// A joiner fetches a base without a hold, and takes its place whatever was purged.
    HoldAfterBase,
    /// A joiner without a hold takes its place if the lane begins early enough.
    LooksAtLane,
    /// A member that was forgotten takes its place whatever was purged.
    PlaceAtOnce,
    /// A purge goes up to what the purger has, past the files of the others.
    PastBase,
    /// The purger's own files count as a copy.
    OwnFiles,
    /// A member states what it has received.
    ReportsUnsynced,
    /// The key is set whatever others have changed meanwhile.
    Unconditional,
    /// The lane is purged before the key says so.
    PurgesFirst,
    /// A purger ignores holds: a joiner may have to fetch a base again, and misses nothing.
    HoldsIgnored,
    /// A purger ignores what it has not proven itself.
    OwnFilesIgnored,
    /// A purger purges also when forgotten.
    ForgottenPurges,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Holds {
    /// The rules.
    pub rule: HoldRule,
    /// Whether the second member is one from the beginning.
    pub standby: bool,
    /// The messages of the lane.
    pub messages: u8,
    /// The power cuts, at most.
    pub cuts: u8,
    /// How often a member is forgotten, at most.
    pub forgets: u8,
}

const MEMBERS: usize = 3;
/// Members that purge: the primary, and a standby or the next primary.
const PURGERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Joining {
    /// Has no files.
    Out,
    /// Holds the log, or would have to.
    Holds,
    /// Has the files of another member, and no place.
    Fetched,
    Member,
}

/// What the key states of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Needs {
    Nothing,
    Hold(u8),
    Place(u8),
}

impl Needs {
    fn behind(self) -> Option<u8> {
        match self {
            Needs::Nothing => None,
            Needs::Hold(behind) | Needs::Place(behind) => Some(behind),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Member {
    burned: bool,
    joining: Joining,
    received: u8,
    synced: u8,
    /// In the key.
    needs: Needs,
}

/// What a purger has read of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct View {
    /// Up to where the members that were read let the lane be purged.
    limit: u8,
    /// Whether the key is the same still.
    is_newest: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The messages purged, and the messages there have ever been.
    begin: u8,
    end: u8,
    /// In the key: up to where the lane may be purged.
    purged: u8,
    members: [Member; MEMBERS],
    views: [Option<View>; PURGERS],
    cuts: u8,
    burns: u8,
    forgets: u8,
}

/// A step of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The primary appends a message.
    Append,
    /// A member receives the next message.
    Receive(usize),
    /// A member syncs its files.
    Sync(usize),
    /// A member states its place.
    Report(usize),
    /// A member loses power.
    Cut(usize),
    /// A machine burns.
    Burn(usize),
    /// A member that joins holds the log, or takes its place.
    Join(usize),
    /// A member that joins fetches the files of another.
    Fetch(usize, usize),
    /// A purger reads the key.
    Read(usize),
    /// A purger raises what may be purged.
    Raise(usize),
    /// A purger takes the place of a silent member.
    Forget(usize),
    /// A purge arrives.
    Purge,
}

const NEVER: &str =
    "a joiner with a base, and a member with a place, find all messages that follow";
const COPY: &str = "after one machine has burned there is another copy of what is purged";

impl State {
    /// The position behind which a member needs the log, if the key states a place.
    fn needs(&self, number: usize) -> Option<u8> {
        let member = &self.members[number];
        let has_place = matches!(member.needs, Needs::Place(_));
        (!member.burned && has_place && member.joining == Joining::Member)
            .then_some(member.received)
    }

    /// A member that the log does not reach back to.
    fn cut_off(&self) -> Option<usize> {
        (0..MEMBERS).find(|number| self.needs(*number).is_some_and(|needs| needs < self.begin))
    }

    /// Whether a machine has everything up to the beginning of the log.
    fn has_all(&self, member: &Member) -> bool {
        let has_files = matches!(member.joining, Joining::Member | Joining::Fetched);
        !member.burned && has_files && member.synced >= self.begin
    }

    fn has_copy(&self) -> bool {
        self.begin == 0 || self.members.iter().any(|member| self.has_all(member))
    }
}

impl Model for Holds {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let out = Member {
            burned: false,
            joining: Joining::Out,
            received: 0,
            synced: 0,
            needs: Needs::Nothing,
        };
        let member = Member { joining: Joining::Member, needs: Needs::Place(0), ..out };
        let second = if self.standby { member } else { Member { burned: true, ..out } };
        vec![State {
            begin: 0,
            end: 0,
            purged: 0,
            members: [member, second, out],
            views: [None; PURGERS],
            cuts: self.cuts,
            burns: 1,
            forgets: self.forgets,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.end < self.messages {
            actions.push(Step::Append);
        }
        if state.begin < state.purged {
            actions.push(Step::Purge);
        }
        for number in 0..MEMBERS {
            self.steps_of(state, number, actions);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(NEVER, |_: &Holds, s: &State| s.cut_off().is_none()),
            Property::always(COPY, |_, s: &State| s.has_copy()),
            Property::sometimes("the joiner is level, and something is purged", |_, s: &State| {
                let joiner = &s.members[MEMBERS - 1];
                joiner.joining == Joining::Member && s.begin > 0 && joiner.synced == s.end
            }),
        ];
        if self.standby {
            properties.push(Property::sometimes(
                "everything is purged after all have joined",
                |m: &Holds, s: &State| {
                    let has_place = |member: &Member| matches!(member.needs, Needs::Place(_));
                    s.begin == m.messages && s.members.iter().all(has_place)
                },
            ));
        }
        properties
    }
}
