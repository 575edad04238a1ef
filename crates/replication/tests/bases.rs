//! Promise: the lanes are purged up to what the members have, and a member that the lanes do not
//! reach back to joins with the files of another member: a new member, a member with old files or
//! without its disk, and a member of a database that had rows before its log was replicated.
#![allow(missing_docs)]

use hyades::{Builder, Column, Database, Schema, Table, Type};
use hyades_platform::sync::Unpoisoned;
use hyades_replication::service::{Place, Question};
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{LogService, Member, MemberSettings, Reply, Request, RequestId, Role};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STREAMS: usize = 2;
const LONG: Duration = Duration::from_secs(30);
const ROWS: Table = Table::nth(0);
const ID: Column<i64> = Column::at(0);
const SOME: Faults = Faults {
    lost_requests: 0.02,
    lost_replies: 0.02,
    late_copies: 0.1,
    old_looks: 0.1,
    delays: 0.1,
};

fn declared() -> Builder {
    let mut builder = Database::builder().streams(STREAMS);
    builder = builder.log_settings(|log| {
        (log.buffer_bytes, log.segment_bytes) = (1 << 16, 1 << 16);
    });
    builder = builder.checkpoint_settings(|settings| {
        settings.interval = Some(Duration::from_millis(100));
        settings.share = 1.0;
    });
    let rows = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(rows.primary_key(&["id"]));
    builder
}

/// The log service. The node that is asked first about bases may stop to answer.
#[derive(Debug)]
struct Service {
    log: SimulatedLog,
    asked: Mutex<Option<String>>,
    /// How often the node that was asked first answers.
    answers: AtomicUsize,
}

const DROPPED: RequestId = RequestId(u64::MAX);

impl LogService for Service {
    fn max_message_bytes(&self) -> usize {
        self.log.max_message_bytes()
    }

    fn begin(&self, request: Request) -> RequestId {
        if let Request::Ask { node, .. } = &request
            && self.asked.lock().unpoisoned().get_or_insert_with(|| node.clone()) == node
            && self.answers.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err()
        {
            return DROPPED;
        }
        self.log.begin(request)
    }

    fn answer(&self, request: RequestId, wait: bool) -> Option<Reply> {
        match request == DROPPED {
            true => Some(Reply::Silence),
            false => self.log.answer(request, wait),
        }
    }

    fn broadcast(&self, message: Vec<u8>) {
        self.log.broadcast(message);
    }

    fn listen(&self) -> Receiver<Vec<u8>> {
        self.log.listen()
    }

    fn questions(&self, node: &str) -> Receiver<Question> {
        self.log.questions(node)
    }
}

struct Node {
    member: Member,
    database: Option<Database>,
    is_primary: bool,
}

struct World {
    service: Arc<Service>,
    nodes: BTreeMap<String, Node>,
    forget_after: Duration,
    next: i64,
}

fn numbers(database: &Database) -> Option<Vec<i64>> {
    let number = |row: &hyades::Row<'_>| row.get(ID);
    database.transact(|tx| Ok(tx.scan(ROWS).rows()?.iter().map(number).collect())).ok()
}

impl World {
    fn new(seed: u64) -> World {
        World::with_answers(seed, usize::MAX)
    }

    fn with_answers(seed: u64, answers: usize) -> World {
        let (asked, answers) = (Mutex::default(), AtomicUsize::new(answers));
        let log = SimulatedLog::new(STREAMS, seed, SOME);
        let service = Arc::new(Service { log, asked, answers });
        World { service, nodes: BTreeMap::new(), forget_after: LONG, next: 0 }
    }

    fn start(&mut self, node: &str, dir: &Path) {
        let mut settings = MemberSettings::new(node, dir);
        settings.term = Duration::from_millis(400);
        settings.mark_interval = Duration::from_millis(5);
        settings.hold_interval = Duration::from_millis(20);
        settings.forget_after = self.forget_after;
        let member = Member::join(self.service.clone(), settings, declared).unwrap();
        let node_of = Node { member, database: None, is_primary: false };
        self.nodes.insert(node.to_owned(), node_of);
    }

    fn stop(&mut self, node: &str) {
        let Node { member, database, .. } = self.nodes.remove(node).unwrap();
        drop(database);
        member.end();
    }

