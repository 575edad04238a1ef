//! A lane of a mirror: the positions of a stream, the frames not yet in its files, and the anchors
//! that a segment's header repeats.

use super::files::LaneFiles;
use super::recent::Recent;
use crate::Lsn;
use crate::chunk::Chunk;
use crate::error::Error;
use crate::frame::{self, FrameKind};
use crate::lsn_vector::covers;
use crate::manifest::Seen;
use crate::remote::RemoteEnded;
use crate::stream_id::StreamId;
use std::collections::VecDeque;

/// A stream of the newest incarnation.
#[derive(Debug)]
pub(super) struct MirrorLane {
    pub(super) stream: StreamId,
    /// The index of the stream in the incarnation.
    pub(super) lane: usize,
    seed: u32,
    /// The end of the frames taken.
    pub(super) received: Lsn,
    /// The end of the frames in synced files.
    pub(super) synced: Lsn,
    /// A position that every later opening finds proven. `received >= synced >= proven`.
    pub(super) proven: Lsn,
    /// The end of the valid frames found by the opening.
    pub(super) found: Lsn,
    /// The anchors, each with the end of its frame. The first is in effect at `synced`.
    anchors: VecDeque<(Lsn, Vec<Lsn>)>,
    /// The marks, each with the end of its heartbeat. The first is the mark at `synced`.
    marks: VecDeque<(Lsn, u64)>,
    pub(super) recent: Recent,
    /// Frames found by the opening behind the proven position, which the lane may or may not have.
    pub(super) tail: Option<Chunk>,
    /// Messages whose frames are not all proven yet.
    notes: VecDeque<Seen>,
    /// (sequence, start) of the segments begun.
    pub(super) begun: Vec<(u64, Lsn)>,
    /// None once the incarnation has ended.
    pub(super) files: Option<LaneFiles>,
}

/// Checked frames: the offset of the first new frame, the end, the anchors and the marks.
struct Checked {
    new_from: usize,
    end: Lsn,
    anchors: Vec<(Lsn, Vec<Lsn>)>,
    marks: Vec<(Lsn, u64)>,
}

impl MirrorLane {
    /// A lane at position `at`. `anchor`: in effect there.
    pub(super) fn new(stream: StreamId, lane: usize, seed: u32, at: Lsn, anchor: Vec<Lsn>) -> Self {
        MirrorLane {
            stream,
            lane,
            seed,
            received: at,
            synced: at,
            proven: at,
            found: at,
            anchors: VecDeque::from([(at, anchor)]),
            marks: VecDeque::new(),
            recent: Recent::default(),
            tail: None,
            notes: VecDeque::new(),
            begun: Vec::new(),
            files: None,
        }
    }

    /// The number of streams of the incarnation.
    fn lanes(&self) -> usize {
        self.anchors.front().map_or(0, |(_, anchor)| anchor.len())
    }

    /// Takes frames from a message that begins at `start`; frames taken before are skipped. After
    /// an error nothing has changed.
    pub(super) fn take(&mut self, start: Lsn, frames: &[u8]) -> Result<(), Error> {
        if start > self.received {
            return Err(Error::Invalid(format!(
                "frames of stream {} from Lsn {start} on follow nothing: the mirror has the stream \
                 up to Lsn {}; give what is between first",
                self.stream, self.received
            )));
        }
        let checked = self.check(start, frames).map_err(|(at, why)| {
            let stream = self.stream;
            let what = format!("the frames of stream {stream} are not valid at Lsn {at}: {why}");
            Error::Remote(RemoteEnded::Different(what))
        })?;
        if checked.new_from < frames.len() {
            let anchor = self.anchors.back().map_or(&[][..], |(_, anchor)| anchor);
            self.recent.push(self.received, &frames[checked.new_from..], anchor);
        }
        self.anchors.extend(checked.anchors);
        self.marks.extend(checked.marks);
        self.received = self.received.max(checked.end);
        Ok(())
    }

