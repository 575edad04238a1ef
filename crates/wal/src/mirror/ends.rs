//! The end of an incarnation, as the replicated log says; and what these files have behind the end.
//!
//! A former primary may have written a last batch that the log never stored, a *ghost tail*. No
//! reader of the lanes has the batch, so it must not be recovered here. Nothing in the batch was
//! acknowledged, unless the log was not waited for; the frames are kept apart for a look.

use super::Mirror;
use super::lane::MirrorLane;
use crate::Lsn;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::format::SegmentHeader;
use crate::open::Recovering;
use crate::remote::RemoteEnded;
use crate::start::{Tail, write_segment};
use hyades_platform::broken;
use std::sync::Arc;

/// The prefix of the directory of an incarnation's discarded frames.
const DISCARDED: &str = "DISCARDED-";
/// The most bytes of frames in a file of discarded frames, about.
const DISCARDED_BYTES: usize = 32 << 20;

impl Mirror {
    /// Records durably where the newest incarnation ends by the replicated log: by stream, the end
    /// of the last frame that every reader of the lane takes. Frames behind are kept in the
    /// directory `DISCARDED-k` of their log directory, k being the incarnation, and count nowhere.
    /// Does nothing if the same ends are recorded. Without an incarnation there are no ends.
    ///
    /// # Errors
    /// [`Error::Invalid`]: frames below an end are missing here, to be appended first; or an end is
    /// below the incarnation's start or the checkpoint. [`Error::Remote`]: other ends are recorded.
    /// Also if a file could not be written.
    pub fn end(&mut self, ends: &[Lsn]) -> Result<(), Error> {
        self.check_running()?;
        if ends.len() != self.lanes.len() {
            return Err(Error::Invalid(format!(
                "{} ends are given for an incarnation of {} streams",
                ends.len(),
                self.lanes.len()
            )));
        }
        for (lane, &end) in self.lanes.iter().zip(ends) {
            self.check_end(lane, end)?;
        }
        if self.has_ended {
            return Ok(());
        }
        let ends = self.lanes.iter().zip(ends).map(|(lane, &end)| match () {
            () if broken!(KeepGhostTail) => end.max(lane.received).max(lane.found),
            () if broken!(StartAtOwnEnd) => end.min(lane.received),
            () => end,
        });
        let ends: Vec<Lsn> = ends.collect();
        let recorded = self.record_ends(&ends);
        self.or_stop(recorded)
    }

    fn check_end(&self, lane: &MirrorLane, end: Lsn) -> Result<(), Error> {
        let (stream, number) = (lane.stream, self.incarnation().unwrap_or(0));
        let wrong = |what: String| Err(Error::Invalid(what));
        if self.has_ended && end != lane.received {
            return Err(Error::Remote(RemoteEnded::Different(format!(
                "incarnation {number} ends stream {stream} at Lsn {end} there, and at Lsn {} by \
                 the manifest here",
                lane.received
            ))));
        }
        if end > lane.received && !broken!(StartAtOwnEnd) {
            return wrong(format!(
                "incarnation {number} ends stream {stream} at Lsn {end}, and the mirror has the \
                 stream up to Lsn {} only: append what is between first",
                lane.received
            ));
        }
        let dims = self.log.manifest.newest().map_or(&[][..], |newest| &newest.dims);
        let start = dims.get(lane.lane).map_or(0, |dim| dim.start);
        let covered = self.log.manifest.covered(number, stream).unwrap_or(0);
        if end < start.max(covered) {
            return wrong(format!(
                "incarnation {number} ends stream {stream} at Lsn {end} by the replicated log, and \
                 these files hold what is behind: the incarnation began at Lsn {start}, and the \
                 checkpoint needs the stream up to Lsn {covered}; begin with a copy of another \
                 member"
            ));
        }
        Ok(())
    }

