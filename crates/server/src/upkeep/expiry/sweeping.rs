//! Removes unneeded timers: of deleted keys, and of keys that expire later or never.
//!
//! A sweep goes bucket by bucket, in the order of their times. A timer whose row expires later than
//! the timer says is moved to the row's time, which is in this bucket or a later bucket. A timer
//! whose row expires earlier is dropped: there is another timer of the row's time or before. So a
//! swept bucket holds one timer for each row that expires within the bucket, and no other timer.

use super::wheel::Wheel;
use crate::data::expiries::{Expiries, Expiry};
use crate::data::field_times::next_of_row;
use crate::data::head::Head;
use crate::state::{Opened, Shared};
use hyades::{Column, Error};

const HEAD: Column<u64> = Column::at(2);

/// A sweep begins at twice as many timers as keys with an expiry, plus this number.
pub(super) const LEAST: usize = if cfg!(test) { 64 } else { 1 << 16 };

/// Keys looked up in one snapshot, which ends once the snapshot's contents are on disk.
const BATCH: usize = 4_096;

/// The state of a sweep.
#[derive(Default)]
pub(super) struct Sweep {
    under_way: Option<Stage>,
    ended: u64,
    /// Timers left by the last sweep.
    left: usize,
}

#[derive(Default)]
struct Stage {
    /// Buckets that begin before this time were swept.
    from: i64,
    /// The end of the current bucket.
    end: i64,
    /// The timers of the bucket, the place of the first timer not looked up, and the kept timers.
    timers: Expiries,
    next: usize,
    kept: Expiries,
}

impl Sweep {
    /// Whether there are many more timers than keys with an expiry, or a sweep is under way.
    pub(super) fn is_due(&self, wheel: &Wheel, shared: &Shared) -> bool {
        let needed = (shared.store.counts.expiring() as usize).max(self.left);
        self.under_way.is_some() || wheel.len() >= 2 * needed + LEAST
    }

    /// The number of finished sweeps.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Looks up the keys of some timers.
    ///
    /// # Errors
    /// The errors of a snapshot; keys not looked up are looked up next time.
    pub(super) fn go_on(&mut self, wheel: &mut Wheel, opened: &Opened) -> Result<(), Error> {
        let stage = self.under_way.get_or_insert_default();
        if stage.next == stage.timers.byte_len() {
            for expiry in std::mem::take(&mut stage.kept).without_doubles().iter() {
                wheel.add(expiry);
            }
            let Some((begin, end)) = wheel.bucket_from(stage.from.max(stage.end)) else {
                (self.under_way, self.ended, self.left) = (None, self.ended + 1, wheel.len());
                return Ok(());
            };
            let timers = wheel.take(begin);
            *stage = Stage { from: begin, end, timers, ..Stage::default() };
        }
        let snapshot = opened.database.open_snapshot();
        let (mut kept, mut later) = (Expiries::default(), Vec::new());
        let batch: Vec<Expiry<'_>> = stage.timers.from(stage.next).take(BATCH).collect();
        snapshot.read(|tx| {
            kept.clear();
            later.clear();
            for expiry in &batch {
                let place = (expiry.generation, expiry.key);
                let row = tx.get_columns(opened.tables.keys, place, HEAD.only())?;
                let head = row.and_then(|row| Head::from_word(row.get(HEAD)));
                let next = match head {
                    None => None,
                    Some(head) => next_of_row(tx, opened.tables, place, head)?,
                };
                match next {
                    Some(at_ms)
                        if (expiry.at_ms..stage.end.max(expiry.at_ms + 1)).contains(&at_ms) =>
                    {
                        kept.push(Expiry { at_ms, ..*expiry });
                    }
                    Some(at_ms) if at_ms > expiry.at_ms => later.push(Expiry { at_ms, ..*expiry }),
                    _ => {}
                }
            }
            Ok(())
        })?;
        later.iter().for_each(|expiry| wheel.add(*expiry));
        stage.kept.append(&kept);
        stage.next += batch.iter().map(Expiry::bytes).sum::<usize>();
        Ok(())
    }

    /// Bytes and number of the timers held by a sweep.
    pub(super) fn held(&self) -> (usize, usize) {
        self.under_way.as_ref().map_or((0, 0), |stage| {
            let left = stage.timers.from(stage.next).count();
            (stage.timers.bytes() + stage.kept.bytes(), left + stage.kept.len())
        })
    }
}
