//! What the tests of lanes share.
#![allow(dead_code, reason = "each test file uses a part")]

use fastrand::Rng;
use hyades_replication::seal::{Writer, seal_message};
use hyades_replication::{FirstAppender, LaneReader, LogService, Message, Taken};
use hyades_wal::{IncarnationSettings, Log, LogOptions, open};
use std::path::Path;
use std::sync::Arc;

pub const STREAMS: usize = 3;

pub fn options(dir: &Path) -> LogOptions {
    let mut options = LogOptions::new(vec![dir.to_owned()], STREAMS);
    options.buffer_bytes = 1 << 16;
    options.segment_bytes = 1 << 20;
    options.anchor_interval_bytes = 2000;
    options
}

/// Starts a log whose first incarnation is written to the service, too, from position 0 on.
pub fn start(dir: &Path, service: Arc<dyn LogService>, stepped: bool) -> Log {
    let mut options = options(dir);
    options.stepped = stepped;
    options.remote = Some(Arc::new(FirstAppender::new(service, "one")));
    let recovering = open(options).unwrap();
    let verdict = recovering.verdict(&[]).unwrap();
    recovering.start(IncarnationSettings::default(), &verdict, 1).unwrap()
}

/// The frames that every reader takes from the lane of a stream, and whether the incarnation has
/// ended there.
pub fn taken(lane: &[Arc<Vec<u8>>], stream: usize) -> (Vec<u8>, bool) {
    let (seal, chain) = Message::decode(&lane[0]).unwrap();
    let (mut frames, mut reader) = (Vec::new(), LaneReader::new(1, 0, chain));
    for bytes in lane {
        let (message, chain) = Message::decode(bytes).unwrap();
        assert_eq!((message.database, message.stream), (seal.database, stream as u32));
        match reader.take(message, chain) {
            Taken::Frames(more) => frames.extend(more),
            Taken::Repeated | Taken::Late => {}
            Taken::Ended { .. } => return (frames, true),
            Taken::Hole(what) => panic!("lane {stream}: {what}"),
        }
    }
    (frames, false)
}

/// The seal of a later incarnation by another process, for a lane with this first message.
pub fn seal_of_another(first: &[u8], stream: usize) -> Vec<u8> {
    let (first, _) = Message::decode(first).unwrap();
    let writer = Writer { database: first.database, incarnation: 2, node: "another".into() };
    seal_message(&writer, stream, STREAMS).encode().0
}

/// The payloads of the records in encoded frames are found in order.
pub fn contains_in_order(frames: &[u8], payloads: &[Vec<u8>]) -> bool {
    let mut rest = frames;
    payloads.iter().all(|payload| {
        let at = rest.windows(payload.len()).position(|window| window == payload);
        at.map(|at| rest = &rest[at + payload.len()..]).is_some()
    })
}

pub fn payload(rng: &mut Rng, number: u64) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend((0..rng.usize(8..300)).map(|_| rng.u8(..)));
    payload
}
