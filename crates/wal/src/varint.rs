//! Unsigned LEB128 numbers in the shortest form.

/// Appends a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The length of an encoded number in bytes.
#[inline]
pub fn len(value: u64) -> usize {
    if value < 0x80 {
        return 1;
    }
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Decodes a number: value and length; None if cut off, too large or not in the shortest form.
#[inline]
pub fn get(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}

/// Takes a number off the front of bytes; None if they begin with none.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (number, used) = get(bytes)?;
    *bytes = &bytes[used..];
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_and_no_other_spelling_does() {
        let mut values = vec![0, 1, u64::MAX];
        for bit in 0..64 {
            values.extend([1u64 << bit, (1u64 << bit) - 1, (1u64 << bit) + 1]);
        }
        for value in values {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes.len(), len(value));
            assert_eq!(get(&bytes), Some((value, bytes.len())));
            assert_eq!(get(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(get(&[0x80, 0]), None);
        assert_eq!(get(&[0xff; 11]), None);
    }
}
