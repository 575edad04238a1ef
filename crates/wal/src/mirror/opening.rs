//! Opening a mirror: the newest incarnation is read, and cut to what is proven.

use super::lane::MirrorLane;
use super::{Mirror, RECENT_BYTES};
use crate::Lsn;
use crate::base_files::Pins;
use crate::base_writer;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::frame;
use crate::manifest::{FROM_LANES, Incarnation, MIRRORED};
use crate::open::{Leniency, Recovering, open_as, parallel_if_reads_block};
use crate::options::LogOptions;
use crate::reader::{ReaderEnd, StreamReader};
use crate::segment::{Segment, stream_dir};
use crate::stream_id::StreamId;
use std::collections::{BTreeMap, VecDeque};

/// The bytes that an opening keeps in memory of each stream, at least: more than a batch.
const LEAST_FOUND_BYTES: usize = 4 << 20;

/// A stream of the newest incarnation as found in the files.
struct FoundStream {
    /// Positions up to here are needed by the manifest alone.
    start: Lsn,
    end: ReaderEnd,
    /// The last chunks.
    chunks: VecDeque<Chunk>,
    /// The anchors, each with the position from which it is in effect.
    anchors: Vec<(Lsn, Vec<Lsn>)>,
    /// The anchor behind the last frame.
    last_anchor: Vec<Lsn>,
}

impl Mirror {
    /// Opens the directories of member `node` of the database with this uuid, to continue them from
    /// a replicated log. Directories without a database become a new one's; a [base](Self::base)
    /// of another member, or a database that was closed, becomes this member's; a base that has
    /// [arrived](crate::BaseWriter) takes the place of what was there. The manifest says
    /// so from then on, and a plain [`open`](crate::open) refuses the directories.
    ///
    /// Of an incarnation without recorded ends the mirror continues each stream at the position
    /// that is proven to be durable: [`received`](Self::received) says where.
    ///
    /// # Errors
    /// As [`open`](crate::open); also if the directories are another member's or another
    /// database's, or were not closed and were no member's.
    pub fn open(options: LogOptions, node: &str, database: [u8; 16]) -> Result<Mirror, Error> {
        base_writer::settle(&options)?;
        let mut log = open_as(options, Leniency::default())?;
        log.check_owner(node, database)?;
        let is_open = log.manifest.newest().is_some_and(|i| i.dims.iter().any(|d| d.end.is_none()));
        if is_open && let Some(newest) = log.manifest.incarnations.last_mut() {
            // A former primary's files, too, are filled from the lanes from now on, and the anchors
            // there may state more than a stream has here.
            newest.settings.insert(MIRRORED.into(), FROM_LANES.into());
        }
        let lanes = match log.manifest.newest().cloned() {
            Some(newest) if is_open => log.open_lanes(&newest)?,
            Some(newest) => log.ended_lanes(&newest),
            None => Vec::new(),
        };
        log.become_member(node);
        log.claim_directories()?;
        log.sync_names()?;
        log.manifest.write(&*log.options.device, &log.manifest_dir)?;
        log.remove_leftovers(&[]);
        for chain in log.chains.values_mut() {
            chain.leftovers.clear();
            // What a spare has beyond the proven position is in memory, or not needed.
            chain.spare = None;
        }
        log.clear_behind_ends()?;
        let has_ended = !is_open && !log.is_fresh();
        let recent_bytes = RECENT_BYTES;
        let mut mirror = Mirror {
            log,
            lanes,
            segments: None,
            has_ended,
            recent_bytes,
            stopped: None,
            pins: Pins::default(),
        };
        if is_open {
            mirror.prepare_lanes()?;
        }
        Ok(mirror)
    }

    /// Prepares the segments in which the lanes go on.
    fn prepare_lanes(&mut self) -> Result<(), Error> {
        let mut starts = Vec::new();
        for lane in &self.lanes {
            let dir = self.log.dir_of(lane.stream)?;
            let place = dir.parent().unwrap_or(&dir).to_owned();
            debug_assert_eq!(stream_dir(&place, lane.stream), dir, "a directory of another stream");
            starts.push(self.log.prepare_lane(
                lane.stream,
                place,
                lane.received,
                &BTreeMap::new(),
            )?);
        }
        self.give_segments(starts)
    }
}

impl Recovering {
    fn check_owner(&mut self, node: &str, database: [u8; 16]) -> Result<(), Error> {
        let dir = self.manifest_dir.display();
        let wrong = |what: String| Err(Error::Invalid(what));
        if self.is_fresh() && self.manifest.dirs.is_empty() {
            self.manifest.uuid = database.to_vec();
        }
        if self.manifest.uuid() != database {
            return wrong(format!(
                "{dir} belongs to another database than the replicated log: give this member's \
                 directory, or an empty one"
            ));
        }
        self.check_node(node)?;
        if self.manifest.member.is_some() {
            return Ok(());
        }
        let is_open = |i: &Incarnation| i.dims.iter().any(|dim| dim.end.is_none());
        if self.manifest.newest().is_some_and(is_open) {
            return wrong(format!(
                "{dir} is no member's, and was not closed: its last records may be here alone; \
                 open it without the replicated log and close it, or begin with an empty directory"
            ));
        }
        Ok(())
    }

    /// The checksum's seed of a stream in the newest incarnation.
    pub(super) fn seed(&self, stream: StreamId) -> u32 {
        let number = self.manifest.newest().map_or(0, |newest| newest.number);
        frame::seed(&self.manifest.uuid(), stream, number)
    }

