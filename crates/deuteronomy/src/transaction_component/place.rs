//! A position in a stream, in a single word.

use hyades_wal::Lsn;

/// The stream in the upper 7 bits, a position in the lower 57; or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

const POSITION_BITS: u32 = 57;

impl Place {
    pub const NONE: Place = Place(u64::MAX);

    pub fn new(stream: usize, position: Lsn) -> Self {
        debug_assert!(stream < hyades_wal::MAX_LANES, "stream {stream}");
        debug_assert!(position < 1 << POSITION_BITS, "position {position}: 4 years at 1 GB/s");
        Place((stream as u64) << POSITION_BITS | position)
    }

    /// The stream and the position.
    pub fn get(self) -> Option<(usize, Lsn)> {
        let position = self.0 & ((1 << POSITION_BITS) - 1);
        (self != Self::NONE).then_some(((self.0 >> POSITION_BITS) as usize, position))
    }

    pub fn word(self) -> u64 {
        self.0
    }

    pub fn from_word(word: u64) -> Self {
        Place(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_come_back() {
        let last = (1 << POSITION_BITS) - 1;
        for place in [(0, 0), (0, last), (63, 0), (63, last), (5, 12345)] {
            let word = Place::new(place.0, place.1).word();
            assert_eq!(Place::from_word(word).get(), Some(place));
        }
        assert_eq!(Place::NONE.get(), None);
    }
}
