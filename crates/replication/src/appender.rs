//! The writer of the lanes: each batch of the log is a message, one at a time in each lane.
//!
//! **The rule.** A message is sent under the condition that the lane's last message is the one that
//! the writer knows. If the condition does not hold, or no answer comes, the writer looks at what
//! is behind: a message of a later incarnation ends the writer; its own message is stored;
//! otherwise the message is sent again, behind the last message seen. A look that shows an earlier
//! state of the lane does no harm: the condition of the next message fails then, and the writer
//! looks again. A message is never taken as *not* stored because a look does not show it.

use crate::message::{Message, MessageBody, header_bytes};
use crate::service::{LogService, Place, Reply, Request, RequestId};
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{Lsn, Remote, RemoteEnded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    /// The chain of the last data message stored.
    chain: u32,
    /// The message under way, the position behind its frames, and its chain.
    message: Vec<u8>,
    end: Lsn,
    next_chain: u32,
    under_way: UnderWay,
    ended: Option<RemoteEnded>,
}

/// Where an incarnation begins in a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneBegin {
    /// The place of the incarnation's own seal, or of the lane's last message.
    pub behind: Place,
    /// The position at which the incarnation begins.
    pub start: Lsn,
    /// The chain of the last data message taken of earlier incarnations; 0 without any.
    pub chain: u32,
}

/// Writes the lanes of one incarnation.
#[derive(Debug)]
pub struct Appender {
    service: Arc<dyn LogService>,
    database: [u8; 16],
    incarnation: u32,
    lanes: Vec<Mutex<WrittenLane>>,
    /// The positions known to be stored, by lane. Messages of all lanes state the positions: a
    /// statement may be too low, and is never too high. Relaxed.
    stored: Vec<AtomicU64>,
    /// SeqCst: a thread that waits in `stored` looks at the flag between two answers.
    is_ended: AtomicBool,
}

impl Appender {
    /// The writer of an incarnation, with a lane for each stream.
    pub fn new(
        service: Arc<dyn LogService>,
        (database, incarnation): ([u8; 16], u32),
        begins: &[LaneBegin],
    ) -> Self {
        let lane = |begin: &LaneBegin| {
            Mutex::new(WrittenLane {
                last: begin.behind,
                index: 0,
                chain: begin.chain,
                message: Vec::new(),
                end: begin.start,
                next_chain: 0,
                under_way: UnderWay::Nothing,
                ended: None,
            })
        };
        Appender {
            service,
            database,
            incarnation,
            lanes: begins.iter().map(lane).collect(),
            stored: begins.iter().map(|begin| AtomicU64::new(begin.start)).collect(),
            is_ended: AtomicBool::new(false),
        }
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
    fn saw(&self, at: usize, lane: &mut WrittenLane, messages: Vec<(Place, Vec<u8>)>) {
        let mut own = None;
        for (place, bytes) in messages {
            if place.0 != lane.last.0 + 1 && own.is_none() {
                let found = format!("lane {at} has place {} behind {}", place.0, lane.last.0);
                lane.ended = Some(RemoteEnded::Different(found));
                return;
            }
            let incarnation = match Message::decode(&bytes) {
                Ok((message, _)) => message.incarnation,
                Err(malformed) => {
                    let found = format!("lane {at}, place {}: {malformed}", place.0);
                    lane.ended = Some(RemoteEnded::Different(found));
                    return;
                }
            };
            if incarnation > self.incarnation && !broken!(BlindResume) {
                lane.ended = Some(RemoteEnded::Fenced { by: incarnation });
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
}

impl Remote for Appender {
    fn max_batch_bytes(&self) -> usize {
        self.service.max_message_bytes().saturating_sub(header_bytes(self.lanes.len()))
    }

    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]) {
        let mut lane = self.lanes[stream].lock().unpoisoned();
        debug_assert!(matches!(lane.under_way, UnderWay::Nothing), "one message at a time");
        debug_assert_eq!(lane.end, start, "the frames follow those stored");
        let body = frames.concat();
        lane.end = start + body.len() as u64;
        let stored = self.stored.iter().map(|lsn| lsn.load(Ordering::Relaxed)).collect();
        let message = Message {
            database: self.database,
            stream: stream as u32,
            incarnation: self.incarnation,
            index: lane.index,
            start,
            stored,
            previous: lane.chain,
            body: MessageBody::Data(body),
        };
        (lane.message, lane.next_chain) = message.encode();
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
                _ => self.begin_look(stream, &mut lane),
            }
        }
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }
}
