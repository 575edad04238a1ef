//! CRC-32C of short runs of bytes. Frames are a few dozen bytes long: there the library's dispatch and
//! its folding of long inputs cost more than the sum itself, so short inputs are summed here, with the
//! processor's own instruction; the library does everything else.

/// Up to this many bytes are summed here. Beyond it the library, which keeps three sums going at once,
/// is faster.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 512;

/// Goes on with the checksum `crc` over several runs of bytes, one after the other.
#[inline]
pub(crate) fn append<const N: usize>(crc: u32, runs: [&[u8]; N]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if runs.iter().all(|run| run.len() <= SHORT) && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2.
        return unsafe { short(crc, runs) };
    }
    runs.iter().fold(crc, |crc, run| crc32c::crc32c_append(crc, run))
}

/// The same, with the instruction for it.
///
/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short<const N: usize>(crc: u32, runs: [&[u8]; N]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let mut sum = !crc;
    for run in runs {
        let (words, rest) = run.as_chunks::<8>();
        let mut wide = u64::from(sum);
        for word in words {
            wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
        }
        sum = wide as u32;
        let (halves, rest) = rest.as_chunks::<4>();
        for half in halves {
            sum = _mm_crc32_u32(sum, u32::from_le_bytes(*half));
        }
        for byte in rest {
            sum = _mm_crc32_u8(sum, *byte);
        }
    }
    !sum
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
        // The check value of the catalogues of checksums.
        assert_eq!(append(0, [b"123456789"]), 0xE306_9283);
    }
}
