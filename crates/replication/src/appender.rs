//! The writer of the lanes: each batch of the log is a message, one at a time in each lane.
//!
//! **The rule.** A message is sent under the condition that the lane's last message is the one that
//! the writer knows. If the condition does not hold, or no answer comes, the writer looks at what
//! is behind: a message of a later incarnation ends the writer; its own message is stored;
//! otherwise the message is sent again, behind the last message seen. A look that shows an earlier
//! state of the lane does no harm: the condition of the next message fails then, and the writer
//! looks again. A message is never taken as *not* stored because a look does not show it.

use crate::begin::{self, Begin};
use crate::message::{Message, MessageBody, header_bytes};
use crate::seal::{Writer, seal_new_lane};
use crate::service::{LogService, Place, Reply, Request, RequestId};
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lsn, Remote, RemoteEnded, RemoteIncarnation};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What is under way in a lane.
#[derive(Debug)]
enum UnderWay {
    Nothing,
    Append(RequestId),
    Look(RequestId),
}

/// A lane as its writer knows it.
#[derive(Debug)]
struct WrittenLane {
    /// The last message known to be in the lane.
    last: Place,
    /// The index of the next message.
    index: u64,
    /// The chain of the last data message stored, of the seal before the first.
    chain: u32,
    /// The message under way, the position behind its frames, and its chain.
    message: Arc<Vec<u8>>,
    end: Lsn,
    next_chain: u32,
    under_way: UnderWay,
    ended: Option<RemoteEnded>,
}

/// Writes the lanes of one incarnation.
#[derive(Debug)]
pub struct Appender {
    service: Arc<dyn LogService>,
    node: String,
    /// Set when the incarnation begins.
    writer: OnceLock<Writer>,
    lanes: Vec<Mutex<WrittenLane>>,
    /// The positions known to be stored, by lane. Messages of all lanes state the positions: a
    /// statement may be too low, and is never too high. Relaxed.
    stored: Vec<AtomicU64>,
    /// SeqCst: a thread that waits in `stored` looks at the flag between two answers.
    is_ended: AtomicBool,
}

impl Appender {
    /// A writer on the node of this name, with a lane for each stream.
    pub fn new(service: Arc<dyn LogService>, node: String, lanes: usize) -> Self {
        let lane = || {
            Mutex::new(WrittenLane {
                last: Place::START,
                index: 0,
                chain: 0,
                message: Arc::default(),
                end: 0,
                next_chain: 0,
                under_way: UnderWay::Nothing,
                ended: None,
            })
        };
        Appender {
            service,
            node,
            writer: OnceLock::new(),
            lanes: (0..lanes).map(|_| lane()).collect(),
            stored: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            is_ended: AtomicBool::new(false),
        }
    }

    fn writer(&self) -> &Writer {
        self.writer.get().expect("the log begins an incarnation before it sends")
    }

    fn begin_append(&self, at: usize, lane: &mut WrittenLane) {
        let (after, message) = (Some(lane.last), lane.message.clone());
        let request = self.service.begin(Request::Append { lane: at, after, message });
        lane.under_way = UnderWay::Append(request);
    }

    fn begin_look(&self, at: usize, lane: &mut WrittenLane) {
        let request = self.service.begin(Request::Read { lane: at, behind: lane.last });
        lane.under_way = UnderWay::Look(request);
    }

    /// The message under way is at `place`.
    fn is_stored(&self, at: usize, lane: &mut WrittenLane, place: Place) {
        lane.last = lane.last.max(place);
        lane.index += 1;
        lane.chain = lane.next_chain;
        lane.under_way = UnderWay::Nothing;
        self.stored[at].store(lane.end, Ordering::Relaxed);
    }

    /// Looks at messages behind the last one known. Sends the message under way again, unless the
    /// message is among them or another writer is.
    fn saw(&self, at: usize, lane: &mut WrittenLane, messages: Vec<(Place, Arc<Vec<u8>>)>) {
        let mut own = None;
        for (place, bytes) in messages {
            let is_next = place.0 == lane.last.0 + 1 || own.is_some();
            if let Err(ended) = self.look_at((at, place), &bytes, is_next) {
                lane.ended = Some(ended);
                return;
            }
            if bytes == lane.message {
                own = own.or(Some(place));
            }
            lane.last = place;
        }
        match own {
            Some(place) => self.is_stored(at, lane, place),
            None => self.begin_append(at, lane),
        }
    }

