//! The slots of a frontier, by name.

/// A lane of the [`Frontier`](crate::Frontier): a stream's durable position, a stream's mark, or
/// the common mark. Its index depends on the number of streams, so a frontier, or a vector of all
/// slots, of N streams only has the lanes made for N streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lane(u16);

/// The content of a slot, with its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// A stream's durable position.
    Position(usize),
    /// A stream's mark.
    Mark(usize),
    /// The common mark.
    Common,
}

impl Lane {
    /// The number of slots of a frontier of `streams` streams.
    #[inline]
    pub const fn count(streams: usize) -> usize {
        2 * streams + 1
    }

    /// The lane of a stream's durable position.
    #[inline]
    pub const fn position(stream: usize) -> Lane {
        debug_assert!(stream < crate::MAX_LANES, "a stream's index within an incarnation");
        Lane(stream as u16)
    }

    /// The lane of a stream's mark.
    #[inline]
    pub const fn mark(stream: usize, streams: usize) -> Lane {
        debug_assert!(stream < streams, "each stream has a mark");
        Lane((streams + stream) as u16)
    }

    /// The lane of the common mark.
    #[inline]
    pub const fn common(streams: usize) -> Lane {
        Lane(2 * streams as u16)
    }

    /// The content of the slot in a frontier of `streams` streams.
    #[inline]
    pub const fn kind(self, streams: usize) -> LaneKind {
        let index = self.index();
        debug_assert!(index < Lane::count(streams), "a lane of a frontier of more streams");
        if index < streams {
            LaneKind::Position(index)
        } else if index < 2 * streams {
            LaneKind::Mark(index - streams)
        } else {
            LaneKind::Common
        }
    }

    /// The index in a vector of all slots.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first `lanes` slots.
    #[inline]
    pub fn first(lanes: usize) -> impl Iterator<Item = Lane> {
        debug_assert!(lanes <= Lane::count(crate::MAX_LANES), "{lanes} slots of a frontier");
        (0..lanes as u16).map(Lane)
    }

    /// The slots with the numbers in `vector`, from slot 0 on: an LSN vector, or a vector of all
    /// slots.
    #[inline]
    pub fn each(vector: &[u64]) -> impl Iterator<Item = (Lane, u64)> {
        Lane::first(vector.len()).zip(vector.iter().copied())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_slot_holds_one_thing() {
        for streams in [1, 3, crate::MAX_LANES] {
            let positions = (0..streams).map(|s| (Lane::position(s), LaneKind::Position(s)));
            let marks = (0..streams).map(|s| (Lane::mark(s, streams), LaneKind::Mark(s)));
            let all = positions.chain(marks).chain([(Lane::common(streams), LaneKind::Common)]);
            assert_eq!(all.clone().count(), Lane::count(streams));
            for ((lane, kind), expected) in all.zip(Lane::first(Lane::count(streams))) {
                assert_eq!((lane, lane.kind(streams)), (expected, kind));
            }
        }
        let each: Vec<_> = Lane::each(&[7, 8]).collect();
        assert_eq!(each, [(Lane::position(0), 7), (Lane::position(1), 8)]);
    }
}
