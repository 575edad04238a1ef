//! Strings as arrays of bits: counts, positions, and operations on whole strings.

use super::collections::distinct;
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;
use std::collections::HashMap;

/// A range of a string in bits; both ends belong to it. `None` if it is empty.
fn bit_range(length: usize, args: &[&[u8]]) -> Result<Option<(usize, usize)>, Stop> {
    let in_bits = match args.get(2) {
        None => false,
        Some(unit) if is(unit, "BIT") => true,
        Some(unit) if is(unit, "BYTE") => false,
        Some(_) => return Err(SYNTAX.into()),
    };
    let total = length as i64 * if in_bits { 8 } else { 1 };
    let from = args.first().map_or(Ok(0), |text| integer(text))?;
    let to = args.get(1).map_or(Ok(-1), |text| integer(text))?;
    if from < 0 && to < 0 && from > to {
        return Ok(None);
    }
    let resolve = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (from, to) = (resolve(from), resolve(to).min(total - 1));
    Ok((from <= to).then(|| match in_bits {
        true => (from as usize, to as usize),
        false => (from as usize * 8, to as usize * 8 + 7),
    }))
}

/// A byte without the bits that lie outside of the range.
fn masked(value: &[u8], byte: usize, (from, to): (usize, usize)) -> u8 {
    let mut mask = 0xff;
    if byte == from / 8 {
        mask &= 0xff >> (from % 8);
    }
    if byte == to / 8 {
        mask &= 0xffu8 << (7 - to % 8);
    }
    value[byte] & mask
}

pub fn bitcount(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() == 3 || args.len() > 5 {
        return Err(SYNTAX.into());
    }
    let entry = space.read(args[1])?;
    let value = entry.string()?.unwrap_or_default();
    let range = bit_range(value.len(), &args[2..])?;
    let count = range.map_or(0, |range| {
        let bytes = range.0 / 8..=range.1 / 8;
        bytes.map(|byte| masked(value, byte, range).count_ones() as usize).sum()
    });
    reply.count(count);
    Ok(())
}

pub fn bitpos(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let bit = match integer(args[2])? {
        0 => 0u8,
        1 => 1,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    if args.len() > 6 {
        return Err(SYNTAX.into());
    }
    let entry = space.read(args[1])?;
    let Some(value) = entry.string()? else {
        bit_range(0, &args[3..])?;
        reply.integer(if bit == 1 { -1 } else { 0 });
        return Ok(());
    };
    let Some(range) = bit_range(value.len(), &args[3..])? else {
        reply.integer(-1);
        return Ok(());
    };
    let skipped = if bit == 1 { 0 } else { 0xff };
    let mut found = None;
    let bytes = value.iter().enumerate().take(range.1 / 8 + 1).skip(range.0 / 8);
    for (at, byte) in bytes.filter(|(_, byte)| **byte != skipped) {
        let mut places = (at * 8).max(range.0)..=(at * 8 + 7).min(range.1);
        found = places.find(|at| byte >> (7 - at % 8) & 1 == bit);
        if found.is_some() {
            break;
        }
    }
    let is_open = args.len() < 5;
    match found {
        Some(at) => reply.count(at),
        // Behind the string there are zeros, unless the client has named its end.
        None if bit == 0 && is_open => reply.count(value.len() * 8),
        None => reply.integer(-1),
    }
    Ok(())
}

/// The values of those keys that are named an odd number of times: the others cancel out. `values`
/// are those of the distinct keys.
fn odd_ones<'t>(keys: &[&[u8]], values: Vec<&'t [u8]>) -> Vec<&'t [u8]> {
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    keys.iter().for_each(|key| *times.entry(key).or_default() += 1);
    let named = distinct(keys).into_iter().zip(values);
    named.filter(|(key, _)| times[key] % 2 == 1).map(|(_, value)| value).collect()
}

pub fn bitop(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let names = ["AND", "OR", "XOR", "NOT"];
    let how = names.into_iter().find(|name| is(args[1], name)).ok_or(SYNTAX)?;
    if how == "NOT" && args.len() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    let mut values = Vec::new();
    for key in distinct(&args[3..]) {
        values.push(space.read(key)?.string()?.unwrap_or_default());
    }
    let length = values.iter().map(|value| value.len()).max().unwrap_or(0);
    if how == "XOR" {
        values = odd_ones(&args[3..], values);
    }
    let byte = |value: &&[u8], at: usize| value.get(at).copied().unwrap_or(0);
    let mut result: Vec<u8> = vec![if how == "AND" { 0xff } else { 0 }; length];
    for value in &values {
        for (at, of) in result.iter_mut().enumerate() {
            match how {
                "AND" => *of &= byte(value, at),
                "OR" => *of |= byte(value, at),
                _ => *of ^= byte(value, at),
            }
        }
    }
    if how == "NOT" {
        result.iter_mut().for_each(|of| *of = !*of);
    }
    let target = space.find_head(args[2])?;
    match length {
        0 => drop(space.remove(args[2], &target)?),
        _ => space.put_string(args[2], &target, &result)?,
    }
    reply.count(length);
    Ok(())
}
