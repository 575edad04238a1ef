//! A run of blocks of members, perhaps with a value each: the fields of a hash, the members of a
//! set, the members of a sorted set by name, and again by score.

use super::blocks::{Block, BlockTable, LONGEST_LOW, PAGE, WalkFrom, block_bytes, divide_grown};
use super::keyspace::Stop;
use super::member_hash::{PLACE_BYTES, place, place_bytes, place_of};
use super::member_values::{EditedMember, Member, MemberValues};
use super::packed;
use hyades::Abort;
use std::borrow::Cow;
use std::collections::HashMap;

/// The order of the members of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberOrder {
    /// By a hash under this secret. Within a block members have no order.
    Hashed(u64),
    /// By their bytes.
    Sorted,
}

/// The change of a member.
pub enum MemberEdit<'a> {
    /// No change.
    Keep,
    /// The member is present, with this value.
    Set(Cow<'a, [u8]>),
    /// The member is absent.
    Remove,
}

/// Returns the change of a member. The arguments are the number of the name, and the value if the
/// member is present.
pub type MemberChange<'c, 'a> =
    &'c mut dyn FnMut(usize, Option<&[u8]>) -> Result<MemberEdit<'a>, Stop>;

/// Beyond this number of changes of a block, members are looked up in a map.
const FEW: usize = 16;

/// If more than this share of a run is to be read, the whole run is read.
const READ_ALL: usize = 64;

/// Changes the `known` members with the names `names[number]`, for each number in `group`. Returns
/// `None` if nothing has changed.
pub fn edit_members<'a>(
    known: &[Member<'a>],
    names: &[&'a [u8]],
    group: &[usize],
    change: MemberChange<'_, 'a>,
) -> Result<Option<Vec<EditedMember<'a>>>, Stop> {
    // A removed member leaves a gap, so that places stay.
    let mut all: Vec<Option<EditedMember<'a>>> =
        known.iter().map(|(name, value)| Some((*name, Cow::Borrowed(*value)))).collect();
    let mut places: Option<HashMap<&[u8], usize>> = (group.len() > FEW)
        .then(|| known.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect());
    let mut is_changed = false;
    for number in group {
        let name = names[*number];
        let has_name =
            |slot: &Option<EditedMember<'_>>| slot.as_ref().is_some_and(|member| member.0 == name);
        let place = match &places {
            Some(places) => places.get(name).copied(),
            None => all.iter().position(has_name),
        };
        let old = place.and_then(|at| all[at].as_ref()).map(|(_, value)| &value[..]);
        match (change(*number, old)?, place) {
            (MemberEdit::Keep, _) | (MemberEdit::Remove, None) => continue,
            (MemberEdit::Remove, Some(at)) => {
                is_changed |= all[at].take().is_some();
                if let Some(places) = &mut places {
                    places.remove(name);
                }
            }
            // Setting an equal value is a change as well: WATCH sees the change.
            (MemberEdit::Set(value), Some(at)) => {
                is_changed = true;
                all[at] = Some((name, value));
            }
            (MemberEdit::Set(value), None) => {
                if let Some(places) = &mut places {
                    places.insert(name, all.len());
                }
                all.push(Some((name, value)));
                is_changed = true;
            }
        }
    }
    Ok(is_changed.then(|| all.into_iter().flatten().collect()))
}

/// A run of members.
#[derive(Clone, Copy)]
pub struct MemberRun<'t> {
    /// Where the blocks lie.
    pub table: BlockTable<'t>,
    /// The number of the run.
    pub number: u64,
    /// The order of the members.
    pub order: MemberOrder,
    /// The values beside the names.
    pub values: MemberValues,
}

impl<'t> MemberRun<'t> {
    /// The place of a member, as bytes. A place is no longer than a low key may be, so two long
    /// members may have the same place.
    fn place<'n>(&self, name: &'n [u8], room: &'n mut [u8; PLACE_BYTES]) -> &'n [u8] {
        match self.order {
            MemberOrder::Hashed(secret) => {
                *room = place_bytes(place(secret, name));
                room
            }
            MemberOrder::Sorted => &name[..name.len().min(LONGEST_LOW)],
        }
    }

