//! Three members of a replicated database on simulated disks, their clients, and what befalls them:
//! all on one thread, in an order that follows from the seed.
//!
//! While a member waits for the log service, others go on: [`meanwhile`] is called at each wait. A
//! member that waits is in use (`RefCell`), and nothing else is done with the member meanwhile but
//! its end: a killed process finds its service gone, its disk dead, and is dropped once it returns.

mod clients;
mod faults;
mod tables;
mod together;

use self::clients::ClientAsk;
use self::tables::{ClusterShape, content, declared};
use super::judge::{ClusterJudge, Column};
use super::service::{MS, Net, Process, SimService};
use super::time::{ClockRate, SimTime};
use fastrand::Rng;
use hyades::{Database, ProcedureId, Session, Ticket};
use hyades_platform::callback;
use hyades_platform::device::{SimulatedDevice, SimulatedDisk};
use hyades_platform::sync::Unpoisoned;
use hyades_replication::member::MemberLoop;
use hyades_replication::{MemberSettings, Role};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const MEMBERS: usize = 3;
/// The end of a history without faults lasts as many times the lease, at most.
const END_TERMS: u64 = 40;
/// A primary is late after as many times the lease.
const LATE_TERMS: u64 = 10;
/// After as many times the lease without a look for a primary, it counts from the next look.
const UNSEEN_TERMS: u64 = 3;

thread_local! {
    static CLUSTER: RefCell<Weak<Cluster>> = const { RefCell::new(Weak::new()) };
}

/// Lets others go on while a member waits. False if nothing was done.
pub(super) fn meanwhile() -> bool {
    let Some(cluster) = CLUSTER.with_borrow(Weak::upgrade) else { return false };
    cluster.end_in_time();
    // A thread of a database may run no transaction.
    if callback::is_on_database_thread() {
        return false;
    }
    let acts = cluster.rng.borrow_mut().u8(..4) > 0;
    acts.then(|| cluster.act());
    acts
}

/// A database of a member, as clients have it.
struct Served {
    /// First: tickets and the session end before the database.
    under_way: Vec<(ClientAsk, Ticket)>,
    session: Session,
    call: ProcedureId,
    database: Database,
    /// Of a primary.
    incarnation: Option<u32>,
    /// Until when clients have a database that the member has left.
    left_until: Option<u64>,
}

struct Node {
    databases: Vec<Served>,
    member: Option<MemberLoop>,
    device: Option<SimulatedDevice>,
    /// The mark that was compared last.
    compared: (u32, u64),
}

impl Node {
    fn clear(&mut self) {
        self.databases.clear();
        self.member = None;
        self.device = None;
    }
}

/// What happens to a member from outside.
#[derive(Default)]
struct MemberFate {
    /// The process is to be dropped.
    is_killed: Cell<bool>,
    down_until: Cell<u64>,
    paused_until: Cell<u64>,
    boots: Cell<u64>,
    /// The disk was lost, and the member has not had a role since.
    has_lost_disk: Cell<bool>,
    /// Until when something is wrong.
    ill_until: Cell<u64>,
    /// Why the member has stopped by itself.
    stopped: RefCell<Option<String>>,
}

/// The whole.
pub(super) struct Cluster {
    shape: ClusterShape,
    pub rng: RefCell<Rng>,
    net: Arc<Mutex<Net>>,
    time: Arc<SimTime>,
    nodes: Vec<RefCell<Node>>,
    fates: Vec<MemberFate>,
    disks: Vec<RefCell<SimulatedDisk>>,
    pub judge: RefCell<ClusterJudge>,
    next_fault: Cell<u64>,
    has_faults: Cell<bool>,
    /// When there was a primary last, or good reason for none.
    primary_at: Cell<u64>,
    /// The last look for a primary.
    looked_at: Cell<u64>,
    log_ill_until: Cell<u64>,
    has_ended: Cell<bool>,
    pub counts: RefCell<BTreeMap<&'static str, u64>>,
    trace: RefCell<Vec<String>>,
}

/// What a history has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub wrong: Vec<(Column, String)>,
    pub counts: BTreeMap<&'static str, u64>,
    pub acknowledged: u64,
    pub digest: u64,
    /// The last events.
    pub trace: Vec<String>,
}

