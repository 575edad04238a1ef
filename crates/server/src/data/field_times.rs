//! The times at which fields of a hash expire, and what follows from them for the key.
//!
//! A hash with such a field says so in its head ([`Form::is_timed`]): no other hash pays more than
//! the look at that. The time of a field stands in front of its value
//! ([`packed::push_timed`]), in the row of the key or in a block. A hash in blocks has a second run
//! beside that of its fields: *due fields*, each the time in six bytes that sort, and the name. So
//! the first time, the last one, and the number of fields that have expired are found without
//! reading the fields.
//!
//! Invariants: the second run holds the time and the name of each field that has a time, and
//! nothing else. A field whose time has come is absent for all that reads, and a hash all of whose
//! fields are absent is as well. For each hash with times there is a timer of the first of them or
//! of an earlier time, see [`crate::upkeep::expiry`].

use super::Tables;
use super::blocks::BlockTable;
use super::collections::{Collection, first_run};
use super::head::{Form, Head};
use super::member_run::MemberRun;
use super::member_values::MemberValues;
use super::packed::{self, TIME_BYTES, TimedValue};
use hyades::{Abort, Column, Transaction};

/// The column of the body, in the table of keys and in that of blocks.
const BODY: Column<[u8]> = Column::at(3);

/// The column of the number of members, in the table of blocks.
const COUNT: Column<u32> = Column::at(2);

/// The latest time at which a field may expire, as in Redis: in the year 4199.
pub const LATEST_MS: i64 = ((1 << 48) - 2) >> 2;

/// Whether a time has come.
pub fn has_come(expires: Option<i64>, now_ms: i64) -> bool {
    expires.is_some_and(|at| at <= now_ms)
}

/// Reads a value with its time.
///
/// # Errors
/// A torn view.
pub fn unpack(mut value: &[u8]) -> Result<TimedValue<'_>, Abort> {
    packed::take_timed(&mut value).filter(|_| value.is_empty()).ok_or(Abort::Conflict)
}

/// A value with its time, as it is stored.
pub fn pack(value: TimedValue<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(packed::size(value.0.len()) + 1 + TIME_BYTES);
    packed::push_timed(&mut body, value);
    body
}

/// The times of the fields that are packed in a body.
fn packed_times(body: &[u8]) -> Result<Vec<Option<i64>>, Abort> {
    let all = MemberValues::Timed.members(body)?;
    all.into_iter().map(|(_, value)| Ok(unpack(value)?.1)).collect()
}

/// A field in the run of those that are due. Without a name it is before all fields of its time.
pub fn due_member(at_ms: i64, name: &[u8]) -> Vec<u8> {
    [&at_ms.to_be_bytes()[8 - TIME_BYTES..], name].concat()
}

/// The time and the name of a member of that run.
///
/// # Errors
/// A torn view.
pub fn due_field(member: &[u8]) -> Result<(i64, &[u8]), Abort> {
    let (time, name) = member.split_at_checked(TIME_BYTES).ok_or(Abort::Conflict)?;
    let mut word = [0; 8];
    word[8 - TIME_BYTES..].copy_from_slice(time);
    Ok((i64::from_be_bytes(word), name))
}

/// The runs of a hash in blocks.
#[derive(Clone, Copy)]
pub struct TimedRuns<'t> {
    /// Its fields.
    pub fields: MemberRun<'t>,
    /// Those that have times, by time.
    pub due: MemberRun<'t>,
}

