//! Chunks: contiguous, validated frames of a stream, as returned by a reader.

use crate::Lsn;
use crate::frame::{self, Frame, FrameKind};

/// Contiguous frames of one stream, with verified checksums.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub(crate) start: Lsn,
    pub(crate) bytes: Vec<u8>,
    pub(crate) anchor: Vec<Lsn>,
}

impl Chunk {
    /// A chunk of whole frames with verified checksums, the first of which begins at `start`.
    /// `anchor`: the anchor in effect there, see [`Chunk::anchor`].
    pub fn of_frames(start: Lsn, bytes: Vec<u8>, anchor: Vec<Lsn>) -> Chunk {
        let chunk = Chunk { start, bytes, anchor };
        debug_assert_eq!(
            chunk.frames().last().map_or(start, |frame| frame.end),
            chunk.end(),
            "the chunk consists of whole frames"
        );
        chunk
    }

    /// Returns the frames between two positions, each the start of a frame or the chunk's end.
    /// `None` if the positions are not, or outside the chunk.
    pub fn part(&self, from: Lsn, to: Lsn) -> Option<Chunk> {
        let mut anchor = self.anchor.clone();
        let (mut starts, mut ends) = (from == self.end(), to == self.start);
        for frame in self.frames() {
            starts |= frame.start == from;
            ends |= frame.end == to;
            if frame.kind == FrameKind::Anchor && frame.end <= from {
                frame::read_anchor(frame.payload, &mut anchor)?;
            }
        }
        let range = from.checked_sub(self.start)?..to.checked_sub(self.start)?;
        let bytes = self.bytes.get(range.start as usize..range.end as usize)?.to_vec();
        (starts && ends).then_some(Chunk { start: from, bytes, anchor })
    }

    /// Where the first frame begins.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Where the last frame ends.
    pub fn end(&self) -> Lsn {
        self.start + self.bytes.len() as u64
    }

    /// The anchor in effect at the chunk's start. The anchor supplies the components left out of
    /// compressed vectors, until the first anchor frame in the chunk.
    pub fn anchor(&self) -> &[Lsn] {
        &self.anchor
    }

    /// The frames, in order.
    pub fn frames(&self) -> Frames<'_> {
        Frames { bytes: &self.bytes, at: self.start }
    }

    /// The vectors of the chunk's anchors, each with the end of the anchor frame.
    pub(crate) fn anchors(&self, lanes: usize) -> impl Iterator<Item = (Lsn, Vec<Lsn>)> {
        let anchors = self.frames().filter(|frame| frame.kind == FrameKind::Anchor);
        anchors.filter_map(move |frame| {
            let mut stated = vec![0; lanes];
            frame::read_anchor(frame.payload, &mut stated)?;
            Some((frame.end, stated))
        })
    }

    /// Returns the frames from `lsn` on; `lsn` must be the start of a frame or the chunk's end.
    ///
    /// Panics if `lsn` is outside the chunk.
    pub fn frames_from(&self, lsn: Lsn) -> Frames<'_> {
        debug_assert!((self.start..=self.end()).contains(&lsn), "{lsn} is outside the chunk");
        Frames { bytes: &self.bytes[(lsn - self.start) as usize..], at: lsn }
    }
}

/// The frames of a [`Chunk`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: Lsn,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let frame = frame::split(self.bytes, self.at).ok()?;
        self.bytes = &self.bytes[(frame.end - frame.start) as usize..];
        self.at = frame.end;
        Some(frame)
    }
}