impl Cluster {
    fn new(shape: ClusterShape) -> Rc<Cluster> {
        let mut rng = Rng::with_seed(shape.seed);
        let clock = |rng: &mut Rng| ClockRate {
            ahead_ns: rng.u64(..3600 * 1000 * MS),
            rate: rng.u64(953..=1047),
        };
        let clocks = (0..MEMBERS).map(|_| clock(&mut rng)).collect();
        let time = Arc::new(SimTime::new(clocks));
        let net = Net::new(rng.u64(..), shape.streams, MEMBERS, shape.faults, shape.term_ns);
        let node = |_| {
            let (databases, member, device) = (Vec::new(), None, None);
            RefCell::new(Node { databases, member, device, compared: (0, 0) })
        };
        let first = rng.u64(..shape.fault_every_ns) + shape.term_ns;
        Rc::new(Cluster {
            rng: RefCell::new(rng),
            net: Arc::new(Mutex::new(net)),
            time,
            nodes: (0..MEMBERS).map(node).collect(),
            fates: (0..MEMBERS).map(|_| MemberFate::default()).collect(),
            disks: (0..MEMBERS).map(|_| RefCell::default()).collect(),
            judge: RefCell::default(),
            next_fault: Cell::new(first),
            has_faults: Cell::new(true),
            primary_at: Cell::new(0),
            looked_at: Cell::new(0),
            log_ill_until: Cell::new(0),
            has_ended: Cell::new(false),
            counts: RefCell::default(),
            trace: RefCell::default(),
            shape,
        })
    }

    fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// Notes an event of the history.
    fn say(&self, what: String) {
        let now = self.time.now();
        self.net.lock().unpoisoned().note((now, &what));
        let mut trace = self.trace.borrow_mut();
        trace.push(format!("{:>9.3} ms  {what}", now as f64 / MS as f64));
        if trace.len() > 400 {
            trace.drain(..200);
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.borrow_mut())
    }

    /// A time that is mostly short, and sometimes several times the lease.
    fn some_time(&self) -> u64 {
        let term = self.shape.term_ns;
        self.draw(|rng| match rng.u8(..3) {
            0 => rng.u64(MS..term / 3),
            1 => rng.u64(term / 2..term * 2),
            _ => rng.u64(MS..term * 6),
        })
    }

    /// One thing happens.
    pub fn act(&self) {
        if self.has_ended.get() {
            self.time.pass_until(self.time.now() + self.shape.pace_ns);
            return;
        }
        let passes = self.draw(|rng| rng.u64(1000..self.shape.pace_ns));
        self.time.pass_until(self.time.now() + passes);
        self.end_in_time();
        let now = self.time.now();
        if self.has_faults.get() && now >= self.next_fault.get() {
            self.next_fault.set(now + self.draw(|rng| rng.u64(MS..self.shape.fault_every_ns)));
            self.fault(now);
        }
        let at = self.draw(|rng| rng.usize(..MEMBERS));
        match self.draw(|rng| rng.u8(..20)) {
            0..9 => self.step_member(at, now),
            9..14 => self.with_database(at, now, |served| self.step_log(served)),
            14..18 => self.with_database(at, now, |served| self.transfer(served)),
            _ => self.with_database(at, now, |served| self.read(served, at)),
        }
        self.with_database(at, now, |served| self.poll(served));
        self.look_for_primary(now);
    }

    /// Ends a history that takes too long, and one that has failed.
    fn end_in_time(&self) {
        let until = self.shape.length_ns + 2 * END_TERMS * self.shape.term_ns;
        if !self.has_ended.get() && self.time.now() > until {
            self.has_ended.set(true);
            self.is_not_together();
        }
        if self.has_ended.get() {
            // What waits returns.
            self.net.lock().unpoisoned().processes.iter_mut().for_each(|number| *number += 1);
        }
    }

    fn look_for_primary(&self, now: u64) {
        let is_primary = |node: &RefCell<Node>| match node.try_borrow() {
            Ok(node) => node
                .databases
                .iter()
                .any(|one| one.left_until.is_none() && one.incarnation.is_some()),
            // A member on its way.
            Err(_) => true,
        };
        // Members on their way have waited inside each other's waits for longer than any of them.
        let unseen = now.saturating_sub(self.looked_at.replace(now));
        let was_away = unseen > UNSEEN_TERMS * self.shape.term_ns;
        if was_away
            || self.nodes.iter().any(is_primary)
            || self.net.lock().unpoisoned().has_lied.is_some()
        {
            self.primary_at.set(now);
        }
        let well = self.fates.iter().map(|fate| fate.ill_until.get()).min().unwrap_or(0);
        let since = self.primary_at.get().max(self.log_ill_until.get()).max(well);
        if now.saturating_sub(since) > LATE_TERMS * self.shape.term_ns {
            let why = self.views();
            let mut judge = self.judge.borrow_mut();
            judge.wrong(Column::Late, format!("no primary since {} ms: {why}", since / MS));
            self.has_ended.set(true);
        }
    }

