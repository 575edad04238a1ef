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
use hyades_replication::nats::{NatsError, NatsLog, NatsSettings};
use hyades_replication::service::Revision;
use hyades_replication::{LogService, Place, Reply, Request};
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
