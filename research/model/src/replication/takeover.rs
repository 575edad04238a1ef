//! A takeover over several lanes: item "Takeover" of docs/protocols.
//!
//! A primary appends records to two streams, each with a file and a lane. Records need positions of
//! both streams, and leave out what an anchor covers. Members draw incarnations, seal the lanes,
//! find the ends, recover, create the key `begin`, and write. A primary may be a zombie, or lose
//! power; either way it has files that are longer or shorter than the lanes, and rejoins. One frame
//! is one position.
//!
//! A lane follows the rules of the model `lane`, which here are: a batch arrives if the lane has
//! the batch before and no higher seal, at any later time or never; that it is stored may be heard
//! at any later time. Records are acknowledged as early as the rule allows.
//!
//! By choice there are also checkpoints of the primary, cut marks and the rounds of standbys, and a
//! log service that loses the last message of a lane. Left out: rows (records are told apart, not
//! what they change), truncation, and the lease, which decides when a candidate tries.

mod cases;
mod leading;
mod losses;
mod reading;
mod telling;
mod writing;

pub use cases::cases;

use reading::Reading;
use stateright::{Model, Property};

/// The rules, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeoverRule {
    /// As built.
    Built,
    /// A position counts as durable once it is in the file.
    RaiseAtLocal,
    /// Anchors state what is in the files.
    AnchorsOfFiles,
    /// A member that rejoins keeps what its files have behind the end.
    KeepGhost,
    /// A member that rejoins takes the ends of its own files.
    OwnEnds,
    /// A checkpoint is adopted once the files have what it shows.
    AdoptUnstored,
    /// Two candidates may draw the same number.
    DrawnTwice,
    /// The key `begin` is replaced if it is there.
    BeginReplaced,
    /// Both of the last two.
    NoSecondFence,
    /// A successor begins with the first epoch.
    FloorForgotten,
    /// A successor begins above the epochs of the records that it has read, and of the marks that
    /// it has heard of.
    FloorByRecords,
    /// A primary ends epochs beyond the limit that the lease states.
    LimitPassed,
    /// A candidate does not compare the ends with what messages state as stored.
    StoredIgnored,
}

/// What tells a candidate of losses, beside the messages, and what is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Witnesses {
    /// The primary ends a quiet time with an empty message in each lane.
    pub closing: bool,
    /// The key `lease` has what is stored, as of each renewal.
    pub lease: bool,
    /// A member compares the ends with what it has received, or heard of as the primary.
    pub mirror: bool,
    /// Everything acknowledged is promised, not only what a witness knows.
    pub promises_all: bool,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Takeover {
    /// The rules.
    pub rule: TakeoverRule,
    /// The members; the first one is the primary.
    pub members: usize,
    /// The records of each incarnation, from the first on.
    pub records: &'static [usize],
    /// The power cuts of primaries, at most.
    pub crashes: u8,
    /// The anchors of each incarnation, at most.
    pub anchors: usize,
    /// The marks of each incarnation, at most.
    pub marks: usize,
    /// Whether primaries take checkpoints.
    pub images: bool,
    /// Whether the file is waited for.
    pub files: bool,
    /// How many times the log service loses the last message of a lane, at most.
    pub lies: u8,
    /// What tells of losses.
    pub witnesses: Witnesses,
}

const LANES: usize = 2;

type Positions = [u8; LANES];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Frame {
    Record(u8),
    /// States this position of the other stream.
    Anchor(u8),
}

/// A record of a transaction, in one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Record {
    run: u8,
    lane: u8,
    end: u8,
    /// The position needed of the other stream, and the position that readers find.
    needs: u8,
    says: u8,
    epoch: u8,
    acknowledged: bool,
    /// Whether the lease, or closing messages in all lanes, have stated the record as stored.
    is_settled: bool,
}

/// A batch on its way, with what its writer counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Batch {
    start: u8,
    end: u8,
    stored: Positions,
}

/// A primary's time: an incarnation that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Run {
    incarnation: u8,
    member: u8,
    starts: Positions,
    frames: [Vec<Frame>; LANES],
    epoch: u8,
    /// The highest epoch that the writer may use, as far as it knows.
    limit: u8,
    marks: u8,
    /// The batches on their way.
    flight: [Option<Batch>; LANES],
    /// The ends sent, and the ends of which the writer has heard.
    sent: Positions,
    stored: Positions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Message {
    Seal { incarnation: u8, member: u8 },
    Data { run: u8, batch: Batch },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// Has files of its own of an incarnation that has not ended for it.
    Joining,
    Standby,
    /// Has drawn this incarnation.
    Candidate(u8),
    /// Has the state with which this incarnation begins.
    Recovered(u8),
    /// The writer of this run.
    Primary(u8),
    /// Has found that the log has lost something.
    Stopped,
}

