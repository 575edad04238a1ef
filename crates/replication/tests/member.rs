//! Promise: whatever members are killed, cut off or handed over, and whatever the log service
//! loses, repeats or delays, what was acknowledged is there under the next primary, reads miss
//! nothing that was acknowledged before them, and in the end all members are equal.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades::{
    Abort, Builder, Column, Database, Error, RecordKind, Schema, Table, Transaction, Type,
};
use hyades_platform::sync::Unpoisoned;
use hyades_replication::service::Question;
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{
    LogService, Member, MemberSettings, Reply, Request, RequestId, Role, Verified, verify,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STREAMS: usize = 2;
const MEMBERS: usize = 3;
const ACCOUNTS: i64 = 40;
const TERM: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(30);
const ACCOUNT: Table = Table::nth(0);
const JOURNAL: Table = Table::nth(1);
const AMOUNT: Column<i64> = Column::at(1);

const SOME: Faults = Faults {
    lost_requests: 0.02,
    lost_replies: 0.02,
    late_copies: 0.1,
    old_looks: 0.1,
    delays: 0.2,
};

fn transfer(tx: &Transaction<'_>, input: (i64, i64, i64, i64)) -> Result<(), Abort> {
    let (number, from, to, amount) = input;
    for (id, change) in [(from, -amount), (to, amount)] {
        let balance = tx.get(ACCOUNT, id)?.map_or(0, |row| row.get(AMOUNT));
        tx.upsert(ACCOUNT, &[id.into(), (balance + change).into()])?;
    }
    tx.insert(JOURNAL, &[number.into(), amount.into()])?;
    Ok(())
}

fn declared(record: RecordKind) -> Builder {
    let mut builder = Database::builder().streams(STREAMS).record(record);
    let table = |name: &str| {
        Schema::new(name).column("id", Type::I64).column("n", Type::I64).primary_key(&["id"])
    };
    builder.table(table("account"));
    builder.table(table("journal"));
    builder.procedure("transfer", 1, transfer);
    builder
}

/// The log service as one member reaches it: not at all, at times.
#[derive(Debug)]
struct Reached {
    inner: Arc<SimulatedLog>,
    is_cut: AtomicBool,
}

const DROPPED: RequestId = RequestId(u64::MAX);

impl LogService for Reached {
    fn max_message_bytes(&self) -> usize {
        self.inner.max_message_bytes()
    }

    fn begin(&self, request: Request) -> RequestId {
        if self.is_cut.load(SeqCst) { DROPPED } else { self.inner.begin(request) }
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        if request == DROPPED || self.is_cut.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            return Some(Reply::Silence);
        }
        self.inner.answer(request, wait)
    }

    fn broadcast(&self, message: Vec<u8>) {
        if !self.is_cut.load(SeqCst) {
            self.inner.broadcast(message);
        }
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        self.inner.listen()
    }

    fn questions(&self, node: &str) -> Receiver<Question> {
        self.inner.questions(node)
    }
}

struct Place {
    service: Arc<Reached>,
    member: Option<Member>,
    database: Option<Database>,
    is_primary: bool,
    dir: tempfile::TempDir,
}

fn join(service: &Arc<Reached>, at: usize, dir: &Path, record: RecordKind) -> Member {
    let mut settings = MemberSettings::new(format!("n{at}"), dir);
    settings.term = TERM;
    settings.mark_interval = Duration::from_millis(5);
    Member::join(service.clone(), settings, move || declared(record)).unwrap()
}

impl Place {
    /// Takes new roles.
    fn look(&mut self, at: usize) {
        let Some(member) = &self.member else { return };
        loop {
            match member.next(Duration::ZERO) {
                Ok(None) => return,
                Ok(Some(Role::Joining(_))) => (self.database, self.is_primary) = (None, false),
                Ok(Some(Role::Standby(database))) => {
                    (self.database, self.is_primary) = (Some(database), false);
                }
                Ok(Some(Role::Primary(database))) => {
                    (self.database, self.is_primary) = (Some(database), true);
                }
                Ok(Some(_)) => {}
                Err(error) => panic!("member {at} has stopped: {error}"),
            }
        }
    }
}

/// The members, for a failure.
fn shown(places: &[Place]) -> String {
    let show = |place: &Place| {
        let view = place.member.as_ref().map(Member::view);
        format!("\nprimary {}, serves {}: {view:?}", place.is_primary, place.database.is_some())
    };
    places.iter().map(show).collect()
}

struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The sum of the balances, and the numbers in the journal.
fn content(database: &Database) -> Result<(i64, BTreeSet<i64>), Error> {
    database.transact(|tx| {
        let amount = |row: &hyades::Row<'_>| row.get(AMOUNT);
        let sum = tx.scan(ACCOUNT).rows()?.iter().map(amount).sum();
        let number = |row: &hyades::Row<'_>| row.get(Column::<i64>::at(0));
        Ok((sum, tx.scan(JOURNAL).rows()?.iter().map(number).collect()))
    })
}

