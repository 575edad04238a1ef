//! A simulated log service in simulated time: requests arrive late, and so do replies; both are
//! lost, and requests are repeated; members are cut off in one direction or both; lanes and keys
//! are without a leader for a time.
//!
//! One thread runs the whole cluster. A member that waits for an answer lets time pass, and the
//! other members go on meanwhile ([`meanwhile`](super::cluster::meanwhile)).

mod lies;

use super::cluster;
use super::time::SimTime;
use super::witness::Witnesses;
use fastrand::Rng;
use hyades_platform::sync::Unpoisoned;
use hyades_replication::service::{Question, Revision, Versioned};
use hyades_replication::{LogService, Place, Reply, Request, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// A millisecond.
pub(super) const MS: u64 = 1_000_000;
/// When a request counts as not answered.
const TIME_OUT_NS: u64 = 1_000 * MS;
/// Broadcasts kept for a listener.
const LISTENED: usize = 64;
const MESSAGE_BYTES: usize = 64 << 10;

/// How often the service misbehaves, as shares of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetFaults {
    /// Requests, and replies, that are lost.
    pub lost: f64,
    /// Requests of which a copy arrives later.
    pub copies: f64,
    /// Looks at a lane that show an earlier time.
    pub old_looks: f64,
    /// Requests and replies that take up to twice the lease.
    pub slow: f64,
    /// Requests before which the member's thread rests for a time.
    pub rests: f64,
}

/// A process of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub member: usize,
    pub number: u64,
}

enum Event {
    /// `reply_to`: `None` for a copy.
    Arrives {
        from: Process,
        reply_to: Option<RequestId>,
        request: Request,
    },
    Replies {
        to: Process,
        request: RequestId,
        reply: Reply,
    },
    TimesOut(RequestId),
    /// A member is asked.
    Asked {
        from: Process,
        request: RequestId,
        member: usize,
        question: Arc<Vec<u8>>,
    },
    Broadcast {
        to: usize,
        message: Vec<u8>,
    },
}

struct MarkListener {
    process: Process,
    sender: SyncSender<Vec<u8>>,
}

/// A member that answers questions.
struct AskedMember {
    process: Process,
    sender: SyncSender<Question>,
}

/// An answer of a member that is to be on its way.
struct Answered {
    to: Process,
    request: RequestId,
    from: usize,
    bytes: Vec<u8>,
}

/// How the log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Lanes lose their last messages.
    Tail,
    /// A lane loses a message in the middle.
    Hole,
}

