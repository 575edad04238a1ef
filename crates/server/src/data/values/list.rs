//! Lists, packed or with their middle in blocks.

use super::elements::{CollectionType, Elements};
use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Stop};
use crate::data::long_list::{End, LongList};
use hyades::Abort;
use std::ops::Range;

/// The type of lists: an element is a string.
pub struct ListType;

impl CollectionType for ListType {
    const KIND: Kind = Kind::List;
    const STRINGS: usize = 1;
    const LARGE_ENCODING: &'static str = "quicklist";

    fn most_packed(limits: PackedLimits) -> usize {
        limits.list
    }

    fn write(
        blocks: BlockTable<'_>,
        number: u64,
        _: u64,
        strings: &[&[u8]],
    ) -> Result<Vec<u8>, Stop> {
        LongList::write(blocks, number, strings)
    }

    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        LongList::from_body(blocks, body)?.all()
    }

    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop> {
        Ok(LongList::from_body(blocks, body)?.bytes()?)
    }

    fn secret(_: &[u8]) -> Result<Option<u64>, Abort> {
        Ok(None)
    }

    /// The bytes of a list are estimated.
    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str> {
        let bytes = strings.iter().map(|string| string.len() + 3).sum::<usize>();
        (bytes <= 8 << 10).then_some("listpack")
    }
}

enum ListForm<'t, 'a> {
    Packed(Vec<&'a [u8]>),
    Long(Box<LongList<'t, 'a>>),
}

/// A change of a list, to be passed to [`StoredList::store`].
#[must_use = "a list that was changed is to be stored"]
pub struct ListChange(());

impl ListChange {
    /// Both changes of a list.
    pub fn and(self, _: ListChange) -> ListChange {
        self
    }
}

/// A list, read and perhaps changed and stored.
pub struct StoredList<'t, 's, 'a> {
    elements: Elements<'t, 's, ListType>,
    form: ListForm<'t, 'a>,
}

impl<'t: 'a, 's, 'a> StoredList<'t, 's, 'a> {
    /// The list of a key; an empty list if the key does not exist.
    pub fn of(entry: Entry<'t, 's>) -> Result<StoredList<'t, 's, 'a>, Stop> {
        let elements = Elements::of(entry)?;
        let form = match entry.lies_in_blocks() {
            true => ListForm::Long(Box::new(LongList::from_body(entry.blocks(), elements.body())?)),
            false => ListForm::Packed(elements.all()?),
        };
        Ok(StoredList { elements, form })
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.elements.entry().exists()
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        match &self.form {
            ListForm::Packed(all) => all.len(),
            ListForm::Long(list) => list.count(),
        }
    }

    /// Adds elements at an end, one after the other.
    pub fn push(&mut self, end: End, elements: &[&'a [u8]]) -> Result<ListChange, Stop> {
        match (&mut self.form, end) {
            (ListForm::Packed(all), End::Left) => {
                all.splice(0..0, elements.iter().rev().copied());
            }
            (ListForm::Packed(all), End::Right) => all.extend(elements),
            (ListForm::Long(list), end) => list.push(end, elements)?,
        }
        Ok(ListChange(()))
    }

    /// Takes elements off an end, the outermost first.
    pub fn pop(&mut self, end: End, count: usize) -> Result<(Vec<&'a [u8]>, ListChange), Stop> {
        let popped = match (&mut self.form, end) {
            (ListForm::Packed(all), End::Left) => all.drain(..count.min(all.len())).collect(),
            (ListForm::Packed(all), End::Right) => {
                all.drain(all.len() - count.min(all.len())..).rev().collect()
            }
            (ListForm::Long(list), end) => list.pop(end, count)?,
        };
        Ok((popped, ListChange(())))
    }

    /// Removes all elements except those at these existing places.
    pub fn keep(&mut self, kept: Range<usize>) -> Result<ListChange, Stop> {
        match &mut self.form {
            ListForm::Packed(all) => {
                all.truncate(kept.end);
                all.drain(..kept.start.min(kept.end));
            }
            ListForm::Long(list) => {
                list.pop(End::Right, list.count() - kept.end)?;
                list.pop(End::Left, kept.start)?;
            }
        }
        Ok(ListChange(()))
    }

    /// The elements from a place on, `count` at most.
    pub fn range(&self, from: usize, count: usize) -> Result<Vec<&'a [u8]>, Stop> {
        match &self.form {
            ListForm::Packed(all) => Ok(all.iter().skip(from).take(count).copied().collect()),
            ListForm::Long(list) => list.range(from, count),
        }
    }

    /// Replaces the element at an existing place.
    pub fn set(&mut self, place: usize, element: &'a [u8]) -> Result<ListChange, Stop> {
        match &mut self.form {
            ListForm::Packed(all) => all[place] = element,
            ListForm::Long(list) => list.set(place, element)?,
        }
        Ok(ListChange(()))
    }

    /// Inserts an element at an existing place, or behind the last element.
    pub fn insert(&mut self, place: usize, element: &'a [u8]) -> Result<ListChange, Stop> {
        match &mut self.form {
            ListForm::Packed(all) => all.insert(place, element),
            ListForm::Long(list) => list.insert(place, element)?,
        }
        Ok(ListChange(()))
    }

    /// Removes the elements named by `is_removed`, from an end on. Returns the number of removed
    /// elements.
    pub fn remove(
        &mut self,
        from: End,
        mut is_removed: impl FnMut(&[u8]) -> bool,
    ) -> Result<(usize, ListChange), Stop> {
        let removed = match &mut self.form {
            ListForm::Packed(all) => {
                let before = all.len();
                if from == End::Right {
                    all.reverse();
                }
                all.retain(|element| !is_removed(element));
                if from == End::Right {
                    all.reverse();
                }
                before - all.len()
            }
            ListForm::Long(list) => list.remove(from, is_removed)?,
        };
        Ok((removed, ListChange(())))
    }

    /// Stores the list after a change. An empty list does not exist.
    pub fn store(&self, _: ListChange) -> Result<(), Stop> {
        let entry = self.elements.entry();
        match (&self.form, entry.head()) {
            (ListForm::Packed(all), _) => self.elements.store(all.iter().copied()),
            (ListForm::Long(list), Some(head)) if list.count() > 0 => {
                entry.change(head, Some(&list.body()))
            }
            (ListForm::Long(_), _) => Ok(entry.remove().map(drop)?),
        }
    }
}