    /// Whether the writer may go on behind a message.
    fn look_at(
        &self,
        (lane, place): (usize, Place),
        bytes: &[u8],
        is_next: bool,
    ) -> Result<(), RemoteEnded> {
        let different = |what: String| {
            RemoteEnded::Different(format!("lane {lane}, place {}: {what}", place.0))
        };
        let (message, _) = Message::decode(bytes).map_err(|why| different(why.to_string()))?;
        if message.database != self.writer().database {
            return Err(different("the message is of another database".into()));
        }
        let by = message.incarnation;
        if by > self.writer().incarnation && !broken!(BlindResume) {
            return Err(RemoteEnded::Fenced { by });
        }
        if !is_next {
            return Err(different("messages before this one are missing".into()));
        }
        Ok(())
    }
}

impl Remote for Appender {
    fn max_batch_bytes(&self) -> usize {
        self.service.max_message_bytes().saturating_sub(header_bytes(self.lanes.len()))
    }

    fn begin(&self, begun: &RemoteIncarnation<'_>) -> Result<(), RemoteEnded> {
        let begin = Begin::of(begun, &self.node);
        let incarnation = &begin.incarnation;
        debug_assert_eq!(incarnation.dims.len(), self.lanes.len(), "a lane for each stream");
        let writer = Writer {
            database: begun.log,
            incarnation: incarnation.number,
            node: self.node.clone(),
        };
        begin::draw(&*self.service, &writer)?;
        for (stream, (lane, dim)) in self.lanes.iter().zip(&incarnation.dims).enumerate() {
            let lanes = (stream, self.lanes.len());
            let sealed = seal_new_lane(&*self.service, lanes, &writer, dim.start)?;
            let mut lane = lane.lock().unpoisoned();
            (lane.last, lane.chain, lane.end) = (sealed.place, sealed.chain, dim.start);
            self.stored[stream].store(dim.start, Ordering::Relaxed);
        }
        begin::announce(&*self.service, &begin)?;
        let is_first = self.writer.set(writer).is_ok();
        debug_assert!(is_first, "a remote begins once");
        Ok(())
    }

    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]) {
        let mut lane = self.lanes[stream].lock().unpoisoned();
        debug_assert!(matches!(lane.under_way, UnderWay::Nothing), "one message at a time");
        debug_assert_eq!(lane.end, start, "the frames follow those stored");
        let body = frames.concat();
        lane.end = start + body.len() as u64;
        let stored = self.stored.iter().map(|lsn| lsn.load(Ordering::Relaxed)).collect();
        let message = Message {
            database: self.writer().database,
            stream: stream as u32,
            incarnation: self.writer().incarnation,
            index: lane.index,
            start,
            stored,
            previous: lane.chain,
            body: MessageBody::Data(body),
        };
        let (encoded, chain) = message.encode();
        (lane.message, lane.next_chain) = (Arc::new(encoded), chain);
        self.begin_append(stream, &mut lane);
    }

    fn stored(&self, stream: usize, wait: bool) -> Option<Result<(), RemoteEnded>> {
        let mut lane = self.lanes[stream].lock().unpoisoned();
        loop {
            if let Some(ended) = &lane.ended {
                return Some(Err(ended.clone()));
            }
            if self.is_ended.load(Ordering::SeqCst) {
                return Some(Err(RemoteEnded::Stopped));
            }
            let (request, appends) = match lane.under_way {
                UnderWay::Nothing => return Some(Ok(())),
                UnderWay::Append(request) => (request, true),
                UnderWay::Look(request) => (request, false),
            };
            match (self.service.answer(request, wait)?, appends) {
                (Reply::Appended(place), true) => self.is_stored(stream, &mut lane, place),
                (Reply::Messages(messages), false) => self.saw(stream, &mut lane, messages),
                (Reply::Gone(what), _) => lane.ended = Some(RemoteEnded::Different(what)),
                _ => self.begin_look(stream, &mut lane),
            }
        }
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }
}