/// The state of the service.
pub(super) struct Net {
    rng: Rng,
    pub faults: NetFaults,
    term_ns: u64,
    events: BTreeMap<(u64, u64), Event>,
    order: u64,
    /// Lost messages leave their places.
    lanes: Vec<Vec<Option<Arc<Vec<u8>>>>>,
    /// By lane, how many messages are purged: they are kept for the witnesses alone.
    purged: Vec<usize>,
    keys: BTreeMap<String, Versioned>,
    open: BTreeSet<RequestId>,
    replies: BTreeMap<RequestId, Reply>,
    listeners: Vec<MarkListener>,
    members: Vec<AskedMember>,
    answered: Arc<Mutex<Vec<Answered>>>,
    /// By member, the number of the living process.
    pub processes: Vec<u64>,
    /// By member, until when nothing comes from, and to, the member.
    pub cut_until: Vec<[u64; 2]>,
    /// By lane, and at last of the keys, until when there is no leader.
    pub leaderless_until: Vec<u64>,
    pub witnesses: Witnesses,
    /// Whether the log has lied so that members may stop.
    pub has_lied: Option<Lie>,
    /// The log has lost a seal that was confirmed: nothing fences the writer of before.
    pub has_lost_seal: bool,
    /// Requests carried out; requests and replies lost; copies; old looks; purges; questions.
    pub counts: [u64; 6],
    digest: DefaultHasher,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Net {
    pub fn new(seed: u64, lanes: usize, members: usize, faults: NetFaults, term_ns: u64) -> Net {
        Net {
            rng: Rng::with_seed(seed),
            faults,
            term_ns,
            events: BTreeMap::new(),
            order: 0,
            lanes: vec![Vec::new(); lanes],
            purged: vec![0; lanes],
            keys: BTreeMap::new(),
            open: BTreeSet::new(),
            replies: BTreeMap::new(),
            listeners: Vec::new(),
            members: Vec::new(),
            answered: Arc::default(),
            processes: vec![0; members],
            cut_until: vec![[0; 2]; members],
            leaderless_until: vec![0; lanes + 1],
            witnesses: Witnesses::default(),
            has_lied: None,
            has_lost_seal: false,
            counts: [0; 6],
            digest: DefaultHasher::new(),
        }
    }

    /// Notes an event in the digest of the history.
    pub fn note(&mut self, event: impl Hash) {
        event.hash(&mut self.digest);
    }

    /// The digest of all events so far.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    fn is_living(&self, process: Process) -> bool {
        self.processes[process.member] == process.number
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn delay(&mut self) -> u64 {
        if self.rng.f64() < self.faults.slow {
            return self.rng.u64(MS..self.term_ns * 2);
        }
        match self.rng.u32(..100) {
            0..92 => self.rng.u64(MS / 20..MS),
            _ => self.rng.u64(MS..40 * MS),
        }
    }

    fn is_lost(&mut self) -> bool {
        let is_lost = self.rng.f64() < self.faults.lost;
        self.counts[1] += u64::from(is_lost);
        is_lost
    }

    fn begin(&mut self, now: u64, from: Process, request: Request) -> RequestId {
        self.order += 1;
        let id = RequestId(self.order);
        self.open.insert(id);
        self.schedule(now + TIME_OUT_NS, Event::TimesOut(id));
        if let Request::Ask { node, question } = &request {
            let member = node.trim_start_matches('n').parse().unwrap_or(0);
            if !self.is_lost() && self.cut_until[from.member][0] <= now {
                let at = now + self.delay();
                let question = question.clone();
                self.schedule(at, Event::Asked { from, request: id, member, question });
            }
            return id;
        }
        if self.rng.f64() < self.faults.copies {
            self.counts[2] += 1;
            let at = now + self.rng.u64(..self.term_ns * 4);
            let request = request.clone();
            self.schedule(at, Event::Arrives { from, reply_to: None, request });
        }
        if !self.is_lost() && self.cut_until[from.member][0] <= now {
            let at = now + self.delay();
            self.schedule(at, Event::Arrives { from, reply_to: Some(id), request });
        }
        id
    }

    /// The time of the next event.
    fn next_event(&self) -> Option<u64> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Carries out all events up to `now`.
    pub fn advance(&mut self, now: u64) {
        let answered: Vec<Answered> = self.answered.lock().unpoisoned().drain(..).collect();
        for Answered { to, request, from, bytes } in answered {
            if !self.is_lost() && self.cut_until[from][0].max(self.cut_until[to.member][1]) <= now {
                let at = now + self.delay();
                let reply = Reply::Told(Arc::new(bytes));
                self.schedule(at, Event::Replies { to, request, reply });
            }
        }
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), event) = entry.remove_entry();
            self.happens(at, event);
        }
    }

    fn happens(&mut self, at: u64, event: Event) {
        match event {
            Event::Arrives { from, reply_to, request } => {
                let Some(reply) = self.carry_out(at, from, &request) else { return };
                self.counts[0] += 1;
                let Some(id) = reply_to else { return };
                if !self.is_lost() && self.cut_until[from.member][1] <= at {
                    let at = at + self.delay();
                    self.schedule(at, Event::Replies { to: from, request: id, reply });
                }
            }
            Event::Replies { to, request, reply } => {
                if self.is_living(to) && self.open.remove(&request) {
                    self.replies.insert(request, reply);
                }
            }
            Event::TimesOut(request) => {
                if self.open.remove(&request) {
                    self.replies.insert(request, Reply::Silence);
                }
            }
            Event::Asked { from, request, member, question } => {
                let living = &self.processes;
                self.members.retain(|m| living[m.process.member] == m.process.number);
                let asked = self.members.iter().rev().find(|m| m.process.member == member);
                if self.cut_until[member][1] <= at
                    && let Some(asked) = asked
                {
                    let answered = Arc::clone(&self.answered);
                    let question = Question::new(question.to_vec(), move |bytes| {
                        let answer = Answered { to: from, request, from: member, bytes };
                        answered.lock().unpoisoned().push(answer);
                    });
                    self.counts[5] += 1;
                    // A member that is slow misses the question.
                    let _ = asked.sender.try_send(question);
                }
            }
            Event::Broadcast { to, message } => {
                let living = &self.processes;
                self.listeners.retain(|l| living[l.process.member] == l.process.number);
                if self.cut_until[to][1] <= at {
                    let listeners = self.listeners.iter().filter(|l| l.process.member == to);
                    // A listener that is gone or slow misses the message.
                    listeners.for_each(|l| _ = l.sender.try_send(message.clone()));
                }
            }
        }
    }

    /// `None`: the request is lost.
    fn carry_out(&mut self, at: u64, from: Process, request: &Request) -> Option<Reply> {
        let (is_look, place) = match request {
            Request::Append { lane, .. } => (false, *lane),
            Request::Read { lane, .. } => (true, *lane),
            Request::Purge { lane, .. } => (false, *lane),
            Request::Get { .. } | Request::Put { .. } | Request::Ask { .. } => {
                (false, self.lanes.len())
            }
        };
        // Without a leader a look is answered by another node at most.
        let is_leaderless = self.leaderless_until[place] > at;
        if is_leaderless && !(is_look && self.rng.bool()) {
            return None;
        }
        let reply = match request {
            Request::Append { lane, after, message } => {
                let end = self.lanes[*lane].len() as u64;
                if after.is_some_and(|after| after.0 != end) {
                    Reply::Refused
                } else {
                    self.lanes[*lane].push(Some(message.clone()));
                    Reply::Appended(Place(end + 1))
                }
            }
            Request::Read { lane, behind } => {
                let all = &self.lanes[*lane];
                let from = behind.0 as usize;
                if from > all.len() {
                    return Some(Reply::Short(Place(all.len() as u64)));
                }
                let mut to = all.len();
                if is_leaderless || self.rng.f64() < self.faults.old_looks {
                    self.counts[3] += 1;
                    to = self.rng.usize(from..=to);
                }
                let message = |place: usize| Some((Place(place as u64 + 1), all[place].clone()?));
                let from = from.max(self.purged[*lane]);
                Reply::Messages((from..to).filter_map(message).collect())
            }
            Request::Purge { lane, through } => {
                let through = (through.0 as usize).min(self.lanes[*lane].len());
                self.counts[4] += u64::from(through > self.purged[*lane]);
                self.purged[*lane] = self.purged[*lane].max(through);
                Reply::Purged
            }
            Request::Ask { .. } => return None,
            Request::Get { key } => Reply::Value(self.keys.get(key).cloned()),
            Request::Put { key, after, value } => {
                let newest = self.keys.get(key).map_or(Revision::NONE, |(newest, _)| *newest);
                if newest != *after {
                    Reply::Refused
                } else {
                    let next = Revision(newest.0 + 1);
                    self.keys.insert(key.clone(), (next, value.clone()));
                    let lies = self.has_lied.is_some();
                    self.witnesses.put((from.member, key), value, &self.lanes, lies);
                    Reply::Put(next)
                }
            }
        };
        let kind = std::mem::discriminant(&reply);
        (at, from, place, kind, self.lanes.iter().map(Vec::len).sum::<usize>())
            .hash(&mut self.digest);
        Some(reply)
    }

    /// Whether the key `holds` has a place of each member.
    pub fn has_all_places(&self) -> bool {
        let Some((_, value)) = self.keys.get("holds") else { return false };
        let Ok(holds) = serde_json::from_slice::<serde_json::Value>(value) else { return false };
        (0..self.processes.len()).all(|member| {
            let places = holds["members"][format!("n{member}")]["places"].as_array();
            places.is_some_and(|places| !places.is_empty())
        })
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.faults = NetFaults { old_looks: self.faults.old_looks, ..NetFaults::default() };
        self.cut_until.iter_mut().for_each(|cut| *cut = [0; 2]);
        self.leaderless_until.fill(0);
    }
}

