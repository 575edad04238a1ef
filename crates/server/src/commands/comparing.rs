//! Comparisons of strings before a write or a removal, by the strings or by their digests.

use super::{Done, SYNTAX, integer, is, wrong_arity};
use crate::base::xxh3::xxh3;
use crate::data::chunks::StoredString;
use crate::data::keyspace::{Keyspace, Stop};
use crate::resp::reply::Reply;

/// A comparison with the string of a key.
#[derive(Clone, Copy)]
pub enum Comparison<'a> {
    /// The string is the given one.
    Equal(&'a [u8]),
    /// There is another string, or none.
    Different(&'a [u8]),
    /// The digest is the given number.
    SameDigest(u64),
    /// There is another digest, or none.
    OtherDigest(u64),
}

impl<'a> Comparison<'a> {
    /// Whether an option is the name of a comparison.
    pub fn is_named(option: &[u8]) -> bool {
        ["IFEQ", "IFNE", "IFDEQ", "IFDNE"].iter().any(|name| is(option, name))
    }

    /// The comparison of a name with an argument.
    pub fn new(option: &[u8], with: &'a [u8]) -> Result<Comparison<'a>, Stop> {
        Ok(match option {
            _ if is(option, "IFEQ") => Comparison::Equal(with),
            _ if is(option, "IFNE") => Comparison::Different(with),
            _ if is(option, "IFDEQ") => Comparison::SameDigest(digest_of(with)?),
            _ if is(option, "IFDNE") => Comparison::OtherDigest(digest_of(with)?),
            _ => return Err(SYNTAX.into()),
        })
    }

    /// Whether the comparison holds.
    pub fn holds(self, text: Option<StoredString<'_>>) -> Result<bool, Stop> {
        Ok(match self {
            Comparison::Equal(value) => is_equal(text, value)?,
            Comparison::Different(value) => !is_equal(text, value)?,
            Comparison::SameDigest(with) => digest(text)?.is_some_and(|digest| digest == with),
            Comparison::OtherDigest(with) => digest(text)?.is_none_or(|digest| digest != with),
        })
    }
}

/// Whether there is a string, equal to `value`.
fn is_equal(text: Option<StoredString<'_>>, value: &[u8]) -> Result<bool, Stop> {
    let Some(text) = text.filter(|text| text.len() == value.len()) else { return Ok(false) };
    let mut is_equal = true;
    text.visit(0..value.len(), |begin, piece| {
        is_equal = value[begin..].starts_with(piece);
        is_equal
    })?;
    Ok(is_equal)
}

fn digest(text: Option<StoredString<'_>>) -> Result<Option<u64>, Stop> {
    text.map(|text| Ok(xxh3(&text.whole()?))).transpose()
}

/// A digest as 16 hexadecimal digits.
fn digest_of(text: &[u8]) -> Result<u64, Stop> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.len() == 16);
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let digest = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    digest.ok_or_else(|| "ERR digest must be exactly 16 hexadecimal characters".into())
}

pub fn delifeq(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[1])?;
    let is_equal = is_equal(entry.string()?, args[2])?;
    if is_equal {
        entry.remove()?;
    }
    reply.integer(is_equal.into());
    Ok(())
}

pub fn delex(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let is_removed = match args[2..] {
        [] => space.find_head(args[1])?.remove()?,
        [option, with] => {
            let comparison = Comparison::new(option, with)?;
            let entry = space.find(args[1])?;
            let holds = entry.exists() && comparison.holds(entry.string()?)?;
            holds && entry.remove()?
        }
        _ => return Err(wrong_arity("delex")),
    };
    reply.integer(is_removed.into());
    Ok(())
}

pub fn digest_command(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    match digest(space.read(args[1])?.string()?)? {
        Some(digest) => reply.bulk(format!("{digest:016x}").as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// The number of keys of MSETEX.
pub fn counted_pairs<'a, 'b>(args: &'a [&'b [u8]]) -> Result<&'a [&'b [u8]], Stop> {
    let count = integer(args[1]).ok().and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0).ok_or("ERR invalid numkeys value")?;
    let pairs = count.checked_mul(2).and_then(|length| args[2..].get(..length));
    pairs.ok_or_else(|| wrong_arity("msetex"))
}
