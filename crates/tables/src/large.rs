//! Values of any size: a short value stands beside its key, a longer value is spread over pieces.
//!
//! What stands under a key of a keyspace or a table:
//!
//! | bytes | |
//! |---|---|
//! | 0, then the value | a value of up to a piece's size |
//! | 1, 16 bytes, varint, varint | the id of the pieces, the length of the value and of a piece |
//!
//! Piece `n` of a value is under the id and `n`, as 4 bytes big-endian, in the keyspace
//! [`PIECES`]. An id is the timestamp of the transaction that wrote the value, and a random number;
//! the transaction checks that no other of its values has the id. So the pieces of two values never
//! share a key, and the old value stays readable until the new one is whole.

use crate::bytes::Bytes;
use crate::error::Error;
use crate::prefix::{PIECES, Prefix};
use crate::view::Reads;
use crate::writes::{Before, Writes};
use hyades::row_codec::{push_varint, take_varint};
use hyades_deuteronomy::{Database, Transaction};

/// The default size of a piece in bytes, where a frame of the log takes it.
const PIECE_BYTES: usize = 256 << 10;
/// The bytes of a frame beside a key and its value, with room to spare.
const FRAME_HEADERS: usize = 64;

const INLINE: u8 = 0;
const SPREAD: u8 = 1;

/// The sizes up to which values stand beside their keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The size of a piece.
    piece_bytes: usize,
    /// The longest key with its value.
    frame_bytes: usize,
}

impl Sizes {
    /// The sizes for a database.
    ///
    /// # Errors
    /// [`Error::Declaration`]: a frame of the log does not take the wanted pieces.
    pub fn new(database: &Database, wanted: Option<usize>) -> Result<Self, Error> {
        let frame_bytes = database.log().max_payload().saturating_sub(FRAME_HEADERS);
        let most = frame_bytes.saturating_sub(FRAME_HEADERS);
        let piece_bytes = wanted.unwrap_or(PIECE_BYTES.min(frame_bytes / 2));
        match (1..=most).contains(&piece_bytes) {
            true => Ok(Self { piece_bytes, frame_bytes }),
            false => Err(Error::Declaration(format!(
                "pieces of {piece_bytes} bytes: the log of this database takes pieces of 1 to \
                 {most} bytes, by the sizes of its buffers and segments"
            ))),
        }
    }

    /// Whether a keyspace of small values takes a value.
    pub fn is_small(self, value_bytes: usize) -> bool {
        value_bytes <= self.piece_bytes
    }

    /// Whether a value stands beside its key.
    fn is_inline(self, key: &[u8], value_bytes: usize) -> bool {
        let fits = key.len().saturating_add(value_bytes) <= self.frame_bytes;
        // A value shorter than its head gains nothing.
        value_bytes <= self.piece_bytes && (fits || value_bytes <= FRAME_HEADERS)
    }
}

/// The head of a value spread over pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    id: [u8; 16],
    /// The length of the value.
    pub bytes: u64,
    piece_bytes: u64,
}

/// A value as stored under its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The value follows the first byte.
    Inline,
    Spread(Head),
}

impl Stored {
    /// Reads what stands under a key.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        match bytes.split_first() {
            Some((&INLINE, _)) => Some(Self::Inline),
            Some((&SPREAD, head)) => Head::decode(head).map(Self::Spread),
            _ => None,
        }
        .ok_or_else(|| {
            let start = &bytes[..bytes.len().min(24)];
            Error::Corrupt(format!("no value of a keyspace begins with the bytes {start:02x?}"))
        })
    }
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (id, mut rest) = bytes.split_first_chunk::<16>()?;
        let (bytes, piece_bytes) = (take_varint(&mut rest)?, take_varint(&mut rest)?);
        let pieces = bytes.div_ceil(piece_bytes.max(1));
        let is_sound = rest.is_empty() && piece_bytes > 0 && pieces <= u64::from(u32::MAX);
        is_sound.then_some(Self { id: *id, bytes, piece_bytes })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![SPREAD];
        out.extend(self.id);
        push_varint(&mut out, self.bytes);
        push_varint(&mut out, self.piece_bytes);
        out
    }

    /// The number of pieces.
    pub fn pieces(&self) -> u32 {
        self.bytes.div_ceil(self.piece_bytes) as u32
    }

    /// The key of a piece.
    fn piece_key(&self, piece: u32) -> Vec<u8> {
        Prefix::new(PIECES).key(&[&self.id[..], &piece.to_be_bytes()].concat())
    }

    /// The length of a piece in bytes.
    fn len_of(&self, piece: u32) -> u64 {
        (self.bytes - u64::from(piece) * self.piece_bytes).min(self.piece_bytes)
    }

    /// Reads a piece.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: the piece is missing, or has another length.
    pub fn read_piece(&self, view: &mut impl Reads, piece: u32) -> Result<Bytes, Error> {
        let found = view.read_value(&self.piece_key(piece))?;
        let wanted = self.len_of(piece);
        match found {
            Some(bytes) if bytes.len() as u64 == wanted => Ok(bytes),
            found => Err(Error::Corrupt(format!(
                "piece {piece} of a value of {} bytes should have {wanted} bytes and has {:?}",
                self.bytes,
                found.map(|bytes| bytes.len())
            ))),
        }
    }
}

