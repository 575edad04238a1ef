//! The last frames of a lane, in memory.

use crate::Lsn;
use crate::chunk::Chunk;
use crate::format;
use std::collections::VecDeque;

/// Frames are collected in chunks of at least this many bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Contiguous frames up to the end of what was received.
#[derive(Debug, Default)]
pub(super) struct Recent {
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

impl Recent {
    /// Adds frames. `anchor`: in effect at `start`.
    pub(super) fn push(&mut self, start: Lsn, frames: &[u8], anchor: &[Lsn]) {
        let end = self.chunks.back().map(Chunk::end);
        debug_assert!(end.is_none_or(|end| end == start), "{start} does not follow {end:?}");
        self.bytes += frames.len();
        match self.chunks.back_mut().filter(|last| last.bytes.len() < CHUNK_BYTES) {
            Some(last) => last.bytes.extend(frames),
            None => {
                let (bytes, anchor) = (frames.to_vec(), anchor.to_vec());
                self.chunks.push_back(Chunk { start, bytes, anchor });
            }
        }
    }

    /// Drops the oldest frames below `synced` until no more than `most` bytes are left.
    pub(super) fn evict(&mut self, synced: Lsn, most: usize) {
        while self.bytes > most
            && let Some(first) = self.chunks.pop_front_if(|first| first.end() <= synced)
        {
            self.bytes -= first.bytes.len();
        }
    }

    /// Drops the frames from `end` on.
    pub(super) fn cut(&mut self, end: Lsn) {
        while let Some(last) = self.chunks.pop_back_if(|last| last.start() >= end) {
            self.bytes -= last.bytes.len();
        }
        if let Some(last) = self.chunks.back_mut().filter(|last| last.end() > end) {
            self.bytes -= (last.end() - end) as usize;
            last.bytes.truncate((end - last.start) as usize);
        }
    }

    /// Where the first frame in memory begins; `None` without frames.
    pub(super) fn start(&self) -> Option<Lsn> {
        self.chunks.front().map(Chunk::start)
    }

    /// The bytes from `from` to `to`, which are in memory.
    pub(super) fn slices(&self, from: Lsn, to: Lsn) -> impl Iterator<Item = &[u8]> {
        let chunks = self.chunks.iter().filter(move |c| c.end() > from && c.start() < to);
        chunks.map(move |chunk| {
            let first = from.max(chunk.start()) - chunk.start();
            let last = to.min(chunk.end()) - chunk.start();
            &chunk.bytes[first as usize..last as usize]
        })
    }

    /// The length of the whole frames from `from` to `to` that fit into `limit` bytes.
    pub(super) fn whole_frames(&self, from: Lsn, to: Lsn, limit: usize) -> usize {
        if (to - from) as usize <= limit {
            return (to - from) as usize;
        }
        let mut fits = 0;
        for frames in self.slices(from, to) {
            let length = format::whole_frames(|at| format::length_in(frames, at), limit - fits);
            fits += length;
            if length < frames.len() {
                break;
            }
        }
        fits
    }

    /// Copies of the frames from `from` to `to`, which are in memory. `None` if a frame lies across
    /// either.
    pub(super) fn parts(&self, from: Lsn, to: Lsn) -> Option<VecDeque<Chunk>> {
        let chunks = self.chunks.iter().filter(|c| c.end() > from && c.start() < to);
        let part = |chunk: &Chunk| match from <= chunk.start() && chunk.end() <= to {
            true => Some(chunk.clone()),
            false => chunk.part(from.max(chunk.start()), to.min(chunk.end())),
        };
        chunks.map(part).collect()
    }
}
