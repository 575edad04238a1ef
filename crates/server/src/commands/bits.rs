//! Strings as arrays of bits: counts, positions, and operations on whole strings.

use super::collections::distinct;
use super::{Done, SYNTAX, integer, is};
use crate::data::keyspace::{Keyspace, Stop};
use crate::data::values::string::length_of;
use crate::resp::reply::Reply;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// A range of a string in bits, with both ends. `None` if the range is empty. Ends before the
/// string are its first byte or bit. Two negative ends in the wrong order are an empty range for
/// BITCOUNT, but not always for BITPOS.
fn bit_range(
    length: usize,
    args: &[&[u8]],
    is_count: bool,
) -> Result<Option<(usize, usize)>, Stop> {
    let in_bits = match args.get(2) {
        None => false,
        Some(unit) if is(unit, "BIT") => true,
        Some(unit) if is(unit, "BYTE") => false,
        Some(_) => return Err(SYNTAX.into()),
    };
    let total = length as i64 * if in_bits { 8 } else { 1 };
    let from = args.first().map_or(Ok(0), |text| integer(text))?;
    let to = args.get(1).map_or(Ok(-1), |text| integer(text))?;
    if is_count && from < 0 && to < 0 && from > to {
        return Ok(None);
    }
    let resolve = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (from, to) = (resolve(from), resolve(to).min(total - 1));
    Ok((from <= to).then(|| match in_bits {
        true => (from as usize, to as usize),
        false => (from as usize * 8, to as usize * 8 + 7),
    }))
}

/// The byte at `at` without the bits outside of the range.
fn masked(byte: u8, at: usize, (from, to): (usize, usize)) -> u8 {
    let mut mask = 0xff;
    if at == from / 8 {
        mask &= 0xff >> (from % 8);
    }
    if at == to / 8 {
        mask &= 0xffu8 << (7 - to % 8);
    }
    byte & mask
}

/// The set bits in a piece of a string that begins at the string's byte `begin`, except bits
/// outside of the range.
fn count_bits(piece: &[u8], begin: usize, range: (usize, usize)) -> usize {
    let (words, rest) = piece.as_chunks::<8>();
    let in_words = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones() as usize);
    let in_rest = rest.iter().map(|byte| byte.count_ones() as usize);
    let all = in_words.sum::<usize>() + in_rest.sum::<usize>();
    let (first, last) = (range.0 / 8, range.1 / 8);
    let ends = [Some(first), (last != first).then_some(last)];
    let outside = ends.into_iter().flatten().filter_map(|at| {
        let byte = *piece.get(at.checked_sub(begin)?)?;
        Some((byte.count_ones() - masked(byte, at, range).count_ones()) as usize)
    });
    all - outside.sum::<usize>()
}

/// The place of the first byte other than `byte`.
fn first_other(bytes: &[u8], byte: u8) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let from = 8 * words.iter().position(|word| *word != [byte; 8]).unwrap_or(words.len());
    bytes[from..].iter().position(|other| *other != byte).map(|at| from + at)
}

/// The bytes with the bits of a range.
fn bytes_of((from, to): (usize, usize)) -> Range<usize> {
    from / 8..to / 8 + 1
}

pub fn bitcount(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    if args.len() == 3 || args.len() > 5 {
        return Err(SYNTAX.into());
    }
    let entry = space.read(args[1])?;
    let value = entry.string()?;
    let range = bit_range(length_of(value), &args[2..], true)?;
    let mut count = 0;
    if let (Some(value), Some(range)) = (value, range) {
        value.check_loop(&bytes_of(range))?;
        value.visit(bytes_of(range), |begin, piece| {
            count += count_bits(piece, begin, range);
            true
        })?;
    }
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
        bit_range(0, &args[3..], false)?;
        reply.integer(if bit == 1 { -1 } else { 0 });
        return Ok(());
    };
    let Some(range) = bit_range(value.len(), &args[3..], false)? else {
        reply.integer(-1);
        return Ok(());
    };
    let skipped = if bit == 1 { 0 } else { 0xff };
    let mut found = None;
    value.visit(bytes_of(range), |begin, piece| {
        let mut next = 0;
        while let Some(skip) = first_other(&piece[next..], skipped) {
            let (byte, at) = (piece[next + skip], begin + next + skip);
            let mut places = (at * 8).max(range.0)..=(at * 8 + 7).min(range.1);
            found = places.find(|at| byte >> (7 - at % 8) & 1 == bit);
            if found.is_some() {
                return false;
            }
            next += skip + 1;
        }
        true
    })?;
    let is_open = args.len() < 5;
    match found {
        Some(at) => reply.count(at),
        // Behind the string there are zeros, unless the client has named the end.
        None if bit == 0 && is_open => reply.count(value.len() * 8),
        None => reply.integer(-1),
    }
    Ok(())
}

/// The values of keys named an odd number of times: values of other keys cancel out. `values` are
/// the values of the distinct keys.
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
    let mut stored = Vec::new();
    for key in distinct(&args[3..]) {
        stored.push(match space.read(key)?.string()? {
            Some(text) => text.whole()?,
            None => Cow::default(),
        });
    }
    let mut values: Vec<&[u8]> = stored.iter().map(|value| &value[..]).collect();
    let length = values.iter().map(|value| value.len()).max().unwrap_or(0);
    if how == "XOR" {
        values = odd_ones(&args[3..], values);
    }
    // Behind the end of a value there are zeros: however many values there are, each is looked at
    // no further.
    let mut result: Vec<u8> = vec![0; length];
    if how == "AND" {
        let shortest = values.iter().map(|value| value.len()).min().unwrap_or(0);
        result[..shortest].fill(0xff);
    }
    for value in &values {
        let bytes = result.iter_mut().zip(value.iter());
        match how {
            "AND" => bytes.for_each(|(combined, byte)| *combined &= byte),
            "OR" => bytes.for_each(|(combined, byte)| *combined |= byte),
            _ => bytes.for_each(|(combined, byte)| *combined ^= byte),
        }
    }
    if how == "NOT" {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    let target = space.find_head(args[2])?;
    match length {
        0 => drop(target.remove()?),
        _ => target.put_string(&result)?,
    }
    reply.count(length);
    Ok(())
}