    fn views(&self) -> String {
        let view = |(at, node): (usize, &RefCell<Node>)| {
            let stopped = self.fates[at].stopped.borrow().clone();
            let Ok(node) = node.try_borrow() else { return format!("member {at} waits") };
            let _running = self.time.run(at);
            format!("member {at}: {:?} {stopped:?}", node.member.as_ref().map(MemberLoop::view))
        };
        let views: Vec<String> = self.nodes.iter().enumerate().map(view).collect();
        views.join("; ")
    }

    // Members.

    fn start(&self, at: usize, node: &mut Node) {
        let device = self.disks[at].borrow().process(self.draw(|rng| rng.u64(..)));
        let number = {
            let mut net = self.net.lock().unpoisoned();
            net.processes[at] += 1;
            net.witnesses.received.remove(&at);
            net.processes[at]
        };
        let (net, time) = (self.net.clone(), self.time.clone());
        let process = Process { member: at, number };
        let service = Arc::new(SimService { net, time, process });
        let mut settings = MemberSettings::new(format!("n{at}"), "/db");
        settings.term = Duration::from_nanos(self.shape.term_ns);
        settings.mark_interval = Duration::from_millis(20);
        settings.hold_interval = Duration::from_nanos(self.shape.hold_interval_ns);
        settings.forget_after = Duration::from_nanos(self.shape.forget_after_ns);
        settings.place = Some(format!("boot {} of {at}", self.fates[at].boots.get()));
        let (shape, of_member) = (self.shape.clone(), device.clone());
        let declare = Box::new(move || declared(&shape, &of_member));
        self.say(format!("member {at} starts as process {number}"));
        match MemberLoop::new(service, settings, declare, Arc::<AtomicBool>::default()) {
            Ok(member) => (node.member, node.device) = (Some(member), Some(device)),
            Err(error) => self.stopped(at, &error.to_string()),
        }
    }

    /// A member has stopped by itself.
    fn stopped(&self, at: usize, why: &str) {
        self.say(format!("member {at} stops: {why}"));
        self.count("members that stopped by themselves");
        *self.fates[at].stopped.borrow_mut() = Some(why.to_owned());
        self.fates[at].ill_until.set(u64::MAX);
        let has_lied = self.net.lock().unpoisoned().has_lied.is_some();
        if !has_lied {
            let sentence = format!("member {at} has stopped: {why}");
            self.judge.borrow_mut().wrong(Column::RefusedWrongly, sentence);
            self.has_ended.set(true);
        }
    }

    /// Does something with the member, unless the member waits, rests or is down.
    fn with_node(&self, at: usize, now: u64, act: impl FnOnce(&mut Node)) {
        let (node, fate) = (&self.nodes[at], &self.fates[at]);
        let Ok(mut node) = node.try_borrow_mut() else { return };
        if !fate.is_killed.get() && fate.paused_until.get() <= now {
            let _running = self.time.run(at);
            act(&mut node);
        }
        if fate.is_killed.replace(false) {
            let _running = self.time.run(at);
            node.clear();
        }
    }

    fn step_member(&self, at: usize, now: u64) {
        let fate = &self.fates[at];
        if fate.down_until.get() > now || fate.stopped.borrow().is_some() {
            return;
        }
        self.with_node(at, now, |node| {
            node.databases.retain(|one| one.left_until.is_none_or(|until| until > now));
            if node.member.is_none() {
                return self.start(at, node);
            }
            let wait = match self.draw(|rng| rng.u8(..8)) {
                0 => Duration::from_millis(5),
                _ => Duration::ZERO,
            };
            let Some(member) = &mut node.member else { return };
            let stepped = member.step(wait);
            if fate.is_killed.get() {
                return;
            }
            match stepped {
                Ok(role) => self.turned(at, node, role),
                Err(_) if node.device.as_ref().is_some_and(|device| !device.is_alive()) => {
                    self.kill(at, false, now);
                }
                Err(error) => {
                    self.stopped(at, &error.to_string());
                    node.clear();
                    let mut net = self.net.lock().unpoisoned();
                    net.processes[at] += 1;
                }
            }
            self.compare_mark(at, node);
        });
    }

