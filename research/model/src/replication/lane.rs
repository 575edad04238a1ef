//! One lane of a replicated log: item "Replicated lane" of docs/protocols.
//!
//! A lane is a sequence of messages at a log service. The service appends data on the condition
//! that the lane ends after a stated place, and seals without a condition. The writer of
//! incarnation 1 has begun; candidates draw the next incarnations, seal the lane, read up to their
//! own seals, and then write. Every look may be answered by a replica that shows an older lane.
//!
//! Messages and replies are late, reordered, repeated and lost in every way, without a bound. The
//! state needs no replies for that: that a batch is stored stays true, so its writer may hear of it
//! at any later time, often, or never. A refused writer and a writer without an answer do the same:
//! look. So a request leaves the state once its condition cannot hold any more, and a request that
//! never arrives is lost. Bounded are the batches of an incarnation, and the copies of a seal that
//! arrive.
//!
//! The service may break its promises as well, up to a bounded number of times: lose a message from
//! the middle of an incarnation, or append a copy of a stored message in spite of the condition.
//! Left out: the loss of the last messages or of a seal, which one lane cannot tell; positions
//! within a batch; vectors over several lanes; and the lease, which no promise here needs.

mod cases;
mod reading;
mod steps;
mod telling;

pub use cases::cases;

use reading::Reading;
use stateright::{Model, Property};

/// The rules, as built or with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneRule {
    /// As built.
    Built,
    /// A writer has two batches under way, acknowledged in their order.
    WindowOfTwo,
    /// A writer has two batches under way, and acknowledges each without the batch before.
    EachForItself,
    /// A refused writer takes the end of the lane, and does not look for a higher incarnation.
    BlindResume,
    /// A writer looks at the last message alone.
    LastAlone,
    /// Data is appended without a condition.
    Unconditional,
    /// A writer whose look does not show the batch calls the batch failed, and uses the index anew.
    ByAbsence,
    /// A batch is acknowledged when it is sent.
    AtSend,
    /// A reply counts for the batch under way, also when the reply is about an earlier batch.
    AnyReply,
    /// A candidate does not look for a higher seal before its own.
    SealUnread,
    /// A candidate takes the end from what a replica shows, without its own seal.
    ReadsShort,
    /// A reader goes on behind a hole.
    SkipsHoles,
    /// A reader takes a repetition.
    TakesRepetitions,
    /// A reader takes messages of an incarnation that has ended.
    TakesEnded,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The rules.
    pub rule: LaneRule,
    /// The candidates after the first writer.
    pub candidates: usize,
    /// The batches of each incarnation.
    pub batches: u8,
    /// How many copies of a seal arrive, at most.
    pub copies: usize,
    /// How many times the log service breaks its promises, at most.
    pub lies: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Seal,
    /// A batch of data. The index is what readers go by; the batch stands for the content.
    Data {
        index: u8,
        batch: u8,
    },
    /// What the service has lost. No reader sees the place.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    incarnation: u8,
    kind: Kind,
}

/// A message on its way. Places are counted from 1: "after 0" is the empty lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Request {
    message: Message,
    after: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Has not drawn an incarnation.
    Waits,
    Seals,
    Writes,
    /// Fenced, or stopped at a hole.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Writer {
    phase: Phase,
    /// The place that the next batch comes after.
    last: u8,
    /// Number of batches begun.
    begun: u8,
    /// Number of batches called failed.
    failed: u8,
    /// The batches acknowledged, a bit for each.
    acknowledged: u8,
    /// The batches under way.
    under_way: Vec<Kind>,
    /// What a candidate has read up to its seal.
    read: Option<Reading>,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneState {
    log: Vec<Message>,
    /// By incarnation, from 1.
    writers: Vec<Writer>,
    /// Data that may still be appended, in the order of the type.
    requests: Vec<Request>,
    lies: u8,
}

/// A step of the model. Writers are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneStep {
    /// A candidate draws the next incarnation, and sends its seal.
    Draw(usize),
    /// A copy of a seal arrives.
    Seal(usize),
    /// A candidate hears that its seal is at the first place, and reads up to the second place.
    Begin(usize, u8, u8),
    /// A writer sends its next batch.
    Send(usize),
    /// The request at this index arrives.
    Arrive(usize),
    /// A writer hears that this batch of those under way is stored.
    Hear(usize, usize),
    /// A writer, refused or without an answer, looks at the lane, which is shown up to this place.
    Look(usize, u8),
    /// The service loses the message at this place.
    Lose(u8),
    /// The service appends a copy of the message at this place.
    Repeat(u8),
}

const BELOW: &str = "what is acknowledged lies below the end that readers find";
const SAME: &str = "readers agree on an ended incarnation";
const FENCED: &str = "nothing of an incarnation is taken behind a higher seal";
const ONCE: &str = "a reader takes each batch once, and leaves out none";
const WHOLE: &str = "no reader finds a hole, unless the lane has lost a message";

impl LaneState {
    fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// What a standby has found that reads the lane as of now.
    fn standby(&self, rule: LaneRule) -> Reading {
        Reading::new(rule, &self.log)
    }

