//! A life of a server without sockets and threads: clients send requests, a turn is run here and a
//! stream written there, in an order that follows from the seed, until a crash.

use super::client::{Fault, Then, TortureClient};
use super::model::{ClientTransaction, Model};
use super::reply::{Answer, encode};
use super::script::{CHANNEL, Script};
use crate::checkpoints::CheckpointCounts;
use fastrand::Rng;
use hyades_platform::clock;
use hyades_server::torture::SteppedServer;
use std::collections::BTreeMap;

/// A client that receives messages.
struct Listener {
    number: usize,
    bytes: Vec<u8>,
    /// The last message of each sender.
    last: BTreeMap<usize, u64>,
}

/// How a life goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    On,
    /// The log has failed.
    LogFailed,
}

/// The errors of a life, whatever will be recovered.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    pub replies: Vec<String>,
    pub order: Vec<String>,
    pub late: Vec<String>,
}

/// Events, with their counts.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// A life.
pub(crate) struct ClientLife<'l> {
    pub server: SteppedServer,
    pub model: &'l mut Model,
    complaints: Complaints,
    checkpoints: CheckpointCounts,
    rng: Rng,
    script: &'l mut Script,
    loops: usize,
    clients: Vec<TortureClient>,
    listeners: Vec<Listener>,
    /// The events of the clients, with their counts.
    counts: Counts,
    /// For each stream, one in this number of opportunities to write is used.
    lazy: Vec<u32>,
    takes_checkpoints: bool,
}

/// Most requests of a client sent and not yet run.
const MOST_ASKED: usize = 24;

/// The time of this thread.
pub(crate) fn now_ms() -> i64 {
    clock::wall_ms() as i64
}

fn pass_time(rng: &mut Rng) {
    let longest = if rng.u32(0..60) == 0 { 1_500_000_000 } else { 2_000_000 };
    clock::simulate(Some(clock::monotonic_ns() + rng.u64(1..longest)));
}

