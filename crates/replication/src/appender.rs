//! The writer of the lanes: each batch of the log is a message, one at a time in each lane.
//!
//! **The rule.** A message is sent under the condition that the lane's last message is the one that
//! the writer knows. If the condition does not hold, or no answer comes, the writer looks at what
//! is behind: a message of a later incarnation ends the writer; its own message is stored;
//! otherwise the message is sent again, behind the last message seen. A look that shows an earlier
//! state of the lane does no harm: the condition of the next message fails then, and the writer
//! looks again. A message is never taken as *not* stored because a look does not show it.

use crate::begin::{self, Begin, SealPlace};
use crate::lane_place::LanePlace;
use crate::message::{Message, MessageBody, header_bytes};
use crate::seal::{Sealed, Writer};
use crate::service::{LogService, Place, Reply, Request, RequestId};
use crate::short_lane::ShortLane;
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{AnswerLease, Lsn, MAX_LANES, Remote, RemoteEnded, RemoteIncarnation};
use std::collections::VecDeque;
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
    /// The chain of the last data message stored, of the seal before the first.
    chain: u32,
    /// The message under way, the position behind its frames, and its chain.
    message: Arc<Vec<u8>>,
    end: Lsn,
    next_chain: u32,
    under_way: UnderWay,
    short: ShortLane,
    ended: Option<RemoteEnded>,
    /// The place that the files are known to reach after any crash.
    proven: LanePlace,
    /// The places behind the messages stored since, or the last of them.
    places: VecDeque<LanePlace>,
}

/// The places kept of a lane. One message is under way at a time, so all but the last are in files.
const PLACES: usize = 8;

/// Writes the lanes of one incarnation.
#[derive(Debug)]
pub struct Appender {
    service: Arc<dyn LogService>,
    writer: Writer,
    /// Whether members need a base to begin with the incarnation.
    needs_base: bool,
    /// `None`: what only reads is answered without a lease.
    lease: Option<Arc<AnswerLease>>,
    lanes: Vec<Mutex<WrittenLane>>,
    /// The positions known to be stored, by lane. Messages of all lanes state the positions: a
    /// statement may be too low, and is never too high. Relaxed.
    stored: Vec<AtomicU64>,
    /// SeqCst: a thread that waits in `stored` looks at the flag between two answers.
    is_ended: AtomicBool,
}

impl Appender {
    /// The writer of an incarnation that has sealed the lanes, each of which begins at a position.
    pub fn new(
        service: Arc<dyn LogService>,
        writer: Writer,
        lanes: &[(Sealed, Lsn)],
        lease: Option<Arc<AnswerLease>>,
    ) -> Self {
        let incarnation = writer.incarnation;
        let lane = |&(sealed, start): &(Sealed, Lsn)| {
            let (place, chain, next, end) = (sealed.place.0, sealed.chain, 0, start);
            let sealed_at = LanePlace { incarnation, place, next, chain, end };
            Mutex::new(WrittenLane {
                last: sealed.place,
                index: 0,
                chain: sealed.chain,
                message: Arc::default(),
                end: start,
                next_chain: 0,
                under_way: UnderWay::Nothing,
                short: ShortLane::default(),
                ended: None,
                proven: sealed_at,
                places: VecDeque::new(),
            })
        };
        Appender {
            service,
            writer,
            needs_base: false,
            lease,
            lanes: lanes.iter().map(lane).collect(),
            stored: lanes.iter().map(|(_, start)| AtomicU64::new(*start)).collect(),
            is_ended: AtomicBool::new(false),
        }
    }

    /// States that the database has content that no lane has: a member begins with a base.
    pub fn with_base(mut self) -> Self {
        self.needs_base = true;
        self
    }

    /// The most bytes of frames in a batch, whatever the number of lanes.
    pub fn max_batch_bytes_of(service: &dyn LogService) -> usize {
        service.max_message_bytes().saturating_sub(header_bytes(MAX_LANES))
    }

    /// The positions known to be stored, by stream.
    pub fn stored_positions(&self) -> Vec<Lsn> {
        self.stored.iter().map(|lsn| lsn.load(Ordering::Relaxed)).collect()
    }

    /// By stream, a place that the files reach after any crash. `durable`: what is stored and in
    /// synced files. A batch in the files proves what is before the batch.
    pub(crate) fn proven_places(&self, durable: &[Lsn]) -> Vec<LanePlace> {
        let lanes = self.lanes.iter().zip(durable);
        let place = |(lane, durable): (&Mutex<WrittenLane>, &Lsn)| {
            let mut lane = lane.lock().unpoisoned();
            let in_files = lane.places.iter().take_while(|place| place.end <= *durable).count();
            if in_files >= 2 {
                lane.proven = lane.places[in_files - 2];
            }
            lane.proven
        };
        lanes.map(place).collect()
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
        let incarnation = self.writer.incarnation;
        let (next, chain, end) = (lane.index, lane.chain, lane.end);
        lane.places.push_back(LanePlace { incarnation, place: place.0, next, chain, end });
        if lane.places.len() > PLACES {
            lane.places.pop_front();
        }
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
        if message.database != self.writer.database {
            return Err(different("the message is of another database".into()));
        }
        let by = message.incarnation;
        if by > self.writer.incarnation && !broken!(BlindResume) {
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
        Appender::max_batch_bytes_of(&*self.service)
    }

    fn begin(&self, begun: &RemoteIncarnation<'_>) -> Result<(), RemoteEnded> {
        let seal = |lane: &Mutex<WrittenLane>| {
            let LanePlace { place, chain, .. } = lane.lock().unpoisoned().proven;
            SealPlace { place, chain }
        };
        let seals = self.lanes.iter().map(seal).collect();
        let mut begin = Begin::of(begun, &self.writer.node, seals);
        begin.needs_base = self.needs_base;
        let given = (begun.log, begun.number, begun.streams.len());
        debug_assert_eq!(
            given,
            (self.writer.database, self.writer.incarnation, self.lanes.len()),
            "the lanes were sealed for another incarnation"
        );
        begin::announce(&*self.service, &begin)
    }

    fn lease(&self) -> Option<Arc<AnswerLease>> {
        self.lease.clone()
    }

    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]) {
        let mut lane = self.lanes[stream].lock().unpoisoned();
        debug_assert!(matches!(lane.under_way, UnderWay::Nothing), "one message at a time");
        debug_assert_eq!(lane.end, start, "the frames follow those stored");
        let body = frames.concat();
        lane.end = start + body.len() as u64;
        let stored = self.stored_positions();
        let message = Message {
            database: self.writer.database,
            stream: stream as u32,
            incarnation: self.writer.incarnation,
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
                (Reply::Messages(messages), false) => {
                    lane.short.clear();
                    self.saw(stream, &mut lane, messages);
                }
                (Reply::Short(end), false) => {
                    let known = lane.last;
                    match lane.short.note_end((stream, end), known) {
                        Err(lost) => lane.ended = Some(lost),
                        Ok(()) => {
                            self.begin_look(stream, &mut lane);
                            // The caller has other work while time passes.
                            if !wait {
                                return None;
                            }
                        }
                    }
                }
                (Reply::Gone(what), _) => lane.ended = Some(RemoteEnded::Different(what)),
                _ => self.begin_look(stream, &mut lane),
            }
        }
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }
}
