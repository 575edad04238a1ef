//! Random programs.

use super::{Program, Step};
use crate::schema::{self, At, Tables};
use crate::shape::Shape;
use fastrand::Rng;

fn random_at(rng: &mut Rng, tables: Tables) -> At {
    // The lower keys are hotter.
    let key = rng.i64(0..tables.keys).min(rng.i64(0..tables.keys));
    (rng.u32(0..tables.count), key)
}

fn random_step(rng: &mut Rng, tables: Tables, nested: bool) -> Step {
    let at = random_at(rng, tables);
    match rng.u32(0..if nested { 18 } else { 20 }) {
        0..=3 => Step::Get(at),
        4..=6 => Step::Put(at),
        7 => Step::Blind(at),
        8 => Step::Store(at),
        9..=11 => Step::Change(at),
        12 | 13 => Step::Insert(at),
        14 | 15 => Step::Delete(at),
        16 | 17 if tables.indexed && rng.bool() => {
            Step::Group { table: at.0, group: rng.i64(0..schema::GROUPS) }
        }
        16 | 17 if at.0 == schema::ORDERED => {
            let limit = if rng.bool() { usize::MAX } else { rng.usize(1..4) };
            let to = rng.i64(at.1..tables.keys);
            Step::Scan { table: at.0, from: at.1, to, descending: rng.bool(), limit }
        }
        16 | 17 => Step::Get(at),
        _ => {
            let steps = (0..rng.usize(1..4)).map(|_| random_step(rng, tables, true)).collect();
            Step::Attempt { steps, keep: rng.u32(0..3) == 0 }
        }
    }
}

/// A random program. Some only read, some abort.
pub fn random(rng: &mut Rng, tables: Tables, shape: Shape, id: u64) -> Program {
    let plain = Program { id, steps: Vec::new(), mark: false, give_up: false, strict: false };
    let table = rng.u32(0..tables.count);
    if shape.bulk && rng.u32(0..3) == 0 {
        let from = rng.i64(0..tables.keys);
        let count = rng.i64(1..=tables.keys - from);
        let steps = match id % 3 {
            0 => vec![Step::Clear { table, from, count }],
            _ => vec![Step::Fill { table, from, count }],
        };
        return Program { steps, mark: rng.bool(), give_up: rng.u32(0..8) == 0, ..plain };
    }
    if tables.pairs && rng.bool() {
        let steps = vec![Step::Pair { table, write: rng.bool() }];
        return Program { steps, mark: rng.bool(), ..plain };
    }
    if rng.u32(0..8) == 0 {
        let steps = (0..rng.usize(1..6)).map(|_| Step::Store(random_at(rng, tables))).collect();
        return Program { steps, mark: rng.u32(0..4) == 0, ..plain };
    }
    let reads_only = rng.u32(0..6) == 0;
    let mut steps = Vec::new();
    for _ in 0..rng.usize(1..6) {
        let step = random_step(rng, tables, false);
        steps.push(match step {
            Step::Get(_) | Step::Scan { .. } | Step::Group { .. } => step,
            _ if reads_only => Step::Get(random_at(rng, tables)),
            _ => step,
        });
    }
    Program {
        id,
        steps,
        mark: !reads_only && rng.u32(0..4) != 0,
        give_up: rng.u32(0..10) == 0,
        strict: rng.u32(0..3) == 0,
    }
}

/// A program that reads everything. Every second program then writes a row of its own, so the
/// program cannot run as of a snapshot.
pub fn reads_everything(tables: Tables, id: u64) -> Program {
    let steps = (0..tables.count).map(|table| Step::All { table }).collect();
    Program { id, steps, mark: id.is_multiple_of(2), give_up: false, strict: false }
}
