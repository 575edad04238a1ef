//! Bytes as hexadecimal digits, in keys and messages.

use std::fmt::Write;

/// The bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

/// The bytes of hexadecimal digits. `None` if the text is something else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    digits.map(|two| byte(two).filter(|_| two.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(
            (hex(&[0, 255, 16]), unhex("00ff10")),
            ("00ff10".into(), Some(vec![0, 255, 16]))
        );
        assert_eq!((unhex("0"), unhex("zz"), unhex("é")), (None, None, None));
    }
}
