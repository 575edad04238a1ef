//! A log service in memory, for tests and measurements: requests and replies are late, lost and
//! repeated as a seed says.

use crate::service::{LogService, Place, Question, Reply, Request, RequestId, Revision, Versioned};
use fastrand::Rng;
use hyades_platform::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often the service misbehaves, as shares of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A request is lost, and silence is the answer.
    pub lost_requests: f64,
    /// A request is carried out, and silence is the answer.
    pub lost_replies: f64,
    /// A copy of a request is carried out later, whatever the answer.
    pub late_copies: f64,
    /// A look shows an earlier state of the lane.
    pub old_looks: f64,
    /// A question for an answer finds none yet.
    pub delays: f64,
}

/// Broadcasts, and questions, kept for a listener.
const LISTENED: usize = 64;
/// How often an answer of a member is looked for, a millisecond after the other.
const PATIENT_LOOKS: usize = 1000;

/// The answer of a member, once there.
type MemberAnswer = Arc<Mutex<Option<Vec<u8>>>>;

#[derive(Debug)]
struct State {
    rng: Rng,
    lanes: Vec<Vec<Arc<Vec<u8>>>>,
    /// By lane, how many of the first messages are removed.
    purged: Vec<usize>,
    keys: BTreeMap<String, Versioned>,
    listeners: Vec<SyncSender<Vec<u8>>>,
    members: Vec<(String, SyncSender<Question>)>,
    asked: BTreeMap<RequestId, MemberAnswer>,
    next: u64,
    /// Requests that were not carried out, or whose answer was not taken.
    replies: BTreeMap<RequestId, Reply>,
    /// Copies of requests that will be carried out.
    copies: Vec<Request>,
}

/// The service.
#[derive(Debug)]
pub struct SimulatedLog {
    faults: Faults,
    max_message_bytes: usize,
    state: Mutex<State>,
}

impl State {
    fn carry_out(&mut self, request: &Request, faults: Faults) -> Reply {
        match request {
            Request::Append { lane, after, message } => {
                let lane = &mut self.lanes[*lane];
                if after.is_some_and(|after| after.0 != lane.len() as u64) {
                    return Reply::Refused;
                }
                lane.push(message.clone());
                Reply::Appended(Place(lane.len() as u64))
            }
            Request::Read { lane, behind } => {
                let purged = self.purged[*lane];
                let lane = &self.lanes[*lane];
                let from = behind.0 as usize;
                if from > lane.len() {
                    return Reply::Short(Place(lane.len() as u64));
                }
                let mut to = lane.len();
                if self.rng.f64() < faults.old_looks {
                    to = self.rng.usize(from..=to);
                }
                let numbered =
                    (from.max(purged)..to).map(|at| (Place(at as u64 + 1), lane[at].clone()));
                Reply::Messages(numbered.collect())
            }
            Request::Get { key } => Reply::Value(self.keys.get(key).cloned()),
            Request::Put { key, after, value } => {
                let newest = self.keys.get(key).map_or(Revision::NONE, |(newest, _)| *newest);
                if newest != *after {
                    return Reply::Refused;
                }
                let next = Revision(newest.0 + 1);
                self.keys.insert(key.clone(), (next, value.clone()));
                Reply::Put(next)
            }
            Request::Purge { lane, through } => {
                let through = (through.0 as usize).min(self.lanes[*lane].len());
                self.purged[*lane] = self.purged[*lane].max(through);
                Reply::Purged
            }
            Request::Ask { .. } => Reply::Silence,
        }
    }

    /// Hands a question to the newest member of a node. False if there is none.
    fn ask(&mut self, id: RequestId, node: &str, question: &[u8]) -> bool {
        let found = self.members.iter().rev().find(|(name, _)| name == node);
        let Some((_, member)) = found else { return false };
        let answer = MemberAnswer::default();
        let given = Arc::clone(&answer);
        let question = Question::new(question.to_vec(), move |bytes| {
            *given.lock().unpoisoned() = Some(bytes);
        });
        self.asked.insert(id, answer);
        member.try_send(question).is_ok()
    }

    fn carry_out_a_copy(&mut self, faults: Faults) {
        if !self.copies.is_empty() && self.rng.bool() {
            let at = self.rng.usize(..self.copies.len());
            let copy = self.copies.swap_remove(at);
            self.carry_out(&copy, faults);
        }
    }
}

