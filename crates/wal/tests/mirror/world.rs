//! A replicated log in memory, members with simulated disks, and what the files of a member must
//! hold.

use crate::common::{read_all, small};
use hyades_platform::device::{SimulatedDevice, SimulatedDisk};
use hyades_platform::random::Random;
use hyades_wal::{
    BeginAt, Chunk, Error, IncarnationSettings, LogOptions, Lsn, Mirror, Remote, RemoteEnded,
    StreamId, StreamStart, open_read,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A frame: start, end, kind, payload, and the anchor in effect.
pub type Seen = (Lsn, Lsn, u8, Vec<u8>, Vec<Lsn>);

/// The kind of anchors.
pub const ANCHOR: u8 = 5;

/// The frames in encoded bytes from `start` on.
pub fn frames(start: Lsn, bytes: &[u8], anchor: &[Lsn]) -> Vec<Seen> {
    let (mut found, mut rest, mut at, mut anchor) = (Vec::new(), bytes, start, anchor.to_vec());
    while !rest.is_empty() {
        let (mut length, mut used) = (0, 0);
        loop {
            let byte = rest[4 + used];
            length |= usize::from(byte & 0x7f) << (7 * used);
            used += 1;
            if byte < 0x80 {
                break;
            }
        }
        let (frame, behind) = rest.split_at(4 + used + 1 + length);
        let (kind, payload) = (frame[4 + used], &frame[5 + used..]);
        let end = at + frame.len() as u64;
        found.push((at, end, kind, payload.to_vec(), anchor.clone()));
        if kind == ANCHOR {
            hyades_wal::read_anchor(payload, &mut anchor).unwrap();
        }
        (rest, at) = (behind, end);
    }
    found
}

/// The messages of a lane: where each begins, and its frames.
type Messages = Vec<(Lsn, Vec<u8>)>;

/// An incarnation in the replicated log: the remote of its primary.
#[derive(Debug)]
pub struct Stored {
    pub at: BeginAt,
    /// The primary.
    node: &'static str,
    lanes: Mutex<Vec<Messages>>,
    /// By lane, whether the last message sent is stored.
    sent: Mutex<Vec<bool>>,
    /// The lanes whose messages are lost from now on, a bit for each.
    pub loses: AtomicU64,
    ended: AtomicBool,
}

impl Stored {
    pub fn new(at: BeginAt, node: &'static str) -> Arc<Self> {
        let lanes = at.streams.len();
        Arc::new(Stored {
            at,
            node,
            lanes: Mutex::new(vec![Vec::new(); lanes]),
            sent: Mutex::new(vec![true; lanes]),
            loses: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    pub fn starts(&self) -> Vec<Lsn> {
        self.at.streams.iter().map(|stream| stream.start).collect()
    }

    /// By lane, the end of the last message stored.
    pub fn ends(&self) -> Vec<Lsn> {
        let end = |(lane, start): (&Messages, Lsn)| {
            lane.last().map_or(start, |(at, frames)| at + frames.len() as u64)
        };
        self.lanes.lock().unwrap().iter().zip(self.starts()).map(end).collect()
    }

    /// The first message with frames behind `position`.
    pub fn message(&self, lane: usize, position: Lsn) -> Option<(Lsn, Vec<u8>)> {
        let lanes = self.lanes.lock().unwrap();
        lanes[lane].iter().find(|(at, frames)| at + frames.len() as u64 > position).cloned()
    }

    /// All frames of a lane.
    pub fn frames(&self, lane: usize) -> Vec<Seen> {
        let bytes: Vec<u8> =
            self.lanes.lock().unwrap()[lane].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        frames(self.starts()[lane], &bytes, &self.starts())
    }
}

impl Remote for Stored {
    fn max_batch_bytes(&self) -> usize {
        16 << 10
    }

    fn send(&self, stream: usize, start: Lsn, parts: [&[u8]; 2]) {
        let bytes = parts.concat();
        let ends = self.ends();
        // Promise: an anchor states nothing that the lanes do not have.
        for (_, _, kind, payload, _) in frames(start, &bytes, &ends) {
            let mut stated = vec![0; ends.len()];
            if kind == ANCHOR {
                hyades_wal::read_anchor(&payload, &mut stated).unwrap();
                let is_stored = stated.iter().zip(&ends).all(|(lsn, end)| lsn <= end);
                assert!(is_stored, "an anchor states {stated:?}, stored is {ends:?}");
            }
        }
        assert_eq!(ends[stream], start, "a batch follows what is stored");
        let is_stored = self.loses.load(Ordering::SeqCst) >> stream & 1 == 0;
        self.sent.lock().unwrap()[stream] = is_stored;
        if is_stored {
            self.lanes.lock().unwrap()[stream].push((start, bytes));
        }
    }

    fn stored(&self, stream: usize, _wait: bool) -> Option<Result<(), RemoteEnded>> {
        if self.sent.lock().unwrap()[stream] {
            return Some(Ok(()));
        }
        self.ended.load(Ordering::SeqCst).then_some(Err(RemoteEnded::Stopped))
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// The replicated log: its incarnations.
#[derive(Default)]
pub struct World {
    pub database: [u8; 16],
    pub incarnations: Vec<Arc<Stored>>,
}

impl World {
    pub fn newest(&self) -> &Arc<Stored> {
        self.incarnations.last().unwrap()
    }

    /// The next incarnation begins where the last has ended, with new streams if more are wanted.
    pub fn next(&self, streams: usize) -> BeginAt {
        let Some(last) = self.incarnations.last() else {
            let stream = |id| StreamStart { stream: StreamId(id as u32), start: 0 };
            return BeginAt { number: 1, streams: (0..streams).map(stream).collect() };
        };
        let known = last.at.streams.iter().zip(last.ends());
        let known = known.map(|(old, start)| StreamStart { stream: old.stream, start });
        let ids = self.incarnations.iter().flat_map(|i| &i.at.streams).map(|s| s.stream.0);
        let next = ids.max().unwrap() + 1;
        let new = (next..).map(|id| StreamStart { stream: StreamId(id), start: 0 });
        // Numbers may be left out: of candidates that died before they began.
        let number = last.at.number + 1 + last.at.number % 2;
        BeginAt { number, streams: known.chain(new).take(streams).collect() }
    }

    /// Gives a mirror something that it lacks; false if there is nothing.
    pub fn follow(&self, mirror: &mut Mirror, random: &mut Random) -> Result<bool, Error> {
        let settings = IncarnationSettings::default;
        let Some(number) = mirror.incarnation() else {
            return mirror.begin(&self.incarnations[0].at, &[], settings(), 1).map(|()| true);
        };
        let at = self.incarnations.iter().position(|i| i.at.number == number).unwrap();
        let (stored, next) = (&self.incarnations[at], self.incarnations.get(at + 1));
        let (received, ends) = (mirror.received(), stored.ends());
        let has_all = received == ends;
        if let Some(next) = next.filter(|_| has_all || random.chance(0.2)) {
            let begun = mirror.begin(&next.at, &ends, settings(), 1);
            // Promise: the files hold an incarnation up to its end before the next one begins.
            if begun.is_ok() || has_all {
                assert!(has_all, "incarnation {number} ends at {ends:?}, not at {received:?}");
                return begun.map(|()| true);
            }
            if !matches!(begun, Err(Error::Invalid(_))) {
                return begun.map(|()| true);
            }
        }
        let lacking: Vec<usize> = (0..ends.len()).filter(|&l| received[l] < ends[l]).collect();
        if lacking.is_empty() {
            return Ok(false);
        }
        let lane = lacking[random.below(lacking.len() as u64) as usize];
        // Sometimes a message that the mirror has.
        let from = received[lane].saturating_sub(random.below(3) * 700);
        let (start, bytes) = stored.message(lane, from).unwrap();
        mirror.append(lane, start, &bytes)?;
        if random.chance(0.3) {
            mirror.sync()?;
        }
        Ok(true)
    }

    /// Opens a copy of a member's disk with the reader of any log, and checks what is there: of
    /// each incarnation a prefix of the lanes, at least up to `floor`, and exactly the lanes if the
    /// end is recorded. Until then the primary's files may have more. Returns the number of frames.
    pub fn check_files(
        &self,
        disk: &SimulatedDisk,
        node: &str,
        floor: &BTreeMap<(u32, usize), Lsn>,
    ) -> usize {
        let options = small("/db".as_ref(), 1, Arc::new(disk.fork().process(0)));
        let recovering = open_read(options).unwrap();
        let (read, verdict) = read_all(&recovering).unwrap();
        let mut checked = 0;
        for (incarnation, end) in recovering.manifest().incarnations.iter().zip(verdict.ends()) {
            let number = incarnation.number;
            let stored = self.incarnations.iter().find(|i| i.at.number == number).unwrap();
            for (lane, dim) in incarnation.dims.iter().enumerate() {
                let from = recovering.manifest().covered(number, dim.stream).unwrap_or(dim.start);
                let expected: Vec<Seen> =
                    stored.frames(lane).into_iter().filter(|(_, end, ..)| *end > from).collect();
                let found = read.iter().filter(|f| f.incarnation == number && f.lane == lane);
                let found: Vec<Seen> = found
                    .map(|f| (f.start, f.end, f.kind as u8, f.payload.clone(), f.anchor.clone()))
                    .collect();
                let same = found.len().min(expected.len());
                let first = (0..same).find(|at| found[*at] != expected[*at]);
                let differ = first.map(|at| (&found[at], &expected[at]));
                assert!(differ.is_none(), "lane {lane} of {number}: {differ:?}");
                let may_have_ghosts = stored.node == node && dim.end.is_none();
                assert!(found.len() == same || may_have_ghosts, "lane {lane} of {number}: ghosts");
                let least = floor.get(&(number, lane)).copied().unwrap_or(0).max(from);
                assert!(end.ends[lane] >= least, "lane {lane} of {number} lost proven frames");
                if let Some(recorded) = dim.end {
                    assert_eq!(recorded, stored.ends()[lane], "lane {lane} of {number}: its end");
                    assert_eq!(found.len(), expected.len(), "lane {lane} of {number} is short");
                }
                checked += same;
            }
        }
        checked
    }

    /// Reads frames back from the mirror, between any two ends of frames.
    pub fn check_chunks(&self, mirror: &Mirror, random: &mut Random) -> Result<(), Error> {
        let Some(number) = mirror.incarnation() else { return Ok(()) };
        let stored = self.incarnations.iter().find(|i| i.at.number == number).unwrap();
        let lane = random.below(stored.at.streams.len() as u64) as usize;
        let (start, to) = (stored.starts()[lane], mirror.received()[lane]);
        let first = mirror.manifest().covered(number, stored.at.streams[lane].stream);
        let first = first.unwrap_or(start);
        let within = |(_, end, ..): &Seen| *end > first && *end <= to;
        let all: Vec<Seen> = stored.frames(lane).into_iter().filter(within).collect();
        let from = random.below(all.len() as u64 + 1) as usize;
        let count = random.below((all.len() - from) as u64 + 1) as usize;
        let wanted = &all[from..from + count];
        let Some(from) = wanted.first().map(|first| first.0) else { return Ok(()) };
        let chunks = mirror.chunks(lane, from, wanted.last().unwrap().1)?;
        let found: Vec<Seen> = chunks.iter().flat_map(seen).collect();
        assert_eq!(found, wanted);
        Ok(())
    }
}

/// The frames of a chunk.
pub fn seen(chunk: &Chunk) -> Vec<Seen> {
    let mut anchor = chunk.anchor().to_vec();
    let seen = chunk.frames().map(|frame| {
        let before = anchor.clone();
        if frame.kind as u8 == ANCHOR {
            hyades_wal::read_anchor(frame.payload, &mut anchor).unwrap();
        }
        (frame.start, frame.end, frame.kind as u8, frame.payload.to_vec(), before)
    });
    seen.collect()
}

/// The options of a process of a member.
pub fn options(device: SimulatedDevice, streams: usize, random: &mut Random) -> LogOptions {
    let mut options = small("/db".as_ref(), streams, Arc::new(device));
    options.segment_bytes = 1024 * (16 + random.below(32));
    options.buffer_bytes = 4096 << random.below(3);
    options.anchor_interval_bytes = 512 << random.below(4);
    options.stepped = true;
    options
}
