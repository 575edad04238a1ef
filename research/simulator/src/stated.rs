//! The partitions of a program, where tables are partitioned by their keys.

use crate::program::{Program, Step};
use crate::schema::{At, Tables};
use hyades::Partitions;

/// Partitions of a program: the partitions of the rows named, or all if the program may meet other
/// rows. Some programs leave a partition out, or name all without need.
pub fn stated(tables: Tables, program: &Program) -> Partitions {
    let mut rows = Vec::new();
    if program.id.is_multiple_of(5) || !program.steps.iter().all(|step| named(step, &mut rows)) {
        return Partitions::ALL;
    }
    if program.mark {
        rows.push(tables.mark(program.id));
    }
    if program.id % 13 == 1 {
        rows.pop();
    }
    let with = |held: Partitions, at: &At| tables.with_key(*at, |key| held.with(key));
    rows.iter().fold(Partitions::default(), with)
}

/// Adds the rows of a step; false if the step may access other rows.
fn named(step: &Step, rows: &mut Vec<At>) -> bool {
    match step {
        Step::Get(at)
        | Step::Put(at)
        | Step::Blind(at)
        | Step::Store(at)
        | Step::Change(at)
        | Step::Insert(at)
        | Step::Delete(at) => rows.push(*at),
        Step::Attempt { steps, .. } => return steps.iter().all(|step| named(step, rows)),
        Step::Scan { .. }
        | Step::Group { .. }
        | Step::Fill { .. }
        | Step::Clear { .. }
        | Step::All { .. }
        | Step::Pair { .. } => return false,
    }
    true
}
