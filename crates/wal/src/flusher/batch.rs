//! A batch on its way: as much as fits is sent to the remote, written, synced, and stored; then the
//! frontier is raised.

use super::{Flusher, MAX_BATCH};
use crate::Lsn;
use crate::error::Error;
use crate::format::{self, BATCH_HEADER};
use crate::frame::{self, MAX_HEAD};
use hyades_platform::broken;
use hyades_platform::clock;
use hyades_platform::sync::locked;

impl Flusher {
    /// Writes and syncs one batch of [durable, cut), as much as fits. Returns its end.
    pub(super) fn flush(&mut self, durable: Lsn, cut: Lsn) -> Result<Lsn, Error> {
        // A writer leaves a reservation unfilled only after it saw that the log has stopped. If the
        // cut passed such a reservation, the flusher read a later store of that writer, so the stop
        // is visible here. From here on, everything below the cut is filled.
        if let Some(poisoned) = self.shared.frontier.poisoned() {
            return Err(poisoned.into());
        }
        let to = self.fitting(durable, cut)?;
        debug_assert!(
            durable < to && to <= cut,
            "a batch up to {to}, but {durable} is durable and {cut} filled"
        );
        let started = clock::monotonic_ns();
        if broken!(AckBeforeSync) {
            self.shared.frontier.raise(self.lane, to, None);
        }
        if let Some(remote) = &self.shared.options.remote {
            // SAFETY: as in `whole_frames`; `to` is not above the cut.
            let (a, b) = unsafe { self.stream().ring.slices(durable, to) };
            remote.send(self.lane, durable, [a, b]);
        }
        let written = self.write(durable, to)?;
        let written_ns = clock::monotonic_ns();
        let path = &self.current.segment.path;
        let mut synced = self.current.segment.file.sync_data();
        if broken!(RetryFailedSync) {
            synced = synced.or_else(|_| self.current.segment.file.sync_data());
        }
        synced.map_err(Error::io(path, "sync"))?;
        let now = clock::monotonic_ns();
        self.stream().count_batch(to - durable, written, now - started, now - written_ns);
        self.flushed_at_ns = now;
        let waits = !self.shared.options.stepped;
        self.store(to, waits)?;
        Ok(to)
    }

    /// Looks whether the remote, if any, has stored the batch up to `to`, which is in the file, and
    /// waits for the remote if `waits`; then raises the frontier. False if the remote has no answer
    /// yet.
    pub(super) fn store(&mut self, to: Lsn, waits: bool) -> Result<bool, Error> {
        self.under_way = None;
        let options = &self.shared.options;
        if let Some(remote) = &options.remote
            && !broken!(RaiseAtLocalSync)
        {
            match remote.stored(self.lane, waits) {
                Some(stored) => stored.map_err(Error::Remote)?,
                None => {
                    self.under_way = Some(to);
                    return Ok(false);
                }
            }
        }
        // It may have stopped meanwhile: then nothing more is reported durable.
        if let Some(poisoned) = self.shared.frontier.poisoned() {
            return Err(poisoned.into());
        }
        let mut mark = None;
        while let Some((_, m)) = self.heartbeats.pop_front_if(|(end, _)| *end <= to) {
            mark = mark.max(Some(m));
        }
        {
            let mut anchors = locked(&self.stream().anchors);
            while anchors.get(1).is_some_and(|(end, _)| *end <= to) {
                anchors.pop_front();
            }
        }
        self.shared.frontier.raise(self.lane, to, mark);
        Ok(true)
    }

    /// The most bytes of frames in a batch.
    pub(super) fn max_batch(&self) -> u64 {
        let remote = self.shared.options.remote.as_ref();
        remote.map_or(MAX_BATCH, |remote| MAX_BATCH.min(remote.max_batch_bytes() as u64))
    }

    /// How far a batch from `durable` can go; rotates the segment if not even one frame fits.
    fn fitting(&mut self, durable: Lsn, cut: Lsn) -> Result<Lsn, Error> {
        loop {
            let header = format::header_bytes(self.shared.options.block_bytes) as u64;
            let offset = self.current.offset.max(header);
            let room = self.current.segment.length.saturating_sub(offset + BATCH_HEADER as u64);
            if cut - durable <= room.min(self.max_batch()) {
                return Ok(cut);
            }
            let limit = room.min(self.max_batch()) as usize;
            let fits = self.whole_frames(durable, cut, limit);
            debug_assert!(fits <= limit, "{fits} bytes of frames in {limit}");
            if fits > 0 {
                return Ok(durable + fits as u64);
            }
            if offset == header && self.current.segment.length >= self.shared.options.segment_bytes
            {
                // Cannot happen: a payload is at most a quarter of a segment.
                return Err(Error::Invalid("a frame is larger than a segment".into()));
            }
            self.rotate()?;
        }
    }

    /// The total length of the whole frames from `durable` that fit into `limit`.
    fn whole_frames(&self, durable: Lsn, cut: Lsn, limit: usize) -> usize {
        // SAFETY: everything below the cut is filled and visible, as `flush` checked, and no frame
        // is put more than one ring size above `durable`, so neither is the cut. Only this flusher
        // raises the stream's durable position, which is `durable`, and no writer overwrites what
        // is behind it.
        let (a, b) = unsafe { self.stream().ring.slices(durable, cut) };
        let length_at = |at: usize| {
            let mut head = [0; MAX_HEAD];
            let n = (a.len() + b.len()).saturating_sub(at).min(MAX_HEAD);
            for (i, byte) in head[..n].iter_mut().enumerate() {
                let at = at + i;
                *byte = if at < a.len() { a[at] } else { b[at - a.len()] };
            }
            frame::peek_len(&head[..n])
        };
        format::whole_frames(length_at, limit)
    }
}
