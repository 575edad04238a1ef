//! What the log may forget: item "Holds" of docs/protocols.
//!
//! A lane keeps the messages behind `begin`. Members have files, received and synced up to some
//! position, and may have a base: a checkpoint from which another member can begin. Keys at the log
//! service state the bases, the positions that members have proven, and the holds of joiners. Two
//! members purge, each with a view of the keys that may be old when the purge arrives: one of the
//! two may have lost its place as primary long ago. A joiner holds, chooses a base, checks the log,
//! fetches the base, and takes its place among the members.
//!
//! Power cuts take what a member has not synced; one machine may burn, with files and base. Its
//! keys stay. A key is read and written in one step, and the keys of one kind are read in one step:
//! bases and proven positions only grow, so reading some of them earlier is as if the purge were
//! older. Left out: several lanes, which are purged each for itself, and members whose place is
//! taken away after a long silence: these find a hole in their lanes, and join anew.

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
    /// A joiner chooses its base, then holds the log, then checks.
    HoldAfterBase,
    /// A joiner takes the newest base that it can get, also below one that a key states.
    OlderBase,
    /// A purge goes up to what members have proven, past the newest base.
    PastBase,
    /// The purger's own base counts.
    OwnBase,
    /// A member reports what it has received.
    ReportsUnsynced,
    /// A purger reads the holds before the bases.
    HoldsBeforeBases,
    /// A purger reads the places of members before the holds.
    PlacesBeforeHolds,
    /// A joiner gives the hold back before taking a place.
    ReleasesFirst,
    /// A purger ignores what it has not proven itself.
    OwnFilesIgnored,
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
}

const MEMBERS: usize = 3;
/// The member that joins.
const JOINER: usize = 2;
/// Members that purge: the primary, and a standby or the next primary.
const PURGERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Joining {
    /// Has neither files nor a base.
    Out,
    Holds,
    /// Has chosen this base of this member.
    Chosen(usize, u8),
    /// Has found that the log begins at or below the base.
    Checked(usize, u8),
    /// Has the base, and is about to do the last of its two steps: place, and release.
    Fetched,
    Member,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Member {
    burned: bool,
    joining: Joining,
    received: u8,
    synced: u8,
    /// Key: the newest base of the member; `None`: there is none.
    base: Option<u8>,
    /// Key: what the member has proven, if it has a place.
    proven: Option<u8>,
    /// Key: nothing may be purged.
    hold: bool,
}

/// What a purger has read of the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct View {
    /// The newest base that counts.
    base: Option<u8>,
    held: Option<bool>,
    /// The lowest proven position.
    proven: Option<u8>,
    /// How many of the three kinds are read.
    read: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The messages purged, and the messages there have ever been.
    begin: u8,
    end: u8,
    members: [Member; MEMBERS],
    views: [View; PURGERS],
    cuts: u8,
    burns: u8,
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
    /// A member reports what it has proven.
    Report(usize),
    /// A member takes a checkpoint, and states it as a base.
    Base(usize),
    /// A member loses power.
    Cut(usize),
    /// A machine burns.
    Burn(usize),
    /// A joiner's next step.
    Join(usize),
    /// A purger reads the next kind of keys.
    Read(usize),
    /// A purge arrives.
    Purge(usize),
}

const NEVER: &str =
    "a joiner with a base, and a member with a place, find all messages that follow";
const COPY: &str = "after one machine has burned there is another copy of what is purged";

impl State {
    /// The position behind which a member needs the log, if the log is kept for the member.
    fn needs(&self, number: usize) -> Option<u8> {
        let member = &self.members[number];
        match member.joining {
            _ if member.burned => None,
            Joining::Checked(_, base) => Some(base),
            Joining::Fetched | Joining::Member => Some(member.received),
            Joining::Out | Joining::Holds | Joining::Chosen(..) => None,
        }
    }

    /// A member that the log does not reach back to.
    fn cut_off(&self) -> Option<usize> {
        (0..MEMBERS).find(|number| self.needs(*number).is_some_and(|needs| needs < self.begin))
    }

    /// Whether a machine has everything up to the beginning of the log.
    fn has_all(&self, member: &Member) -> bool {
        let has_files = matches!(member.joining, Joining::Member | Joining::Fetched);
        let has_base = member.base.is_some_and(|base| base >= self.begin);
        !member.burned && (has_base || has_files && member.synced >= self.begin)
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
            base: None,
            proven: None,
            hold: false,
        };
        let member = Member { joining: Joining::Member, proven: Some(0), ..out };
        let primary = Member { base: Some(0), ..member };
        let second = if self.standby { member } else { Member { burned: true, ..out } };
        vec![State {
            begin: 0,
            end: 0,
            members: [primary, second, out],
            views: [View::default(); PURGERS],
            cuts: self.cuts,
            burns: 1,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.end < self.messages {
            actions.push(Step::Append);
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
                let joiner = &s.members[JOINER];
                joiner.joining == Joining::Member && s.begin > 0 && joiner.synced == s.end
            }),
        ];
        if self.standby {
            properties.push(Property::sometimes(
                "everything is purged after all have joined",
                |m: &Holds, s: &State| s.begin == m.messages,
            ));
        }
        properties
    }
}
