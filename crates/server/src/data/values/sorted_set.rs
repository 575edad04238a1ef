//! Sorted sets: members with scores, packed or in blocks. An element is a score, in eight bytes of
//! the same sort order, and a member, so that elements lie in the order of their bytes.

use super::elements::{self, CollectionType, Elements, are_small};
use super::members::MemberType;
use crate::config::PackedLimits;
use crate::data::blocks::BlockTable;
use crate::data::collections::Collection;
use crate::data::head::Kind;
use crate::data::keyspace::{Entry, Keyspace, Stop};
use crate::data::member_run::{MemberEdit, MemberRun, edit_members};
use crate::data::member_values::{Member, MemberValues};
use hyades::Abort;
use std::borrow::Cow;
use std::collections::HashMap;

/// The type of sorted sets: an element is a score and a member, in one string.
pub struct SortedSetType;

impl CollectionType for SortedSetType {
    const KIND: Kind = Kind::SortedSet;
    const STRINGS: usize = 1;
    const LARGE_ENCODING: &'static str = "skiplist";

    fn most_packed(limits: PackedLimits) -> usize {
        limits.sorted_set
    }

    fn write(
        blocks: BlockTable<'_>,
        number: u64,
        secret: u64,
        strings: &[&[u8]],
    ) -> Result<Vec<u8>, Stop> {
        let collection = Collection { number, secret };
        collection.members(blocks, Self::VALUES).fill(strings.iter().map(|element| {
            let (score, member) = element.split_at(8);
            (member, score)
        }))?;
        collection.by_score(blocks).fill(strings.iter().map(|element| (*element, &[][..])))?;
        Ok(collection.body())
    }

    fn read<'t>(blocks: BlockTable<'t>, body: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        let all = Collection::from_body(body)?.by_score(blocks).all()?;
        Ok(all.into_iter().map(|(element, _)| element).collect())
    }

    fn bytes(blocks: BlockTable<'_>, body: &[u8]) -> Result<usize, Stop> {
        let collection = Collection::from_body(body)?;
        Ok(collection.members(blocks, Self::VALUES).bytes()?
            + collection.by_score(blocks).bytes()?)
    }

    fn secret(body: &[u8]) -> Result<Option<u64>, Abort> {
        Ok(Some(Collection::from_body(body)?.secret))
    }

    fn small_encoding(strings: &[&[u8]]) -> Option<&'static str> {
        are_small(strings, 128, 64 + 8).then_some("listpack")
    }
}

impl MemberType for SortedSetType {
    /// The bytes of the score.
    const VALUES: MemberValues = MemberValues::Strings;

    fn members(strings: Vec<&[u8]>) -> Result<Vec<Member<'_>>, Abort> {
        // An element without a score is a torn view.
        let split = strings.into_iter().map(|string| string.split_at_checked(8));
        let members = split.map(|parts| parts.map(|(score, member)| (member, score)));
        members.collect::<Option<_>>().ok_or(Abort::Conflict)
    }
}

/// Members with scores, in the order of scores, then of members.
pub type Scored<'a> = Vec<(f64, &'a [u8])>;

/// Bytes in the sort order of scores. No score is NaN, and -0 is 0.
pub fn score_bytes(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let sign = 1 << 63;
    (if bits & sign == 0 { bits | sign } else { !bits }).to_be_bytes()
}

fn score_of(bytes: [u8; 8]) -> f64 {
    let (bits, sign) = (u64::from_be_bytes(bytes), 1 << 63);
    f64::from_bits(if bits & sign == 0 { !bits } else { bits & !sign })
}

/// Score and member of an element.
fn decode_one(element: &[u8]) -> Result<(f64, &[u8]), Abort> {
    // An element without a score is a torn view.
    let (score, member) = element.split_first_chunk::<8>().ok_or(Abort::Conflict)?;
    Ok((score_of(*score), member))
}

/// Reads the value of a member.
pub fn decode_score(value: &[u8]) -> Result<f64, Abort> {
    Ok(score_of(value.try_into().map_err(|_| Abort::Conflict)?))
}

/// Reads elements.
pub fn decode<'a>(all: &[&'a [u8]]) -> Result<Scored<'a>, Abort> {
    all.iter().map(|element| decode_one(element)).collect()
}

