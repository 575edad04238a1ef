//! Histories over failovers of a replicated database: three members over NATS servers. The
//! primary is killed, stopped for longer than its lease, or hands over. Clients find the primary by
//! SENTINEL at any member, and what they see has an order as on one server. Readers of standbys see
//! a prefix of the order, and on a connection the prefix only grows.
//!
//! HYADES_NATS names the servers, as `HOST:PORT,HOST:PORT,..`, see `scripts/nats-cluster.sh`:
//!
//! ```sh
//! export HYADES_NATS=$(scripts/nats-cluster.sh start)
//! cargo test -p hyades-cli --features replication --test histories -- --ignored
//! scripts/nats-cluster.sh stop
//! ```

use super::process::Process;
use super::wire::{Caller, Reply};
use super::{
    Attempt, CALLS_ON_A_KEY, CLIENTS, Episode, LISTS, Seen, TRANSACTIONS_ON_LISTS, block, fill_in,
    set,
};
use fastrand::Rng;
use hyades_simulator::isolation::graph::check;
use hyades_simulator::isolation::{End, Observed, Op, Order};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: usize = 3;

/// Readers of standbys.
const READERS: usize = 2;

const LEASE: Duration = Duration::from_secs(1);

/// How long a member may take to say where the primary is.
const FINDS_WITHIN: Duration = Duration::from_millis(300);

/// Within this time there is a primary again, whatever has failed.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

/// How long an impatient client waits for a reply. A patient one waits for a primary that is
/// stopped, and hears what the primary says once it goes on.
const IMPATIENT: Duration = Duration::from_millis(800);

/// How a primary ends.
#[derive(Clone, Copy, Debug)]
enum Failover {
    Killed,
    Stopped,
    HandedOver,
}

/// Three members of a replicated database.
struct Members {
    dir: TempDir,
    servers: String,
    name: String,
    addresses: Vec<String>,
    /// By member; `None` while it is killed.
    processes: Vec<Option<Process>>,
}

/// Asks a member where the primary is.
fn primary_by(address: &str, name: &str) -> Option<String> {
    let mut caller = Caller::patient(address, FINDS_WITHIN).ok()?;
    let words = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}");
    match caller.attempt(&[words]).ok()?.ok()? {
        Reply::Array(parts) => match &parts[..] {
            [Reply::Text(host), Reply::Text(port)] => Some(format!("{host}:{port}")),
            _ => None,
        },
        _ => None,
    }
}

