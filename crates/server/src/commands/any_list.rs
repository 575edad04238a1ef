//! A list, packed or with its middle in blocks.

use super::Done;
use super::collections::{elements, store};
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::long_list::{End, LongList};

enum ListForm<'t, 'a> {
    Packed(Vec<&'a [u8]>),
    Long(Box<LongList<'t, 'a>>),
}

/// A list that is read, and perhaps changed and stored.
pub struct AnyList<'t, 'a> {
    entry: Entry<'t>,
    form: ListForm<'t, 'a>,
}

impl<'t: 'a, 'a> AnyList<'t, 'a> {
    /// Of a key that holds a list, or none.
    pub fn of(entry: Entry<'t>) -> Result<AnyList<'t, 'a>, Stop> {
        let body = entry.body_of(Kind::List)?.unwrap_or_default();
        let form = match entry.lies_in_blocks() {
            true => ListForm::Long(Box::new(LongList::from_body(entry.blocks(), body)?)),
            false => ListForm::Packed(elements(&entry, Kind::List)?),
        };
        Ok(AnyList { entry, form })
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.entry.exists()
    }

    /// What was found under its key.
    pub fn entry(&self) -> &Entry<'t> {
        &self.entry
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        match &self.form {
            ListForm::Packed(all) => all.len(),
            ListForm::Long(list) => list.count(),
        }
    }

    /// Adds elements at an end, one after the other.
    pub fn push(&mut self, end: End, elements: &[&'a [u8]]) -> Done {
        match (&mut self.form, end) {
            (ListForm::Packed(all), End::Left) => {
                all.splice(0..0, elements.iter().rev().copied());
                Ok(())
            }
            (ListForm::Packed(all), End::Right) => {
                all.extend(elements);
                Ok(())
            }
            (ListForm::Long(list), end) => list.push(end, elements),
        }
    }

    /// Takes elements off an end, the outermost first.
    pub fn pop(&mut self, end: End, count: usize) -> Result<Vec<&'a [u8]>, Stop> {
        match (&mut self.form, end) {
            (ListForm::Packed(all), End::Left) => Ok(all.drain(..count.min(all.len())).collect()),
            (ListForm::Packed(all), End::Right) => {
                Ok(all.drain(all.len() - count.min(all.len())..).rev().collect())
            }
            (ListForm::Long(list), end) => list.pop(end, count),
        }
    }

    /// The elements from a place on, `count` at most.
    pub fn range(&self, from: usize, count: usize) -> Result<Vec<&'a [u8]>, Stop> {
        match &self.form {
            ListForm::Packed(all) => Ok(all.iter().skip(from).take(count).copied().collect()),
            ListForm::Long(list) => list.range(from, count),
        }
    }

    /// Replaces the element at a place that there is.
    pub fn set(&mut self, place: usize, element: &'a [u8]) -> Done {
        match &mut self.form {
            ListForm::Packed(all) => {
                all[place] = element;
                Ok(())
            }
            ListForm::Long(list) => list.set(place, element),
        }
    }

    /// Inserts an element at a place that there is, or behind the last one.
    pub fn insert(&mut self, place: usize, element: &'a [u8]) -> Done {
        match &mut self.form {
            ListForm::Packed(all) => {
                all.insert(place, element);
                Ok(())
            }
            ListForm::Long(list) => list.insert(place, element),
        }
    }

    /// Removes the elements that `is_removed` names, asked from an end on; returns how many.
    pub fn remove(
        &mut self,
        from: End,
        mut is_removed: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize, Stop> {
        match &mut self.form {
            ListForm::Packed(all) => {
                let before = all.len();
                if from == End::Right {
                    all.reverse();
                }
                all.retain(|element| !is_removed(element));
                if from == End::Right {
                    all.reverse();
                }
                Ok(before - all.len())
            }
            ListForm::Long(list) => list.remove(from, is_removed),
        }
    }

    /// Stores it. An empty list does not exist.
    pub fn store(&self, space: &Keyspace<'_>, key: &[u8]) -> Done {
        match (&self.form, self.entry.head()) {
            (ListForm::Packed(all), _) => {
                store(space, key, &self.entry, Kind::List, all.iter().copied())
            }
            (ListForm::Long(list), Some(head)) if list.count() > 0 => {
                space.change(key, &self.entry, head, Some(&list.body()))
            }
            (ListForm::Long(_), _) => Ok(space.remove(key, &self.entry).map(drop)?),
        }
    }
}
