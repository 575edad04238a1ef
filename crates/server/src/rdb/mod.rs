//! Values as Redis serializes them: the payloads of DUMP and RESTORE.
//!
//! A payload is a type byte, the value, the version of the format in two bytes, and the CRC64 of
//! all before it in eight, both little endian. What is read comes from clients: each length is
//! compared with what is left before anything is taken, and what compression yields is bounded by
//! [`MOST_BYTES`].

mod crc64;
mod listpack;
mod lzf;
mod read;
#[cfg(test)]
mod tests;
mod write;
mod ziplist;

pub use read::restore;
pub use write::{hash, list, set, sorted_set, string};

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// A string.
    String(Vec<u8>),
    /// Elements from the left.
    List(Vec<Vec<u8>>),
    /// Different members.
    Set(Vec<Vec<u8>>),
    /// Each field, followed by its value. The fields are different.
    Hash(Vec<Vec<u8>>),
    /// Different members with their scores, none of which is NaN, in any order.
    SortedSet(Vec<(f64, Vec<u8>)>),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPayload {
    /// It is of a later version, or was changed on its way.
    Footer,
    /// It is no value.
    Format,
    /// It is a stream.
    Stream,
    /// It is a value of a module.
    Module,
    /// Its value takes more bytes than it may.
    TooLarge,
}

impl BadPayload {
    /// What the client is told.
    pub fn text(self) -> &'static str {
        match self {
            BadPayload::Footer => "ERR DUMP payload version or checksum are wrong",
            BadPayload::Format => "ERR Bad data format",
            BadPayload::Stream => "ERR the payload is a stream, and streams are not built yet",
            BadPayload::Module => "ERR the payload is of a module, and modules cannot be loaded",
            BadPayload::TooLarge => "ERR the payload holds more than 1 GiB",
        }
    }
}

/// Most bytes that any value takes when it is read.
pub const MOST_BYTES: usize = 1 << 30;

/// The version that is written, that of Redis 7.0.
const VERSION: u16 = 10;

/// The latest version that is read, that of Redis 7.2.
const LATEST_VERSION: u16 = 11;

/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// Bytes of a payload that are not the value's: its type, version and checksum.
pub const AROUND_VALUE: usize = 1 + FOOTER;

pub use kinds::STRING;

/// How values are encoded, by the numbers of Redis's files.
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
    pub const STREAMS: [u8; 3] = [15, 19, 21];
    pub const MODULES: [u8; 2] = [6, 7];
}

/// The integer that a text is, if the integer is shown as that text.
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
