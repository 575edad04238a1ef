//! Values as Redis serializes them: the payloads of DUMP and RESTORE, and files of values.
//!
//! A payload is a type byte, the value, the version of the format in two bytes, and the CRC64 of
//! all bytes before in eight, both little endian. The input comes from clients: each length is
//! compared with the rest of the input before anything is taken, and the result of decompression is
//! bounded by [`MOST_BYTES`].

mod crc64;
pub mod file;
mod listpack;
mod lzf;
mod read;
mod stream;
#[cfg(test)]
mod tests;
mod timed;
mod write;
mod ziplist;

pub use read::{libraries as restore_libraries, restore, value};
pub use stream::{ConsumerImage, GroupImage, PendingImage, StreamImage, stream};
pub use timed::timed_hash;
pub use write::{FileWriter, FormatVersion, hash, libraries, list, set, sorted_set, string};

/// A field, its value, and its time of expiry, in milliseconds since 1970.
pub type TimedField = (Vec<u8>, Vec<u8>, Option<i64>);

/// A value read from a payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// A string.
    String(Vec<u8>),
    /// Elements from the left.
    List(Vec<Vec<u8>>),
    /// Different members.
    Set(Vec<Vec<u8>>),
    /// Each field, followed by the value. The fields are different.
    Hash(Vec<Vec<u8>>),
    /// Different fields, some with an expiry.
    TimedHash(Vec<TimedField>),
    /// Different members with scores, none of them NaN, in any order.
    SortedSet(Vec<(f64, Vec<u8>)>),
    /// A stream.
    Stream(Box<StreamImage>),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPayload {
    /// The payload is of a later version, or was changed on its way.
    Footer,
    /// The payload is no value.
    Format,
    /// The payload is a value of a module.
    Module,
    /// The value takes more bytes than allowed.
    TooLarge,
}

impl BadPayload {
    /// The error for the client.
    pub fn text(self) -> &'static str {
        match self {
            BadPayload::Footer => "ERR DUMP payload version or checksum are wrong",
            BadPayload::Format => "ERR Bad data format",
            BadPayload::Module => "ERR the payload is of a module, and modules cannot be loaded",
            BadPayload::TooLarge => "ERR the payload holds more than 1 GiB",
        }
    }
}

/// Most bytes of any value read.
pub const MOST_BYTES: usize = 1 << 30;

/// The written version, that of Redis 7.0.
const VERSION: u16 = 10;

/// The version of hashes with expiring fields, that of Redis 7.4: the latest readable version.
const TIMED_VERSION: u16 = 12;

/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// Bytes of a payload beside the value: type, version and checksum.
pub const AROUND_VALUE: usize = 1 + FOOTER;

pub use crc64::crc64;
pub use kinds::STRING;

/// The encodings of values, by the numbers of Redis's files.
mod kinds {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// Scores are text.
    pub const SORTED_SET: u8 = 3;
    pub const HASH: u8 = 4;
    /// Scores are eight bytes.
    pub const SORTED_SET_2: u8 = 5;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const SORTED_SET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    /// Ziplists.
    pub const LIST_QUICKLIST: u8 = 14;
    pub const HASH_LISTPACK: u8 = 16;
    pub const SORTED_SET_LISTPACK: u8 = 17;
    /// Listpacks, and large elements by themselves.
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const SET_LISTPACK: u8 = 20;
    /// Of Redis 5, 7.0 and 7.2.
    pub const STREAMS: [u8; 3] = [15, 19, 21];
    pub const MODULE: u8 = 6;
    pub const MODULE_2: u8 = 7;
    /// Fields that may expire, each behind its time: of candidates of Redis 7.4.
    pub const HASH_TIMED_OF_CANDIDATE: u8 = 22;
    /// The same fields as a listpack, with the time behind each value.
    pub const HASH_TIMED_LISTPACK_OF_CANDIDATE: u8 = 23;
    /// The first time, and fields behind their times, each relative to the first.
    pub const HASH_TIMED: u8 = 24;
    /// The first time, and a listpack.
    pub const HASH_TIMED_LISTPACK: u8 = 25;
    /// Values stored as one string in a file.
    pub const ONE_STRING: &[u8] = &[
        STRING,
        HASH_ZIPMAP,
        LIST_ZIPLIST,
        SET_INTSET,
        SORTED_SET_ZIPLIST,
        HASH_ZIPLIST,
        HASH_LISTPACK,
        SORTED_SET_LISTPACK,
        SET_LISTPACK,
    ];
    /// In files: the slot of a cluster that follows.
    pub const SLOT: u8 = 244;
    /// The code of a library of functions.
    pub const LIBRARY: u8 = 245;
    /// The code of a library, of a release candidate of Redis 7.0.
    pub const LIBRARY_OF_CANDIDATE: u8 = 246;
    pub const MODULE_AUXILIARY: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const AUXILIARY: u8 = 250;
    /// The number of keys, and of keys with an expiry.
    pub const SIZES: u8 = 251;
    pub const EXPIRES_MS: u8 = 252;
    pub const EXPIRES_SECONDS: u8 = 253;
    pub const DATABASE: u8 = 254;
    pub const END: u8 = 255;
}

/// The integer of a text, if the text is the canonical form of the integer.
fn canonical_integer(text: &[u8]) -> Option<i64> {
    if text.len() > 20 {
        return None;
    }
    let (digits, is_negative) = match text.split_first()? {
        (b'-', digits) => (digits, true),
        _ => (text, false),
    };
    let is_zero = text == b"0";
    let first = digits.first()?;
    if !is_zero && (*first == b'0' || !digits.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        value = if is_negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}