impl<'t> TimedRuns<'t> {
    /// The runs that the body of a key's row names.
    ///
    /// # Errors
    /// A torn view.
    pub fn from_body(body: &[u8], table: BlockTable<'t>) -> Result<TimedRuns<'t>, Abort> {
        Ok(TimedRuns::of(Collection::from_body(body)?, table))
    }

    /// The runs of a collection.
    pub fn of(collection: Collection, table: BlockTable<'t>) -> TimedRuns<'t> {
        let fields = collection.members(table, MemberValues::Timed);
        TimedRuns { fields, due: collection.by_score(table) }
    }

    /// The first time behind another one.
    pub fn first_behind(&self, at_ms: i64) -> Result<Option<i64>, Abort> {
        let mut first = None;
        self.due.ascend_from(&due_member(at_ms + 1, b""), |(member, _)| {
            first = Some(member);
            false
        })?;
        first.map(|member| Ok(due_field(member)?.0)).transpose()
    }

    /// The first time of all.
    pub fn first(&self) -> Result<Option<i64>, Abort> {
        self.first_behind(-1)
    }

    /// The number of fields whose time has come.
    pub fn expired(&self, now_ms: i64) -> Result<usize, Abort> {
        // In most cases there is none, which takes no counting.
        match self.first()?.is_some_and(|first| first <= now_ms) {
            true => self.due.rank(&due_member(now_ms + 1, b"")),
            false => Ok(0),
        }
    }

    /// Whether the time of each field has come. Fields are counted only if the last time has come,
    /// the fields were not removed yet, and those of the first block have expired.
    fn is_over(&self, now_ms: i64) -> Result<bool, Abort> {
        let mut last = None;
        self.due.descend_from(None, |(member, _)| {
            last = Some(member);
            false
        })?;
        let Some(last) = last else { return Ok(false) };
        if due_field(last)?.0 > now_ms {
            return Ok(false);
        }
        for (_, value) in self.fields.scan_from(0, 1)?.0 {
            if !has_come(unpack(value)?.1, now_ms) {
                return Ok(false);
            }
        }
        Ok(self.fields.count()? == self.due.count()?)
    }
}

/// Whether the time of each field of a hash with times has come: it is absent.
pub fn is_over(head: Head, body: &[u8], table: BlockTable<'_>, now: i64) -> Result<bool, Abort> {
    match head.form() {
        Form::Timed => Ok(packed_times(body)?.into_iter().all(|at| has_come(at, now))),
        Form::TimedBlocks => TimedRuns::from_body(body, table)?.is_over(now),
        Form::Plain | Form::Raw | Form::Blocks | Form::Chunks => Ok(false),
    }
}

/// The number of fields that are stored of a hash with times, those included that have expired.
pub fn count(head: Head, body: &[u8], table: BlockTable<'_>) -> Result<usize, Abort> {
    match head.form() {
        Form::Timed => Ok(packed_times(body)?.len()),
        Form::TimedBlocks => TimedRuns::from_body(body, table)?.fields.count(),
        Form::Plain | Form::Raw | Form::Blocks | Form::Chunks => Ok(0),
    }
}

/// The first time of a field of a hash that is behind another one, if there is one.
pub fn first_behind(
    head: Head,
    body: &[u8],
    table: BlockTable<'_>,
    at_ms: i64,
) -> Result<Option<i64>, Abort> {
    match head.form() {
        Form::Timed => {
            let behind = packed_times(body)?.into_iter().flatten();
            Ok(behind.filter(|at| *at > at_ms).min())
        }
        Form::TimedBlocks => TimedRuns::from_body(body, table)?.first_behind(at_ms),
        Form::Plain | Form::Raw | Form::Blocks | Form::Chunks => Ok(None),
    }
}

/// When a key is next to be looked at: the time at which it expires, or the first one of a field.
///
/// # Errors
/// Those of reading.
pub fn next_of_row(
    tx: &Transaction<'_>,
    tables: Tables,
    (generation, key): (u64, &[u8]),
    head: Head,
) -> Result<Option<i64>, Abort> {
    if !head.form().is_timed() {
        return Ok(head.expires());
    }
    let body = body_of_row(tx, tables, (generation, key))?;
    let first = match head.form() {
        Form::TimedBlocks => {
            let run = [(number_of_run(body)? + 1).into()];
            let rows = tx.scan(tables.blocks).prefix(&run).limit(1).columns(BODY.only()).rows()?;
            let members =
                rows.first().map_or(Ok(Vec::new()), |row| packed::elements(row.get(BODY)));
            members?.first().map(|member| due_field(member)).transpose()?.map(|(at, _)| at)
        }
        _ => packed_times(body)?.into_iter().flatten().min(),
    };
    Ok(first.into_iter().chain(head.expires()).min())
}

/// Whether a key is absent by this time: it has expired, or each field of its hash has.
///
/// # Errors
/// Those of reading.
pub fn is_row_absent(
    tx: &Transaction<'_>,
    tables: Tables,
    place: (u64, &[u8]),
    (head, now_ms): (Head, i64),
) -> Result<bool, Abort> {
    if head.is_expired(now_ms) || !head.form().is_timed() {
        return Ok(head.is_expired(now_ms));
    }
    let body = body_of_row(tx, tables, place)?;
    if head.form() != Form::TimedBlocks {
        return Ok(packed_times(body)?.into_iter().all(|at| has_come(at, now_ms)));
    }
    let run = number_of_run(body)?;
    let (fields, due) = ([run.into()], [(run + 1).into()]);
    let last = tx.scan(tables.blocks).prefix(&due).descending().limit(1);
    let last = last.columns(BODY.only()).rows()?;
    let Some(last) = last.first() else { return Ok(false) };
    let members = packed::elements(last.get(BODY))?;
    if due_field(members.last().ok_or(Abort::Conflict)?)?.0 > now_ms {
        return Ok(false);
    }
    let count = |run: &[hyades::Value]| -> Result<u64, Abort> {
        let rows = tx.scan(tables.blocks).prefix(run).columns(COUNT.only()).rows()?;
        Ok(rows.iter().map(|row| u64::from(row.get(COUNT))).sum())
    };
    Ok(count(&fields)? == count(&due)?)
}

fn body_of_row<'t>(
    tx: &Transaction<'t>,
    tables: Tables,
    place: (u64, &[u8]),
) -> Result<&'t [u8], Abort> {
    let row = tx.get_columns(tables.keys, place, BODY.only())?;
    Ok(row.ok_or(Abort::Conflict)?.get(BODY))
}

fn number_of_run(body: &[u8]) -> Result<u64, Abort> {
    let number = body.first_chunk::<8>().ok_or(Abort::Conflict)?;
    Ok(first_run(u64::from_le_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn due_fields_are_in_the_order_of_their_times(
            a in 0i64..1 << 48, b in 0i64..1 << 48, x: Vec<u8>, y: Vec<u8>
        ) {
            let (first, second) = (due_member(a, &x), due_member(b, &y));
            prop_assert_eq!(due_field(&first).unwrap(), (a, &x[..]));
            prop_assert_eq!(first.cmp(&second), (a, &x).cmp(&(b, &y)));
        }

        #[test]
        fn a_value_keeps_its_time(value: Vec<u8>, at in prop::option::of(0i64..1 << 48)) {
            let packed = pack((&value, at));
            prop_assert_eq!(unpack(&packed).unwrap(), (&value[..], at));
        }
    }
}