    fn look(&mut self) {
        for (name, node) in &mut self.nodes {
            loop {
                match node.member.next(Duration::ZERO) {
                    Ok(None) => break,
                    Ok(Some(Role::Standby(database))) => {
                        (node.database, node.is_primary) = (Some(database), false);
                    }
                    Ok(Some(Role::Primary(database))) => {
                        (node.database, node.is_primary) = (Some(database), true);
                    }
                    Ok(Some(_)) => (node.database, node.is_primary) = (None, false),
                    Err(error) => panic!("member {name} has stopped: {error}"),
                }
            }
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut World) -> bool) {
        let until = Instant::now() + LONG;
        loop {
            self.look();
            if is_so(self) {
                return;
            }
            let views = self.nodes.iter().map(|(name, node)| (name, node.member.view()));
            assert!(Instant::now() < until, "{what}: {:#?}", views.collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn primary(&mut self) -> Database {
        let mut found = None;
        self.until("a primary", |world| {
            let primary = world.nodes.values().find(|node| node.is_primary);
            found = primary.and_then(|node| node.database.clone());
            found.is_some()
        });
        found.unwrap()
    }

    /// Writes rows, each acknowledged.
    fn write(&mut self, count: i64) {
        let database = self.primary();
        for id in self.next..self.next + count {
            let row = [id.into(), (id * 7).into()];
            database.transact(|tx| Ok(tx.upsert(ROWS, &row)?)).unwrap();
        }
        self.next += count;
    }

    /// Writes until a part of each lane is purged.
    fn write_until_purged(&mut self) {
        let before: Vec<Place> = (0..STREAMS).map(|lane| self.service.log.purged(lane)).collect();
        let until = Instant::now() + LONG;
        loop {
            self.write(50);
            let mut lanes = before.iter().enumerate();
            if lanes.all(|(lane, before)| self.service.log.purged(lane) > *before) {
                return;
            }
            assert!(Instant::now() < until, "nothing is purged");
        }
    }

    /// Waits until all members have all rows.
    fn wait_for_all(&mut self) {
        let expected: Vec<i64> = (0..self.next).collect();
        self.until("all have all", |world| {
            world.nodes.values().all(|node| {
                let shown = node.database.as_ref().and_then(numbers);
                shown.is_some_and(|shown| shown == expected)
            })
        });
    }
}

#[test]
fn a_new_member_joins_after_a_purge() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut world = World::new(1);
    world.start("a", dirs[0].path());
    world.write(100);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(world.service.log.purged(0), Place::START, "one copy is none");
    world.start("b", dirs[1].path());
    world.write_until_purged();
    world.start("c", dirs[2].path());
    world.wait_for_all();
    world.write_until_purged();
    world.wait_for_all();
    // The new member can take over.
    world.stop("a");
    world.stop("b");
    world.write(20);
    world.wait_for_all();
}

#[test]
fn a_member_with_old_files_and_one_without_its_disk_join_with_a_base() {
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut world = World::new(2);
    world.forget_after = Duration::from_millis(500);
    for (at, node) in ["a", "b", "c"].into_iter().enumerate() {
        world.start(node, dirs[at].path());
        world.write(50);
    }
    world.wait_for_all();
    world.stop("c");
    // The member is forgotten, and what it lacks is purged.
    std::thread::sleep(Duration::from_millis(700));
    world.write_until_purged();
    world.write_until_purged();
    world.start("c", dirs[2].path());
    world.wait_for_all();
    world.stop("a");
    world.write(50);
    world.start("a", dirs[3].path());
    world.wait_for_all();
    world.write_until_purged();
    world.wait_for_all();
}

#[test]
fn another_member_is_asked_if_one_stops_to_answer() {
    let dirs: Vec<_> = (0..6).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut world = World::with_answers(3, 2);
    world.start("a", dirs[0].path());
    world.write(50);
    world.start("b", dirs[1].path());
    // On a busy machine a member may ask another one for other reasons.
    for (node, dir) in ["c", "d", "e", "f"].into_iter().zip(&dirs[2..]) {
        world.write_until_purged();
        world.start(node, dir.path());
        world.wait_for_all();
        if world.service.answers.load(SeqCst) == 0 {
            return;
        }
    }
    panic!("no member asked the failing one until it failed");
}

#[test]
fn members_join_a_database_that_had_rows() {
    let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut world = World::new(4);
    let database = declared().open(dirs[0].path()).unwrap();
    for id in 0..300_i64 {
        let row = [id.into(), (id * 7).into()];
        database.transact(|tx| Ok(tx.upsert(ROWS, &row)?)).unwrap();
    }
    database.close().unwrap();
    world.next = 300;
    world.start("a", dirs[0].path());
    world.write(30);
    world.start("b", dirs[1].path());
    world.wait_for_all();
    world.write_until_purged();
    world.stop("a");
    world.write(30);
    world.start("a", dirs[0].path());
    world.wait_for_all();
}