    fn turned(&self, at: usize, node: &mut Node, role: Option<Role>) {
        let Some(role) = role else { return };
        self.say(format!("member {at}: {role:?}"));
        let now = self.time.now();
        for former in &mut node.databases {
            let for_a_while = self.draw(|rng| if rng.bool() { 0 } else { rng.u64(..800 * MS) });
            former.left_until = former.left_until.or(Some(now + for_a_while));
        }
        let (database, is_primary) = match role {
            Role::Standby(database) => (database, false),
            Role::Primary(database) => (database, true),
            _ => return,
        };
        self.fates[at].has_lost_disk.set(false);
        let incarnation = database.log().filter(|_| is_primary).map(|log| log.incarnation());
        if let Some(incarnation) = incarnation {
            self.count("primaries");
            let mut judge = self.judge.borrow_mut();
            judge.served = judge.served.max(incarnation);
        }
        let Ok(session) = database.session() else { return };
        let Ok(call) = database.prepare("transfer") else { return };
        let (under_way, left_until) = (Vec::new(), None);
        node.databases.push(Served { under_way, session, call, database, incarnation, left_until });
    }

    /// Compares a standby with others as of the mark that it serves.
    fn compare_mark(&self, at: usize, node: &mut Node) {
        let Some(member) = &node.member else { return };
        let standby = |one: &&mut Served| one.left_until.is_none() && one.incarnation.is_none();
        let Some(served) = node.databases.iter_mut().find(standby) else { return };
        let view = member.view();
        let mut net = self.net.lock().unpoisoned();
        net.witnesses.received.insert(at, (view.incarnation, view.positions.clone()));
        drop(net);
        let mark = (view.incarnation, view.epoch);
        if view.epoch == 0 || mark == node.compared {
            return;
        }
        node.compared = mark;
        let digest = served.database.digest();
        let Ok((shown, _)) = served.session.submit(|tx| Ok(content(tx)?)) else { return };
        self.count("states of standbys");
        let mut judge = self.judge.borrow_mut();
        judge.standby_read(&shown, view.incarnation, at);
        judge.marked(mark, (digest, shown), at);
    }

    fn is_over(&self) -> bool {
        self.has_ended.get() || !self.judge.borrow().wrong.is_empty()
    }

    fn run(&self) {
        while self.time.now() < self.shape.length_ns && !self.is_over() {
            self.act();
            self.bury();
        }
        self.has_faults.set(false);
        self.net.lock().unpoisoned().heal();
        for (at, fate) in self.fates.iter().enumerate() {
            fate.paused_until.set(0);
            fate.down_until.set(0);
            if let Some(device) = self.nodes[at].borrow().device.as_ref() {
                device.disarm();
            }
        }
        let until = self.time.now() + END_TERMS * self.shape.term_ns;
        let mut looked = 0;
        while !self.is_over() {
            self.act();
            self.bury();
            looked += 1;
            if looked % 40 == 0 && self.is_together() {
                self.count("histories that ended together");
                break;
            }
            if self.time.now() > until {
                self.is_not_together();
                break;
            }
        }
        let net = self.net.lock().unpoisoned();
        let mut judge = self.judge.borrow_mut();
        for sentence in &net.witnesses.wrong {
            judge.wrong(Column::Lost, sentence.clone());
        }
    }

    fn told(&self) -> Told {
        let net = self.net.lock().unpoisoned();
        let judge = self.judge.borrow();
        let mut counts = self.counts.borrow().clone();
        let names = [
            "requests",
            "lost requests and replies",
            "late copies",
            "old looks",
            "purges",
            "questions about bases",
        ];
        counts.extend(names.into_iter().zip(net.counts));
        counts.insert("marks compared", judge.compared);
        let mut trace = self.trace.borrow().clone();
        if !judge.wrong.is_empty() {
            trace.extend(net.lines());
        }
        Told {
            wrong: judge.wrong.clone(),
            counts,
            acknowledged: judge.acknowledged,
            digest: net.digest(),
            trace,
        }
    }
}

/// Runs the history of a seed on the calling thread.
pub(super) fn history(seed: u64) -> Told {
    fastrand::seed(seed);
    let cluster = Cluster::new(ClusterShape::of(seed));
    CLUSTER.set(Rc::downgrade(&cluster));
    cluster.run();
    let told = cluster.told();
    cluster.has_ended.set(true);
    for (at, node) in cluster.nodes.iter().enumerate() {
        cluster.net.lock().unpoisoned().processes[at] += 1;
        cluster.disks[at].borrow().kill();
        let _running = cluster.time.run(at);
        node.borrow_mut().clear();
    }
    CLUSTER.set(Weak::new());
    drop(cluster);
    hyades_platform::clock::simulate(None);
    told
}