/// An epoch of an incarnation.
type Cut = (u8, u8);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Member {
    role: Role,
    /// The run whose frames are in its files, if it is not known where this run ends.
    run: Option<u8>,
    /// The ends of the files in this run.
    filed: Positions,
    /// The records applied, a bit for each, and the last incarnation of which this is the end.
    applied: u16,
    through: u8,
    cut: Cut,
    /// The ends with which the next incarnation begins.
    ends: Positions,
    /// The first epoch of the incarnation that it has drawn.
    first_epoch: u8,
    /// A checkpoint under way: records, ends and cut; and the checkpoint that counts.
    imaging: Option<(u16, Positions, Cut)>,
    image: Option<(u16, Cut)>,
    /// What it has received of the current incarnation, or heard of as its primary.
    received: Option<(u8, Positions)>,
}

/// What the primary states of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mark {
    run: u8,
    epoch: u8,
    to: Positions,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    lanes: [Vec<Message>; LANES],
    runs: Vec<Run>,
    records: Vec<Record>,
    members: Vec<Member>,
    marks: Vec<Mark>,
    /// The last incarnation drawn.
    drawn: u8,
    /// The highest epoch that the lease allows.
    limit: u8,
    /// What the last holder of the lease has stated as stored.
    renewed: Option<(u8, Positions)>,
    crashes: u8,
    lies: u8,
    /// A member whose round has left out a record.
    uneven: Option<u8>,
}

/// A step of the model. Members, runs and lanes are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A primary appends a record to a stream that needs a position of the other one.
    Append(usize, usize, u8),
    /// A primary appends an anchor to a stream.
    Anchor(usize, usize),
    /// A primary sends a batch of a stream, and writes the batch to the file.
    Send(usize, usize),
    /// The batch of a run arrives in a lane.
    Arrive(usize, usize),
    /// The batch of a stream is in the file.
    File(usize, usize),
    /// A primary hears that the batch of a stream is stored.
    Hear(usize, usize),
    /// A primary takes a checkpoint.
    Image(usize),
    /// The checkpoint counts from now on.
    Adopt(usize),
    /// A primary states a mark.
    Mark(usize),
    /// A primary renews its lease.
    Renew(usize),
    /// A primary renews its lease, with a higher limit of epochs.
    Extend(usize),
    /// A primary loses power.
    Crash(usize),
    /// A primary hears of a higher incarnation.
    Demote(usize),
    /// A member draws the next incarnation.
    Draw(usize),
    /// A member draws the number that was drawn last.
    DrawAgain(usize),
    /// A candidate's seal arrives in a lane.
    Seal(usize, usize),
    /// A candidate reads up to its seals, and recovers.
    Recover(usize),
    /// A candidate creates the key `begin`, and writes from now on.
    Begin(usize),
    /// A member reads the lanes up to the end of an incarnation.
    Follow(usize),
    /// A standby's round up to a mark.
    Round(usize, usize),
    /// A standby receives what the lanes have.
    Receive(usize),
    /// The service loses the last message of a lane.
    Lose(usize),
}

const KEPT: &str = "what is acknowledged is recovered";
const TOLD: &str =
    "what is acknowledged and known to a witness is recovered, or the takeover stops";
const SAME: &str = "members agree on the records of an ended incarnation";
const CLOSED: &str = "what is recovered has what it needs";
const READS: &str = "no reader stops";
const ABOVE: &str = "a later incarnation has higher versions";
const ROUND: &str = "a round has all records up to its mark";

impl State {
    /// A record that is acknowledged, and that a member has not recovered.
    fn lost(&self, is_promised: impl Fn(&State, usize, &Record) -> bool) -> Option<(usize, usize)> {
        let through = |number: usize, record: &Record| {
            self.runs[usize::from(record.run)].incarnation <= self.members[number].through
        };
        (0..self.members.len()).find_map(|number| {
            let lacks = |at: &usize| {
                let record = &self.records[*at];
                record.acknowledged
                    && through(number, record)
                    && self.members[number].applied >> at & 1 == 0
                    && is_promised(self, number, record)
            };
            (0..self.records.len()).find(lacks).map(|at| (number, at))
        })
    }

    /// The records of incarnations up to this one, a bit for each.
    fn up_to(&self, incarnation: u8) -> u16 {
        let is_below =
            |record: &Record| self.runs[usize::from(record.run)].incarnation <= incarnation;
        let bit = |(at, record): (usize, &Record)| u16::from(is_below(record)) << at;
        self.records.iter().enumerate().map(bit).sum()
    }

