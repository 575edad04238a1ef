//! What is asked of a replicated log service: lanes of messages, with an append under a condition;
//! keys, whose values are replaced under a condition; and broadcasts, which may be lost.

use hyades_platform::clock;
use hyades_wal::RemoteEnded;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// A message's place in a lane: 1 for the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Place {
    /// Before the first message.
    pub const START: Place = Place(0);
}

/// Tells the values of a key apart: a value that is stored later has a higher revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Of a key without a value.
    pub const NONE: Revision = Revision(0);
}

/// A value of a key, with its revision.
pub type Versioned = (Revision, Arc<Vec<u8>>);

/// How long a service is waited for that does not answer.
#[derive(Debug)]
pub struct Patience<'s> {
    stop: Option<&'s AtomicBool>,
    limit_ns: u64,
    /// By [`clock::monotonic_ns`], when the service was heard of last.
    heard_ns: Cell<u64>,
}

impl Patience<'_> {
    /// Waits for as long as `limit`.
    pub fn new(limit: Duration) -> Patience<'static> {
        let heard_ns = Cell::new(clock::monotonic_ns());
        Patience { stop: None, limit_ns: limit.as_nanos() as u64, heard_ns }
    }

    /// Waits no longer once `stop` is set.
    pub fn until(self, stop: &AtomicBool) -> Patience<'_> {
        Patience { stop: Some(stop), ..self }
    }

    /// The service was heard of.
    pub fn heard(&self) {
        self.heard_ns.set(clock::monotonic_ns());
    }

    /// Whether to wait on.
    ///
    /// # Errors
    /// [`RemoteEnded::Stopped`], or [`RemoteEnded::Silent`] after the limit.
    pub fn check(&self) -> Result<(), RemoteEnded> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(RemoteEnded::Stopped);
        }
        match clock::monotonic_ns().saturating_sub(self.heard_ns.get()) >= self.limit_ns {
            true => Err(RemoteEnded::Silent),
            false => Ok(()),
        }
    }
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
        message: Arc<Vec<u8>>,
    },
    /// Reads messages of a lane behind a place: all, or the first ones of many. The answer may be
    /// of an earlier time.
    Read {
        /// The lane.
        lane: usize,
        /// The place.
        behind: Place,
    },
    /// Reads the newest value of a key, as all that was answered before shows it.
    Get {
        /// Letters, digits, `.`, `-` and `_`.
        key: String,
    },
    /// Stores a value, only if the key's newest value has this revision.
    Put {
        /// As of [`Request::Get`].
        key: String,
        /// The condition.
        after: Revision,
        /// The value.
        value: Arc<Vec<u8>>,
    },
    /// Removes the messages of a lane up to a place. The places of the others stay.
    Purge {
        /// The lane.
        lane: usize,
        /// The place of the last message removed.
        through: Place,
    },
    /// Asks a member, if one of the node listens for [questions](LogService::questions).
    Ask {
        /// The node.
        node: String,
        /// The question.
        question: Arc<Vec<u8>>,
    },
}

/// A question of another member, see [`LogService::questions`].
pub struct Question {
    bytes: Vec<u8>,
    answer: Box<dyn FnOnce(Vec<u8>) + Send>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Question {
    /// A question with the way back for the answer.
    pub fn new(bytes: Vec<u8>, answer: impl FnOnce(Vec<u8>) + Send + 'static) -> Question {
        Question { bytes, answer: Box::new(answer) }
    }

    /// The question.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Answers. Neither blocks nor fails; the answer may be lost.
    pub fn answer(self, bytes: Vec<u8>) {
        (self.answer)(bytes);
    }
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The message is stored at the place, by a majority of the service's nodes.
    Appended(Place),
    /// The value is stored under the revision, by a majority of the service's nodes.
    Put(Revision),
    /// The condition does not hold. Nothing was stored by this request; an earlier copy of the
    /// request may have been.
    Refused,
    /// The newest value of a key, if there is one.
    Value(Option<Versioned>),
    /// Messages of the lane, ascending. Without a gap, unless messages were removed from the lane.
    Messages(Vec<(Place, Arc<Vec<u8>>)>),
    /// The lane ends here, before the place of the read, as the lane's leader knows. A leader that
    /// was replaced and does not know so yet may answer, for some seconds.
    Short(Place),
    /// The messages are removed.
    Purged,
    /// What a member answers.
    Told(Arc<Vec<u8>>),
    /// The lane is not the lane that the service had at the beginning.
    Gone(String),
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

    /// Sends a message to all listeners. Neither blocks nor fails; the message may be lost, late or
    /// out of order.
    fn broadcast(&self, message: Vec<u8>);

    /// The broadcasts from now on. A listener that is slow misses some.
    fn listen(&self) -> Receiver<Vec<u8>>;

    /// The questions to this node from now on. A question without an answer in time is as if the
    /// question were lost.
    fn questions(&self, node: &str) -> Receiver<Question>;

    /// Spreads over the service's nodes what each lane needs one node for. Returns at once; nothing
    /// depends on the outcome.
    fn place_leaders(&self) {}

    /// Carries a request out, and waits for the answer.
    fn ask(&self, request: Request) -> Reply {
        self.answer(self.begin(request), true).unwrap_or(Reply::Silence)
    }
}
