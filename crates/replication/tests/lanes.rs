//! Promise: what the log's frontier has reached is in the lanes, at the same positions as in the
//! files, whatever the service loses, repeats or delays; and lies below the end of the incarnation
//! once another process has sealed the lanes.
#![allow(missing_docs)]

use fastrand::Rng;
use hyades_replication::appender::LaneBegin;
use hyades_replication::simulated::{Faults, SimulatedLog};
use hyades_replication::{Appender, LaneReader, Message, MessageBody, Place, Taken};
use hyades_wal::{FrameKind, IncarnationSettings, Log, LogOptions, Lsn, open};
use std::path::Path;
use std::sync::Arc;

const STREAMS: usize = 3;
const DATABASE: [u8; 16] = [9; 16];
const SOME: Faults = Faults {
    lost_requests: 0.15,
    lost_replies: 0.15,
    late_copies: 0.2,
    old_looks: 0.3,
    delays: 0.4,
};

fn options(dir: &Path) -> LogOptions {
    let mut options = LogOptions::new(vec![dir.to_owned()], STREAMS);
    options.buffer_bytes = 1 << 16;
    options.segment_bytes = 1 << 20;
    options.anchor_interval_bytes = 2000;
    options
}

/// Starts a log whose first incarnation is written to the service, too.
fn start(dir: &Path, service: &Arc<SimulatedLog>, stepped: bool) -> (Log, Vec<Lsn>) {
    let recovering = open(options(dir)).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    let probe = recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap();
    let starts: Vec<Lsn> = (0..STREAMS).map(|stream| probe.next_lsn(stream)).collect();
    probe.close().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::create_dir(dir).unwrap();
    let begins: Vec<LaneBegin> = starts
        .iter()
        .map(|start| LaneBegin { behind: Place::START, start: *start, chain: 0 })
        .collect();
    let mut options = options(dir);
    options.stepped = stepped;
    options.remote = Some(Arc::new(Appender::new(service.clone(), (DATABASE, 1), &begins)));
    let recovering = open(options).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    (recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap(), starts)
}

/// The frames that every reader takes from a lane, and whether the incarnation has ended there.
fn taken(service: &SimulatedLog, stream: usize, start: Lsn) -> (Vec<u8>, bool) {
    let (mut frames, mut reader) = (Vec::new(), LaneReader::new(1, start, 0));
    for bytes in service.lane(stream) {
        let (message, chain) = Message::decode(&bytes).unwrap();
        assert_eq!((message.database, message.stream), (DATABASE, stream as u32));
        match reader.take(message, chain) {
            Taken::Frames(more) => frames.extend(more),
            Taken::Repeated | Taken::Late => {}
            Taken::Ended { .. } => return (frames, true),
            Taken::Hole(what) => panic!("lane {stream}: {what}"),
        }
    }
    (frames, false)
}

/// The payloads of the records in encoded frames are found in order.
fn contains_in_order(frames: &[u8], payloads: &[Vec<u8>]) -> bool {
    let mut rest = frames;
    payloads.iter().all(|payload| {
        let at = rest.windows(payload.len()).position(|window| window == payload);
        at.map(|at| rest = &rest[at + payload.len()..]).is_some()
    })
}

fn payload(rng: &mut Rng, number: u64) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend((0..rng.usize(8..300)).map(|_| rng.u8(..)));
    payload
}

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
        let (log, starts) = start(root.path(), &service, true);
        let written = write(&log, &mut rng, 150);
        while (0..STREAMS).any(|at| log.frontier().durable(at) < log.next_lsn(at)) {
            (0..STREAMS).for_each(|stream| _ = log.step(stream));
        }
        service.settle();
        for (stream, start) in starts.iter().enumerate() {
            let (frames, has_ended) = taken(&service, stream, *start);
            let durable = log.frontier().durable(stream) - start;
            assert_eq!((frames.len() as u64, has_ended), (durable, false), "seed {seed}");
            let payloads: Vec<_> = written[stream].iter().map(|(p, _)| p.clone()).collect();
            assert!(contains_in_order(&frames, &payloads), "seed {seed}, stream {stream}");
        }
    }
}

fn seal(stream: usize, incarnation: u32) -> Vec<u8> {
    let message = Message {
        database: DATABASE,
        stream: stream as u32,
        incarnation,
        index: 0,
        start: 0,
        stored: vec![0; STREAMS],
        previous: 0,
        body: MessageBody::Seal("another".into()),
    };
    message.encode().0
}

#[test]
fn what_the_frontier_has_reached_is_below_the_seal_of_another_process() {
    for seed in 0..60 {
        let (root, mut rng) = (tempfile::tempdir().unwrap(), Rng::with_seed(seed));
        let service = Arc::new(SimulatedLog::new(STREAMS, seed, SOME));
        let (log, starts) = start(root.path(), &service, true);
        write(&log, &mut rng, 60);
        (0..STREAMS).for_each(|stream| service.put(stream, seal(stream, 2)));
        write(&log, &mut rng, 60);
        (0..1000).for_each(|_| _ = log.step(rng.usize(..STREAMS)));
        service.settle();
        let cause = log.poisoned().expect("the log has stopped").to_string();
        assert!(cause.contains("as incarnation 2"), "seed {seed}: {cause}");
        for (stream, start) in starts.iter().enumerate() {
            let (frames, has_ended) = taken(&service, stream, *start);
            assert!(has_ended, "seed {seed}");
            let durable = log.frontier().durable(stream) - start;
            assert!(durable <= frames.len() as u64, "seed {seed}: {durable} {}", frames.len());
        }
    }
}

#[test]
fn threads_write_both_places_and_a_seal_stops_them() {
    let root = tempfile::tempdir().unwrap();
    let service = Arc::new(SimulatedLog::new(STREAMS, 7, SOME));
    let (log, starts) = start(root.path(), &service, false);
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
                        (0..STREAMS).for_each(|stream| service.put(stream, seal(stream, 2)));
                    }
                    if log.poisoned().is_some() {
                        return;
                    }
                }
            });
        }
    });
    assert!(log.poisoned().is_some());
    for (stream, start) in starts.iter().enumerate() {
        let (frames, has_ended) = taken(&service, stream, *start);
        assert!(has_ended);
        assert!(log.frontier().durable(stream) - start <= frames.len() as u64);
    }
}

/// Mutation test: each rule broken is noticed.
#[test]
fn a_broken_rule_is_noticed() {
    use hyades_platform::mutation::{self, Mutation};
    use std::panic::catch_unwind;
    // The broken rule is global to the process: the other tests run in processes of their own.
    let name = "HYADES_BROKEN_LANE";
    if let Ok(rule) = std::env::var(name) {
        let rules = [Mutation::BlindResume, Mutation::RaiseAtLocalSync];
        mutation::set(Some(rules[usize::from(rule == "1")]));
        let unnoticed =
            catch_unwind(what_the_frontier_has_reached_is_below_the_seal_of_another_process);
        assert!(unnoticed.is_err(), "rule {rule} goes unnoticed");
        return;
    }
    for rule in ["0", "1"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_broken_rule_is_noticed"])
            .env(name, rule)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