impl<'t> Elements<'t, '_, SortedSetType> {
    /// All members with scores; none if the key does not exist.
    pub fn scored(&self) -> Result<Scored<'t>, Stop> {
        Ok(decode(&self.all()?)?)
    }
}

/// A member as packed.
pub fn element(score: f64, member: &[u8]) -> Vec<u8> {
    [&score_bytes(score)[..], member].concat()
}

fn encode(all: &[(f64, &[u8])]) -> Vec<Vec<u8>> {
    all.iter().map(|(score, member)| element(*score, member)).collect()
}

/// Stores a sorted set in the place of any earlier value.
pub fn replace(space: &Keyspace<'_>, key: &[u8], all: &[(f64, &[u8])]) -> Result<(), Stop> {
    let all = encode(all);
    elements::replace::<SortedSetType>(space, key, all.iter().map(Vec::as_slice))
}

/// Sorts members by score, then by name.
pub fn sort(all: &mut Scored<'_>) {
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
}

/// The change of a member.
pub enum ScoreEdit {
    /// No change.
    Keep,
    /// The member is present, with this score.
    Set(f64),
    /// The member is absent.
    Remove,
}

/// A part of a sorted set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interval {
    /// From a rank to below another rank.
    Ranks(usize, usize),
    /// The elements at or above the first bytes, and below the second.
    Between(Vec<u8>, Option<Vec<u8>>),
}

enum SortedSetForm<'t> {
    /// The elements.
    Packed(Vec<&'t [u8]>),
    Blocks(Collection),
}

/// A sorted set.
pub struct StoredSortedSet<'t, 's> {
    elements: Elements<'t, 's, SortedSetType>,
    form: SortedSetForm<'t>,
}

impl<'t, 's> StoredSortedSet<'t, 's> {
    /// The sorted set of a key; an empty set if the key does not exist.
    pub fn of(entry: Entry<'t, 's>) -> Result<StoredSortedSet<'t, 's>, Stop> {
        let elements = Elements::of(entry)?;
        let form = match entry.lies_in_blocks() {
            true => SortedSetForm::Blocks(Collection::from_body(elements.body())?),
            false => SortedSetForm::Packed(elements.all()?),
        };
        Ok(StoredSortedSet { elements, form })
    }