impl Members {
    fn start(servers: String) -> Members {
        let ports: Vec<TcpListener> =
            (0..MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
        drop(ports);
        let name = format!("histories-{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let mut members = Members { dir, servers, name, addresses, processes: Vec::new() };
        for at in 0..MEMBERS {
            let process = members.process(at);
            members.processes.push(Some(process));
        }
        members
    }

    /// Starts a member. It is ready once it serves: as the primary, or as a standby.
    fn process(&self, at: usize) -> Process {
        let (address, node) = (&self.addresses[at], format!("n{at}"));
        let port = address.rsplit(':').next().unwrap();
        let log = format!("nats://{}/{}", self.servers, self.name);
        let lease = LEASE.as_secs().to_string();
        let settings = [
            ["--port", port],
            ["--replicated", &log],
            ["--node", &node],
            ["--announce", address],
            ["--lease", &lease],
        ];
        let mut program = Command::new(env!("CARGO_BIN_EXE_hyades"));
        Process::spawn(&mut program, &self.dir.path().join(&node), &settings.concat())
    }

    /// Waits for a primary that serves, and two standbys that follow. Returns the place of the
    /// primary.
    fn whole(&self) -> usize {
        let began = Instant::now();
        loop {
            let roles = self.addresses.iter().map(|address| {
                let mut caller = Caller::patient(address, FINDS_WITHIN).ok()?;
                match caller.attempt(&["INFO replication".to_string()]).ok()?.ok()? {
                    Reply::Text(text) => Some(text),
                    _ => None,
                }
            });
            let roles: Vec<String> = roles.map(Option::unwrap_or_default).collect();
            let count = |role: &str| {
                let is_so = |text: &&String| text.contains(&format!("member_role:{role}\r"));
                roles.iter().filter(is_so).count()
            };
            let primary = roles.iter().position(|text| text.contains("connected_slaves:2\r"));
            if let Some(at) = primary
                && (count("primary"), count("standby")) == (1, MEMBERS - 1)
            {
                return at;
            }
            assert!(began.elapsed() < RECOVERS_WITHIN, "the members are not whole: {roles:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has the primary fail, and waits until all are well. Returns whether another member is the
    /// primary: one that was stopped may still be, where the others were slow.
    fn fail_over(&mut self, how: Failover, rng: &mut Rng) -> bool {
        let primary = self.whole();
        let longer = LEASE + Duration::from_millis(rng.u64(300..1500));
        match how {
            Failover::Killed => {
                let mut process = self.processes[primary].take().expect("it runs");
                process.child.kill().unwrap();
                process.child.wait().unwrap();
                std::thread::sleep(longer);
                self.processes[primary] = Some(self.process(primary));
            }
            Failover::Stopped => {
                self.signal(primary, "-STOP");
                std::thread::sleep(longer);
                self.signal(primary, "-CONT");
                return self.whole() != primary;
            }
            Failover::HandedOver => {
                let mut caller = Caller::connect(&self.addresses[primary]).unwrap();
                // The reply may be lost with the connection, which the hand-over closes.
                if let Ok(Err(line)) = caller.attempt(&["FAILOVER".to_string()]) {
                    panic!("FAILOVER replied {line}");
                }
            }
        }
        let began = Instant::now();
        while self.whole() == primary {
            assert!(began.elapsed() < RECOVERS_WITHIN, "{how:?}: n{primary} is the primary again");
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    fn signal(&self, at: usize, name: &str) {
        let process = self.processes[at].as_ref().expect("it runs");
        let id = process.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

/// Connects to the primary, found at a member of the client's choice.
fn connect(rng: &mut Rng, addresses: &[String], name: &str) -> Option<Caller> {
    let primary = primary_by(&addresses[rng.usize(..addresses.len())], name)?;
    let patience = if rng.bool() { IMPATIENT } else { 4 * LEASE };
    Caller::patient(&primary, patience).ok()
}

/// A reader of standbys, until the episode is over: each transaction reads the lists that are being
/// written.
fn read_standbys(episode: &Episode<'_>, number: usize, addresses: &[String]) -> Vec<Observed> {
    let mut rng = Rng::with_seed(episode.rng_seed + 1_000 + number as u64);
    let mut seen = Vec::new();
    while !episode.is_over.load(SeqCst) {
        let address = &addresses[rng.usize(..addresses.len())];
        let Ok(mut caller) = Caller::patient(address, IMPATIENT) else { continue };
        let session = episode.sessions.fetch_add(1, SeqCst) as usize;
        let first_group = episode.counts[3].load(SeqCst) / TRANSACTIONS_ON_LISTS;
        for _ in 0..rng.u32(1..200) {
            let group = episode.counts[3].load(SeqCst) / TRANSACTIONS_ON_LISTS;
            // Those before are almost sure to be at the standby.
            let groups = group.saturating_sub(1).max(first_group)..group + 1;
            let keys = groups.start * LISTS..groups.end * LISTS;
            let mut ops: Vec<Op> = keys.map(|key| Op::List { key, saw: Vec::new() }).collect();
            let invoked = episode.now();
            let Attempt::Replied(reply) = episode.attempt(&mut caller, &block(&ops)) else { break };
            fill_in(&mut ops, reply);
            let end = End::Acknowledged(episode.now());
            seen.push(Observed { life: 0, session, invoked, end, ops });
            std::thread::sleep(Duration::from_millis(rng.u64(1..10)));
            if episode.is_over.load(SeqCst) {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

/// The numbers of an episode.
#[derive(Default)]
struct Numbers {
    failovers: usize,
    calls: usize,
    transactions: usize,
    reads: usize,
}

/// The first calls of the keys behind those that are counted.
fn behind(counts: [u64; 4]) -> [u64; 4] {
    let [a, b, c, d] = counts;
    let next = |count: u64, group: u64| (count / group + 1) * group;
    let [a, b, c] = [a, b, c].map(|count| next(count, CALLS_ON_A_KEY));
    [a, b, c, next(d, TRANSACTIONS_ON_LISTS)]
}

/// Some failovers, with clients that go on. Returns what was counted, for the next episode.
fn run(members: &mut Members, seed: u64, counts: [u64; 4], numbers: &mut Numbers) -> [u64; 4] {
    let mut rng = Rng::with_seed(seed);
    let (addresses, name) = (members.addresses.clone(), members.name.clone());
    let find = |rng: &mut Rng| connect(rng, &addresses, &name);
    let episode = Episode { may_refuse: true, ..Episode::new(seed, &find, counts) };
    let mut kinds = [Failover::Killed, Failover::Stopped, Failover::HandedOver];
    rng.shuffle(&mut kinds);
    let (all, read) = std::thread::scope(|scope| {
        let (episode, addresses) = (&episode, &addresses);
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || episode.client(number))).collect();
        let readers: Vec<_> = (0..READERS)
            .map(|number| scope.spawn(move || read_standbys(episode, number, addresses)))
            .collect();
        // Whatever fails, the clients end: a scope waits for its threads.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for kind in kinds {
                std::thread::sleep(Duration::from_millis(rng.u64(50..800)));
                numbers.failovers += usize::from(members.fail_over(kind, &mut rng));
            }
            std::thread::sleep(Duration::from_millis(rng.u64(50..300)));
        }));
        episode.is_over.store(true, SeqCst);
        let all: Vec<Seen> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        failed.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        (all, read.concat())
    });
    let mut seen = Seen::of_all(all);
    let primary = members.whole();
    let first = counts[3] / TRANSACTIONS_ON_LISTS * LISTS;
    seen.read_all(&episode, &mut Caller::connect(&addresses[primary]).unwrap(), first);
    numbers.calls += seen.judge(seed);
    numbers.transactions += seen.transactions.len();
    numbers.reads += read.len();
    seen.transactions.extend(read);
    if let Err(anomaly) = check(&seen.transactions, Order::Sessions) {
        panic!("seed {seed}, with reads at standbys: {}\n{}", anomaly.name, anomaly.trace);
    }
    behind(episode.counts.each_ref().map(|count| count.load(SeqCst)))
}

/// `HYADES_HISTORIES_SECONDS` sets the time of the run, `HYADES_SEED` the first seed.
#[test]
#[ignore = "needs NATS servers"]
fn what_clients_see_over_failovers_has_an_order() {
    let (seconds, first) = (set("HYADES_HISTORIES_SECONDS", 15), set("HYADES_SEED", 1));
    let servers = std::env::var("HYADES_NATS").expect("HYADES_NATS names the servers");
    let mut members = Members::start(servers);
    members.whole();
    let began = Instant::now();
    let (mut episodes, mut counts, mut numbers) = (0, [0; 4], Numbers::default());
    while episodes == 0 || began.elapsed() < Duration::from_secs(seconds) {
        counts = run(&mut members, first + episodes, counts, &mut numbers);
        episodes += 1;
    }
    let Numbers { failovers, calls, transactions, reads } = numbers;
    println!(
        "{episodes} episodes, {failovers} failovers, {calls} calls, {transactions} transactions, \
         {reads} reads at any member"
    );
    assert!(calls > 100 && transactions > 30 && reads > 30, "little was done");
}
