//! Promise: what the log's frontier has reached is in the lanes, at the same positions as in the
//! files, whatever the service loses, repeats or delays; and lies below the end of the incarnation
//! once another process has sealed the lanes.
#![allow(missing_docs)]

mod common;

use common::{STREAMS, contains_in_order, payload, seal_of_another, start, taken};
use fastrand::Rng;
use hyades_platform::clock;
use hyades_replication::begin;
use hyades_replication::lane_tail::LaneTail;
use hyades_replication::service::Place;
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{LaneReader, Message, MessageBody, Taken};
use hyades_wal::{FrameKind, Log, Lsn};
use std::sync::Arc;

const SOME: Faults = Faults {
    lost_requests: 0.15,
    lost_replies: 0.15,
    late_copies: 0.2,
    old_looks: 0.3,
    delays: 0.4,
};

/// Writes records to random streams, and steps the log at random. Returns the payloads, and for
/// each the end of its frame, by stream. Ends early if the log has stopped.
fn write(log: &Log, rng: &mut Rng, count: u64) -> [Vec<(Vec<u8>, Lsn)>; STREAMS] {
    let mut written: [Vec<(Vec<u8>, Lsn)>; STREAMS] = Default::default();
    let mut writer = log.writer().unwrap();
    for number in 0..count {
        let (stream, payload) = (rng.usize(..STREAMS), payload(rng, number));
        let place = writer.reserve(stream, payload.len());
        let end = place.end();
        place.fill(FrameKind::Record, &payload);
        written[stream].push((payload, end));
        for _ in 0..rng.usize(..4) {
            log.step(rng.usize(..STREAMS));
        }
        if log.poisoned().is_some() {
            break;
        }
    }
    written
}

#[test]
fn lanes_hold_what_the_files_hold() {
    for seed in 0..60 {
        let (root, mut rng) = (tempfile::tempdir().unwrap(), Rng::with_seed(seed));
        let service = Arc::new(SimulatedLog::new(STREAMS, seed, SOME));
        let log = start(root.path(), service.clone(), true);
        let written = write(&log, &mut rng, 150);
        while (0..STREAMS).any(|at| log.frontier().durable(at) < log.next_lsn(at)) {
            (0..STREAMS).for_each(|stream| _ = log.step(stream));
        }
        service.settle();
        for (stream, written) in written.iter().enumerate() {
            let (frames, has_ended) = taken(&service.lane(stream), stream);
            let durable = log.frontier().durable(stream);
            assert_eq!((frames.len() as u64, has_ended), (durable, false), "seed {seed}");
            let payloads: Vec<_> = written.iter().map(|(p, _)| p.clone()).collect();
            assert!(contains_in_order(&frames, &payloads), "seed {seed}, stream {stream}");
        }
    }
}

/// Another process seals the lanes.
fn seal_lanes(service: &SimulatedLog) {
    for stream in 0..STREAMS {
        service.put(stream, seal_of_another(&service.lane(stream)[0], stream));
    }
}

#[test]
fn what_the_frontier_has_reached_is_below_the_seal_of_another_process() {
    for seed in 0..60 {
        let (root, mut rng) = (tempfile::tempdir().unwrap(), Rng::with_seed(seed));
        let service = Arc::new(SimulatedLog::new(STREAMS, seed, SOME));
        let log = start(root.path(), service.clone(), true);
        write(&log, &mut rng, 60);
        seal_lanes(&service);
        write(&log, &mut rng, 60);
        (0..1000).for_each(|_| _ = log.step(rng.usize(..STREAMS)));
        service.settle();
        let cause = log.poisoned().expect("the log has stopped").to_string();
        assert!(cause.contains("as incarnation 2"), "seed {seed}: {cause}");
        for stream in 0..STREAMS {
            let (frames, has_ended) = taken(&service.lane(stream), stream);
            assert!(has_ended, "seed {seed}");
            let durable = log.frontier().durable(stream);
            assert!(durable <= frames.len() as u64, "seed {seed}: {durable} {}", frames.len());
        }
    }
}