    /// The lanes of an incarnation whose ends are recorded.
    fn ended_lanes(&self, newest: &Incarnation) -> Vec<MirrorLane> {
        let starts: Vec<Lsn> = newest.dims.iter().map(|dim| dim.start).collect();
        let dims = newest.dims.iter().enumerate();
        let lane = |(lane, dim): (usize, &crate::manifest::Dimension)| {
            let end = dim.end.unwrap_or(dim.start);
            let mut lane =
                MirrorLane::new(dim.stream, lane, self.seed(dim.stream), end, starts.clone());
            lane.restore_mark(dim.mark);
            lane.begun = self.begun(dim.stream);
            lane
        };
        dims.map(lane).collect()
    }

    /// (sequence, start) of the begun segments of a stream.
    pub(super) fn begun(&self, stream: StreamId) -> Vec<(u64, Lsn)> {
        let segments = self.chains.get(&stream).map_or(&[][..], |chain| &chain.segments);
        let begun =
            segments.iter().filter_map(|s| s.header.as_ref().map(|h| (s.sequence, h.start)));
        begun.collect()
    }

    /// The lanes of an incarnation that goes on, at the proven positions.
    fn open_lanes(&self, newest: &Incarnation) -> Result<Vec<MirrorLane>, Error> {
        let number = newest.number;
        let readers = self.readers().into_iter().filter(|r| r.incarnation == number);
        let most = (RECENT_BYTES / newest.dims.len()).max(LEAST_FOUND_BYTES);
        let device = &*self.options.device;
        let read = |reader: StreamReader| read_stream(reader, most);
        let found = parallel_if_reads_block(device, readers.collect(), read);
        let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        let ends: Vec<ReaderEnd> = found.iter().map(|stream| stream.end.clone()).collect();
        let judged = self.judge_incarnation(newest, &ends)?;
        let mut lanes = Vec::new();
        for (stream, (dim, proven)) in found.into_iter().zip(newest.dims.iter().zip(judged.proven))
        {
            let at = proven.max(stream.start).max(self.whole_to(&stream)?);
            let chain = &self.chains[&dim.stream];
            let is_own = |s: &Segment| s.header.as_ref().is_some_and(|h| h.incarnation == number);
            if at > dim.start && !chain.segments.iter().any(is_own) {
                // A truncation went before the crash that left the last segment empty.
                return Err(Error::Invalid(format!(
                    "no segment of stream {} says which anchor is in effect at Lsn {at}, where the \
                     stream is to go on: begin with a copy of another member",
                    dim.stream
                )));
            }
            let mut lane = continue_at(stream, at, self.seed(dim.stream))?;
            lane.restore_mark(dim.mark);
            lanes.push(lane);
        }
        Ok(lanes)
    }
}

impl Recovering {
    /// Up to where the files of a stream were whole as a base; 0 if they were none.
    fn whole_to(&self, found: &FoundStream) -> Result<Lsn, Error> {
        let (stream, valid_to) = (found.end.stream, found.end.valid_to);
        let whole = self.manifest.member.iter().flat_map(|member| &member.whole);
        let to = whole.filter(|whole| whole.stream == stream).map(|whole| whole.to).max();
        let to = to.unwrap_or(0);
        if to <= valid_to {
            return Ok(to);
        }
        let (path, offset, why) = &found.end.stopped_at;
        let what = format!(
            "log stream {stream} came with a base that had the stream up to Lsn {to}, and is valid \
             up to Lsn {valid_to} only ({why}): remove the directories, and join anew"
        );
        Err(Error::corrupt(path, *offset, what))
    }
}

fn read_stream(mut reader: StreamReader, most: usize) -> Result<FoundStream, Error> {
    let start = reader.start();
    let (mut chunks, mut anchors, mut bytes) = (VecDeque::<Chunk>::new(), Vec::new(), 0);
    while let Some(chunk) = reader.next_chunk()? {
        if anchors.is_empty() {
            anchors.push((chunk.start(), chunk.anchor().to_vec()));
        }
        anchors.extend(chunk.anchors(reader.dimensions));
        bytes += chunk.bytes.len();
        chunks.push_back(chunk);
        // More than a batch is left: the frames behind the last header are among them.
        while let Some(first) = chunks.pop_front_if(|first| bytes - first.bytes.len() > most) {
            bytes -= first.bytes.len();
        }
    }
    let (end, last_anchor) = (reader.end(), reader.anchor().to_vec());
    Ok(FoundStream { start, end, chunks, anchors, last_anchor })
}

/// The lane of a stream that goes on at `at`, a position within what was found.
fn continue_at(found: FoundStream, at: Lsn, seed: u32) -> Result<MirrorLane, Error> {
    let (stream, dimension) = (found.end.stream, found.end.dimension);
    let in_effect = found.anchors.iter().rev().find(|(from, _)| *from <= at);
    debug_assert!(
        in_effect.is_some() || found.anchors.is_empty(),
        "stream {stream} goes on at {at}, before what was read"
    );
    let anchor = in_effect.map_or(found.last_anchor, |(_, anchor)| anchor.clone());
    let mut lane = MirrorLane::new(stream, dimension, seed, at, anchor);
    // No header found now is known to be durable; the manifest is.
    lane.proven = found.start;
    lane.found = found.end.valid_to.max(at);
    let mut tail: Option<Chunk> = None;
    for chunk in found.chunks {
        let split = at.clamp(chunk.start(), chunk.end());
        let (below, behind) = (chunk.part(chunk.start(), split), chunk.part(split, chunk.end()));
        let (Some(below), Some(behind)) = (below, behind) else {
            return Err(Error::Invalid(format!("no frame of stream {stream} ends at Lsn {at}")));
        };
        lane.restore(Some(below).filter(|part| !part.bytes.is_empty()));
        match &mut tail {
            Some(tail) => tail.bytes.extend(behind.bytes),
            None if !behind.bytes.is_empty() => tail = Some(behind),
            None => {}
        }
    }
    lane.tail = tail;
    Ok(lane)
}
