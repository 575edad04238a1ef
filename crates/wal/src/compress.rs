//! The encoding of vectors on disk: components covered by the anchor in effect are left out
//! (Taurus, VLDB 2020, section 4.3).
//!
//! Format: a varint bit mask of the present components, then a varint for each. A vector covered by
//! the anchor is a single byte.

use crate::lsn_vector::MAX_LANES;
use crate::varint;

/// Appends `lv` without the components at or below the components of `anchor`, read by `load`.
#[inline]
pub fn encode<A>(out: &mut Vec<u8>, lv: &[u64], anchor: &[A], load: impl Fn(&A) -> u64) {
    debug_assert!(lv.len() <= MAX_LANES, "a vector of {} lanes", lv.len());
    debug_assert_eq!(lv.len(), anchor.len(), "a vector and an anchor of different incarnations");
    let bit = |lane: usize, lsn: u64, anchor: &A| u64::from(lsn > load(anchor)) << lane;
    let mask = match (<&[u64; 4]>::try_from(lv), <&[A; 4]>::try_from(anchor)) {
        // A fast path for the usual number of streams, without a loop.
        (Ok(lv), Ok(anchor)) => {
            (0..4).fold(0, |mask, lane| mask | bit(lane, lv[lane], &anchor[lane]))
        }
        _ => {
            let lanes = lv.iter().zip(anchor).enumerate();
            lanes.fold(0, |mask, (lane, (&lsn, anchor))| mask | bit(lane, lsn, anchor))
        }
    };
    varint::put(out, mask);
    // By the mask, because the anchor may have risen since the comparison.
    let mut left = mask;
    while left != 0 {
        varint::put(out, lv[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
}

/// Decodes a vector into `out`; missing components get the anchor's values. Returns the bytes used.
///
/// # Errors
/// The bytes are not a vector of `out.len()` components; the text says why.
pub fn decode(bytes: &[u8], anchor: &[u64], out: &mut [u64]) -> Result<usize, &'static str> {
    if anchor.len() != out.len() {
        return Err("the anchor has another number of lanes than the vector");
    }
    let (mask, mut used) = varint::get(bytes).ok_or("the vector's mask is not a number")?;
    if out.len() < 64 && mask >> out.len() != 0 {
        return Err("the vector has more lanes than its incarnation has streams");
    }
    out.copy_from_slice(anchor);
    let mut left = mask;
    while left != 0 {
        let rest = bytes.get(used..).unwrap_or_default();
        let (lsn, n) = varint::get(rest).ok_or("a lane of the vector is cut off")?;
        out[left.trailing_zeros() as usize] = lsn;
        used += n;
        left &= left - 1;
    }
    Ok(used)
}

/// The bytes behind the vector that begins `bytes`; `None` if there is no vector.
#[inline]
pub fn skip(bytes: &[u8]) -> Option<&[u8]> {
    let (mask, mut used) = varint::get(bytes)?;
    for _ in 0..mask.count_ones() {
        used += varint::get(bytes.get(used..)?)?.1;
    }
    bytes.get(used..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_vector_comes_back_joined_with_what_the_anchor_covers(
            lanes in prop::collection::vec((0u64..1000, 0u64..1000), 1..=MAX_LANES),
            junk in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let (lv, anchor): (Vec<u64>, Vec<u64>) = lanes.into_iter().unzip();
            let mut bytes = Vec::new();
            encode(&mut bytes, &lv, &anchor, |lsn| *lsn);
            let used = bytes.len();
            bytes.extend(&junk);
            let mut out = vec![0; lv.len()];
            prop_assert_eq!(decode(&bytes, &anchor, &mut out), Ok(used));
            prop_assert_eq!(skip(&bytes), Some(&bytes[used..]));
            let expected: Vec<u64> = lv.iter().zip(&anchor).map(|(l, a)| *l.max(a)).collect();
            prop_assert_eq!(&out, &expected);
            prop_assert!(decode(&bytes[..used - 1], &anchor, &mut out).is_err());
            // Never panics, whatever the bytes are.
            let _ = decode(&junk, &anchor, &mut out);
            let _ = skip(&junk);
        }
    }

    #[test]
    fn a_covered_vector_is_one_byte() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &[3; 64], &[3; 64], |lsn| *lsn);
        assert_eq!(bytes, [0]);
    }
}
