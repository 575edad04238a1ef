//! LZF, the compression of strings in Redis.

/// Decompresses `packed`; `None` unless the result has `length` bytes. The caller has bounded
/// `length`.
pub fn decompress(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    // A reference takes two bytes at least and stands for 264 bytes at most, so a longer result is
    // impossible.
    if length > packed.len().checked_mul(132)? {
        return None;
    }
    let (mut rest, mut out) = (packed, Vec::with_capacity(length));
    while let Some((&control, after)) = rest.split_first() {
        rest = after;
        let control = usize::from(control);
        if control < 32 {
            let (literal, after) = rest.split_at_checked(control + 1)?;
            out.extend_from_slice(literal);
            rest = after;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                let (&more, after) = rest.split_first()?;
                count += usize::from(more);
                rest = after;
            }
            let (&low, after) = rest.split_first()?;
            rest = after;
            let back = ((control & 31) << 8 | usize::from(low)) + 1;
            let from = out.len().checked_sub(back)?;
            // The source of a copy may overlap the target.
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

/// Longest literal.
const LITERAL: usize = 32;
/// Longest reference, and its reach backward.
const REFERENCE: usize = 264;
const REACH: usize = 1 << 13;

/// Compresses bytes; `None` if the result is not shorter.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    // The last place of three bytes with each hash, plus one. Short strings are many, so they have
    // a small table.
    let bits = (usize::BITS - bytes.len().leading_zeros()).clamp(6, 14);
    let mut seen = vec![0u32; 1 << bits];
    let (mut out, mut at, mut literal) = (Vec::new(), 0, 0);
    let limit = u32::try_from(bytes.len()).ok()?;
    while at + 3 <= limit as usize {
        let three = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let slot = &mut seen[(three.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize];
        let from = std::mem::replace(slot, at as u32 + 1) as usize;
        let is_match = from > 0 && at - (from - 1) <= REACH && {
            let from = from - 1;
            bytes[from..from + 3] == bytes[at..at + 3]
        };
        if !is_match {
            at += 1;
            continue;
        }
        let from = from - 1;
        let most = REFERENCE.min(bytes.len() - at);
        let same = (0..most).take_while(|n| bytes[from + n] == bytes[at + n]).count();
        push_literals(&mut out, &bytes[literal..at]);
        let (back, count) = (at - from - 1, same - 2);
        out.push((count.min(7) << 5 | back >> 8) as u8);
        if count >= 7 {
            out.push((count - 7) as u8);
        }
        out.push(back as u8);
        at += same;
        literal = at;
        if out.len() >= bytes.len() {
            return None;
        }
    }
    push_literals(&mut out, &bytes[literal..]);
    (out.len() < bytes.len()).then_some(out)
}

fn push_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(LITERAL) {
        out.push(chunk.len() as u8 - 1);
        out.extend_from_slice(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_reads_back() {
        for length in [4, 21, 33, 264, 265, 300, 9_000, 70_000] {
            for period in [1, 2, 7, 300, 8_192, 8_300] {
                let bytes: Vec<u8> =
                    (0..length).map(|at| (((at % period) * (at % period)) >> 3) as u8).collect();
                if let Some(packed) = compress(&bytes) {
                    assert!(packed.len() < length);
                    assert_eq!(decompress(&packed, length), Some(bytes));
                }
            }
        }
        assert!(compress(&[7; 1_000]).unwrap().len() < 30);
        assert_eq!(compress(b"abcd"), None);
    }

    #[test]
    fn what_is_no_lzf_is_refused() {
        assert_eq!(decompress(&[0x20, 0], 3), None);
        assert_eq!(decompress(&[0, b'a', 0x20, 0], 4), Some(b"aaaa".to_vec()));
        assert_eq!(decompress(&[0, b'a', 0x20, 0], 3), None);
        assert_eq!(decompress(&[0, b'a', 0x20, 1], 4), None);
        assert_eq!(decompress(&[5, b'a'], 6), None);
        assert_eq!(decompress(&[0, b'a'], usize::MAX), None);
    }
}
