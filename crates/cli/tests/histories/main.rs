//! Histories of clients through sockets: several connections to `hyades serve` on all its loops,
//! which is killed by SIGKILL in between. The requests and replies of all clients, with their
//! times, must have an order: the calls on each key are linearizable, and the transactions of MULTI
//! over several lists are strictly serializable. Operations under way at a kill may have taken
//! effect or not.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod checker_tests;
#[cfg(feature = "replication")]
mod failovers;
mod linearizable;
mod objects;
#[path = "../common/process.rs"]
mod process;
mod wire;

use fastrand::Rng;
use hyades_simulator::isolation::graph::check;
use hyades_simulator::isolation::{End, Observed, Op, Order};
use linearizable::Call;
use objects::{AnyOperation, are_linearizable};
use process::Process;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::{Caller, Reply};

const CLIENTS: usize = 6;

/// Calls on a key: the search for an order takes longer than in proportion.
const CALLS_ON_A_KEY: u64 = 150;

/// The number of lists from which a transaction uses some.
const LISTS: u64 = 4;

/// Transactions on some lists: each reads the lists whole.
const TRANSACTIONS_ON_LISTS: u64 = 100;

/// Connects to the server of the moment, if there is one.
type Connect<'a> = &'a (dyn Fn(&mut Rng) -> Option<Caller> + Sync);

/// The shared state of the clients of an episode.
struct Episode<'a> {
    rng_seed: u64,
    began: Instant,
    connect: Connect<'a>,
    /// A server may refuse a request, of which nothing was done, since another one serves.
    may_refuse: bool,
    is_over: AtomicBool,
    /// Counts calls of each kind, and transactions.
    counts: [AtomicU64; 4],
    values: AtomicU64,
    sessions: AtomicU64,
}

/// The observations of a client.
#[derive(Default)]
struct Seen {
    calls: BTreeMap<String, Vec<Call<AnyOperation, Reply>>>,
    transactions: Vec<Observed>,
}

/// The outcome of a request.
enum Attempt {
    Replied(Reply),
    /// Nothing of it was done.
    Refused,
    /// The server is gone.
    Lost,
}

/// Errors of servers that have done nothing of a request.
const REFUSALS: [&str; 6] =
    ["READONLY", "LOADING", "MASTERDOWN", "TRYAGAIN", "EXECABORT", "UNBLOCKED"];

