//! A tee of a log: each batch of its streams, for followers and mirrors.

use fastrand::Rng;
use hyades::wal::{Chunk, Incarnation, Lsn, Mirror, Remote, RemoteEnded};
use hyades::{FrameChunks, FrameSource};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bytes of one stream, as the flusher has sent them.
#[derive(Debug, Default)]
struct TeeLane {
    batches: Vec<(Lsn, Vec<u8>)>,
    chunks: Vec<Chunk>,
    end: Lsn,
}

/// Keeps each batch of a log's streams, and gives the frames to followers.
#[derive(Debug)]
pub struct Tee {
    lanes: Vec<Mutex<TeeLane>>,
    /// Where each stream begins.
    starts: Mutex<Vec<Lsn>>,
    /// Frames of a stream from here on are withheld, for tests of what is missing.
    pub withheld: Mutex<Option<(usize, Lsn)>>,
    /// The streams whose batches are lost from now on, a bit for each.
    pub loses: AtomicU64,
    ended: AtomicBool,
    rng: Mutex<Rng>,
}

impl Tee {
    pub fn new(streams: usize, seed: u64) -> Arc<Tee> {
        Arc::new(Tee {
            lanes: (0..streams).map(|_| Mutex::default()).collect(),
            starts: Mutex::default(),
            withheld: Mutex::default(),
            loses: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            rng: Mutex::new(Rng::with_seed(seed)),
        })
    }

    /// Notes where the streams of the incarnation begin.
    pub fn begin(&self, incarnation: &Incarnation) {
        self.begin_at(incarnation.dims.iter().map(|dim| dim.start).collect());
    }

    pub fn begin_at(&self, starts: Vec<Lsn>) {
        *self.starts.lock().unwrap() = starts;
    }

    /// Whether the tee has all frames up to these positions.
    pub fn has(&self, to: &[Lsn]) -> bool {
        self.ends().iter().zip(to).all(|(end, to)| end >= to)
    }

    /// By stream, the end of the frames stored.
    pub fn ends(&self) -> Vec<Lsn> {
        let starts = self.starts.lock().unwrap();
        let ends = self.lanes.iter().map(|lane| lane.lock().unwrap().end);
        ends.zip(&*starts).map(|(end, start)| end.max(*start)).collect()
    }

    /// Gives a mirror what it lacks.
    pub fn feed(&self, mirror: &mut Mirror) {
        for (stream, lane) in self.lanes.iter().enumerate() {
            let received = mirror.received()[stream];
            for (start, bytes) in &lane.lock().unwrap().batches {
                if start + bytes.len() as u64 > received {
                    mirror.append(stream, *start, bytes).unwrap();
                }
            }
        }
    }

    fn loses(&self, stream: usize) -> bool {
        self.loses.load(Ordering::SeqCst) >> stream & 1 == 1
    }
}

impl Remote for Tee {
    fn max_batch_bytes(&self) -> usize {
        2 << 20
    }

    fn send(&self, stream: usize, start: Lsn, frames: [&[u8]; 2]) {
        if self.loses(stream) {
            return;
        }
        let mut lane = self.lanes[stream].lock().unwrap();
        let bytes = frames.concat();
        assert!(lane.batches.is_empty() || lane.end == start, "batches follow each other");
        lane.end = start + bytes.len() as u64;
        lane.batches.push((start, bytes));
    }

    fn stored(&self, stream: usize, wait: bool) -> Option<Result<(), RemoteEnded>> {
        while self.loses(stream) {
            if self.ended.load(Ordering::SeqCst) {
                return Some(Err(RemoteEnded::Stopped));
            }
            if !wait {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Some(Ok(()))
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

impl FrameSource for Tee {
    fn frames(&self, stream: usize, from: Lsn, to: Lsn) -> Result<FrameChunks, hyades::wal::Error> {
        let starts = self.starts.lock().unwrap().clone();
        let mut lane = self.lanes[stream].lock().unwrap();
        let TeeLane { batches, chunks, .. } = &mut *lane;
        for (start, bytes) in batches.iter().skip(chunks.len()) {
            // The anchor behind the last chunk.
            let anchor = match chunks.last() {
                None => starts.clone(),
                Some(last) => last.part(last.end(), last.end()).unwrap().anchor().to_vec(),
            };
            chunks.push(Chunk::of_frames(*start, bytes.clone(), anchor));
        }
        let withheld = *self.withheld.lock().unwrap();
        let last = withheld.filter(|(lane, _)| *lane == stream).map_or(to, |(_, lsn)| lsn);
        let (mut given, mut at, mut rng) = (Vec::new(), from, self.rng.lock().unwrap());
        while at < last {
            let chunk = &chunks[chunks.partition_point(|chunk| chunk.end() <= at)];
            // Chunks of any number of frames.
            let frames = chunk.frames_from(at).take_while(|frame| frame.end <= to);
            let ends: Vec<Lsn> = frames.map(|frame| frame.end).collect();
            let end = match rng.usize(0..3) {
                0 => ends[rng.usize(0..ends.len())],
                _ => *ends.last().unwrap(),
            };
            given.push(Ok(chunk.part(at, end).expect("the positions are between frames")));
            at = end;
        }
        if withheld.is_some_and(|(lane, _)| lane == stream) {
            given.pop();
        }
        Ok(Box::new(given.into_iter()))
    }
}