impl<'l> ClientLife<'l> {
    /// A new life.
    pub fn new(
        server: SteppedServer,
        model: &'l mut Model,
        script: &'l mut Script,
        loops: usize,
        mut rng: Rng,
    ) -> ClientLife<'l> {
        let streams = server.database().log().map_or(0, |log| log.streams());
        let lazy = (0..streams).map(|_| [1, 2, 8, 40][rng.usize(0..4)]).collect();
        let takes_checkpoints = rng.bool();
        let mut life = ClientLife {
            server,
            model,
            complaints: Complaints::default(),
            checkpoints: CheckpointCounts::default(),
            rng,
            script,
            loops,
            clients: Vec::new(),
            listeners: Vec::new(),
            counts: BTreeMap::new(),
            lazy,
            takes_checkpoints,
        };
        for _ in 0..life.rng.usize(1..8) {
            let client = life.connect();
            life.clients.push(client);
        }
        for _ in 0..2 {
            let number = life.server.connect(life.rng.usize(0..loops));
            let mut bytes = Vec::new();
            encode(&["SUBSCRIBE".to_string(), CHANNEL.to_string()], &mut bytes);
            life.server.feed(number, &bytes);
            life.server.run(number);
            life.listeners.push(Listener { number, bytes: Vec::new(), last: BTreeMap::new() });
        }
        life
    }

    fn connect(&mut self) -> TortureClient {
        TortureClient::new(self.server.connect(self.rng.usize(0..self.loops)))
    }

    fn complain(&mut self, fault: Fault) {
        let (is_order, text) = fault.into_parts();
        let all = if is_order { &mut self.complaints.order } else { &mut self.complaints.replies };
        all.push(text);
    }

    /// Whether nothing was wrong so far.
    pub fn is_sound(&self) -> bool {
        let Complaints { replies, order, late } = &self.complaints;
        replies.is_empty() && order.is_empty() && late.is_empty()
    }

    /// Runs a number of steps, or until the log fails.
    pub fn run(&mut self, steps: usize) -> Goes {
        for _ in 0..steps {
            pass_time(&mut self.rng);
            if self.step() == Goes::LogFailed {
                return Goes::LogFailed;
            }
            if !self.is_sound() {
                break;
            }
        }
        Goes::On
    }

    fn step(&mut self) -> Goes {
        let at = self.rng.usize(0..self.clients.len());
        match self.rng.u32(0..64) {
            0..20 => self.ask(at),
            20..40 => return self.turn(at),
            40..50 => {
                let stream = self.rng.usize(0..self.lazy.len());
                if self.rng.u32(0..self.lazy[stream]) == 0 {
                    self.write_log(stream);
                }
            }
            50..55 => {
                let event_loop = self.rng.usize(0..self.loops);
                return self.drain(event_loop);
            }
            55..60 => {
                self.send(at);
            }
            60..62 => self.listen(),
            62 => self.seldom(at),
            _ => return self.house_keeping(),
        }
        Goes::On
    }

    fn write_log(&mut self, stream: usize) {
        if let Some(log) = self.server.database().log() {
            log.step(stream);
        }
    }

    /// Writes the whole log.
    pub fn write_all(&mut self) {
        if let Some(log) = self.server.database().log() {
            while (0..log.streams()).any(|stream| log.step(stream)) {}
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Adds the events of a client.
    fn add_counts(&mut self, at: usize) {
        for (what, times) in std::mem::take(&mut self.clients[at].counts) {
            *self.counts.entry(what).or_default() += times;
        }
    }

    /// A client sends some requests, perhaps in two parts.
    fn ask(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.asked.len() >= MOST_ASKED {
            return;
        }
        while client.planned.len() < 4 {
            client.plan(self.script.scene(now_ms()));
        }
        let mut bytes = Vec::new();
        for _ in 0..self.rng.usize(1..6).min(client.planned.len()) {
            let request = client.planned.pop_front().expect("it was counted");
            encode(&request.1, &mut bytes);
            client.asked.push_back(request);
        }
        let cut = self.rng.usize(0..bytes.len());
        self.server.feed(client.number, &bytes[..cut]);
        self.server.feed(client.number, &bytes[cut..]);
    }

    /// A turn of a client on its loop.
    fn turn(&mut self, at: usize) -> Goes {
        let number = self.clients[at].number;
        if !self.server.has_work(number) {
            return Goes::On;
        }
        let has_waited = self.server.is_blocked(number);
        let turn = self.server.run(number);
        if has_waited && !turn.replies.is_empty() {
            self.count("clients: waited, and went on");
        }
        if turn.is_paused {
            self.count("the log had no room");
            self.write_all();
        }
        let ran = self.clients[at].ran(self.model, &turn.replies, &turn.marks, now_ms());
        match ran {
            Err(fault) => self.complain(fault),
            Ok(all) => {
                for then in all {
                    match then {
                        Then::Nothing => {}
                        Then::LogFailed => return Goes::LogFailed,
                        Then::Unblocked(id) => self.unblocked(id),
                    }
                }
            }
        }
        Goes::On
    }

    fn unblocked(&mut self, id: u64) {
        for at in 0..self.clients.len() {
            if self.server.id(self.clients[at].number) == id {
                self.clients[at].is_unblocked = true;
            }
        }
    }

    /// A loop frees replies.
    fn drain(&mut self, event_loop: usize) -> Goes {
        match self.server.drain(event_loop) {
            Err(_) => Goes::LogFailed,
            Ok(freed) => {
                for (number, mark) in freed {
                    if let Some(client) =
                        self.clients.iter_mut().find(|client| client.number == number)
                    {
                        client.acknowledged(mark);
                    }
                }
                Goes::On
            }
        }
    }

    /// Sends a client all bytes that may be sent.
    fn send(&mut self, at: usize) {
        let bytes = self.server.output(self.clients[at].number);
        let log_failed = self.server.database().log().is_some_and(|log| log.poisoned().is_some());
        let heard = self.clients[at].hear(self.model, &bytes, log_failed);
        if let Err(fault) = heard {
            self.complain(fault);
        }
    }

    /// Sends all clients all bytes that may be sent.
    pub fn send_all(&mut self) {
        (0..self.clients.len()).for_each(|at| self.send(at));
        self.listen();
    }

    /// A message tells that all earlier transactions of its sender are on disk.
    fn listen(&mut self) {
        for at in 0..self.listeners.len() {
            let number = self.listeners[at].number;
            self.server.run(number);
            let bytes = self.server.output(number);
            self.listeners[at].bytes.extend_from_slice(&bytes);
            while let Some((answer, length)) = Answer::parse(&self.listeners[at].bytes) {
                self.listeners[at].bytes.drain(..length);
                let texts = answer.texts();
                if texts.first().is_some_and(|kind| kind == "message") {
                    self.hear(at, &texts[2]);
                }
            }
        }
    }

    fn hear(&mut self, at: usize, message: &str) {
        self.count("messages heard");
        let (client, number) = message.split_once(':').expect("it names its sender");
        let client: usize = client.parse().expect("it is a number");
        let number: u64 = number.parse().expect("it is a number");
        let last = self.listeners[at].last.insert(client, number);
        if last.is_some_and(|last| last > number) {
            let text = format!("message {number} of client {client} came after {last:?}");
            self.complaints.order.push(text);
        }
        let is_before =
            |earlier: &ClientTransaction| earlier.client == client && earlier.number <= number;
        for transaction in self.model.transactions.iter_mut().filter(|earlier| is_before(earlier)) {
            transaction.is_told = true;
        }
    }

    /// A client goes and another comes, or a client ends the waiting of another.
    fn seldom(&mut self, at: usize) {
        if self.rng.u32(0..3) == 0 {
            // Bytes that the client might have received before.
            self.send(at);
            self.add_counts(at);
            self.count("clients: gone, and others came");
            self.server.disconnect(self.clients[at].number);
            self.clients[at] = self.connect();
            return;
        }
        let other = self.rng.usize(0..self.clients.len());
        let id = self.server.id(self.clients[other].number);
        let how = ["TIMEOUT", "ERROR"][self.rng.usize(0..2)];
        let request = format!("CLIENT UNBLOCK {id} {how}");
        let is_planning = self.clients[at].planned.is_empty();
        if is_planning && other != at {
            self.clients[at].plan(vec![request.split(' ').map(str::to_string).collect()]);
        }
    }

    /// Removes expired data, or garbage; or takes a checkpoint.
    fn house_keeping(&mut self) -> Goes {
        match self.rng.u32(0..8) {
            0 if self.takes_checkpoints => self.checkpoints.take_stepped(self.server.database()),
            0..3 => {}
            kind => {
                // The server would wait for room.
                self.write_all();
                if self.server.reap(kind < 6).is_err() {
                    return Goes::LogFailed;
                }
            }
        }
        Goes::On
    }

    /// The parts of the life, with the events of all clients.
    pub fn into_parts(mut self) -> (SteppedServer, Complaints, CheckpointCounts, Counts) {
        (0..self.clients.len()).for_each(|at| self.add_counts(at));
        let ClientLife { server, complaints, checkpoints, counts, .. } = self;
        (server, complaints, checkpoints, counts)
    }

    /// Runs all requests, and sends all replies. A reply not received then is late.
    pub fn settle(&mut self) -> Goes {
        loop {
            let mut has_run = false;
            for at in 0..self.clients.len() {
                if self.server.has_work(self.clients[at].number) {
                    has_run = true;
                    if self.turn(at) == Goes::LogFailed {
                        return Goes::LogFailed;
                    }
                }
            }
            self.write_all();
            for event_loop in 0..self.loops {
                if self.drain(event_loop) == Goes::LogFailed {
                    return Goes::LogFailed;
                }
            }
            self.send_all();
            if !self.is_sound() {
                return Goes::On;
            }
            // Sent bytes make room for the replies of a client that has run nothing.
            let has_work = (0..self.clients.len()).any(|at| {
                let number = self.clients[at].number;
                self.server.has_work(number)
            });
            if !has_run && !has_work {
                break;
            }
        }
        for client in &self.clients {
            if !client.is_told_all() {
                let text = format!("client {} does not get its replies", client.number);
                self.complaints.late.push(text);
            }
            if let Some(request) = client.could_go_on(self.model, now_ms()) {
                let text = format!("client {} waits, and could go on: {request}", client.number);
                self.complaints.late.push(text);
            }
        }
        Goes::On
    }
}
