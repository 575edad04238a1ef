//! Hashes with fields that expire, or are to expire: fields with values and times.
//! [`crate::data::field_times`] describes the storage.

use super::elements::{CollectionType, Elements, MOST_PACKED_BY_REDIS, are_small, new_secret};
use super::hash::HashType;
use super::members::FEW;
use crate::data::collections::{Collection, MOST_PACKED_BYTES};
use crate::data::field_times::{TimedRuns, due_field, due_member, has_come, pack, unpack};
use crate::data::head::{Form, Head, Kind};
use crate::data::keyspace::{Entry, Stop};
use crate::data::member_hash::PLACES;
use crate::data::member_run::{MemberEdit, edit_members};
use crate::data::member_values::{EditedMember, Member, MemberValues};
use crate::data::packed::TimedValue;
use hyades::Abort;
use std::borrow::Cow;
use std::collections::HashMap;

/// A field, its value, and its time of expiry, in milliseconds since 1970.
pub type Field<'t> = (&'t [u8], &'t [u8], Option<i64>);

/// The change of a field.
pub enum FieldEdit<'a> {
    /// No change.
    Keep,
    /// The field is present, with this value and this time; absent if the time has come.
    Set(Cow<'a, [u8]>, Option<i64>),
    /// The field is absent.
    Remove,
}

/// Returns the change of a field. The arguments are the number of the name, and the value and the
/// time if the field is present.
pub type FieldChange<'c, 'a> =
    &'c mut dyn FnMut(usize, Option<TimedValue<'_>>) -> Result<FieldEdit<'a>, Stop>;

