//! SHA-1, by which clients name scripts.

use sha1::{Digest, Sha1};
use std::fmt;

/// The digest of a text.
pub fn sha1(text: &[u8]) -> [u8; 20] {
    Sha1::digest(text).into()
}

/// A digest, shown in hexadecimal digits.
pub struct Hexadecimal<'a>(pub &'a [u8; 20]);

impl fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest in hexadecimal digits.
pub fn hexadecimal(digest: &[u8; 20]) -> String {
    Hexadecimal(digest).to_string()
}

/// The digest in a text of hexadecimal digits, in any case.
pub fn from_hexadecimal(text: &[u8]) -> Option<[u8; 20]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 40)?;
    let mut digest = [0; 20];
    for (at, byte) in digest.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2)?;
        let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_plain)?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back() {
        let digest = sha1(b"");
        let text = hexadecimal(&digest);
        assert_eq!(text, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(from_hexadecimal(text.to_uppercase().as_bytes()), Some(digest));
        assert_eq!(from_hexadecimal(b"da39"), None);
        assert_eq!(from_hexadecimal(&[b'+'; 40]), None);
    }
}
