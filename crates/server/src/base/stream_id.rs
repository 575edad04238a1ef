//! Ids of the entries of streams: a time in milliseconds and a number among the ids of the same
//! time.

use std::fmt;

/// The id of an entry of a stream. Ids sort as their entries follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// A time in milliseconds, by rule since 1970.
    pub ms: u64,
    /// The number among the ids of the same time.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id, unused by entries.
    pub const ZERO: StreamId = StreamId { ms: 0, seq: 0 };

    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The next higher id, if there is one.
    pub fn next(self) -> Option<StreamId> {
        match (self.ms, self.seq.checked_add(1)) {
            (ms, Some(seq)) => Some(StreamId { ms, seq }),
            (ms, None) => Some(StreamId { ms: ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The next lower id, if there is one.
    pub fn previous(self) -> Option<StreamId> {
        match (self.ms, self.seq.checked_sub(1)) {
            (ms, Some(seq)) => Some(StreamId { ms, seq }),
            (ms, None) => Some(StreamId { ms: ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Sixteen bytes, with the order of the ids.
    pub fn bytes(self) -> [u8; 16] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }

    /// From [`StreamId::bytes`]; `None` for any other number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<StreamId> {
        let number = u128::from_be_bytes(bytes.try_into().ok()?);
        Some(StreamId { ms: (number >> 64) as u64, seq: number as u64 })
    }

    /// The text for clients.
    pub fn text(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// Reads `ms-seq`, or `ms` alone, with `seq` as the second part.
    pub fn parse(text: &[u8], seq: u64) -> Option<StreamId> {
        match text.iter().position(|byte| *byte == b'-') {
            None => Some(StreamId { ms: part(text)?, seq }),
            Some(at) => Some(StreamId { ms: part(&text[..at])?, seq: part(&text[at + 1..])? }),
        }
    }
}

/// Longer ids are none, as in Redis.
const LONGEST: usize = 127;

/// A number of an id. As in Redis there may be blanks, a plus and zeros in front of the number.
pub fn part(text: &[u8]) -> Option<u64> {
    if text.len() > LONGEST {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\r']);
    text.parse().ok()
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_shown_and_sorted() {
        let id = |ms, seq| StreamId { ms, seq };
        for (text, expected) in [
            ("1-2", Some(id(1, 2))),
            ("7", Some(id(7, 9))),
            ("007-+1", Some(id(7, 1))),
            ("18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
            ("18446744073709551616", None),
            ("1-", None),
            ("-1", None),
            ("1--1", None),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(StreamId::parse(text.as_bytes(), 9), expected, "{text}");
        }
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::ZERO.previous()), (None, None));
        assert!(id(1, 300).bytes() < id(2, 0).bytes() && id(1, 2).bytes() < id(1, 256).bytes());
        assert_eq!(StreamId::from_bytes(&id(5, 6).bytes()), Some(id(5, 6)));
        assert_eq!(id(5, 6).text(), b"5-6");
    }
}
