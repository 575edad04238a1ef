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

    /// The frames from `from` to `to`, both within the chunk; `None` if a frame lies across either.
    pub(crate) fn part(&self, from: Lsn, to: Lsn) -> Option<Chunk> {
        debug_assert!(self.start <= from && from <= to && to <= self.end(), "outside the chunk");
        let (mut at, mut anchor) = (self.start, self.anchor.clone());
        let mut frames = self.frames();
        let mut go_on = |until: Lsn, at: &mut Lsn| {
            while *at < until {
                let Some(frame) = frames.next() else { break };
                *at = frame.end;
                if frame.kind == FrameKind::Anchor && until == from {
                    let _ = frame::read_anchor(frame.payload, &mut anchor);
                }
            }
            *at == until
        };
        let is_whole = go_on(from, &mut at) && go_on(to, &mut at);
        let bytes =
            || self.bytes[(from - self.start) as usize..(to - self.start) as usize].to_vec();
        is_whole.then(|| Chunk { start: from, bytes: bytes(), anchor })
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
