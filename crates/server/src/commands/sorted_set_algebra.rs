//! Unions, intersections and differences of sorted sets, and of sets, whose members have score 1.

use super::collections::numbered_keys;
use super::sets::limit_option;
use super::sorted_sets::{ByMember, score, show};
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop, WRONG_TYPE};
use crate::data::values::Value;
use crate::data::values::sorted_set::{Scored, replace, sort};
use crate::resp::reply::Reply;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ZOperation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => not_nan(a + b),
            Aggregate::Min => a.min(b),
            Aggregate::Max => a.max(b),
        }
    }
}

/// The sum of both infinities is 0, and so is 0 times an infinity.
fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score + 0.0 }
}

struct ZOptions {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn options(args: &[&[u8]], keys: usize, how: ZOperation, stores: bool) -> Result<ZOptions, Stop> {
    let (weights, aggregate) = (vec![1.0; keys], Aggregate::Sum);
    let mut wanted = ZOptions { weights, aggregate, with_scores: false };
    let (mut at, combines) = (0, how != ZOperation::Difference);
    while let Some(option) = args.get(at) {
        at += 1;
        if combines && is(option, "WEIGHTS") && args.len() - at >= keys {
            for (weight, text) in wanted.weights.iter_mut().zip(&args[at..]) {
                *weight = score(text).ok_or("ERR weight value is not a float")?;
            }
            at += keys;
        } else if combines && is(option, "AGGREGATE") && at < args.len() {
            wanted.aggregate = match args[at] {
                word if is(word, "SUM") => Aggregate::Sum,
                word if is(word, "MIN") => Aggregate::Min,
                word if is(word, "MAX") => Aggregate::Max,
                _ => return Err(SYNTAX.into()),
            };
            at += 1;
        } else if !stores && is(option, "WITHSCORES") {
            wanted.with_scores = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(wanted)
}

/// The members of a sorted set, or of a set.
fn members<'t>(space: &Keyspace<'t>, key: &[u8]) -> Result<Scored<'t>, Stop> {
    match space.read(key)?.value()?.map(|(_, value)| value) {
        None => Ok(Vec::new()),
        Some(Value::Set(set)) => Ok(set.all()?.into_iter().map(|member| (1.0, member)).collect()),
        Some(Value::SortedSet(set)) => set.scored(),
        Some(
            Value::String(_)
            | Value::List(_)
            | Value::Hash(_)
            | Value::TimedHash(_)
            | Value::Stream(_),
        ) => Err(WRONG_TYPE.into()),
    }
}

fn combine<'t>(
    space: &Keyspace<'t>,
    keys: &[&[u8]],
    how: ZOperation,
    wanted: &ZOptions,
) -> Result<Scored<'t>, Stop> {
    let weighted = |at: usize, score: f64| not_nan(score * wanted.weights[at]);
    let mut result: ByMember<'t> = ByMember::new();
    for (score, member) in members(space, keys[0])? {
        result.insert(member, weighted(0, score));
    }
    // One set at a time: each may be as long as a value can be.
    for (at, key) in keys.iter().enumerate().skip(1) {
        let set = members(space, key)?;
        space.charge(set.len())?;
        match how {
            ZOperation::Union => {
                for (score, member) in set {
                    let score = weighted(at, score);
                    let known = result.entry(member);
                    known
                        .and_modify(|old| *old = wanted.aggregate.of(*old, score))
                        .or_insert(score);
                }
            }
            ZOperation::Intersection => {
                let other: ByMember<'t> =
                    set.iter().map(|(score, member)| (*member, *score)).collect();
                result.retain(|member, _| other.contains_key(member));
                for (member, old) in &mut result {
                    *old = wanted.aggregate.of(*old, weighted(at, other[member]));
                }
            }
            ZOperation::Difference => {
                for (_, member) in set {
                    result.remove(member);
                }
            }
        }
    }
    let mut all: Scored<'t> = result.into_iter().map(|(member, score)| (score, member)).collect();
    sort(&mut all);
    Ok(all)
}

fn show_combined(
    space: &Keyspace<'_>,
    (args, name): (&[&[u8]], &str),
    reply: &mut Reply<'_>,
    how: ZOperation,
) -> Done {
    let (keys, rest) = numbered_keys(&args[1..], name)?;
    let wanted = options(rest, keys.len(), how, false)?;
    let all = combine(space, keys, how, &wanted)?;
    show(reply, &all, wanted.with_scores);
    Ok(())
}

fn store_combined(
    space: &Keyspace<'_>,
    (args, name): (&[&[u8]], &str),
    reply: &mut Reply<'_>,
    how: ZOperation,
) -> Done {
    let (keys, rest) = numbered_keys(&args[2..], name)?;
    let wanted = options(rest, keys.len(), how, true)?;
    let all = combine(space, keys, how, &wanted)?;
    reply.count(all.len());
    replace(space, args[1], &all)
}

pub fn zunion(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show_combined(space, (args, "zunion"), reply, ZOperation::Union)
}

pub fn zinter(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show_combined(space, (args, "zinter"), reply, ZOperation::Intersection)
}

pub fn zdiff(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    show_combined(space, (args, "zdiff"), reply, ZOperation::Difference)
}

pub fn zunionstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    store_combined(space, (args, "zunionstore"), reply, ZOperation::Union)
}

pub fn zinterstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    store_combined(space, (args, "zinterstore"), reply, ZOperation::Intersection)
}

pub fn zdiffstore(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    store_combined(space, (args, "zdiffstore"), reply, ZOperation::Difference)
}

pub fn zintercard(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    integer(args[1])?;
    let (keys, rest) = numbered_keys(&args[1..], "zintercard")?;
    let limit = limit_option(rest)?;
    let wanted = options(&[], keys.len(), ZOperation::Intersection, false)?;
    reply.count(combine(space, keys, ZOperation::Intersection, &wanted)?.len().min(limit));
    Ok(())
}