    /// All readings by which an incarnation has ended.
    fn ended<'s>(
        &'s self,
        standby: &'s Reading,
        incarnation: u8,
    ) -> impl Iterator<Item = &'s Reading> {
        let candidates = self.writers.iter().filter_map(|writer| writer.read.as_ref());
        candidates.chain([standby]).filter(move |reading| reading.has_ended(incarnation))
    }

    /// The incarnation and number of a batch that is acknowledged and that a reader left out.
    fn left_out(&self, rule: LaneRule) -> Option<(u8, u8)> {
        let standby = self.standby(rule);
        (1..).zip(&self.writers).find_map(|(incarnation, writer)| {
            let lacks = |batch: u8| {
                let has = |reading: &Reading| reading.batches(incarnation).any(|b| b == batch);
                self.ended(&standby, incarnation).any(|reading| !has(reading))
            };
            let is_told = |batch: &u8| writer.acknowledged >> batch & 1 == 1;
            let lost = (0..writer.begun).filter(is_told).find(|batch| lacks(*batch))?;
            Some((incarnation, lost))
        })
    }

    /// An incarnation whose end differs between two readers.
    fn differs(&self, rule: LaneRule) -> Option<u8> {
        let standby = self.standby(rule);
        (1..=self.writers.len() as u8).find(|incarnation| {
            let mut ended = self.ended(&standby, *incarnation);
            let Some(first) = ended.next() else { return false };
            ended.any(|other| !other.batches(*incarnation).eq(first.batches(*incarnation)))
        })
    }

    /// Whether a standby takes a message behind a higher seal.
    fn takes_fenced(&self, rule: LaneRule) -> bool {
        self.standby(rule).taken.iter().any(|(place, taken)| {
            let is_higher = |m: &Message| m.kind == Kind::Seal && m.incarnation > taken.incarnation;
            self.log[..usize::from(*place)].iter().any(is_higher)
        })
    }

    /// Whether a standby takes other batches of an incarnation than the first, once each.
    fn takes_unevenly(&self, rule: LaneRule) -> bool {
        let reading = self.standby(rule);
        let is_even = |incarnation| {
            let indices = reading.indices(incarnation);
            indices.zip(0..).all(|(index, wanted)| index == wanted)
        };
        !(1..=self.writers.len() as u8).all(is_even)
    }

    fn has_lost(&self) -> bool {
        self.log.iter().any(|message| message.kind == Kind::Lost)
    }

    /// Whether a standby stops although the lane has everything.
    fn stops(&self, rule: LaneRule) -> bool {
        !self.has_lost() && self.standby(rule).is_stopped
    }
}

impl Model for Lane {
    type State = LaneState;
    type Action = LaneStep;

    fn init_states(&self) -> Vec<LaneState> {
        let writer = |number| Writer {
            phase: if number == 0 { Phase::Writes } else { Phase::Waits },
            last: u8::from(number == 0),
            begun: 0,
            failed: 0,
            acknowledged: 0,
            under_way: Vec::new(),
            read: None,
        };
        vec![LaneState {
            log: vec![Message { incarnation: 1, kind: Kind::Seal }],
            writers: (0..=self.candidates).map(writer).collect(),
            requests: Vec::new(),
            lies: self.lies,
        }]
    }

    fn actions(&self, state: &LaneState, actions: &mut Vec<LaneStep>) {
        let may = |at: &usize| self.may_arrive(state, &state.requests[*at]);
        actions.extend((0..state.requests.len()).filter(may).map(LaneStep::Arrive));
        for number in 0..state.writers.len() {
            self.steps_of(state, number, actions);
        }
        let next = state.writers.iter().position(|writer| writer.phase == Phase::Waits);
        actions.extend(next.map(LaneStep::Draw));
        self.lies(state, actions);
    }

    fn next_state(&self, state: &LaneState, action: LaneStep) -> Option<LaneState> {
        let mut next = state.clone();
        self.take(&mut next, action);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(BELOW, |m: &Lane, s: &LaneState| s.left_out(m.rule).is_none()),
            Property::always(SAME, |m, s: &LaneState| s.differs(m.rule).is_none()),
            Property::always(FENCED, |m, s: &LaneState| !s.takes_fenced(m.rule)),
            Property::always(ONCE, |m, s: &LaneState| !s.takes_unevenly(m.rule)),
            Property::always(WHOLE, |m, s: &LaneState| !s.stops(m.rule)),
            Property::sometimes(
                "all incarnations have acknowledged all",
                |m: &Lane, s: &LaneState| {
                    let all = (1 << m.batches) - 1;
                    s.writers.iter().all(|writer| writer.acknowledged == all)
                },
            ),
            Property::sometimes(
                "an ended incarnation has an unknown batch below its end",
                |m, s: &LaneState| {
                    let taken = s.standby(m.rule).batches(1).count() as u32;
                    let writer = &s.writers[0];
                    writer.phase == Phase::Ended && taken > writer.acknowledged.count_ones()
                },
            ),
        ];
        if self.candidates > 1 {
            properties.push(Property::sometimes(
                "a seal comes after a higher one",
                |_, s: &LaneState| {
                    let seals = || s.log.iter().filter(|message| message.kind == Kind::Seal);
                    seals().zip(seals().skip(1)).any(|(a, b)| a.incarnation > b.incarnation)
                        && s.writers[1].phase == Phase::Ended
                },
            ));
        }
        if self.lies > 0 {
            properties.push(Property::sometimes("a reader stops at a hole", |m, s: &LaneState| {
                s.standby(m.rule).is_stopped
            }));
        }
        properties
    }
}