/// What the clients and the test share.
struct World {
    seed: u64,
    /// All databases that believe to be primary.
    primaries: Mutex<Vec<Database>>,
    /// Numbers of transfers, with the incarnation that has acknowledged each.
    acknowledged: Mutex<BTreeMap<i64, u32>>,
    number: AtomicI64,
    stop: AtomicBool,
}

impl World {
    /// Moves money, and reads, until the end.
    fn run_client(&self, worker: u64) {
        let mut rng = Rng::with_seed(self.seed * 10 + worker);
        while !self.stop.load(SeqCst) {
            let chosen = rng.choice(&*self.primaries.lock().unpoisoned()).cloned();
            match chosen {
                None => std::thread::sleep(Duration::from_millis(1)),
                Some(database) if rng.u8(..) < 20 => self.read(&database),
                Some(database) => self.transfer(&database, &mut rng),
            }
        }
    }

    /// A read shows all that was acknowledged before.
    fn read(&self, database: &Database) {
        let before = self.acknowledged.lock().unpoisoned().clone();
        let Ok((sum, numbers)) = content(database) else { return };
        assert_eq!(sum, 0, "money was made or lost");
        let missing = before.iter().find(|(number, _)| !numbers.contains(number));
        if let Some((number, by)) = missing {
            let log = database.log().unwrap();
            panic!(
                "seed {}: transfer {number}, acknowledged under {by}, is missing from a read under \
                 {}",
                self.seed,
                log.incarnation()
            );
        }
    }

