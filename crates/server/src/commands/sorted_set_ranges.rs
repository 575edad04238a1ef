//! Ranges of sorted sets: by rank, by score, by member.

use super::sorted_sets::show;
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::sorted_set::{
    Interval, Scored, StoredSortedSet, replace, score_bytes, sort,
};
use crate::resp::number;
use crate::resp::reply::Reply;

/// The order of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range of a sorted set: from the lower to the upper bound.
enum ZRange<'a> {
    Rank(i64, i64),
    Score((f64, bool), (f64, bool)),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// A bound of a range of members; the flag: the bound is excluded.
enum LexBound<'a> {
    Lowest,
    Highest,
    At(&'a [u8], bool),
}

fn score_bound(text: &[u8]) -> Result<(f64, bool), Stop> {
    let (text, is_open) = match text {
        [b'(', rest @ ..] => (rest, true),
        text => (text, false),
    };
    // Without digits the bound is 0, and a too large number is infinite, as in Redis.
    let read = match text {
        b"" => Some(0.0),
        text => number::float(text).map(|float| float.value).filter(|value| !value.is_nan()),
    };
    Ok((read.ok_or("ERR min or max is not a float")?, is_open))
}

fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, Stop> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', rest @ ..] => Ok(LexBound::At(rest, false)),
        [b'(', rest @ ..] => Ok(LexBound::At(rest, true)),
        _ => Err("ERR min or max not valid string range item".into()),
    }
}

impl<'a> ZRange<'a> {
    /// The bounds in the order of the set.
    fn read(by: By, low: &'a [u8], high: &'a [u8]) -> Result<ZRange<'a>, Stop> {
        Ok(match by {
            By::Rank => ZRange::Rank(integer(low)?, integer(high)?),
            By::Score => ZRange::Score(score_bound(low)?, score_bound(high)?),
            By::Lex => ZRange::Lex(lex_bound(low)?, lex_bound(high)?),
        })
    }

    /// The interval of a set for the range; ranks count from the end if `reversed`.
    fn interval(&self, all: &StoredSortedSet<'_, '_>, reversed: bool) -> Result<Interval, Stop> {
        Ok(match self {
            ZRange::Rank(from, to) => {
                let length = all.count()? as i64;
                let resolve = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
                let from = resolve(*from).clamp(0, length);
                let to = resolve(*to).saturating_add(1).clamp(from, length);
                match reversed {
                    true => Interval::Ranks((length - to) as usize, (length - from) as usize),
                    false => Interval::Ranks(from as usize, to as usize),
                }
            }
            ZRange::Score(low, high) => {
                // The bytes of the elements with the score begin there, or the bytes of the
                // elements behind.
                let bound = |score: f64, is_behind: bool| {
                    let bytes = u64::from_be_bytes(score_bytes(score)) + u64::from(is_behind);
                    bytes.to_be_bytes().to_vec()
                };
                Interval::Between(bound(low.0, low.1), Some(bound(high.0, !high.1)))
            }
            ZRange::Lex(low, high) => match all.lowest_and_highest()? {
                Some((lowest, highest)) if lowest < highest => lex_places(low, high, all)?,
                lowest => lex_interval(low, high, lowest.map_or(0.0, |(score, _)| score)),
            },
        })
    }
}

/// A range of members with equal scores.
fn lex_interval(low: &LexBound<'_>, high: &LexBound<'_>, score: f64) -> Interval {
    let score = score_bytes(score);
    let bound = |bound: &LexBound<'_>, is_upper: bool| match bound {
        LexBound::Lowest => Some(Vec::new()),
        LexBound::Highest => None,
        LexBound::At(text, is_open) => {
            let behind: &[u8] = if *is_open != is_upper { &[0] } else { &[] };
            Some([&score[..], text, behind].concat())
        }
    };
    match bound(low, false) {
        Some(low) => Interval::Between(low, bound(high, true)),
        None => Interval::Ranks(0, 0),
    }
}

/// A range of members with different scores, undefined by the commands: the scores are ignored, as
/// in Redis.
fn lex_places(
    low: &LexBound<'_>,
    high: &LexBound<'_>,
    all: &StoredSortedSet<'_, '_>,
) -> Result<Interval, Stop> {
    let all = all.all()?;
    // The members below the bound, or at the bound if `with`.
    let below = |bound: &LexBound<'_>, is_upper: bool| match bound {
        LexBound::Lowest => 0,
        LexBound::Highest => all.len(),
        LexBound::At(text, is_open) => {
            let with = *is_open != is_upper;
            all.partition_point(|(_, member)| member < text || with && member == text)
        }
    };
    Ok(Interval::Ranks(below(low, false), below(high, true)))
}