impl<'a> Episode<'a> {
    /// An episode whose keys are none of those before `counts`.
    fn new(rng_seed: u64, connect: Connect<'a>, counts: [u64; 4]) -> Episode<'a> {
        Episode {
            rng_seed,
            began: Instant::now(),
            connect,
            may_refuse: false,
            is_over: AtomicBool::new(false),
            counts: counts.map(AtomicU64::new),
            values: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
        }
    }

    /// The time, later at each call of a thread than at any call before.
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn value(&self) -> u64 {
        self.values.fetch_add(1, SeqCst) + 1
    }

    fn connect(&self, rng: &mut Rng) -> Option<Caller> {
        while !self.is_over.load(SeqCst) {
            if let Some(caller) = (self.connect)(rng) {
                return Some(caller);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    fn attempt(&self, caller: &mut Caller, commands: &[String]) -> Attempt {
        match caller.attempt(commands) {
            Ok(Ok(reply)) => Attempt::Replied(reply),
            Ok(Err(line)) if line.starts_with("OUTCOMEUNKNOWN") => Attempt::Lost,
            Ok(Err(line)) => {
                let is_refusal = REFUSALS.iter().any(|word| line.starts_with(word));
                assert!(self.may_refuse && is_refusal, "an error was replied: {line}");
                Attempt::Refused
            }
            Err(_) => Attempt::Lost,
        }
    }

    /// A client, until the episode is over.
    fn client(&self, number: usize) -> Seen {
        let mut rng = Rng::with_seed(self.rng_seed + number as u64);
        let mut seen = Seen::default();
        while let Some(mut caller) = self.connect(&mut rng) {
            let session = self.sessions.fetch_add(1, SeqCst) as usize;
            // Until the server is gone.
            while !self.is_over.load(SeqCst) {
                let kind = rng.usize(0..4);
                let goes_on = match kind {
                    3 => self.transact(&mut caller, session, &mut rng, &mut seen),
                    _ => self.call(&mut caller, kind, &mut rng, &mut seen),
                };
                if !goes_on {
                    break;
                }
            }
        }
        seen
    }

    /// An operation on a key. False if the server is gone.
    fn call(&self, caller: &mut Caller, kind: usize, rng: &mut Rng, seen: &mut Seen) -> bool {
        let n = self.counts[kind].fetch_add(1, SeqCst);
        let key = format!("{}{}", ["r", "s", "q"][kind], n / CALLS_ON_A_KEY);
        let operation = AnyOperation::random(kind, rng, self.value() as i64);
        let invoked = self.now();
        let returned = match self.attempt(caller, &[operation.command(&key)]) {
            Attempt::Replied(reply) => Some((self.now(), operation.shorten(reply))),
            Attempt::Refused => return false,
            Attempt::Lost => None,
        };
        let goes_on = returned.is_some();
        seen.calls.entry(key).or_default().push(Call { invoked, returned, operation });
        goes_on
    }

    /// Appends to some lists and reads some, between MULTI and EXEC. False if the server is gone.
    fn transact(
        &self,
        caller: &mut Caller,
        session: usize,
        rng: &mut Rng,
        seen: &mut Seen,
    ) -> bool {
        let first = self.counts[3].fetch_add(1, SeqCst) / TRANSACTIONS_ON_LISTS * LISTS;
        let mut ops = Vec::new();
        for _ in 0..rng.usize(1..5) {
            let key = first + rng.u64(0..LISTS);
            ops.push(match rng.bool() {
                true => Op::Append { key, value: self.value() },
                false => Op::List { key, saw: Vec::new() },
            });
        }
        let invoked = self.now();
        let end = match self.attempt(caller, &block(&ops)) {
            Attempt::Replied(reply) => {
                fill_in(&mut ops, reply);
                End::Acknowledged(self.now())
            }
            Attempt::Refused => return false,
            Attempt::Lost => {
                ops.retain(|op| matches!(op, Op::Append { .. }));
                End::Unknown
            }
        };
        let goes_on = end != End::Unknown;
        seen.transactions.push(Observed { life: 0, session, invoked, end, ops });
        goes_on
    }
}

/// The commands of a transaction.
fn block(ops: &[Op]) -> Vec<String> {
    let commands = ops.iter().map(|op| match op {
        Op::Append { key, value } => format!("RPUSH t{key} {value}"),
        Op::List { key, .. } => format!("LRANGE t{key} 0 -1"),
        _ => unreachable!("there are lists only"),
    });
    let mut all = vec!["MULTI".to_string()];
    all.extend(commands);
    all.push("EXEC".to_string());
    all
}

/// Fills in the values read.
fn fill_in(ops: &mut [Op], reply: Reply) {
    let Reply::Array(replies) = reply else { panic!("EXEC replied {reply:?}") };
    assert_eq!(replies.len(), ops.len(), "{replies:?}");
    for (op, reply) in ops.iter_mut().zip(replies) {
        let Op::List { saw, .. } = op else { continue };
        let Reply::Array(all) = reply else { panic!("LRANGE replied {reply:?}") };
        *saw = all.into_iter().map(value_of).collect();
    }
}

fn value_of(reply: Reply) -> u64 {
    match reply {
        Reply::Text(text) => text.parse().expect("it is a number"),
        other => panic!("a list holds {other:?}"),
    }
}

/// Several lives of a server, with clients that go on after each kill. Returns the observations,
/// and at last all lists.
fn run(seed: u64, kills: usize) -> Seen {
    let dir = tempfile::tempdir_in(if std::path::Path::new("/dev/shm").exists() {
        "/dev/shm".into()
    } else {
        std::env::temp_dir()
    })
    .unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut server = Process::start(dir.path());
    let address = Mutex::new(server.address.clone());
    let connect = |_: &mut Rng| {
        let address = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Caller::connect(&address).ok()
    };
    let episode = Episode::new(seed, &connect, [0; 4]);
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let episode = &episode;
                scope.spawn(move || episode.client(number))
            })
            .collect();
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(rng.u64(20..300)));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            server = Process::start(dir.path());
            address.lock().unwrap().clone_from(&server.address);
        }
        std::thread::sleep(Duration::from_millis(rng.u64(20..300)));
        episode.is_over.store(true, SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let mut seen = Seen::of_all(all);
    seen.read_all(&episode, &mut Caller::connect(&server.address).unwrap(), 0);
    seen
}

impl Seen {
    fn of_all(all: Vec<Seen>) -> Seen {
        let mut seen = Seen::default();
        for own in all {
            for (key, calls) in own.calls {
                seen.calls.entry(key).or_default().extend(calls);
            }
            seen.transactions.extend(own.transactions);
        }
        seen
    }