    fn record_ends(&mut self, ends: &[Lsn]) -> Result<(), Error> {
        for (lane, &end) in ends.iter().enumerate() {
            self.discard_behind(lane, end)?;
            self.lanes[lane].tail = None;
            self.lanes[lane].cut(end);
        }
        self.write_all(0..ends.len())?;
        if let Some(newest) = self.log.manifest.incarnations.last_mut() {
            for ((dim, lane), &end) in newest.dims.iter_mut().zip(&mut self.lanes).zip(ends) {
                debug_assert!(lane.synced == end || broken!(KeepGhostTail), "a missing tail");
                dim.end = Some(end);
                dim.mark = dim.mark.max(lane.mark());
                // From the next manifest on no statement is needed.
                (lane.received, lane.proven) = (end, end);
                lane.files = None;
            }
            self.keep_notes();
            let log = &self.log;
            log.manifest.write(&*log.options.device, &log.manifest_dir)?;
            self.log.clear_behind_ends()?;
            for lane in &mut self.lanes {
                lane.begun = self.log.begun(lane.stream);
            }
        }
        self.segments = None;
        self.has_ended = true;
        Ok(())
    }

    /// Keeps the frames of a lane behind `end` apart: those taken, and those found by the opening.
    fn discard_behind(&mut self, lane: usize, end: Lsn) -> Result<(), Error> {
        let received = self.lanes[lane].received;
        if received > end {
            let mut reader = self.reader(lane, end, received)?;
            let mut failed = None;
            let next = std::iter::from_fn(|| {
                reader.next_chunk().unwrap_or_else(|error| {
                    failed = Some(error);
                    None
                })
            });
            self.discard(lane, next)?;
            failed.map_or(Ok(()), Err)?;
        }
        let Some(tail) = self.lanes[lane].tail.clone() else { return Ok(()) };
        let from = end.max(received);
        if tail.end() > from {
            // Where the frames taken are others, the whole tail is.
            let rest = tail.part(from.max(tail.start()), tail.end()).unwrap_or(tail);
            self.discard(lane, std::iter::once(rest))?;
        }
        Ok(())
    }

    /// Writes frames that do not count to the directory `DISCARDED-k`, as segments.
    pub(super) fn discard(
        &self,
        lane: usize,
        chunks: impl Iterator<Item = Chunk>,
    ) -> Result<(), Error> {
        let mut tail = Tail::default();
        let (stream, number) = (self.lanes[lane].stream, self.incarnation().unwrap_or(0));
        for chunk in chunks {
            let invalid = |why: &str| Error::Invalid(format!("frames to be kept apart: {why}"));
            self.log.encode_tail(&mut tail, &chunk, number, stream).map_err(invalid)?;
            if tail.body.len() > DISCARDED_BYTES {
                self.write_discarded(lane, std::mem::take(&mut tail))?;
            }
        }
        if tail.body.is_empty() { Ok(()) } else { self.write_discarded(lane, tail) }
    }

    fn write_discarded(&self, lane: usize, tail: Tail) -> Result<(), Error> {
        let (stream, number) = (self.lanes[lane].stream, self.incarnation().unwrap_or(0));
        let device = &*self.log.options.device;
        let parent = self.log.dir_of(stream)?;
        let parent = parent.parent().unwrap_or(&parent);
        let dir = parent.join(format!("{DISCARDED}{number}"));
        device.create_dir(&dir).map_err(Error::io(&dir, "create the directory"))?;
        let path = dir.join(format!("stream-{stream:04}-from-{:020}", tail.start));
        let header = SegmentHeader {
            block_bytes: self.log.options.block_bytes as u32,
            uuid: self.log.manifest.uuid(),
            stream,
            incarnation: number,
            sequence: 1,
            start: tail.start,
            durable: tail.start,
            anchor: tail.anchor,
        };
        write_segment(device, (&path.with_extension("tmp"), &path), &header, &tail.body)
    }
}

impl Recovering {
    /// Makes the segments empty that begin behind the recorded end of their incarnation: a later
    /// incarnation of the stream takes over at the end.
    pub(super) fn clear_behind_ends(&mut self) -> Result<(), Error> {
        let device = Arc::clone(self.device());
        for incarnation in &self.manifest.incarnations {
            for dim in &incarnation.dims {
                let Some(end) = dim.end else { continue };
                if let Some(chain) = self.chains.get_mut(&dim.stream) {
                    chain.clear_behind(&*device, incarnation.number, end)?;
                }
            }
        }
        Ok(())
    }
}