#[test]
fn threads_write_both_places_and_a_seal_stops_them() {
    let root = tempfile::tempdir().unwrap();
    let service = Arc::new(SimulatedLog::new(STREAMS, 7, SOME));
    let log = start(root.path(), service.clone(), false);
    std::thread::scope(|scope| {
        for stream in 0..STREAMS {
            let (log, service) = (&log, &service);
            scope.spawn(move || {
                let (mut writer, mut rng) = (log.writer().unwrap(), Rng::with_seed(stream as u64));
                for number in 0..2000 {
                    let payload = payload(&mut rng, number);
                    let place = writer.reserve(stream, payload.len());
                    let end = place.end();
                    place.fill(FrameKind::Record, &payload);
                    let waits = number % 50 == 0;
                    if waits
                        && log.frontier().wait(hyades_wal::Lane::position(stream), end).is_err()
                    {
                        return;
                    }
                    if stream == 0 && number == 1000 {
                        seal_lanes(service);
                    }
                    if log.poisoned().is_some() {
                        return;
                    }
                }
            });
        }
    });
    assert!(log.poisoned().is_some());
    for stream in 0..STREAMS {
        let (frames, has_ended) = taken(&service.lane(stream), stream);
        assert!(has_ended);
        assert!(log.frontier().durable(stream) <= frames.len() as u64);
    }
}

/// Another promise: a lane that has lost messages stops its writer and its readers, once no answer
/// has shown the messages for half a minute.
#[test]
fn lost_messages_stop_the_writer_and_readers() {
    let at = |seconds: u64| clock::simulate(Some(seconds * 1_000_000_000));
    at(1);
    let (root, mut rng) = (tempfile::tempdir().unwrap(), Rng::with_seed(3));
    let service = Arc::new(SimulatedLog::new(STREAMS, 3, Faults::default()));
    let log = start(root.path(), service.clone(), true);
    let store = || {
        while (0..STREAMS).any(|at| log.frontier().durable(at) < log.next_lsn(at)) {
            (0..STREAMS).for_each(|stream| _ = log.step(stream));
        }
    };
    write(&log, &mut rng, 50);
    store();
    let begin = begin::next(&*service, 0).unwrap().unwrap();
    let (database, dim) = (begin.database().unwrap(), begin.incarnation.dims[0].clone());
    let mut tail = LaneTail::new((0, dim), (database, 1), None);
    while !tail.read(&*service).unwrap().is_empty() {}
    assert_eq!(tail.end(), log.frontier().durable(0));

    let lost = service.lane(0).len() as u64 - 1;
    service.lose_behind(0, Place(lost));
    at(2);
    write(&log, &mut rng, 50);
    let mut step = |second: u64| {
        at(second);
        for _ in 0..100 {
            (0..STREAMS).for_each(|stream| _ = log.step(stream));
        }
        (tail.read(&*service).map(|found| found.len()), log.poisoned().map(|why| why.to_string()))
    };
    for second in 2..32 {
        assert_eq!(step(second), (Ok(0), None), "a later leader may know the messages");
    }
    let (read, written) = step(32);
    let read = read.unwrap_err().to_string();
    for why in [read, written.expect("the log has stopped")] {
        assert!(why.contains("lane 0 has lost messages"), "{why}");
    }
    clock::simulate(None);
}

/// What lies behind a missing message may depend on that message.
#[test]
fn nothing_behind_a_missing_message_is_taken() {
    let message = |index: u64, previous: u32| {
        let body = MessageBody::Data(vec![7; 10]);
        let (database, stored, start) = ([3; 16], vec![0; STREAMS], 10 * index);
        let message =
            Message { database, stream: 0, incarnation: 1, index, start, stored, previous, body };
        let chain = message.encode().1;
        (message, chain)
    };
    let mut reader = LaneReader::new(1, 0, 5);
    let (first, chain) = message(0, 5);
    let (second, next) = message(1, chain);
    let (third, last) = message(2, next);
    assert_eq!(reader.take(first, chain), Taken::Frames(vec![7; 10]));
    assert!(matches!(reader.take(third, last), Taken::Hole(_)), "a message is missing");
    assert_eq!(reader.take(second, next), Taken::Late, "the reader has ended");
}

/// Mutation test: each rule broken is noticed.
#[test]
fn a_broken_rule_is_noticed() {
    use hyades_platform::mutation::{self, Mutation};
    use std::panic::catch_unwind;
    // The broken rule is global to the process: the other tests run in processes of their own.
    let name = "HYADES_BROKEN_LANE";
    if let Ok(rule) = std::env::var(name) {
        let sealed = what_the_frontier_has_reached_is_below_the_seal_of_another_process;
        let cases: [(Mutation, fn()); 3] = [
            (Mutation::BlindResume, sealed),
            (Mutation::RaiseAtLocalSync, sealed),
            (Mutation::SkipHole, nothing_behind_a_missing_message_is_taken),
        ];
        let (broken, test) = cases[rule.parse::<usize>().unwrap()];
        mutation::set(Some(broken));
        assert!(catch_unwind(test).is_err(), "{} goes unnoticed", broken.name());
        return;
    }
    for rule in ["0", "1", "2"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_broken_rule_is_noticed"])
            .env(name, rule)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