    fn transfer(&self, database: &Database, rng: &mut Rng) {
        let (from, step) = (rng.i64(0..ACCOUNTS), rng.i64(1..ACCOUNTS));
        let number = self.number.fetch_add(1, SeqCst);
        let input = (number, from, (from + step) % ACCOUNTS, rng.i64(1..9));
        let Ok(mut session) = database.session() else { return };
        let call = database.prepare("transfer").unwrap();
        if let Ok((Ok(()), ticket)) = session.call(call, &input)
            && ticket.wait().is_ok()
        {
            let by = database.log().unwrap().incarnation();
            self.acknowledged.lock().unpoisoned().insert(number, by);
        }
        if rng.u8(..) < 40 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes new roles. Returns how many members have become primary.
    fn look(&self, places: &mut [Place]) -> usize {
        let mut takeovers = 0;
        for (at, place) in places.iter_mut().enumerate() {
            let before = place.is_primary;
            place.look(at);
            takeovers += usize::from(place.is_primary && !before);
        }
        let primary = |place: &Place| place.database.clone().filter(|_| place.is_primary);
        *self.primaries.lock().unpoisoned() = places.iter().filter_map(primary).collect();
        takeovers
    }

    /// Kills a member and starts it again, asks it to hand over, or cuts it off or heals it.
    fn disturb(&self, places: &mut [Place], rng: &mut Rng, record: RecordKind) {
        let at = match places.iter().position(|place| place.is_primary) {
            Some(primary) if rng.u8(..3) > 0 => primary,
            _ => rng.usize(..MEMBERS),
        };
        let place = &mut places[at];
        match rng.u8(..4) {
            0 => {
                (place.database, place.is_primary) = (None, false);
                drop(place.member.take());
                self.primaries.lock().unpoisoned().clear();
                place.member = Some(join(&place.service, at, place.dir.path(), record));
            }
            // Refused if no standby follows closely.
            1 => drop(place.member.as_ref().unwrap().hand_over(None)),
            _ => {
                let is_cut = place.service.is_cut.load(SeqCst);
                place.service.is_cut.store(!is_cut, SeqCst);
            }
        }
    }

    /// Waits until the members show the same, with all that was acknowledged.
    fn wait_until_equal(&self, places: &mut [Place]) {
        let (seed, until) = (self.seed, Instant::now() + LONG);
        loop {
            places.iter_mut().enumerate().for_each(|(at, place)| place.look(at));
            let primary = places.iter().find(|place| place.is_primary);
            let primary = primary.and_then(|place| content(place.database.as_ref()?).ok());
            if let Some((sum, numbers)) = primary {
                assert_eq!(sum, 0, "money was made or lost");
                let acknowledged = self.acknowledged.lock().unpoisoned();
                let lost = acknowledged.iter().find(|(number, _)| !numbers.contains(number));
                assert_eq!(lost, None, "seed {seed}: acknowledged and lost");
                let is_equal = |place: &Place| {
                    let shown = place.database.as_ref().and_then(|one| content(one).ok());
                    shown.is_some_and(|shown| shown == (0, numbers.clone()))
                };
                if places.iter().all(is_equal) {
                    return;
                }
            }
            assert!(Instant::now() < until, "seed {seed}: not equal: {}", shown(places));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn history(seed: u64, record: RecordKind, length: Duration) {
    let mut rng = Rng::with_seed(seed);
    let inner = Arc::new(SimulatedLog::new(STREAMS, seed, SOME));
    let place = |at| {
        let is_cut = AtomicBool::new(false);
        let service = Arc::new(Reached { inner: inner.clone(), is_cut });
        let dir = tempfile::tempdir().unwrap();
        let member = Some(join(&service, at, dir.path(), record));
        Place { service, member, database: None, is_primary: false, dir }
    };
    let mut places: Vec<Place> = (0..MEMBERS).map(place).collect();
    let world = World {
        seed,
        primaries: Mutex::default(),
        acknowledged: Mutex::default(),
        number: AtomicI64::new(0),
        stop: AtomicBool::new(false),
    };
    let mut takeovers = 0;
    std::thread::scope(|scope| {
        // Clients end with the test, also if an assertion fails.
        let _stops = StopOnDrop(&world.stop);
        for worker in 0..2 {
            let world = &world;
            scope.spawn(move || world.run_client(worker));
        }
        let until = Instant::now() + length;
        let mut next = Instant::now() + TERM * 2;
        while Instant::now() < until {
            takeovers += world.look(&mut places);
            std::thread::sleep(Duration::from_millis(2));
            if Instant::now() >= next {
                next = Instant::now() + TERM * rng.u32(1..5);
                world.disturb(&mut places, &mut rng, record);
            }
        }
        places.iter().for_each(|place| place.service.is_cut.store(false, SeqCst));
        let (until, mut well) = (Instant::now() + LONG, false);
        while !well {
            takeovers += world.look(&mut places);
            std::thread::sleep(Duration::from_millis(5));
            well = places.iter().filter(|place| place.is_primary).count() == 1
                && places.iter().all(|place| place.database.is_some());
            assert!(Instant::now() < until, "seed {seed}: not together: {}", shown(&places));
        }
    });
    world.primaries.lock().unpoisoned().clear();
    world.wait_until_equal(&mut places);
    let acknowledged = world.acknowledged.lock().unpoisoned().len();
    eprintln!("seed {seed}: {acknowledged} acknowledged, {takeovers} primaries");
    for place in &mut places {
        place.database = None;
        place.member.take().unwrap().end();
    }
}

/// Promise: members compare their rows as of one mark, beside writers.
#[test]
fn members_compare_their_rows() {
    let service = Arc::new(SimulatedLog::new(STREAMS, 1, Faults::default()));
    let reached = || {
        let is_cut = AtomicBool::new(false);
        Arc::new(Reached { inner: service.clone(), is_cut })
    };
    let mut places: Vec<Place> = (0..MEMBERS)
        .map(|at| {
            let (service, dir) = (reached(), tempfile::tempdir().unwrap());
            let member = Some(join(&service, at, dir.path(), RecordKind::Data));
            Place { service, member, database: None, is_primary: false, dir }
        })
        .collect();
    let world = World {
        seed: 1,
        primaries: Mutex::default(),
        acknowledged: Mutex::default(),
        number: AtomicI64::new(0),
        stop: AtomicBool::new(false),
    };
    let (answers, until) = (service.listen(), Instant::now() + LONG);
    std::thread::scope(|scope| {
        let _stops = StopOnDrop(&world.stop);
        scope.spawn(|| world.run_client(0));
        let mut found = Vec::new();
        for number in 1.. {
            assert!(Instant::now() < until, "no verification: {}", shown(&places));
            world.look(&mut places);
            let view = places[0].member.as_ref().unwrap().view();
            let uuid = view.database.unwrap_or_default();
            let database: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
            service.broadcast(verify::question(&database, number));
            let wait = Instant::now() + TERM;
            while Instant::now() < wait && found.len() < MEMBERS {
                let Ok(told) = answers.recv_timeout(TERM / 10) else { continue };
                found.extend(verify::answer(&told, number));
            }
            let has_rows = |found: &Verified| found.tables.as_ref().unwrap()[1].1 > 100;
            if found.len() == MEMBERS && found.iter().all(has_rows) {
                break;
            }
            found.clear();
        }
        let state = |found: &Verified| (found.incarnation, found.epoch, found.tables.clone());
        assert!(found.iter().all(|other| state(other) == state(&found[0])), "{found:?}");
    });
}

#[test]
fn nothing_acknowledged_is_lost_by_failovers() {
    for (seed, record) in [
        (1, RecordKind::Data),
        (2, RecordKind::Command),
        (fastrand::u64(..1 << 32), RecordKind::Adaptive),
    ] {
        eprintln!("seed {seed}");
        history(seed, record, Duration::from_secs(8));
    }
}
