//! Lists of predecessors in the log. docs/format.md, "Predecessors", is the specification; this
//! file encodes and decodes the lists.

use crate::storage::row::{push_varint, take_varint};
use hyades_wal::Lsn;

/// Identifies a record: the end of the frame, and the stream in the bits below. 0 is no record.
pub type Id = u64;

/// Bits of an [`Id`] for the stream.
const LANE_BITS: u32 = 6;

/// Returns the id of the record that ends at `end` in stream `lane`.
#[inline]
pub fn id(lane: usize, end: Lsn) -> Id {
    end << LANE_BITS | lane as u64
}

/// Returns the stream of an id.
#[inline]
pub fn lane(id: Id) -> usize {
    (id & ((1 << LANE_BITS) - 1)) as usize
}

/// Returns the position of an id.
#[inline]
pub fn end(id: Id) -> Lsn {
    id >> LANE_BITS
}

/// A record that another record follows. Where the order of data records is stated, a record that
/// was both read and overwritten is in the list twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Predecessor {
    pub id: Id,
    /// Whether the record was only overwritten, not read: the follower does not need the record.
    pub overwritten: bool,
}

/// Appends a sorted list without duplicates.
pub fn encode(list: &[Predecessor], lanes: usize, out: &mut Vec<u8>) {
    debug_assert!(list.is_sorted_by(|a, b| a < b));
    push_varint(out, list.len() as u64);
    let mut last = 0;
    for predecessor in list {
        let place = end(predecessor.id) * lanes as u64 + lane(predecessor.id) as u64;
        let number = place << 1 | u64::from(predecessor.overwritten);
        push_varint(out, number - last);
        last = number;
    }
}

/// Reads a list from `bytes` into `out`; `None` if malformed for an incarnation with `lanes`
/// streams.
pub fn decode(bytes: &mut &[u8], lanes: usize, out: &mut Vec<Predecessor>) -> Option<()> {
    out.clear();
    let n = take_varint(bytes)?;
    if n > bytes.len() as u64 {
        return None;
    }
    let mut last = 0u64;
    for _ in 0..n {
        let number = last.checked_add(take_varint(bytes)?)?;
        let place = number >> 1;
        let (end, lane) = (place / lanes as u64, (place % lanes as u64) as usize);
        let named = end < 1 << (u64::BITS - LANE_BITS);
        // Each number must be above the previous number.
        if !named || (!out.is_empty() && number <= last) {
            return None;
        }
        out.push(Predecessor { id: id(lane, end), overwritten: number & 1 == 1 });
        last = number;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_reads_back(
            lanes in 1usize..=64,
            places in prop::collection::vec(
                ((1u64..1 << 40, 0usize..64), 0u32..3), 0..40,
            ),
            junk: Vec<u8>,
        ) {
            let mut list: Vec<Predecessor> = places
                .into_iter()
                .flat_map(|((end, lane), kind)| {
                    let named = move |overwritten| {
                        Predecessor { id: id(lane % lanes, end), overwritten }
                    };
                    // Read, overwritten, or both.
                    [false, true].into_iter().filter(move |is| kind != u32::from(!*is)).map(named)
                })
                .collect();
            list.sort();
            list.dedup();
            let mut bytes = Vec::new();
            encode(&list, lanes, &mut bytes);
            let used = bytes.len();
            bytes.extend(&junk);
            let (mut rest, mut out) = (&bytes[..], Vec::new());
            prop_assert_eq!(decode(&mut rest, lanes, &mut out), Some(()));
            prop_assert_eq!(&out, &list);
            prop_assert_eq!(rest.len(), junk.len());
            prop_assert_eq!(decode(&mut &bytes[..used - 1], lanes, &mut out), None);
            // Never panics, whatever the bytes are.
            let _ = decode(&mut &junk[..], lanes, &mut out);
        }
    }

    #[test]
    fn a_record_read_and_overwritten_takes_a_byte_more() {
        let named = |overwritten| Predecessor { id: id(1, 1 << 30), overwritten };
        let length = |list: &[Predecessor]| {
            let mut bytes = Vec::new();
            encode(list, 4, &mut bytes);
            bytes.len()
        };
        assert_eq!(length(&[named(false), named(true)]), length(&[named(true)]) + 1);
    }

    #[test]
    fn neighbours_are_short() {
        let near = |at: u64| Predecessor {
            id: id(at as usize % 4, (1 << 30) | (at * 50)),
            overwritten: false,
        };
        let list: Vec<Predecessor> = (0..4).map(near).collect();
        let mut bytes = Vec::new();
        encode(&list, 4, &mut bytes);
        assert!(bytes.len() <= 1 + 5 + 3 * 2, "{}", bytes.len());
    }
}
