//! What is asked of a replicated log service: lanes of messages, with an append under a condition.

use std::fmt;

/// A message's place in a lane: 1 for the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Place {
    /// Before the first message.
    pub const START: Place = Place(0);
}

/// A request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Appends a message to a lane. With `after`, only if the lane's last message is there.
    Append {
        /// The lane.
        lane: usize,
        /// The condition.
        after: Option<Place>,
        /// The bytes.
        message: Vec<u8>,
    },
    /// Reads the messages of a lane behind a place. The answer may be of an earlier time.
    Read {
        /// The lane.
        lane: usize,
        /// The place.
        behind: Place,
    },
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The message is stored at the place, by a majority of the service's nodes.
    Appended(Place),
    /// The condition does not hold. Nothing was stored by this request; an earlier copy of the
    /// request may have been.
    Refused,
    /// Messages of the lane, ascending and without a gap.
    Messages(Vec<(Place, Vec<u8>)>),
    /// No answer came in time: the request may have been carried out, or may be later.
    Silence,
}

/// Names a request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A replicated log service.
pub trait LogService: fmt::Debug + Send + Sync {
    /// The most bytes of a message.
    fn max_message_bytes(&self) -> usize;

    /// Begins a request. Neither blocks nor fails.
    fn begin(&self, request: Request) -> RequestId;

    /// Takes the answer. `wait`: the call returns once there is an answer, at the latest after the
    /// service's time-out. `None`: there is no answer yet.
    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply>;
}
