//! What members ask each other about bases, and the answers.
//!
//! A question is JSON. An answer begins with a byte that says what follows: a list as JSON, the
//! bytes of a piece behind their CRC-32C, or the text of a refusal.

use serde::{Deserialize, Serialize};

/// The most bytes of a piece.
pub(crate) const PIECE_BYTES: usize = 512 << 10;
/// The bytes of an answer beside the bytes of a piece.
pub(crate) const HEAD_BYTES: usize = 5;

const LIST: u8 = b'L';
const PIECE: u8 = b'P';
const REFUSAL: u8 = b'N';

/// A question about bases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BaseQuestion {
    /// The files of a base of the database.
    List {
        /// The database's uuid, in hexadecimal digits.
        database: String,
    },
    /// Bytes of a file.
    Piece {
        /// The number of the list.
        list: u64,
        /// The file in the list.
        file: usize,
        /// The offset of the first byte.
        from: u64,
        /// How many bytes, at most.
        most: usize,
    },
}

/// The files of a base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaseList {
    /// Names the list in questions to the member that has answered.
    pub list: u64,
    /// Names and lengths.
    pub files: Vec<(String, u64)>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BaseAnswer {
    List(BaseList),
    Piece(Vec<u8>),
    Refusal(String),
}

impl BaseQuestion {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("questions are plain")
    }

    pub fn decode(bytes: &[u8]) -> Option<BaseQuestion> {
        serde_json::from_slice(bytes).ok()
    }
}

impl BaseAnswer {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            BaseAnswer::List(list) => {
                let mut out = vec![LIST];
                serde_json::to_writer(&mut out, list).expect("lists are plain");
                out
            }
            BaseAnswer::Piece(bytes) => {
                let mut out = Vec::with_capacity(HEAD_BYTES + bytes.len());
                out.push(PIECE);
                out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
                out.extend_from_slice(bytes);
                out
            }
            BaseAnswer::Refusal(why) => [&[REFUSAL], why.as_bytes()].concat(),
        }
    }

    /// `None`: damaged, or of another program.
    pub fn decode(bytes: &[u8]) -> Option<BaseAnswer> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            LIST => Some(BaseAnswer::List(serde_json::from_slice(rest).ok()?)),
            PIECE => {
                let (crc, piece) = rest.split_first_chunk::<4>()?;
                let is_sound = u32::from_le_bytes(*crc) == crc32c::crc32c(piece);
                is_sound.then(|| BaseAnswer::Piece(piece.to_vec()))
            }
            REFUSAL => Some(BaseAnswer::Refusal(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_read_back_and_damage_is_found() {
        let list = BaseQuestion::List { database: "00".into() };
        let piece = BaseQuestion::Piece { list: 3, file: 4, from: 5, most: 6 };
        for question in [list, piece] {
            assert_eq!(BaseQuestion::decode(&question.encode()), Some(question));
        }
        assert_eq!(BaseQuestion::decode(b"{}"), None);
        let list = BaseList { list: 3, files: vec![("MANIFEST".into(), 70)] };
        for answer in [
            BaseAnswer::List(list),
            BaseAnswer::Piece(vec![1, 2, 3]),
            BaseAnswer::Refusal("not now".into()),
        ] {
            assert_eq!(BaseAnswer::decode(&answer.encode()), Some(answer));
        }
        let mut damaged = BaseAnswer::Piece(vec![1, 2, 3]).encode();
        damaged[6] ^= 1;
        assert_eq!(BaseAnswer::decode(&damaged), None);
        assert_eq!(BaseAnswer::decode(&[]), None);
    }
}
