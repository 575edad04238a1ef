//! CRC-32C of short runs of bytes. Most frames are a few dozen bytes long. For short runs the
//! library's dispatch and folding of long inputs cost more than the sum itself, so short inputs are
//! summed here with the processor's CRC instruction; the library sums long inputs.

/// The longest run summed here, in bytes. Beyond, the library is faster, with three concurrent
/// sums.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 512;

/// Extends the checksum `crc` by several runs of bytes, in order.
#[inline]
pub(crate) fn append<const N: usize>(crc: u32, runs: [&[u8]; N]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if runs.iter().all(|run| run.len() <= SHORT) && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: `short` may run only on a processor with SSE 4.2, and the condition proves SSE
        // 4.2.
        return unsafe { short(crc, runs) };
    }
    runs.iter().fold(crc, |crc, run| crc32c::crc32c_append(crc, run))
}

/// [`append`] with the processor's instruction.
///
/// # Safety
/// The processor supports SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short<const N: usize>(crc: u32, runs: [&[u8]; N]) -> u32 {
    let mut sum = !crc;
    for run in runs {
        sum = update_sse42(sum, run);
    }
    !sum
}

/// Adds a run of bytes to a non-inverted sum.
///
/// # Safety
/// The processor supports SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn update_sse42(sum: u32, run: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = run.as_chunks::<8>();
    let mut wide = u64::from(sum);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    let mut sum = wide as u32;
    if let Some((half, after)) = rest.split_first_chunk::<4>() {
        (sum, rest) = (_mm_crc32_u32(sum, u32::from_le_bytes(*half)), after);
    }
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        (sum, rest) = (_mm_crc32_u16(sum, u16::from_le_bytes(*two)), after);
    }
    if let Some(byte) = rest.first() {
        sum = _mm_crc32_u8(sum, *byte);
    }
    sum
}

/// Extends the checksum `crc` by a position, the low `head_len` bytes (at most eight) of `head`,
/// and `rest`. Same result as [`append`], in fewer steps.
#[inline(always)]
pub(crate) fn append_frame(crc: u32, start: u64, head: u64, head_len: usize, rest: &[u8]) -> u32 {
    debug_assert!(head_len <= 8, "{head_len} bytes of a word");
    #[cfg(target_arch = "x86_64")]
    if rest.len() <= SHORT && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: `short_frame` may run only on a processor with SSE 4.2, and the condition proves
        // SSE 4.2.
        return unsafe { short_frame(crc, start, head, head_len, rest) };
    }
    append(crc, [&start.to_le_bytes(), &head.to_le_bytes()[..head_len], rest])
}

/// [`append_frame`] with the processor's instruction.
///
/// # Safety
/// The processor supports SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short_frame(crc: u32, start: u64, head: u64, head_len: usize, rest: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let sum = _mm_crc32_u64(u64::from(!crc), start);
    if head_len == 8 {
        return !update_sse42(_mm_crc32_u64(sum, head) as u32, rest);
    }
    let (mut sum, mut left) = (sum as u32, head);
    if head_len & 4 != 0 {
        sum = _mm_crc32_u32(sum, left as u32);
        left >>= 32;
    }
    if head_len & 2 != 0 {
        sum = _mm_crc32_u16(sum, left as u16);
        left >>= 16;
    }
    if head_len & 1 != 0 {
        sum = _mm_crc32_u8(sum, left as u8);
    }
    !update_sse42(sum, rest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_frames_sum_is_that_of_its_bytes() {
        let bytes: Vec<u8> =
            (0..1500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..80).chain([511, 512, 513, 1024, 1500]) {
            for head_len in 0..=8 {
                let start = 0x0123_4567_89AB_CDEFu64 ^ length as u64;
                let head = 0xA1B2_C3D4_E5F6_0718u64;
                let head_bytes = &head.to_le_bytes()[..head_len];
                let all = [&start.to_le_bytes(), head_bytes, &bytes[..length]].concat();
                let sum = append_frame(77, start, head, head_len, &bytes[..length]);
                assert_eq!(sum, crc32c::crc32c_append(77, &all), "{length} {head_len}");
            }
        }
    }

    #[test]
    fn it_is_the_librarys_sum_for_every_length_and_any_cut() {
        let bytes: Vec<u8> =
            (0..1500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..80).chain([511, 512, 513, 1024, 1500]) {
            for crc in [0, 1, 0xDEAD_BEEF] {
                let run = &bytes[..length];
                let expected = crc32c::crc32c_append(crc, run);
                assert_eq!(append(crc, [run]), expected, "{length} bytes after {crc:x}");
                for cut in [0, length / 3, length / 2, length] {
                    let (a, b) = run.split_at(cut);
                    assert_eq!(append(crc, [a, b]), expected, "{length} bytes cut at {cut}");
                }
            }
        }
        // The standard check value of CRC-32C.
        assert_eq!(append(0, [b"123456789"]), 0xE306_9283);
    }
}