    /// The scores of members by name.
    fn by_name(&self, collection: Collection) -> MemberRun<'t> {
        collection.members(self.elements.entry().blocks(), SortedSetType::VALUES)
    }

    /// The elements in their order.
    fn by_score(&self, collection: Collection) -> MemberRun<'t> {
        collection.by_score(self.elements.entry().blocks())
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.elements.entry().exists()
    }

    /// The number of members.
    pub fn count(&self) -> Result<usize, Stop> {
        Ok(match &self.form {
            SortedSetForm::Packed(all) => all.len(),
            SortedSetForm::Blocks(collection) => self.by_name(*collection).count()?,
        })
    }

    /// The scores of members; `None` for an absent member.
    pub fn scores(&self, names: &[&[u8]]) -> Result<Vec<Option<f64>>, Stop> {
        match &self.form {
            SortedSetForm::Packed(all) if names.len() > 1 => {
                let all = decode(all)?;
                let all: HashMap<&[u8], f64> = all.into_iter().map(|(s, name)| (name, s)).collect();
                Ok(names.iter().map(|name| all.get(name).copied()).collect())
            }
            SortedSetForm::Packed(all) => {
                let score = |name: &&[u8]| {
                    let found = all.iter().find(|bytes| bytes.get(8..) == Some(*name));
                    found.map(|element| Ok(decode_one(element)?.0)).transpose()
                };
                names.iter().map(score).collect()
            }
            SortedSetForm::Blocks(collection) => {
                let found = self.by_name(*collection).get_all(names)?.into_iter();
                Ok(found
                    .map(|value| value.map(decode_score).transpose())
                    .collect::<Result<_, _>>()?)
            }
        }
    }

    /// The rank and the score of a member, if present.
    pub fn rank(&self, name: &[u8]) -> Result<Option<(usize, f64)>, Stop> {
        let Some(score) = self.scores(&[name])?[0] else { return Ok(None) };
        Ok(Some((self.below(&element(score, name))?, score)))
    }

    /// The number of elements below these bytes.
    fn below(&self, bound: &[u8]) -> Result<usize, Stop> {
        Ok(match &self.form {
            SortedSetForm::Packed(all) => all.partition_point(|bytes| *bytes < bound),
            SortedSetForm::Blocks(collection) => self.by_score(*collection).rank(bound)?,
        })
    }

    /// The lowest and the highest score, if there is a member.
    pub fn lowest_and_highest(&self) -> Result<Option<(f64, f64)>, Stop> {
        let everything = Interval::Between(Vec::new(), None);
        let end = |is_highest| {
            let found = self.take(&everything, is_highest, 0, 1)?;
            Ok::<_, Stop>(found.first().map(|(score, _)| *score))
        };
        Ok(end(false)?.zip(end(true)?))
    }

    /// All members in their order.
    pub fn all(&self) -> Result<Scored<'t>, Stop> {
        self.take(&Interval::Between(Vec::new(), None), false, 0, usize::MAX)
    }

    /// The number of members in an interval.
    pub fn count_in(&self, interval: &Interval) -> Result<usize, Stop> {
        Ok(match interval {
            Interval::Ranks(from, to) => to.saturating_sub(*from),
            Interval::Between(low, high) => {
                let high = high.as_ref().map_or_else(|| self.count(), |high| self.below(high))?;
                high.saturating_sub(self.below(low)?)
            }
        })
    }

    /// The members of an interval, `most` at most, in their order or `reversed`, without the first
    /// `skipped` members.
    pub fn take(
        &self,
        interval: &Interval,
        reversed: bool,
        skipped: usize,
        most: usize,
    ) -> Result<Scored<'t>, Stop> {
        if most == 0 {
            return Ok(Vec::new());
        }
        match (&self.form, interval) {
            (SortedSetForm::Packed(all), interval) => {
                let (from, to) = match interval {
                    Interval::Ranks(from, to) => (*from, *to),
                    Interval::Between(low, high) => {
                        let to = high.as_ref().map_or(Ok(all.len()), |high| self.below(high))?;
                        (self.below(low)?, to)
                    }
                };
                let mut found = decode(&all[from..to.max(from)])?;
                if reversed {
                    found.reverse();
                }
                Ok(found.into_iter().skip(skipped).take(most).collect())
            }
            (SortedSetForm::Blocks(collection), Interval::Ranks(from, to)) => {
                let length = to.saturating_sub(*from).saturating_sub(skipped).min(most);
                let from =
                    if reversed { to.saturating_sub(skipped + length) } else { from + skipped };
                let found = self.by_score(*collection).slice(from, length, self.count()?)?;
                let mut found = found
                    .iter()
                    .map(|(name, _)| decode_one(name))
                    .collect::<Result<Vec<_>, _>>()?;
                if reversed {
                    found.reverse();
                }
                Ok(found)
            }
            (SortedSetForm::Blocks(collection), Interval::Between(low, high)) => {
                let elements = self.by_score(*collection);
                let (mut found, mut left) = (Vec::new(), skipped);
                let mut visit = |name: &'t [u8]| {
                    match left {
                        0 => found.push(name),
                        _ => left -= 1,
                    }
                    found.len() < most
                };
                match reversed {
                    false => elements.ascend_from(low, |(name, _)| {
                        high.as_ref().is_none_or(|high| name < &high[..]) && visit(name)
                    })?,
                    true => elements.descend_from(high.as_deref(), |(name, _)| {
                        name >= &low[..] && visit(name)
                    })?,
                }
                Ok(decode(&found)?)
            }
        }
    }

    /// Visits the members whose elements are at or above `low`, and below `high`, in their order,
    /// until `visit` returns false.
    pub fn visit(
        &self,
        low: &[u8],
        high: &[u8],
        mut visit: impl FnMut(f64, &'t [u8]) -> bool,
    ) -> Result<(), Stop> {
        let mut torn = None;
        let mut visit = |element: &'t [u8]| match decode_one(element) {
            Ok((score, member)) => element < high && visit(score, member),
            Err(abort) => {
                torn = Some(abort);
                false
            }
        };
        match &self.form {
            SortedSetForm::Packed(all) => {
                let _seen = all[self.below(low)?..].iter().all(|element| visit(element));
            }
            SortedSetForm::Blocks(collection) => {
                self.by_score(*collection).ascend_from(low, |(element, _)| visit(element))?;
            }
        }
        torn.map_or(Ok(()), |abort| Err(abort.into()))
    }

    /// The members with these ranks in an order of their own, each below `total`, the number of
    /// members.
    pub fn of_ranks(&self, ranks: &[usize], total: usize) -> Result<Scored<'t>, Stop> {
        match &self.form {
            SortedSetForm::Packed(all) => {
                let all = decode(all)?;
                Ok(ranks.iter().map(|rank| all[*rank]).collect())
            }
            SortedSetForm::Blocks(collection) => {
                let found = self.by_name(*collection).of_ranks(ranks, total)?.into_iter();
                Ok(found
                    .map(|(name, score)| Ok((decode_score(score)?, name)))
                    .collect::<Result<_, Abort>>()?)
            }
        }
    }

    /// Removes members.
    pub fn remove(&self, names: &[&[u8]]) -> Result<usize, Stop> {
        let mut removed = 0;
        self.edit(names, &mut |_, old| {
            removed += usize::from(old.is_some());
            Ok(if old.is_some() { ScoreEdit::Remove } else { ScoreEdit::Keep })
        })?;
        Ok(removed)
    }

    /// Changes members and stores the result: `change` gets the number of a name and the member's
    /// score, if present, and returns the change.
    pub fn edit(
        &self,
        names: &[&[u8]],
        change: &mut dyn FnMut(usize, Option<f64>) -> Result<ScoreEdit, Stop>,
    ) -> Result<(), Stop> {
        // The resulting changes of elements, in order.
        let mut moves: Vec<(Vec<u8>, bool)> = Vec::new();
        let mut edit = |number: usize, old: Option<&[u8]>| {
            let old = old.map(decode_score).transpose()?;
            let edit = change(number, old)?;
            let mut add = |score, is_there| moves.push((element(score, names[number]), is_there));
            Ok(match (edit, old) {
                (ScoreEdit::Keep, _) | (ScoreEdit::Remove, None) => MemberEdit::Keep,
                (ScoreEdit::Remove, Some(old)) => {
                    add(old, false);
                    MemberEdit::Remove
                }
                (ScoreEdit::Set(new), old) => {
                    old.into_iter().for_each(|old| add(old, false));
                    add(new, true);
                    MemberEdit::Set(Cow::Owned(score_bytes(new).to_vec()))
                }
            })
        };
        match &self.form {
            SortedSetForm::Packed(all) => {
                let numbers: Vec<usize> = (0..names.len()).collect();
                let known = SortedSetType::members(all.clone())?;
                let edited = edit_members(&known, names, &numbers, &mut edit)?;
                let Some(edited) = edited else { return Ok(()) };
                let mut all: Vec<Vec<u8>> =
                    edited.iter().map(|(name, score)| [score, *name].concat()).collect();
                all.sort();
                self.elements.store(all.iter().map(Vec::as_slice))
            }
            SortedSetForm::Blocks(collection) => {
                self.by_name(*collection).edit(names, &mut edit)?;
                self.move_elements(*collection, &moves)
            }
        }
    }

    fn move_elements(&self, collection: Collection, moves: &[(Vec<u8>, bool)]) -> Result<(), Stop> {
        let names: Vec<&[u8]> = moves.iter().map(|(name, _)| &name[..]).collect();
        let elements = self.by_score(collection);
        elements.edit(&names, &mut |number, _| {
            Ok(match moves[number].1 {
                true => MemberEdit::Set(Cow::Borrowed(&[])),
                false => MemberEdit::Remove,
            })
        })?;
        let is_removed = moves.iter().any(|(_, is_there)| !is_there);
        if is_removed && !elements.has_any()? {
            self.elements.entry().remove()?;
        } else if !moves.is_empty() {
            self.elements.entry().touch()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_scores_sort_as_they_do() {
        let all = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 2.0, f64::INFINITY];
        for pair in all.windows(2) {
            assert!(score_bytes(pair[0]) < score_bytes(pair[1]), "{pair:?}");
        }
        all.iter().for_each(|score| assert_eq!(score_of(score_bytes(*score)), *score));
        assert_eq!(score_bytes(-0.0), score_bytes(0.0));
    }
}