    /// The shortest low key for a block that begins with `next`, where the block before ends with
    /// `last`, if such a key exists.
    fn low_between(&self, last: &[u8], next: &[u8]) -> Option<Vec<u8>> {
        let (mut room, mut room_of_next) = ([0; PLACE_BYTES], [0; PLACE_BYTES]);
        let (last, next) = (self.place(last, &mut room), self.place(next, &mut room_of_next));
        let same = last.iter().zip(next).take_while(|(a, b)| a == b).count();
        next.get(..same + 1).map(<[u8]>::to_vec)
    }

    fn members<'a>(&self, body: &'a [u8]) -> Result<Vec<Member<'a>>, Abort> {
        self.values.members(body)
    }

    fn find(&self, block: &Block<'t>, name: &[u8]) -> Result<Option<&'t [u8]>, Abort> {
        let mut rest = block.body;
        while !rest.is_empty() {
            let known = packed::take(&mut rest).ok_or(Abort::Conflict)?;
            let value = self.values.take(&mut rest).ok_or(Abort::Conflict)?;
            if known == name {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The value of a member, if the member is present; empty where members have no values.
    pub fn get(&self, name: &[u8]) -> Result<Option<&'t [u8]>, Abort> {
        let block = self.table.at(self.number, self.place(name, &mut [0; PLACE_BYTES]))?;
        block.map_or(Ok(None), |block| self.find(&block, name))
    }

    /// The values of members.
    pub fn get_all(&self, names: &[&[u8]]) -> Result<Vec<Option<&'t [u8]>>, Abort> {
        if names.len() <= FEW {
            return names.iter().map(|name| self.get(name)).collect();
        }
        let mut found = vec![None; names.len()];
        self.for_each_block(names, |block, group| {
            let Some(block) = block else { return Ok(()) };
            let all: HashMap<&[u8], &'t [u8]> = self.members(block.body)?.into_iter().collect();
            group.iter().for_each(|at| found[*at] = all.get(names[*at]).copied());
            Ok::<(), Stop>(())
        })
        .map_err(|stop| match stop {
            Stop::Abort(abort) => abort,
            Stop::Error(_) | Stop::ErrorKept(_) => unreachable!("reading has no errors of its own"),
        })?;
        Ok(found)
    }

    /// Visits each block in which some of the members lie or would lie, with the numbers of these
    /// members in their order. `None` stands for a block that does not exist yet.
    fn for_each_block(
        &self,
        names: &[&[u8]],
        mut visit: impl FnMut(Option<Block<'t>>, &[usize]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let place_of = |at: usize| {
            let mut room = [0; PLACE_BYTES];
            self.place(names[at], &mut room).to_vec()
        };
        if let [name] = names {
            let block = self.table.at(self.number, self.place(name, &mut [0; PLACE_BYTES]))?;
            return visit(block, &[0]);
        }
        let mut order: Vec<(Vec<u8>, usize)> =
            (0..names.len()).map(|at| (place_of(at), at)).collect();
        // Two changes of the same member stay in their order.
        order.sort();
        let mut rest = &order[..];
        while let Some((place, _)) = rest.first() {
            let block = self.table.at(self.number, place)?;
            let from = block.map_or(WalkFrom::First, |block| WalkFrom::Behind(block.low));
            let end = self.table.next(self.number, from, 1)?;
            let is_in = |(place, _): &(Vec<u8>, usize)| {
                end.first().is_none_or(|end| place.as_slice() < end.low)
            };
            let (group, others) = rest.split_at(rest.partition_point(is_in));
            if group.is_empty() {
                // The two reads do not fit together: the view will not be validated.
                return Err(Abort::Conflict.into());
            }
            let group: Vec<usize> = group.iter().map(|(_, at)| *at).collect();
            visit(block, &group)?;
            rest = others;
        }
        Ok(())
    }

    /// Changes members: `change` gets the number of a name and the member's value, if the member is
    /// present, and returns the change. Names may be repeated.
    pub fn edit<'a>(&self, names: &[&'a [u8]], change: MemberChange<'_, 'a>) -> Result<(), Stop>
    where
        't: 'a,
    {
        self.for_each_block(names, |block, group| self.edit_block(block, names, group, change))
    }

    fn edit_block<'a>(
        &self,
        block: Option<Block<'t>>,
        names: &[&'a [u8]],
        group: &[usize],
        change: MemberChange<'_, 'a>,
    ) -> Result<(), Stop>
    where
        't: 'a,
    {
        let known = block.map_or(Ok(Vec::new()), |block| self.members(block.body))?;
        let ends = known.first().zip(known.last()).map(|(first, last)| (first.0, last.0));
        match edit_members(&known, names, group, change)? {
            Some(all) => self.write(block, ends, all),
            None => Ok(()),
        }
    }

    /// Writes the members of a block, divided into several blocks if need be. `ends`: the first and
    /// the last of the block's former members.
    fn write(
        &self,
        block: Option<Block<'t>>,
        ends: Option<(&[u8], &[u8])>,
        mut all: Vec<EditedMember<'_>>,
    ) -> Result<(), Stop> {
        if all.is_empty() {
            return Ok(block.map_or(Ok(()), |block| self.table.remove(self.number, block.low))?);
        }
        let size = |member: &EditedMember<'_>| self.values.size_of(member);
        let bytes: usize = all.iter().map(size).sum();
        match self.order {
            MemberOrder::Sorted => all.sort_by(|a, b| a.0.cmp(b.0)),
            MemberOrder::Hashed(secret) if bytes > super::blocks::MOST_BLOCK_BYTES => {
                all.sort_by_cached_key(|(name, _)| place(secret, name));
            }
            // Blocks that are not divided keep the order of insertion.
            MemberOrder::Hashed(_) => {}
        }
        let sizes: Vec<usize> = all.iter().map(size).collect();
        let low_of = |at: usize| self.low_between(all[at - 1].0, all[at].0);
        let old = match ends {
            Some((first, last)) if self.order == MemberOrder::Sorted => {
                all.partition_point(|member| member.0 < first)
                    ..all.partition_point(|member| member.0 <= last)
            }
            _ => 0..all.len(),
        };
        for piece in divide_grown(&sizes, old, |at| low_of(at).is_some()) {
            let body = self.values.pack(&all[piece.clone()]);
            match (piece.start, block) {
                (0, Some(block)) => {
                    self.table.change(self.number, block.low, piece.len(), &body)?;
                }
                (0, None) => self.table.add(self.number, b"", piece.len(), &body)?,
                (at, _) => {
                    let low = low_of(at).expect("it is cut where it may be");
                    self.table.add(self.number, &low, piece.len(), &body)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the members of an empty run.
    pub fn fill<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), Stop> {
        self.write(None, None, all.into_iter().map(|(name, v)| (name, Cow::Borrowed(v))).collect())
    }

    /// The number of members.
    pub fn count(&self) -> Result<usize, Abort> {
        self.table.count(self.number, None)
    }

    /// Whether the run has a member.
    pub fn has_any(&self) -> Result<bool, Abort> {
        self.table.has_any(self.number)
    }

    /// All members, block by block: in order if the run is sorted.
    pub fn all(&self) -> Result<Vec<Member<'t>>, Abort> {
        let mut all = Vec::new();
        self.table.walk(self.number, |block| {
            all.extend(self.members(block.body)?);
            Ok(true)
        })?;
        // A collection without members does not exist: the view is torn.
        if all.is_empty() { Err(Abort::Conflict) } else { Ok(all) }
    }

    /// Members of a hashed run from a place on, in whole blocks, until there are `count`; and the
    /// place for the next call. A member present throughout is returned by exactly one of the
    /// consecutive calls, whatever blocks are split meanwhile: the member's place stays.
    pub fn scan_from(
        &self,
        from: u64,
        count: usize,
    ) -> Result<(Vec<Member<'t>>, Option<u64>), Abort> {
        let MemberOrder::Hashed(secret) = self.order else { unreachable!("it is hashed") };
        let first = self.table.at(self.number, &place_bytes(from))?;
        let mut found = Vec::new();
        let mut from_low = WalkFrom::First;
        if let Some(first) = &first {
            let all = self.members(first.body)?.into_iter();
            found.extend(all.filter(|(name, _)| place(secret, name) >= from));
            from_low = WalkFrom::Behind(first.low);
        }
        loop {
            let page = self.table.next(
                self.number,
                from_low,
                1 + count.saturating_sub(found.len()) / 8,
            )?;
            for block in &page {
                if found.len() >= count {
                    return Ok((found, Some(place_of(block.low))));
                }
                found.extend(self.members(block.body)?);
            }
            match page.last() {
                Some(last) => from_low = WalkFrom::Behind(last.low),
                None => return Ok((found, None)),
            }
        }
    }

    /// The rank of a member in a sorted run: the rank of the first member of the block in which the
    /// member lies or would lie, plus the number of the block's members before it.
    pub fn rank(&self, name: &[u8]) -> Result<usize, Abort> {
        let block = self.table.at(self.number, self.place(name, &mut [0; PLACE_BYTES]))?;
        let Some(block) = block else { return Ok(0) };
        let before = self.members(block.body)?.partition_point(|(known, _)| *known < name);
        Ok(self.table.count(self.number, Some(block.low))? + before)
    }

    /// The members of these ranks, each below `total`, the number of members; in the order given.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Vec<Member<'t>>, Abort> {
        let picked = |all: &[Member<'t>], at: usize| all.get(at).copied().ok_or(Abort::Conflict);
        if ranks.len() > FEW + total / READ_ALL {
            let all = self.all()?;
            return ranks.iter().map(|rank| picked(&all, *rank)).collect();
        }
        // In order: the ranks of a block are next to each other.
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|at| ranks[*at]);
        let none: Member<'t> = (&[], &[]);
        let (mut found, mut all, mut begin) = (vec![none; ranks.len()], Vec::new(), 0);
        for at in order {
            if ranks[at] >= begin + all.len() {
                let (block, first) = self.table.of_rank(self.number, ranks[at])?;
                (all, begin) = (self.members(block.body)?, first);
            }
            found[at] = picked(&all, ranks[at] - begin)?;
        }
        Ok(found)
    }

    /// The members from a rank on, `count` at most, of a sorted run with `total` members.
    pub fn slice(&self, from: usize, count: usize, total: usize) -> Result<Vec<Member<'t>>, Abort> {
        let mut found = Vec::new();
        if from >= total || count == 0 {
            return Ok(found);
        }
        let (block, begin) = self.table.of_rank(self.number, from)?;
        self.ascend(Some(block), |(member, position)| {
            if begin + position >= from {
                found.push(member);
            }
            found.len() < count
        })?;
        Ok(found)
    }

    /// Visits members and their positions from a block on, or from the first block, until `visit`
    /// returns false.
    fn ascend(
        &self,
        block: Option<Block<'t>>,
        mut visit: impl FnMut((Member<'t>, usize)) -> bool,
    ) -> Result<(), Abort> {
        let (mut position, mut step, mut from) = (0, 1, WalkFrom::First);
        let mut page: Vec<Block<'t>> = match block {
            Some(block) => vec![block],
            None => self.table.next(self.number, from, step)?,
        };
        while let Some(last) = page.last() {
            from = WalkFrom::Behind(last.low);
            for block in &page {
                for member in self.members(block.body)? {
                    if !visit((member, position)) {
                        return Ok(());
                    }
                    position += 1;
                }
            }
            page = self.table.next(self.number, from, step)?;
            step = (2 * step).min(PAGE);
        }
        Ok(())
    }

    /// Visits the members of a sorted run at or above `low` in their order, until `visit` returns
    /// false.
    pub fn ascend_from(
        &self,
        low: &[u8],
        mut visit: impl FnMut(Member<'t>) -> bool,
    ) -> Result<(), Abort> {
        let block = self.table.at(self.number, self.place(low, &mut [0; PLACE_BYTES]))?;
        self.ascend(block, |(member, _)| member.0 < low || visit(member))
    }

    /// Visits the members of a sorted run below `high`, or all, in descending order, until `visit`
    /// returns false.
    pub fn descend_from(
        &self,
        high: Option<&[u8]>,
        mut visit: impl FnMut(Member<'t>) -> bool,
    ) -> Result<(), Abort> {
        let first = match high {
            Some(high) => self.table.at(self.number, self.place(high, &mut [0; PLACE_BYTES]))?,
            None => self.table.previous(self.number, None, 1)?.first().copied(),
        };
        let Some(first) = first else { return Ok(()) };
        let (mut page, mut step) = (vec![first], 1);
        while let Some(last) = page.last() {
            let low = last.low;
            for block in &page {
                for member in self.members(block.body)?.into_iter().rev() {
                    if high.is_none_or(|high| member.0 < high) && !visit(member) {
                        return Ok(());
                    }
                }
            }
            page = self.table.previous(self.number, Some(low), step)?;
            step = (2 * step).min(PAGE);
        }
        Ok(())
    }

    /// Bytes of all members.
    pub fn bytes(&self) -> Result<usize, Abort> {
        block_bytes(self.table, self.number)
    }
}