    /// Checks each frame, and that a frame begins where the frames taken end. The error says where
    /// the fault is.
    fn check(&self, start: Lsn, frames: &[u8]) -> Result<Checked, (Lsn, String)> {
        let (mut at, mut rest) = (start, frames);
        let mut checked =
            Checked { new_from: frames.len(), end: start, anchors: Vec::new(), marks: Vec::new() };
        let mut in_effect = self.anchors.back().map_or(&[][..], |(_, anchor)| anchor).to_vec();
        while !rest.is_empty() {
            let frame = frame::check(rest, at, self.seed).map_err(|why| (at, why.to_owned()))?;
            if at < self.received && self.received < frame.end {
                let what =
                    format!("a frame lies across Lsn {}, where one ends here", self.received);
                return Err((at, what));
            }
            if at >= self.received {
                checked.new_from = checked.new_from.min(frames.len() - rest.len());
                match frame.kind {
                    FrameKind::Anchor => {
                        let mut stated = vec![0; self.lanes()];
                        let is_sound = frame::read_anchor(frame.payload, &mut stated).is_some()
                            && covers(&stated, &in_effect)
                            && stated[self.lane] <= frame.start;
                        if !is_sound {
                            return Err((at, "the anchor states what it cannot".into()));
                        }
                        in_effect.clone_from(&stated);
                        checked.anchors.push((frame.end, stated));
                    }
                    FrameKind::Heartbeat => {
                        let (mark, _) = frame::read_heartbeat(frame.payload)
                            .ok_or((at, "the heartbeat states nothing".to_owned()))?;
                        checked.marks.push((frame.end, mark));
                    }
                    FrameKind::Record | FrameKind::Part | FrameKind::Void => {}
                }
            }
            rest = &rest[(frame.end - frame.start) as usize..];
            at = frame.end;
        }
        checked.end = at;
        Ok(checked)
    }

    /// Adds frames read by an opening, below the position of the lane.
    pub(super) fn restore(&mut self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            self.recent.push(chunk.start, &chunk.bytes, &chunk.anchor);
        }
    }

    /// Adds a mark found by an opening.
    pub(super) fn restore_mark(&mut self, mark: u64) {
        self.marks.push_back((self.synced, mark));
    }

    /// Notes that the message `seen` was taken.
    pub(super) fn note(&mut self, seen: Seen) {
        self.notes.push_back(seen);
    }

    /// The last noted message whose frames are all proven.
    pub(super) fn take_proven_note(&mut self) -> Option<Seen> {
        let mut last = None;
        while let Some(seen) = self.notes.pop_front_if(|seen| seen.end <= self.proven) {
            last = Some(seen);
        }
        last
    }

    /// The anchor in effect at `synced`, where the next batch begins.
    pub(super) fn anchor(&self) -> Vec<Lsn> {
        let in_effect = self.anchors.iter().rev().find(|(end, _)| *end <= self.synced);
        debug_assert!(in_effect.is_some(), "the anchor in effect at {} was dropped", self.synced);
        in_effect.map_or_else(Vec::new, |(_, anchor)| anchor.clone())
    }

    /// The highest mark stated at or below `synced`.
    pub(super) fn mark(&self) -> u64 {
        let stated = self.marks.iter().take_while(|(end, _)| *end <= self.synced);
        stated.map(|(_, mark)| *mark).max().unwrap_or(0)
    }

    /// The frames up to `to` are in synced files. `most`: the bytes that may stay in memory.
    pub(super) fn raise_synced(&mut self, to: Lsn, most: usize) {
        debug_assert!(to <= self.received, "{to} was not received");
        self.synced = to;
        while self.anchors.get(1).is_some_and(|(end, _)| *end <= to) {
            self.anchors.pop_front();
        }
        let mark = self.mark();
        while self.marks.pop_front_if(|(end, _)| *end <= to).is_some() {}
        self.marks.push_front((to, mark));
        self.recent.evict(to, most);
    }

    /// Drops the frames from `end` on.
    pub(super) fn cut(&mut self, end: Lsn) {
        self.recent.cut(end);
        while self.anchors.len() > 1 && self.anchors.pop_back_if(|(at, _)| *at > end).is_some() {}
        while self.marks.pop_back_if(|(at, _)| *at > end).is_some() {}
        self.notes.retain(|seen| seen.end <= end);
        self.received = self.received.min(end);
        self.synced = self.synced.min(end);
        self.proven = self.proven.min(end);
    }

    /// Compares the tail found by the opening with the frames received in its place.
    pub(super) fn compare_tail(&self) -> TailState {
        let Some(tail) = &self.tail else { return TailState::Settled };
        debug_assert_eq!(
            tail.start(),
            self.synced,
            "frames were written before the tail is settled"
        );
        let end = tail.end().min(self.received);
        let mut at = 0;
        for received in self.recent.slices(tail.start(), end) {
            if tail.bytes[at..at + received.len()] != *received {
                return TailState::Different;
            }
            at += received.len();
        }
        if self.received >= tail.end() { TailState::Settled } else { TailState::Open }
    }
}

/// What is known of the tail found by an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailState {
    /// There is none, or the lane has the same frames.
    Settled,
    /// The lane may or may not have the rest.
    Open,
    /// The lane has other frames there.
    Different,
}
