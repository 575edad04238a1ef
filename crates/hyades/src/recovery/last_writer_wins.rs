//! Replay of a log without commands: chunks of all streams by all threads, in any order. Row versions
//! decide, so nothing waits for anything but to know whether a record is live.

use super::Replay;
use super::apply::{Applier, count};
use super::decode::{Decoder, Shape};
use crate::error::Error;
use crate::logging::admits;
use crate::logging::record::Head;
use hyades_wal::{Chunk, FrameKind, Lsn, ReaderEnd, StreamReader};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

type Parts = HashMap<Lsn, Vec<u8>>;

struct Lane {
    stream: u32,
    reader: Mutex<Source>,
    /// How far the stream is known to be valid. Written by the holder of `reader` (Release), read by
    /// all to judge records: the bytes below are valid.
    valid: AtomicU64,
    finished: AtomicBool,
}

struct Source {
    reader: StreamReader,
    /// Parts seen and not yet asked for by their record.
    parts: Parts,
}

/// A record that could not be judged yet.
struct Undecided {
    validity: Vec<Lsn>,
    head: Head,
    body: Vec<u8>,
}

/// Replays one incarnation. Returns where its streams end.
pub(crate) fn replay<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    readers: Vec<StreamReader>,
    shape: Shape,
    threads: usize,
) -> Result<Vec<ReaderEnd>, Error> {
    let lanes: Vec<Lane> = readers
        .into_iter()
        .map(|reader| Lane {
            stream: reader.stream,
            valid: AtomicU64::new(reader.valid_to()),
            finished: AtomicBool::new(false),
            reader: Mutex::new(Source { reader, parts: Parts::new() }),
        })
        .collect();
    let undecided = Mutex::new(Vec::new());
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            if let Err(error) = work(replay, &lanes, shape, &turn, &undecided) {
                replay.fail(error);
            }
        };
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    if replay.has_failed() {
        return Ok(Vec::new());
    }
    // Now the ends are known: what is not admitted by them is dead.
    let mut applier = Applier::default();
    let guard = crossbeam_epoch::pin();
    for record in undecided.into_inner().expect("no holder panics") {
        if is_live(&lanes, &record.validity) {
            count(replay, &record.head);
            applier.apply(replay, &record.head, &record.body, &guard)?;
            replay.counts.records.fetch_add(1, Ordering::Relaxed);
        } else {
            replay.counts.dead.fetch_add(1, Ordering::Relaxed);
        }
    }
    applier.finish(replay);
    Ok(lanes
        .into_iter()
        .map(|lane| lane.reader.into_inner().expect("no holder panics").reader.end())
        .collect())
}

/// The rule, against what is known to be valid.
fn is_live(lanes: &[Lane], validity: &[Lsn]) -> bool {
    admits(|lane| lanes[lane].valid.load(Ordering::Acquire), validity.iter().copied().enumerate())
}

fn work<S: Default + Send + Sync + 'static>(
    replay: &Replay<S>,
    lanes: &[Lane],
    shape: Shape,
    turn: &AtomicUsize,
    undecided: &Mutex<Vec<Undecided>>,
) -> Result<(), Error> {
    let mut applier = Applier::default();
    let mut later = Vec::new();
    while !replay.has_failed() {
        let Some((lane, chunk, parts)) = next_chunk(lanes, turn)? else { break };
        let mut decoder = Decoder::new(shape, lane.stream);
        decoder.enter_with_parts(&chunk, parts);
        let mut records = 0;
        let guard = crossbeam_epoch::pin();
        for frame in chunk.frames() {
            if frame.kind == FrameKind::Part {
                continue; // gathered by `next_chunk`
            }
            let Some(decoded) = decoder.decode(&frame)? else { continue };
            if is_live(lanes, &decoder.validity) {
                count(replay, &decoded.head);
                applier.apply(replay, &decoded.head, &decoded.body, &guard)?;
                records += 1;
            } else {
                later.push(Undecided {
                    validity: decoder.validity.clone(),
                    head: decoded.head,
                    body: decoded.body.into_owned(),
                });
            }
        }
        replay.counts.records.fetch_add(records, Ordering::Relaxed);
        replay.counts.bytes.fetch_add(chunk.end() - chunk.start(), Ordering::Relaxed);
    }
    applier.finish(replay);
    undecided.lock().expect("no holder panics").append(&mut later);
    Ok(())
}

/// Reads the next chunk of some stream, with the parts that its records may ask for.
fn next_chunk<'l>(
    lanes: &'l [Lane],
    turn: &AtomicUsize,
) -> Result<Option<(&'l Lane, Chunk, Parts)>, Error> {
    loop {
        let first = turn.fetch_add(1, Ordering::Relaxed);
        let mut busy = false;
        for at in 0..lanes.len() {
            let lane = &lanes[(first + at) % lanes.len()];
            if lane.finished.load(Ordering::Acquire) {
                continue;
            }
            let Ok(mut source) = lane.reader.try_lock() else {
                busy = true;
                continue;
            };
            match source.reader.next_chunk()? {
                Some(chunk) => {
                    lane.valid.store(chunk.end(), Ordering::Release);
                    let parts = gather_parts(&chunk, &mut source.parts);
                    return Ok(Some((lane, chunk, parts)));
                }
                None => {
                    lane.valid.store(source.reader.valid_to(), Ordering::Release);
                    lane.finished.store(true, Ordering::Release);
                }
            }
        }
        if !busy {
            return Ok(None);
        }
        std::thread::yield_now();
    }
}

/// Adds the chunk's Part frames to those of the stream and takes out the bodies that its records
/// complete.
fn gather_parts(chunk: &Chunk, pending: &mut Parts) -> Parts {
    let mut complete = Parts::new();
    for frame in chunk.frames() {
        match frame.kind {
            FrameKind::Part => {
                if let Some((first, part)) = frame.payload.split_first_chunk::<8>() {
                    let body = pending.entry(u64::from_le_bytes(*first)).or_default();
                    body.extend_from_slice(part);
                }
            }
            FrameKind::Record if !pending.is_empty() => {
                let continued = Head::decode(&mut &frame.payload[..]).and_then(|h| h.continued);
                if let Some((first, body)) =
                    continued.and_then(|first| pending.remove_entry(&first))
                {
                    complete.insert(first, body);
                }
            }
            _ => {}
        }
    }
    complete
}
