//! Promise: lanes on NATS servers keep the rules of a log service, and hold what the files of a log
//! hold.
//!
//! The servers are named by HYADES_NATS, as `HOST:PORT,HOST:PORT,..`:
//!
//! ```sh
//! export HYADES_NATS=$(scripts/nats-cluster.sh start)
//! cargo test -p hyades-replication --features nats --test nats -- --ignored
//! ```
#![cfg(feature = "nats")]
#![allow(missing_docs)]

mod common;

use common::{STREAMS, contains_in_order, payload, seal_of_another, start, taken};
use fastrand::Rng;
use hyades::{Builder, Column, Database, Schema, Table, Type};
use hyades_replication::nats::{NatsError, NatsLog, NatsSettings, inspect};
use hyades_replication::service::Revision;
use hyades_replication::{LogService, Member, MemberSettings, Place, Reply, Request, Role};
use hyades_wal::{FrameKind, Lane};
use std::sync::Arc;
use std::time::Duration;

/// New lanes, which are removed at the end of a test.
struct Lanes {
    settings: NatsSettings,
    log: Arc<NatsLog>,
}

impl Lanes {
    fn new() -> Lanes {
        let servers = std::env::var("HYADES_NATS").expect("HYADES_NATS names the servers");
        let name = format!("test-{:x}", fastrand::u64(..));
        let settings = NatsSettings::new(format!("nats://{servers}/{name}").parse().unwrap());
        let log = Arc::new(NatsLog::connect(settings.clone(), STREAMS).unwrap());
        Lanes { settings, log }
    }

    fn ask(&self, request: Request) -> Reply {
        self.log.answer(self.log.begin(request), true).expect("a call that waits has an answer")
    }

    fn append(&self, lane: usize, after: Option<u64>, text: &[u8]) -> Reply {
        let (after, message) = (after.map(Place), Arc::new(text.to_vec()));
        self.ask(Request::Append { lane, after, message })
    }

