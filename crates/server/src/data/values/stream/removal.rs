//! Removal of entries from a stream: by id, and at the front.

use super::StoredStream;
use crate::base::stream_id::StreamId;
use crate::data::blocks::{PAGE, WalkFrom};
use crate::data::keyspace::Stop;
use crate::data::stream_head::StreamHead;
use crate::data::stream_node::{StreamEntry, entries_from, node_of};
use hyades::Abort;

/// The target of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// This number of entries.
    Length(u64),
    /// The entries from this id on.
    Id(StreamId),
}

/// The parameters of a trim.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// The entries that stay.
    pub to: TrimTo,
    /// Only whole nodes are removed.
    pub is_approximate: bool,
    /// Most removed entries; 0: any number.
    pub limit: u64,
}

impl StoredStream<'_, '_> {
    /// Removes entries. Returns the number of removed entries.
    pub fn delete(&mut self, ids: &[StreamId]) -> Result<u64, Stop> {
        let mut ids: Vec<StreamId> =
            ids.iter().copied().filter(|id| *id >= self.head.first).collect();
        ids.sort_unstable();
        ids.dedup();
        let before = self.head.length;
        let mut rest = &ids[..];
        while let Some(id) = rest.first().filter(|id| !self.is_in_tail(**id)) {
            let run = self.run().ok_or(Abort::Conflict)?;
            let Some(block) = self.table().at(run, &id.bytes())? else {
                rest = &rest[1..];
                continue;
            };
            let mut live = entries_from(block.body, self.head.first)?;
            let end = live.last().map_or(*id, |last| last.id).max(*id);
            let (here, behind) = rest.split_at(rest.partition_point(|id| *id <= end));
            let removed = self.remove_from(&mut live, here)?;
            match live.len() {
                _ if removed == 0 => {}
                0 => self.table().remove(run, block.low)?,
                count => self.table().change(run, block.low, count, &node_of(&live)?)?,
            }
            rest = behind;
        }
        if !rest.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            let mut live = entries_from(&tail, self.head.first)?;
            match self.remove_from(&mut live, rest)? {
                0 => {
                    drop(live);
                    self.tail = tail;
                }
                _ => self.set_tail(&live)?,
            }
        }
        let removed = before - self.head.length;
        if removed > 0 && ids[0] <= self.head.first {
            self.find_first()?;
        }
        Ok(removed)
    }

    /// Removes entries from the entries of a node. Returns the number of removed entries.
    fn remove_from(
        &mut self,
        live: &mut Vec<StreamEntry<'_>>,
        ids: &[StreamId],
    ) -> Result<u64, Abort> {
        let before = live.len();
        let StreamHead { length, deleted, .. } = &mut self.head;
        live.retain(|entry| {
            let stays = ids.binary_search(&entry.id).is_err();
            *deleted = if stays { *deleted } else { entry.id.max(*deleted) };
            stays
        });
        let removed = (before - live.len()) as u64;
        *length = length.checked_sub(removed).ok_or(Abort::Conflict)?;
        Ok(removed)
    }

    /// Finds the new first entry.
    fn find_first(&mut self) -> Result<(), Stop> {
        let mut first = StreamId::ZERO;
        if self.head.length > 0 {
            self.ascend(self.head.first, &mut |entry| {
                first = entry.id;
                false
            })?;
        }
        self.head.first = first;
        Ok(())
    }

    /// Removes entries at the front. Returns the number of removed entries.
    pub fn trim(&mut self, trim: &Trim) -> Result<u64, Stop> {
        let before = self.head.length;
        let mut goes_on = match trim.to {
            TrimTo::Length(most) => before > most,
            TrimTo::Id(id) => before > 0 && self.head.first < id,
        };
        if let Some(run) = self.run() {
            let (mut from, mut step) = (WalkFrom::First, 1);
            while goes_on {
                let page = self.table().next(run, from, step)?;
                step = (2 * step).min(PAGE);
                for block in &page {
                    let is_whole;
                    (is_whole, goes_on) = self.trim_node(trim, before, block.body)?;
                    if is_whole {
                        self.table().remove(run, block.low)?;
                    }
                    if !goes_on {
                        break;
                    }
                }
                match page.last() {
                    Some(last) if goes_on => from = WalkFrom::Behind(last.low),
                    _ => break,
                }
            }
        }
        if goes_on && !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            let (is_whole, _) = self.trim_node(trim, before, &tail)?;
            match is_whole {
                true => self.head.in_tail = 0,
                false => self.tail = tail,
            }
        }
        if self.head.length == 0 {
            self.head.first = StreamId::ZERO;
        }
        Ok(before - self.head.length)
    }

    /// Trims the next node of a stream that had `before` entries. Returns whether the whole node is
    /// removed, and whether the next node is to be trimmed.
    fn trim_node(&mut self, trim: &Trim, before: u64, body: &[u8]) -> Result<(bool, bool), Stop> {
        let live: Vec<StreamId> =
            entries_from(body, self.head.first)?.iter().map(|entry| entry.id).collect();
        let (Some(first), Some(last)) = (live.first(), live.last()) else {
            return Err(Abort::Conflict.into());
        };
        self.head.first = *first;
        let (count, length) = (live.len() as u64, self.head.length);
        let is_beyond = trim.limit > 0 && before.saturating_sub(length) + count > trim.limit;
        let over = match trim.to {
            TrimTo::Length(most) => length.saturating_sub(most).min(count),
            TrimTo::Id(id) if *last < id => count,
            TrimTo::Id(id) => live.partition_point(|known| *known < id) as u64,
        };
        if over == 0 || is_beyond {
            return Ok((false, false));
        }
        let is_whole = over == count;
        if is_whole || !trim.is_approximate {
            self.head.length = length.checked_sub(over).ok_or(Abort::Conflict)?;
        }
        if !is_whole && !trim.is_approximate {
            self.head.first = live[over as usize];
        }
        Ok((is_whole, is_whole))
    }
}