enum TimedForm<'t> {
    /// Values with their times, including times that have come.
    Packed(Vec<Member<'t>>),
    Blocks(Box<TimedRuns<'t>>),
}

/// The changes of an edit to the run of due fields, and to timers.
#[derive(Default)]
struct DueEdits {
    /// Members of the run in the order of their changes, and whether each is added.
    members: Vec<(Vec<u8>, bool)>,
    /// The first time set.
    first: Option<i64>,
    /// Expired fields that were overwritten.
    lapsed: u64,
    is_written: bool,
    is_removed: bool,
}

impl DueEdits {
    fn note(&mut self, name: &[u8], before: Option<i64>, now: Option<i64>) {
        if before == now {
            return;
        }
        self.members.extend(before.map(|at| (due_member(at, name), false)));
        self.members.extend(now.map(|at| (due_member(at, name), true)));
        self.first = self.first.into_iter().chain(now).min();
    }
}

/// A hash with fields that may have times.
pub struct TimedHash<'t, 's> {
    entry: Entry<'t, 's>,
    form: TimedForm<'t>,
}

impl<'t, 's> TimedHash<'t, 's> {
    /// The hash of a key, with times or without; an empty hash if the key does not exist.
    ///
    /// # Errors
    /// The key holds another type.
    pub fn of(entry: Entry<'t, 's>) -> Result<TimedHash<'t, 's>, Stop> {
        let body = entry.body_of(Kind::Hash)?.unwrap_or_default();
        let form = match entry.lies_in_blocks() {
            true => TimedForm::Blocks(Box::new(TimedRuns::from_body(body, entry.blocks())?)),
            false => TimedForm::Packed(MemberValues::Timed.members(body)?),
        };
        Ok(TimedHash { entry, form })
    }

    /// The bound of expiry: fields with a time at or below it have expired.
    fn expired_until_ms(&self) -> i64 {
        self.entry.space().context().expired_until_ms()
    }

    /// The fields of the members that have not expired.
    fn live<'a>(&self, all: impl IntoIterator<Item = Member<'a>>) -> Result<Vec<Field<'a>>, Abort> {
        let (mut live, now) = (Vec::new(), self.expired_until_ms());
        for (name, packed) in all {
            let (value, expires) = unpack(packed)?;
            if !has_come(expires, now) {
                live.push((name, value, expires));
            }
        }
        Ok(live)
    }

    /// The number of fields.
    pub fn count(&self) -> Result<usize, Stop> {
        match &self.form {
            TimedForm::Packed(all) => Ok(self.live(all.iter().copied())?.len()),
            TimedForm::Blocks(runs) => {
                let expired = runs.expired(self.expired_until_ms())?;
                Ok(runs.fields.count()?.checked_sub(expired).ok_or(Abort::Conflict)?)
            }
        }
    }

    /// The value and the time of a field, if present.
    pub fn get(&self, name: &[u8]) -> Result<Option<TimedValue<'t>>, Stop> {
        let packed = match &self.form {
            TimedForm::Packed(all) => {
                all.iter().find(|member| member.0 == name).map(|member| member.1)
            }
            TimedForm::Blocks(runs) => runs.fields.get(name)?,
        };
        let found = packed.map(unpack).transpose()?;
        Ok(found.filter(|(_, expires)| !has_come(*expires, self.expired_until_ms())))
    }

    /// The values and times of fields.
    pub fn get_all(&self, names: &[&[u8]]) -> Result<Vec<Option<TimedValue<'t>>>, Stop> {
        let runs = match &self.form {
            TimedForm::Blocks(runs) => runs,
            TimedForm::Packed(all) if names.len() > FEW => {
                let live = self.live(all.iter().copied())?.into_iter();
                let live: HashMap<&[u8], TimedValue<'t>> =
                    live.map(|(name, value, expires)| (name, (value, expires))).collect();
                return Ok(names.iter().map(|name| live.get(name).copied()).collect());
            }
            TimedForm::Packed(_) => return names.iter().map(|name| self.get(name)).collect(),
        };
        let unpacked = runs.fields.get_all(names)?.into_iter().map(|packed| {
            let found = packed.map(unpack).transpose()?;
            Ok(found.filter(|(_, expires)| !has_come(*expires, self.expired_until_ms())))
        });
        unpacked.collect()
    }

    /// All fields.
    pub fn all(&self) -> Result<Vec<Field<'t>>, Stop> {
        Ok(match &self.form {
            TimedForm::Packed(all) => self.live(all.iter().copied())?,
            TimedForm::Blocks(runs) => self.live(runs.fields.all()?)?,
        })
    }

    /// The fields with these ranks in an order of their own, each below `total`, the number of
    /// fields.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Vec<Field<'t>>, Stop> {
        if let TimedForm::Blocks(runs) = &self.form
            && runs.expired(self.expired_until_ms())? == 0
        {
            return Ok(self.live(runs.fields.of_ranks(ranks, total)?)?);
        }
        let all = self.all()?;
        let of_rank = |rank: &usize| all.get(*rank).copied().ok_or(Abort::Conflict.into());
        ranks.iter().map(of_rank).collect()
    }

    /// The fields returned by a call of HSCAN, and the next cursor, as
    /// [`members::scan`](super::members::scan).
    pub fn scan(&self, cursor: u64, count: usize) -> Result<(Vec<Field<'t>>, u64), Stop> {
        match &self.form {
            TimedForm::Packed(_) => Ok((self.all()?, 0)),
            TimedForm::Blocks(_) if cursor >= PLACES => Ok((Vec::new(), 0)),
            TimedForm::Blocks(runs) => {
                let (found, next) = runs.fields.scan_from(cursor, count)?;
                Ok((self.live(found)?, next.unwrap_or(0)))
            }
        }
    }

    /// Changes fields and stores the result.
    pub fn edit<'a>(&self, names: &[&'a [u8]], change: FieldChange<'_, 'a>) -> Result<(), Stop>
    where
        't: 'a,
    {
        let (now, mut edits) = (self.expired_until_ms(), DueEdits::default());
        let mut edit = |number: usize, old: Option<&[u8]>| {
            let stored = old.map(unpack).transpose()?;
            let before = stored.and_then(|(_, expires)| expires);
            let has_lapsed = has_come(before, now);
            let result = match change(number, stored.filter(|_| !has_lapsed))? {
                FieldEdit::Keep => MemberEdit::Keep,
                FieldEdit::Set(value, expires) if !has_come(expires, now) => {
                    edits.note(names[number], before, expires);
                    MemberEdit::Set(Cow::Owned(pack((&value, expires))))
                }
                FieldEdit::Set(..) | FieldEdit::Remove => {
                    edits.note(names[number], before, None);
                    MemberEdit::Remove
                }
            };
            let is_written = !matches!(result, MemberEdit::Keep);
            edits.is_written |= is_written;
            edits.is_removed |= matches!(result, MemberEdit::Remove);
            edits.lapsed += u64::from(is_written && has_lapsed);
            Ok(result)
        };
        match &self.form {
            TimedForm::Packed(all) => {
                let numbers: Vec<usize> = (0..names.len()).collect();
                match edit_members(all, names, &numbers, &mut edit)? {
                    Some(all) => self.store(all, edits),
                    None => Ok(()),
                }
            }
            TimedForm::Blocks(runs) => {
                runs.fields.edit(names, &mut edit)?;
                self.store_blocks(runs, edits)
            }
        }
    }

    /// Stores the fields of a packed hash, except fields whose times have come.
    fn store(&self, mut all: Vec<EditedMember<'_>>, mut edits: DueEdits) -> Result<(), Stop> {
        let (now, before) = (self.expired_until_ms(), all.len());
        let mut times = Vec::with_capacity(all.len());
        for (_, value) in &all {
            times.push(unpack(value)?.1);
        }
        let mut each = times.iter();
        all.retain(|_| each.next().is_none_or(|at| !has_come(*at, now)));
        edits.lapsed += (before - all.len()) as u64;
        self.entry.note_lapsed(edits.lapsed);
        if all.is_empty() {
            self.entry.remove()?;
            return Ok(());
        }
        if times.iter().flatten().all(|at| *at <= now) {
            let mut strings = Vec::with_capacity(2 * all.len());
            for (name, value) in &all {
                strings.extend([*name, unpack(value)?.0]);
            }
            return Elements::<HashType>::of(self.entry)?.store(strings);
        }
        let (form, body) = encoded(&self.entry, &all)?;
        match self.entry.head() {
            None => self.entry.put(Head::new(Kind::Hash, form), &body),
            Some(head) => {
                self.entry.change(head.with_form(form), Some(&body))?;
                self.note_first(edits.first)
            }
        }
    }

    fn store_blocks(&self, runs: &TimedRuns<'t>, edits: DueEdits) -> Result<(), Stop> {
        if !edits.is_written {
            return Ok(());
        }
        // Before the change of the run, since the first time is compared with the former first
        // time.
        self.note_first(edits.first)?;
        let names: Vec<&[u8]> = edits.members.iter().map(|(member, _)| &member[..]).collect();
        runs.due.edit(&names, &mut |number, _| {
            Ok(match edits.members[number].1 {
                true => MemberEdit::Set(Cow::Borrowed(b"")),
                false => MemberEdit::Remove,
            })
        })?;
        self.entry.note_lapsed(edits.lapsed);
        let Some(head) = self.entry.head() else { return Err(Abort::Conflict.into()) };
        if edits.is_removed && !runs.fields.has_any()? {
            self.entry.remove()?;
        } else if edits.first.is_some() && head.form() != Form::TimedBlocks {
            self.entry.change(head.with_form(Form::TimedBlocks), None)?;
        } else {
            self.entry.touch()?;
        }
        Ok(())
    }

    /// Sets a timer for this time, if it is before all times of fields so far.
    fn note_first(&self, first: Option<i64>) -> Result<(), Stop> {
        let Some(first) = first else { return Ok(()) };
        let before = match &self.form {
            TimedForm::Blocks(runs) => runs.first()?,
            TimedForm::Packed(all) => {
                let times = all.iter().map(|(_, value)| Ok(unpack(value)?.1));
                times.collect::<Result<Vec<_>, Abort>>()?.into_iter().flatten().min()
            }
        };
        if before.is_none_or(|before| first < before) {
            self.entry.note_due(first);
        }
        Ok(())
    }

    /// Removes fields whose times have come: all of a packed hash, `most` at most of a hash in
    /// blocks. Returns the number of removed fields, and whether more are due.
    pub fn remove_lapsed(&self, most: usize) -> Result<(usize, bool), Stop> {
        let now = self.expired_until_ms();
        let runs = match &self.form {
            TimedForm::Blocks(runs) => runs,
            TimedForm::Packed(all) => {
                let lapsed = all.len() - self.live(all.iter().copied())?.len();
                if lapsed > 0 {
                    let all = all.iter().map(|(name, value)| (*name, Cow::Borrowed(*value)));
                    self.store(all.collect(), DueEdits::default())?;
                }
                return Ok((lapsed, false));
            }
        };
        let (mut members, mut has_more) = (Vec::new(), false);
        let end = due_member(now + 1, b"");
        runs.due.ascend_from(b"", |(member, _)| {
            let is_due = member < &end[..];
            has_more = is_due && members.len() == most;
            if is_due && !has_more {
                members.push(member);
            }
            is_due && !has_more
        })?;
        if members.is_empty() {
            return Ok((0, false));
        }
        let fields = members.iter().map(|member| Ok(due_field(member)?.1));
        let fields = fields.collect::<Result<Vec<_>, Abort>>()?;
        runs.fields.edit(&fields, &mut |_, _| Ok(MemberEdit::Remove))?;
        runs.due.edit(&members, &mut |_, _| Ok(MemberEdit::Remove))?;
        self.entry.note_lapsed(members.len() as u64);
        self.entry.touch()?;
        Ok((members.len(), has_more))
    }

    /// Bytes of the blocks, including their overhead; 0 without blocks.
    pub fn bytes_in_blocks(&self) -> Result<usize, Stop> {
        match &self.form {
            TimedForm::Packed(_) => Ok(0),
            TimedForm::Blocks(runs) => Ok(runs.fields.bytes()? + runs.due.bytes()?),
        }
    }

    /// The reply of OBJECT ENCODING.
    pub fn encoding(&self) -> Result<&'static str, Stop> {
        // A hash in blocks may be small enough for Redis to pack it.
        if self.bytes_in_blocks()? > 2 * MOST_PACKED_BY_REDIS {
            return Ok(HashType::LARGE_ENCODING);
        }
        let all = self.all()?;
        let strings: Vec<&[u8]> = all.iter().flat_map(|field| [field.0, field.1]).collect();
        Ok(match are_small(&strings, 2 * 512, 64) {
            true if all.iter().all(|field| field.2.is_none()) => "listpack",
            true => "listpackex",
            false => HashType::LARGE_ENCODING,
        })
    }

    /// Stores a copy under this head, in the place of any earlier value.
    pub fn copy_to(&self, target: &Entry<'_, '_>, head: Head) -> Result<(), Stop> {
        put(target, &self.all()?, head.expires())
    }
}