/// The value that a stored one stands for.
///
/// # Errors
/// [`Error::Corrupt`]; the errors of reads.
pub(crate) fn load(view: &mut impl Reads, stored: Bytes) -> Result<Bytes, Error> {
    let head = match Stored::decode(&stored)? {
        Stored::Inline => return Ok(stored.skip(1)),
        Stored::Spread(head) => head,
    };
    let mut value = Vec::new();
    for piece in 0..head.pieces() {
        value.extend_from_slice(&head.read_piece(view, piece)?);
        if piece == 0 {
            // The first piece exists, so the head is no noise.
            value.reserve_exact(head.bytes as usize - value.len());
        }
    }
    Ok(Bytes::owned(value))
}

/// What stands under the key of a value without pieces.
pub(crate) fn inline(value: &[u8]) -> Vec<u8> {
    [&[INLINE], value].concat()
}

/// Writes a value under a key, and removes the pieces of the value before.
///
/// # Errors
/// [`Error::ValueTooLarge`]; the errors of reads and writes.
pub(crate) fn store(
    writes: &mut Writes<'_, '_>,
    sizes: Sizes,
    key: &[u8],
    value: &[u8],
    before: Option<Bytes>,
) -> Result<(), Error> {
    let old = before.as_deref().map(Stored::decode).transpose()?;
    let stored = match sizes.is_inline(key, value.len()) {
        true => inline(value),
        false => spread(writes, sizes.piece_bytes, value)?.encode(),
    };
    writes.put(key, &stored, before.into())?;
    remove_pieces(writes, old)
}

/// Writes the pieces of a value.
fn spread(writes: &mut Writes<'_, '_>, piece_bytes: usize, value: &[u8]) -> Result<Head, Error> {
    let too_large = |source: Error| match source {
        Error::Database(hyades_deuteronomy::Error::TransactionTooLarge(..)) => {
            Error::ValueTooLarge { bytes: value.len(), source: Some(Box::new(source)) }
        }
        source => source,
    };
    let head = Head {
        id: fresh_id(writes.tx())?,
        bytes: value.len() as u64,
        piece_bytes: piece_bytes as u64,
    };
    for (number, piece) in (0..).zip(value.chunks(piece_bytes)) {
        writes.put(&head.piece_key(number), piece, Before::Absent).map_err(too_large)?;
    }
    Ok(head)
}

/// An id of pieces, used by no other value: other transactions have other timestamps.
fn fresh_id(tx: &mut Transaction<'_>) -> Result<[u8; 16], Error> {
    loop {
        let mut head = Head { id: [0; 16], bytes: 1, piece_bytes: 1 };
        head.id[..8].copy_from_slice(&tx.timestamp().to_be_bytes());
        head.id[8..].copy_from_slice(&fastrand::u64(..).to_be_bytes());
        if tx.get(&head.piece_key(0))?.is_none() {
            return Ok(head.id);
        }
    }
}

/// Deletes a key, and the pieces of its value.
///
/// # Errors
/// The errors of writes.
pub(crate) fn remove(writes: &mut Writes<'_, '_>, key: &[u8], before: Bytes) -> Result<(), Error> {
    let old = Stored::decode(&before)?;
    writes.delete(key, Before::Value(before))?;
    remove_pieces(writes, Some(old))
}

fn remove_pieces(writes: &mut Writes<'_, '_>, old: Option<Stored>) -> Result<(), Error> {
    let Some(Stored::Spread(head)) = old else { return Ok(()) };
    (0..head.pieces()).try_for_each(|piece| writes.delete(&head.piece_key(piece), Before::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_nothing_else_is_one() {
        let head = Head { id: *b"0123456789abcdef", bytes: 1_000_001, piece_bytes: 1000 };
        let bytes = head.encode();
        assert_eq!(Stored::decode(&bytes).unwrap(), Stored::Spread(head.clone()));
        assert_eq!((head.pieces(), head.len_of(0), head.len_of(1000)), (1001, 1000, 1));
        assert_eq!(Stored::decode(&[INLINE]).unwrap(), Stored::Inline);
        let longer = [&bytes[..], &[0]].concat();
        let no_pieces = Head { piece_bytes: 0, ..head.clone() }.encode();
        let too_many = Head { bytes: u64::MAX, ..head }.encode();
        for wrong in [&bytes[..bytes.len() - 1], &longer, &no_pieces, &too_many, &[], &[2]] {
            assert!(matches!(Stored::decode(wrong), Err(Error::Corrupt(_))), "{wrong:?}");
        }
    }

    #[test]
    fn values_stand_beside_their_keys_up_to_the_size_of_a_piece_and_of_a_frame() {
        let sizes = Sizes { piece_bytes: 100, frame_bytes: 300 };
        assert!(sizes.is_inline(&[0; 200], 100) && !sizes.is_inline(&[0; 10], 101));
        assert!(!sizes.is_inline(&[0; 201], 100), "the head is shorter");
        assert!(sizes.is_inline(&[0; 400], 64), "too long in any case");
    }
}