/// The service as a process of a member reaches it.
#[derive(Debug)]
pub(super) struct SimService {
    pub net: Arc<Mutex<Net>>,
    pub time: Arc<SimTime>,
    pub process: Process,
}

impl SimService {
    fn rest(&self) {
        let until = {
            let mut net = self.net.lock().unpoisoned();
            let rests = net.faults.rests > 0.0 && net.rng.f64() < net.faults.rests;
            let most = net.term_ns * 2;
            rests.then(|| self.time.now() + net.rng.u64(..most))
        };
        while let Some(until) = until.filter(|until| self.time.now() < *until) {
            if !cluster::meanwhile() {
                self.time.pass_until(until);
            }
        }
    }
}

impl LogService for SimService {
    fn max_message_bytes(&self) -> usize {
        MESSAGE_BYTES
    }

    fn begin(&self, request: Request) -> RequestId {
        self.rest();
        let now = self.time.now();
        let mut net = self.net.lock().unpoisoned();
        net.advance(now);
        if net.is_living(self.process) {
            net.begin(now, self.process, request)
        } else {
            RequestId(0)
        }
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        loop {
            let now = self.time.now();
            let next = {
                let mut net = self.net.lock().unpoisoned();
                net.advance(now);
                if !net.is_living(self.process) {
                    return Some(Reply::Gone("the process was killed".into()));
                }
                if let Some(reply) = net.replies.remove(&request) {
                    return Some(reply);
                }
                if !wait {
                    return None;
                }
                if !net.open.contains(&request) {
                    return Some(Reply::Silence);
                }
                net.next_event()
            };
            if !cluster::meanwhile() {
                // The request times out, at the latest.
                self.time.pass_until(next.expect("an open request has its time-out"));
            }
        }
    }

    fn broadcast(&self, message: Vec<u8>) {
        let now = self.time.now();
        let mut net = self.net.lock().unpoisoned();
        if !net.is_living(self.process) || net.cut_until[self.process.member][0] > now {
            return;
        }
        for to in 0..net.processes.len() {
            if !net.is_lost() {
                let at = now + net.delay();
                net.schedule(at, Event::Broadcast { to, message: message.clone() });
            }
        }
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        let (sender, receiver) = sync_channel(LISTENED);
        self.net.lock().unpoisoned().listeners.push(MarkListener { process: self.process, sender });
        receiver
    }

    fn questions(&self, _node: &str) -> Receiver<Question> {
        let (sender, receiver) = sync_channel(LISTENED);
        self.net.lock().unpoisoned().members.push(AskedMember { process: self.process, sender });
        receiver
    }
}