/// Stores a hash in the place of any earlier value. The hash has a field, and does not expire at
/// once.
pub fn put(entry: &Entry<'_, '_>, all: &[Field<'_>], expires: Option<i64>) -> Result<(), Stop> {
    if all.iter().all(|field| field.2.is_none()) {
        let strings: Vec<&[u8]> = all.iter().flat_map(|field| [field.0, field.1]).collect();
        return super::elements::put::<HashType>(entry, &strings, expires);
    }
    let all: Vec<EditedMember<'_>> =
        all.iter().map(|(name, value, at)| (*name, Cow::Owned(pack((value, *at))))).collect();
    let (form, body) = encoded(entry, &all)?;
    entry.put(Head::new(Kind::Hash, form).with_expiry(expires), &body)
}

/// Form and body of a hash with times.
fn encoded(entry: &Entry<'_, '_>, all: &[EditedMember<'_>]) -> Result<(Form, Vec<u8>), Stop> {
    let values = MemberValues::Timed;
    let bytes: usize = all.iter().map(|member| values.size_of(member)).sum();
    let most = HashType::most_packed(entry.space().context().packed);
    if bytes <= MOST_PACKED_BYTES && all.len() <= most {
        return Ok((Form::Timed, values.pack(all)));
    }
    let number = entry.space().number_collection(Kind::Hash)?;
    let collection = Collection { number, secret: new_secret() };
    let runs = TimedRuns::of(collection, entry.blocks());
    runs.fields.fill(all.iter().map(|(name, value)| (*name, &value[..])))?;
    let mut due = Vec::new();
    for (name, value) in all {
        due.extend(unpack(value)?.1.map(|at| due_member(at, name)));
    }
    runs.due.fill(due.iter().map(|member| (&member[..], &b""[..])))?;
    Ok((Form::TimedBlocks, collection.body()))
}