/// The request of a ZRANGE.
struct WantedMembers<'a> {
    range: ZRange<'a>,
    reversed: bool,
    with_scores: bool,
    /// Members to leave out, and the most to take.
    limit: Option<(i64, i64)>,
}

impl WantedMembers<'_> {
    fn of<'t>(&self, all: &StoredSortedSet<'t, '_>) -> Result<Scored<'t>, Stop> {
        let interval = self.range.interval(all, self.reversed)?;
        let (skipped, most) = self.limit.unwrap_or((0, -1));
        let Ok(skipped) = usize::try_from(skipped) else { return Ok(Vec::new()) };
        all.take(&interval, self.reversed, skipped, usize::try_from(most).unwrap_or(usize::MAX))
    }
}

/// Reads bounds and options. `fixed`: the order of the older commands, and whether in reverse.
fn wanted<'a>(
    args: &[&'a [u8]],
    fixed: Option<(By, bool)>,
    stores: bool,
) -> Result<WantedMembers<'a>, Stop> {
    let (mut by, mut reversed) = fixed.unwrap_or((By::Rank, false));
    let (mut with_scores, mut limit, mut at) = (false, None, 2);
    while let Some(option) = args.get(at) {
        at += 1;
        if is(option, "WITHSCORES") && !stores {
            with_scores = true;
        } else if is(option, "LIMIT") && at + 1 < args.len() {
            limit = Some((integer(args[at])?, integer(args[at + 1])?));
            at += 2;
        } else if fixed.is_none() && is(option, "REV") {
            reversed = true;
        } else if fixed.is_none() && by == By::Rank && is(option, "BYSCORE") {
            by = By::Score;
        } else if fixed.is_none() && by == By::Rank && is(option, "BYLEX") {
            by = By::Lex;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if limit.is_some() && by == By::Rank {
        let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE \
                    or BYLEX";
        return Err(text.into());
    }
    if with_scores && by == By::Lex {
        let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        return Err(text.into());
    }
    // In reverse the upper bound comes first, but for ranks.
    let swaps = reversed && by != By::Rank;
    let (low, high) = if swaps { (args[1], args[0]) } else { (args[0], args[1]) };
    Ok(WantedMembers { range: ZRange::read(by, low, high)?, reversed, with_scores, limit })
}

fn range(
    space: &Keyspace<'_>,
    args: &[&[u8]],
    reply: &mut Reply<'_>,
    fixed: Option<(By, bool)>,
) -> Done {
    let wanted = wanted(&args[2..], fixed, false)?;
    let found = wanted.of(&StoredSortedSet::of(space.read(args[1])?)?)?;
    show(reply, &found, wanted.with_scores);
    Ok(())
}

pub fn zrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, None)
}

pub fn zrevrange(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, Some((By::Rank, true)))
}

pub fn zrangebyscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, Some((By::Score, false)))
}

pub fn zrevrangebyscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, Some((By::Score, true)))
}

pub fn zrangebylex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, Some((By::Lex, false)))
}

pub fn zrevrangebylex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    range(space, args, reply, Some((By::Lex, true)))
}

pub fn zrangestore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let wanted = wanted(&args[3..], None, true)?;
    let mut found = wanted.of(&StoredSortedSet::of(space.read(args[2])?)?)?;
    sort(&mut found);
    reply.count(found.len());
    replace(space, args[1], &found)
}

fn count(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, by: By) -> Done {
    let range = ZRange::read(by, args[2], args[3])?;
    let all = StoredSortedSet::of(space.read(args[1])?)?;
    reply.count(all.count_in(&range.interval(&all, false)?)?);
    Ok(())
}

pub fn zcount(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    count(space, args, reply, By::Score)
}

pub fn zlexcount(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    count(space, args, reply, By::Lex)
}

fn remove(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, by: By) -> Done {
    let range = ZRange::read(by, args[2], args[3])?;
    let all = StoredSortedSet::of(space.find(args[1])?)?;
    let removed = all.take(&range.interval(&all, false)?, false, 0, usize::MAX)?;
    let names: Vec<&[u8]> = removed.iter().map(|(_, name)| *name).collect();
    reply.count(all.remove(&names)?);
    Ok(())
}

pub fn zremrangebyrank(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    remove(space, args, reply, By::Rank)
}

pub fn zremrangebyscore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    remove(space, args, reply, By::Score)
}

pub fn zremrangebylex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    remove(space, args, reply, By::Lex)
}
