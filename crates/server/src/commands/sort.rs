//! SORT.

use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop, WRONG_TYPE};
use crate::data::values::Value;
use crate::data::values::elements::replace;
use crate::data::values::hash::StoredHash;
use crate::data::values::list::ListType;
use crate::resp::number;
use crate::resp::reply::Reply;
use std::borrow::Cow;
use std::cmp::Ordering;

#[derive(Default)]
struct SortOptions<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    descending: bool,
    alpha: bool,
    store: Option<&'a [u8]>,
}

fn options<'a>(args: &[&'a [u8]], may_store: bool) -> Result<SortOptions<'a>, Stop> {
    let (mut wanted, mut at) = (SortOptions::default(), 0);
    while let Some(option) = args.get(at) {
        let rest = &args[at + 1..];
        let takes = match option {
            _ if is(option, "ASC") => {
                wanted.descending = false;
                0
            }
            _ if is(option, "DESC") => {
                wanted.descending = true;
                0
            }
            _ if is(option, "ALPHA") => {
                wanted.alpha = true;
                0
            }
            _ if is(option, "LIMIT") && rest.len() >= 2 => {
                wanted.limit = Some((integer(rest[0])?, integer(rest[1])?));
                2
            }
            _ if is(option, "STORE") && !rest.is_empty() && may_store => {
                wanted.store = Some(rest[0]);
                1
            }
            _ if is(option, "BY") && !rest.is_empty() => {
                wanted.by = Some(rest[0]);
                1
            }
            _ if is(option, "GET") && !rest.is_empty() => {
                wanted.get.push(rest[0]);
                1
            }
            _ => return Err(SYNTAX.into()),
        };
        at += 1 + takes;
    }
    Ok(wanted)
}

/// This many bytes of a pattern, looked through for each element, count as one access.
const BYTES_PER_STEP: usize = 64;

/// Looks up a pattern for an element: the element itself, the string under the key made from the
/// pattern with the element in place of its `*`, or a field of the hash there.
fn look_up<'t>(
    space: &Keyspace<'t>,
    pattern: &[u8],
    element: &'t [u8],
) -> Result<Option<Cow<'t, [u8]>>, Stop> {
    space.charge(1 + pattern.len() / BYTES_PER_STEP)?;
    if pattern == b"#" {
        return Ok(Some(element.into()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let behind = &pattern[star + 1..];
    let arrow = behind.windows(2).position(|two| two == b"->");
    let (key_end, field) = match arrow.filter(|at| at + 2 < behind.len()) {
        Some(at) => (&behind[..at], Some(&behind[at + 2..])),
        None => (behind, None),
    };
    let key = [&pattern[..star], element, key_end].concat();
    let entry = space.find(&key)?;
    let Some((_, value)) = entry.value()? else { return Ok(None) };
    match (value, field) {
        (Value::String(text), None) => Ok(Some(text.whole()?)),
        (Value::Hash(_) | Value::TimedHash(_), Some(field)) => {
            Ok(StoredHash::of(entry)?.get(field)?.map(Cow::Borrowed))
        }
        (Value::String(_), Some(_))
        | (Value::Hash(_) | Value::TimedHash(_), None)
        | (Value::List(_) | Value::Set(_) | Value::SortedSet(_) | Value::Stream(_), _) => Ok(None),
    }
}

/// The sort key of an element.
enum Weight<'a> {
    Number(f64),
    Text(Option<Cow<'a, [u8]>>),
}

/// Reads a number as Redis's SORT does: blanks may be in front, a zero byte ends the number, and an
/// empty text is 0.
fn sort_number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let read = number::float(text).filter(|float| !float.value.is_nan() && !float.is_out_of_range);
    // -0 is 0.
    read.map(|float| float.value + 0.0)
}

fn weight<'t>(
    space: &Keyspace<'t>,
    wanted: &SortOptions<'_>,
    element: &'t [u8],
) -> Result<Weight<'t>, Stop> {
    let text = match wanted.by {
        Some(pattern) => look_up(space, pattern, element)?,
        None => Some(element.into()),
    };
    if wanted.alpha {
        return Ok(Weight::Text(text));
    }
    let number = text.as_deref().map_or(Some(0.0), sort_number);
    Ok(Weight::Number(number.ok_or("ERR One or more scores can't be converted into double")?))
}

fn compare(a: &Weight<'_>, b: &Weight<'_>) -> Ordering {
    match (a, b) {
        (Weight::Number(a), Weight::Number(b)) => a.total_cmp(b),
        (Weight::Text(a), Weight::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

fn sorted<'t>(
    space: &Keyspace<'t>,
    key: &[u8],
    wanted: &SortOptions<'_>,
) -> Result<Vec<&'t [u8]>, Stop> {
    let entry = space.read(key)?;
    // The elements, and whether they have an order.
    let (mut all, is_ordered) = match entry.value()?.map(|(_, value)| value) {
        None => (Vec::new(), true),
        Some(Value::List(list)) => (list.all()?, true),
        Some(Value::Set(set)) => (set.all()?, false),
        Some(Value::SortedSet(set)) => {
            (set.scored()?.into_iter().map(|(_, member)| member).collect::<Vec<_>>(), true)
        }
        Some(Value::String(_) | Value::Hash(_) | Value::TimedHash(_) | Value::Stream(_)) => {
            return Err(WRONG_TYPE.into());
        }
    };
    let is_unsorted = wanted.by.is_some_and(|pattern| !pattern.contains(&b'*'));
    if !is_unsorted {
        let weighed = all.iter().map(|element| Ok((weight(space, wanted, element)?, *element)));
        let mut weighed = weighed.collect::<Result<Vec<_>, Stop>>()?;
        weighed.sort_by(|(a, of_a), (b, of_b)| {
            // Equal weights are in the order of their elements, so that the result is unique.
            let by_element =
                if wanted.by.is_some() || !wanted.alpha { of_a.cmp(of_b) } else { Ordering::Equal };
            let order = compare(a, b).then(by_element);
            if wanted.descending { order.reverse() } else { order }
        });
        all = weighed.into_iter().map(|(_, element)| element).collect();
    } else if is_ordered && wanted.descending {
        all.reverse();
    } else if !is_ordered && (wanted.store.is_some() || space.context().is_script) {
        // A set has no order; a stored result has an order, and results in a script are repeatable.
        all.sort();
        if wanted.descending {
            all.reverse();
        }
    }
    let Some((from, count)) = wanted.limit else { return Ok(all) };
    let from = usize::try_from(from).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(all.into_iter().skip(from).take(count).collect())
}

fn run(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>, may_store: bool) -> Done {
    let wanted = options(&args[2..], may_store)?;
    let all = sorted(space, args[1], &wanted)?;
    let mut shown: Vec<Option<Cow<'_, [u8]>>> = Vec::new();
    for element in all {
        match wanted.get.is_empty() {
            true => shown.push(Some(element.into())),
            false => {
                for pattern in &wanted.get {
                    shown.push(look_up(space, pattern, element)?);
                }
            }
        }
    }
    match wanted.store {
        None => {
            reply.array(shown.len());
            shown.iter().for_each(|text| reply.bulk_or_null(text.as_deref()));
        }
        Some(target) => {
            let stored = shown.iter().map(|text| text.as_deref().unwrap_or_default());
            replace::<ListType>(space, target, stored)?;
            reply.count(shown.len());
        }
    }
    Ok(())
}

pub fn sort(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    run(space, args, reply, true)
}

pub fn sort_ro(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    run(space, args, reply, false)
}