    /// A further client reads all, from the first list on, so that losses show.
    fn read_all(&mut self, episode: &Episode<'_>, caller: &mut Caller, first: u64) {
        let lists = (episode.counts[3].load(SeqCst) / TRANSACTIONS_ON_LISTS + 1) * LISTS;
        let all = (first..lists).map(|key| Op::List { key, saw: Vec::new() });
        let mut ops: Vec<Op> = all.collect();
        let invoked = episode.now();
        let replies = caller.ask(&block(&ops)).unwrap();
        fill_in(&mut ops, replies);
        let end = End::Acknowledged(episode.now());
        self.transactions.push(Observed { life: 0, session: usize::MAX, invoked, end, ops });
        for (key, calls) in &mut self.calls {
            let operation = calls[0].operation.reading();
            let invoked = episode.now();
            let reply = operation.shorten(caller.ask(&[operation.command(key)]).unwrap());
            calls.push(Call { invoked, returned: Some((episode.now(), reply)), operation });
        }
    }

    /// Panics unless there is an order. Returns the number of calls.
    fn judge(&self, seed: u64) -> usize {
        for (key, called) in &self.calls {
            let mut called = called.clone();
            called.sort_by_key(|call| call.invoked);
            assert!(are_linearizable(&called), "seed {seed}: no order explains {key}: {called:#?}");
        }
        if let Err(anomaly) = check(&self.transactions, Order::RealTime) {
            panic!("seed {seed}: {}\n{}", anomaly.name, anomaly.trace);
        }
        self.calls.values().map(Vec::len).sum()
    }
}

/// A number from the environment.
fn set(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
}

/// `HYADES_HISTORIES_SECONDS` sets the time of the run, `HYADES_SEED` the first seed.
#[test]
fn what_clients_see_through_sockets_and_kills_has_an_order() {
    let (seconds, first) = (set("HYADES_HISTORIES_SECONDS", 3), set("HYADES_SEED", 1));
    let began = Instant::now();
    let (mut episodes, mut kills, mut calls, mut transactions) = (0, 0, 0, 0);
    while episodes == 0 || began.elapsed() < Duration::from_secs(seconds) {
        let seed = first + episodes;
        let own_kills = 1 + episodes as usize % 3;
        let seen = run(seed, own_kills);
        calls += seen.judge(seed);
        transactions += seen.transactions.len();
        (episodes, kills) = (episodes + 1, kills + own_kills);
    }
    println!("{episodes} episodes, {kills} kills, {calls} calls, {transactions} transactions");
    assert!(calls > 100 && transactions > 30, "little was done");
}
