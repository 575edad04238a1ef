//! Ranges of sorted sets: by rank, by score, by member.

use super::sorted_sets::{Scored, replace, scored, show, store};
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::number;
use crate::resp::reply::Reply;

/// What a range goes by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range of a sorted set: from the lower bound to the upper one.
enum ZRange<'a> {
    Rank(i64, i64),
    Score((f64, bool), (f64, bool)),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// A bound of a range of members; the flag: it does not belong to the range.
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
    // Without digits it is 0, and what is too large is infinite, as Redis has it.
    let read = match text {
        b"" => Some(0.0),
        text => number::float(text).map(|of| of.value).filter(|value| !value.is_nan()),
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

    /// The places of its members; ranks count from the end if `reversed`.
    fn places(&self, all: &Scored<'_>, reversed: bool) -> std::ops::Range<usize> {
        let (from, to) = match self {
            ZRange::Rank(from, to) => {
                let length = all.len() as i64;
                let resolve = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
                let from = resolve(*from).clamp(0, length);
                let to = resolve(*to).saturating_add(1).clamp(0, length);
                match reversed {
                    true => ((length - to) as usize, (length - from) as usize),
                    false => (from as usize, to as usize),
                }
            }
            ZRange::Score((low, low_open), (high, high_open)) => (
                all.partition_point(|(s, _)| s < low || *low_open && s == low),
                all.partition_point(|(s, _)| s < high || !high_open && s == high),
            ),
            ZRange::Lex(low, high) => {
                // Those below the bound, or at it if `with`.
                let below = |bound: &LexBound<'_>, is_upper: bool| match bound {
                    LexBound::Lowest => 0,
                    LexBound::Highest => all.len(),
                    LexBound::At(text, is_open) => {
                        let with = *is_open != is_upper;
                        all.partition_point(|(_, m)| m < text || with && m == text)
                    }
                };
                (below(low, false), below(high, true))
            }
        };
        from..to.max(from)
    }
}

/// What a ZRANGE asks for.
struct WantedMembers<'a> {
    range: ZRange<'a>,
    reversed: bool,
    with_scores: bool,
    /// Members to leave out, and the most to take.
    limit: Option<(i64, i64)>,
}

impl WantedMembers<'_> {
    fn of<'t>(&self, all: Scored<'t>) -> Scored<'t> {
        let places = self.range.places(&all, self.reversed);
        let mut found = all[places].to_vec();
        if self.reversed {
            found.reverse();
        }
        let Some((skipped, most)) = self.limit else { return found };
        let Ok(skipped) = usize::try_from(skipped) else { return Vec::new() };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        found.into_iter().skip(skipped).take(most).collect()
    }
}

/// Reads bounds and options. `fixed`: by what the older commands go, and whether in reverse.
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
    let found = wanted.of(scored(&space.read(args[1])?)?);
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
    let mut found = wanted.of(scored(&space.read(args[2])?)?);
    super::sorted_sets::sort(&mut found);
    reply.count(found.len());
    replace(space, args[1], &found)
}

fn count(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, by: By) -> Done {
    let range = ZRange::read(by, args[2], args[3])?;
    reply.count(range.places(&scored(&space.read(args[1])?)?, false).len());
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
    let entry = space.find(args[1])?;
    let mut all = scored(&entry)?;
    let places = range.places(&all, false);
    let removed = all.drain(places).count();
    if removed > 0 {
        store(space, args[1], &entry, &all)?;
    }
    reply.count(removed);
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