impl SimulatedLog {
    /// A service with empty lanes.
    pub fn new(lanes: usize, seed: u64, faults: Faults) -> Self {
        SimulatedLog {
            faults,
            max_message_bytes: 64 << 10,
            state: Mutex::new(State {
                rng: Rng::with_seed(seed),
                lanes: vec![Vec::new(); lanes],
                purged: vec![0; lanes],
                keys: BTreeMap::new(),
                listeners: Vec::new(),
                members: Vec::new(),
                asked: BTreeMap::new(),
                next: 0,
                replies: BTreeMap::new(),
                copies: Vec::new(),
            }),
        }
    }

    /// The same service, whose messages have at most this many bytes.
    pub fn with_messages_of(mut self, max_message_bytes: usize) -> Self {
        self.max_message_bytes = max_message_bytes;
        self
    }

    /// The messages of a lane.
    pub fn lane(&self, lane: usize) -> Vec<Arc<Vec<u8>>> {
        self.state.lock().unpoisoned().lanes[lane].clone()
    }

    /// The place up to which the messages of a lane are removed.
    pub fn purged(&self, lane: usize) -> Place {
        Place(self.state.lock().unpoisoned().purged[lane] as u64)
    }

    /// Appends a message without a condition, at once.
    pub fn put(&self, lane: usize, message: Vec<u8>) {
        self.state.lock().unpoisoned().lanes[lane].push(Arc::new(message));
    }

    /// Loses the messages of a lane behind a place, as a service that breaks its promise.
    pub fn lose_behind(&self, lane: usize, place: Place) {
        self.state.lock().unpoisoned().lanes[lane].truncate(place.0 as usize);
    }

    /// Carries out all copies of requests that are still under way.
    pub fn settle(&self) {
        let mut state = self.state.lock().unpoisoned();
        while let Some(copy) = state.copies.pop() {
            state.carry_out(&copy, self.faults);
        }
    }
}

impl LogService for SimulatedLog {
    fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    fn begin(&self, request: Request) -> RequestId {
        let (mut state, faults) = (self.state.lock().unpoisoned(), self.faults);
        state.carry_out_a_copy(faults);
        let id = RequestId(state.next);
        state.next += 1;
        if let Request::Ask { node, question } = &request {
            if state.rng.f64() < faults.lost_requests || !state.ask(id, node, question) {
                state.asked.remove(&id);
                state.replies.insert(id, Reply::Silence);
            }
            return id;
        }
        if state.rng.f64() < faults.late_copies {
            state.copies.push(request.clone());
        }
        let reply = if state.rng.f64() < faults.lost_requests {
            Reply::Silence
        } else {
            let reply = state.carry_out(&request, faults);
            if state.rng.f64() < faults.lost_replies { Reply::Silence } else { reply }
        };
        state.replies.insert(id, reply);
        id
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        let asked = self.state.lock().unpoisoned().asked.get(&request).cloned();
        if let Some(asked) = asked {
            for _ in 0..PATIENT_LOOKS {
                if let Some(answer) = asked.lock().unpoisoned().take() {
                    self.state.lock().unpoisoned().asked.remove(&request);
                    return Some(Reply::Told(Arc::new(answer)));
                }
                if !wait {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            self.state.lock().unpoisoned().asked.remove(&request);
            return Some(Reply::Silence);
        }
        let mut state = self.state.lock().unpoisoned();
        state.carry_out_a_copy(self.faults);
        if !wait && state.rng.f64() < self.faults.delays {
            return None;
        }
        state.replies.remove(&request)
    }

    fn broadcast(&self, message: Vec<u8>) {
        let mut state = self.state.lock().unpoisoned();
        if state.rng.f64() >= self.faults.lost_requests {
            // A listener that is gone or slow misses the message.
            state.listeners.iter().for_each(|listener| _ = listener.try_send(message.clone()));
        }
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        let (sender, receiver) = sync_channel(LISTENED);
        self.state.lock().unpoisoned().listeners.push(sender);
        receiver
    }

    fn questions(&self, node: &str) -> Receiver<Question> {
        let (sender, receiver) = sync_channel(LISTENED);
        self.state.lock().unpoisoned().members.push((node.to_owned(), sender));
        receiver
    }
}