    /// All messages of a lane, once the lane has as many: a replica may be late.
    fn all(&self, lane: usize, least: u64) -> Vec<Arc<Vec<u8>>> {
        let (mut all, mut behind) = (Vec::new(), Place::START);
        loop {
            match self.ask(Request::Read { lane, behind }) {
                Reply::Messages(messages) if messages.is_empty() && behind.0 >= least => {
                    return all;
                }
                Reply::Messages(messages) => {
                    behind = messages.last().map_or(behind, |(place, _)| *place);
                    all.extend(messages.into_iter().map(|(_, message)| message));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The place of the last message, told by an append of one more.
    fn last(&self, lane: usize) -> u64 {
        match self.append(lane, None, b"last") {
            Reply::Appended(place) => place.0 - 1,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // A test may have removed the lanes.
        let _ = NatsLog::remove_lanes(&self.settings, STREAMS);
    }
}

#[test]
#[ignore = "needs NATS servers"]
fn appends_keep_their_condition_and_reads_begin_behind_a_place() {
    let lanes = Lanes::new();
    assert_eq!(lanes.append(1, Some(0), b"a"), Reply::Appended(Place(1)));
    assert_eq!(lanes.append(1, Some(0), b"b"), Reply::Refused);
    assert_eq!(lanes.append(1, Some(2), b"b"), Reply::Refused);
    assert_eq!(lanes.append(1, Some(1), b"b"), Reply::Appended(Place(2)));
    assert_eq!(lanes.append(1, None, b"c"), Reply::Appended(Place(3)));
    assert_eq!(lanes.append(0, Some(0), b"other"), Reply::Appended(Place(1)));
    let expected: Vec<_> = [b"a", b"b", b"c"].map(|text| Arc::new(text.to_vec())).to_vec();
    assert_eq!(lanes.all(1, 3), expected);
    for number in 4..200 {
        let text = vec![number as u8; 100];
        assert_eq!(lanes.append(1, Some(number - 1), &text), Reply::Appended(Place(number)));
    }
    assert_eq!(lanes.all(1, 199).len(), 199, "more messages than an answer has");
    let large = vec![7; lanes.log.max_message_bytes()];
    assert_eq!(lanes.append(2, Some(0), &large), Reply::Appended(Place(1)));
    assert_eq!(*lanes.all(2, 1)[0], large);
}

#[test]
#[ignore = "needs NATS servers"]
fn keys_keep_their_condition_and_broadcasts_reach_listeners() {
    let lanes = Lanes::new();
    let get = |key: &str| match lanes.log.ask(Request::Get { key: key.into() }) {
        Reply::Value(value) => value,
        other => panic!("{other:?}"),
    };
    let put = |key: &str, after, text: &str| {
        let value = Arc::new(text.as_bytes().to_vec());
        lanes.log.ask(Request::Put { key: key.into(), after, value })
    };
    assert_eq!(get("lease"), None);
    let Reply::Put(first) = put("lease", Revision::NONE, "a") else { panic!("it is new") };
    assert_eq!(put("lease", Revision::NONE, "b"), Reply::Refused);
    assert!(matches!(put("begin.1", Revision::NONE, "c"), Reply::Put(_)));
    assert_eq!(get("lease"), Some((first, Arc::new(b"a".to_vec()))));
    let Reply::Put(second) = put("lease", first, "d") else { panic!("the revision is right") };
    assert_eq!((put("lease", first, "e"), second > first), (Reply::Refused, true));
    assert_eq!(get("lease"), Some((second, Arc::new(b"d".to_vec()))));
    let other = NatsLog::connect(lanes.settings.clone(), 1).unwrap();
    let heard = other.listen();
    // A listener begins a moment later.
    let found = (0..200).find_map(|_| {
        lanes.log.broadcast(b"mark".to_vec());
        heard.recv_timeout(Duration::from_millis(20)).ok()
    });
    assert_eq!(found.as_deref(), Some(&b"mark"[..]));
}

#[test]
#[ignore = "needs NATS servers"]
fn lanes_that_were_removed_or_created_again_are_noticed() {
    let lanes = Lanes::new();
    assert_eq!(lanes.append(0, Some(0), b"a"), Reply::Appended(Place(1)));
    NatsLog::remove_lanes(&lanes.settings, STREAMS).unwrap();
    let gone = |what: &str| match lanes.ask(Request::Read { lane: 0, behind: Place(1) }) {
        Reply::Gone(found) => assert!(found.contains(what), "{found}"),
        other => panic!("{other:?}"),
    };
    gone("was deleted");
    let again = NatsLog::connect(lanes.settings.clone(), STREAMS).unwrap();
    gone("was created again");
    drop(again);
    let mut one_replica = lanes.settings.clone();
    one_replica.replicas = 1;
    let refused = NatsLog::connect(one_replica, STREAMS).unwrap_err();
    assert!(matches!(&refused, NatsError::Mismatch(..)), "{refused}");
    assert!(refused.to_string().contains("3 replicas"), "{refused}");
}

#[test]
#[ignore = "needs NATS servers"]
fn a_log_has_in_its_lanes_what_is_in_its_files_until_another_process_seals_them() {
    let (root, lanes) = (tempfile::tempdir().unwrap(), Lanes::new());
    let log = start(root.path(), lanes.log.clone(), false);
    let (mut writer, mut rng) = (log.writer().unwrap(), Rng::with_seed(5));
    let mut written = vec![Vec::new(); STREAMS];
    let mut write = |count: u64, written: &mut Vec<Vec<Vec<u8>>>| {
        for number in 0..count {
            let (stream, payload) = (rng.usize(..STREAMS), payload(&mut rng, number));
            let place = writer.reserve(stream, payload.len());
            let end = place.end();
            place.fill(FrameKind::Record, &payload);
            written[stream].push(payload);
            if number % 20 == 0 {
                log.frontier().wait(Lane::position(stream), end)?;
            }
        }
        Ok::<_, hyades_wal::Poisoned>(())
    };
    write(2_000, &mut written).unwrap();
    log.flush().unwrap();
    for (stream, payloads) in written.iter().enumerate() {
        let (frames, has_ended) = taken(&lanes.all(stream, 2), stream);
        // A replica that answers may be late: the frames are a beginning then.
        let durable = log.frontier().durable(stream) as usize;
        assert!(frames.len() <= durable && !has_ended);
        assert!(frames.len() < durable || contains_in_order(&frames, payloads), "stream {stream}");
    }
    for stream in 0..STREAMS {
        let seal = seal_of_another(&lanes.all(stream, 1)[0], stream);
        assert!(matches!(lanes.append(stream, None, &seal), Reply::Appended(_)));
    }
    let stopped = write(200, &mut written).and_then(|()| log.flush());
    assert!(stopped.is_err());
    let cause = log.poisoned().expect("the log has stopped").to_string();
    assert!(cause.contains("as incarnation 2"), "{cause}");
    for stream in 0..STREAMS {
        let messages = lanes.all(stream, lanes.last(stream));
        let (frames, has_ended) = taken(&messages[..messages.len() - 1], stream);
        assert!(has_ended && log.frontier().durable(stream) <= frames.len() as u64);
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let mut settings = NatsSettings::new("nats://127.0.0.1:1/x".parse().unwrap());
    settings.timeout = Duration::from_millis(200);
    let error = NatsLog::connect(settings, 1).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1"), "{error}");
}

#[test]
#[ignore = "needs NATS servers"]
fn purged_messages_are_gone_and_places_stay() {
    let lanes = Lanes::new();
    for place in 0..5 {
        assert_eq!(lanes.append(1, Some(place), b"a"), Reply::Appended(Place(place + 1)));
    }
    assert_eq!(lanes.ask(Request::Purge { lane: 1, through: Place(3) }), Reply::Purged);
    assert_eq!(lanes.all(1, 5).len(), 2);
    assert_eq!(lanes.ask(Request::Purge { lane: 1, through: Place(2) }), Reply::Purged);
    assert_eq!(lanes.ask(Request::Purge { lane: 1, through: Place(5) }), Reply::Purged);
    let empty = lanes.ask(Request::Read { lane: 1, behind: Place(5) });
    assert_eq!(empty, Reply::Messages(Vec::new()));
    assert_eq!(lanes.append(1, Some(4), b"b"), Reply::Refused);
    assert_eq!(lanes.append(1, Some(5), b"b"), Reply::Appended(Place(6)));
    let read = lanes.ask(Request::Read { lane: 1, behind: Place::START });
    assert_eq!(read, Reply::Messages(vec![(Place(6), Arc::new(b"b".to_vec()))]));
}

#[test]
#[ignore = "needs NATS servers"]
fn questions_reach_a_node_and_answers_come_back() {
    let lanes = Lanes::new();
    let ask = |node: &str| {
        lanes.ask(Request::Ask { node: node.into(), question: Arc::new(b"what?".to_vec()) })
    };
    assert_eq!(ask("n1"), Reply::Silence, "nobody listens");
    let questions = lanes.log.questions("n1");
    std::thread::sleep(Duration::from_millis(200));
    let large: Vec<u8> = (0..512 << 10).map(|at: usize| at as u8).collect();
    let expected = Reply::Told(Arc::new(large.clone()));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let question = questions.recv().unwrap();
            assert_eq!(question.bytes(), b"what?");
            question.answer(large);
        });
        assert_eq!(ask("n1"), expected);
    });
    assert_eq!(ask("n2"), Reply::Silence);
}

const ROWS: Table = Table::nth(0);

fn declared() -> Builder {
    let mut builder = Database::builder().streams(STREAMS);
    let rows = Schema::new("rows").column("id", Type::I64).column("n", Type::I64);
    builder.table(rows.primary_key(&["id"]));
    builder
}

/// A member, with the database of its newest role.
struct Running(Member, Option<Database>, bool);

impl Running {
    fn new(lanes: &Lanes, node: &str, dir: &std::path::Path) -> Running {
        let mut settings = MemberSettings::new(node, dir);
        settings.hold_interval = Duration::from_millis(200);
        Running(Member::join(lanes.log.clone(), settings, declared).unwrap(), None, false)
    }

    /// Waits for a role with this many rows.
    fn wait_for(&mut self, count: usize) -> Database {
        for _ in 0..3000 {
            match self.0.next(Duration::from_millis(10)).unwrap() {
                Some(Role::Standby(database)) => (self.1, self.2) = (Some(database), false),
                Some(Role::Primary(database)) => (self.1, self.2) = (Some(database), true),
                Some(_) => self.1 = None,
                None => {}
            }
            let rows = |database: &Database| {
                let ids = database.transact(|tx| {
                    let id = |row: &hyades::Row<'_>| row.get(Column::<i64>::at(0));
                    Ok(tx.scan(ROWS).rows()?.iter().map(id).collect::<Vec<i64>>())
                });
                ids.map_or(usize::MAX, |ids| ids.len())
            };
            if let Some(database) = self.1.as_ref().filter(|one| rows(one) == count) {
                return database.clone();
            }
        }
        panic!("no {count} rows: {:#?}", self.0.view());
    }
}

#[test]
#[ignore = "needs NATS servers"]
fn a_member_joins_with_the_files_of_another_once_lanes_are_purged() {
    let lanes = Lanes::new();
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut primary = Running::new(&lanes, "a", dirs[0].path());
    let database = primary.wait_for(0);
    let mut second = Running::new(&lanes, "b", dirs[1].path());
    second.wait_for(0);
    let (mut count, mut first) = (0_i64, 0);
    while first < 200 {
        for _ in 0..500 {
            let row = [count.into(), (count * 7).into()];
            database.transact(|tx| Ok(tx.upsert(ROWS, &row)?)).unwrap();
            count += 1;
        }
        assert!(count < 60_000, "the lanes are not purged");
        let found = inspect(&lanes.settings, Duration::ZERO).unwrap().unwrap();
        first = found.lanes.iter().map(|lane| lane.first).min().unwrap();
    }
    let mut third = Running::new(&lanes, "c", dirs[2].path());
    drop(third.wait_for(count as usize));
    eprintln!("{count} rows, lanes from {first} on: {:?}", third.0.view());
    drop(second);
    drop(third);
    drop((database, primary));
}