    /// Two members that disagree.
    fn differ(&self) -> Option<(usize, usize)> {
        let mut pairs = (0..self.members.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        pairs.find(|(a, b)| {
            let (a, b) = (&self.members[*a], &self.members[*b]);
            let both = self.up_to(a.through.min(b.through));
            a.applied & both != b.applied & both
        })
    }

    /// A member with a record, and without a record that this one needs.
    fn open(&self) -> Option<(usize, usize)> {
        let lacks = |member: &Member, record: &Record| {
            record.needs > 0
                && (0..).zip(&self.records).any(|(at, other): (usize, _)| {
                    let is_it = other.run == record.run && other.lane != record.lane;
                    is_it && other.end == record.needs && member.applied >> at & 1 == 0
                })
        };
        self.members.iter().enumerate().find_map(|(number, member)| {
            let has = |at: &usize| member.applied >> at & 1 == 1;
            let open = |at: &usize| has(at) && lacks(member, &self.records[*at]);
            (0..self.records.len()).find(open).map(|at| (number, at))
        })
    }

    /// Whether a record of a later incarnation is below one that a member has applied.
    fn is_below(&self) -> bool {
        let applied = self.members.iter().fold(0, |all, member| all | member.applied);
        let incarnation = |record: &Record| self.runs[usize::from(record.run)].incarnation;
        let is_above = |earlier: &Record, later: &Record| {
            incarnation(later) <= incarnation(earlier) || later.epoch > earlier.epoch
        };
        let all = || self.records.iter().enumerate();
        all()
            .filter(|(at, _)| applied >> at & 1 == 1)
            .any(|(_, earlier)| self.records.iter().any(|later| !is_above(earlier, later)))
    }

    /// A lane at which a reader stops.
    fn stops(&self) -> Option<usize> {
        (0..LANES).find(|lane| Reading::new(self, *lane, None).is_stopped)
    }
}

impl Takeover {
    fn is_lost(&self, state: &State) -> Option<(usize, usize)> {
        state.lost(|state, number, record| self.is_promised(state, number, record))
    }
}

impl Model for Takeover {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let run = Run {
            incarnation: 1,
            member: 0,
            starts: [0; LANES],
            frames: Default::default(),
            epoch: 1,
            limit: 1,
            marks: 0,
            flight: [None; LANES],
            sent: [0; LANES],
            stored: [0; LANES],
        };
        let member = |number: usize| Member {
            role: if number == 0 { Role::Primary(0) } else { Role::Standby },
            run: (number == 0).then_some(0),
            filed: [0; LANES],
            applied: 0,
            through: 0,
            cut: (0, 0),
            ends: [0; LANES],
            first_epoch: 0,
            imaging: None,
            image: None,
            received: None,
        };
        vec![State {
            lanes: Default::default(),
            runs: vec![run],
            records: Vec::new(),
            members: (0..self.members).map(member).collect(),
            marks: Vec::new(),
            drawn: 1,
            limit: 1,
            renewed: None,
            crashes: self.crashes,
            lies: self.lies,
            uneven: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for number in 0..state.members.len() {
            self.steps_of_writer(state, number, actions);
            self.steps_of_member(state, number, actions);
        }
        for (number, run) in state.runs.iter().enumerate() {
            let may = |lane: &usize| run.flight[*lane].is_some() && state.may_arrive(number, *lane);
            actions.extend((0..LANES).filter(may).map(|lane| Step::Arrive(number, lane)));
        }
        if state.lies > 0 {
            let is_data =
                |lane: &usize| matches!(state.lanes[*lane].last(), Some(Message::Data { .. }));
            actions.extend((0..LANES).filter(is_data).map(Step::Lose));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        self.acknowledge(&mut next);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let kept = if self.lies > 0 && !self.witnesses.promises_all { TOLD } else { KEPT };
        let mut properties = vec![
            Property::always(kept, |m: &Takeover, s: &State| m.is_lost(s).is_none()),
            Property::sometimes("a successor has recovered all", |m: &Takeover, s: &State| {
                let all = m.records[0];
                s.members.iter().any(|member| {
                    member.through == 1 && member.applied & s.up_to(1) == (1 << all) - 1
                })
            }),
        ];
        if self.lies > 0 {
            properties.push(Property::sometimes("a candidate stops", |_: &Takeover, s: &State| {
                s.members.iter().any(|member| member.role == Role::Stopped)
            }));
            return properties;
        }
        properties.extend([
            Property::always(SAME, |_: &Takeover, s: &State| s.differ().is_none()),
            Property::always(CLOSED, |_: &Takeover, s: &State| s.open().is_none()),
            Property::always(READS, |_: &Takeover, s: &State| s.stops().is_none()),
            Property::always(ABOVE, |_: &Takeover, s: &State| !s.is_below()),
            Property::always(ROUND, |_: &Takeover, s: &State| s.uneven.is_none()),
            Property::sometimes("the last incarnation acknowledges", |m: &Takeover, s: &State| {
                let last = m.records.iter().rposition(|records| *records > 0).unwrap_or(0) + 1;
                s.records.iter().any(|record| {
                    let run = &s.runs[usize::from(record.run)];
                    record.acknowledged && usize::from(run.incarnation) == last
                })
            }),
        ]);
        if self.records[0] > 1 {
            properties.push(Property::sometimes("a record is dead", |_: &Takeover, s: &State| {
                s.has_dead()
            }));
        }
        properties
    }
}
