//! The journal of acknowledgements: the child writes entries to its pipe, and the parent to a file.

use std::io::{self, Read};

/// Bytes of an entry: kind, latency, and the identity of the transaction.
pub const ENTRY_BYTES: usize = 16;

/// The acknowledged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The transfer with this number.
    Transfer(u64),
    /// The order with this number in its district.
    Order {
        /// Warehouse.
        w: u16,
        /// District.
        d: u8,
        /// Order.
        o: u32,
    },
    /// A payment.
    Payment,
    /// A transaction without its own inserted row: a read, a rollback, a delivery.
    Other,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The transaction.
    pub what: What,
    /// Microseconds from the start to the acknowledgement.
    pub latency_us: u32,
}

impl Entry {
    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let (kind, value): (u32, u64) = match self.what {
            What::Transfer(id) => (1, id),
            What::Order { w, d, o } => (2, u64::from(o) | u64::from(d) << 32 | u64::from(w) << 40),
            What::Payment => (3, 0),
            What::Other => (4, 0),
        };
        let mut out = [0; ENTRY_BYTES];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.latency_us.to_le_bytes());
        out[8..].copy_from_slice(&value.to_le_bytes());
        out
    }

    /// Decodes an entry; `None` if its kind is unknown.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let value = u64::from(word(8)) | u64::from(word(12)) << 32;
        let what = match word(0) {
            1 => What::Transfer(value),
            2 => What::Order { w: (value >> 40) as u16, d: (value >> 32) as u8, o: value as u32 },
            3 => What::Payment,
            4 => What::Other,
            _ => return None,
        };
        Some(Entry { what, latency_us: word(4) })
    }
}

/// Calls `take` with each entry up to the end. An incomplete last entry is ignored, because the
/// entry did not reach the parent whole.
///
/// # Errors
/// Errors of the source; or an entry is invalid.
pub fn read_all(mut from: impl Read, mut take: impl FnMut(Entry)) -> io::Result<()> {
    let mut buffer = vec![0; ENTRY_BYTES * 4096];
    let mut held = 0;
    loop {
        let n = match from.read(&mut buffer[held..]) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if n == 0 {
            return Ok(());
        }
        held += n;
        let (entries, rest) = buffer[..held].as_chunks::<ENTRY_BYTES>();
        let left = rest.len();
        for entry in entries {
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is not a journal");
            take(Entry::decode(entry).ok_or_else(wrong)?);
        }
        buffer.copy_within(held - left..held, 0);
        held = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_a_cut_one_is_left_out() {
        let entries = [
            Entry { what: What::Transfer(u64::MAX), latency_us: 5 },
            Entry { what: What::Order { w: 513, d: 10, o: u32::MAX }, latency_us: 0 },
            Entry { what: What::Payment, latency_us: u32::MAX },
            Entry { what: What::Other, latency_us: 1 },
        ];
        let mut bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        bytes.extend([1, 0, 0]);
        let mut seen = Vec::new();
        read_all(&bytes[..], |entry| seen.push(entry)).unwrap();
        assert_eq!(seen, entries);
        assert!(read_all(&[9; ENTRY_BYTES][..], |_| ()).is_err());
    }
}
