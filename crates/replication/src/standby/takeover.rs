//! The takeover of the log by a standby that has the lease: the lanes are sealed, the incarnations
//! before end, and the files end where the lanes end.

use super::Standby;
use super::frames::append;
use crate::begin;
use crate::lane_tail::LaneTail;
use crate::seal::{self, Sealed, Writer};
use crate::service::Patience;
use crate::standby_error::StandbyError;
use hyades::Follower;
use hyades_platform::broken;
use hyades_platform::sync::Unpoisoned;
use hyades_wal::{BeginAt, Lsn, Mirror, RemoteEnded, StreamId, StreamStart};

/// What a takeover goes on with, once its incarnation has sealed the lanes.
pub(crate) struct TakenOver {
    /// The tables.
    pub follower: Follower,
    /// The files, which end where the lanes end.
    pub mirror: Mirror,
    /// By stream, the seal, and where the incarnation begins.
    pub lanes: Vec<(Sealed, Lsn)>,
    /// Where the incarnation begins.
    pub at: BeginAt,
}

impl Standby {
    /// Ends all earlier incarnations, as the writer of the next, and replays the rest. `stored` is
    /// what the lease states as stored; a database without streams begins with `streams`.
    pub(crate) fn take_over(
        mut self,
        (writer, patience): (&Writer, &Patience<'_>),
        stored: &[Lsn],
        streams: usize,
    ) -> Result<TakenOver, StandbyError> {
        if self.has_ended && !self.is_replicated()? {
            // The process of the founder may have ended when its incarnation had just begun.
            self.look_for_next()?;
        }
        let is_replicated = self.is_replicated()?;
        let ids: Vec<StreamId> = match self.incarnation.dims.is_empty() {
            true => (0..streams as u32).map(StreamId).collect(),
            false => self.incarnation.dims.iter().map(|dim| dim.stream).collect(),
        };
        let (mut sealed, count) = (Vec::new(), ids.len());
        if is_replicated {
            for (lane, tail) in self.tails.iter_mut().enumerate() {
                let (frames, has_ended) = (&self.frames, self.has_ended);
                let places = &mut self.places;
                let how = (writer, patience);
                let seal = seal::seal_lane(&*self.service, (lane, count), how, tail, |found| {
                    if has_ended { Ok(()) } else { append(frames, places, lane, found) }
                })?;
                sealed.push(seal);
            }
            // The incarnation followed so far may not be the last one that has begun. One that
            // begins later has no frames before the seals.
            while self.go_on_before_seals(writer.incarnation)? {
                sealed.clear();
                for (lane, tail) in self.tails.iter_mut().enumerate() {
                    let (frames, places) = (&self.frames, &mut self.places);
                    let seal =
                        seal::read_to_seal(&*self.service, (writer, patience), tail, |found| {
                            append(frames, places, lane, found)
                        })?;
                    sealed.push(seal);
                }
            }
            let ends = self.sealed_ends();
            self.check_witnesses(stored, &ends)?;
            if !self.has_ended {
                self.end_incarnation(ends)?;
            }
        }
        debug_assert!(self.has_ended, "files without a replicated incarnation have ended");
        let mirror = self.frames.0.into_inner().unpoisoned();
        let mut starts = mirror.received();
        starts.resize(count, 0);
        if !is_replicated {
            for (lane, &start) in starts.iter().enumerate() {
                let how = (writer, patience);
                sealed.push(seal::seal_new_lane(&*self.service, (lane, count), how, start)?);
            }
        }
        let streams = ids.into_iter().zip(&starts);
        let streams = streams.map(|(stream, &start)| StreamStart { stream, start }).collect();
        let at = BeginAt { number: writer.incarnation, streams };
        let lanes = sealed.into_iter().zip(starts).collect();
        Ok(TakenOver { follower: self.follower, mirror, lanes, at })
    }

    /// Whether the followed incarnation is in the lanes.
    fn is_replicated(&self) -> Result<bool, StandbyError> {
        let number = self.incarnation.number;
        Ok(number > 0 && begin::read(&*self.service, number)?.is_some())
    }

    /// By stream, where the incarnation ends, once the lanes are sealed.
    fn sealed_ends(&self) -> Vec<Lsn> {
        let end = |tail: &LaneTail| match broken!(SealUnread) {
            true => tail.end(),
            false => tail.ended_at().expect("it is sealed"),
        };
        self.tails.iter().map(end).collect()
    }

    /// Once the lanes are sealed by `own` and read up to the seals: if an incarnation between has
    /// begun, ends the one followed so far, and goes on with the later one. False if there is none.
    fn go_on_before_seals(&mut self, own: u32) -> Result<bool, StandbyError> {
        let number = self.incarnation.number;
        match begin::next(&*self.service, number)? {
            None => return Ok(false),
            Some(next) if next.incarnation.number >= own => {
                return Err(RemoteEnded::Fenced { by: next.incarnation.number }.into());
            }
            Some(_) => {}
        }
        if !self.has_ended {
            self.end_incarnation(self.sealed_ends())?;
        }
        self.look_for_next()?;
        Ok(self.incarnation.number > number)
    }

    /// Checks that the lanes have all that is known to have been stored.
    fn check_witnesses(&self, lease: &[Lsn], ends: &[Lsn]) -> Result<(), StandbyError> {
        if broken!(IgnoreStored) {
            return Ok(());
        }
        let received = self.received();
        let messages = self.tails.iter().map(LaneTail::stored);
        for witness in messages.chain([lease, &received]) {
            for (stream, (&stored, &end)) in witness.iter().zip(ends).enumerate() {
                if stored > end {
                    return Err(StandbyError::Lost { stream, end, stored });
                }
            }
        }
        if self.has_ended && received != ends {
            return Err(RemoteEnded::Different(format!(
                "incarnation {} ends at {ends:?} by stream, and at {received:?} by the files",
                self.incarnation.number
            ))
            .into());
        }
        Ok(())
    }
}
