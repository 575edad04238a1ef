//! HyperLogLogs: strings that estimate the number of different elements added.

use super::{Done, lower};
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::values::hyperloglog::{Corrupt, Registers, Sketch, self_test};
use crate::resp::reply::Reply;

impl From<Corrupt> for Stop {
    fn from(_: Corrupt) -> Stop {
        "INVALIDOBJ Corrupted HLL object detected".into()
    }
}

/// Looking through this many bytes of runs counts as one step.
const BYTES_PER_STEP: usize = 64;

/// More steps than a loop should wait for.
const STEPS_OF_SELF_TEST: usize = 100_000;

/// The sketch of a key, or nothing.
fn sketch(entry: &Entry<'_, '_>) -> Result<Option<Sketch>, Stop> {
    let Some(text) = entry.string()? else { return Ok(None) };
    let sketch = Sketch::of(text.whole()?.into_owned());
    Ok(Some(sketch.ok_or("WRONGTYPE Key is not a valid HyperLogLog string value.")?))
}

/// Counts a look for a register.
fn charge(space: &Keyspace<'_>, sketch: &Sketch) -> Result<(), Stop> {
    let bytes = if sketch.is_sparse() { sketch.bytes().len() } else { 0 };
    Ok(space.charge(1 + bytes / BYTES_PER_STEP)?)
}

pub fn pfadd(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (entry, most) = (space.find(args[1])?, space.context().packed.sparse_sketch);
    let stored = sketch(&entry)?;
    let mut changes = stored.is_none();
    let mut sketch = stored.unwrap_or_else(Sketch::empty);
    for element in &args[2..] {
        charge(space, &sketch)?;
        changes |= sketch.add(element, most)?;
    }
    if changes {
        sketch.drop_estimate();
        entry.store_changed(sketch.bytes())?;
    }
    reply.integer(changes.into());
    Ok(())
}

/// The estimate of a single key is kept with the sketch, so that PFCOUNT writes.
fn count_one(space: &Keyspace<'_>, key: &[u8]) -> Result<u64, Stop> {
    let entry = space.read(key)?;
    let Some(mut sketch) = sketch(&entry)? else { return Ok(0) };
    if let Some(count) = sketch.last_estimate() {
        return Ok(count);
    }
    let count = sketch.count()?;
    if !space.context().only_reads {
        sketch.keep_estimate(count);
        entry.store_changed(sketch.bytes())?;
    }
    Ok(count)
}

pub fn pfcount(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let count = match &args[1..] {
        [key] => count_one(space, key)?,
        keys => {
            let mut all = Registers::default();
            for key in keys {
                if let Some(sketch) = sketch(&space.read(key)?)? {
                    sketch.raise(&mut all)?;
                }
            }
            all.count()
        }
    };
    reply.integer(count as i64);
    Ok(())
}

pub fn pfmerge(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let (mut all, mut is_dense) = (Registers::default(), false);
    for key in &args[1..] {
        if let Some(sketch) = sketch(&space.read(key)?)? {
            is_dense |= !sketch.is_sparse();
            sketch.raise(&mut all)?;
        }
    }
    let (entry, most) = (space.find(args[1])?, space.context().packed.sparse_sketch);
    let mut sketch = sketch(&entry)?.unwrap_or_else(Sketch::empty);
    if is_dense {
        sketch.make_dense()?;
    }
    for (at, rank) in all.0.iter().enumerate().filter(|(_, rank)| **rank > 0) {
        charge(space, &sketch)?;
        sketch.raise_one(at, *rank, most)?;
    }
    sketch.drop_estimate();
    entry.store_changed(sketch.bytes())?;
    reply.ok();
    Ok(())
}

pub fn pfdebug(space: &Keyspace<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    let entry = space.find(args[2])?;
    let mut sketch = sketch(&entry)?.ok_or("ERR The specified key does not exist")?;
    let was_sparse = sketch.is_sparse();
    match lower(args[1]).as_str() {
        "getreg" => {
            let registers = sketch.registers()?;
            sketch.make_dense()?;
            reply.array(registers.0.len());
            registers.0.iter().for_each(|rank| reply.integer(i64::from(*rank)));
        }
        "todense" => {
            sketch.make_dense()?;
            reply.integer(was_sparse.into());
        }
        "decode" if !was_sparse => return Err("ERR HLL encoding is not sparse".into()),
        "decode" => reply.bulk(sketch.shown_runs().as_bytes()),
        "encoding" => reply.simple(if was_sparse { "sparse" } else { "dense" }),
        _ => {
            let given = String::from_utf8_lossy(args[1]);
            return Err(format!("ERR Unknown PFDEBUG subcommand '{given}'").into());
        }
    }
    if was_sparse && !sketch.is_sparse() {
        entry.store_changed(sketch.bytes())?;
    }
    Ok(())
}

pub fn pfselftest(space: &Keyspace<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Done {
    space.charge(STEPS_OF_SELF_TEST)?;
    self_test().map_err(|text| Stop::from(format!("TESTFAILED {text}")))?;
    reply.ok();
    Ok(())
}
